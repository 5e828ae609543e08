//! Taking over a descriptor that the launcher passed by number, once.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes the descriptor `number` (3 to 63), which this process was started with, and closes it on
/// exec from now on. A number can be taken once; a number that is not open is an error.
///
/// Call it first thing in a process that a launcher started: a descriptor that the process itself
/// opened under that number would be taken as well.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    let error = |kind, text: &str| io::Error::new(kind, format!("descriptor {number} {text}"));
    if !(3..64).contains(&number) {
        return Err(error(io::ErrorKind::InvalidInput, "is not one a launcher passes"));
    }
    let bit = 1_u64 << number;
    if TAKEN.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
        return Err(error(io::ErrorKind::AlreadyExists, "was taken already"));
    }
    // SAFETY: fcntl with F_SETFD touches no memory and reports a number that is not open.
    let result = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if result == -1 {
        return Err(error(io::ErrorKind::NotFound, "is not open"));
    }
    // SAFETY: the number is open, and the bit above lets nobody else in this process own it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
