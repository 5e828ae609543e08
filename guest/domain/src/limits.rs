//! The numeric ceilings of this crate's formats, in one place. The table in
//! ARCHITECTURE.md repeats them for readers.

/// Longest run id, in bytes.
pub const RUN_ID_BYTES: usize = 64;
/// Longest agent slug, in bytes: `leash-` plus the slug must fit a login name.
pub const AGENT_SLUG_BYTES: usize = 26;
/// Longest text of one human turn or steering message, in bytes.
pub const TURN_BYTES: usize = 1024 * 1024;
/// Most rules an action policy may carry.
pub const POLICY_RULES: usize = 1_000;
/// Steps (model calls) of a run when its budget does not say otherwise.
pub const RUN_STEPS: u32 = 200;
/// Wall-clock seconds a run may be driven, waiting for a person excluded.
pub const RUN_WALL_SECONDS: u64 = 6 * 60 * 60;
/// Milliseconds one act of a worker can take: the longest tool deadline, and
/// then some. More between two entries is a clock that was set.
pub const LONGEST_ACT_MS: u64 = 15 * 60 * 1000;
/// Tool calls of a run.
pub const RUN_TOOL_CALLS: u32 = 1_000;
/// Launches without a new worker event before a run is failed as a crash loop.
pub const LAUNCHES_WITHOUT_PROGRESS: u32 = 5;
/// Characters of untrusted text shown before truncation is marked.
pub const SHOWN_CHARACTERS: usize = 4_000;
