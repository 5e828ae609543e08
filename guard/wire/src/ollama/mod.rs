//! Ollama's own API.
//!
//! Source: Ollama `docs/api.md` and `api/types.go`, `POST /api/chat` and `POST /api/generate`. Streams
//! are one JSON object a line; the one with `"done": true` is the end and carries the counts. Tool
//! calls come whole, often without an id. Images are base64 without a media type.

pub(crate) mod chat;
pub(crate) mod generate;
mod message;
mod options;
pub(crate) mod stream;

use serde_json::{Map, Value, json};

use crate::extra::{Extra, Form};
use crate::json::{take_count, take_string};
use crate::response::{StopReason, Usage};
use crate::{Dialect, ProviderError, WireError};

/// An error body and the line that ends a stream with one.
pub(crate) fn error(error: &ProviderError) -> Value {
    json!({"error": error.message})
}

/// Takes `done_reason`.
fn take_stop(map: &mut Map<String, Value>) -> Option<StopReason> {
    let word = take_string(map, "done_reason")?;
    Some(match word.as_str() {
        "stop" => StopReason::EndTurn,
        "length" => StopReason::MaxTokens,
        _ => StopReason::Other(word),
    })
}

fn stop_to(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => "stop",
        StopReason::MaxTokens => "length",
        StopReason::ContentFilter => "content_filter",
        StopReason::Other(word) => word,
    }
}

/// Takes `prompt_eval_count` and `eval_count`; the durations beside them stay.
fn take_usage(dialect: Dialect, map: &mut Map<String, Value>) -> Option<Usage> {
    let input = take_count(map, "prompt_eval_count");
    let output = take_count(map, "eval_count");
    let mut form = Form::default();
    if input.is_none() {
        form = form.and(Form::ABSENT);
    }
    if output.is_none() {
        form = form.and(Form::BARE);
    }
    (input.is_some() || output.is_some()).then(|| Usage {
        input: input.unwrap_or_default(),
        output: output.unwrap_or_default(),
        cached: None,
        reasoning: None,
        extra: Extra::rest(dialect, form, Map::new()),
    })
}

fn put_usage(dialect: Dialect, map: &mut Map<String, Value>, usage: &Usage) {
    if usage.input != 0 || !usage.extra.has_form(dialect, Form::ABSENT) {
        map.insert("prompt_eval_count".to_owned(), json!(usage.input));
    }
    if usage.output != 0 || !usage.extra.has_form(dialect, Form::BARE) {
        map.insert("eval_count".to_owned(), json!(usage.output));
    }
}

/// What a client must find as a time; the renderer is pure and has no clock.
const NO_TIME: &str = "1970-01-01T00:00:00Z";

/// A body that says of itself that it is not the end.
fn refuse_undone(dialect: Dialect, map: &Map<String, Value>) -> Result<(), WireError> {
    if map.get("done") == Some(&Value::Bool(false)) {
        return Err(WireError::Truncated { dialect, missing: "done: true".to_owned() });
    }
    Ok(())
}
