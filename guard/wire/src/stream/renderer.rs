//! Events to bytes.

use super::{StreamEvent, Writer};
use crate::Dialect;

/// Writes one streamed answer in a dialect.
///
/// Feed it every event of an answer, also those whose own bytes are forwarded (and drop what it
/// returns for them): when a later event must be rewritten, it continues the stream consistently.
#[derive(Debug)]
pub struct StreamRenderer {
    writer: Box<dyn Writer>,
}

impl StreamRenderer {
    /// A renderer at the start of a stream.
    pub fn new(dialect: Dialect) -> Self {
        Self { writer: dialect.writer() }
    }

    /// The bytes for one event; empty when the dialect has none for it or says it later.
    ///
    /// [`StreamEvent::Ended`] writes the end marker. A stream that must not look whole ends with
    /// [`StreamEvent::Error`] or with nothing.
    pub fn render(&mut self, event: &StreamEvent) -> Vec<u8> {
        self.writer.write(event)
    }
}
