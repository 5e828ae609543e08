//! Messages and their parts, the same in requests, answers and (assembled) streams.

use serde_json::{Map, Value, json};

use super::DIALECT;
use crate::conversation::{
    Image, ImageSource, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult, Unknown,
};
use crate::extra::{Extra, Form};
use crate::json::{put_rest, take_array, take_exact, take_filled, take_object, take_string};
use crate::{WireError, conversation, json};

/// Field names thinking is sent under; the first is what is written for other dialects' thinking.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

pub(super) fn parse(value: Value) -> Result<Message, WireError> {
    let Value::Object(mut map) = value else {
        return Err(WireError::shape(
            DIALECT,
            "",
            format!("expected an object, found {}", json::kind(&value)),
        ));
    };
    let Some(role) = take_string(&mut map, "role") else {
        return Err(WireError::shape(DIALECT, "role", "missing or not a string"));
    };
    let (role, form) = match role.as_str() {
        "system" => (Role::System, Form::default()),
        "developer" => (Role::System, Form::DEVELOPER),
        "user" => (Role::User, Form::default()),
        "assistant" => (Role::Assistant, Form::default()),
        "tool" => (Role::Tool, Form::default()),
        "function" => (Role::Tool, Form::LEGACY),
        other => return Err(WireError::shape(DIALECT, "role", format!("unknown role {other:?}"))),
    };
    if role == Role::Tool {
        return Ok(parse_result(map, form));
    }
    Ok(parse_spoken(map, role, form))
}

/// A message of any role but `tool`, its `role` already taken.
pub(super) fn parse_spoken(mut map: Map<String, Value>, role: Role, mut form: Form) -> Message {
    let mut parts = Vec::new();
    if role == Role::Assistant {
        parts.extend(take_reasoning(&mut map));
    }
    if let Some(content) = take_content(&mut map, &mut form) {
        parts.extend(content);
    }
    if let Some(text) = take_string(&mut map, "refusal") {
        let extra = Extra::rest(DIALECT, Form::REFUSAL.and(Form::ALTERNATE), Map::new());
        parts.push(Part::Text(Text { text, extra }));
    }
    parts.extend(take_calls(&mut map));
    Message { role, parts, extra: Extra::rest(DIALECT, form, map) }
}

fn parse_result(mut map: Map<String, Value>, form: Form) -> Message {
    let mut content_form = Form::default();
    let result = ToolResult {
        call_id: take_filled(&mut map, "tool_call_id").unwrap_or_default(),
        name: take_string(&mut map, "name"),
        parts: take_content(&mut map, &mut content_form).unwrap_or_default(),
        is_error: false,
        free_form: false,
        extra: Extra::rest(DIALECT, content_form, Map::new()),
    };
    Message {
        role: Role::Tool,
        parts: vec![Part::ToolResult(result)],
        extra: Extra::rest(DIALECT, form, map),
    }
}

fn take_reasoning(map: &mut Map<String, Value>) -> Option<Part> {
    REASONING_FIELDS.iter().enumerate().find_map(|(position, field)| {
        let text = take_filled(map, field)?;
        let form = if position == 0 { Form::default() } else { Form::ALTERNATE };
        Some(Part::Reasoning(Reasoning { text, extra: Extra::rest(DIALECT, form, Map::new()) }))
    })
}

fn take_content(map: &mut Map<String, Value>, form: &mut Form) -> Option<Vec<Part>> {
    if let Some(text) = take_string(map, "content") {
        *form = form.and(Form::STRING);
        return Some(vec![Part::Text(Text { text, extra: Extra::of(DIALECT) })]);
    }
    let items = take_array(map, "content")?;
    *form = form.and(Form::LIST);
    Some(items.into_iter().map(parse_part).collect())
}

fn parse_part(value: Value) -> Part {
    let unknown = |value| Part::Unknown(Unknown { dialect: DIALECT, among_calls: false, value });
    let Value::Object(mut map) = value else { return unknown(value) };
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "text" if map.get("text").is_some_and(Value::is_string) => {
            map.shift_remove("type");
            let text = take_string(&mut map, "text").unwrap_or_default();
            Part::Text(Text { text, extra: Extra::rest(DIALECT, Form::default(), map) })
        }
        "refusal" if map.get("refusal").is_some_and(Value::is_string) => {
            map.shift_remove("type");
            let text = take_string(&mut map, "refusal").unwrap_or_default();
            Part::Text(Text { text, extra: Extra::rest(DIALECT, Form::REFUSAL, map) })
        }
        "image_url"
            if map
                .get("image_url")
                .and_then(|image| image.get("url"))
                .is_some_and(Value::is_string) =>
        {
            map.shift_remove("type");
            let mut image = take_object(&mut map, "image_url").unwrap_or_default();
            let source = ImageSource::from_url(take_string(&mut image, "url").unwrap_or_default());
            put_rest(&mut map, "image_url", image);
            Part::Image(Image { source, extra: Extra::rest(DIALECT, Form::default(), map) })
        }
        _ => unknown(Value::Object(map)),
    }
}

/// Takes `tool_calls` and the legacy `function_call`. An empty list stays where it is.
fn take_calls(map: &mut Map<String, Value>) -> Vec<Part> {
    let mut parts = Vec::new();
    if map.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty()) {
        parts.extend(take_array(map, "tool_calls").unwrap_or_default().into_iter().map(parse_call));
    }
    let legacy =
        map.get("function_call").and_then(|call| Some((call.get("name")?, call.get("arguments")?)));
    if legacy.is_some_and(|(name, arguments)| name.is_string() && arguments.is_string()) {
        let mut call = take_object(map, "function_call").unwrap_or_default();
        parts.push(Part::ToolCall(ToolCall {
            id: String::new(),
            name: take_string(&mut call, "name").unwrap_or_default(),
            arguments: take_string(&mut call, "arguments").unwrap_or_default(),
            free_form: false,
            extra: Extra::rest(DIALECT, Form::LEGACY, call),
        }));
    }
    parts
}

fn parse_call(value: Value) -> Part {
    let Value::Object(mut map) = value else { return unknown_call(value) };
    let kind = map.get("type").and_then(Value::as_str).unwrap_or("function");
    let (inner, argument, free_form) = match kind {
        "function" => ("function", "arguments", false),
        "custom" => ("custom", "input", true),
        _ => return unknown_call(Value::Object(map)),
    };
    if !map.get(inner).and_then(|call| call.get("name")).is_some_and(Value::is_string) {
        return unknown_call(Value::Object(map));
    }
    let mut form = Form::default();
    if !take_exact(&mut map, "type", inner) {
        form = form.and(Form::BARE);
    }
    let mut call = take_object(&mut map, inner).unwrap_or_default();
    let name = take_string(&mut call, "name").unwrap_or_default();
    let arguments = match take_string(&mut call, argument) {
        Some(text) => text,
        None if call.get(argument).is_some_and(Value::is_object) => {
            form = form.and(Form::OBJECT);
            call.shift_remove(argument).unwrap_or_default().to_string()
        }
        None => {
            if !call.contains_key(argument) {
                form = form.and(Form::ABSENT);
            }
            String::new()
        }
    };
    let id = take_filled(&mut map, "id").unwrap_or_default();
    put_rest(&mut map, inner, call);
    Part::ToolCall(ToolCall {
        id,
        name,
        arguments,
        free_form,
        extra: Extra::rest(DIALECT, form, map),
    })
}

fn unknown_call(value: Value) -> Part {
    Part::Unknown(Unknown { dialect: DIALECT, among_calls: true, value })
}

/// Writes one turn: its tool results first, each a message, then what is left as one message.
pub(super) fn render_turn(turn: &[Message]) -> Vec<Value> {
    let mut messages = Vec::new();
    let mut rest: Vec<&Part> = Vec::new();
    let mut shown: Vec<&Part> = Vec::new();
    for message in turn {
        for part in &message.parts {
            let Part::ToolResult(result) = part else {
                rest.push(part);
                continue;
            };
            messages.push(render_result(message, result));
            if !result.extra.is_of(DIALECT) {
                shown.extend(result.parts.iter().filter(|part| matches!(part, Part::Image(_))));
            }
        }
    }
    let Some(first) = turn.first() else { return messages };
    // A tool message holds text only, so pictures a tool returned follow as the user's.
    if first.role == Role::Tool {
        rest.append(&mut shown);
        if !rest.is_empty() {
            messages.push(render_spoken(Role::User, &Extra::default(), &rest));
        }
        return messages;
    }
    shown.append(&mut rest);
    let kept = shown.len();
    shown.retain(|part| has_place(part));
    if shown.is_empty() && kept > 0 && !first.extra.is_of(DIALECT) {
        // All of it was for another provider, such as its encrypted thinking.
        return messages;
    }
    if !shown.is_empty() || messages.is_empty() {
        messages.push(render_spoken(first.role, &first.extra, &shown));
    }
    messages
}

/// Whether a part can be written in this dialect at all.
fn has_place(part: &Part) -> bool {
    match part {
        Part::Text(_) | Part::Image(_) | Part::ToolCall(_) => true,
        Part::Reasoning(reasoning) => reasoning.extra.is_of(DIALECT),
        Part::Unknown(unknown) => unknown.dialect == DIALECT,
        Part::ToolResult(_) => false,
    }
}

fn render_result(message: &Message, result: &ToolResult) -> Value {
    let of_this = message.role == Role::Tool;
    let mut map = Map::new();
    let legacy = of_this && message.extra.has_form(DIALECT, Form::LEGACY);
    map.insert("role".to_owned(), json!(if legacy { "function" } else { "tool" }));
    if !result.call_id.is_empty() {
        map.insert("tool_call_id".to_owned(), json!(result.call_id));
    }
    if result.extra.is_of(DIALECT) || legacy {
        if let Some(name) = &result.name {
            map.insert("name".to_owned(), json!(name));
        }
        let parts: Vec<&Part> = result.parts.iter().collect();
        put_content(&mut map, &result.extra, &parts);
    } else {
        map.insert("content".to_owned(), json!(result.text()));
    }
    Value::Object(if of_this { message.extra.under(DIALECT, map) } else { map })
}

/// Writes an answer's message. Clients expect its content as one string, never a list.
pub(super) fn render_answer(extra: &Extra, parts: &[&Part]) -> Value {
    if extra.is_of(DIALECT) {
        return render_spoken(Role::Assistant, extra, parts);
    }
    let mut text = String::new();
    let mut rest: Vec<&Part> = Vec::new();
    for part in parts {
        match part.as_text() {
            Some(piece) => text.push_str(piece),
            None => rest.push(part),
        }
    }
    let empty = text.is_empty();
    let text = Part::text(text);
    if !empty {
        rest.push(&text);
    }
    render_spoken(Role::Assistant, extra, &rest)
}

/// Writes a message of any role but `tool`.
fn render_spoken(role: Role, extra: &Extra, parts: &[&Part]) -> Value {
    let mut map = Map::new();
    let role_name = match role {
        Role::System if extra.has_form(DIALECT, Form::DEVELOPER) => "developer",
        Role::System => "system",
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    };
    map.insert("role".to_owned(), json!(role_name));
    let mut content = Vec::new();
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Part::Text(text)
                if text.extra.has_form(DIALECT, Form::REFUSAL.and(Form::ALTERNATE)) =>
            {
                map.insert("refusal".to_owned(), json!(text.text));
            }
            Part::Unknown(unknown) if unknown.dialect != DIALECT => {}
            Part::Unknown(unknown) if unknown.among_calls => calls.push(unknown.value.clone()),
            Part::Text(_) | Part::Image(_) | Part::Unknown(_) => content.push(*part),
            Part::ToolCall(call) if call.extra.has_form(DIALECT, Form::LEGACY) => {
                let mut inner = call.extra.fields_for(DIALECT);
                inner.insert("name".to_owned(), json!(call.name));
                inner.insert("arguments".to_owned(), json!(call.arguments));
                map.insert("function_call".to_owned(), Value::Object(inner));
            }
            Part::ToolCall(call) => calls.push(render_call(call)),
            Part::Reasoning(reasoning) => put_reasoning(&mut map, reasoning),
            Part::ToolResult(_) => {}
        }
    }
    put_content(&mut map, extra, &content);
    if !calls.is_empty() {
        map.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    if !extra.is_of(DIALECT) && !map.contains_key("content") {
        let nothing = if map.contains_key("tool_calls") { Value::Null } else { json!("") };
        map.insert("content".to_owned(), nothing);
    }
    Value::Object(extra.under(DIALECT, map))
}

/// Thinking goes back only to servers that sent it in this dialect: OpenAI itself refuses the field.
fn put_reasoning(map: &mut Map<String, Value>, reasoning: &Reasoning) {
    if !reasoning.extra.is_of(DIALECT) {
        return;
    }
    let [usual, alternate] = REASONING_FIELDS;
    let field = if reasoning.extra.has_form(DIALECT, Form::ALTERNATE) { alternate } else { usual };
    map.insert(field.to_owned(), json!(reasoning.text));
}

fn put_content(map: &mut Map<String, Value>, extra: &Extra, parts: &[&Part]) {
    let content = match parts {
        [Part::Text(text)]
            if text.extra.is_plain(DIALECT) && !extra.has_form(DIALECT, Form::LIST) =>
        {
            json!(text.text)
        }
        [] if extra.has_form(DIALECT, Form::LIST) => json!([]),
        [] if extra.has_form(DIALECT, Form::STRING) => json!(""),
        [] => return,
        parts => Value::Array(parts.iter().filter_map(|part| render_part(part)).collect()),
    };
    map.insert("content".to_owned(), content);
}

fn render_part(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) => {
            let refusal = conversation::is_refusal(text, DIALECT);
            let kind = if refusal { "refusal" } else { "text" };
            let mut map = text.extra.fields_for(DIALECT);
            map.insert("type".to_owned(), json!(kind));
            map.insert(kind.to_owned(), json!(text.text));
            Some(Value::Object(map))
        }
        Part::Image(image) => {
            let mut map = image.extra.fields_for(DIALECT);
            let mut inner = take_object(&mut map, "image_url").unwrap_or_default();
            inner.insert("url".to_owned(), json!(image.source.to_url()));
            map.insert("type".to_owned(), json!("image_url"));
            map.insert("image_url".to_owned(), Value::Object(inner));
            Some(Value::Object(map))
        }
        Part::Unknown(unknown) if unknown.dialect == DIALECT => Some(unknown.value.clone()),
        Part::Unknown(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => None,
    }
}

fn render_call(call: &ToolCall) -> Value {
    let (inner, argument) =
        if call.free_form { ("custom", "input") } else { ("function", "arguments") };
    let mut map = call.extra.fields_for(DIALECT);
    let mut fields = take_object(&mut map, inner).unwrap_or_default();
    fields.insert("name".to_owned(), json!(call.name));
    let as_object = call.extra.has_form(DIALECT, Form::OBJECT);
    let absent = call.extra.has_form(DIALECT, Form::ABSENT);
    match call.arguments_value() {
        Ok(value) if as_object => fields.insert(argument.to_owned(), value),
        _ if call.arguments.is_empty() && (fields.contains_key(argument) || absent) => None,
        _ => fields.insert(argument.to_owned(), json!(call.arguments)),
    };
    if !call.id.is_empty() {
        map.insert("id".to_owned(), json!(call.id));
    }
    if !call.extra.has_form(DIALECT, Form::BARE) {
        map.insert("type".to_owned(), json!(inner));
    }
    map.insert(inner.to_owned(), Value::Object(fields));
    Value::Object(map)
}
