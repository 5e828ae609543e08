//! The canonical conversation: what a person, a model and tools said, in order.
//!
//! Every node carries an [`Extra`] for what its dialect said beyond this. Part payloads are structs
//! of their own so that functions can take exactly the part they understand.

use base64::Engine as _;
use serde_json::{Number, Value};

use crate::extra::{Extra, Form};
use crate::{Dialect, json};

/// One call of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The model asked for, in the provider's own naming.
    pub model: String,
    /// Whether the answer shall be streamed.
    pub stream: bool,
    /// The conversation, system prompt included, in order. Dialects with a system field of their own
    /// collect the [`Role::System`] messages there.
    pub messages: Vec<Message>,
    /// Tools the model may call.
    pub tools: Vec<Tool>,
    /// Whether and which tool must be called.
    pub tool_choice: Option<ToolChoice>,
    /// Whether several calls in one turn are allowed.
    pub parallel_tool_calls: Option<bool>,
    /// Ceiling of generated tokens. Anthropic requires one; its renderer writes 4096 without.
    pub max_tokens: Option<u64>,
    /// Sampling temperature, as the number that was sent.
    pub temperature: Option<Number>,
    /// Nucleus sampling.
    pub top_p: Option<Number>,
    /// Texts that end generation.
    pub stop: Vec<String>,
    /// Everything else.
    pub extra: Extra,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Standing instructions (`system`, `developer`).
    System,
    /// The person, or a program in their place.
    User,
    /// The model.
    Assistant,
    /// A tool's answer where the dialect has a role for it. Anthropic sends results as user messages,
    /// so renderers accept [`Part::ToolResult`] in either.
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// Everything else.
    pub extra: Extra,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Words.
    Text(Text),
    /// A picture.
    Image(Image),
    /// The model asks for a tool.
    ToolCall(ToolCall),
    /// What a tool answered.
    ToolResult(ToolResult),
    /// The model's thinking.
    Reasoning(Reasoning),
    /// Something this crate does not know; kept, and written only in its own dialect.
    Unknown(Unknown),
}

/// Words, also a model's refusal.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Text {
    /// The words.
    pub text: String,
    /// Everything else (cache marks, annotations, citations).
    pub extra: Extra,
}

/// A picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// Where its bytes are.
    pub source: ImageSource,
    /// Everything else (detail, cache marks).
    pub extra: Extra,
}

/// Where an image's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// In the message, as base64 text.
    Base64 {
        /// Such as `image/png`; empty where the dialect does not say (Ollama) and the bytes do not tell.
        media_type: String,
        /// Standard base64, as sent.
        data: String,
    },
    /// At an address the provider fetches.
    Url(String),
}

/// The model asks for a tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolCall {
    /// Ties the result to the call; empty where the dialect has none (Ollama).
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the raw text sent, JSON unless [`ToolCall::free_form`]. Hostile, possibly cut.
    pub arguments: String,
    /// A custom tool: the arguments are plain text.
    pub free_form: bool,
    /// Everything else.
    pub extra: Extra,
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// [`ToolCall::id`] of the call.
    pub call_id: String,
    /// Name of the tool, where the dialect says it.
    pub name: Option<String>,
    /// The answer.
    pub parts: Vec<Part>,
    /// The tool failed. Dialects without such a field say it in the text alone.
    pub is_error: bool,
    /// The call was of a custom tool.
    pub free_form: bool,
    /// Everything else.
    pub extra: Extra,
}

/// The model's thinking. Signatures and encrypted thinking are in `extra`, because they mean
/// something to one provider only and must go back to it unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reasoning {
    /// Readable thinking or its summary; empty when the provider hides it.
    pub text: String,
    /// Everything else.
    pub extra: Extra,
}

/// A piece of a dialect that has no canonical form.
#[derive(Debug, Clone, PartialEq)]
pub struct Unknown {
    /// The dialect it came in.
    pub dialect: Dialect,
    /// It stood among the tool calls rather than in the content.
    pub among_calls: bool,
    /// The piece as sent.
    pub value: Value,
}

/// A tool offered to the model.
#[derive(Debug, Clone, PartialEq)]
pub enum Tool {
    /// A function with a JSON Schema.
    Function(ToolSpec),
    /// A provider's own tool, or a kind this crate does not know.
    Unknown(Unknown),
}

/// A function the model may call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: Option<String>,
    /// JSON Schema of its arguments; `Null` when none was given.
    pub schema: Value,
    /// Everything else (`strict`, cache marks).
    pub extra: Extra,
}

/// Whether and which tool must be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No tool.
    None,
    /// Some tool.
    Required,
    /// This tool.
    Named(String),
}

impl Message {
    /// A message of these parts.
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts, extra: Extra::default() }
    }

    /// A message of one text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::new(role, vec![Part::text(text)])
    }

    /// A message with one tool result.
    pub fn tool_result(
        call_id: impl Into<String>,
        name: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        let result = ToolResult {
            call_id: call_id.into(),
            name: Some(name.into()),
            parts: vec![Part::text(text)],
            ..ToolResult::default()
        };
        Self::new(Role::Tool, vec![Part::ToolResult(result)])
    }
}

impl Part {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text { text: text.into(), extra: Extra::default() })
    }

    /// The words, when it is a text.
    pub fn as_text(&self) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        Some(&text.text)
    }

    /// The readable thinking, when it is some.
    pub fn as_reasoning(&self) -> Option<&str> {
        let Self::Reasoning(reasoning) = self else { return None };
        Some(&reasoning.text)
    }

    /// The call, when it is one.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        let Self::ToolCall(call) = self else { return None };
        Some(call)
    }

    /// An image in the message.
    pub fn image(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        let source = ImageSource::Base64 { media_type: media_type.into(), data: base64.into() };
        Self::Image(Image { source, extra: Extra::default() })
    }

    /// A tool call with JSON arguments.
    pub fn tool_call(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self::ToolCall(ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            ..ToolCall::default()
        })
    }
}

impl ToolCall {
    /// The arguments as JSON; an empty text counts as no arguments, `{}`. Duplicate keys are an error.
    pub fn arguments_value(&self) -> Result<Value, serde_json::Error> {
        if self.arguments.trim().is_empty() {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        json::read_text(&self.arguments)
    }
}

impl ToolCall {
    /// Arguments for dialects that want an object. Text that is not one is wrapped, never dropped: a
    /// model must see its own mistake in the history.
    pub(crate) fn arguments_object(&self) -> Value {
        if self.free_form {
            return serde_json::json!({"input": self.arguments});
        }
        match self.arguments_value() {
            Ok(value) if value.is_object() => value,
            Ok(_) | Err(_) => serde_json::json!({"unparsed_arguments": self.arguments}),
        }
    }
}

impl ToolResult {
    /// The text parts, joined by line feeds.
    pub fn text(&self) -> String {
        joined_text(&self.parts)
    }
}

/// The text parts, joined by line feeds.
pub(crate) fn joined_text(parts: &[Part]) -> String {
    let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
    texts.join("\n")
}

impl ImageSource {
    /// Reads an address, a `data:` URL (RFC 2397, base64) as bytes in the message.
    pub(crate) fn from_url(url: String) -> Self {
        let split = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match split {
            Some((media_type, data)) => {
                Self::Base64 { media_type: media_type.to_owned(), data: data.to_owned() }
            }
            None => Self::Url(url),
        }
    }

    /// The address, a `data:` URL for bytes in the message.
    pub(crate) fn to_url(&self) -> String {
        match self {
            Self::Base64 { data, .. } => format!("data:{};base64,{data}", self.media_type()),
            Self::Url(url) => url.clone(),
        }
    }

    /// The media type, read from the first bytes when none was given.
    pub fn media_type(&self) -> &str {
        let Self::Base64 { media_type, data } = self else { return "" };
        if !media_type.is_empty() {
            return media_type;
        }
        let head = data.get(..16).unwrap_or(data);
        match base64::engine::general_purpose::STANDARD.decode(head).unwrap_or_default().as_slice()
        {
            [0x89, b'P', b'N', b'G', ..] => "image/png",
            [0xFF, 0xD8, ..] => "image/jpeg",
            [b'G', b'I', b'F', b'8', ..] => "image/gif",
            [b'R', b'I', b'F', b'F', ..] => "image/webp",
            _ => "",
        }
    }
}

/// Groups messages into turns for `dialect`: neighbours of one role that were not already separate in
/// that dialect are one turn, so that parallel calls read from one dialect stay together in another.
pub(crate) fn turns(messages: &[Message], dialect: Dialect) -> impl Iterator<Item = &[Message]> {
    messages.chunk_by(move |left, right| {
        left.role == right.role
            && matches!(left.role, Role::Assistant | Role::Tool)
            && !(left.extra.is_of(dialect) && right.extra.is_of(dialect))
    })
}

/// Whether a text is a refusal in `dialect`.
pub(crate) fn is_refusal(text: &Text, dialect: Dialect) -> bool {
    text.extra.has_form(dialect, Form::REFUSAL)
}
