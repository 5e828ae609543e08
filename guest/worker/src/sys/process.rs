//! Forking without exec, waiting with resource usage, descriptors, leaving without running destructors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// How a waited-for process ended and what it and everything it had waited for used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    pub(crate) cpu: Duration,
}

/// What a wait that does not block found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waited {
    /// One child is gone.
    Reaped(Reaped),
    /// There are children, none of them is gone.
    Nothing,
    /// There is no child at all: every descendant of a subreaper has been reaped.
    NoChildren,
}

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Forked {
    Parent { child: i32 },
    Child,
}

/// Number of threads of this process.
pub(crate) fn thread_count() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Forks without exec, and refuses unless the process has exactly one thread.
///
/// # Errors
/// The number of threads when it is not one, as `Ok(Err(threads))`; an errno when the fork fails.
pub(crate) fn fork_single_threaded() -> io::Result<Result<Forked, usize>> {
    let threads = thread_count()?;
    if threads != 1 {
        return Ok(Err(threads));
    }
    // SAFETY: the process has one thread, so no lock can be held by a thread that the child lacks.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Ok(Forked::Child)),
        child => Ok(Ok(Forked::Parent { child })),
    }
}

/// Ends the process at once: no destructors, no exit handlers, no flushing of buffers shared with a parent by fork.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// Reaps one child if one is gone; never blocks.
pub(crate) fn reap_any() -> Waited {
    wait(-1, libc::WNOHANG)
}

/// Waits until this child is gone.
pub(crate) fn reap_blocking(pid: i32) -> Waited {
    wait(pid, 0)
}

/// Reaps this child if it is gone; never blocks.
pub(crate) fn reap_one(pid: i32) -> Waited {
    wait(pid, libc::WNOHANG)
}

fn wait(pid: i32, flags: i32) -> Waited {
    let mut status = 0;
    loop {
        // SAFETY: `rusage` is a plain structure of integers, for which all zeroes is a value.
        let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
        // SAFETY: both pointers are to live locals of the right type.
        let answer =
            unsafe { libc::wait4(pid, &raw mut status, flags | libc::__WALL, &raw mut usage) };
        match answer {
            0 => return Waited::Nothing,
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Waited::NoChildren,
            pid => {
                return Waited::Reaped(Reaped {
                    pid,
                    status,
                    cpu: elapsed(usage.ru_utime) + elapsed(usage.ru_stime),
                });
            }
        }
    }
}

fn elapsed(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Closes every descriptor above 2 except `keep`.
///
/// For the child of a fork that never returns to the code which owned those descriptors.
pub(crate) fn close_all_but(keep: BorrowedFd<'_>) -> io::Result<()> {
    let keep = u32::try_from(keep.as_raw_fd()).unwrap_or(0);
    let ranges = [(3, keep.saturating_sub(1)), (keep.saturating_add(1).max(3), u32::MAX)];
    for (first, last) in ranges {
        if first > last {
            continue;
        }
        // SAFETY: takes integers only; the caller never comes back to an owner of a descriptor in the range.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Signals the tool host ignores: it ends when the worker's end of its socket closes, and must live to reap until then.
const IGNORED_BY_HOST: [i32; 5] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE];

/// The signals this process ignores, its own choices and inherited ones, as the kernel's set: bit n is signal n + 1.
pub(crate) fn ignored_signals() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Ignores [`IGNORED_BY_HOST`] in this process. A spawned child gets the defaults back.
pub(crate) fn ignore_ending_signals() -> io::Result<()> {
    for signal in IGNORED_BY_HOST {
        // SAFETY: `SIG_IGN` installs no handler.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
