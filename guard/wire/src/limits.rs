//! Every numeric ceiling of this crate; hitting one is a [`crate::WireError::TooLarge`].

/// Bytes of one request, one response, one stream frame, and of what a whole stream assembles to.
pub const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Parts (text, reasoning, tool calls) one choice of a stream may open.
pub const STREAM_PARTS: usize = 4096;

/// Choices one stream may carry.
pub const STREAM_CHOICES: usize = 128;
