//! The canonical answer of a model.

use serde_json::Value;

use crate::{Extra, Message, Part, Role, ToolCall};

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Response {
    /// The provider's id of the answer; empty where the dialect has none.
    pub id: String,
    /// The model that answered.
    pub model: String,
    /// The alternatives; nearly always one. Inspect all, run the first.
    pub choices: Vec<Choice>,
    /// Tokens used, when the provider said.
    pub usage: Option<Usage>,
    /// Everything else.
    pub extra: Extra,
}

/// One alternative.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    /// The assistant's messages, one except in the responses dialect, where each output item is one.
    pub messages: Vec<Message>,
    /// Why generation ended; `None` when the provider did not say.
    pub stop: Option<StopReason>,
    /// Everything else.
    pub extra: Extra,
}

/// Why generation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The model was done. Some servers say this with tool calls too: look for calls, not for this.
    EndTurn,
    /// The model waits for tool results.
    ToolUse,
    /// The token ceiling was reached: the last part may be cut, also inside tool arguments.
    MaxTokens,
    /// A stop text was generated.
    StopSequence,
    /// The provider's own filter, or a refusal it reports as one.
    ContentFilter,
    /// Another reason in the provider's word.
    Other(String),
}

/// Tokens used.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Usage {
    /// Tokens read, those served from or written to a cache included.
    pub input: u64,
    /// Tokens generated, reasoning included.
    pub output: u64,
    /// Part of `input` that was served from a cache.
    pub cached: Option<u64>,
    /// Part of `output` that was reasoning.
    pub reasoning: Option<u64>,
    /// Everything else.
    pub extra: Extra,
}

impl Response {
    /// An answer with one choice of one assistant message.
    pub fn new(
        id: impl Into<String>,
        model: impl Into<String>,
        parts: Vec<Part>,
        stop: StopReason,
    ) -> Self {
        let choice = Choice {
            messages: vec![Message::new(Role::Assistant, parts)],
            stop: Some(stop),
            extra: Extra::default(),
        };
        Self {
            id: id.into(),
            model: model.into(),
            choices: vec![choice],
            usage: None,
            extra: Extra::default(),
        }
    }

    /// The parts of the first choice, in order.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.choices
            .iter()
            .take(1)
            .flat_map(|choice| &choice.messages)
            .flat_map(|message| &message.parts)
    }

    /// The words of the first choice, joined.
    pub fn text(&self) -> String {
        self.parts().filter_map(Part::as_text).collect()
    }

    /// The tool calls of the first choice, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts().filter_map(Part::as_tool_call)
    }

    /// Why the first choice ended.
    pub fn stop(&self) -> Option<&StopReason> {
        self.choices.first().and_then(|choice| choice.stop.as_ref())
    }
}

/// Reads a provider's error object, wherever its fields are strings, numbers or missing.
pub(crate) fn provider_error(value: &Value) -> crate::ProviderError {
    let text = |name: &str| match value.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let message = value.as_str().map(str::to_owned).or_else(|| text("message"));
    crate::ProviderError {
        kind: text("type").unwrap_or_default(),
        message: message.unwrap_or_else(|| value.to_string()),
        code: text("code"),
    }
}
