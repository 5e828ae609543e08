//! Content blocks, the same in requests and answers.

use serde_json::{Map, Value, json};

use super::DIALECT;
use crate::conversation::{
    Image, ImageSource, Part, Reasoning, Text, ToolCall, ToolResult, Unknown,
};
use crate::extra::{Extra, Form};
use crate::json::{object, put_rest, take_array, take_bool, take_object, take_string};

/// What blocks are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// History: thinking without this provider's signature would be refused.
    Request,
    /// An answer to a client.
    Answer,
}

/// Takes `field`, a string or a list of blocks; any other shape stays.
pub(super) fn take_blocks(map: &mut Map<String, Value>, field: &str, form: &mut Form) -> Vec<Part> {
    if let Some(text) = take_string(map, field) {
        *form = form.and(Form::STRING);
        return vec![Part::Text(Text { text, extra: Extra::of(DIALECT) })];
    }
    match take_array(map, field) {
        Some(blocks) => {
            *form = form.and(Form::LIST);
            blocks.into_iter().map(parse).collect()
        }
        None => Vec::new(),
    }
}

pub(super) fn unknown(value: Value) -> Unknown {
    Unknown { dialect: DIALECT, among_calls: false, value }
}

pub(super) fn parse(value: Value) -> Part {
    let Value::Object(mut map) = value else { return Part::Unknown(unknown(value)) };
    let has = |map: &Map<String, Value>, field: &str| map.get(field).is_some_and(Value::is_string);
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "text" if has(&map, "text") => {
            map.shift_remove("type");
            let text = take_string(&mut map, "text").unwrap_or_default();
            Part::Text(Text { text, extra: rest(map) })
        }
        "image" => parse_image(map),
        "thinking" if has(&map, "thinking") => {
            map.shift_remove("type");
            let text = take_string(&mut map, "thinking").unwrap_or_default();
            Part::Reasoning(Reasoning { text, extra: rest(map) })
        }
        // Thinking the provider encrypted; its `data` and its type stay in the extra fields.
        "redacted_thinking" => Part::Reasoning(Reasoning { text: String::new(), extra: rest(map) }),
        "tool_use"
            if has(&map, "id")
                && has(&map, "name")
                && map.get("input").is_some_and(Value::is_object) =>
        {
            map.shift_remove("type");
            Part::ToolCall(ToolCall {
                id: take_string(&mut map, "id").unwrap_or_default(),
                name: take_string(&mut map, "name").unwrap_or_default(),
                arguments: map.shift_remove("input").unwrap_or_default().to_string(),
                free_form: false,
                extra: rest(map),
            })
        }
        "tool_result" if has(&map, "tool_use_id") => parse_result(map),
        _ => Part::Unknown(unknown(Value::Object(map))),
    }
}

fn rest(map: Map<String, Value>) -> Extra {
    Extra::rest(DIALECT, Form::default(), map)
}

fn parse_image(mut map: Map<String, Value>) -> Part {
    let inner = map.get("source");
    let text = |field: &str| inner?.get(field)?.as_str().map(str::to_owned);
    let (source, known): (_, &[&str]) =
        match (text("type").as_deref(), text("media_type"), text("data"), text("url")) {
            (Some("base64"), Some(media_type), Some(data), _) => {
                (ImageSource::Base64 { media_type, data }, &["type", "media_type", "data"])
            }
            (Some("url"), _, _, Some(url)) => (ImageSource::Url(url), &["type", "url"]),
            _ => return Part::Unknown(unknown(Value::Object(map))),
        };
    map.shift_remove("type");
    let mut inner = take_object(&mut map, "source").unwrap_or_default();
    inner.retain(|field, _| !known.contains(&field.as_str()));
    put_rest(&mut map, "source", inner);
    Part::Image(Image { source, extra: rest(map) })
}

fn parse_result(mut map: Map<String, Value>) -> Part {
    map.shift_remove("type");
    let mut form = Form::default();
    let is_error = map.get("is_error") == Some(&Value::Bool(true));
    if is_error {
        take_bool(&mut map, "is_error");
    }
    Part::ToolResult(ToolResult {
        call_id: take_string(&mut map, "tool_use_id").unwrap_or_default(),
        name: None,
        parts: take_blocks(&mut map, "content", &mut form),
        is_error,
        free_form: false,
        extra: Extra::rest(DIALECT, form, map),
    })
}

/// Writes content under `field`: a string where one plain text allows it, else a list of blocks.
pub(super) fn put_blocks(
    map: &mut Map<String, Value>,
    field: &str,
    extra: &Extra,
    parts: &[&Part],
    purpose: Purpose,
) {
    let content = match parts {
        [Part::Text(text)]
            if text.extra.is_plain(DIALECT) && !extra.has_form(DIALECT, Form::LIST) =>
        {
            json!(text.text)
        }
        [] if extra.has_form(DIALECT, Form::STRING) => json!(""),
        [] if extra.is_of(DIALECT) && !extra.has_form(DIALECT, Form::LIST) => return,
        parts => render_all(parts, purpose),
    };
    map.insert(field.to_owned(), content);
}

pub(super) fn render_all(parts: &[&Part], purpose: Purpose) -> Value {
    Value::Array(parts.iter().filter_map(|part| render(part, purpose)).collect())
}

/// Writes one block; `None` for what this dialect has no block for.
fn render(part: &Part, purpose: Purpose) -> Option<Value> {
    let map = match part {
        // The provider refuses empty text blocks; one it sent itself comes back.
        Part::Text(text) if text.text.is_empty() && !text.extra.is_of(DIALECT) => return None,
        Part::Text(text) => {
            text.extra.under(DIALECT, object(json!({"type": "text", "text": text.text})))
        }
        Part::Image(image) => render_image(image),
        Part::ToolCall(call) => {
            let canonical = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments_object()});
            call.extra.under(DIALECT, object(canonical))
        }
        Part::ToolResult(result) => {
            let mut map = object(json!({"type": "tool_result", "tool_use_id": result.call_id}));
            let parts: Vec<&Part> = result.parts.iter().collect();
            put_blocks(&mut map, "content", &result.extra, &parts, purpose);
            if result.is_error
                || result.extra.fields_for(DIALECT).get("is_error").is_some_and(Value::is_boolean)
            {
                map.insert("is_error".to_owned(), json!(result.is_error));
            }
            result.extra.under(DIALECT, map)
        }
        Part::Reasoning(reasoning) => return render_reasoning(reasoning, purpose),
        Part::Unknown(unknown) => {
            return (unknown.dialect == DIALECT).then(|| unknown.value.clone());
        }
    };
    Some(Value::Object(map))
}

fn render_image(image: &Image) -> Map<String, Value> {
    let mut map = image.extra.fields_for(DIALECT);
    let mut source = take_object(&mut map, "source").unwrap_or_default();
    source.extend(object(match &image.source {
        ImageSource::Base64 { data, .. } => {
            json!({"type": "base64", "media_type": image.source.media_type(), "data": data})
        }
        ImageSource::Url(url) => json!({"type": "url", "url": url}),
    }));
    map.insert("type".to_owned(), json!("image"));
    map.insert("source".to_owned(), Value::Object(source));
    map
}

fn render_reasoning(reasoning: &Reasoning, purpose: Purpose) -> Option<Value> {
    let extra = &reasoning.extra;
    if is_redacted(reasoning) {
        return Some(Value::Object(extra.fields_for(DIALECT)));
    }
    let map = object(json!({"type": "thinking", "thinking": reasoning.text}));
    if extra.is_of(DIALECT) {
        return Some(Value::Object(extra.under(DIALECT, map)));
    }
    let mut map = map;
    map.insert("signature".to_owned(), json!(""));
    (purpose == Purpose::Answer).then_some(Value::Object(map))
}

pub(super) fn is_redacted(reasoning: &Reasoning) -> bool {
    reasoning.extra.is_of(DIALECT)
        && reasoning.extra.fields().get("type") == Some(&json!("redacted_thinking"))
}
