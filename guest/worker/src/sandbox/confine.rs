//! The worker narrowing itself, after its tool host has been forked and before it has a second thread.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SandboxError;
use super::abi::{Abi, probe_landlock};
use super::error::errno_of;
use super::filter::worker_filters;
use super::grants::Applied;
use super::keep_out::KeepOut;
use super::layers::{WORKER_HALF, plan_worker};
use super::ruleset::build;
use crate::sys::confine::{install_filter, restrict_self};
use crate::sys::process::thread_count;

/// What the worker put on itself, on top of the base layer it shares with its tool host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerConfinement {
    /// The worker's own layer and filter: it dials one port and executes nothing. `fs` is false here: files are the base layer's, see
    /// [`ToolHost::base`](crate::host::ToolHost::base).
    pub applied: Applied,
    /// The only TCP port the worker may dial, where `applied.tcp` holds.
    pub muzzle_port: u16,
}

/// Narrows the calling process for good: TCP to `muzzle_port` only, nothing executed, no process made, the worker's system calls.
///
/// Called after [`ToolHost::fork`](crate::host::ToolHost::fork) and while the process has one thread.
///
/// # Errors
/// More than one thread; a step the kernel refuses; the worker's half of the run directory or the workspace out of reach afterwards.
pub fn confine_worker(
    run_dir: &Path,
    workspace: &Path,
    muzzle_port: u16,
) -> Result<WorkerConfinement, SandboxError> {
    confine_worker_at_most(run_dir, workspace, muzzle_port, Abi::NEWEST_USED)
}

/// The same as if the kernel offered no Landlock above `most`: to see, on a newer kernel, what an older one leaves open.
///
/// # Errors
/// As [`confine_worker`].
pub fn confine_worker_at_most(
    run_dir: &Path,
    workspace: &Path,
    muzzle_port: u16,
    most: Abi,
) -> Result<WorkerConfinement, SandboxError> {
    let threads =
        thread_count().map_err(|error| SandboxError::kernel_io("count threads", &error))?;
    if threads != 1 {
        return Err(SandboxError::NotSingleThreaded { threads });
    }
    let landlock = probe_landlock()?.at_most(most);
    let built = build(&plan_worker(muzzle_port), landlock, &[], &KeepOut::nothing())?;
    let mut applied = built.applied;
    become_private()?;
    if let Some(ruleset) = &built.ruleset {
        restrict_self(ruleset.as_fd())
            .map_err(|errno| SandboxError::kernel("enter the worker's landlock layer", errno))?;
    }
    let abi = landlock.abi();
    for filter in worker_filters(abi)? {
        install_filter(&filter.program).map_err(|errno| {
            SandboxError::kernel("enter the worker's system call filter", errno)
        })?;
        applied.syscall_rules += filter.entries;
    }
    for path in [run_dir.join(WORKER_HALF), workspace.to_owned()] {
        reach(path)?;
    }
    Ok(WorkerConfinement { applied, muzzle_port })
}

/// No new privileges, and closed to inspection by other processes of the account.
pub(crate) fn become_private() -> Result<(), SandboxError> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| SandboxError::kernel("give up new privileges", errno.raw_os_error()))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).map_err(
        |errno| SandboxError::kernel("close the process to inspection", errno.raw_os_error()),
    )
}

fn reach(path: PathBuf) -> Result<(), SandboxError> {
    match File::open(&path) {
        Ok(_open) => Ok(()),
        Err(error) => Err(SandboxError::Unreachable { errno: errno_of(&error), path }),
    }
}
