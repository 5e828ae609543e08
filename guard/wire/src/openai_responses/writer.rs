//! The streamed answer, written.
//!
//! Each part becomes an item of its own. Words and thinking end when another part begins or the answer
//! does, calls when they say so; calls may overlap because every event names its item.

use serde_json::{Map, Value, json};

use super::item::{self, Purpose};
use super::{DIALECT, error_event, response};
use crate::conversation::{Message, Part, Reasoning, Role, Text, ToolCall};
use crate::extra::{Extra, Form};
use crate::json::object;
use crate::response::{Choice, Response};
use crate::sse;
use crate::stream::{self, Owner, PartAt, StreamEvent};

/// Writes events.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    sequence: u64,
    response: Response,
    items: Vec<Item>,
    /// Fields of items that have not begun.
    early: Vec<(PartAt, Map<String, Value>)>,
}

#[derive(Debug)]
struct Item {
    at: PartAt,
    message: Message,
    id: Value,
    open: bool,
    /// The content or summary part has been announced.
    part_open: bool,
}

impl stream::Writer for Writer {
    fn write(&mut self, event: &StreamEvent) -> Vec<u8> {
        let mut out = Vec::new();
        if event.part().is_some_and(|at| at.choice != 0) {
            return out;
        }
        match event {
            StreamEvent::Started { id, model, extra } => self.start(id, model, extra, &mut out),
            StreamEvent::TextDelta { at, text } => self.text(*at, Form::default(), text, &mut out),
            StreamEvent::RefusalDelta { at, text } => self.text(*at, Form::REFUSAL, text, &mut out),
            StreamEvent::ReasoningDelta { at, text } => self.reasoning(*at, text, &mut out),
            StreamEvent::ToolCallStarted { at, id, name, free_form } => {
                let (id, name) = (id.clone(), name.clone());
                let extra = Extra::of(DIALECT);
                let call =
                    ToolCall { id, name, arguments: String::new(), free_form: *free_form, extra };
                self.begin(*at, "fc", Part::ToolCall(call), &mut out);
            }
            StreamEvent::ToolCallArguments { at, fragment } => {
                self.arguments(*at, fragment, &mut out);
            }
            StreamEvent::ToolCallEnded { at } => self.close_where(|item| item.at == *at, &mut out),
            StreamEvent::UnknownPart { at, unknown } if unknown.dialect == DIALECT => {
                self.begin(*at, "item", Part::Unknown(unknown.clone()), &mut out);
                self.close_where(|item| item.at == *at, &mut out);
            }
            StreamEvent::Field { dialect: DIALECT, owner, name, value } => {
                self.field(*owner, name, value);
            }
            StreamEvent::Finished { choice: 0, stop } => {
                self.close_where(|_| true, &mut out);
                let choice = Choice { stop: Some(stop.clone()), ..Choice::default() };
                self.response.choices = vec![choice];
            }
            StreamEvent::Usage(usage) => self.response.usage = Some(usage.clone()),
            StreamEvent::Error(error) => self.emit(&mut out, error_event(error)),
            StreamEvent::Ended => self.end(&mut out),
            StreamEvent::UnknownPart { .. }
            | StreamEvent::Field { .. }
            | StreamEvent::Finished { .. }
            | StreamEvent::Unknown(_) => {}
        }
        out
    }
}

impl Writer {
    fn emit(&mut self, out: &mut Vec<u8>, mut event: Value) {
        if let Some(map) = event.as_object_mut() {
            map.insert("sequence_number".to_owned(), json!(self.sequence));
        }
        self.sequence += 1;
        let name = event.get("type").and_then(Value::as_str).map(str::to_owned);
        out.extend(sse::encode(name.as_deref(), &event.to_string()));
    }

    fn start(&mut self, id: &str, model: &str, extra: &Extra, out: &mut Vec<u8>) {
        id.clone_into(&mut self.response.id);
        model.clone_into(&mut self.response.model);
        if extra.is_of(DIALECT) {
            self.response.extra = extra.clone();
        }
        let mut response = object(response::render(&self.response));
        response.insert("status".to_owned(), json!("in_progress"));
        response.extend(extra.fields_for(DIALECT));
        self.emit(out, json!({"type": "response.created", "response": response}));
        self.emit(out, json!({"type": "response.in_progress", "response": response}));
    }

    /// Opens the item of a part unless it is open.
    fn begin(&mut self, at: PartAt, prefix: &str, part: Part, out: &mut Vec<u8>) {
        if self.items.iter().any(|item| item.at == at && item.open) {
            return;
        }
        self.close_where(
            |item| item.message.parts.iter().all(|part| part.as_tool_call().is_none()),
            out,
        );
        let position = self.early.iter().position(|(early, _)| *early == at);
        let early = position.map(|position| self.early.swap_remove(position).1).unwrap_or_default();
        let index = self.items.len();
        let id = early.get("id").cloned();
        let id = id.unwrap_or_else(|| json!(format!("{prefix}_{}_{index}", self.response.id)));
        let is_text = matches!(part, Part::Text(_));
        let has_status = matches!(part, Part::Text(_) | Part::ToolCall(_));
        let message =
            Message { role: Role::Assistant, parts: vec![part], extra: Extra::of(DIALECT) };
        let mut item = Item { at, message, id: id.clone(), open: true, part_open: false };
        let fields = item.fields_mut();
        fields.insert("id".to_owned(), id);
        if is_text {
            fields.insert("type".to_owned(), json!("message"));
        }
        if has_status {
            fields.insert("status".to_owned(), json!("in_progress"));
        }
        fields.extend(early);
        let mut shown = item.render();
        if is_text {
            shown.insert("content".to_owned(), json!([]));
        }
        self.items.push(item);
        self.emit(
            out,
            json!({"type": "response.output_item.added", "output_index": index, "item": shown}),
        );
    }

    fn find(&mut self, at: PartAt) -> Option<(usize, &mut Item)> {
        self.items.iter_mut().enumerate().rev().find(|(_, item)| item.at == at && item.open)
    }

    fn text(&mut self, at: PartAt, form: Form, text: &str, out: &mut Vec<u8>) {
        let extra = Extra::rest(DIALECT, form, Map::new());
        self.begin(at, "msg", Part::Text(Text { text: String::new(), extra }), out);
        let Some((index, item)) = self.find(at) else { return };
        let (id, announce) = (item.id.clone(), !std::mem::replace(&mut item.part_open, true));
        if let Some(Part::Text(part)) = item.message.parts.first_mut() {
            part.text.push_str(text);
        }
        let refusal = form == Form::REFUSAL;
        if announce {
            let part = if refusal {
                json!({"type": "refusal", "refusal": ""})
            } else {
                json!({"type": "output_text", "text": "", "annotations": []})
            };
            self.emit(
                out,
                json!({"type": "response.content_part.added", "item_id": id, "output_index": index,
                "content_index": 0, "part": part}),
            );
        }
        if text.is_empty() {
            return;
        }
        let kind = if refusal { "response.refusal.delta" } else { "response.output_text.delta" };
        self.emit(
            out,
            json!({"type": kind, "item_id": id, "output_index": index, "content_index": 0,
            "delta": text}),
        );
    }

    fn reasoning(&mut self, at: PartAt, text: &str, out: &mut Vec<u8>) {
        let part = Reasoning { text: String::new(), extra: Extra::of(DIALECT) };
        self.begin(at, "rs", Part::Reasoning(part), out);
        let Some((index, item)) = self.find(at) else { return };
        if text.is_empty() {
            return;
        }
        let (id, announce) = (item.id.clone(), !std::mem::replace(&mut item.part_open, true));
        if let Some(Part::Reasoning(part)) = item.message.parts.first_mut() {
            part.text.push_str(text);
        }
        if announce {
            self.emit(out, json!({"type": "response.reasoning_summary_part.added", "item_id": id,
                "output_index": index, "summary_index": 0, "part": {"type": "summary_text", "text": ""}}));
        }
        self.emit(
            out,
            json!({"type": "response.reasoning_summary_text.delta", "item_id": id,
            "output_index": index, "summary_index": 0, "delta": text}),
        );
    }

    fn arguments(&mut self, at: PartAt, fragment: &str, out: &mut Vec<u8>) {
        let Some((index, item)) = self.find(at) else { return };
        let id = item.id.clone();
        let Some(Part::ToolCall(call)) = item.message.parts.first_mut() else { return };
        call.arguments.push_str(fragment);
        let kind = if call.free_form {
            "response.custom_tool_call_input.delta"
        } else {
            "response.function_call_arguments.delta"
        };
        self.emit(
            out,
            json!({"type": kind, "item_id": id, "output_index": index, "delta": fragment}),
        );
    }

    fn field(&mut self, owner: Owner, name: &str, value: &Value) {
        match owner {
            Owner::Response => {
                let extra = &mut self.response.extra;
                if !extra.is_of(DIALECT) {
                    *extra = Extra::of(DIALECT);
                }
                extra.fields_mut().insert(name.to_owned(), value.clone());
            }
            Owner::Part(at) => {
                if let Some((_, item)) = self.find(at)
                    && let Some(Part::Text(text)) = item.message.parts.first_mut()
                {
                    text.extra.fields_mut().insert(name.to_owned(), value.clone());
                }
            }
            Owner::Item(at) => match self.find(at) {
                // A client has the id by now.
                Some(_) if name == "id" => {}
                Some((_, item)) => {
                    item.fields_mut().insert(name.to_owned(), value.clone());
                    item.mark_lists();
                }
                None => match self.early.iter_mut().find(|(early, _)| *early == at) {
                    Some((_, fields)) => {
                        fields.insert(name.to_owned(), value.clone());
                    }
                    None => self.early.push((at, object(json!({name: value})))),
                },
            },
            Owner::Choice(_) | Owner::Message(_) => {}
        }
    }

    fn close_where(&mut self, which: impl Fn(&Item) -> bool, out: &mut Vec<u8>) {
        for index in 0..self.items.len() {
            let Some(item) = self.items.get_mut(index) else { return };
            if item.open && which(item) {
                item.open = false;
                item.complete();
                for event in item.last_events(index) {
                    self.emit(out, event);
                }
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.close_where(|_| true, out);
        if self.response.choices.is_empty() {
            self.response.choices.push(Choice::default());
        }
        let messages = self.items.iter().map(|item| item.message.clone()).collect();
        if let Some(choice) = self.response.choices.first_mut() {
            choice.messages = messages;
        }
        let response = response::render(&self.response);
        let status = response.get("status").and_then(Value::as_str);
        let kind =
            if status == Some("incomplete") { "response.incomplete" } else { "response.completed" };
        self.emit(out, json!({"type": kind, "response": response}));
    }
}

impl Item {
    /// The item's own fields: a message keeps them beside its parts, other items are their part.
    fn fields_mut(&mut self) -> &mut Map<String, Value> {
        let extra = match self.message.parts.first_mut() {
            Some(Part::ToolCall(call)) => &mut call.extra,
            Some(Part::Reasoning(reasoning)) => &mut reasoning.extra,
            Some(Part::Text(_) | Part::Image(_) | Part::ToolResult(_) | Part::Unknown(_))
            | None => &mut self.message.extra,
        };
        extra.fields_mut()
    }

    /// Thinking whose lists came as they are.
    fn mark_lists(&mut self) {
        if let Some(Part::Reasoning(reasoning)) = self.message.parts.first_mut()
            && reasoning.extra.fields().keys().any(|name| name == "summary")
        {
            reasoning.extra.mark(Form::LIST);
        }
    }

    /// Fields a whole item has and nobody has given.
    fn complete(&mut self) {
        if let Some(Part::Text(text)) = self.message.parts.first_mut()
            && !text.extra.has_form(DIALECT, Form::REFUSAL)
        {
            text.extra.fields_mut().entry("annotations").or_insert_with(|| json!([]));
        }
        if let Some(status) = self.fields_mut().get_mut("status")
            && *status == json!("in_progress")
        {
            *status = json!("completed");
        }
    }

    fn render(&self) -> Map<String, Value> {
        let mut items = Vec::new();
        item::render(&self.message, Purpose::Answer(""), &mut items);
        items.pop().map(object).unwrap_or_default()
    }

    /// The events that end the item.
    fn last_events(&self, index: usize) -> Vec<Value> {
        let whole = self.render();
        let id = &self.id;
        let mut events = Vec::new();
        match self.message.parts.first() {
            Some(Part::Text(text)) => {
                let part = whole.get("content").and_then(|content| content.get(0)).cloned();
                let refusal = text.extra.has_form(DIALECT, Form::REFUSAL);
                events.push(if refusal {
                    json!({"type": "response.refusal.done", "item_id": id, "output_index": index,
                        "content_index": 0, "refusal": text.text})
                } else {
                    json!({"type": "response.output_text.done", "item_id": id, "output_index": index,
                        "content_index": 0, "text": text.text, "logprobs": []})
                });
                events.push(json!({"type": "response.content_part.done", "item_id": id, "output_index": index,
                    "content_index": 0, "part": part}));
            }
            Some(Part::Reasoning(reasoning)) if self.part_open => {
                let text = &reasoning.text;
                events.push(json!({"type": "response.reasoning_summary_text.done", "item_id": id,
                    "output_index": index, "summary_index": 0, "text": text}));
                events.push(json!({"type": "response.reasoning_summary_part.done", "item_id": id,
                    "output_index": index, "summary_index": 0, "part": {"type": "summary_text", "text": text}}));
            }
            Some(Part::ToolCall(call)) => {
                let (kind, field) = if call.free_form {
                    ("response.custom_tool_call_input.done", "input")
                } else {
                    ("response.function_call_arguments.done", "arguments")
                };
                events.push(json!({"type": kind, "item_id": id, "output_index": index, field: call.arguments}));
            }
            _ => {}
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": whole}),
        );
        events
    }
}
