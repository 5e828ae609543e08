//! The request body.

use serde_json::{Map, Value, json};

use super::DIALECT;
use super::item::{self, Purpose, unknown};
use crate::conversation::{
    Message, Part, Request, Role, Text, Tool, ToolChoice, ToolSpec, joined_text,
};
use crate::extra::{Extra, Form};
use crate::json::{
    object, take_array, take_bool, take_count, take_exact, take_number, take_object, take_string,
    take_true,
};
use crate::{WireError, json};

pub(crate) fn parse(mut map: Map<String, Value>) -> Result<Request, WireError> {
    let mut form = Form::default();
    let mut messages = Vec::new();
    if let Some(text) = take_string(&mut map, "instructions") {
        messages.push(plain(Role::System, text, Form::ALTERNATE));
    }
    match map.get("input") {
        Some(Value::String(_)) => {
            let text = take_string(&mut map, "input").unwrap_or_default();
            messages.push(plain(Role::User, text, Form::BARE));
        }
        Some(Value::Array(items)) if !items.is_empty() => {
            messages.extend(
                take_array(&mut map, "input").unwrap_or_default().into_iter().map(item::parse),
            );
        }
        // A stored prompt may stand in for the input; an empty list stays as it is.
        None | Some(Value::Null | Value::Array(_)) => {}
        Some(other) => {
            let why = format!("expected a string or an array, found {}", json::kind(other));
            return Err(WireError::shape(DIALECT, "input", why));
        }
    }
    let model = take_string(&mut map, "model");
    if model.is_none() {
        form = form.and(Form::ABSENT);
        if !map.contains_key("prompt") {
            return Err(WireError::shape(DIALECT, "model", "missing or not a string"));
        }
    }
    Ok(Request {
        model: model.unwrap_or_default(),
        stream: take_true(&mut map, "stream"),
        messages,
        tools: take_tools(&mut map),
        tool_choice: take_choice(&mut map),
        parallel_tool_calls: take_bool(&mut map, "parallel_tool_calls"),
        max_tokens: take_count(&mut map, "max_output_tokens"),
        temperature: take_number(&mut map, "temperature"),
        top_p: take_number(&mut map, "top_p"),
        stop: Vec::new(),
        extra: Extra::rest(DIALECT, form, map),
    })
}

/// A message that was a bare string of the body.
fn plain(role: Role, text: String, form: Form) -> Message {
    let part = Part::Text(Text { text, extra: Extra::of(DIALECT) });
    Message { role, parts: vec![part], extra: Extra::rest(DIALECT, form, Map::new()) }
}

fn take_tools(map: &mut Map<String, Value>) -> Vec<Tool> {
    if map.get("tools").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    take_array(map, "tools").unwrap_or_default().into_iter().map(parse_tool).collect()
}

fn parse_tool(value: Value) -> Tool {
    let Value::Object(mut map) = value else { return Tool::Unknown(unknown(value)) };
    if !map.get("name").is_some_and(Value::is_string) || !take_exact(&mut map, "type", "function") {
        return Tool::Unknown(unknown(Value::Object(map)));
    }
    let name = take_string(&mut map, "name").unwrap_or_default();
    let description = take_string(&mut map, "description");
    let schema = take_object(&mut map, "parameters").map(Value::Object).unwrap_or_default();
    Tool::Function(ToolSpec {
        name,
        description,
        schema,
        extra: Extra::rest(DIALECT, Form::default(), map),
    })
}

fn take_choice(map: &mut Map<String, Value>) -> Option<ToolChoice> {
    let value = map.get("tool_choice")?;
    let choice = match (value.as_str(), value.get("name").and_then(Value::as_str)) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("required"), _) => ToolChoice::Required,
        (None, Some(name)) => ToolChoice::Named(name.to_owned()),
        _ => return None,
    };
    if render_choice(&choice) != *value {
        return None;
    }
    map.shift_remove("tool_choice");
    Some(choice)
}

fn render_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "name": name}),
    }
}

pub(crate) fn render(request: &Request) -> Value {
    let extra = &request.extra;
    let mut map = Map::new();
    if !request.model.is_empty() || !extra.has_form(DIALECT, Form::ABSENT) {
        map.insert("model".to_owned(), json!(request.model));
    }
    put_conversation(&mut map, &request.messages);
    let mut map = extra.under(DIALECT, map);
    if request.stream || map.get("stream").is_some_and(Value::is_boolean) {
        map.insert("stream".to_owned(), json!(request.stream));
    }
    let tools: Vec<Value> = request.tools.iter().filter_map(render_tool).collect();
    if !tools.is_empty() {
        map.insert("tools".to_owned(), Value::Array(tools));
    }
    if let Some(choice) = &request.tool_choice {
        map.insert("tool_choice".to_owned(), render_choice(choice));
    }
    if let Some(parallel) = request.parallel_tool_calls {
        map.insert("parallel_tool_calls".to_owned(), json!(parallel));
    }
    if let Some(count) = request.max_tokens {
        map.insert("max_output_tokens".to_owned(), json!(count));
    }
    for (field, number) in [("temperature", &request.temperature), ("top_p", &request.top_p)] {
        if let Some(number) = number {
            map.insert(field.to_owned(), Value::Number(number.clone()));
        }
    }
    Value::Object(map)
}

/// Standing instructions at the start become `instructions`, later ones are items in their place.
fn put_conversation(map: &mut Map<String, Value>, messages: &[Message]) {
    let is_instruction = |message: &&Message| {
        let other =
            !message.extra.is_of(DIALECT) || message.extra.has_form(DIALECT, Form::ALTERNATE);
        message.role == Role::System && other
    };
    let count = messages.iter().take_while(is_instruction).count();
    let (instructions, input) = messages.split_at_checked(count).unwrap_or((messages, &[]));
    if !instructions.is_empty() {
        let texts: Vec<String> =
            instructions.iter().map(|message| joined_text(&message.parts)).collect();
        map.insert("instructions".to_owned(), json!(texts.join("\n\n")));
    }
    if let [message] = input
        && let ([Part::Text(text)], true) =
            (message.parts.as_slice(), message.extra.has_form(DIALECT, Form::BARE))
    {
        map.insert("input".to_owned(), json!(text.text));
        return;
    }
    let mut items = Vec::new();
    for message in input {
        item::render(message, Purpose::Request, &mut items);
    }
    if !items.is_empty() {
        map.insert("input".to_owned(), Value::Array(items));
    }
}

fn render_tool(tool: &Tool) -> Option<Value> {
    let spec = match tool {
        Tool::Function(spec) => spec,
        Tool::Unknown(unknown) => {
            return (unknown.dialect == DIALECT).then(|| unknown.value.clone());
        }
    };
    let mut map = object(json!({"type": "function", "name": spec.name}));
    if let Some(description) = &spec.description {
        map.insert("description".to_owned(), json!(description));
    }
    if !spec.schema.is_null() {
        map.insert("parameters".to_owned(), spec.schema.clone());
    }
    if !spec.extra.is_of(DIALECT) {
        // Here strict is the default, in every other dialect it is not.
        map.insert("strict".to_owned(), json!(false));
    }
    Some(Value::Object(spec.extra.under(DIALECT, map)))
}
