//! The streamed answer, read.
//!
//! ```text
//! response.created  (output_item.added  deltas  *.done  output_item.done)*  response.completed | incomplete
//! ```
//! The dialect says everything up to four times: as deltas, at the end of a part, at the end of an item
//! and in the last event. Whoever inspects the events has inspected everything, because words and calls
//! that were not streamed become events when they first appear, and ones that differ from what was
//! streamed are an error. Whole means `response.completed` or `response.incomplete`, every item done.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::item::{self, unknown};
use super::{DIALECT, response};
use crate::conversation::{Message, Part, Text};
use crate::extra::{Extra, Form};
use crate::json::{take_object, take_string};
use crate::limits::STREAM_PARTS;
use crate::response::{Response, StopReason, provider_error};
use crate::stream::{self, Owner, PartAt, StreamEvent};
use crate::{ProviderError, WireError};

/// Reads events.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    started: Option<Map<String, Value>>,
    parts: u32,
    items: BTreeMap<u64, Item>,
    whole: Option<Response>,
}

#[derive(Debug, Default)]
struct Item {
    /// The item's id until it has been told.
    id: Option<Value>,
    slots: Vec<Slot>,
    done: Option<Message>,
}

/// Something of an item that is streamed.
#[derive(Debug)]
struct Slot {
    key: Key,
    at: PartAt,
    text: String,
    /// Thinking: which piece the last words belonged to.
    piece: Option<(bool, u64)>,
    settled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Text(u64),
    Refusal(u64),
    Reasoning,
    Call,
    Unknown(u64),
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
        let Some(kind) = kind.strip_prefix("response.") else {
            events.push(match kind.as_str() {
                "error" => StreamEvent::Error(provider_error(&Value::Object(map))),
                _ => StreamEvent::Unknown(unknown(Value::Object(map))),
            });
            return Ok(());
        };
        match kind {
            "created" | "queued" | "in_progress" => self.start(&mut map, events),
            "completed" | "incomplete" => self.end(&mut map, events)?,
            "failed" => events.push(StreamEvent::Error(failure(&map))),
            "output_item.added" => self.added(&mut map, events)?,
            "output_item.done" => {
                let index = output_index(&map)?;
                let value = map.shift_remove("item").unwrap_or_default();
                self.item_done(index, value, events)?;
            }
            "content_part.done" => self.part_done(&map, events)?,
            "content_part.added"
            | "reasoning_summary_part.added"
            | "reasoning_summary_part.done" => {}
            _ => match key_of(kind, &map) {
                Some((key, piece, Some(field))) => {
                    let index = output_index(&map)?;
                    let text = take_string(&mut map, field).unwrap_or_default();
                    if piece.is_none() {
                        self.settle(index, key, &text, events)?;
                    }
                }
                Some((key, piece, None)) => {
                    let index = output_index(&map)?;
                    let text = take_string(&mut map, "delta").unwrap_or_default();
                    self.delta(index, key, piece, text, events)?;
                }
                None => events.push(StreamEvent::Unknown(unknown(Value::Object(map)))),
            },
        }
        Ok(())
    }

    fn missing(&self) -> String {
        let open = self.items.iter().find(|(_, item)| item.done.is_none());
        match open {
            Some((index, _)) => format!("the end of output item {index}"),
            None => "its end marker response.completed".to_owned(),
        }
    }

    fn shape(&self, response: &mut Response) {
        if let Some(whole) = &self.whole {
            response.clone_from(whole);
        }
    }
}

/// What an event is about: the slot, the piece of thinking, and for a `.done` event the field with the
/// whole text.
type About = (Key, Option<(bool, u64)>, Option<&'static str>);

fn key_of(kind: &str, map: &Map<String, Value>) -> Option<About> {
    let count = |field: &str| map.get(field).and_then(Value::as_u64).unwrap_or_default();
    let content = count("content_index");
    let summary = Some((false, count("summary_index")));
    Some(match kind {
        "output_text.delta" => (Key::Text(content), None, None),
        "output_text.done" => (Key::Text(content), None, Some("text")),
        "refusal.delta" => (Key::Refusal(content), None, None),
        "refusal.done" => (Key::Refusal(content), None, Some("refusal")),
        "reasoning_summary_text.delta" => (Key::Reasoning, summary, None),
        "reasoning_summary_text.done" => (Key::Reasoning, summary, Some("text")),
        "reasoning_text.delta" => (Key::Reasoning, Some((true, content)), None),
        "reasoning_text.done" => (Key::Reasoning, Some((true, content)), Some("text")),
        "function_call_arguments.delta" | "custom_tool_call_input.delta" => (Key::Call, None, None),
        "function_call_arguments.done" => (Key::Call, None, Some("arguments")),
        "custom_tool_call_input.done" => (Key::Call, None, Some("input")),
        _ => return None,
    })
}

fn output_index(map: &Map<String, Value>) -> Result<u64, WireError> {
    let index = map.get("output_index").and_then(Value::as_u64);
    index.ok_or_else(|| WireError::shape(DIALECT, "output_index", "missing or not a whole number"))
}

fn failure(map: &Map<String, Value>) -> ProviderError {
    let error = map.get("response").and_then(|response| response.get("error"));
    error.map_or_else(|| provider_error(&Value::from("the response failed")), provider_error)
}

impl Reader {
    fn start(&mut self, map: &mut Map<String, Value>, events: &mut Vec<StreamEvent>) {
        if self.started.is_some() {
            return;
        }
        let mut response = take_object(map, "response").unwrap_or_default();
        let id = take_string(&mut response, "id").unwrap_or_default();
        let model = take_string(&mut response, "model").unwrap_or_default();
        response.shift_remove("output");
        response.shift_remove("usage");
        self.started = Some(response.clone());
        events.push(StreamEvent::Started {
            id,
            model,
            extra: Extra::rest(DIALECT, Form::default(), response),
        });
    }

    fn item(&mut self, index: u64) -> Result<&mut Item, WireError> {
        if self.items.len() >= STREAM_PARTS && !self.items.contains_key(&index) {
            return Err(WireError::TooLarge {
                dialect: DIALECT,
                what: "the number of parts",
                limit: STREAM_PARTS,
            });
        }
        Ok(self.items.entry(index).or_default())
    }

    /// The slot of an item, made when new; its item's id is told first.
    fn slot(
        &mut self,
        index: u64,
        key: Key,
        events: &mut Vec<StreamEvent>,
    ) -> Result<&mut Slot, WireError> {
        let at = PartAt { choice: 0, part: self.parts };
        let item = self.item(index)?;
        if item.slots.iter().all(|slot| slot.key != key) {
            item.slots.push(Slot { key, at, text: String::new(), piece: None, settled: false });
            if let Some(value) = item.id.take() {
                events.push(field(Owner::Item(at), "id", value));
            }
            self.parts = self.parts.saturating_add(1);
        }
        let item = self.item(index)?;
        let slot = item.slots.iter_mut().find(|slot| slot.key == key);
        slot.ok_or_else(|| WireError::shape(DIALECT, format!("output[{index}]"), "not found"))
    }

    fn added(
        &mut self,
        map: &mut Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let index = output_index(map)?;
        let mut value = map.shift_remove("item").unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            let id = fields.get("id").cloned();
            self.item(index)?.id = id;
        }
        let message = item::parse(value);
        if let Some(call) = message.parts.iter().find_map(Part::as_tool_call) {
            let at = self.slot(index, Key::Call, events)?.at;
            let (id, name) = (call.id.clone(), call.name.clone());
            events.push(StreamEvent::ToolCallStarted { at, id, name, free_form: call.free_form });
        }
        Ok(())
    }

    fn delta(
        &mut self,
        index: u64,
        key: Key,
        piece: Option<(bool, u64)>,
        text: String,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        if key == Key::Call && !self.items.get(&index).is_some_and(|item| item.has(Key::Call)) {
            return Err(WireError::shape(
                DIALECT,
                format!("output[{index}]"),
                "arguments without a call",
            ));
        }
        if text.is_empty() {
            return Ok(());
        }
        let slot = self.slot(index, key, events)?;
        if slot.settled {
            return Err(WireError::shape(
                DIALECT,
                format!("output[{index}]"),
                "more after its end",
            ));
        }
        let at = slot.at;
        let text =
            if slot.piece.is_some() && slot.piece != piece { format!("\n\n{text}") } else { text };
        slot.piece = piece;
        slot.text.push_str(&text);
        events.push(delta_event(key, at, text));
        Ok(())
    }

    fn part_done(
        &mut self,
        map: &Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let index = output_index(map)?;
        let content = map.get("content_index").and_then(Value::as_u64).unwrap_or_default();
        let part = map.get("part");
        let text = |name: &str| part.and_then(|part| part.get(name)).and_then(Value::as_str);
        match (
            part.and_then(|part| part.get("type")).and_then(Value::as_str),
            text("text"),
            text("refusal"),
        ) {
            (Some("output_text"), Some(whole), _) => {
                self.settle(index, Key::Text(content), whole, events).map(drop)
            }
            (Some("refusal"), _, Some(whole)) => {
                self.settle(index, Key::Refusal(content), whole, events).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Compares the whole text of a slot with what was streamed; what was not becomes an event.
    fn settle(
        &mut self,
        index: u64,
        key: Key,
        whole: &str,
        events: &mut Vec<StreamEvent>,
    ) -> Result<PartAt, WireError> {
        let fresh = !self.items.get(&index).is_some_and(|item| item.has(key));
        let slot = self.slot(index, key, events)?;
        let at = slot.at;
        let same = match key {
            Key::Reasoning => without_breaks(whole).eq(without_breaks(&slot.text)),
            Key::Text(_) | Key::Refusal(_) | Key::Call | Key::Unknown(_) => whole == slot.text,
        };
        if same && !fresh {
            return Ok(at);
        }
        match whole.strip_prefix(slot.text.as_str()) {
            Some(rest) if !slot.settled => {
                whole.clone_into(&mut slot.text);
                if fresh || !rest.is_empty() {
                    events.push(delta_event(key, at, rest.to_owned()));
                }
                Ok(at)
            }
            _ => Err(WireError::shape(
                DIALECT,
                format!("output[{index}]"),
                "it differs from what was streamed",
            )),
        }
    }

    /// The end of an item. Everything of it is settled, its other fields become events.
    fn item_done(
        &mut self,
        index: u64,
        value: Value,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let message = item::parse(value);
        if let Some(done) = self.items.get(&index).and_then(|item| item.done.as_ref()) {
            return if says_the_same(done, &message) {
                Ok(())
            } else {
                Err(WireError::shape(
                    DIALECT,
                    format!("output[{index}]"),
                    "it differs from what was streamed",
                ))
            };
        }
        self.item(index)?;
        let mut first = None;
        for (position, part) in (0..).zip(&message.parts) {
            let at = self.end_part(index, position, part, events)?;
            first = first.or(Some(at));
        }
        if let Some(at) = first {
            let skip_id = self.items.get(&index).is_some_and(|item| item.id.is_none());
            let fields =
                message.extra.fields().iter().filter(|(name, _)| !(skip_id && *name == "id"));
            events.extend(fields.map(|(name, value)| field(Owner::Item(at), name, value.clone())));
        }
        let item = self.item(index)?;
        if item.slots.iter().any(|slot| !slot.settled) {
            let why = "something streamed is missing at its end";
            return Err(WireError::shape(DIALECT, format!("output[{index}]"), why));
        }
        item.done = Some(message);
        Ok(())
    }

    fn end_part(
        &mut self,
        index: u64,
        position: u64,
        part: &Part,
        events: &mut Vec<StreamEvent>,
    ) -> Result<PartAt, WireError> {
        let mut fields: Vec<(String, Value)> = Vec::new();
        let mut owner: fn(PartAt) -> Owner = Owner::Item;
        let mut end = None;
        let (key, at) = match part {
            Part::Text(Text { text, extra }) => {
                let refusal = extra.has_form(DIALECT, Form::REFUSAL);
                let key = if refusal { Key::Refusal(position) } else { Key::Text(position) };
                fields.extend(extra.fields().clone());
                owner = Owner::Part;
                (key, self.settle(index, key, text, events)?)
            }
            Part::Reasoning(reasoning) => {
                fields.extend(reasoning.extra.fields().clone());
                (Key::Reasoning, self.settle(index, Key::Reasoning, &reasoning.text, events)?)
            }
            Part::ToolCall(call) => {
                if !self.items.get(&index).is_some_and(|item| item.has(Key::Call)) {
                    let at = self.slot(index, Key::Call, events)?.at;
                    let (id, name) = (call.id.clone(), call.name.clone());
                    events.push(StreamEvent::ToolCallStarted {
                        at,
                        id,
                        name,
                        free_form: call.free_form,
                    });
                }
                fields.extend(call.extra.fields().clone());
                let at = self.settle(index, Key::Call, &call.arguments, events)?;
                end = Some(StreamEvent::ToolCallEnded { at });
                (Key::Call, at)
            }
            Part::Unknown(unknown) => {
                let at = self.slot(index, Key::Unknown(position), events)?.at;
                events.push(StreamEvent::UnknownPart { at, unknown: unknown.clone() });
                (Key::Unknown(position), at)
            }
            Part::Image(_) | Part::ToolResult(_) => {
                let why = "an item no answer can hold";
                return Err(WireError::shape(DIALECT, format!("output[{index}]"), why));
            }
        };
        let id_told = self.items.get(&index).is_some_and(|item| item.id.is_none());
        let told = |name: &str| id_told && name == "id" && !matches!(part, Part::Text(_));
        let fields = fields.into_iter().filter(|(name, _)| !told(name));
        events.extend(fields.map(|(name, value)| field(owner(at), &name, value)));
        events.extend(end);
        self.slot(index, key, events)?.settled = true;
        Ok(at)
    }

    fn end(
        &mut self,
        map: &mut Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let mut last = take_object(map, "response").unwrap_or_default();
        self.start_late(&last, events);
        let output = last.entry("output").or_insert_with(|| Value::Array(Vec::new()));
        let values = output.as_array().cloned().unwrap_or_default();
        let count = u64::try_from(values.len()).unwrap_or(u64::MAX);
        for (index, value) in (0..).zip(values) {
            self.item_done(index, value, events)?;
        }
        if self.items.values().any(|item| item.done.is_none()) {
            return Err(WireError::Truncated {
                dialect: DIALECT,
                missing: stream::Reader::missing(self),
            });
        }
        if count > 0 && self.items.keys().any(|index| *index >= count) {
            return Err(WireError::shape(
                DIALECT,
                "response.output",
                "it lacks an item that was streamed",
            ));
        }
        let mut whole = response::parse(last)?;
        let messages: Vec<Message> =
            self.items.values().filter_map(|item| item.done.clone()).collect();
        let stop =
            response::stop_from(whole.extra.fields(), &messages).unwrap_or(StopReason::EndTurn);
        for (name, value) in whole.extra.fields() {
            if self.started.as_ref().and_then(|started| started.get(name)) != Some(value) {
                events.push(field(Owner::Response, name, value.clone()));
            }
        }
        if let Some(choice) = whole.choices.first_mut() {
            choice.messages = messages;
            choice.stop = Some(stop.clone());
        }
        events.push(StreamEvent::Finished { choice: 0, stop });
        events.extend(whole.usage.clone().map(StreamEvent::Usage));
        events.push(StreamEvent::Ended);
        self.whole = Some(whole);
        Ok(())
    }

    /// Servers exist that begin with the first item.
    fn start_late(&mut self, last: &Map<String, Value>, events: &mut Vec<StreamEvent>) {
        let mut map = Map::new();
        map.insert("response".to_owned(), Value::Object(last.clone()));
        self.start(&mut map, events);
    }
}

impl Item {
    fn has(&self, key: Key) -> bool {
        self.slots.iter().any(|slot| slot.key == key)
    }
}

fn field(owner: Owner, name: &str, value: Value) -> StreamEvent {
    StreamEvent::Field { dialect: DIALECT, owner, name: name.to_owned(), value }
}

fn delta_event(key: Key, at: PartAt, text: String) -> StreamEvent {
    match key {
        Key::Text(_) | Key::Unknown(_) => StreamEvent::TextDelta { at, text },
        Key::Refusal(_) => StreamEvent::RefusalDelta { at, text },
        Key::Reasoning => StreamEvent::ReasoningDelta { at, text },
        Key::Call => StreamEvent::ToolCallArguments { at, fragment: text },
    }
}

fn without_breaks(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|letter| *letter != '\n')
}

/// Two versions of one item agree in every word and call; ids, states and marks may differ.
fn says_the_same(left: &Message, right: &Message) -> bool {
    let same = |(left, right): (&Part, &Part)| match (left, right) {
        (Part::Text(left), Part::Text(right)) => left.text == right.text,
        (Part::Reasoning(left), Part::Reasoning(right)) => left.text == right.text,
        (Part::ToolCall(left), Part::ToolCall(right)) => {
            (&left.id, &left.name, &left.arguments) == (&right.id, &right.name, &right.arguments)
        }
        (left, right) => left == right,
    };
    left.parts.len() == right.parts.len() && left.parts.iter().zip(&right.parts).all(same)
}
