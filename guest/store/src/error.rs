//! What can go wrong with state on disk, with the file's name in each message.

use std::io;
use std::path::PathBuf;

use domain::log::LineError;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("failed to {act} {path}", path = .path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} is not what it must be: {what}", path = .path.display())]
    Foreign { path: PathBuf, what: String },
    #[error("{path} has {bytes} bytes; the ceiling is {limit}", path = .path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("{path} line {line} is damaged: {source}", path = .path.display())]
    DamagedLine { path: PathBuf, line: u64, source: LineError },
    #[error("{path} cannot be read as {what}", path = .path.display())]
    Format { path: PathBuf, what: &'static str, source: serde_json::Error },
    #[error("{path}: {problems}", path = .path.display(), problems = join(.problems))]
    Problems { path: PathBuf, problems: Vec<String> },
    #[error("there is no {what} named {name:?}")]
    NotFound { what: &'static str, name: String },
    #[error("there is already {what} named {name:?}")]
    Exists { what: &'static str, name: String },
    #[error("another worker holds this run")]
    Held,
    #[error("an earlier write to {path} failed, so nothing more is written to it", path = .path.display())]
    Poisoned { path: PathBuf },
}

impl StoreError {
    /// The disk is full or the file system read-only: nothing is wrong with
    /// the request, and it may succeed once there is room.
    pub fn is_no_room(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EROFS))
    }
}

fn join(problems: &[String]) -> String {
    problems.join("; ")
}
