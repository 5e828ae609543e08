//! Plain fork and exec, the peer of the sandboxed child: what the kernel takes
//! at least. A library's spawn would share memory and do less.
#![expect(unsafe_code, reason = "fork and exec have no safe face")]

use std::ffi::CStr;
use std::io;

/// Runs a program without arguments and waits for it; its wait status.
///
/// The caller has one thread.
pub(crate) fn fork_exec(program: &CStr) -> io::Result<i32> {
    let arguments = [program.as_ptr(), std::ptr::null()];
    // SAFETY: one thread, so the child is whole; it only executes or leaves.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: a text that ends in a null byte, and a list of such that ends in a null pointer.
            unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
            // SAFETY: leaves without touching what is shared with the parent.
            unsafe { libc::_exit(127) }
        }
        child => {
            let mut status = 0;
            // SAFETY: a place for one status.
            if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
                Ok(status)
            } else {
                Err(io::Error::last_os_error())
            }
        }
    }
}
