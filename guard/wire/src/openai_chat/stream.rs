//! The streamed answer: `chat.completion.chunk` events and `data: [DONE]`.
//!
//! Whole means `[DONE]` and a `finish_reason` for every choice that appeared, and at least one choice.

use serde_json::{Map, Value, json};

use super::DIALECT;
use super::response::{stop_from, stop_to};
use crate::conversation::{Part, Text};
use crate::extra::{Extra, Form};
use crate::json::{object, take_array, take_exact, take_filled, take_object, take_string};
use crate::openai_usage::CHAT;
use crate::response::Response;
use crate::stream::{Owner, PartAt, StreamEvent};
use crate::{WireError, limits, sse, stream};

/// Reads chunks.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    started: bool,
    choices: Vec<ChoiceState>,
}

#[derive(Debug, Default)]
struct ChoiceState {
    parts: u32,
    text: Option<u32>,
    refusal: Option<u32>,
    reasoning: Option<u32>,
    /// Thinking came as `reasoning` rather than `reasoning_content`.
    alternate: bool,
    calls: Vec<CallState>,
    stopped: bool,
}

#[derive(Debug, Default)]
struct CallState {
    index: Option<u64>,
    id: String,
    name: String,
    /// It comes as `function_call`.
    legacy: bool,
    part: Option<u32>,
    open: bool,
    /// Arguments that came before the name.
    early: String,
}

impl stream::Reader for Reader {
    fn object(
        &mut self,
        mut map: Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let choices = take_array(&mut map, "choices").unwrap_or_default();
        let usage = take_object(&mut map, "usage");
        if !self.started {
            self.started = true;
            let id = take_string(&mut map, "id").unwrap_or_default();
            let model = take_string(&mut map, "model").unwrap_or_default();
            take_exact(&mut map, "object", "chat.completion.chunk");
            map.retain(|_, value| !value.is_null());
            events.push(StreamEvent::Started {
                id,
                model,
                extra: Extra::rest(DIALECT, Form::default(), map),
            });
        }
        for (position, choice) in choices.into_iter().enumerate() {
            let Value::Object(choice) = choice else {
                let place = format!("choices[{position}]");
                return Err(WireError::shape(DIALECT, place, "expected an object"));
            };
            self.choice(choice, events)?;
        }
        if let Some(usage) = usage {
            events.push(StreamEvent::Usage(CHAT.parse(usage)));
        }
        Ok(())
    }

    fn done(&mut self, events: &mut Vec<StreamEvent>) -> Result<(), WireError> {
        if self.choices.is_empty() || self.choices.iter().any(|choice| !choice.stopped) {
            return Err(WireError::Truncated {
                dialect: DIALECT,
                missing: "a finish_reason for every choice".to_owned(),
            });
        }
        for (index, choice) in (0..).zip(&mut self.choices) {
            choice.end_calls(index, events);
        }
        events.push(StreamEvent::Ended);
        Ok(())
    }

    fn missing(&self) -> String {
        if self.choices.iter().all(|choice| choice.stopped) && !self.choices.is_empty() {
            "its end marker [DONE]".to_owned()
        } else {
            "its finish_reason and its end marker [DONE]".to_owned()
        }
    }

    fn shape(&self, response: &mut Response) {
        for (choice, state) in response.choices.iter_mut().zip(&self.choices) {
            let Some(message) = choice.messages.first_mut() else { continue };
            for (index, part) in (0..).zip(&mut message.parts) {
                if let Part::Text(Text { extra, .. }) = part
                    && extra.has_form(DIALECT, Form::REFUSAL)
                {
                    extra.mark(Form::ALTERNATE);
                }
                let legacy = state.calls.iter().any(|call| call.legacy && call.part == Some(index));
                if let (Part::ToolCall(call), true) = (&mut *part, legacy) {
                    call.extra.mark(Form::LEGACY);
                }
                if let Part::Reasoning(reasoning) = part
                    && state.alternate
                {
                    reasoning.extra.mark(Form::ALTERNATE);
                }
            }
        }
    }
}

impl Reader {
    fn choice(
        &mut self,
        mut map: Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let index = map.get("index").and_then(Value::as_u64).unwrap_or_default();
        map.shift_remove("index");
        let limit = limits::STREAM_CHOICES;
        let position = usize::try_from(index).unwrap_or(usize::MAX);
        if position >= limit {
            return Err(WireError::TooLarge {
                dialect: DIALECT,
                what: "the number of choices",
                limit,
            });
        }
        while self.choices.len() <= position {
            self.choices.push(ChoiceState::default());
        }
        let Some(state) = self.choices.get_mut(position) else { return Ok(()) };
        let choice = u32::try_from(index).unwrap_or_default();
        if let Some(delta) = take_object(&mut map, "delta") {
            state.delta(choice, delta, events)?;
        }
        let stop = take_string(&mut map, "finish_reason").filter(|word| !word.is_empty());
        for (name, value) in map {
            if !value.is_null() {
                events.push(StreamEvent::Field {
                    dialect: DIALECT,
                    owner: Owner::Choice(choice),
                    name,
                    value,
                });
            }
        }
        if let Some(word) = stop {
            state.stopped = true;
            state.end_calls(choice, events);
            events.push(StreamEvent::Finished { choice, stop: stop_from(word) });
        }
        Ok(())
    }
}

impl ChoiceState {
    fn delta(
        &mut self,
        choice: u32,
        mut map: Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        map.shift_remove("role");
        let parts = &mut self.parts;
        for (field, alternate) in [("reasoning_content", false), ("reasoning", true)] {
            let Some(text) = take_string(&mut map, field).filter(|text| !text.is_empty()) else {
                continue;
            };
            // A server that sends both sends the same words twice.
            if self.reasoning.is_some() && self.alternate != alternate {
                continue;
            }
            self.alternate = alternate;
            let at = PartAt { choice, part: *self.reasoning.get_or_insert_with(|| next(parts)) };
            events.push(StreamEvent::ReasoningDelta { at, text });
        }
        if let Some(text) = take_string(&mut map, "content").filter(|text| !text.is_empty()) {
            let at = PartAt { choice, part: *self.text.get_or_insert_with(|| next(parts)) };
            events.push(StreamEvent::TextDelta { at, text });
        }
        if let Some(text) = take_string(&mut map, "refusal").filter(|text| !text.is_empty()) {
            let at = PartAt { choice, part: *self.refusal.get_or_insert_with(|| next(parts)) };
            events.push(StreamEvent::RefusalDelta { at, text });
        }
        if let Some(function) = take_object(&mut map, "function_call") {
            let call = object(json!({"function": function}));
            self.call(choice, call, true, events)?;
        }
        for (position, call) in
            take_array(&mut map, "tool_calls").unwrap_or_default().into_iter().enumerate()
        {
            let Value::Object(call) = call else {
                let place = format!("choices[{choice}].delta.tool_calls[{position}]");
                return Err(WireError::shape(DIALECT, place, "expected an object"));
            };
            self.call(choice, call, false, events)?;
        }
        for (name, value) in map {
            if !value.is_null() {
                events.push(StreamEvent::Field {
                    dialect: DIALECT,
                    owner: Owner::Message(choice),
                    name,
                    value,
                });
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        choice: u32,
        mut map: Map<String, Value>,
        legacy: bool,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError> {
        let index = map.get("index").and_then(Value::as_u64);
        map.shift_remove("index");
        let custom = map.get("type").and_then(Value::as_str) == Some("custom");
        let free_form = custom || (map.contains_key("custom") && !map.contains_key("function"));
        map.shift_remove("type");
        let id = take_string(&mut map, "id").unwrap_or_default();
        let field = if free_form { "custom" } else { "function" };
        let mut inner = take_object(&mut map, field).unwrap_or_default();
        let name = take_filled(&mut inner, "name");
        let fragment = take_fragment(&mut inner, if free_form { "input" } else { "arguments" });
        let parts = &mut self.parts;
        within(self.calls.len(), limits::STREAM_PARTS, "the number of parts")?;
        let call = if legacy {
            find_legacy(&mut self.calls)
        } else {
            find_call(&mut self.calls, index, &id, name.is_some())
        };
        let Some(call) = call else { return Ok(()) };
        let part = match (call.part, name) {
            (Some(_), Some(name)) if name != call.name => {
                let place = format!("choices[{choice}].delta.tool_calls");
                let why = format!("a call to {:?} changes its name to {name:?}", call.name);
                return Err(WireError::shape(DIALECT, place, why));
            }
            (Some(part), _) => part,
            (None, None) => {
                call.early.push_str(&fragment);
                return within(
                    call.early.len(),
                    limits::MESSAGE_BYTES,
                    "a streamed answer in bytes",
                );
            }
            (None, Some(name)) => {
                let part = next(parts);
                call.part = Some(part);
                call.name.clone_from(&name);
                let at = PartAt { choice, part };
                let id = call.id.clone();
                events.push(StreamEvent::ToolCallStarted { at, id, name, free_form });
                let early = std::mem::take(&mut call.early);
                if !early.is_empty() {
                    events.push(StreamEvent::ToolCallArguments { at, fragment: early });
                }
                part
            }
        };
        let at = PartAt { choice, part };
        if !fragment.is_empty() {
            events.push(StreamEvent::ToolCallArguments { at, fragment });
        }
        let owner = Owner::Part(at);
        let fields = map.into_iter().filter(|(_, value)| !value.is_null());
        events.extend(fields.map(|(name, value)| StreamEvent::Field {
            dialect: DIALECT,
            owner,
            name,
            value,
        }));
        Ok(())
    }

    fn end_calls(&mut self, choice: u32, events: &mut Vec<StreamEvent>) {
        for call in &mut self.calls {
            if let (true, Some(part)) = (call.open, call.part) {
                call.open = false;
                events.push(StreamEvent::ToolCallEnded { at: PartAt { choice, part } });
            }
        }
    }
}

fn next(parts: &mut u32) -> u32 {
    let part = *parts;
    *parts = parts.saturating_add(1);
    part
}

fn within(count: usize, limit: usize, what: &'static str) -> Result<(), WireError> {
    if count <= limit { Ok(()) } else { Err(WireError::TooLarge { dialect: DIALECT, what, limit }) }
}

/// Takes a piece of arguments; some servers send them whole, as an object.
fn take_fragment(inner: &mut Map<String, Value>, field: &str) -> String {
    match take_string(inner, field) {
        Some(text) => text,
        None if inner.get(field).is_some_and(Value::is_object) => {
            inner.shift_remove(field).unwrap_or_default().to_string()
        }
        None => String::new(),
    }
}

/// The one call of the old `function_call` field.
fn find_legacy(calls: &mut Vec<CallState>) -> Option<&mut CallState> {
    let position = calls.iter().position(|call| call.legacy).unwrap_or_else(|| {
        calls.push(CallState { legacy: true, open: true, ..CallState::default() });
        calls.len().saturating_sub(1)
    });
    calls.get_mut(position)
}

/// The call a delta continues, or a new one.
///
/// The standard counts calls by `index`. Servers exist that leave it out or send 0 for every call and
/// tell calls apart by id, and others that invent an id for each delta of one call: an id starts a new
/// call at a known index only together with a name.
fn find_call<'a>(
    calls: &'a mut Vec<CallState>,
    index: Option<u64>,
    id: &str,
    named: bool,
) -> Option<&'a mut CallState> {
    let found = match index {
        Some(_) => calls.iter().rposition(|call| call.index == index && !call.legacy),
        None if id.is_empty() => calls.len().checked_sub(1),
        None => calls.iter().rposition(|call| call.id == id),
    };
    let found = found.filter(|position| {
        let other = |call: &CallState| !id.is_empty() && call.id != id && call.part.is_some();
        let same = !named || !calls.get(*position).is_some_and(other);
        same && (index.is_some() || !id.is_empty() || !named)
    });
    let position = found.unwrap_or_else(|| {
        calls.push(CallState { index, id: id.to_owned(), open: true, ..CallState::default() });
        calls.len().saturating_sub(1)
    });
    let call = calls.get_mut(position)?;
    if call.id.is_empty() {
        id.clone_into(&mut call.id);
    }
    Some(call)
}

/// Writes chunks.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Fields of every chunk: `id`, `created`, `model` and what else came with the start.
    head: Map<String, Value>,
    calls: Vec<PartAt>,
}

impl stream::Writer for Writer {
    fn write(&mut self, event: &StreamEvent) -> Vec<u8> {
        match event {
            StreamEvent::Started { id, model, extra } => {
                self.head.insert("id".to_owned(), json!(id));
                self.head.insert("object".to_owned(), json!("chat.completion.chunk"));
                self.head.insert("created".to_owned(), json!(0));
                self.head.extend(extra.fields_for(DIALECT));
                self.head.insert("model".to_owned(), json!(model));
                self.delta(0, json!({"role": "assistant", "content": ""}))
            }
            StreamEvent::TextDelta { at, text } => self.delta(at.choice, json!({"content": text})),
            StreamEvent::RefusalDelta { at, text } => {
                self.delta(at.choice, json!({"refusal": text}))
            }
            StreamEvent::ReasoningDelta { at, text } => {
                self.delta(at.choice, json!({"reasoning_content": text}))
            }
            StreamEvent::ToolCallStarted { at, id, name, free_form } => {
                self.calls.push(*at);
                let call = if *free_form {
                    json!({"id": id, "type": "custom", "custom": {"name": name, "input": ""}})
                } else {
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}})
                };
                self.call(*at, call)
            }
            StreamEvent::ToolCallArguments { at, fragment } => {
                self.call(*at, json!({"function": {"arguments": fragment}}))
            }
            StreamEvent::Field { dialect: DIALECT, owner, name, value } => {
                self.field(*owner, name, value)
            }
            StreamEvent::Finished { choice, stop } => self.chunk(
                json!([{"index": choice, "delta": {}, "finish_reason": stop_to(stop)}]),
                None,
            ),
            StreamEvent::Usage(usage) => self.chunk(json!([]), Some(CHAT.render(usage))),
            StreamEvent::Error(error) => sse::encode(None, &super::error(error).to_string()),
            StreamEvent::Field { .. }
            | StreamEvent::UnknownPart { .. }
            | StreamEvent::Unknown(_)
            | StreamEvent::ToolCallEnded { .. } => Vec::new(),
            StreamEvent::Ended => sse::encode(None, "[DONE]"),
        }
    }
}

impl Writer {
    fn field(&self, owner: Owner, name: &str, value: &Value) -> Vec<u8> {
        let mut fields = Map::new();
        fields.insert(name.to_owned(), value.clone());
        match owner {
            Owner::Message(choice) => self.delta(choice, Value::Object(fields)),
            Owner::Part(at) if self.calls.contains(&at) => self.call(at, Value::Object(fields)),
            Owner::Choice(_) | Owner::Response | Owner::Part(_) | Owner::Item(_) => Vec::new(),
        }
    }

    fn call(&self, at: PartAt, mut call: Value) -> Vec<u8> {
        let of_choice = self.calls.iter().filter(|call| call.choice == at.choice);
        let index = of_choice.clone().position(|call| *call == at).unwrap_or_default();
        if let Some(map) = call.as_object_mut() {
            map.insert("index".to_owned(), json!(index));
        }
        self.delta(at.choice, json!({"tool_calls": [call]}))
    }

    fn delta(&self, choice: u32, delta: Value) -> Vec<u8> {
        let Value::Object(delta) = delta else { return Vec::new() };
        self.chunk(json!([{"index": choice, "delta": delta, "finish_reason": null}]), None)
    }

    fn chunk(&self, choices: Value, usage: Option<Value>) -> Vec<u8> {
        let mut map = self.head.clone();
        map.insert("choices".to_owned(), choices);
        if let Some(usage) = usage {
            map.insert("usage".to_owned(), usage);
        }
        sse::encode(None, &Value::Object(map).to_string())
    }
}
