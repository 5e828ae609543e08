//! What a caller asks of the tool host, and what it gets back.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sandbox::ChildGrants;
use crate::sandbox::SandboxError;
use crate::sandbox::explain;
use crate::sandbox::lossless;
pub use crate::sys::spawn::Step;

/// What a child executes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A program and its arguments. A name without a slash is looked up in the absolute directories of the specification's `PATH`.
    Argv(Vec<OsString>),
    /// This very binary, as `sentinel tool-role <role>`; its request arrives on standard input.
    Role {
        /// The hidden role.
        role: String,
    },
}

/// Bounds of one call. Every one of them holds for the whole tree of processes, except where it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time until the tree is told to end (SIGTERM).
    pub deadline: Duration,
    /// Wall time from there until it is killed; the same for background processes that are left when the program itself has ended.
    pub grace: Duration,
    /// Bytes of standard output and standard error together.
    pub output: usize,
    /// Processor seconds.
    pub cpu_seconds: u64,
    /// Processes and threads (kernel, per account, on top of what the account runs already), and processes of the tree (counted).
    pub processes: u64,
    /// Open files per process.
    pub open_files: u64,
    /// Bytes of the largest file a process may write.
    pub file_size: u64,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSpec {
    /// What to execute.
    pub program: Program,
    /// Absolute working directory.
    #[serde(with = "lossless")]
    pub cwd: PathBuf,
    /// The whole environment, besides `TERM` and `TMPDIR`, which the tool host sets. Only names of a closed list are taken, see
    /// [`environment`](super::environment).
    pub env: Vec<(String, String)>,
    /// Fed to standard input, which is then closed.
    #[serde(skip)]
    pub stdin: Vec<u8>,
    /// What the child may touch.
    pub grants: ChildGrants,
    /// Its bounds.
    pub limits: Limits,
}

/// How the program itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Who ended the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The program, by exiting or by a signal that was not ours.
    Itself,
    /// [`Limits::deadline`].
    Deadline,
    /// [`Limits::output`]; the bytes up to it are there.
    OutputCap,
    /// [`Limits::cpu_seconds`].
    CpuCeiling,
    /// [`Limits::processes`], counted over the tree; the kernel's own limit makes fork fail instead and ends nothing.
    ProcessCeiling,
    /// [`Canceller::cancel`](super::Canceller::cancel).
    Cancelled,
}

/// What a call came to. Whenever it is returned, no process of the call is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildOutcome {
    /// How the program itself ended.
    pub exit: Exit,
    /// Its standard output, up to the cap.
    #[serde(skip)]
    pub stdout: Vec<u8>,
    /// Its standard error, up to the cap.
    #[serde(skip)]
    pub stderr: Vec<u8>,
    /// Who ended it.
    pub ended_by: EndedBy,
    /// Processor time of every process that was waited for.
    pub cpu_ms: u64,
    /// From start to the end of the last process.
    pub wall_ms: u64,
    /// Processes other than the program that had to be ended.
    pub survivors_killed: u32,
}

/// A call that could not be made, or whose end is not certain. An ordinary failure of the program is a [`ChildOutcome`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum HostError {
    /// The process that should fork its tool host has more than one thread.
    #[error("fork the tool host: the process has {threads} threads and must have one")]
    NotSingleThreaded {
        /// Threads at that moment.
        threads: usize,
    },
    /// The child failed before its program ran.
    #[error("start {program}: could not {}: {}", step.phrase(), explain(*errno))]
    Spawn {
        /// The program as asked for.
        program: String,
        /// The step that failed.
        step: Step,
        /// Why.
        errno: i32,
    },
    /// The specification is one no child is started for.
    #[error("start {program}: {problem}")]
    Specification {
        /// The program as asked for.
        program: String,
        /// What is wrong with the specification.
        problem: String,
    },
    /// A specification or an output beyond the size of one message.
    #[error("send {bytes} bytes to the tool host: the ceiling is {ceiling}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The most there may be.
        ceiling: usize,
    },
    /// The private temporary directory could not be made.
    #[error("make a private temporary directory in {place}: {}", explain(*errno))]
    Temporary {
        /// The place from the grants.
        place: String,
        /// Why.
        errno: i32,
    },
    /// The sandbox of the child, or of the tool host, could not be made.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A killed tree did not disappear.
    #[error("end every process of the call: {count} still alive after SIGKILL")]
    StillAlive {
        /// How many.
        count: usize,
    },
    /// The tool host did not answer long after the deadline of the call; it and its children have been killed.
    #[error("hear from the tool host: it did not answer, so it and its children were killed")]
    Unresponsive,
    /// The tool host is gone; so are its children.
    #[error("reach the tool host: it is gone")]
    Gone,
    /// The other side broke the message format.
    #[error("understand the tool host: {problem}")]
    Protocol {
        /// How.
        problem: String,
    },
    /// The kernel refused something the tool host needs for itself.
    #[error("{verb}: {}", explain(*errno))]
    System {
        /// What was tried.
        verb: String,
        /// Why not.
        errno: i32,
    },
}

impl HostError {
    pub(crate) fn system(verb: &str, error: &std::io::Error) -> Self {
        Self::System { verb: verb.to_owned(), errno: crate::sandbox::errno_of(error) }
    }
}
