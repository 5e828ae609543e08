//! Items, the same in requests and answers.

use serde_json::{Map, Value, json};

use super::DIALECT;
use crate::conversation::{
    Image, ImageSource, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult, Unknown,
};
use crate::extra::{Extra, Form};
use crate::json::{object, take_array, take_exact, take_string};

/// What items are written for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// History: items of other dialects have no id, and their thinking would be refused.
    Request,
    /// An answer to a client, where each item has an id; this text is part of those made up.
    Answer(&'a str),
}

pub(super) fn unknown(value: Value) -> Unknown {
    Unknown { dialect: DIALECT, among_calls: false, value }
}

fn rest(map: Map<String, Value>) -> Extra {
    Extra::rest(DIALECT, Form::default(), map)
}

/// Reads one item; what is not known becomes a message of one unknown part.
pub(super) fn parse(value: Value) -> Message {
    let Value::Object(map) = value else {
        return of_one(Role::Assistant, Part::Unknown(unknown(value)));
    };
    let has = |field: &str| map.get(field).is_some_and(Value::is_string);
    match map.get("type").and_then(Value::as_str) {
        None | Some("message") if has("role") => parse_message(map),
        Some("function_call") if has("call_id") && has("name") && has("arguments") => {
            of_one(Role::Assistant, parse_call(map, "function_call", "arguments"))
        }
        Some("custom_tool_call") if has("call_id") && has("name") && has("input") => {
            of_one(Role::Assistant, parse_call(map, "custom_tool_call", "input"))
        }
        Some("function_call_output") if has("call_id") => {
            of_one(Role::Tool, parse_result(map, "function_call_output"))
        }
        Some("custom_tool_call_output") if has("call_id") => {
            of_one(Role::Tool, parse_result(map, "custom_tool_call_output"))
        }
        Some("reasoning") => of_one(Role::Assistant, parse_reasoning(map)),
        _ => of_one(Role::Assistant, Part::Unknown(unknown(Value::Object(map)))),
    }
}

fn of_one(role: Role, part: Part) -> Message {
    Message { role, parts: vec![part], extra: Extra::of(DIALECT) }
}

fn parse_message(mut map: Map<String, Value>) -> Message {
    let (role, mut form) = match map.get("role").and_then(Value::as_str) {
        Some("system") => (Role::System, Form::default()),
        Some("developer") => (Role::System, Form::DEVELOPER),
        Some("user") => (Role::User, Form::default()),
        Some("assistant") => (Role::Assistant, Form::default()),
        _ => return of_one(Role::Assistant, Part::Unknown(unknown(Value::Object(map)))),
    };
    map.shift_remove("role");
    let parts = take_content(&mut map, "content", &mut form, role);
    Message { role, parts, extra: Extra::rest(DIALECT, form, map) }
}

/// Takes `field`, a string or a list of content parts; any other shape stays.
fn take_content(
    map: &mut Map<String, Value>,
    field: &str,
    form: &mut Form,
    role: Role,
) -> Vec<Part> {
    if let Some(text) = take_string(map, field) {
        *form = form.and(Form::STRING);
        return vec![Part::Text(Text { text, extra: Extra::of(DIALECT) })];
    }
    match take_array(map, field) {
        Some(parts) => {
            *form = form.and(Form::LIST);
            parts.into_iter().map(|part| parse_part(part, role)).collect()
        }
        None => Vec::new(),
    }
}

/// The usual type of a text in a message of this role.
fn text_type(role: Role) -> &'static str {
    if role == Role::Assistant { "output_text" } else { "input_text" }
}

fn parse_part(value: Value, role: Role) -> Part {
    let Value::Object(mut map) = value else { return Part::Unknown(unknown(value)) };
    let has = |field: &str| map.get(field).is_some_and(Value::is_string);
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "input_text" | "output_text" | "text" if has("text") => {
            // An unusual type stays, so that it is written again.
            take_exact(&mut map, "type", text_type(role));
            let text = take_string(&mut map, "text").unwrap_or_default();
            Part::Text(Text { text, extra: rest(map) })
        }
        "refusal" if has("refusal") => {
            map.shift_remove("type");
            let text = take_string(&mut map, "refusal").unwrap_or_default();
            Part::Text(Text { text, extra: Extra::rest(DIALECT, Form::REFUSAL, map) })
        }
        "input_image" if has("image_url") => {
            map.shift_remove("type");
            let source =
                ImageSource::from_url(take_string(&mut map, "image_url").unwrap_or_default());
            Part::Image(Image { source, extra: rest(map) })
        }
        _ => Part::Unknown(unknown(Value::Object(map))),
    }
}

fn parse_call(mut map: Map<String, Value>, kind: &str, arguments: &str) -> Part {
    take_exact(&mut map, "type", kind);
    Part::ToolCall(ToolCall {
        id: take_string(&mut map, "call_id").unwrap_or_default(),
        name: take_string(&mut map, "name").unwrap_or_default(),
        arguments: take_string(&mut map, arguments).unwrap_or_default(),
        free_form: kind == "custom_tool_call",
        extra: rest(map),
    })
}

fn parse_result(mut map: Map<String, Value>, kind: &str) -> Part {
    take_exact(&mut map, "type", kind);
    let mut form = Form::default();
    Part::ToolResult(ToolResult {
        call_id: take_string(&mut map, "call_id").unwrap_or_default(),
        name: None,
        parts: take_content(&mut map, "output", &mut form, Role::Tool),
        is_error: false,
        free_form: kind == "custom_tool_call_output",
        extra: Extra::rest(DIALECT, form, map),
    })
}

/// Thinking: the summary's and the content's texts joined. Where they are more than one text the lists
/// stay, and are written again as long as the text has not been changed.
fn parse_reasoning(mut map: Map<String, Value>) -> Part {
    map.shift_remove("type");
    let text = reasoning_text(&map);
    let form = match reasoning_lists(&map).as_slice() {
        [("summary", 0, 1)] => Form::STRING,
        [("content", 0, 1)] => Form::ALTERNATE,
        _ => Form::LIST,
    };
    if form != Form::LIST {
        let field = if form == Form::STRING { "summary" } else { "content" };
        let plain = !text.is_empty() && map.get(field) == Some(&text_list(field, &text));
        if plain {
            map.shift_remove(field);
            return Part::Reasoning(Reasoning { text, extra: Extra::rest(DIALECT, form, map) });
        }
    }
    Part::Reasoning(Reasoning { text, extra: Extra::rest(DIALECT, Form::LIST, map) })
}

/// The texts of both lists as (list, position, length).
fn reasoning_lists(map: &Map<String, Value>) -> Vec<(&'static str, usize, usize)> {
    let lists = ["summary", "content"].into_iter();
    lists
        .flat_map(|field| {
            let length = map.get(field).and_then(Value::as_array).map_or(0, Vec::len);
            (0..length).map(move |position| (field, position, length))
        })
        .collect()
}

fn reasoning_text(map: &Map<String, Value>) -> String {
    let texts: Vec<&str> = ["summary", "content"]
        .into_iter()
        .filter_map(|field| map.get(field)?.as_array())
        .flatten()
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    texts.join("\n\n")
}

fn text_list(field: &str, text: &str) -> Value {
    let kind = if field == "summary" { "summary_text" } else { "reasoning_text" };
    json!([{"type": kind, "text": text}])
}

/// Writes a message as items: neighbouring words and pictures as one, each other part as its own.
pub(super) fn render(message: &Message, purpose: Purpose<'_>, items: &mut Vec<Value>) {
    let mut content: Vec<&Part> = Vec::new();
    let mut written = false;
    for part in &message.parts {
        let item = match part {
            Part::Text(_) | Part::Image(_) => {
                content.push(part);
                continue;
            }
            Part::Unknown(unknown) if unknown.dialect == DIALECT && is_content(message) => {
                content.push(part);
                continue;
            }
            Part::Unknown(unknown) => (unknown.dialect == DIALECT).then(|| unknown.value.clone()),
            Part::ToolCall(call) => Some(render_call(call, purpose, items.len())),
            Part::ToolResult(result) => Some(render_result(result)),
            Part::Reasoning(reasoning) => render_reasoning(reasoning, purpose, items.len()),
        };
        if !content.is_empty() {
            items.push(render_message(
                message,
                &std::mem::take(&mut content),
                purpose,
                items.len(),
            ));
        }
        written = true;
        items.extend(item);
    }
    if !content.is_empty() || !written {
        items.push(render_message(message, &content, purpose, items.len()));
    }
}

/// An unknown part of a message's content rather than an unknown item.
fn is_content(message: &Message) -> bool {
    message.extra.has_form(DIALECT, Form::LIST)
}

fn status(
    map: &mut Map<String, Value>,
    extra: &Extra,
    prefix: &str,
    purpose: Purpose<'_>,
    position: usize,
) {
    if let (Purpose::Answer(seed), false) = (purpose, extra.is_of(DIALECT)) {
        map.insert("id".to_owned(), json!(format!("{prefix}_{seed}_{position}")));
        map.insert("status".to_owned(), json!("completed"));
    }
}

fn render_message(
    message: &Message,
    content: &[&Part],
    purpose: Purpose<'_>,
    position: usize,
) -> Value {
    let extra = &message.extra;
    let mut map = Map::new();
    let role = match message.role {
        Role::System if extra.has_form(DIALECT, Form::DEVELOPER) => "developer",
        Role::System => "system",
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    };
    status(&mut map, extra, "msg", purpose, position);
    if !extra.is_of(DIALECT) {
        map.insert("type".to_owned(), json!("message"));
    }
    map.insert("role".to_owned(), json!(role));
    let bare = matches!(purpose, Purpose::Request);
    put_content(&mut map, "content", extra, content, message.role, bare);
    Value::Object(extra.under(DIALECT, map))
}

fn put_content(
    map: &mut Map<String, Value>,
    field: &str,
    extra: &Extra,
    parts: &[&Part],
    role: Role,
    bare: bool,
) {
    let as_list = !bare || extra.has_form(DIALECT, Form::LIST);
    let content = match parts {
        [Part::Text(text)] if text.extra.is_plain(DIALECT) && !as_list => json!(text.text),
        [Part::Text(text)]
            if text.extra.is_plain(DIALECT) && extra.has_form(DIALECT, Form::STRING) =>
        {
            json!(text.text)
        }
        [] if extra.has_form(DIALECT, Form::STRING) => json!(""),
        [] if extra.is_of(DIALECT) && !extra.has_form(DIALECT, Form::LIST) => return,
        parts => {
            Value::Array(parts.iter().filter_map(|part| render_part(part, role, bare)).collect())
        }
    };
    map.insert(field.to_owned(), content);
}

fn render_part(part: &Part, role: Role, bare: bool) -> Option<Value> {
    match part {
        Part::Text(text) if text.extra.has_form(DIALECT, Form::REFUSAL) => {
            let map = object(json!({"type": "refusal", "refusal": text.text}));
            Some(Value::Object(text.extra.under(DIALECT, map)))
        }
        Part::Text(text) => {
            let mut map = object(json!({"type": text_type(role)}));
            if !bare && !text.extra.is_of(DIALECT) {
                map.insert("annotations".to_owned(), json!([]));
            }
            map.extend(text.extra.fields_for(DIALECT));
            map.insert("text".to_owned(), json!(text.text));
            Some(Value::Object(map))
        }
        Part::Image(image) => {
            let mut map =
                object(json!({"type": "input_image", "image_url": image.source.to_url()}));
            if !image.extra.is_of(DIALECT) {
                map.insert("detail".to_owned(), json!("auto"));
            }
            Some(Value::Object(image.extra.under(DIALECT, map)))
        }
        Part::Unknown(unknown) => (unknown.dialect == DIALECT).then(|| unknown.value.clone()),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => None,
    }
}

fn render_call(call: &ToolCall, purpose: Purpose<'_>, position: usize) -> Value {
    let (kind, argument) =
        if call.free_form { ("custom_tool_call", "input") } else { ("function_call", "arguments") };
    let mut map = Map::new();
    status(&mut map, &call.extra, "fc", purpose, position);
    map.insert("type".to_owned(), json!(kind));
    map.insert("call_id".to_owned(), json!(call.id));
    map.insert("name".to_owned(), json!(call.name));
    let empty = call.arguments.is_empty() && !call.free_form && !call.extra.is_of(DIALECT);
    map.insert(argument.to_owned(), json!(if empty { "{}" } else { &call.arguments }));
    Value::Object(call.extra.under(DIALECT, map))
}

fn render_result(result: &ToolResult) -> Value {
    let kind = if result.free_form { "custom_tool_call_output" } else { "function_call_output" };
    let mut map = object(json!({"type": kind, "call_id": result.call_id}));
    let parts: Vec<&Part> = result.parts.iter().collect();
    put_content(&mut map, "output", &result.extra, &parts, Role::Tool, true);
    Value::Object(result.extra.under(DIALECT, map))
}

fn render_reasoning(reasoning: &Reasoning, purpose: Purpose<'_>, position: usize) -> Option<Value> {
    let extra = &reasoning.extra;
    if let (Purpose::Request, false) = (purpose, extra.is_of(DIALECT)) {
        return None;
    }
    let mut map = object(json!({"type": "reasoning"}));
    status(&mut map, extra, "rs", purpose, position);
    let text = &reasoning.text;
    if extra.has_form(DIALECT, Form::ALTERNATE) {
        map.insert("content".to_owned(), text_list("content", text));
    } else if !extra.has_form(DIALECT, Form::LIST) {
        let summary = if text.is_empty() { json!([]) } else { text_list("summary", text) };
        map.insert("summary".to_owned(), summary);
    } else if *text != reasoning_text(extra.fields()) {
        map.insert("summary".to_owned(), text_list("summary", text));
        if extra.fields().contains_key("content") {
            map.insert("content".to_owned(), json!([]));
        }
    }
    Some(Value::Object(extra.under(DIALECT, map)))
}
