//! Why a sandbox could not be built or entered.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An errno as a person reads it.
pub(crate) fn explain(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The errno inside an I/O error; EIO when it carries none.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A sandbox that could not be built or entered. Never returned for a guarantee that this kernel merely lacks: those are listed in
/// [`Applied::missing`](super::Applied::missing).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum SandboxError {
    /// The probe got an answer that says nothing about Landlock: something else refuses the call.
    #[error("probe landlock: the system call was refused ({}); something outside the kernel's own support blocks it", explain(*errno))]
    Probe {
        /// The errno of `landlock_create_ruleset`.
        errno: i32,
    },
    /// A process that is about to narrow itself has more than one thread; `restrict_self` would cover one of them.
    #[error("narrow the process: it has {threads} threads and must have one")]
    NotSingleThreaded {
        /// Threads at that moment.
        threads: usize,
    },
    /// The kernel refused a step of entering the sandbox.
    #[error("{step}: {}", explain(*errno))]
    Kernel {
        /// The step, as words that follow "failed to".
        step: String,
        /// The errno.
        errno: i32,
    },
    /// A ruleset could not be built from the policy.
    #[error("build the file sandbox: {problem}")]
    Ruleset {
        /// What the builder said.
        problem: String,
    },
    /// A system call filter could not be compiled from its table.
    #[error("build the system call filter: {problem}")]
    Filter {
        /// What the compiler said.
        problem: String,
    },
    /// A grant is the run directory or contains it.
    #[error("grant {}: it contains the run directory, which no tool may reach", path.display())]
    OpensRunDirectory {
        /// The granted path.
        #[serde(with = "super::grants::lossless")]
        path: PathBuf,
    },
    /// A path that must be there could not be opened after narrowing.
    #[error("reach {} from inside the sandbox: {}", path.display(), explain(*errno))]
    Unreachable {
        /// The path.
        #[serde(with = "super::grants::lossless")]
        path: PathBuf,
        /// The errno.
        errno: i32,
    },
}

impl SandboxError {
    pub(crate) fn kernel(step: &str, errno: i32) -> Self {
        Self::Kernel { step: step.to_owned(), errno }
    }

    pub(crate) fn kernel_io(step: &str, error: &io::Error) -> Self {
        Self::kernel(step, errno_of(error))
    }
}
