//! The whole answer: one message object.

use serde_json::{Map, Value, json};

use super::DIALECT;
use super::block::take_blocks;
use super::request::render_answer;
use crate::WireError;
use crate::conversation::{Message, Role};
use crate::extra::{Extra, Form};
use crate::json::{object, take_count, take_filled, take_object, take_string};
use crate::openai_usage::{put_detail, take_detail};
use crate::response::{Choice, Response, StopReason, Usage};

pub(crate) fn parse(mut map: Map<String, Value>) -> Result<Response, WireError> {
    if !map.get("content").is_some_and(Value::is_array) {
        return Err(WireError::shape(DIALECT, "content", "missing or not an array"));
    }
    let mut form = Form::default();
    let parts = take_blocks(&mut map, "content", &mut form);
    let message = Message { role: Role::Assistant, parts, extra: Extra::of(DIALECT) };
    let stop = take_string(&mut map, "stop_reason").map(stop_from);
    Ok(Response {
        id: take_filled(&mut map, "id").unwrap_or_default(),
        model: take_filled(&mut map, "model").unwrap_or_default(),
        choices: vec![Choice { messages: vec![message], stop, extra: Extra::of(DIALECT) }],
        usage: take_object(&mut map, "usage").map(parse_usage),
        extra: Extra::rest(DIALECT, Form::default(), map),
    })
}

/// `stop_reason` in canonical words.
pub(super) fn stop_from(word: String) -> StopReason {
    match word.as_str() {
        "end_turn" => StopReason::EndTurn,
        "max_tokens" => StopReason::MaxTokens,
        "stop_sequence" => StopReason::StopSequence,
        "tool_use" => StopReason::ToolUse,
        "refusal" => StopReason::ContentFilter,
        _ => StopReason::Other(word),
    }
}

/// Canonical words as `stop_reason`.
pub(super) fn stop_to(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn => "end_turn",
        StopReason::MaxTokens => "max_tokens",
        StopReason::StopSequence => "stop_sequence",
        StopReason::ToolUse => "tool_use",
        StopReason::ContentFilter => "refusal",
        StopReason::Other(word) => word,
    }
}

const CREATION: &str = "cache_creation_input_tokens";
const DETAILS: &str = "output_tokens_details";

/// `usage`. `input_tokens` leaves out what went through the cache, the canonical count does not.
pub(super) fn parse_usage(mut map: Map<String, Value>) -> Usage {
    let cached = take_count(&mut map, "cache_read_input_tokens");
    let through_cache = through_cache(cached, &map);
    let mut form = Form::default();
    let plain = map.get("input_tokens").and_then(Value::as_u64);
    let input = if let Some(input) = plain.and_then(|plain| plain.checked_add(through_cache)) {
        map.shift_remove("input_tokens");
        input
    } else {
        form = form.and(Form::ABSENT);
        through_cache
    };
    let output = take_count(&mut map, "output_tokens");
    if output.is_none() {
        form = form.and(Form::BARE);
    }
    Usage {
        input,
        output: output.unwrap_or_default(),
        cached,
        reasoning: take_detail(&mut map, DETAILS, "thinking_tokens"),
        extra: Extra::rest(DIALECT, form, map),
    }
}

fn through_cache(cached: Option<u64>, map: &Map<String, Value>) -> u64 {
    let created = map.get(CREATION).and_then(Value::as_u64).unwrap_or_default();
    cached.unwrap_or_default().saturating_add(created)
}

pub(super) fn render_usage(usage: &Usage) -> Map<String, Value> {
    let mut map = usage.extra.fields_for(DIALECT);
    let through_cache = through_cache(usage.cached, &map);
    let plain = usage.input.saturating_sub(through_cache);
    if plain != 0 || !usage.extra.has_form(DIALECT, Form::ABSENT) {
        map.insert("input_tokens".to_owned(), json!(plain));
    }
    if let Some(cached) = usage.cached {
        map.insert("cache_read_input_tokens".to_owned(), json!(cached));
    }
    if usage.output != 0 || !usage.extra.has_form(DIALECT, Form::BARE) {
        map.insert("output_tokens".to_owned(), json!(usage.output));
    }
    put_detail(&mut map, DETAILS, "thinking_tokens", usage.reasoning);
    map
}

pub(crate) fn render(response: &Response) -> Value {
    let extra = &response.extra;
    let same = extra.is_of(DIALECT);
    let mut map = Map::new();
    if !response.id.is_empty() || !same {
        map.insert("id".to_owned(), json!(response.id));
    }
    if !same {
        map.extend(object(json!({"type": "message", "role": "assistant"})));
    }
    if !response.model.is_empty() || !same {
        map.insert("model".to_owned(), json!(response.model));
    }
    let choice = response.choices.first();
    map.insert("content".to_owned(), render_answer(choice.map_or(&[], |choice| &choice.messages)));
    match choice.and_then(|choice| choice.stop.as_ref()) {
        Some(stop) => map.insert("stop_reason".to_owned(), json!(stop_to(stop))),
        None if same => None,
        None => map.insert("stop_reason".to_owned(), Value::Null),
    };
    if !same {
        map.insert("stop_sequence".to_owned(), Value::Null);
    }
    match &response.usage {
        Some(usage) => map.insert("usage".to_owned(), Value::Object(render_usage(usage))),
        None if same => None,
        None => map.insert("usage".to_owned(), json!({"input_tokens": 0, "output_tokens": 0})),
    };
    Value::Object(extra.under(DIALECT, map))
}
