//! OpenAI chat completions, and what compatible servers make of it.
//!
//! Source: OpenAI API reference, `POST /v1/chat/completions` (request, response, chunk object).
//! Beyond it: `reasoning_content` (DeepSeek, llama.cpp, vLLM) and `reasoning` (OpenRouter) as thinking,
//! tool arguments sent as an object, calls without `type` or `index`, the legacy `function_call`.

mod message;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;

use serde_json::{Value, json};

use crate::{Dialect, ProviderError};

const DIALECT: Dialect = Dialect::OpenAiChat;

/// An error body: `{"error": {"message", "type", "param", "code"}}`.
pub(crate) fn error(error: &ProviderError) -> Value {
    json!({"error": {"message": error.message, "type": error.kind, "param": null, "code": error.code}})
}
