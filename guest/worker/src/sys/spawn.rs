//! Starting a child the vfork way: the new process borrows our memory until it execs, so nothing is copied, and between the
//! clone and the exec it makes raw system calls only.
//!
//! A failing step is written into the shared memory as (step, errno), so it can never be mistaken for an exit status of the
//! program.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use seccompiler::sock_filter;
use serde::{Deserialize, Serialize};

use super::confine::{SET_MODE_FILTER, filter_header};
use super::process::reap_blocking;

/// SIGKILL as prctl takes it: the kernel checks the whole register, so every argument is passed at full width.
const KILL: usize = libc::SIGKILL as usize;

/// Size of the stack the child runs on until it execs.
const STACK: usize = 64 * 1024;

/// What the child does between clone and exec, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Step {
    /// Making the process.
    Clone = 1,
    /// Giving signals their default meaning back.
    Signals,
    /// Becoming the leader of a session and process group of its own.
    Session,
    /// Asking to be killed when the tool host is gone.
    ParentDeath,
    /// Putting the pipes on descriptors 0, 1 and 2.
    Stdio,
    /// Setting the resource limits.
    Limits,
    /// Entering the working directory.
    WorkingDirectory,
    /// Giving up every way to gain privileges.
    NoNewPrivileges,
    /// Entering the Landlock layer.
    Landlock,
    /// Closing every descriptor above 2.
    Descriptors,
    /// Entering the seccomp filter.
    Seccomp,
    /// Executing the program.
    Exec,
}

impl Step {
    const ALL: [Self; 12] = [
        Self::Clone,
        Self::Signals,
        Self::Session,
        Self::ParentDeath,
        Self::Stdio,
        Self::Limits,
        Self::WorkingDirectory,
        Self::NoNewPrivileges,
        Self::Landlock,
        Self::Descriptors,
        Self::Seccomp,
        Self::Exec,
    ];

    /// The step in words that follow "failed to".
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Clone => "make the process",
            Self::Signals => "reset signals",
            Self::Session => "start a session",
            Self::ParentDeath => "set the parent death signal",
            Self::Stdio => "connect its standard streams",
            Self::Limits => "set resource limits",
            Self::WorkingDirectory => "enter the working directory",
            Self::NoNewPrivileges => "give up new privileges",
            Self::Landlock => "enter the file sandbox",
            Self::Descriptors => "close inherited descriptors",
            Self::Seccomp => "enter the system call filter",
            Self::Exec => "execute the program",
        }
    }
}

/// One resource limit; soft and hard may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceLimit {
    pub(crate) resource: u32,
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// A null-terminated array of pointers to C strings, with the strings.
#[derive(Debug)]
pub(crate) struct CStrings {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStrings {
    pub(crate) fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }
}

/// Everything a child needs, made ready before it exists.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub(crate) program: &'a CStr,
    pub(crate) arguments: &'a CStrings,
    pub(crate) environment: &'a CStrings,
    pub(crate) working_directory: &'a CStr,
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
    pub(crate) limits: &'a [ResourceLimit],
    pub(crate) ruleset: Option<BorrowedFd<'a>>,
    /// Signals to give their default meaning back, as the kernel's set.
    pub(crate) ignored_signals: u64,
    /// Entered in this order.
    pub(crate) filters: &'a [&'a [sock_filter]],
}

/// A child that has executed its program.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
}

/// The step that failed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpawnFailure {
    pub(crate) step: Step,
    pub(crate) errno: i32,
}

/// The stack a child borrows; made once per tool host. Its lowest page is a guard.
#[derive(Debug)]
pub(crate) struct SpawnStack {
    base: *mut c_void,
}

impl SpawnStack {
    pub(crate) fn new() -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { libc::mmap(ptr::null_mut(), STACK, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { base };
        // SAFETY: the first page of the mapping just made; nothing points into it.
        if unsafe { libc::mprotect(base, 4096, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }

    fn top(&self) -> *mut c_void {
        // SAFETY: one past the end of the mapping, which is page- and so 16-byte-aligned.
        unsafe { self.base.byte_add(STACK) }
    }
}

impl Drop for SpawnStack {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; a child that borrowed it has executed or is gone.
        unsafe { libc::munmap(self.base, STACK) };
    }
}

/// What the child reads, and the one place it writes.
struct Shared {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    working_directory: *const c_char,
    stdio: [c_int; 3],
    limits: *const ResourceLimit,
    limit_count: usize,
    ruleset: c_int,
    ignored_signals: u64,
    filters: *const libc::sock_fprog,
    filter_count: usize,
    failed_step: u32,
    failed_errno: c_int,
}

/// Starts the child; returns when it has executed its program or failed to.
///
/// The descriptors of `image` must be above 2. The caller is single-threaded, or at least nobody else writes to `image`.
pub(crate) fn spawn(image: &Image<'_>, stack: &mut SpawnStack) -> Result<Spawned, SpawnFailure> {
    let filters: Vec<libc::sock_fprog> =
        image.filters.iter().map(|program| filter_header(program)).collect();
    let mut shared = Shared {
        program: image.program.as_ptr(),
        arguments: image.arguments.pointers.as_ptr(),
        environment: image.environment.pointers.as_ptr(),
        working_directory: image.working_directory.as_ptr(),
        stdio: [image.stdin.as_raw_fd(), image.stdout.as_raw_fd(), image.stderr.as_raw_fd()],
        limits: image.limits.as_ptr(),
        limit_count: image.limits.len(),
        ruleset: image.ruleset.map_or(-1, |fd| fd.as_raw_fd()),
        ignored_signals: image.ignored_signals,
        filters: filters.as_ptr(),
        filter_count: filters.len(),
        failed_step: 0,
        failed_errno: 0,
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: c_int = -1;
    let argument = (&raw mut shared).cast::<c_void>();
    // SAFETY: the stack is ours and unused; `shared` and all it points at outlive the call, because CLONE_VFORK suspends this
    // thread until the child has left our memory; the child runs only `child`, which keeps to raw system calls.
    let pid = unsafe { libc::clone(child, stack.top(), flags, argument, &raw mut pidfd) };
    if pid < 0 {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
        return Err(SpawnFailure { step: Step::Clone, errno });
    }
    // SAFETY: clone succeeded with CLONE_PIDFD, so the kernel stored a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // The child wrote these while we were suspended: a plain read could be folded to the zero stored above.
    // SAFETY: a live, aligned local.
    let failed = unsafe { (&raw const shared.failed_step).read_volatile() };
    // SAFETY: as above.
    let errno = unsafe { (&raw const shared.failed_errno).read_volatile() };
    match Step::ALL.into_iter().find(|step| *step as u32 == failed) {
        None => Ok(Spawned { pid, pidfd }),
        Some(step) => {
            reap_blocking(pid);
            Err(SpawnFailure { step, errno })
        }
    }
}

/// Runs in the child, in memory shared with the suspended parent: no allocation, no lock, no panic, raw calls only.
extern "C" fn child(argument: *mut c_void) -> c_int {
    let shared = argument.cast::<Shared>();
    // SAFETY: `spawn` passes its own live `Shared`, and is suspended while this runs.
    let shared = unsafe { &mut *shared };
    // SAFETY: everything `shared` points at is live while the parent is suspended, which is `enter`'s condition.
    let (step, errno) = unsafe { enter(shared) };
    shared.failed_step = step as u32;
    shared.failed_errno = errno;
    super::process::leave(127)
}

fn errno() -> c_int {
    // SAFETY: no argument.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location is the calling thread's own and always valid.
    unsafe { *location }
}

/// Returns only when a step failed.
///
/// # Safety
/// Every pointer in `shared` is valid and the arrays are as long as they say, or null-terminated.
unsafe fn enter(shared: &Shared) -> (Step, c_int) {
    // SAFETY: integers only.
    if unsafe { reset_signals(shared.ignored_signals) } != 0 {
        return (Step::Signals, errno());
    }
    // SAFETY: no argument.
    if unsafe { libc::syscall(libc::SYS_setsid) } < 0 {
        return (Step::Session, errno());
    }
    // SAFETY: integers only.
    if unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, KILL, 0usize, 0usize, 0usize)
    } != 0
    {
        return (Step::ParentDeath, errno());
    }
    let [stdin, stdout, stderr] = shared.stdio;
    for (from, to) in [(stdin, 0), (stdout, 1), (stderr, 2)] {
        // SAFETY: integers only; the table of descriptors is this process's own copy.
        if unsafe { libc::syscall(libc::SYS_dup3, from, to, 0) } < 0 {
            return (Step::Stdio, errno());
        }
    }
    for index in 0..shared.limit_count {
        // SAFETY: `index` is below the number of limits.
        let limit = unsafe { shared.limits.add(index) };
        // SAFETY: it points at a live limit.
        let limit = unsafe { *limit };
        let value = libc::rlimit64 { rlim_cur: limit.soft, rlim_max: limit.hard };
        let nothing = ptr::null_mut::<libc::rlimit64>();
        // SAFETY: pointers to a live local and to nothing.
        if unsafe {
            libc::syscall(libc::SYS_prlimit64, 0, limit.resource, &raw const value, nothing)
        } != 0
        {
            return (Step::Limits, errno());
        }
    }
    // SAFETY: a C string.
    if unsafe { libc::syscall(libc::SYS_chdir, shared.working_directory) } != 0 {
        return (Step::WorkingDirectory, errno());
    }
    // SAFETY: integers only.
    if unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1usize, 0usize, 0usize, 0usize)
    } != 0
    {
        return (Step::NoNewPrivileges, errno());
    }
    if shared.ruleset >= 0 {
        // SAFETY: integers only.
        if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, shared.ruleset, 0u32) } != 0 {
            return (Step::Landlock, errno());
        }
    }
    // SAFETY: integers only; the table of descriptors is this process's own copy.
    if unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) } != 0 {
        return (Step::Descriptors, errno());
    }
    for index in 0..shared.filter_count {
        // SAFETY: `index` is below the number of filters.
        let filter = unsafe { shared.filters.add(index) };
        // SAFETY: the program is live and as long as its header says.
        if unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0u32, filter) } != 0 {
            return (Step::Seccomp, errno());
        }
    }
    // SAFETY: a C string and two null-terminated arrays of C strings.
    unsafe {
        libc::syscall(libc::SYS_execve, shared.program, shared.arguments, shared.environment)
    };
    (Step::Exec, errno())
}

/// Defaults for what is ignored, and an empty mask.
///
/// # Safety
/// For a process that is about to exec: dispositions of the calling process change.
unsafe fn reset_signals(ignored: u64) -> libc::c_long {
    // The kernel's structure: handler, flags, restorer, mask; zeroes mean SIG_DFL.
    let default = [0u64; 4];
    for signal in 1..=64u32 {
        if ignored & (1 << (signal - 1)) == 0 {
            continue;
        }
        let nothing = ptr::null_mut::<u64>();
        // SAFETY: pointers to a live local and to nothing; 8 is the size of the kernel's signal set.
        let answer = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, nothing, 8usize)
        };
        if answer != 0 {
            return answer;
        }
    }
    let empty = 0u64;
    let nothing = ptr::null_mut::<u64>();
    // SAFETY: as above.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const empty,
            nothing,
            8usize,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn c_strings(strings: &[&str]) -> CStrings {
        CStrings::new(strings.iter().map(|text| CString::new(*text).unwrap()).collect())
    }

    fn listing_of_descriptors() -> String {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let image = Image {
            program: c"/bin/sh",
            arguments: &c_strings(&["sh", "-c", "echo /proc/self/fd/*"]),
            environment: &c_strings(&[]),
            working_directory: c"/",
            stdin: null.as_fd(),
            stdout: write.as_fd(),
            stderr: null.as_fd(),
            limits: &[],
            ruleset: None,
            ignored_signals: 0,
            filters: &[],
        };
        let spawned = spawn(&image, &mut SpawnStack::new().unwrap()).unwrap();
        drop(write);
        let text = io::read_to_string(File::from(read)).unwrap();
        reap_blocking(spawned.pid);
        text
    }

    #[test]
    fn a_descriptor_that_nobody_marked_is_not_inherited_either() {
        let file = File::open("/").unwrap();
        // Unlike everything this library opens, a duplicate stays open over an exec.
        let unmarked = nix::unistd::dup(file.as_fd()).unwrap();
        let outside = std::process::Command::new("/bin/sh")
            .args(["-c", "echo /proc/self/fd/*"])
            .output()
            .unwrap();
        let name = format!("/proc/self/fd/{}", unmarked.as_raw_fd());
        let outside = String::from_utf8(outside.stdout).unwrap();
        assert!(outside.split_whitespace().any(|entry| entry == name), "{outside}");
        // The fourth is the directory being listed.
        assert_eq!(
            listing_of_descriptors(),
            "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n"
        );
    }

    #[test]
    fn a_failing_step_is_told_apart_from_an_exit() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let image = Image {
            program: c"/nonexistent",
            arguments: &c_strings(&["nonexistent"]),
            environment: &c_strings(&[]),
            working_directory: c"/",
            stdin: null.as_fd(),
            stdout: null.as_fd(),
            stderr: null.as_fd(),
            limits: &[],
            ruleset: None,
            ignored_signals: 0,
            filters: &[],
        };
        let mut stack = SpawnStack::new().unwrap();
        let failure = spawn(&image, &mut stack).unwrap_err();
        assert_eq!(failure, SpawnFailure { step: Step::Exec, errno: libc::ENOENT });
        let failure =
            spawn(&Image { working_directory: c"/nonexistent", ..image }, &mut stack).unwrap_err();
        assert_eq!(failure, SpawnFailure { step: Step::WorkingDirectory, errno: libc::ENOENT });
    }
}
