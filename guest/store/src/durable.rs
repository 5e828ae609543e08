//! Every durable write of the product, and the points at which the crash suite
//! stops it. A write is durable when these functions return, and has had no
//! effect a reader can mistake for success when they fail.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags};

/// Runs one durable write between its two crash points.
fn commit<T>(effect: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(feature = "crash-points")]
    let point = crash::before();
    let done = effect()?;
    #[cfg(feature = "crash-points")]
    crash::after(point);
    Ok(done)
}

/// Appends `bytes` (whole lines) with one write and makes them durable. After
/// an error the file is cut back to `length`, its length before.
pub fn append(file: &File, length: u64, bytes: &[u8]) -> io::Result<()> {
    commit(|| {
        let mut writer = file;
        match writer.write_all(bytes).and_then(|()| file.sync_data()) {
            Ok(()) => Ok(()),
            Err(error) => {
                file.set_len(length)?;
                Err(error)
            }
        }
    })
}

/// Replaces `name` in `dir` as a whole: temporary file in the same directory,
/// fsync, rename, fsync of the directory.
pub fn replace(dir: BorrowedFd<'_>, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    commit(|| {
        let temporary = format!(".{name}.new");
        match fs::unlinkat(dir, &temporary, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(dir, &temporary, flags, Mode::from_raw_mode(mode))?);
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(error) = written {
            fs::unlinkat(dir, &temporary, AtFlags::empty())?;
            return Err(error);
        }
        fs::renameat(dir, &temporary, dir, name)?;
        fs::fsync(dir)?;
        Ok(())
    })
}

/// Writes a file that may exist already with the same content, as a blob does.
pub fn put_new(dir: BorrowedFd<'_>, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::NOENT) => replace(dir, name, bytes, mode),
        Err(error) => Err(error.into()),
    }
}

/// Removes `name`; one that is not there is success.
pub fn remove(dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    commit(|| match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(fs::fsync(dir)?),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    })
}

/// Creates a directory. `Ok(false)` when something of that name is there.
pub fn create_dir(dir: BorrowedFd<'_>, name: &str, mode: u32) -> io::Result<bool> {
    commit(|| match fs::mkdirat(dir, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            fs::fsync(dir)?;
            Ok(true)
        }
        Err(rustix::io::Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    })
}

/// Cuts `file` to `length` and makes that durable.
pub fn truncate(file: &File, length: u64) -> io::Result<()> {
    commit(|| {
        file.set_len(length)?;
        file.sync_data()
    })
}

/// The descriptor of the current directory of relative calls.
pub fn dir_of<F: AsFd>(dir: &F) -> BorrowedFd<'_> {
    dir.as_fd()
}

#[cfg(feature = "crash-points")]
pub mod crash {
    //! Where a process can be stopped around a durable write.
    //!
    //! `SENTINEL_CRASH=<role>:<n>:<before|after>` stops the process of that
    //! role with SIGSTOP at its n-th durable write, counted over restarts in a
    //! file the role names. The suite then kills whom it wants to test.

    use std::fs::File;
    use std::io::Write as _;
    use std::sync::{Mutex, OnceLock};

    struct Armed {
        counter: Mutex<File>,
        stop_at: Option<(u64, bool)>,
    }

    static ARMED: OnceLock<Armed> = OnceLock::new();

    /// Starts counting in `counter`, a file opened for appending.
    pub fn arm(role: &str, counter: File) {
        let stop_at = std::env::var("SENTINEL_CRASH").ok().and_then(|text| parse(&text, role));
        let _already = ARMED.set(Armed { counter: Mutex::new(counter), stop_at });
    }

    fn parse(text: &str, role: &str) -> Option<(u64, bool)> {
        let mut parts = text.split(':');
        if parts.next()? != role {
            return None;
        }
        let n = parts.next()?.parse().ok()?;
        Some((n, parts.next()? == "after"))
    }

    pub(super) fn before() -> u64 {
        let Some(armed) = ARMED.get() else { return 0 };
        let n = {
            let Ok(mut counter) = armed.counter.lock() else { return 0 };
            let _counted = counter.write_all(b".");
            counter.metadata().map_or(0, |m| m.len())
        };
        if armed.stop_at == Some((n, false)) {
            stop();
        }
        n
    }

    pub(super) fn after(n: u64) {
        if ARMED.get().is_some_and(|armed| armed.stop_at == Some((n, true))) {
            stop();
        }
    }

    fn stop() {
        let _stopped =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    }
}
