//! The whole answer: one `response` object.

use serde_json::{Map, Value, json};

use super::DIALECT;
use super::item::{self, Purpose};
use crate::WireError;
use crate::conversation::Message;
use crate::extra::{Extra, Form};
use crate::json::{object, take_array, take_filled, take_object};
use crate::openai_usage::RESPONSES;
use crate::response::{Choice, Response, StopReason};

pub(crate) fn parse(mut map: Map<String, Value>) -> Result<Response, WireError> {
    let Some(items) = take_array(&mut map, "output") else {
        return Err(WireError::shape(DIALECT, "output", "missing or not an array"));
    };
    let messages: Vec<Message> = items.into_iter().map(item::parse).collect();
    let stop = stop_from(&map, &messages);
    Ok(Response {
        id: take_filled(&mut map, "id").unwrap_or_default(),
        model: take_filled(&mut map, "model").unwrap_or_default(),
        choices: vec![Choice { messages, stop, extra: Extra::of(DIALECT) }],
        usage: take_object(&mut map, "usage").map(|usage| RESPONSES.parse(usage)),
        extra: Extra::rest(DIALECT, Form::default(), map),
    })
}

/// Why generation ended, from `status`, `incomplete_details.reason` and whether there are calls.
pub(super) fn stop_from(map: &Map<String, Value>, messages: &[Message]) -> Option<StopReason> {
    let reason = map
        .get("incomplete_details")
        .and_then(|details| details.get("reason"))
        .and_then(Value::as_str);
    let calls = messages
        .iter()
        .flat_map(|message| &message.parts)
        .any(|part| part.as_tool_call().is_some());
    Some(match (map.get("status").and_then(Value::as_str)?, reason) {
        ("completed", _) if calls => StopReason::ToolUse,
        ("completed", _) => StopReason::EndTurn,
        ("incomplete", Some("max_output_tokens")) => StopReason::MaxTokens,
        ("incomplete", Some("content_filter")) => StopReason::ContentFilter,
        (_, Some(reason)) => StopReason::Other(reason.to_owned()),
        (status, None) => StopReason::Other(status.to_owned()),
    })
}

/// `status` and `incomplete_details` for a reason.
fn stop_to(stop: Option<&StopReason>) -> Map<String, Value> {
    let incomplete =
        |reason: &str| json!({"status": "incomplete", "incomplete_details": {"reason": reason}});
    object(match stop {
        None | Some(StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence) => {
            json!({"status": "completed", "incomplete_details": null})
        }
        Some(StopReason::MaxTokens) => incomplete("max_output_tokens"),
        Some(StopReason::ContentFilter) => incomplete("content_filter"),
        Some(StopReason::Other(reason)) => incomplete(reason),
    })
}

pub(crate) fn render(response: &Response) -> Value {
    let extra = &response.extra;
    let same = extra.is_of(DIALECT);
    let choice = response.choices.first();
    let messages = choice.map_or(&[][..], |choice| &choice.messages);
    let mut map = Map::new();
    if !response.id.is_empty() || !same {
        map.insert("id".to_owned(), json!(response.id));
    }
    if !same {
        map.extend(object(json!({"object": "response", "created_at": 0, "error": null})));
    }
    if !response.model.is_empty() || !same {
        map.insert("model".to_owned(), json!(response.model));
    }
    let stop = choice.and_then(|choice| choice.stop.as_ref());
    if !same || stop_from(extra.fields(), messages).as_ref() != stop {
        map.extend(stop_to(stop));
    }
    let mut items = Vec::new();
    for message in messages {
        item::render(message, Purpose::Answer(&response.id), &mut items);
    }
    map.insert("output".to_owned(), Value::Array(items));
    if let Some(usage) = &response.usage {
        map.insert("usage".to_owned(), RESPONSES.render(usage));
    }
    if !same {
        // Clients read these without asking whether they are there.
        map.extend(object(json!({
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "metadata": {},
            "temperature": null, "top_p": null, "instructions": null,
        })));
    }
    Value::Object(extra.under(DIALECT, map))
}
