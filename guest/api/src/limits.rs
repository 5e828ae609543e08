//! The numeric ceilings of what crosses the control socket, in one place.

/// Largest frame in bytes, either way.
pub const MAX_FRAME: usize = 1024 * 1024;
