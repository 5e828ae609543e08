//! One append-only log file: reading it back, repairing a torn tail, and
//! appending so that many threads share one `fdatasync`.
//!
//! A batch is written with one `write` of whole lines and one `fdatasync`.
//! While it is on its way further callers queue up and go out together in the
//! next batch (group commit), within this one file only.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use domain::id::Millis;
use domain::log::{Entry, Line, decode_line, encode_line};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::beneath::{self, Expect};
use crate::{StoreError, durable};

/// Bytes set aside because they were no whole line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    pub bytes: u64,
    /// File beside the log that now holds them.
    pub kept_as: String,
}

/// A log read back.
#[derive(Debug, Clone)]
pub struct ReadLog<T> {
    /// Entries this program understands, in order.
    pub entries: Vec<Entry<T>>,
    /// Names of entries it does not.
    pub unknown: Vec<String>,
    pub last_seq: u64,
    /// Bytes of whole lines.
    pub length: u64,
    /// Bytes after the last whole line.
    pub torn: u64,
}

/// Reads whole lines from the start of `file` and hands each to `take`.
/// Returns the last sequence number, the bytes of whole lines and the torn
/// bytes after them.
///
/// The last line counts as torn when its newline is missing or when it does
/// not decode and nothing follows it; a bad line in the middle is damage.
pub fn read_lines<T: DeserializeOwned>(
    file: &File,
    path: &Path,
    mut take: impl FnMut(Line<T>),
) -> Result<(u64, u64, u64), StoreError> {
    let io = |source| StoreError::Io { act: "read", path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(1 << 16, file);
    reader.seek(SeekFrom::Start(0)).map_err(io)?;
    let (mut seq, mut length) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(io)? as u64;
        if read == 0 {
            return Ok((seq, length, 0));
        }
        if line.last() != Some(&b'\n') {
            return Ok((seq, length, read));
        }
        line.pop();
        match decode_line(&line, seq + 1) {
            Ok(decoded) => take(decoded),
            Err(source) => {
                let rest = rest_len(&mut reader).map_err(io)?;
                if rest == 0 {
                    return Ok((seq, length, read));
                }
                return Err(StoreError::DamagedLine {
                    path: path.to_owned(),
                    line: seq + 1,
                    source,
                });
            }
        }
        seq += 1;
        length += read;
    }
}

fn rest_len(reader: &mut BufReader<&File>) -> std::io::Result<u64> {
    let mut rest = [0u8; 1];
    Ok(reader.read(&mut rest)? as u64)
}

/// Reads a whole log into memory.
pub(crate) fn read_log<T: DeserializeOwned>(
    file: &File,
    path: &Path,
) -> Result<ReadLog<T>, StoreError> {
    let mut entries = Vec::new();
    let mut unknown = Vec::new();
    let (last_seq, length, torn) = read_lines(file, path, |line| match line {
        Line::Known(entry) => entries.push(entry),
        Line::Unknown { name, .. } => unknown.push(name),
    })?;
    Ok(ReadLog { entries, unknown, last_seq, length, torn })
}

impl<T> Default for ReadLog<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), unknown: Vec::new(), last_seq: 0, length: 0, torn: 0 }
    }
}

struct Pending {
    /// Encoded lines that wait for the next batch.
    queued: Vec<u8>,
    /// Sequence number the next entry gets.
    next: u64,
    /// All entries below this are durable.
    durable: u64,
    length: u64,
    writing: bool,
    failed: Option<std::io::ErrorKind>,
}

/// A log just opened for appending.
pub struct OpenedLog<T> {
    pub log: Log<T>,
    /// What stood in it.
    pub read: ReadLog<T>,
    /// The torn tail that was set aside, to be named in an event.
    pub torn: Option<Torn>,
}

/// A log open for appending by its one writer.
pub struct Log<T> {
    file: File,
    path: PathBuf,
    pending: Mutex<Pending>,
    written: Condvar,
    entries: PhantomData<fn(T)>,
}

impl<T: Serialize + DeserializeOwned> Log<T> {
    /// Opens or creates `name` in `dir`, reads it, and sets a torn tail aside
    /// as `<name>.torn-<seq>` before anything is appended.
    pub fn open(
        dir: BorrowedFd<'_>,
        name: &str,
        shown: &Path,
        mode: u32,
        expect: Expect,
    ) -> Result<OpenedLog<T>, StoreError> {
        Self::open_with(dir, name, shown, mode, expect, |_| Ok(()))
    }

    /// [`Log::open`], holding an exclusive lock on the file from before it is
    /// read until the log is dropped; [`StoreError::Held`] when it is taken.
    pub(crate) fn open_locked(
        dir: BorrowedFd<'_>,
        name: &str,
        shown: &Path,
        mode: u32,
        expect: Expect,
    ) -> Result<OpenedLog<T>, StoreError> {
        Self::open_with(dir, name, shown, mode, expect, |file| {
            // A flock belongs to the open file description, as an OFD lock
            // does, and ends with its last descriptor.
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(()),
                Err(Errno::WOULDBLOCK) => Err(StoreError::Held),
                Err(error) => Err(StoreError::Io {
                    act: "lock",
                    path: shown.join(name),
                    source: error.into(),
                }),
            }
        })
    }

    fn open_with(
        dir: BorrowedFd<'_>,
        name: &str,
        shown: &Path,
        mode: u32,
        expect: Expect,
        lock: impl FnOnce(&File) -> Result<(), StoreError>,
    ) -> Result<OpenedLog<T>, StoreError> {
        let path = shown.join(name);
        let io = |act| {
            let path = path.clone();
            move |source: std::io::Error| StoreError::Io { act, path, source }
        };
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat2(dir, name, flags, Mode::from_raw_mode(mode), beneath::HOSTILE)
                .map_err(|e| io("open")(e.into()))?;
        let file = File::from(file);
        beneath::check_regular(file.as_fd(), expect)
            .map_err(|unfit| StoreError::Foreign { path: path.clone(), what: unfit.to_string() })?;
        lock(&file)?;
        let log = read_log::<T>(&file, &path)?;
        let torn = if log.torn > 0 {
            let kept_as = format!("{name}.torn-{}", log.last_seq + 1);
            set_aside(dir, &file, log.length, &kept_as, mode).map_err(io("repair"))?;
            Some(Torn { bytes: log.torn, kept_as })
        } else {
            None
        };
        let next = log.last_seq + 1;
        let pending = Pending {
            queued: Vec::new(),
            next,
            durable: next,
            length: log.length,
            writing: false,
            failed: None,
        };
        let this = Self {
            file,
            path,
            pending: Mutex::new(pending),
            written: Condvar::new(),
            entries: PhantomData,
        };
        Ok(OpenedLog { log: this, read: log, torn })
    }

    /// Appends `bodies` as consecutive entries and returns the number of the
    /// first once all are durable.
    pub fn append(&self, at: Millis, bodies: &[T]) -> Result<u64, StoreError> {
        let mut pending = self.lock();
        if pending.failed.is_some() {
            return Err(StoreError::Poisoned { path: self.path.clone() });
        }
        let first = pending.next;
        for body in bodies {
            let line = encode_line(pending.next, at, body).map_err(|source| {
                StoreError::Format { path: self.path.clone(), what: "a log line", source }
            })?;
            pending.queued.extend_from_slice(&line);
            pending.next += 1;
        }
        let last = pending.next;
        while pending.durable < last {
            if let Some(kind) = pending.failed {
                return Err(self.failure(kind.into()));
            }
            pending = if pending.writing {
                self.written.wait(pending).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.write_batch(pending)?
            };
        }
        Ok(first)
    }

    /// Writes everything queued as one batch. The lock is not held meanwhile.
    fn write_batch<'a>(
        &'a self,
        mut pending: MutexGuard<'a, Pending>,
    ) -> Result<MutexGuard<'a, Pending>, StoreError> {
        pending.writing = true;
        let batch = std::mem::take(&mut pending.queued);
        let (upto, length) = (pending.next, pending.length);
        drop(pending);
        let done = durable::append(&self.file, length, &batch);
        let mut pending = self.lock();
        pending.writing = false;
        self.written.notify_all();
        match done {
            Ok(()) => {
                pending.durable = upto;
                pending.length += batch.len() as u64;
                Ok(pending)
            }
            Err(source) => {
                // Whoever queued behind this batch numbered its lines after
                // it: nothing more may follow until the log is opened again.
                pending.failed = Some(source.kind());
                Err(self.failure(source))
            }
        }
    }

    fn failure(&self, source: std::io::Error) -> StoreError {
        StoreError::Io { act: "append to", path: self.path.clone(), source }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set_aside(
    dir: BorrowedFd<'_>,
    file: &File,
    from: u64,
    kept_as: &str,
    mode: u32,
) -> std::io::Result<()> {
    let mut reader = file;
    reader.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    durable::replace(dir, kept_as, &bytes, mode)?;
    durable::truncate(file, from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::log::Control;
    use std::io::Write as _;

    const EXPECT: Expect = Expect { uid: None, limit: 1 << 20 };

    fn steer(text: &str) -> Control {
        Control::Steer { text: text.to_owned(), speaker: None }
    }

    fn open(dir: &Path) -> (Log<Control>, ReadLog<Control>, Option<Torn>) {
        let fd = beneath::open_dir(dir).unwrap();
        let opened = Log::open(fd.as_fd(), "control.jsonl", dir, 0o600, EXPECT).unwrap();
        (opened.log, opened.read, opened.torn)
    }

    fn write(dir: &Path, bytes: &[u8]) {
        File::create(dir.join("control.jsonl")).unwrap().write_all(bytes).unwrap();
    }

    #[test]
    fn a_tail_torn_at_every_byte_is_set_aside_and_the_next_append_starts_a_line() {
        let temp = tempfile::tempdir().unwrap();
        let (log, ..) = open(temp.path());
        log.append(Millis(1), &[steer("one"), steer("two")]).unwrap();
        let whole = std::fs::read(temp.path().join("control.jsonl")).unwrap();
        let first = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        for cut in first + 1..whole.len() {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &whole[..cut]);
            let (log, read, torn) = open(dir.path());
            let torn = torn.unwrap();
            assert_eq!((read.entries.len(), torn.bytes), (1, (cut - first) as u64));
            assert_eq!(std::fs::read(dir.path().join(&torn.kept_as)).unwrap(), &whole[first..cut]);
            log.append(Millis(2), &[steer("three")]).unwrap();
            let (_, read, torn) = open(dir.path());
            assert_eq!((read.entries.len(), torn), (2, None));
        }
    }

    #[test]
    fn damage_in_the_middle_is_an_error_that_names_the_line() {
        let temp = tempfile::tempdir().unwrap();
        let (log, ..) = open(temp.path());
        log.append(Millis(1), &[steer("one"), steer("two"), steer("three")]).unwrap();
        let mut bytes = std::fs::read(temp.path().join("control.jsonl")).unwrap();
        let second = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
        bytes[second] = b'#';
        write(temp.path(), &bytes);
        let fd = beneath::open_dir(temp.path()).unwrap();
        let error = Log::<Control>::open(fd.as_fd(), "control.jsonl", temp.path(), 0o600, EXPECT)
            .err()
            .unwrap();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn concurrent_appenders_get_consecutive_numbers_and_nothing_is_lost() {
        let temp = tempfile::tempdir().unwrap();
        let (log, ..) = open(temp.path());
        std::thread::scope(|scope| {
            for thread in 0..20 {
                let log = &log;
                scope.spawn(move || {
                    for n in 0..20 {
                        log.append(Millis(0), &[steer(&format!("{thread}.{n}"))]).unwrap();
                    }
                });
            }
        });
        let (_, read, torn) = open(temp.path());
        assert_eq!((read.entries.len(), read.last_seq, torn), (400, 400, None));
    }

    #[test]
    fn a_full_disk_leaves_whole_lines_and_refuses_what_follows() {
        // /dev/full answers every write with ENOSPC.
        let temp = tempfile::tempdir().unwrap();
        let (mut log, ..) = open(temp.path());
        log.append(Millis(0), &[steer("kept")]).unwrap();
        let real = std::mem::replace(
            &mut log.file,
            File::options().write(true).open("/dev/full").unwrap(),
        );
        assert!(log.append(Millis(0), &[steer("lost")]).is_err());
        log.file = real;
        assert!(matches!(log.append(Millis(0), &[steer("x")]), Err(StoreError::Poisoned { .. })));
        assert_eq!(open(temp.path()).1.entries.len(), 1);
    }
}
