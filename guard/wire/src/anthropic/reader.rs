//! The streamed answer, read.
//!
//! ```text
//! message_start  (content_block_start content_block_delta* content_block_stop)*  message_delta  message_stop
//! ```
//! `ping` may come anywhere. Whole means `message_stop` behind a `stop_reason`, no block left open.

use serde_json::{Map, Value};

use super::DIALECT;
use super::block::unknown;
use super::response::{parse_usage, stop_from};
use crate::WireError;
use crate::extra::{Extra, Form};
use crate::json::{take_exact, take_filled, take_object, take_string};
use crate::limits::{MESSAGE_BYTES, STREAM_PARTS};
use crate::stream::{self, Owner, PartAt, StreamEvent};

/// Reads events.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    started: bool,
    stopped: bool,
    parts: u32,
    blocks: Vec<Block>,
    usage: Map<String, Value>,
    /// Bytes kept until their block ends.
    held: usize,
}

/// An open content block.
#[derive(Debug)]
struct Block {
    index: u64,
    kind: Kind,
    /// The part, once it has one.
    part: Option<u32>,
    /// `input` of a tool call's start, used when no delta follows.
    input: String,
}

#[derive(Debug)]
enum Kind {
    Text,
    Thinking,
    Tool,
    /// A block kept whole: as it started, and the JSON text its deltas add to `input`.
    Unknown(Value, String),
}

impl stream::Reader for Reader {
    fn object(
        &mut self,
        mut map: Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let Some(kind) = map.get("type").and_then(Value::as_str).map(str::to_owned) else {
            return Err(WireError::shape(DIALECT, "type", "missing or not a string"));
        };
        match kind.as_str() {
            "ping" => {}
            "message_start" => {
                self.start(take_object(&mut map, "message").unwrap_or_default(), events);
            }
            "content_block_start" => self.open(&mut map, events)?,
            "content_block_delta" => self.delta(&mut map, events)?,
            "content_block_stop" => self.close(&map, events)?,
            "message_delta" => self.message(map, events),
            "message_stop" => {
                if !self.stopped || !self.blocks.is_empty() {
                    return Err(WireError::Truncated {
                        dialect: DIALECT,
                        missing: stream::Reader::missing(self),
                    });
                }
                events.push(StreamEvent::Ended);
            }
            _ => events.push(StreamEvent::Unknown(unknown(Value::Object(map)))),
        }
        Ok(())
    }

    fn missing(&self) -> String {
        let what = match (self.blocks.is_empty(), self.stopped) {
            (false, _) => "the end of a content block",
            (true, false) => "its stop_reason",
            (true, true) => "its end marker message_stop",
        };
        what.to_owned()
    }
}

impl Reader {
    fn start(&mut self, mut message: Map<String, Value>, events: &mut Vec<StreamEvent>) {
        self.started = true;
        let id = take_string(&mut message, "id").unwrap_or_default();
        let model = take_string(&mut message, "model").unwrap_or_default();
        let usage = take_object(&mut message, "usage");
        for field in ["content", "stop_reason"] {
            message.shift_remove(field);
        }
        events.push(StreamEvent::Started {
            id,
            model,
            extra: Extra::rest(DIALECT, Form::default(), message),
        });
        self.usage(usage, events);
    }

    fn usage(&mut self, usage: Option<Map<String, Value>>, events: &mut Vec<StreamEvent>) {
        let Some(usage) = usage else { return };
        self.usage.extend(usage.into_iter().filter(|(_, value)| !value.is_null()));
        events.push(StreamEvent::Usage(parse_usage(self.usage.clone())));
    }

    fn open(
        &mut self,
        map: &mut Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let index = block_index(map)?;
        let Some(mut block) = take_object(map, "content_block") else {
            return Err(WireError::shape(DIALECT, "content_block", "missing or not an object"));
        };
        if self.blocks.iter().any(|open| open.index == index) {
            return Err(WireError::shape(
                DIALECT,
                "index",
                format!("content block {index} is already open"),
            ));
        }
        if self.blocks.len() >= STREAM_PARTS {
            return Err(WireError::TooLarge {
                dialect: DIALECT,
                what: "the number of parts",
                limit: STREAM_PARTS,
            });
        }
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut open = Block { index, kind: Kind::Text, part: None, input: String::new() };
        match kind.as_str() {
            "text" => {
                block.shift_remove("type");
                if let Some(text) = take_string(&mut block, "text").filter(|text| !text.is_empty())
                {
                    let at = self.part(&mut open);
                    events.push(StreamEvent::TextDelta { at, text });
                }
            }
            "thinking" => {
                block.shift_remove("type");
                open.kind = Kind::Thinking;
                let text = take_string(&mut block, "thinking").unwrap_or_default();
                take_exact(&mut block, "signature", "");
                let at = self.part(&mut open);
                events.push(StreamEvent::ReasoningDelta { at, text });
            }
            "redacted_thinking" => {
                open.kind = Kind::Thinking;
                self.part(&mut open);
            }
            "tool_use" => self.open_tool(&mut open, &mut block, events)?,
            _ => {
                let value = Value::Object(std::mem::take(&mut block));
                self.hold(value.to_string().len())?;
                open.kind = Kind::Unknown(value, String::new());
            }
        }
        for (name, value) in block {
            if !value.is_null() {
                self.field(&mut open, name, value, events);
            }
        }
        self.blocks.push(open);
        Ok(())
    }

    fn open_tool(
        &mut self,
        open: &mut Block,
        block: &mut Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        block.shift_remove("type");
        open.kind = Kind::Tool;
        let at = self.part(open);
        let id = take_string(block, "id").unwrap_or_default();
        let name = take_string(block, "name").unwrap_or_default();
        let input = block.shift_remove("input").unwrap_or_default();
        if input.as_object().is_some_and(|input| !input.is_empty()) {
            open.input = input.to_string();
            self.hold(open.input.len())?;
        }
        events.push(StreamEvent::ToolCallStarted { at, id, name, free_form: false });
        Ok(())
    }

    fn part(&mut self, block: &mut Block) -> PartAt {
        let part = *block.part.get_or_insert_with(|| {
            let part = self.parts;
            self.parts = self.parts.saturating_add(1);
            part
        });
        PartAt { choice: 0, part }
    }

    /// A field of a block; a text block without words yet becomes a part first.
    fn field(
        &mut self,
        block: &mut Block,
        name: String,
        value: Value,
        events: &mut Vec<StreamEvent>,
    ) {
        let fresh = block.part.is_none();
        let at = self.part(block);
        if fresh {
            events.push(StreamEvent::TextDelta { at, text: String::new() });
        }
        events.push(StreamEvent::Field { dialect: DIALECT, owner: Owner::Part(at), name, value });
    }

    fn delta(
        &mut self,
        map: &mut Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let index = block_index(map)?;
        let Some(position) = self.blocks.iter().position(|block| block.index == index) else {
            let why = format!("a delta for content block {index}, not open");
            return Err(WireError::shape(DIALECT, "index", why));
        };
        let mut delta = take_object(map, "delta").unwrap_or_default();
        let kind = delta.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut block = self.blocks.swap_remove(position);
        let grown = self.grow(&mut block, &kind, &mut delta, events);
        self.blocks.push(block);
        if !grown? {
            map.insert("delta".to_owned(), Value::Object(delta));
            events.push(StreamEvent::Unknown(unknown(Value::Object(std::mem::take(map)))));
        }
        Ok(())
    }

    /// Adds a delta to its block; `false` when nobody knows it.
    fn grow(
        &mut self,
        block: &mut Block,
        kind: &str,
        delta: &mut Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<bool, WireError> {
        match (kind, &mut block.kind) {
            ("text_delta", Kind::Text) => {
                let text = take_filled(delta, "text");
                let at = self.part(block);
                events.extend(text.map(|text| StreamEvent::TextDelta { at, text }));
            }
            ("thinking_delta", Kind::Thinking) => {
                let text = take_filled(delta, "thinking");
                let at = self.part(block);
                events.extend(text.map(|text| StreamEvent::ReasoningDelta { at, text }));
            }
            ("signature_delta", Kind::Thinking) => {
                let value = delta.shift_remove("signature").unwrap_or_default();
                self.field(block, "signature".to_owned(), value, events);
            }
            ("citations_delta", Kind::Text) => {
                let value = Value::Array(delta.shift_remove("citation").into_iter().collect());
                self.field(block, "citations".to_owned(), value, events);
            }
            ("input_json_delta", Kind::Tool) => {
                let fragment = take_filled(delta, "partial_json");
                let at = self.part(block);
                if fragment.is_some() {
                    block.input.clear();
                }
                events.extend(
                    fragment.map(|fragment| StreamEvent::ToolCallArguments { at, fragment }),
                );
            }
            ("input_json_delta", Kind::Unknown(_, input)) => {
                let fragment = take_string(delta, "partial_json").unwrap_or_default();
                self.hold(fragment.len())?;
                input.push_str(&fragment);
            }
            ("text_delta" | "thinking_delta" | "input_json_delta", _) => {
                let why = format!("{kind} in a content block of another kind");
                return Err(WireError::shape(DIALECT, "delta.type", why));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Counts what is kept until a block ends.
    fn hold(&mut self, more: usize) -> Result<(), WireError> {
        self.held = self.held.saturating_add(more);
        if self.held <= MESSAGE_BYTES {
            return Ok(());
        }
        Err(WireError::TooLarge {
            dialect: DIALECT,
            what: "a streamed answer in bytes",
            limit: MESSAGE_BYTES,
        })
    }

    fn close(
        &mut self,
        map: &Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let index = block_index(map)?;
        let Some(position) = self.blocks.iter().position(|block| block.index == index) else {
            return Err(WireError::shape(
                DIALECT,
                "index",
                format!("content block {index} is not open"),
            ));
        };
        let mut block = self.blocks.swap_remove(position);
        match &block.kind {
            Kind::Text | Kind::Thinking => {}
            Kind::Tool => {
                let input = std::mem::take(&mut block.input);
                let at = self.part(&mut block);
                if !input.is_empty() {
                    events.push(StreamEvent::ToolCallArguments { at, fragment: input });
                }
                events.push(StreamEvent::ToolCallEnded { at });
            }
            Kind::Unknown(value, input) => {
                let mut value = value.clone();
                if let (Ok(input), Some(fields)) =
                    (crate::json::read_text(input), value.as_object_mut())
                {
                    fields.insert("input".to_owned(), input);
                }
                let at = self.part(&mut block);
                events.push(StreamEvent::UnknownPart { at, unknown: unknown(value) });
            }
        }
        Ok(())
    }

    fn message(&mut self, mut map: Map<String, Value>, events: &mut Vec<StreamEvent>) {
        let mut delta = take_object(&mut map, "delta").unwrap_or_default();
        let stop = take_string(&mut delta, "stop_reason");
        let usage = take_object(&mut map, "usage");
        map.shift_remove("type");
        map.extend(delta);
        for (name, value) in map {
            if !value.is_null() {
                events.push(StreamEvent::Field {
                    dialect: DIALECT,
                    owner: Owner::Response,
                    name,
                    value,
                });
            }
        }
        if let Some(word) = stop {
            self.stopped = true;
            events.push(StreamEvent::Finished { choice: 0, stop: stop_from(word) });
        }
        self.usage(usage, events);
    }
}

fn block_index(map: &Map<String, Value>) -> Result<u64, WireError> {
    let index = map.get("index").and_then(Value::as_u64);
    index.ok_or_else(|| WireError::shape(DIALECT, "index", "missing or not a whole number"))
}
