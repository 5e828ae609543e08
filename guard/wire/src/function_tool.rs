//! Function tools as OpenAI chat and Ollama chat both send them:
//! `{"type": "function", "function": {"name", "description", "parameters"}}`.

use serde_json::{Map, Value, json};

use crate::Dialect;
use crate::conversation::{Tool, ToolSpec, Unknown};
use crate::extra::{Extra, Form};
use crate::json::{object, put_rest, take_array, take_exact, take_object, take_string};

/// Takes `tools`. An empty list stays where it is.
pub(crate) fn take(dialect: Dialect, map: &mut Map<String, Value>) -> Vec<Tool> {
    if map.get("tools").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    let tools = take_array(map, "tools").unwrap_or_default();
    tools.into_iter().map(|value| parse(dialect, value)).collect()
}

fn parse(dialect: Dialect, value: Value) -> Tool {
    let unknown = |value| Tool::Unknown(Unknown { dialect, among_calls: false, value });
    let Value::Object(mut map) = value else { return unknown(value) };
    let named =
        map.get("function").and_then(|function| function.get("name")).is_some_and(Value::is_string);
    if !named || !take_exact(&mut map, "type", "function") {
        return unknown(Value::Object(map));
    }
    let mut function = take_object(&mut map, "function").unwrap_or_default();
    let name = take_string(&mut function, "name").unwrap_or_default();
    let description = take_string(&mut function, "description");
    let schema = take_object(&mut function, "parameters").map(Value::Object).unwrap_or_default();
    put_rest(&mut map, "function", function);
    Tool::Function(ToolSpec {
        name,
        description,
        schema,
        extra: Extra::rest(dialect, Form::default(), map),
    })
}

/// Puts `tools`, unless there are none this dialect knows.
pub(crate) fn put(dialect: Dialect, map: &mut Map<String, Value>, tools: &[Tool]) {
    let tools: Vec<Value> = tools.iter().filter_map(|tool| render(dialect, tool)).collect();
    if !tools.is_empty() {
        map.insert("tools".to_owned(), Value::Array(tools));
    }
}

fn render(dialect: Dialect, tool: &Tool) -> Option<Value> {
    let spec = match tool {
        Tool::Function(spec) => spec,
        Tool::Unknown(unknown) => {
            return (unknown.dialect == dialect).then(|| unknown.value.clone());
        }
    };
    let mut map = spec.extra.fields_for(dialect);
    let mut function = take_object(&mut map, "function").unwrap_or_default();
    function.extend(object(json!({"name": spec.name})));
    if let Some(description) = &spec.description {
        function.insert("description".to_owned(), json!(description));
    }
    if !spec.schema.is_null() {
        function.insert("parameters".to_owned(), spec.schema.clone());
    }
    map.insert("type".to_owned(), json!("function"));
    map.insert("function".to_owned(), Value::Object(function));
    Some(Value::Object(map))
}
