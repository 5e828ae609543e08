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
