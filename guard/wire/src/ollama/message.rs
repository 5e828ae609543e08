//! Chat messages, the same in requests, answers and stream lines.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::conversation::{
    Image, ImageSource, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult, Unknown, turns,
};
use crate::extra::{Extra, Form};
use crate::json::{object, put_rest, take_array, take_filled, take_object, take_string};
use crate::{Dialect, WireError, json};

const DIALECT: Dialect = Dialect::OllamaChat;

pub(super) fn parse(value: Value) -> Result<Message, WireError> {
    let found = json::kind(&value);
    let Value::Object(mut map) = value else {
        return Err(WireError::shape(DIALECT, "", format!("expected an object, found {found}")));
    };
    let Some(role) = take_string(&mut map, "role") else {
        return Err(WireError::shape(DIALECT, "role", "missing or not a string"));
    };
    let role = match role.as_str() {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => return Ok(parse_result(map)),
        other => return Err(WireError::shape(DIALECT, "role", format!("unknown role {other:?}"))),
    };
    Ok(parse_spoken(map, role, Form::default()))
}

/// A message of any role but `tool`, its `role` already taken.
pub(super) fn parse_spoken(mut map: Map<String, Value>, role: Role, form: Form) -> Message {
    let mut parts = Vec::new();
    if let Some(text) = take_filled(&mut map, "thinking") {
        parts.push(Part::Reasoning(Reasoning { text, extra: Extra::of(DIALECT) }));
    }
    parts.extend(take_text(DIALECT, &mut map, "content"));
    parts.extend(take_images(DIALECT, &mut map));
    parts.extend(take_calls(&mut map));
    Message { role, parts, extra: Extra::rest(DIALECT, form, map) }
}

fn parse_result(mut map: Map<String, Value>) -> Message {
    let mut parts: Vec<Part> = take_text(DIALECT, &mut map, "content").into_iter().collect();
    parts.extend(take_images(DIALECT, &mut map));
    let result = ToolResult {
        call_id: take_filled(&mut map, "tool_call_id").unwrap_or_default(),
        name: take_filled(&mut map, "tool_name"),
        parts,
        extra: Extra::of(DIALECT),
        ..ToolResult::default()
    };
    let extra = Extra::rest(DIALECT, Form::default(), map);
    Message { role: Role::Tool, parts: vec![Part::ToolResult(result)], extra }
}

/// Takes words; an empty string stays, it says nothing.
pub(super) fn take_text(
    dialect: Dialect,
    map: &mut Map<String, Value>,
    field: &str,
) -> Option<Part> {
    take_filled(map, field).map(|text| Part::Text(Text { text, extra: Extra::of(dialect) }))
}

/// Takes `images`, a list of base64 texts; any other shape stays.
pub(super) fn take_images(dialect: Dialect, map: &mut Map<String, Value>) -> Vec<Part> {
    let images = map.get("images").and_then(Value::as_array);
    let all =
        images.is_some_and(|images| !images.is_empty() && images.iter().all(Value::is_string));
    if !all {
        return Vec::new();
    }
    let image = |value: Value| {
        let data = value.as_str()?.to_owned();
        let source = ImageSource::Base64 { media_type: String::new(), data };
        Some(Part::Image(Image { source, extra: Extra::of(dialect) }))
    };
    take_array(map, "images").unwrap_or_default().into_iter().filter_map(image).collect()
}

fn take_calls(map: &mut Map<String, Value>) -> Vec<Part> {
    if map.get("tool_calls").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    take_array(map, "tool_calls").unwrap_or_default().into_iter().map(parse_call).collect()
}

/// Reads one call: `{"function": {"name", "arguments": {}}}`, the arguments an object, from some clients
/// a text.
pub(super) fn parse_call(value: Value) -> Part {
    let unknown = |value| Part::Unknown(Unknown { dialect: DIALECT, among_calls: true, value });
    let Value::Object(mut map) = value else { return unknown(value) };
    let function = map.get("function");
    let named = function.and_then(|function| function.get("name")).is_some_and(Value::is_string);
    let arguments = function.and_then(|function| function.get("arguments"));
    let form = match arguments {
        Some(Value::Object(_)) => Form::default(),
        Some(Value::String(_)) => Form::STRING,
        None => Form::ABSENT,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
            return unknown(Value::Object(map));
        }
    };
    if !named {
        return unknown(Value::Object(map));
    }
    let mut function = take_object(&mut map, "function").unwrap_or_default();
    let name = take_string(&mut function, "name").unwrap_or_default();
    let arguments = match function.shift_remove("arguments") {
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let id = take_filled(&mut map, "id").unwrap_or_default();
    put_rest(&mut map, "function", function);
    Part::ToolCall(ToolCall {
        id,
        name,
        arguments,
        free_form: false,
        extra: Extra::rest(DIALECT, form, map),
    })
}

/// Writes the messages. Results name their tool here, so names other dialects leave out are looked up.
pub(super) fn render_all(messages: &[Message]) -> Value {
    let calls = messages.iter().flat_map(|message| &message.parts).filter_map(Part::as_tool_call);
    let names: BTreeMap<&str, &str> =
        calls.map(|call| (call.id.as_str(), call.name.as_str())).collect();
    let mut values = Vec::new();
    for turn in turns(messages, DIALECT) {
        let mut rest: Vec<&Part> = Vec::new();
        for message in turn {
            for part in &message.parts {
                if let Part::ToolResult(result) = part {
                    values.push(render_result(message, result, &names));
                } else {
                    rest.push(part);
                }
            }
        }
        let Some(first) = turn.first() else { continue };
        let role = if first.role == Role::Tool { Role::User } else { first.role };
        if rest.iter().any(|part| has_place(part)) || first.parts.is_empty() {
            values.push(Value::Object(render_spoken(role, &first.extra, &rest, "\n")));
        }
    }
    Value::Array(values)
}

fn has_place(part: &Part) -> bool {
    match part {
        Part::Text(_) | Part::Image(_) | Part::ToolCall(_) => true,
        Part::Reasoning(reasoning) => !reasoning.text.is_empty(),
        Part::Unknown(unknown) => unknown.dialect == DIALECT,
        Part::ToolResult(_) => false,
    }
}

fn render_result(message: &Message, result: &ToolResult, names: &BTreeMap<&str, &str>) -> Value {
    let mut map = object(json!({"role": "tool"}));
    let text = result.text();
    if !text.is_empty() || !result.extra.is_of(DIALECT) {
        map.insert("content".to_owned(), json!(text));
    }
    put_images(&mut map, &result.parts.iter().collect::<Vec<_>>());
    let known =
        names.get(result.call_id.as_str()).copied().filter(|_| !result.extra.is_of(DIALECT));
    if let Some(name) = result.name.as_deref().or(known) {
        map.insert("tool_name".to_owned(), json!(name));
    }
    if !result.call_id.is_empty() {
        map.insert("tool_call_id".to_owned(), json!(result.call_id));
    }
    if message.role == Role::Tool {
        map = message.extra.under(DIALECT, map);
    }
    Value::Object(map)
}

/// Writes a message of any role but `tool`; several texts are joined by `between`.
pub(super) fn render_spoken(
    role: Role,
    extra: &Extra,
    parts: &[&Part],
    between: &str,
) -> Map<String, Value> {
    let role = match role {
        Role::System => "system",
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    };
    let mut map = object(json!({"role": role}));
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.as_text()).collect();
    if !texts.is_empty() || !extra.is_of(DIALECT) {
        map.insert("content".to_owned(), json!(texts.join(between)));
    }
    put_images(&mut map, parts);
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Part::ToolCall(call) => calls.push(render_call(call)),
            Part::Unknown(unknown) if unknown.dialect == DIALECT => {
                calls.push(unknown.value.clone());
            }
            Part::Reasoning(reasoning) if !reasoning.text.is_empty() => {
                map.insert("thinking".to_owned(), json!(reasoning.text));
            }
            Part::Unknown(_)
            | Part::Text(_)
            | Part::Image(_)
            | Part::ToolResult(_)
            | Part::Reasoning(_) => {}
        }
    }
    if !calls.is_empty() {
        map.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    extra.under(DIALECT, map)
}

/// Puts the images that are in the message; the server fetches no addresses.
pub(super) fn put_images(map: &mut Map<String, Value>, parts: &[&Part]) {
    let data = |part: &&Part| {
        let Part::Image(Image { source: ImageSource::Base64 { data, .. }, .. }) = part else {
            return None;
        };
        Some(json!(data))
    };
    let images: Vec<Value> = parts.iter().filter_map(data).collect();
    if !images.is_empty() {
        map.insert("images".to_owned(), Value::Array(images));
    }
}

pub(super) fn render_call(call: &ToolCall) -> Value {
    let mut map = call.extra.fields_for(DIALECT);
    let mut function = take_object(&mut map, "function").unwrap_or_default();
    function.insert("name".to_owned(), json!(call.name));
    if call.extra.has_form(DIALECT, Form::STRING) {
        function.insert("arguments".to_owned(), json!(call.arguments));
    } else if !call.extra.has_form(DIALECT, Form::ABSENT) || !call.arguments.is_empty() {
        function.insert("arguments".to_owned(), call.arguments_object());
    }
    if !call.id.is_empty() {
        map.insert("id".to_owned(), json!(call.id));
    }
    map.insert("function".to_owned(), Value::Object(function));
    Value::Object(map)
}
