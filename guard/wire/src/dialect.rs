//! The dialects and the way into and out of each.

use std::fmt;

use serde_json::{Map, Value};

use crate::response::provider_error;
use crate::stream::{Reader, Writer};
use crate::{
    ProviderError, Request, Response, WireError, anthropic, json, ollama, openai_chat,
    openai_responses,
};

/// A provider's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI `POST /v1/chat/completions` and the many servers that speak it.
    OpenAiChat,
    /// OpenAI `POST /v1/responses`.
    OpenAiResponses,
    /// Anthropic `POST /v1/messages`.
    AnthropicMessages,
    /// Ollama `POST /api/chat`.
    OllamaChat,
    /// Ollama `POST /api/generate`.
    OllamaGenerate,
}

impl fmt::Display for Dialect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::OpenAiChat => "OpenAI chat",
            Self::OpenAiResponses => "OpenAI responses",
            Self::AnthropicMessages => "Anthropic",
            Self::OllamaChat => "Ollama chat",
            Self::OllamaGenerate => "Ollama generate",
        })
    }
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::AnthropicMessages,
        Self::OllamaChat,
        Self::OllamaGenerate,
    ];

    /// The dialect spoken at a request path, such as `/v1/messages`.
    pub fn of_path(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::OpenAiChat,
            "/v1/responses" => Self::OpenAiResponses,
            "/v1/messages" => Self::AnthropicMessages,
            "/api/chat" => Self::OllamaChat,
            "/api/generate" => Self::OllamaGenerate,
            _ => return None,
        })
    }

    /// Streams are one JSON document a line rather than server-sent events.
    pub fn is_ndjson(self) -> bool {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::AnthropicMessages => false,
            Self::OllamaChat | Self::OllamaGenerate => true,
        }
    }

    pub(crate) fn reader(self) -> Box<dyn Reader> {
        match self {
            Self::OpenAiChat => Box::new(openai_chat::stream::Reader::default()),
            Self::OpenAiResponses => Box::new(openai_responses::reader::Reader::default()),
            Self::AnthropicMessages => Box::new(anthropic::reader::Reader::default()),
            Self::OllamaChat | Self::OllamaGenerate => Box::new(ollama::stream::Reader::new(self)),
        }
    }

    pub(crate) fn writer(self) -> Box<dyn Writer> {
        match self {
            Self::OpenAiChat => Box::new(openai_chat::stream::Writer::default()),
            Self::OpenAiResponses => Box::new(openai_responses::writer::Writer::default()),
            Self::AnthropicMessages => Box::new(anthropic::writer::Writer::default()),
            Self::OllamaChat | Self::OllamaGenerate => Box::new(ollama::stream::Writer::new(self)),
        }
    }
}

/// Reads a request body.
pub fn parse_request(dialect: Dialect, body: &[u8]) -> Result<Request, WireError> {
    let map = json::read_object(dialect, body)?;
    match dialect {
        Dialect::OpenAiChat => openai_chat::request::parse(map),
        Dialect::OpenAiResponses => openai_responses::request::parse(map),
        Dialect::AnthropicMessages => anthropic::request::parse(map),
        Dialect::OllamaChat => ollama::chat::parse_request(map),
        Dialect::OllamaGenerate => ollama::generate::parse_request(map),
    }
}

/// Writes a request as JSON.
pub fn render_request_value(dialect: Dialect, request: &Request) -> Value {
    match dialect {
        Dialect::OpenAiChat => openai_chat::request::render(request),
        Dialect::OpenAiResponses => openai_responses::request::render(request),
        Dialect::AnthropicMessages => anthropic::request::render(request),
        Dialect::OllamaChat => ollama::chat::render_request(request),
        Dialect::OllamaGenerate => ollama::generate::render_request(request),
    }
}

/// Writes a request body.
pub fn render_request(dialect: Dialect, request: &Request) -> Vec<u8> {
    render_request_value(dialect, request).to_string().into_bytes()
}

/// Reads a whole, unstreamed answer. A body that is the provider's error becomes [`WireError::Provider`].
pub fn parse_response(dialect: Dialect, body: &[u8]) -> Result<Response, WireError> {
    let map = json::read_object(dialect, body)?;
    if let Some(error) = error_of(&map) {
        return Err(WireError::Provider { dialect, error });
    }
    match dialect {
        Dialect::OpenAiChat => openai_chat::response::parse(map),
        Dialect::OpenAiResponses => openai_responses::response::parse(map),
        Dialect::AnthropicMessages => anthropic::response::parse(map),
        Dialect::OllamaChat => ollama::chat::parse_response(map),
        Dialect::OllamaGenerate => ollama::generate::parse_response(map),
    }
}

/// Writes a whole answer as JSON.
pub fn render_response_value(dialect: Dialect, response: &Response) -> Value {
    match dialect {
        Dialect::OpenAiChat => openai_chat::response::render(response),
        Dialect::OpenAiResponses => openai_responses::response::render(response),
        Dialect::AnthropicMessages => anthropic::response::render(response),
        Dialect::OllamaChat => ollama::chat::render_response(response),
        Dialect::OllamaGenerate => ollama::generate::render_response(response),
    }
}

/// Writes a whole answer.
pub fn render_response(dialect: Dialect, response: &Response) -> Vec<u8> {
    render_response_value(dialect, response).to_string().into_bytes()
}

/// Writes an error body as the dialect's clients expect it.
pub fn render_error(dialect: Dialect, error: &ProviderError) -> Value {
    match dialect {
        Dialect::OpenAiChat | Dialect::OpenAiResponses => openai_chat::error(error),
        Dialect::AnthropicMessages => anthropic::error(error),
        Dialect::OllamaChat | Dialect::OllamaGenerate => ollama::error(error),
    }
}

/// The provider's error when a body or an event is one.
pub(crate) fn error_of(map: &Map<String, Value>) -> Option<ProviderError> {
    map.get("error").filter(|error| !error.is_null()).map(provider_error)
}
