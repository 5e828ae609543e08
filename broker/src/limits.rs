//! Every ceiling and wait of the launcher, in one place.

use std::time::Duration;

/// The largest datagram in bytes, either way.
pub const MAX_DATAGRAM: usize = 64 * 1024;

/// The longest run id in bytes.
pub const MAX_RUN_ID: usize = 64;

/// The longest subject in bytes: `leash-` and a slug of 26, the limit of a Linux account name.
pub const MAX_SUBJECT: usize = 32;

/// The longest path of a socket in bytes: what fits `sun_path` with its terminator (unix(7)).
pub const SOCKET_PATH_BYTES: usize = 107;

/// The largest access control list that is read, in bytes: 500 entries.
pub const ACCESS_LIST_BYTES: usize = 4096;

/// The largest registry of accounts, in bytes.
pub const REGISTRY_BYTES: u64 = 1024 * 1024;

/// Live workers at a time. Keeps `Hello` within a datagram and one machine alive.
pub const WORKERS: usize = 256;

/// Unsent notices above which no further request is read: the control plane does not listen.
pub const OUTBOX: usize = 64;

/// Requests answered before other events get their turn.
pub const REQUESTS_PER_TURN: usize = 32;

/// A service that ends sooner than this after its start is started again with a delay.
pub const QUICK_DEATH: Duration = Duration::from_secs(2);

/// A service that lived this long is healthy: earlier failures are forgotten.
pub const HEALTHY: Duration = Duration::from_secs(30);

/// The first delay before a restart; it doubles up to [`RESTART_DELAY_MAX`].
pub const RESTART_DELAY: Duration = Duration::from_millis(250);

/// The longest delay before a restart.
pub const RESTART_DELAY_MAX: Duration = Duration::from_secs(5);

/// Failures in a row after which the launcher gives up.
pub const FAILURES: u32 = 8;

/// What processes get between SIGTERM and SIGKILL when the launcher ends.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// How long the launcher waits for killed processes to be gone when it ends.
pub const STOP_REAP: Duration = Duration::from_secs(5);

/// How often orphans that do not die are looked at again.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(10);

/// What one look after orphans may take before everything else gets its turn.
pub const SWEEP_TIME: Duration = Duration::from_millis(20);

/// Orphans that outlive this take their whole account with them even if it has live workers, whose
/// runs resume. An account without one ends at once.
pub const BUSY_ACCOUNT_GRACE: Duration = Duration::from_secs(3);

/// How often an account is ended again while orphans remain.
pub const ACCOUNT_END_INTERVAL: Duration = Duration::from_millis(50);

/// Directory levels below a workspace or memory bank in which an agent is granted what it finds when
/// the directory is first prepared.
pub const GRANT_DEPTH: usize = 64;

/// Entries granted at that time; more are refused, for the launcher does nothing else meanwhile.
pub const GRANT_ENTRIES: usize = 200_000;
