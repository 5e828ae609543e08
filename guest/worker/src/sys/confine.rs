//! The calls by which a thread narrows itself, and the probe for what this kernel can do.
//!
//! `landlock_restrict_self` and seccomp cover one thread: callers have exactly one (see [`super::process::thread_count`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use seccompiler::sock_filter;

/// `LANDLOCK_CREATE_RULESET_VERSION`: asks for the ABI instead of making a ruleset.
const CREATE_RULESET_VERSION: libc::c_uint = 1;

/// `SECCOMP_SET_MODE_FILTER`.
pub(crate) const SET_MODE_FILTER: libc::c_uint = 1;

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The Landlock ABI of the running kernel, or the errno of the probe.
pub(crate) fn landlock_abi() -> Result<u32, i32> {
    let null = ptr::null::<libc::c_void>();
    // SAFETY: with a null attribute, size 0 and the version flag the kernel reads no memory and makes no descriptor.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, null, 0usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(answer).map_err(|_negative| last_error())
}

/// Applies a Landlock ruleset to the calling thread, for good.
pub(crate) fn restrict_self(ruleset: BorrowedFd<'_>) -> Result<(), i32> {
    // SAFETY: takes a descriptor that lives for the call and flags 0; touches no memory of ours.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) };
    if answer == 0 { Ok(()) } else { Err(last_error()) }
}

/// Installs a seccomp program on the calling thread, for good. Needs `no_new_privs`.
pub(crate) fn install_filter(program: &[sock_filter]) -> Result<(), i32> {
    let header = filter_header(program);
    // SAFETY: `header` points at `program`, which outlives the call; the kernel copies and checks it.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0u32, ptr::from_ref(&header)) };
    if answer == 0 { Ok(()) } else { Err(last_error()) }
}

/// The kernel's view of a program. Valid for as long as `program` is.
pub(crate) fn filter_header(program: &[sock_filter]) -> libc::sock_fprog {
    libc::sock_fprog {
        // A program longer than the kernel's 4096 instructions is refused when it is compiled.
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    }
}
