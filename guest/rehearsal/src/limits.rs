//! Every numeric ceiling of the rehearsal, in one place.

use std::time::Duration;

/// Bytes of one scenario file.
pub const SCENARIO_BYTES: usize = 4 * 1024 * 1024;
/// Conversations in one scenario.
pub const CONVERSATIONS: usize = 64;
/// Turns in one conversation.
pub const TURNS: usize = 4096;
/// Calls in one turn.
pub const CALLS: usize = 256;
/// Bytes of one request body.
pub const REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// Requests that are remembered; the oldest are forgotten first.
pub const REMEMBERED_REQUESTS: usize = 4096;
/// Bytes of remembered request bodies; the oldest are forgotten first.
pub const REMEMBERED_BYTES: usize = 128 * 1024 * 1024;
/// Any one delay that a scenario asks for.
pub const DELAY: Duration = Duration::from_hours(1);
/// Bytes that one placeholder puts in.
pub const SUBSTITUTED_BYTES: usize = 64 * 1024;
