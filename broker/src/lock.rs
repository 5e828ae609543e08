//! A file whose exclusive `flock` says that one process owns a thing. The holder's pid is in it, for
//! the message the next one gets.
//!
//! The kernel drops the lock with the last descriptor, so a killed holder leaves nothing to clean
//! up. The file stays: removing it would let two processes lock two files of one name.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::beneath::{self, TreeError};

/// Why a lock was not taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("{path} is held by {holder}", holder = describe(*.holder))]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The pid it names, if it names one.
        holder: Option<u32>,
    },
    /// The file is not one of ours.
    #[error("{path} is no lock file of uid {uid}: {problem}; remove it")]
    NotOurs {
        /// The lock file.
        path: PathBuf,
        /// Who should own it.
        uid: u32,
        /// What is wrong.
        problem: &'static str,
    },
    /// The kernel refused.
    #[error("could not lock {path}")]
    Failed {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The pid could not be written.
    #[error("could not write the holder into {path}")]
    Write {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The directory of the lock could not be prepared.
    #[error(transparent)]
    Directory(#[from] TreeError),
}

pub(crate) fn describe(holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock `name` in `directory`, which is created with its parents for everybody to read
    /// and its owner to write.
    pub(crate) fn acquire_in(directory: &Path, name: &str) -> Result<Self, LockError> {
        let opened = beneath::ensure_private_path(directory, Mode::from_raw_mode(0o755))?;
        Self::acquire(opened.as_fd(), name, &directory.join(name))
    }

    /// Takes the lock `name` beneath the directory `at`; `path` is for messages.
    pub(crate) fn acquire(at: BorrowedFd<'_>, name: &str, path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Failed { path: path.to_owned(), source };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
        let file = beneath::open_at(at, Path::new(name), flags, Mode::from_raw_mode(0o600))
            .map_err(failed)?;
        let mut file = File::from(file);
        let uid = rustix::process::geteuid().as_raw();
        if let Some(problem) = beneath::not_a_file_of(&file, uid).map_err(failed)? {
            return Err(LockError::NotOurs { path: path.to_owned(), uid, problem });
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                return Err(LockError::Held { path: path.to_owned(), holder: read_pid(&mut file) });
            }
            Err(source) => return Err(failed(source)),
        }
        write_pid(&mut file)
            .map_err(|source| LockError::Write { path: path.to_owned(), source })?;
        Ok(Self { _file: file })
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_holder_is_refused_with_the_pid_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er");
        let first = Lock::acquire_in(&path, "lock").unwrap();
        let Err(LockError::Held { holder, .. }) = Lock::acquire_in(&path, "lock") else { panic!() };
        assert_eq!(holder, Some(std::process::id()));
        assert!(Lock::acquire_in(&path, "other").is_ok());
        drop(first);
        assert!(Lock::acquire_in(&path, "lock").is_ok());
    }

    #[test]
    fn a_planted_link_is_not_locked() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        File::create(&target).unwrap();
        std::os::unix::fs::symlink(&target, directory.path().join("symbolic")).unwrap();
        std::fs::hard_link(&target, directory.path().join("hard")).unwrap();
        assert!(matches!(
            Lock::acquire_in(directory.path(), "symbolic"),
            Err(LockError::Failed { source: Errno::LOOP, .. })
        ));
        assert!(matches!(
            Lock::acquire_in(directory.path(), "hard"),
            Err(LockError::NotOurs { .. })
        ));
        assert!(Lock::acquire_in(directory.path(), "fresh").is_ok());
    }
}
