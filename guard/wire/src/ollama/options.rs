//! What both requests share: `stream`, which is on unless said otherwise, and `options`.

use serde_json::{Map, Number, Value, json};

use crate::Dialect;
use crate::conversation::Request;
use crate::extra::Form;
use crate::json::{take_count, take_number, take_object, take_strings};

/// The shared fields, taken.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) stream: bool,
    pub(super) max_tokens: Option<u64>,
    pub(super) temperature: Option<Number>,
    pub(super) top_p: Option<Number>,
    pub(super) stop: Vec<String>,
    pub(super) form: Form,
}

pub(super) fn take(map: &mut Map<String, Value>) -> Options {
    let mut taken =
        Options { stream: map.get("stream") != Some(&Value::Bool(false)), ..Options::default() };
    // The emptied object stays, so that it is written again.
    if let Some(Value::Object(options)) = map.get_mut("options") {
        taken.max_tokens = take_count(options, "num_predict");
        taken.temperature = take_number(options, "temperature");
        taken.top_p = take_number(options, "top_p");
        if let Some((texts, bare)) = take_strings(options, "stop") {
            taken.stop = texts;
            taken.form = if bare { Form::STRING } else { Form::default() };
        }
    }
    taken
}

/// Puts the shared fields over what the request's own fields are.
pub(super) fn put(dialect: Dialect, map: &mut Map<String, Value>, request: &Request) {
    if !request.stream
        || map.get("stream").is_some_and(Value::is_boolean)
        || !request.extra.is_of(dialect)
    {
        map.insert("stream".to_owned(), json!(request.stream));
    }
    let mut options = Map::new();
    if let Some(count) = request.max_tokens {
        options.insert("num_predict".to_owned(), json!(count));
    }
    for (field, number) in [("temperature", &request.temperature), ("top_p", &request.top_p)] {
        if let Some(number) = number {
            options.insert(field.to_owned(), Value::Number(number.clone()));
        }
    }
    match request.stop.as_slice() {
        [] => {}
        [stop] if request.extra.has_form(dialect, Form::STRING) => {
            options.insert("stop".to_owned(), json!(stop));
        }
        stops => {
            options.insert("stop".to_owned(), json!(stops));
        }
    }
    if !options.is_empty() {
        let mut whole = take_object(map, "options").unwrap_or_default();
        whole.extend(options);
        map.insert("options".to_owned(), Value::Object(whole));
    }
}
