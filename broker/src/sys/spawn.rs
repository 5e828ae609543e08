//! Applying a launch plan: fork, become, execute.
//!
//! Between fork and exec only system calls are made on memory prepared before the fork, so the
//! parent may have threads. Whatever fails is reported with its step over a close-on-exec pipe, and
//! the parent waits until that pipe says that exec succeeded or why not.
//!
//! The thread that calls this must live as long as the child: the kernel kills the child when that
//! thread ends (`PR_SET_PDEATHSIG`).

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use thiserror::Error;

use crate::plan::{Identity, LaunchPlan};

/// What the child was doing when it failed. The text fits "could not ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Prepare,
    Fork,
    Session,
    Descriptors,
    Directory,
    Signals,
    Bounding,
    Groups,
    Gid,
    Uid,
    Capabilities,
    NoNewPrivileges,
    DeathSignal,
    Parent,
    Exec,
    Report,
}

const CHILD_STEPS: [Step; 14] = [
    Step::Session,
    Step::Descriptors,
    Step::Directory,
    Step::Signals,
    Step::Bounding,
    Step::Groups,
    Step::Gid,
    Step::Uid,
    Step::Capabilities,
    Step::NoNewPrivileges,
    Step::DeathSignal,
    Step::Parent,
    Step::Exec,
    Step::Report,
];

impl Step {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare the launch",
            Self::Fork => "fork",
            Self::Session => "start a session",
            Self::Descriptors => "arrange descriptors",
            Self::Directory => "change to the root directory",
            Self::Signals => "reset signals",
            Self::Bounding => "empty the capability bounding set",
            Self::Groups => "drop supplementary groups",
            Self::Gid => "set the gid",
            Self::Uid => "set the uid",
            Self::Capabilities => "empty the capability sets",
            Self::NoNewPrivileges => "set no_new_privs",
            Self::DeathSignal => "tie the process to the launcher",
            Self::Parent => "find the launcher alive",
            Self::Exec => "execute the program",
            Self::Report => "learn what became of the child",
        }
    }
}

/// A launch that did not happen; nothing of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("could not {step}: {errno}", step = .step.as_str())]
pub(crate) struct LaunchFailure {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

fn at(step: Step) -> impl Fn(Errno) -> LaunchFailure {
    move |errno| LaunchFailure { step, errno }
}

/// The open files of a launch.
pub(crate) struct Resources<'a> {
    pub(crate) program: BorrowedFd<'a>,
    /// Standard input, output and error.
    pub(crate) standard: [BorrowedFd<'a>; 3],
    /// In the order of the plan, from 3 upwards.
    pub(crate) inherited: Vec<BorrowedFd<'a>>,
}

/// A started process that nobody has waited for yet.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: Pid,
    /// Readable when the process has ended.
    pub(crate) pidfd: OwnedFd,
}

impl Child {
    /// The process id as a plain number.
    pub(crate) fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal; a process that has ended needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).unwrap_or_default();
    }
}

/// Starts the process and returns when it executes the program. A plan with an identity needs root.
pub(crate) fn apply(plan: &LaunchPlan, resources: &Resources<'_>) -> Result<Child, LaunchFailure> {
    let image = Image::prepare(plan, resources)?;
    let pointers = Pointers::of(&image);
    let (reader, writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(at(Step::Prepare))?;
    let lifted = lift(writer.as_fd())?;
    drop(writer);
    let report = lifted.as_raw_fd();
    // SAFETY: the child branch makes system calls only and never returns.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let failure = match plan.identity {
            Some(identity) => apply_fork_setuid(&image, &pointers, report, identity),
            None => apply_single_uid(&image, &pointers, report),
        };
        match failure {
            Err(failure) => leave(&image, report, failure),
        }
    }
    let Some(pid) = Pid::from_raw(forked) else {
        return Err(LaunchFailure { step: Step::Fork, errno: last_errno() });
    };
    drop(lifted);
    await_exec(pid, reader)
}

fn await_exec(pid: Pid, reader: OwnedFd) -> Result<Child, LaunchFailure> {
    let opened = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    let mut bytes = Vec::new();
    let read = std::fs::File::from(reader).read_to_end(&mut bytes);
    let failure = match (read, parse_report(&bytes), opened) {
        (Ok(0), _, Ok(pidfd)) => return Ok(Child { pid, pidfd }),
        (Ok(0), _, Err(errno)) => LaunchFailure { step: Step::Report, errno },
        (_, Some(failure), _) => failure,
        (_, None, _) => LaunchFailure { step: Step::Report, errno: Errno::IO },
    };
    discard(pid);
    Err(failure)
}

/// Kills and reaps a child that will not be used.
pub(crate) fn discard(pid: Pid) {
    // Fails only when the child is gone, and the wait below says so too.
    rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
    let options = rustix::process::WaitOptions::empty();
    while let Err(Errno::INTR) = rustix::process::waitpid(Some(pid), options) {}
}

/// Memory of the launch, complete before the fork.
struct Image {
    argv: Vec<CString>,
    env: Vec<CString>,
    /// Duplicates above every number a child gets, in the order of their numbers there.
    sources: Vec<OwnedFd>,
    program: OwnedFd,
    umask: Mode,
    parent: Option<Pid>,
}

/// Numbers up to this are given to children; sources stand above.
const HIGHEST_TARGET: RawFd = 15;

impl Image {
    fn prepare(plan: &LaunchPlan, resources: &Resources<'_>) -> Result<Self, LaunchFailure> {
        let argv =
            plan.argv.iter().map(|word| text(OsStr::new(word), &[])).collect::<Result<_, _>>()?;
        let env = plan
            .env
            .iter()
            .map(|(name, value)| text(OsStr::new(name), &[OsStr::new("="), value]))
            .collect::<Result<_, _>>()?;
        let sources = resources
            .standard
            .iter()
            .chain(&resources.inherited)
            .map(|fd| lift(*fd))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            argv,
            env,
            sources,
            program: lift(resources.program)?,
            umask: Mode::from_raw_mode(plan.umask),
            parent: Some(rustix::process::getpid()),
        })
    }
}

fn text(first: &OsStr, rest: &[&OsStr]) -> Result<CString, LaunchFailure> {
    let mut bytes = first.as_bytes().to_vec();
    for part in rest {
        bytes.extend_from_slice(part.as_bytes());
    }
    CString::new(bytes).or(Err(LaunchFailure { step: Step::Prepare, errno: Errno::INVAL }))
}

fn lift(fd: BorrowedFd<'_>) -> Result<OwnedFd, LaunchFailure> {
    rustix::io::fcntl_dupfd_cloexec(fd, HIGHEST_TARGET + 1).map_err(at(Step::Prepare))
}

/// Null-terminated arrays that point into an [`Image`].
struct Pointers {
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

impl Pointers {
    fn of(image: &Image) -> Self {
        let terminated = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
        };
        Self { argv: terminated(&image.argv), env: terminated(&image.env) }
    }
}

/// In the child, as root: becomes `identity` with empty capability sets, for good.
fn apply_fork_setuid(
    image: &Image,
    pointers: &Pointers,
    report: RawFd,
    identity: Identity,
) -> Result<Infallible, LaunchFailure> {
    detach(image, report)?;
    // Needs CAP_SETPCAP, therefore before the uid changes.
    empty_bounding_set()?;
    rustix::thread::set_thread_groups(&[]).map_err(at(Step::Groups))?;
    let gid = rustix::fs::Gid::from_raw(identity.gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(at(Step::Gid))?;
    let uid = rustix::fs::Uid::from_raw(identity.uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(at(Step::Uid))?;
    empty_capability_sets()?;
    execute(image, pointers)
}

/// In the child, as the person who started the launcher.
fn apply_single_uid(
    image: &Image,
    pointers: &Pointers,
    report: RawFd,
) -> Result<Infallible, LaunchFailure> {
    detach(image, report)?;
    empty_capability_sets()?;
    execute(image, pointers)
}

/// Leaves the launcher's session, terminal, descriptors, directory and umask.
fn detach(image: &Image, report: RawFd) -> Result<(), LaunchFailure> {
    rustix::process::setsid().map_err(at(Step::Session))?;
    for (source, target) in image.sources.iter().zip(0..) {
        duplicate(source.as_raw_fd(), target, 0)?;
    }
    duplicate(image.program.as_raw_fd(), program_number(image), libc::O_CLOEXEC)?;
    duplicate(report, report_number(image), libc::O_CLOEXEC)?;
    close_from(report_number(image) + 1)?;
    rustix::process::chdir(c"/").map_err(at(Step::Directory))?;
    rustix::process::umask(image.umask);
    Ok(())
}

/// Last steps, the same for every applier.
fn execute(image: &Image, pointers: &Pointers) -> Result<Infallible, LaunchFailure> {
    rustix::thread::set_no_new_privs(true).map_err(at(Step::NoNewPrivileges))?;
    // A change of uid clears it, therefore after.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(at(Step::DeathSignal))?;
    if rustix::process::getppid() != image.parent {
        return Err(LaunchFailure { step: Step::Parent, errno: Errno::SRCH });
    }
    reset_signals()?;
    // SAFETY: the path is a literal, the arrays end in null and point into the image, which lives.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program_number(image),
            c"".as_ptr(),
            pointers.argv.as_ptr(),
            pointers.env.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    Err(LaunchFailure { step: Step::Exec, errno: last_errno() })
}

fn program_number(image: &Image) -> RawFd {
    RawFd::try_from(image.sources.len()).unwrap_or(HIGHEST_TARGET - 1)
}

fn report_number(image: &Image) -> RawFd {
    program_number(image) + 1
}

fn duplicate(source: RawFd, target: RawFd, flags: libc::c_int) -> Result<(), LaunchFailure> {
    // SAFETY: numbers only; nothing in this forked process owns the target any more.
    let result = unsafe { libc::dup3(source, target, flags) };
    if result == -1 {
        return Err(LaunchFailure { step: Step::Descriptors, errno: last_errno() });
    }
    Ok(())
}

fn close_from(first: RawFd) -> Result<(), LaunchFailure> {
    // SAFETY: numbers only; what is closed belongs to owners that exist in the parent.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result == -1 {
        return Err(LaunchFailure { step: Step::Descriptors, errno: last_errno() });
    }
    Ok(())
}

/// Drops every capability the kernel knows; it answers EINVAL beyond the last one.
pub(super) fn empty_bounding_set() -> Result<(), LaunchFailure> {
    for capability in 0..=63_u64 {
        // SAFETY: numbers only.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if result == -1 {
            return match last_errno() {
                Errno::INVAL if capability > 0 => Ok(()),
                errno => Err(LaunchFailure { step: Step::Bounding, errno }),
            };
        }
    }
    Ok(())
}

pub(super) fn empty_capability_sets() -> Result<(), LaunchFailure> {
    rustix::thread::clear_ambient_capability_set().map_err(at(Step::Capabilities))?;
    let empty = CapabilitySet::empty();
    let sets = CapabilitySets { effective: empty, permitted: empty, inheritable: empty };
    rustix::thread::set_capabilities(None, sets).map_err(at(Step::Capabilities))
}

/// Default dispositions (what the launcher ignores would stay ignored after exec), then an empty
/// mask.
fn reset_signals() -> Result<(), LaunchFailure> {
    for signal in 1..=64 {
        // SAFETY: sets a default disposition; numbers that cannot be set are refused.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    nix::sys::signal::SigSet::empty().thread_set_mask().map_err(|errno| LaunchFailure {
        step: Step::Signals,
        errno: Errno::from_raw_os_error(errno as i32),
    })
}

/// Makes this process wait for its children: an inherited "ignore" would reap them unseen.
pub(crate) fn default_child_signal() {
    // SAFETY: sets a default disposition, which runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// In the child: reports the failure and ends. The pipe stands at the number it had in the parent
/// until that is closed, and then at its own; before that, its own may be somebody else's.
fn leave(image: &Image, report: RawFd, failure: LaunchFailure) -> ! {
    let bytes = render_report(failure);
    for number in [report, report_number(image)] {
        // SAFETY: writes from a live array; a number that is not open is refused.
        let written = unsafe { libc::write(number, bytes.as_ptr().cast(), bytes.len()) };
        if written != -1 {
            break;
        }
    }
    // SAFETY: ends this forked process without running what the parent registered.
    unsafe { libc::_exit(127) }
}

fn render_report(failure: LaunchFailure) -> [u8; 8] {
    let step = CHILD_STEPS.iter().zip(0_u32..).find(|(step, _)| **step == failure.step);
    let mut bytes = [0; 8];
    if let Some(head) = bytes.first_chunk_mut() {
        *head = step.map_or(u32::MAX, |(_, index)| index).to_le_bytes();
    }
    if let Some(tail) = bytes.last_chunk_mut() {
        *tail = failure.errno.raw_os_error().to_le_bytes();
    }
    bytes
}

fn parse_report(bytes: &[u8]) -> Option<LaunchFailure> {
    let (step, errno) = bytes.split_first_chunk::<4>()?;
    let step = *CHILD_STEPS.get(u32::from_le_bytes(*step) as usize)?;
    let errno = i32::from_le_bytes(errno.try_into().ok()?);
    Some(LaunchFailure { step, errno: Errno::from_raw_os_error(errno) })
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(nix::errno::Errno::last_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_step_and_error() {
        for step in CHILD_STEPS {
            let failure = LaunchFailure { step, errno: Errno::PERM };
            assert_eq!(parse_report(&render_report(failure)), Some(failure));
        }
        for bytes in [&[][..], &[0; 7], &[0; 9], &[255; 8]] {
            assert_eq!(parse_report(bytes), None);
        }
    }
}
