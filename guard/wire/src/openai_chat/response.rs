//! The whole answer: `chat.completion`.

use serde_json::{Map, Value, json};

use super::{DIALECT, message};
use crate::WireError;
use crate::conversation::{Message, Part, Role};
use crate::extra::{Extra, Form};
use crate::json::{take_array, take_filled, take_object, take_string};
use crate::openai_usage::CHAT;
use crate::response::{Choice, Response, StopReason};

pub(crate) fn parse(mut map: Map<String, Value>) -> Result<Response, WireError> {
    let Some(choices) = take_array(&mut map, "choices") else {
        return Err(WireError::shape(DIALECT, "choices", "missing or not an array"));
    };
    let choices = choices
        .into_iter()
        .enumerate()
        .map(|(index, value)| parse_choice(index, value))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Response {
        id: take_filled(&mut map, "id").unwrap_or_default(),
        model: take_filled(&mut map, "model").unwrap_or_default(),
        choices,
        usage: take_object(&mut map, "usage").map(|usage| CHAT.parse(usage)),
        extra: Extra::rest(DIALECT, Form::default(), map),
    })
}

fn parse_choice(position: usize, value: Value) -> Result<Choice, WireError> {
    let place = |field: &str| format!("choices[{position}]{field}");
    let Value::Object(mut map) = value else {
        return Err(WireError::shape(DIALECT, place(""), "expected an object"));
    };
    let Some(mut message) = take_object(&mut map, "message") else {
        return Err(WireError::shape(DIALECT, place(".message"), "missing or not an object"));
    };
    let mut form = Form::default();
    match map.get("index").and_then(Value::as_u64) {
        Some(index) if usize::try_from(index) == Ok(position) => {
            map.shift_remove("index");
        }
        _ => form = form.and(Form::BARE),
    }
    // Some servers leave the role out; an answer has only one.
    let mut message_form = Form::default();
    if !crate::json::take_exact(&mut message, "role", "assistant") {
        message_form = message_form.and(Form::BARE);
    }
    let message = message::parse_spoken(message, Role::Assistant, message_form);
    let stop = take_string(&mut map, "finish_reason").map(stop_from);
    Ok(Choice { messages: vec![message], stop, extra: Extra::rest(DIALECT, form, map) })
}

/// `finish_reason` in canonical words.
pub(super) fn stop_from(word: String) -> StopReason {
    match word.as_str() {
        "stop" => StopReason::EndTurn,
        "length" => StopReason::MaxTokens,
        "tool_calls" => StopReason::ToolUse,
        "content_filter" => StopReason::ContentFilter,
        _ => StopReason::Other(word),
    }
}

/// Canonical words as `finish_reason`.
pub(super) fn stop_to(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn | StopReason::StopSequence => "stop",
        StopReason::MaxTokens => "length",
        StopReason::ToolUse => "tool_calls",
        StopReason::ContentFilter => "content_filter",
        StopReason::Other(word) => word,
    }
}

pub(crate) fn render(response: &Response) -> Value {
    let extra = &response.extra;
    let mut map = Map::new();
    let same = extra.is_of(DIALECT);
    if !response.id.is_empty() || !same {
        map.insert("id".to_owned(), json!(response.id));
    }
    if !same {
        map.insert("object".to_owned(), json!("chat.completion"));
        map.insert("created".to_owned(), json!(0));
    }
    map.extend(extra.fields_for(DIALECT));
    if !response.model.is_empty() || !same {
        map.insert("model".to_owned(), json!(response.model));
    }
    let choices =
        response.choices.iter().enumerate().map(|(index, choice)| render_choice(index, choice));
    map.insert("choices".to_owned(), Value::Array(choices.collect()));
    if let Some(usage) = &response.usage {
        map.insert("usage".to_owned(), CHAT.render(usage));
    }
    Value::Object(map)
}

fn render_choice(position: usize, choice: &Choice) -> Value {
    let mut map = Map::new();
    if !choice.extra.has_form(DIALECT, Form::BARE) {
        map.insert("index".to_owned(), json!(position));
    }
    map.extend(choice.extra.fields_for(DIALECT));
    map.insert("message".to_owned(), render_message(&choice.messages));
    match &choice.stop {
        Some(stop) => {
            map.insert("finish_reason".to_owned(), json!(stop_to(stop)));
        }
        None if !choice.extra.is_of(DIALECT) => {
            map.insert("finish_reason".to_owned(), Value::Null);
        }
        None => {}
    }
    Value::Object(map)
}

/// One assistant message out of what other dialects spread over several.
fn render_message(messages: &[Message]) -> Value {
    let parts: Vec<&Part> = messages.iter().flat_map(|message| &message.parts).collect();
    let nothing = Extra::default();
    let extra = messages.first().map_or(&nothing, |message| &message.extra);
    let mut value = message::render_answer(extra, &parts);
    if let (true, Some(map)) = (extra.has_form(DIALECT, Form::BARE), value.as_object_mut()) {
        match extra.fields().get("role") {
            Some(role) => map.insert("role".to_owned(), role.clone()),
            None => map.shift_remove("role"),
        };
    }
    value
}
