//! Anthropic messages.
//!
//! Source: Anthropic API reference, `POST /v1/messages` and "Streaming messages". Thinking goes back
//! only with the signature it came with, so thinking read from other dialects is not sent as history.

mod block;
pub(crate) mod reader;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod writer;

use serde_json::{Value, json};

use crate::{Dialect, ProviderError};

const DIALECT: Dialect = Dialect::AnthropicMessages;

/// An error body, also the data of a stream's `error` event:
/// `{"type": "error", "error": {"type", "message"}}`.
pub(crate) fn error(error: &ProviderError) -> Value {
    let kind = if error.kind.is_empty() { "api_error" } else { &error.kind };
    let mut inner = json!({"type": kind, "message": error.message});
    if let (Some(map), Some(code)) = (inner.as_object_mut(), &error.code) {
        map.insert("code".to_owned(), json!(code));
    }
    json!({"type": "error", "error": inner})
}
