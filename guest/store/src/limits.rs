//! The numeric ceilings of files, in one place.

/// Largest `events.jsonl` the control plane will read, in bytes.
pub const WORKER_LOG_BYTES: u64 = 1 << 30;
/// Largest control log, in bytes.
pub const CONTROL_LOG_BYTES: u64 = 1 << 30;
/// Largest record file (`run.json`, `models.json`, a profile), in bytes.
pub const RECORD_BYTES: u64 = 4 << 20;
/// Largest blob, in bytes.
pub const BLOB_BYTES: u64 = 64 << 20;
/// Largest workspace file whose content an approval is bound to, in bytes.
pub const BOUND_FILE_BYTES: u64 = 64 << 20;
