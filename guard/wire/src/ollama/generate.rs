//! `POST /api/generate`: one prompt, one completion.
//!
//! `system` and `prompt` are a system and a user message. A longer conversation from another dialect is
//! written as one prompt, each message under its speaker's name, because there is nothing else to write
//! it as; tools are left out.

use serde_json::{Map, Value, json};

use super::chat::response_head;
use super::message::{put_images, take_images, take_text};
use super::{options, put_usage, refuse_undone, stop_to, take_stop, take_usage};
use crate::conversation::{Message, Part, Reasoning, Request, Role, joined_text};
use crate::extra::{Extra, Form};
use crate::json::{object, take_filled, take_string};
use crate::response::{Choice, Response};
use crate::{Dialect, WireError};

const DIALECT: Dialect = Dialect::OllamaGenerate;

pub(crate) fn parse_request(mut map: Map<String, Value>) -> Result<Request, WireError> {
    let Some(model) = take_string(&mut map, "model") else {
        return Err(WireError::shape(DIALECT, "model", "missing or not a string"));
    };
    let message = |role, parts| Message { role, parts, extra: Extra::of(DIALECT) };
    let mut messages = Vec::new();
    if let Some(part) = take_text(DIALECT, &mut map, "system") {
        messages.push(message(Role::System, vec![part]));
    }
    // Without a prompt the server loads the model.
    if let Some(part) = take_text(DIALECT, &mut map, "prompt") {
        let mut parts = vec![part];
        parts.extend(take_images(DIALECT, &mut map));
        messages.push(message(Role::User, parts));
    }
    let options = options::take(&mut map);
    Ok(Request {
        model,
        stream: options.stream,
        messages,
        tools: Vec::new(),
        tool_choice: None,
        parallel_tool_calls: None,
        max_tokens: options.max_tokens,
        temperature: options.temperature,
        top_p: options.top_p,
        stop: options.stop,
        extra: Extra::rest(DIALECT, options.form, map),
    })
}

pub(crate) fn render_request(request: &Request) -> Value {
    let mut map = object(json!({"model": request.model}));
    let (system, spoken): (Vec<&Message>, Vec<&Message>) =
        request.messages.iter().partition(|message| message.role == Role::System);
    if !system.is_empty() {
        let texts: Vec<String> = system.iter().map(|message| joined_text(&message.parts)).collect();
        map.insert("system".to_owned(), json!(texts.join("\n\n")));
    }
    if let Some(prompt) = prompt(&spoken) {
        map.insert("prompt".to_owned(), json!(prompt));
    }
    let parts: Vec<&Part> = spoken.iter().flat_map(|message| &message.parts).collect();
    put_images(&mut map, &parts);
    let mut map = request.extra.under(DIALECT, map);
    options::put(DIALECT, &mut map, request);
    Value::Object(map)
}

fn prompt(spoken: &[&Message]) -> Option<String> {
    match spoken {
        [] => None,
        [message] => Some(joined_text(&message.parts)),
        messages => {
            let said = messages.iter().flat_map(|message| {
                let speaker = match message.role {
                    Role::Assistant => "Assistant",
                    Role::Tool => "Tool",
                    Role::User | Role::System => "User",
                };
                message.parts.iter().filter_map(move |part| {
                    let text = match part {
                        Part::Text(text) => text.text.clone(),
                        Part::ToolResult(result) => result.text(),
                        Part::ToolCall(call) => format!("{}({})", call.name, call.arguments),
                        Part::Image(_) | Part::Reasoning(_) | Part::Unknown(_) => return None,
                    };
                    Some(format!("{speaker}: {text}"))
                })
            });
            Some(said.collect::<Vec<_>>().join("\n\n"))
        }
    }
}

pub(crate) fn parse_response(mut map: Map<String, Value>) -> Result<Response, WireError> {
    refuse_undone(DIALECT, &map)?;
    // An image model answers without words; a body with neither is no answer.
    if !map.get("response").is_some_and(Value::is_string) && !map.contains_key("done") {
        return Err(WireError::shape(DIALECT, "response", "missing or not a string"));
    }
    let mut parts = Vec::new();
    if let Some(text) = take_filled(&mut map, "thinking") {
        parts.push(Part::Reasoning(Reasoning { text, extra: Extra::of(DIALECT) }));
    }
    parts.extend(take_text(DIALECT, &mut map, "response"));
    let message = Message { role: Role::Assistant, parts, extra: Extra::of(DIALECT) };
    let stop = take_stop(&mut map);
    Ok(Response {
        id: String::new(),
        model: take_filled(&mut map, "model").unwrap_or_default(),
        choices: vec![Choice { messages: vec![message], stop, extra: Extra::of(DIALECT) }],
        usage: take_usage(DIALECT, &mut map),
        extra: Extra::rest(DIALECT, Form::default(), map),
    })
}

pub(crate) fn render_response(response: &Response) -> Value {
    let mut map = response_head(DIALECT, response);
    let text = response.text();
    if !text.is_empty() || !response.extra.is_of(DIALECT) {
        map.insert("response".to_owned(), json!(text));
    }
    let thinking: String = response.parts().filter_map(Part::as_reasoning).collect();
    if !thinking.is_empty() {
        map.insert("thinking".to_owned(), json!(thinking));
    }
    if let Some(stop) = response.stop() {
        map.insert("done_reason".to_owned(), json!(stop_to(stop)));
    }
    if let Some(usage) = &response.usage {
        put_usage(DIALECT, &mut map, usage);
    }
    Value::Object(response.extra.under(DIALECT, map))
}
