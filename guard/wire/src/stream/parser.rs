//! Bytes to events.

use serde_json::{Map, Value};

use super::StreamEvent;
use super::assembly::Assembly;
use crate::limits::MESSAGE_BYTES;
use crate::response::Response;
use crate::{Dialect, WireError, dialect, json, ndjson, openai_chat, sse};

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
    state: State,
    assembly: Assembly,
    ended: bool,
    failed: Option<WireError>,
    replaced: usize,
}

#[derive(Debug)]
enum Framing {
    Sse(sse::Decoder),
    #[expect(dead_code, reason = "the Ollama dialects use it")]
    Ndjson(ndjson::Decoder),
}

#[derive(Debug)]
enum State {
    OpenAiChat(openai_chat::stream::Reader),
}

/// A frame before the dialect has read it.
struct Framed {
    raw: Vec<u8>,
    name: Option<String>,
    data: Option<String>,
    replaced: usize,
}

impl StreamParser {
    /// A parser at the start of a stream.
    pub fn new(dialect: Dialect) -> Self {
        let (framing, state) = match dialect {
            Dialect::OpenAiChat => (
                Framing::Sse(sse::Decoder::new(MESSAGE_BYTES)),
                State::OpenAiChat(openai_chat::stream::Reader::default()),
            ),
        };
        Self {
            dialect,
            framing: Some(framing),
            state,
            assembly: Assembly::new(dialect),
            ended: false,
            failed: None,
            replaced: 0,
        }
    }

    /// Takes the next bytes, cut anywhere, and returns what they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<StreamEvent>, WireError> {
        Ok(self.push_frames(bytes)?.into_iter().flat_map(|frame| frame.events).collect())
    }

    /// As [`StreamParser::push`], with the bytes of each frame. After an error every call gives it again.
    pub fn push_frames(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, WireError> {
        let dialect = self.dialect;
        let too_large = |error: sse::TooLarge| WireError::TooLarge {
            dialect,
            what: "a stream event in bytes",
            limit: error.limit,
        };
        let framed = match &mut self.framing {
            None => return Err(WireError::shape(dialect, "stream", "bytes after its end")),
            Some(Framing::Sse(decoder)) => {
                decoder.push(bytes).map(|events| events.into_iter().map(Framed::from).collect())
            }
            Some(Framing::Ndjson(decoder)) => {
                decoder.push(bytes).map(|lines| lines.into_iter().map(Framed::from).collect())
            }
        };
        self.read_all(framed.map_err(too_large))
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
        let cut = self.flush().err();
        if self.ended {
            if let Some(error) = cut {
                return Err(error);
            }
            let mut response = self.assembly.into_response();
            match &self.state {
                State::OpenAiChat(reader) => reader.shape(&mut response),
            }
            return Ok(response);
        }
        match cut {
            // A fault in the bytes the close cut off is the cut's fault.
            None | Some(WireError::NotJson { .. }) => {
                Err(WireError::Truncated { dialect: self.dialect, missing: self.missing() })
            }
            Some(error) => Err(error),
        }
    }

    /// The dialect's own end marker was read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Invalid UTF-8 subparts replaced by U+FFFD so far; more than 0 belongs in a log.
    pub fn replaced(&self) -> usize {
        self.replaced
    }

    fn missing(&self) -> String {
        match &self.state {
            State::OpenAiChat(reader) => reader.missing(),
        }
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
        let Framed { raw, name, data, replaced } = framed;
        self.replaced += replaced;
        let mut events = Vec::new();
        if let Some(data) = data {
            if self.ended {
                return Err(WireError::shape(self.dialect, "stream", "data after its end marker"));
            }
            self.read_data(name.as_deref(), &data, &mut events)?;
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

    fn read_data(
        &mut self,
        _name: Option<&str>,
        data: &str,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        if data == "[DONE]" && matches!(self.state, State::OpenAiChat(_)) {
            match &mut self.state {
                State::OpenAiChat(reader) => reader.done(events)?,
            }
            return Ok(());
        }
        let map = json::read_object(self.dialect, data.as_bytes())?;
        if let Some(error) = dialect::error_of(&map) {
            events.push(StreamEvent::Error(error));
            return Ok(());
        }
        self.read_object(map, events)
    }

    fn read_object(
        &mut self,
        map: Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        match &mut self.state {
            State::OpenAiChat(reader) => reader.chunk(map, events),
        }
    }
}

impl From<sse::Event> for Framed {
    fn from(event: sse::Event) -> Self {
        Self { raw: event.raw, name: event.name, data: event.data, replaced: event.replaced }
    }
}

impl From<ndjson::Line> for Framed {
    fn from(line: ndjson::Line) -> Self {
        let data = (!line.text.is_empty()).then_some(line.text);
        Self { raw: line.raw, name: None, data, replaced: line.replaced }
    }
}
