//! What a launcher is started with, and every reason it may end with.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use crate::beneath::TreeError;
use crate::lock::LockError;
use crate::program::ProgramError;
use crate::registry::RegistryError;
use crate::uids::{UidError, UidRange};

/// How processes are kept apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applier {
    /// As root: fork, then become a bare uid of this range.
    ForkSetuid(UidRange),
    /// As an ordinary user: everything has that user's uid.
    SingleUid,
}

/// What a launcher is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherConfig {
    /// The state directory; created when missing.
    pub state: PathBuf,
    /// The directory of `control.sock` and `muzzle.sock`; created when missing.
    pub sockets: PathBuf,
    /// How processes are kept apart.
    pub applier: Applier,
    /// The program every role executes; `/proc/self/exe` for this one, whatever replaced its file.
    pub program: PathBuf,
    /// Variables added to the environment of every process. Variables that the launcher sets itself
    /// keep its values.
    pub extra_env: Vec<(String, String)>,
    /// Workers and Muzzle write to the launcher's standard error instead of `<state>/log`.
    pub verbose: bool,
}

impl LauncherConfig {
    /// Makes both paths absolute and refuses what cannot work.
    pub(crate) fn checked(mut self) -> Result<Self, LauncherError> {
        for path in [&mut self.state, &mut self.sockets] {
            *path = std::path::absolute(&*path)
                .map_err(|source| LauncherError::Path { path: path.clone(), source })?;
        }
        for (name, value) in &self.extra_env {
            let named = !name.is_empty() && !name.contains(['=', '\0']);
            if !named || value.contains('\0') {
                return Err(LauncherError::Environment { name: name.clone() });
            }
        }
        let root = rustix::process::geteuid().is_root();
        match self.applier {
            Applier::ForkSetuid(_) if !root => Err(LauncherError::NotRoot),
            Applier::SingleUid if root => Err(LauncherError::SingleUidAsRoot),
            Applier::ForkSetuid(_) | Applier::SingleUid => Ok(self),
        }
    }
}

/// How a launcher that was asked to stop left things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Runs whose worker was alive; they go on when the launcher is started again.
    pub runs_kept: usize,
}

/// Why a launcher did not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum LauncherError {
    /// Separate uids need root.
    #[error("separate uids need root; start as root, or with a single uid")]
    NotRoot,
    /// Root with a single uid would run agents as root.
    #[error("as root, agents would be root with a single uid; use separate uids")]
    SingleUidAsRoot,
    /// A path of the configuration is not one.
    #[error("{path:?} is no path")]
    Path {
        /// The path as given.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A variable of the configuration is not one.
    #[error("{name:?} is no variable for an environment, or its value contains a zero byte")]
    Environment {
        /// The name as given.
        name: String,
    },
    /// Another launcher works on this state directory or with these sockets.
    #[error(
        "another launcher ({holder}) works with {path}; use it, stop it, or choose another --state"
    )]
    AlreadyRunning {
        /// The directory both want.
        path: PathBuf,
        /// The other one.
        holder: String,
    },
    /// A directory is not as it has to be.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A lock could not be taken.
    #[error(transparent)]
    Lock(LockError),
    /// The uids cannot be used.
    #[error(transparent)]
    Uids(#[from] UidError),
    /// Processes of an earlier launcher live on under the uids and cannot be ended.
    #[error("processes {pids:?} have uids of Sentinel and survive SIGKILL; end them first")]
    Leftovers {
        /// Their process ids.
        pids: Vec<u32>,
    },
    /// The registry of uids cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// There is no program to start.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A socket could not be made.
    #[error("could not {operation} {path}")]
    Socket {
        /// What was attempted.
        operation: &'static str,
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: Errno,
    },
    /// A socket's path does not fit the kernel's address.
    #[error(
        "{path} is longer than the {limit} bytes of a socket address; choose a shorter directory"
    )]
    SocketPath {
        /// The socket.
        path: PathBuf,
        /// Bytes that fit.
        limit: usize,
    },
    /// The kernel refused something without which there is no launcher.
    #[error("could not {operation}")]
    System {
        /// What was attempted.
        operation: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// A service keeps failing.
    #[error("{service} ended {times} times in a row, last with {last}; look at {look_at}")]
    KeepsFailing {
        /// Which.
        service: &'static str,
        /// How often.
        times: u32,
        /// How the last one ended.
        last: String,
        /// Where its messages are.
        look_at: String,
    },
}

impl LauncherError {
    /// Tells a held lock as what it means for whoever starts a launcher.
    pub(crate) fn of_lock(directory: &Path) -> impl FnOnce(LockError) -> Self {
        move |error| match error {
            LockError::Held { holder, .. } => Self::AlreadyRunning {
                path: directory.to_owned(),
                holder: crate::lock::describe(holder),
            },
            other @ (LockError::NotOurs { .. }
            | LockError::Failed { .. }
            | LockError::Write { .. }
            | LockError::Directory(_)) => Self::Lock(other),
        }
    }

    /// Names the operation for an errno.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { operation, source: errno.into() }
    }
}
