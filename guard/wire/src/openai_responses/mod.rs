//! OpenAI responses.
//!
//! Source: OpenAI API reference, `POST /v1/responses` and its streaming events. The conversation is a
//! list of items; each item is one [`crate::Message`] here. Thinking goes back only as the item it came
//! as, so thinking read from other dialects is not sent as history.

mod item;
pub(crate) mod reader;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod writer;

use serde_json::{Value, json};

use crate::{Dialect, ProviderError};

const DIALECT: Dialect = Dialect::OpenAiResponses;

/// A stream's `error` event: `{"type": "error", "code", "message", "param"}`.
fn error_event(error: &ProviderError) -> Value {
    let code = error.code.clone().or_else(|| (!error.kind.is_empty()).then(|| error.kind.clone()));
    json!({"type": "error", "code": code, "message": error.message, "param": null})
}
