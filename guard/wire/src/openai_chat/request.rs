//! The request body.

use serde_json::{Map, Value, json};

use super::{DIALECT, message};
use crate::conversation::{Request, ToolChoice, turns};
use crate::extra::{Extra, Form};
use crate::json::{
    take_array, take_bool, take_count, take_number, take_string, take_strings, take_true,
};
use crate::{WireError, function_tool};

pub(crate) fn parse(mut map: Map<String, Value>) -> Result<Request, WireError> {
    let Some(model) = take_string(&mut map, "model") else {
        return Err(WireError::shape(DIALECT, "model", "missing or not a string"));
    };
    let Some(messages) = take_array(&mut map, "messages") else {
        return Err(WireError::shape(DIALECT, "messages", "missing or not an array"));
    };
    let messages = messages
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            message::parse(value).map_err(|error| error.within(format_args!("messages[{index}]")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut form = Form::default();
    let max_tokens = match take_count(&mut map, "max_completion_tokens") {
        Some(count) => {
            form = form.and(Form::ALTERNATE);
            Some(count)
        }
        None => take_count(&mut map, "max_tokens"),
    };
    let stop = match take_strings(&mut map, "stop") {
        Some((texts, bare)) => {
            form = if bare { form.and(Form::STRING) } else { form };
            texts
        }
        None => Vec::new(),
    };
    Ok(Request {
        model,
        stream: take_true(&mut map, "stream"),
        messages,
        tools: function_tool::take(DIALECT, &mut map),
        tool_choice: take_choice(&mut map),
        parallel_tool_calls: take_bool(&mut map, "parallel_tool_calls"),
        max_tokens,
        temperature: take_number(&mut map, "temperature"),
        top_p: take_number(&mut map, "top_p"),
        stop,
        extra: Extra::rest(DIALECT, form, map),
    })
}

fn take_choice(map: &mut Map<String, Value>) -> Option<ToolChoice> {
    let choice = match map.get("tool_choice")? {
        Value::String(word) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return None,
        },
        Value::Object(choice) => {
            let name = choice.get("function")?.get("name")?.as_str()?;
            if choice != json!({"type": "function", "function": {"name": name}}).as_object()? {
                return None;
            }
            ToolChoice::Named(name.to_owned())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    map.shift_remove("tool_choice");
    Some(choice)
}

pub(crate) fn render(request: &Request) -> Value {
    let extra = &request.extra;
    let mut map = Map::new();
    map.insert("model".to_owned(), json!(request.model));
    let messages: Vec<Value> =
        turns(&request.messages, DIALECT).flat_map(message::render_turn).collect();
    map.insert("messages".to_owned(), Value::Array(messages));
    map.extend(extra.fields_for(DIALECT));
    if request.stream || map.get("stream").is_some_and(Value::is_boolean) {
        map.insert("stream".to_owned(), json!(request.stream));
    }
    function_tool::put(DIALECT, &mut map, &request.tools);
    if let Some(choice) = &request.tool_choice {
        map.insert("tool_choice".to_owned(), render_choice(choice));
    }
    if let Some(parallel) = request.parallel_tool_calls {
        map.insert("parallel_tool_calls".to_owned(), json!(parallel));
    }
    if let Some(count) = request.max_tokens {
        let newer = extra.has_form(DIALECT, Form::ALTERNATE);
        let field = if newer { "max_completion_tokens" } else { "max_tokens" };
        map.insert(field.to_owned(), json!(count));
    }
    for (field, number) in [("temperature", &request.temperature), ("top_p", &request.top_p)] {
        if let Some(number) = number {
            map.insert(field.to_owned(), Value::Number(number.clone()));
        }
    }
    match request.stop.as_slice() {
        [] => {}
        [stop] if extra.has_form(DIALECT, Form::STRING) => {
            map.insert("stop".to_owned(), json!(stop));
        }
        stops => {
            map.insert("stop".to_owned(), json!(stops));
        }
    }
    Value::Object(map)
}

fn render_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
    }
}
