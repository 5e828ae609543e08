//! The worker's numeric ceilings, in one place.

use std::time::Duration;

/// Bytes of a tool's text that enter the conversation; the rest is kept as a
/// blob and said to be missing.
pub const RESULT_TEXT_BYTES: usize = 48 * 1024;
/// Bytes of output of one tool child; more is an error.
pub const TOOL_OUTPUT_BYTES: usize = 1024 * 1024;
/// Wall time of one tool child unless the call asks for less.
pub const TOOL_DEADLINE: Duration = Duration::from_secs(120);
/// Longest deadline a call may ask for.
pub const TOOL_DEADLINE_MAX: Duration = Duration::from_secs(600);
/// Time between the request to end and the kill.
pub const TOOL_GRACE: Duration = Duration::from_secs(2);
/// CPU seconds of one tool child and all it starts.
pub const TOOL_CPU_SECONDS: u64 = 300;
/// Processes and threads of one tool child's tree.
pub const TOOL_PROCESSES: u64 = 512;
/// Open files of one process of a tool child.
pub const TOOL_OPEN_FILES: u64 = 1024;
/// Largest file a tool child may write, in bytes.
pub const TOOL_FILE_BYTES: u64 = 4 << 30;
/// Largest file the file tools read or edit, in bytes.
pub const FILE_BYTES: u64 = 16 << 20;
/// Entries one listing returns.
pub const LIST_ENTRIES: usize = 2_000;
/// Matches one search returns.
pub const SEARCH_MATCHES: usize = 500;
/// Longest line of a search result, in bytes.
pub const SEARCH_LINE_BYTES: usize = 512;
/// Largest answer of a model, in bytes.
pub const MODEL_ANSWER_BYTES: usize = 16 << 20;
/// Time to connect to Muzzle.
pub const MODEL_CONNECT: Duration = Duration::from_secs(5);
/// Longest silence of a model that is answering. Local models load for
/// minutes before the first byte.
pub const MODEL_SILENCE: Duration = Duration::from_secs(300);
/// Attempts at one model call.
pub const MODEL_ATTEMPTS: u32 = 5;
/// Wait before the second attempt; doubled for each further one.
pub const MODEL_BACKOFF: Duration = Duration::from_millis(500);
/// Time until the control plane has recorded what the launcher observed.
pub const ATTESTATION_WAIT: Duration = Duration::from_secs(5);

/// Header of one message between worker and tool host: arguments, environment, grants. Above: `HostError::TooLarge`.
pub(crate) const HOST_HEADER_BYTES: usize = 8 * 1024 * 1024;
/// Raw bytes of one message: a child's input, or its output. Above: `HostError::TooLarge`.
pub(crate) const HOST_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Distinct sets of grants whose rulesets are kept. Above: all are built anew.
pub(crate) const PREPARED_GRANTS: usize = 64;
/// How often a running tree's processor time and size are looked at.
pub(crate) const TREE_TICK: Duration = Duration::from_millis(50);
/// How long a killed tree may take to disappear. Above: `HostError::StillAlive`; only a process stuck in the kernel lasts so long.
pub(crate) const TREE_PATIENCE: Duration = Duration::from_secs(5);
/// How long emptying a private temporary directory may take after a call. Above: the next call gets another directory, and this one
/// is removed when the tool host ends.
pub(crate) const TMP_EMPTYING: Duration = Duration::from_secs(2);
/// What the worker waits for an answer on top of a call's deadline and grace. Above: `HostError::Unresponsive`.
pub(crate) const HOST_MARGIN: Duration = Duration::from_secs(10);
/// How long the number of other tasks of the account, on top of which a child's processes are counted, is taken as current.
pub(crate) const ACCOUNT_COUNT_AGE: Duration = Duration::from_secs(5);
