//! One model call through Muzzle: request out, whole answer in. Nothing is
//! acted on before the dialect's own end marker was seen; a stream that stops
//! early is an error and never a short answer.

use domain::approval::sha256_hex;
use domain::log::{Call, Usage};
use domain::record::{ModelSnapshot, Provider};
use tokio::runtime::Runtime;
use wire::{Dialect, Part, Request, Response, StopReason, StreamParser, WireError};

use crate::limits;

/// A client bound to one listener and one bearer.
pub(crate) struct Model {
    runtime: Runtime,
    client: reqwest::Client,
    dialect: Dialect,
    url: String,
    token: String,
}

/// One assistant turn.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) usage: Usage,
    pub(crate) stop: String,
    pub(crate) model: String,
    pub(crate) prompt_digest: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelError {
    #[error("Muzzle does not answer: {0}")]
    Unreachable(String),
    #[error("the model answered {status}: {message}")]
    Status { status: u16, message: String },
    #[error("the answer broke off: {0}")]
    Broken(String),
    #[error("the model was silent for {} seconds", limits::MODEL_SILENCE.as_secs())]
    Silent,
    #[error("failed to {0}")]
    Wire(#[from] WireError),
    #[error("the answer is larger than {} bytes", limits::MODEL_ANSWER_BYTES)]
    TooLarge,
    #[error("the model client cannot be made: {0}")]
    Client(String),
}

impl ModelError {
    /// Another attempt may succeed: nothing in the request itself is wrong.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Broken(_) | Self::Silent => true,
            Self::Status { status, .. } => matches!(status, 408 | 409 | 425 | 429 | 500..),
            Self::Wire(error) => {
                matches!(error, WireError::Truncated { .. } | WireError::NotJson { .. })
            }
            Self::TooLarge | Self::Client(_) => false,
        }
    }
}

/// The wire dialect of a provider.
pub(crate) fn dialect_of(provider: Provider) -> Dialect {
    match provider {
        Provider::Openai => Dialect::OpenAiChat,
        Provider::OpenaiResponses => Dialect::OpenAiResponses,
        Provider::Anthropic => Dialect::AnthropicMessages,
        Provider::Ollama => Dialect::OllamaChat,
        Provider::OllamaGenerate => Dialect::OllamaGenerate,
    }
}

fn path_of(provider: Provider) -> &'static str {
    match provider {
        Provider::Openai => "/v1/chat/completions",
        Provider::OpenaiResponses => "/v1/responses",
        Provider::Anthropic => "/v1/messages",
        Provider::Ollama => "/api/chat",
        Provider::OllamaGenerate => "/api/generate",
    }
}

impl Model {
    /// Makes the client. The only address it will ever dial is loopback.
    pub(crate) fn new(model: &ModelSnapshot, token: String) -> Result<Self, ModelError> {
        let client = |text: String| ModelError::Client(text);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| client(e.to_string()))?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(limits::MODEL_CONNECT)
            .build()
            .map_err(|e| client(chain(&e)))?;
        let dialect = dialect_of(model.provider);
        let url = format!("http://127.0.0.1:{}{}", model.port, path_of(model.provider));
        Ok(Self { runtime, client: http, dialect, url, token })
    }

    /// Sends `request` and waits for the whole answer.
    pub(crate) fn call(&self, request: &Request) -> Result<Answer, ModelError> {
        let body = wire::render_request(self.dialect, request);
        let prompt_digest = sha256_hex(&body);
        let response = self.runtime.block_on(self.send(body))?;
        Ok(answer_of(response, prompt_digest))
    }

    async fn send(&self, body: Vec<u8>) -> Result<Response, ModelError> {
        let sent = self
            .client
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .body(body)
            .send();
        let mut response = quiet(sent).await?.map_err(|e| ModelError::Unreachable(chain(&e)))?;
        let status = response.status();
        if !status.is_success() {
            let body = self.read_all(&mut response).await.unwrap_or_default();
            let message = error_text(&body);
            return Err(ModelError::Status { status: status.as_u16(), message });
        }
        let streamed = response
            .headers()
            .get("content-type")
            .and_then(|v| v.to_str().ok())
            .is_some_and(|v| v.contains("event-stream") || v.contains("ndjson"));
        if !streamed {
            let body = self.read_all(&mut response).await?;
            return Ok(wire::parse_response(self.dialect, &body)?);
        }
        let mut parser = StreamParser::new(self.dialect);
        let mut length = 0;
        while let Some(chunk) =
            quiet(response.chunk()).await?.map_err(|e| ModelError::Broken(chain(&e)))?
        {
            length += chunk.len();
            if length > limits::MODEL_ANSWER_BYTES {
                return Err(ModelError::TooLarge);
            }
            parser.push(&chunk)?;
        }
        Ok(parser.finish()?)
    }

    async fn read_all(&self, response: &mut reqwest::Response) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(chunk) =
            quiet(response.chunk()).await?.map_err(|e| ModelError::Broken(chain(&e)))?
        {
            body.extend_from_slice(&chunk);
            if body.len() > limits::MODEL_ANSWER_BYTES {
                return Err(ModelError::TooLarge);
            }
        }
        Ok(body)
    }
}

async fn quiet<F: Future>(wait: F) -> Result<F::Output, ModelError> {
    tokio::time::timeout(limits::MODEL_SILENCE, wait).await.map_err(|_elapsed| ModelError::Silent)
}

/// The provider's own message in an error body, else the start of the body.
fn error_text(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = value
        .pointer("/error/message")
        .or_else(|| value.get("error"))
        .or_else(|| value.get("message"))
        .and_then(|v| v.as_str());
    match message {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(body).chars().take(500).collect(),
    }
}

fn answer_of(response: Response, prompt_digest: String) -> Answer {
    let mut answer = Answer {
        text: String::new(),
        reasoning: String::new(),
        calls: Vec::new(),
        usage: response
            .usage
            .as_ref()
            .map(|u| Usage { input: u.input, output: u.output })
            .unwrap_or_default(),
        stop: String::new(),
        model: response.model,
        prompt_digest,
    };
    let Some(choice) = response.choices.into_iter().next() else { return answer };
    answer.stop = choice.stop.map(stop_word).unwrap_or_default();
    for part in choice.messages.into_iter().flat_map(|m| m.parts) {
        match part {
            Part::Text(text) => answer.text.push_str(&text.text),
            Part::Reasoning(reasoning) => answer.reasoning.push_str(&reasoning.text),
            Part::ToolCall(call) => {
                answer.calls.push(Call {
                    id: call.id,
                    tool: call.name,
                    arguments: call.arguments,
                    raw: None,
                });
            }
            Part::Image(_) | Part::ToolResult(_) | Part::Unknown(_) => {}
        }
    }
    answer
}

fn stop_word(stop: StopReason) -> String {
    match stop {
        StopReason::EndTurn => "end_turn".to_owned(),
        StopReason::ToolUse => "tool_use".to_owned(),
        StopReason::MaxTokens => "max_tokens".to_owned(),
        StopReason::StopSequence => "stop_sequence".to_owned(),
        StopReason::ContentFilter => "content_filter".to_owned(),
        StopReason::Other(word) => word,
    }
}

/// An error with its causes: "connection refused" is two levels down.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
