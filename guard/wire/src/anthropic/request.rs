//! The request body.

use serde_json::{Map, Value, json};

use super::DIALECT;
use super::block::{Purpose, put_blocks, render_all, take_blocks, unknown};
use crate::conversation::{Message, Part, Request, Role, Tool, ToolChoice, ToolSpec};
use crate::extra::{Extra, Form};
use crate::json::{
    object, take_array, take_count, take_number, take_object, take_string, take_true,
};
use crate::{WireError, json};

/// Written when a request from another dialect sets no ceiling, because this one requires it.
const DEFAULT_MAX_TOKENS: u64 = 4096;

pub(crate) fn parse(mut map: Map<String, Value>) -> Result<Request, WireError> {
    let Some(model) = take_string(&mut map, "model") else {
        return Err(WireError::shape(DIALECT, "model", "missing or not a string"));
    };
    let Some(spoken) = take_array(&mut map, "messages") else {
        return Err(WireError::shape(DIALECT, "messages", "missing or not an array"));
    };
    let mut messages: Vec<Message> = take_system(&mut map).into_iter().collect();
    for (index, value) in spoken.into_iter().enumerate() {
        let message = parse_message(value)
            .map_err(|error| error.within(format_args!("messages[{index}]")))?;
        messages.push(message);
    }
    let (tool_choice, parallel_tool_calls) = take_choice(&mut map);
    Ok(Request {
        model,
        stream: take_true(&mut map, "stream"),
        messages,
        tools: take_tools(&mut map),
        tool_choice,
        parallel_tool_calls,
        max_tokens: take_count(&mut map, "max_tokens"),
        temperature: take_number(&mut map, "temperature"),
        top_p: take_number(&mut map, "top_p"),
        stop: take_stops(&mut map),
        extra: Extra::rest(DIALECT, Form::default(), map),
    })
}

fn take_system(map: &mut Map<String, Value>) -> Option<Message> {
    let system = map.get("system")?;
    if system.as_array().is_none_or(Vec::is_empty) && !system.is_string() {
        return None;
    }
    let mut form = Form::default();
    let parts = take_blocks(map, "system", &mut form);
    Some(Message { role: Role::System, parts, extra: Extra::rest(DIALECT, form, Map::new()) })
}

fn take_stops(map: &mut Map<String, Value>) -> Vec<String> {
    if !map.get("stop_sequences").is_some_and(Value::is_array) {
        return Vec::new();
    }
    json::take_strings(map, "stop_sequences").map(|(texts, _)| texts).unwrap_or_default()
}

fn parse_message(value: Value) -> Result<Message, WireError> {
    let found = json::kind(&value);
    let Value::Object(mut map) = value else {
        return Err(WireError::shape(DIALECT, "", format!("expected an object, found {found}")));
    };
    let Some(role) = take_string(&mut map, "role") else {
        return Err(WireError::shape(DIALECT, "role", "missing or not a string"));
    };
    let (role, mut form) = match role.as_str() {
        "user" => (Role::User, Form::default()),
        "assistant" => (Role::Assistant, Form::default()),
        // Among the messages rather than in the system field.
        "system" => (Role::System, Form::ALTERNATE),
        other => return Err(WireError::shape(DIALECT, "role", format!("unknown role {other:?}"))),
    };
    let parts = take_blocks(&mut map, "content", &mut form);
    Ok(Message { role, parts, extra: Extra::rest(DIALECT, form, map) })
}

fn take_tools(map: &mut Map<String, Value>) -> Vec<Tool> {
    if map.get("tools").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    take_array(map, "tools").unwrap_or_default().into_iter().map(parse_tool).collect()
}

fn parse_tool(value: Value) -> Tool {
    let Value::Object(mut map) = value else { return Tool::Unknown(unknown(value)) };
    let of_provider = map.get("type").is_some_and(|kind| kind.as_str() != Some("custom"));
    if of_provider || !map.get("name").is_some_and(Value::is_string) {
        return Tool::Unknown(unknown(Value::Object(map)));
    }
    let name = take_string(&mut map, "name").unwrap_or_default();
    let description = take_string(&mut map, "description");
    let schema = take_object(&mut map, "input_schema").map(Value::Object).unwrap_or_default();
    Tool::Function(ToolSpec {
        name,
        description,
        schema,
        extra: Extra::rest(DIALECT, Form::default(), map),
    })
}

/// `tool_choice`, when nothing but what is known stands in it.
fn take_choice(map: &mut Map<String, Value>) -> (Option<ToolChoice>, Option<bool>) {
    let parsed = map.get("tool_choice").and_then(|value| {
        let fields = value.as_object()?;
        let name = fields.get("name").and_then(Value::as_str);
        let choice = match (fields.get("type")?.as_str()?, name) {
            ("auto", None) => ToolChoice::Auto,
            ("any", None) => ToolChoice::Required,
            ("none", None) => ToolChoice::None,
            ("tool", Some(name)) => ToolChoice::Named(name.to_owned()),
            _ => return None,
        };
        let parallel =
            fields.get("disable_parallel_tool_use").and_then(Value::as_bool).map(|single| !single);
        (render_choice(&choice, parallel) == *value).then_some((choice, parallel))
    });
    let Some((choice, parallel)) = parsed else { return (None, None) };
    map.shift_remove("tool_choice");
    (Some(choice), parallel)
}

fn render_choice(choice: &ToolChoice, parallel: Option<bool>) -> Value {
    let mut map = object(match choice {
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Named(name) => json!({"type": "tool", "name": name}),
    });
    if let Some(parallel) = parallel {
        map.insert("disable_parallel_tool_use".to_owned(), json!(!parallel));
    }
    Value::Object(map)
}

pub(crate) fn render(request: &Request) -> Value {
    let same = request.extra.is_of(DIALECT);
    let mut map = object(json!({"model": request.model}));
    match request.max_tokens {
        Some(count) => map.insert("max_tokens".to_owned(), json!(count)),
        None if same => None,
        None => map.insert("max_tokens".to_owned(), json!(DEFAULT_MAX_TOKENS)),
    };
    let (system, spoken) = split_system(&request.messages);
    put_system(&mut map, &system);
    map.insert("messages".to_owned(), render_messages(&spoken));
    let mut map = request.extra.under(DIALECT, map);
    if request.stream || map.get("stream").is_some_and(Value::is_boolean) {
        map.insert("stream".to_owned(), json!(request.stream));
    }
    let tools: Vec<Value> = request.tools.iter().filter_map(render_tool).collect();
    let single = request.parallel_tool_calls == Some(false) && !tools.is_empty();
    if !tools.is_empty() {
        map.insert("tools".to_owned(), Value::Array(tools));
    }
    let parallel = request.parallel_tool_calls.filter(|_| same || single);
    if let Some(choice) = &request.tool_choice {
        map.insert("tool_choice".to_owned(), render_choice(choice, parallel));
    } else if single {
        map.insert("tool_choice".to_owned(), render_choice(&ToolChoice::Auto, parallel));
    }
    for (field, number) in [("temperature", &request.temperature), ("top_p", &request.top_p)] {
        if let Some(number) = number {
            map.insert(field.to_owned(), Value::Number(number.clone()));
        }
    }
    if !request.stop.is_empty() {
        map.insert("stop_sequences".to_owned(), json!(request.stop));
    }
    Value::Object(map)
}

/// Splits off the standing instructions that go into the system field: those of this dialect that were
/// there, those of others that stand before everything else. Later ones keep their place.
fn split_system(messages: &[Message]) -> (Vec<&Message>, Vec<&Message>) {
    let mut leading = true;
    messages.iter().partition(|message| {
        let system = message.role == Role::System;
        leading &= system;
        let inline = message.extra.has_form(DIALECT, Form::ALTERNATE);
        system && !inline && (leading || message.extra.is_of(DIALECT))
    })
}

fn put_system(map: &mut Map<String, Value>, system: &[&Message]) {
    let Some(first) = system.first() else { return };
    let parts: Vec<&Part> = system.iter().flat_map(|message| &message.parts).collect();
    let all_empty = parts.iter().all(|part| part.as_text().is_some_and(str::is_empty));
    if all_empty && !first.extra.is_of(DIALECT) {
        return;
    }
    put_blocks(map, "system", &first.extra, &parts, Purpose::Request);
}

fn render_messages(spoken: &[&Message]) -> Value {
    // Tool results must open the user turn behind the calls, so what the user adds joins them.
    let joins = |left: &&Message, right: &&Message| {
        let apart = left.extra.is_of(DIALECT) && right.extra.is_of(DIALECT);
        let pair = (left.role, right.role);
        let one_turn = matches!(
            pair,
            (Role::Assistant, Role::Assistant) | (Role::Tool, Role::Tool | Role::User)
        );
        one_turn && !apart
    };
    let turns = spoken.chunk_by(joins).filter_map(|turn| {
        let first = turn.first()?;
        let role = match first.role {
            Role::System => "system",
            Role::User | Role::Tool => "user",
            Role::Assistant => "assistant",
        };
        let parts: Vec<&Part> = turn.iter().flat_map(|message| &message.parts).collect();
        let mut map = object(json!({"role": role}));
        put_blocks(&mut map, "content", &first.extra, &parts, Purpose::Request);
        let empty =
            map.get("content").is_none_or(|content| *content == json!("") || *content == json!([]));
        if empty && !first.extra.is_of(DIALECT) {
            // The provider refuses a message without content.
            return None;
        }
        Some(Value::Object(first.extra.under(DIALECT, map)))
    });
    Value::Array(turns.collect())
}

fn render_tool(tool: &Tool) -> Option<Value> {
    let spec = match tool {
        Tool::Function(spec) => spec,
        Tool::Unknown(unknown) => {
            return (unknown.dialect == DIALECT).then(|| unknown.value.clone());
        }
    };
    let mut map = object(json!({"name": spec.name}));
    if let Some(description) = &spec.description {
        map.insert("description".to_owned(), json!(description));
    }
    if !spec.schema.is_null() {
        map.insert("input_schema".to_owned(), spec.schema.clone());
    } else if !spec.extra.is_of(DIALECT) {
        map.insert("input_schema".to_owned(), json!({"type": "object", "properties": {}}));
    }
    Some(Value::Object(spec.extra.under(DIALECT, map)))
}

/// An answer's blocks, always as a list.
pub(super) fn render_answer(messages: &[Message]) -> Value {
    let parts: Vec<&Part> = messages.iter().flat_map(|message| &message.parts).collect();
    render_all(&parts, Purpose::Answer)
}
