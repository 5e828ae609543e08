//! The streamed answer of both endpoints: lines, the last with `"done": true`.

use serde_json::{Map, Value, json};

use super::{NO_TIME, message, put_usage, stop_to, take_stop, take_usage};
use crate::conversation::{Part, ToolCall};
use crate::extra::{Extra, Form};
use crate::json::{object, take_array, take_filled, take_object, take_string};
use crate::response::{StopReason, Usage};
use crate::stream::{self, Owner, PartAt, StreamEvent};
use crate::{Dialect, WireError, ndjson};

/// Reads lines.
#[derive(Debug)]
pub(crate) struct Reader {
    dialect: Dialect,
    started: bool,
    parts: u32,
    text: Option<u32>,
    reasoning: Option<u32>,
}

impl Reader {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, started: false, parts: 0, text: None, reasoning: None }
    }

    fn words(&mut self, map: &mut Map<String, Value>, field: &str, events: &mut Vec<StreamEvent>) {
        let parts = &mut self.parts;
        if let Some(text) = take_filled(map, "thinking") {
            let at = at(*self.reasoning.get_or_insert_with(|| next(parts)));
            events.push(StreamEvent::ReasoningDelta { at, text });
        }
        if let Some(text) = take_string(map, field).filter(|text| !text.is_empty()) {
            let at = at(*self.text.get_or_insert_with(|| next(parts)));
            events.push(StreamEvent::TextDelta { at, text });
        }
    }

    fn message(&mut self, mut map: Map<String, Value>, events: &mut Vec<StreamEvent>) {
        map.shift_remove("role");
        self.words(&mut map, "content", events);
        for value in take_array(&mut map, "tool_calls").unwrap_or_default() {
            let at = at(next(&mut self.parts));
            match message::parse_call(value) {
                Part::ToolCall(ToolCall { id, name, arguments, extra, .. }) => {
                    events.push(StreamEvent::ToolCallStarted { at, id, name, free_form: false });
                    if !arguments.is_empty() {
                        events.push(StreamEvent::ToolCallArguments { at, fragment: arguments });
                    }
                    self.fields(Owner::Part(at), extra.fields().clone(), events);
                    events.push(StreamEvent::ToolCallEnded { at });
                }
                Part::Unknown(unknown) => events.push(StreamEvent::UnknownPart { at, unknown }),
                Part::Text(_) | Part::Image(_) | Part::ToolResult(_) | Part::Reasoning(_) => {}
            }
        }
        self.fields(Owner::Message(0), map, events);
    }

    fn fields(&self, owner: Owner, map: Map<String, Value>, events: &mut Vec<StreamEvent>) {
        let dialect = self.dialect;
        let fields = map.into_iter().filter(|(_, value)| !value.is_null());
        events.extend(fields.map(|(name, value)| StreamEvent::Field {
            dialect,
            owner,
            name,
            value,
        }));
    }
}

impl stream::Reader for Reader {
    fn object(
        &mut self,
        mut map: Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let model = take_string(&mut map, "model").unwrap_or_default();
        let created = map.shift_remove("created_at");
        if !self.started {
            self.started = true;
            let mut fields = Map::new();
            if let Some(created) = created {
                fields.insert("created_at".to_owned(), created);
            }
            let extra = Extra::rest(self.dialect, Form::default(), fields);
            events.push(StreamEvent::Started { id: String::new(), model, extra });
        }
        if self.dialect == Dialect::OllamaChat {
            let message = take_object(&mut map, "message").unwrap_or_default();
            self.message(message, events);
        } else {
            self.words(&mut map, "response", events);
        }
        let done = map.get("done") == Some(&Value::Bool(true));
        if !done {
            map.shift_remove("done");
        }
        let stop = take_stop(&mut map);
        let usage = take_usage(self.dialect, &mut map);
        self.fields(Owner::Response, map, events);
        if done {
            events.push(StreamEvent::Finished {
                choice: 0,
                stop: stop.unwrap_or(StopReason::EndTurn),
            });
            events.extend(usage.map(StreamEvent::Usage));
            events.push(StreamEvent::Ended);
        }
        Ok(())
    }

    fn missing(&self) -> String {
        "its last line, the one with done: true".to_owned()
    }
}

fn at(part: u32) -> PartAt {
    PartAt { choice: 0, part }
}

fn next(parts: &mut u32) -> u32 {
    let part = *parts;
    *parts = parts.saturating_add(1);
    part
}

/// Writes lines. A tool call is held until it is whole, because this dialect knows no half ones.
#[derive(Debug)]
pub(crate) struct Writer {
    dialect: Dialect,
    /// `model` and `created_at`, which every line has.
    head: Map<String, Value>,
    calls: Vec<(PartAt, ToolCall)>,
    fields: Extra,
    stop: Option<StopReason>,
    usage: Option<Usage>,
}

impl Writer {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let head = object(json!({"model": "", "created_at": NO_TIME}));
        Self {
            dialect,
            head,
            calls: Vec::new(),
            fields: Extra::of(dialect),
            stop: None,
            usage: None,
        }
    }

    fn line(&self, more: Value) -> Vec<u8> {
        let mut map = self.head.clone();
        map.extend(object(more));
        ndjson::encode(&Value::Object(map))
    }

    /// A line with more of the answer, in each endpoint's own shape.
    fn said(&self, content: &str, more: Value) -> Vec<u8> {
        let more = object(more);
        if self.dialect == Dialect::OllamaChat {
            let mut message = object(json!({"role": "assistant", "content": content}));
            message.extend(more);
            return self.line(json!({"message": message, "done": false}));
        }
        let mut fields = object(json!({"response": content}));
        fields.extend(more);
        fields.insert("done".to_owned(), json!(false));
        self.line(Value::Object(fields))
    }

    fn call(&mut self, at: PartAt) -> Option<&mut ToolCall> {
        self.calls.iter_mut().find(|(of, _)| *of == at).map(|(_, call)| call)
    }

    fn end(&mut self) -> Vec<u8> {
        let mut map = self.fields.fields().clone();
        if self.dialect == Dialect::OllamaChat {
            map.insert("message".to_owned(), json!({"role": "assistant", "content": ""}));
        } else {
            map.insert("response".to_owned(), json!(""));
        }
        map.insert("done".to_owned(), json!(true));
        let stop = self.stop.as_ref().unwrap_or(&StopReason::EndTurn);
        map.insert("done_reason".to_owned(), json!(stop_to(stop)));
        if let Some(usage) = &self.usage {
            put_usage(self.dialect, &mut map, usage);
        }
        self.line(Value::Object(map))
    }
}

impl stream::Writer for Writer {
    fn write(&mut self, event: &StreamEvent) -> Vec<u8> {
        if event.part().is_some_and(|at| at.choice != 0) {
            return Vec::new();
        }
        match event {
            StreamEvent::Started { model, extra, .. } => {
                self.head.extend(extra.fields_for(self.dialect));
                self.head.insert("model".to_owned(), json!(model));
            }
            StreamEvent::TextDelta { text, .. } | StreamEvent::RefusalDelta { text, .. } => {
                return self.said(text, json!({}));
            }
            StreamEvent::ReasoningDelta { text, .. } => {
                return self.said("", json!({"thinking": text}));
            }
            StreamEvent::ToolCallStarted { at, id, name, free_form } => {
                let (id, name, extra) = (id.clone(), name.clone(), Extra::of(self.dialect));
                let call =
                    ToolCall { id, name, arguments: String::new(), free_form: *free_form, extra };
                self.calls.push((*at, call));
            }
            StreamEvent::ToolCallArguments { at, fragment } => {
                if let Some(call) = self.call(*at) {
                    call.arguments.push_str(fragment);
                }
            }
            StreamEvent::ToolCallEnded { at } => {
                let call = self.call(*at).map(|call| message::render_call(call));
                if let (Some(call), Dialect::OllamaChat) = (call, self.dialect) {
                    return self.said("", json!({"tool_calls": [call]}));
                }
            }
            StreamEvent::Field { dialect, owner, name, value } if *dialect == self.dialect => {
                match owner {
                    Owner::Part(at) => {
                        if let Some(call) = self.call(*at) {
                            call.extra.fields_mut().insert(name.clone(), value.clone());
                        }
                    }
                    Owner::Message(_) => return self.said("", json!({name: value})),
                    Owner::Response => {
                        self.fields.merge(*dialect, name, value.clone());
                    }
                    Owner::Choice(_) | Owner::Item(_) => {}
                }
            }
            StreamEvent::UnknownPart { unknown, .. } if unknown.dialect == self.dialect => {
                return self.said("", json!({"tool_calls": [unknown.value]}));
            }
            StreamEvent::Finished { choice: 0, stop } => self.stop = Some(stop.clone()),
            StreamEvent::Usage(usage) => self.usage = Some(usage.clone()),
            StreamEvent::Error(error) => return ndjson::encode(&super::error(error)),
            StreamEvent::Ended => return self.end(),
            StreamEvent::Field { .. }
            | StreamEvent::UnknownPart { .. }
            | StreamEvent::Finished { .. }
            | StreamEvent::Unknown(_) => {}
        }
        Vec::new()
    }
}
