//! `POST /api/chat`: the request and the whole answer.

use serde_json::{Map, Value, json};

use super::message;
use super::{NO_TIME, options, put_usage, refuse_undone, stop_to, take_stop, take_usage};
use crate::conversation::{Message, Part, Request, Role};
use crate::extra::{Extra, Form};
use crate::json::{object, take_array, take_exact, take_filled, take_object, take_string};
use crate::response::{Choice, Response};
use crate::{Dialect, WireError, function_tool};

const DIALECT: Dialect = Dialect::OllamaChat;

pub(crate) fn parse_request(mut map: Map<String, Value>) -> Result<Request, WireError> {
    let Some(model) = take_string(&mut map, "model") else {
        return Err(WireError::shape(DIALECT, "model", "missing or not a string"));
    };
    // Without messages the server loads the model.
    let absent = map.get("messages").is_none_or(Value::is_null);
    let messages = take_array(&mut map, "messages").unwrap_or_default();
    if map.get("messages").is_some_and(|messages| !messages.is_null()) {
        return Err(WireError::shape(DIALECT, "messages", "not an array"));
    }
    let messages = messages
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            message::parse(value).map_err(|error| error.within(format_args!("messages[{index}]")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let options = options::take(&mut map);
    let form = if absent { options.form.and(Form::ABSENT) } else { options.form };
    Ok(Request {
        model,
        stream: options.stream,
        messages,
        tools: function_tool::take(DIALECT, &mut map),
        tool_choice: None,
        parallel_tool_calls: None,
        max_tokens: options.max_tokens,
        temperature: options.temperature,
        top_p: options.top_p,
        stop: options.stop,
        extra: Extra::rest(DIALECT, form, map),
    })
}

pub(crate) fn render_request(request: &Request) -> Value {
    let mut map = object(json!({"model": request.model}));
    if !request.messages.is_empty() || !request.extra.has_form(DIALECT, Form::ABSENT) {
        map.insert("messages".to_owned(), message::render_all(&request.messages));
    }
    let mut map = request.extra.under(DIALECT, map);
    options::put(DIALECT, &mut map, request);
    function_tool::put(DIALECT, &mut map, &request.tools);
    Value::Object(map)
}

pub(crate) fn parse_response(mut map: Map<String, Value>) -> Result<Response, WireError> {
    refuse_undone(DIALECT, &map)?;
    let Some(mut message) = take_object(&mut map, "message") else {
        return Err(WireError::shape(DIALECT, "message", "missing or not an object"));
    };
    let form =
        if take_exact(&mut message, "role", "assistant") { Form::default() } else { Form::BARE };
    let message = message::parse_spoken(message, Role::Assistant, form);
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
    let choice = response.choices.first();
    let messages = choice.map_or(&[][..], |choice| &choice.messages);
    let mut map = response_head(DIALECT, response);
    map.insert("message".to_owned(), render_message(messages));
    if let Some(stop) = choice.and_then(|choice| choice.stop.as_ref()) {
        map.insert("done_reason".to_owned(), json!(stop_to(stop)));
    }
    if let Some(usage) = &response.usage {
        put_usage(DIALECT, &mut map, usage);
    }
    Value::Object(response.extra.under(DIALECT, map))
}

/// The fields both answers begin with.
pub(super) fn response_head(dialect: Dialect, response: &Response) -> Map<String, Value> {
    let same = response.extra.is_of(dialect);
    let mut map = Map::new();
    if !response.model.is_empty() || !same {
        map.insert("model".to_owned(), json!(response.model));
    }
    if !same {
        map.insert("created_at".to_owned(), json!(NO_TIME));
        map.insert("done".to_owned(), json!(true));
    }
    map
}

fn render_message(messages: &[Message]) -> Value {
    let parts: Vec<&Part> = messages.iter().flat_map(|message| &message.parts).collect();
    let nothing = Extra::default();
    let extra = messages.first().map_or(&nothing, |message| &message.extra);
    let mut map = message::render_spoken(Role::Assistant, extra, &parts, "");
    if extra.has_form(DIALECT, Form::BARE) {
        match extra.fields().get("role") {
            Some(role) => map.insert("role".to_owned(), role.clone()),
            None => map.shift_remove("role"),
        };
    }
    Value::Object(map)
}
