//! Bytes to events.

use serde_json::{Map, Value};

use super::assembly::Assembly;
use super::{Reader, StreamEvent};
use crate::limits::MESSAGE_BYTES;
use crate::response::Response;
use crate::surrogates::Surrogates;
use crate::{Dialect, WireError, dialect, json, ndjson, sse};

/// One frame of a stream: its bytes, to forward, and what they say.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The bytes as they came.
    pub raw: Vec<u8>,
    /// What they say; empty for comments, pings and repetitions.
    pub events: Vec<StreamEvent>,
}

/// Reads one streamed answer.
#[derive(Debug)]
pub struct StreamParser {
    dialect: Dialect,
    /// Taken when the stream is flushed.
    framing: Option<Framing>,
    reader: Box<dyn Reader>,
    assembly: Assembly,
    ended: bool,
    failed: Option<WireError>,
    replaced: usize,
    surrogates: Surrogates,
}

#[derive(Debug)]
enum Framing {
    Sse(sse::Decoder),
    Ndjson(ndjson::Decoder),
}

/// A frame before the dialect has read it.
struct Framed {
    raw: Vec<u8>,
    data: Option<String>,
    replaced: usize,
}

impl StreamParser {
    /// A parser at the start of a stream.
    pub fn new(dialect: Dialect) -> Self {
        let framing = if dialect.is_ndjson() {
            Framing::Ndjson(ndjson::Decoder::new(MESSAGE_BYTES))
        } else {
            Framing::Sse(sse::Decoder::new(MESSAGE_BYTES))
        };
        Self {
            dialect,
            framing: Some(framing),
            reader: dialect.reader(),
            assembly: Assembly::new(dialect),
            ended: false,
            failed: None,
            replaced: 0,
            surrogates: Surrogates::default(),
        }
    }

    /// Takes the next bytes, cut anywhere, and returns what they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<StreamEvent>, WireError> {
        Ok(self.push_frames(bytes)?.into_iter().flat_map(|frame| frame.events).collect())
    }

    /// As [`StreamParser::push`], with the bytes of each frame. After an error every call gives it again.
    pub fn push_frames(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, WireError> {
        let framed = match &mut self.framing {
            None => return Err(WireError::shape(self.dialect, "stream", "bytes after its end")),
            Some(Framing::Sse(decoder)) => {
                decoder.push(bytes).map(|events| events.into_iter().map(Framed::from).collect())
            }
            Some(Framing::Ndjson(decoder)) => {
                decoder.push(bytes).map(|lines| lines.into_iter().map(Framed::from).collect())
            }
        };
        let framed = framed.map_err(|error| WireError::TooLarge {
            dialect: self.dialect,
            what: "a stream event in bytes",
            limit: error.limit,
        });
        self.read_all(framed)
    }

    /// The connection has closed: what was still open is read. [`StreamParser::finish`] does it too.
    pub fn flush(&mut self) -> Result<Option<Frame>, WireError> {
        let last = match self.framing.take() {
            None => None,
            Some(Framing::Sse(decoder)) => decoder.finish().map(Framed::from),
            Some(Framing::Ndjson(decoder)) => decoder.finish().map(Framed::from),
        };
        Ok(self.read_all(Ok(last.into_iter().collect()))?.pop())
    }

    /// The whole answer, or why there is none: the provider's error, a fault, or [`WireError::Truncated`]
    /// when the connection closed before the dialect's own end marker.
    pub fn finish(mut self) -> Result<Response, WireError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let cut = self.flush().err();
        match (cut, self.ended) {
            (None, true) => {
                let mut response = self.assembly.into_response();
                self.reader.shape(&mut response);
                Ok(response)
            }
            // A fault in the bytes the close cut off is the cut's fault.
            (None | Some(WireError::NotJson { .. }), false) => {
                Err(WireError::Truncated { dialect: self.dialect, missing: self.reader.missing() })
            }
            (Some(error), _) => Err(error),
        }
    }

    /// The dialect's own end marker was read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Invalid UTF-8 subparts and lone surrogate halves replaced by U+FFFD or dropped so far; more than
    /// 0 belongs in a log.
    pub fn replaced(&self) -> usize {
        self.replaced
    }

    fn read_all(
        &mut self,
        framed: Result<Vec<Framed>, WireError>,
    ) -> Result<Vec<Frame>, WireError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let frames =
            framed.and_then(|framed| framed.into_iter().map(|frame| self.read(frame)).collect());
        if let Err(error) = &frames {
            self.failed = Some(error.clone());
        }
        frames
    }

    fn read(&mut self, framed: Framed) -> Result<Frame, WireError> {
        let Framed { raw, data, replaced } = framed;
        self.replaced += replaced;
        let mut events = Vec::new();
        match data {
            Some(data) if data.trim_ascii() == "[DONE]" && !self.ended => {
                self.reader.done(&mut events)?;
            }
            Some(data) if data.trim_ascii() == "[DONE]" => {}
            Some(_) if self.ended => {
                return Err(WireError::shape(self.dialect, "stream", "data after its end marker"));
            }
            Some(data) => {
                let map = self.read_object(&data)?;
                match dialect::error_of(&map) {
                    Some(error) => events.push(StreamEvent::Error(error)),
                    None => self.reader.object(map, &mut events)?,
                }
            }
            None => {}
        }
        for event in &events {
            self.assembly.add(event)?;
            self.ended |= *event == StreamEvent::Ended;
            if let StreamEvent::Error(error) = event {
                self.failed =
                    Some(WireError::Provider { dialect: self.dialect, error: error.clone() });
            }
        }
        Ok(Frame { raw, events })
    }
}

impl StreamParser {
    fn read_object(&mut self, data: &str) -> Result<Map<String, Value>, WireError> {
        let strict = json::read_object(self.dialect, data.as_bytes());
        if strict.is_ok() {
            self.replaced += self.surrogates.skip();
            return strict;
        }
        let Some((mended, lost)) = self.surrogates.mend(data) else { return strict };
        self.replaced += lost;
        json::read_object(self.dialect, mended.as_bytes())
    }
}

impl From<sse::Event> for Framed {
    fn from(event: sse::Event) -> Self {
        Self { raw: event.raw, data: event.data, replaced: event.replaced }
    }
}

impl From<ndjson::Line> for Framed {
    fn from(line: ndjson::Line) -> Self {
        Self {
            raw: line.raw,
            data: (!line.text.is_empty()).then_some(line.text),
            replaced: line.replaced,
        }
    }
}
