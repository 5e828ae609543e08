//! Token counts as both OpenAI dialects send them, under different names.

use serde_json::{Map, Value, json};

use crate::Dialect;
use crate::extra::{Extra, Form};
use crate::json::{take_count, take_object};
use crate::response::Usage;

/// The names of one dialect's `usage`.
pub(crate) struct Names {
    dialect: Dialect,
    input: &'static str,
    output: &'static str,
    input_details: &'static str,
    output_details: &'static str,
}

pub(crate) const CHAT: Names = Names {
    dialect: Dialect::OpenAiChat,
    input: "prompt_tokens",
    output: "completion_tokens",
    input_details: "prompt_tokens_details",
    output_details: "completion_tokens_details",
};

pub(crate) const RESPONSES: Names = Names {
    dialect: Dialect::OpenAiResponses,
    input: "input_tokens",
    output: "output_tokens",
    input_details: "input_tokens_details",
    output_details: "output_tokens_details",
};

impl Names {
    pub(crate) fn parse(&self, mut map: Map<String, Value>) -> Usage {
        let input = take_count(&mut map, self.input);
        let output = take_count(&mut map, self.output);
        let cached = take_detail(&mut map, self.input_details, "cached_tokens");
        let reasoning = take_detail(&mut map, self.output_details, "reasoning_tokens");
        let mut form = Form::default();
        if input.is_none() {
            form = form.and(Form::ABSENT);
        }
        if output.is_none() {
            form = form.and(Form::BARE);
        }
        Usage {
            input: input.unwrap_or_default(),
            output: output.unwrap_or_default(),
            cached,
            reasoning,
            extra: Extra::rest(self.dialect, form, map),
        }
    }

    pub(crate) fn render(&self, usage: &Usage) -> Value {
        let extra = &usage.extra;
        let mut map = extra.fields_for(self.dialect);
        if usage.input != 0 || !extra.has_form(self.dialect, Form::ABSENT) {
            map.insert(self.input.to_owned(), json!(usage.input));
        }
        if usage.output != 0 || !extra.has_form(self.dialect, Form::BARE) {
            map.insert(self.output.to_owned(), json!(usage.output));
        }
        if !extra.is_of(self.dialect) {
            map.insert("total_tokens".to_owned(), json!(usage.input.saturating_add(usage.output)));
        }
        put_detail(&mut map, self.input_details, "cached_tokens", usage.cached);
        put_detail(&mut map, self.output_details, "reasoning_tokens", usage.reasoning);
        Value::Object(map)
    }
}

/// Takes a count inside an object; the emptied object stays, so that it is written again.
pub(crate) fn take_detail(map: &mut Map<String, Value>, outer: &str, inner: &str) -> Option<u64> {
    match map.get_mut(outer) {
        Some(Value::Object(details)) => take_count(details, inner),
        _ => None,
    }
}

/// Puts a count inside an object.
pub(crate) fn put_detail(
    map: &mut Map<String, Value>,
    outer: &str,
    inner: &str,
    count: Option<u64>,
) {
    let Some(count) = count else { return };
    let mut details = take_object(map, outer).unwrap_or_default();
    details.insert(inner.to_owned(), json!(count));
    map.insert(outer.to_owned(), Value::Object(details));
}
