//! The streamed answer, written.
//!
//! Blocks never overlap here although parts may: a part that begins while a tool call is open waits
//! until the call has ended. Usage belongs to the first and the last event, so both are held until it
//! is known: `message_start` until the next event, `message_delta` until usage or the end.

use serde_json::{Map, Value, json};

use super::DIALECT;
use super::response::{render_usage, stop_to};
use crate::json::object;
use crate::response::Usage;
use crate::stream::{self, Owner, PartAt, StreamEvent};
use crate::{StopReason, sse};

/// Writes events.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// The held `message` of `message_start`.
    head: Option<Map<String, Value>>,
    /// Blocks begun so far.
    count: u64,
    open: Option<Open>,
    /// Events of parts that wait for the open tool call to end.
    waiting: Vec<StreamEvent>,
    stop: Option<StopReason>,
    /// Fields of the answer for `message_delta`.
    fields: Map<String, Value>,
    usage: Option<Usage>,
}

#[derive(Debug)]
struct Open {
    at: PartAt,
    index: u64,
    kind: &'static str,
    /// The held `content_block`, which later fields may join.
    start: Option<Map<String, Value>>,
    /// Arguments of a free-form call, which must become JSON as a whole.
    free_form: Option<String>,
}

impl stream::Writer for Writer {
    fn write(&mut self, event: &StreamEvent) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(mut head) = self.head.take() {
            if let StreamEvent::Usage(usage) = event {
                head.insert("usage".to_owned(), Value::Object(render_usage(usage)));
                emit(&mut out, &json!({"type": "message_start", "message": head}));
                return out;
            }
            emit(&mut out, &json!({"type": "message_start", "message": head}));
        }
        self.route(event, &mut out);
        out
    }
}

impl Writer {
    fn route(&mut self, event: &StreamEvent, out: &mut Vec<u8>) {
        if let Some(at) = event.part() {
            if at.choice == 0 {
                self.part(at, event, out);
            }
            return;
        }
        match event {
            StreamEvent::Started { id, model, extra } => {
                let head = object(json!({
                    "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
                    "stop_reason": null, "stop_sequence": null,
                    "usage": {"input_tokens": 0, "output_tokens": 0},
                }));
                let mut whole = head;
                whole.extend(extra.fields_for(DIALECT));
                self.head = Some(whole);
            }
            StreamEvent::Finished { choice: 0, stop } => self.stop = Some(stop.clone()),
            StreamEvent::Usage(usage) => {
                self.usage = Some(usage.clone());
                if self.stop.is_some() {
                    self.finish(out);
                }
            }
            StreamEvent::Field { dialect: DIALECT, owner: Owner::Response, name, value } => {
                self.fields.insert(name.clone(), value.clone());
            }
            StreamEvent::Error(error) => emit(out, &super::error(error)),
            StreamEvent::Ended => {
                self.finish(out);
                emit(out, &json!({"type": "message_stop"}));
            }
            StreamEvent::Finished { .. }
            | StreamEvent::Unknown(_)
            | StreamEvent::Field { .. }
            | StreamEvent::TextDelta { .. }
            | StreamEvent::RefusalDelta { .. }
            | StreamEvent::ReasoningDelta { .. }
            | StreamEvent::ToolCallStarted { .. }
            | StreamEvent::ToolCallArguments { .. }
            | StreamEvent::ToolCallEnded { .. }
            | StreamEvent::UnknownPart { .. } => {}
        }
    }

    /// An event of a part: written now, or later when a tool call of another part is open.
    fn part(&mut self, at: PartAt, event: &StreamEvent, out: &mut Vec<u8>) {
        let blocked =
            self.open.as_ref().is_some_and(|open| open.kind == "tool_use" && open.at != at);
        if blocked {
            self.waiting.push(event.clone());
            return;
        }
        self.part_now(at, event, out);
        if matches!(event, StreamEvent::ToolCallEnded { .. }) {
            for event in std::mem::take(&mut self.waiting) {
                if let Some(at) = event.part() {
                    self.part(at, &event, out);
                }
            }
        }
    }

    fn part_now(&mut self, at: PartAt, event: &StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::TextDelta { text, .. } | StreamEvent::RefusalDelta { text, .. } => {
                self.begin(at, "text", || json!({"type": "text", "text": ""}), out);
                self.delta(text, &json!({"type": "text_delta", "text": text}), out);
            }
            StreamEvent::ReasoningDelta { text, .. } => {
                self.begin(
                    at,
                    "thinking",
                    || json!({"type": "thinking", "thinking": "", "signature": ""}),
                    out,
                );
                self.delta(text, &json!({"type": "thinking_delta", "thinking": text}), out);
            }
            StreamEvent::ToolCallStarted { id, name, free_form, .. } => {
                let block = || json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin(at, "tool_use", block, out);
                if let (true, Some(open)) = (*free_form, &mut self.open) {
                    open.free_form = Some(String::new());
                }
            }
            StreamEvent::ToolCallArguments { fragment, .. } => match &mut self.open {
                Some(Open { free_form: Some(text), .. }) => text.push_str(fragment),
                _ => self.delta(
                    fragment,
                    &json!({"type": "input_json_delta", "partial_json": fragment}),
                    out,
                ),
            },
            StreamEvent::ToolCallEnded { .. } => {
                let text = self.open.as_mut().and_then(|open| open.free_form.take());
                if let Some(text) = text {
                    let input = json!({"input": text}).to_string();
                    self.delta(
                        &input,
                        &json!({"type": "input_json_delta", "partial_json": input}),
                        out,
                    );
                }
                self.close(out);
            }
            StreamEvent::Field { dialect: DIALECT, name, value, .. } => {
                self.field(at, name, value, out);
            }
            StreamEvent::UnknownPart { unknown, .. } if unknown.dialect == DIALECT => {
                self.begin(at, "unknown", || unknown.value.clone(), out);
                self.close(out);
            }
            StreamEvent::UnknownPart { .. }
            | StreamEvent::Field { .. }
            | StreamEvent::Started { .. }
            | StreamEvent::Finished { .. }
            | StreamEvent::Usage(_)
            | StreamEvent::Error(_)
            | StreamEvent::Unknown(_)
            | StreamEvent::Ended => {}
        }
    }

    /// Opens the block of a part unless it is open, and closes the one before it.
    fn begin(
        &mut self,
        at: PartAt,
        kind: &'static str,
        block: impl FnOnce() -> Value,
        out: &mut Vec<u8>,
    ) {
        if self.open.as_ref().is_some_and(|open| open.at == at) {
            return;
        }
        self.close(out);
        let index = self.count;
        self.count += 1;
        self.open = Some(Open { at, index, kind, start: Some(object(block())), free_form: None });
    }

    fn write_start(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        let open = self.open.as_mut()?;
        if let Some(block) = open.start.take() {
            emit(
                out,
                &json!({"type": "content_block_start", "index": open.index, "content_block": block}),
            );
        }
        Some(open.index)
    }

    fn delta(&mut self, text: &str, delta: &Value, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        if let Some(index) = self.write_start(out) {
            emit(out, &json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
    }

    fn field(&mut self, at: PartAt, name: &str, value: &Value, out: &mut Vec<u8>) {
        // Encrypted thinking has no words: its fields are all there is of the block.
        self.begin(at, "thinking", || json!({}), out);
        let Some(open) = &mut self.open else { return };
        let delta = match (open.kind, name) {
            ("thinking", "signature") => json!({"type": "signature_delta", "signature": value}),
            ("text", "citations") => {
                let citations = value.as_array().cloned().unwrap_or_default();
                for citation in citations {
                    self.delta(
                        "citation",
                        &json!({"type": "citations_delta", "citation": citation}),
                        out,
                    );
                }
                return;
            }
            _ => {
                if let Some(start) = &mut open.start {
                    start.insert(name.to_owned(), value.clone());
                }
                return;
            }
        };
        self.delta("field", &delta, out);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if let Some(index) = self.write_start(out) {
            emit(out, &json!({"type": "content_block_stop", "index": index}));
        }
        self.open = None;
    }

    /// `message_delta`, once.
    fn finish(&mut self, out: &mut Vec<u8>) {
        let Some(stop) = self.stop.take() else { return };
        self.close(out);
        let mut delta = object(json!({"stop_reason": stop_to(&stop), "stop_sequence": null}));
        delta.extend(std::mem::take(&mut self.fields));
        let usage = match &self.usage {
            Some(usage) => Value::Object(render_usage(usage)),
            None => json!({"output_tokens": 0}),
        };
        emit(out, &json!({"type": "message_delta", "delta": delta, "usage": usage}));
    }
}

fn emit(out: &mut Vec<u8>, value: &Value) {
    let name = value.get("type").and_then(Value::as_str).map(str::to_owned);
    out.extend(sse::encode(name.as_deref(), &value.to_string()));
}
