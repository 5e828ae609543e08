//! The one place that reads the wall clock. Order never depends on it: entries
//! of a log are ordered by sequence number.

use std::time::{SystemTime, UNIX_EPOCH};

use domain::id::Millis;

/// Now, in milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
