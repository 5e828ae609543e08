//! Killing every process of one uid at once.
//!
//! A chain of processes that fork and exit outruns anyone who lists and kills them one by one. The
//! kernel's `kill(-1)` does not lose: it walks all processes while none can be added, and a fork
//! with a signal pending does not happen.

use std::convert::Infallible;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::spawn;

/// Whoever we hunt may stop or kill the hunter in the moment it has their uid.
const ATTEMPTS: usize = 20;

/// Kills every process whose real or saved uid is `uid`, which is not root's. As root. Returns
/// whether the signal was sent.
pub(crate) fn kill_all_of(uid: u32) -> Result<bool, Errno> {
    if uid == 0 || uid == u32::MAX {
        return Err(Errno::INVAL);
    }
    for _ in 0..ATTEMPTS {
        if attempt(uid)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn attempt(uid: u32) -> Result<bool, Errno> {
    // SAFETY: the child branch makes system calls only and never returns.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let code = match become_and_kill(uid) {
            Err(()) => 1,
        };
        // SAFETY: ends this forked process without running what the parent registered.
        unsafe { libc::_exit(code) }
    }
    let pid = Pid::from_raw(forked).ok_or(Errno::AGAIN)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Ok(Some(status)) if status.stopped() => {
                rustix::process::kill_process(pid, Signal::KILL)?;
            }
            Ok(Some(status)) => return Ok(status.exit_status() == Some(0)),
            Ok(None) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Exits with 0 once the signal is sent. With any capability, or as root, `kill(-1)` would reach the
/// whole machine: each condition is checked with the kernel, not assumed from what was set.
fn become_and_kill(uid: u32) -> Result<Infallible, ()> {
    let wanted = rustix::fs::Uid::from_raw(uid);
    rustix::thread::set_thread_groups(&[]).or(Err(()))?;
    rustix::thread::set_thread_res_uid(wanted, wanted, wanted).or(Err(()))?;
    spawn::empty_capability_sets().or(Err(()))?;
    let sets = rustix::thread::capabilities(None).or(Err(()))?;
    let powerless = sets.effective.is_empty() && sets.permitted.is_empty();
    let real = rustix::process::getuid();
    if !powerless || real != wanted || rustix::process::geteuid() != wanted || real.is_root() {
        return Err(());
    }
    // SAFETY: numbers only; reaches what this uid may signal, and spares the caller.
    let result = unsafe { libc::kill(-1, libc::SIGKILL) };
    let nobody_left = nix::errno::Errno::last_raw() == libc::ESRCH;
    if result == 0 || nobody_left {
        // SAFETY: ends this forked process without running what the parent registered.
        unsafe { libc::_exit(0) }
    }
    Err(())
}
