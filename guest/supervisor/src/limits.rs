//! The control plane's numeric ceilings, in one place.

use std::time::Duration;

/// Connections to the control socket at once.
pub const CONNECTIONS: usize = 64;
/// Time a client has to say hello.
pub const HELLO: Duration = Duration::from_secs(5);
/// Time a starting control plane has to learn its accounts from the launcher.
pub const READY: Duration = Duration::from_secs(20);
/// Messages that wait for the core.
pub const QUEUE: usize = 256;
/// Rows of one listing.
pub const LISTED_RUNS: usize = 10_000;
/// Time between TERM and KILL of a cancelled worker.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Wait before a launch after a worker died without progress; times the
/// number of such launches in a row.
pub const RELAUNCH: Duration = Duration::from_millis(200);
/// Wait before a write that failed for lack of room is tried again.
pub const RETRY_WRITE: Duration = Duration::from_secs(2);
/// The same for what the launcher observed of a worker, which waits for it.
pub const RETRY_ATTESTATION: Duration = Duration::from_millis(500);
/// Time an answer of the model may take in `model test`.
pub const MODEL_TEST: Duration = Duration::from_secs(120);
/// Bytes of one transcript item sent to a client; longer text is cut and the
/// cut is marked.
pub const ITEM_BYTES: usize = 512 * 1024;
/// Bytes of items sent with `show`; older ones are left out and counted.
pub const SHOWN_BYTES: usize = 768 * 1024;
