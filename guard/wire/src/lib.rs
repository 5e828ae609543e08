//! Provider dialects to and from one canonical conversation.
//!
//! Pure: bytes in, values out; no files, sockets, clock, randomness or environment.
//! It does not judge content and does not send anything.
//!
//! Laws, each kept by property tests:
//! - `render(parse(body))` equals `body` as a JSON value, fields nobody here knows included;
//! - a stream gives the same events however its bytes were cut;
//! - the raw bytes of a stream's frames, joined, are the bytes that were pushed;
//! - a stream without its dialect's own end marker never becomes a [`Response`].
//!
//! ```
//! use wire::{Dialect, StreamParser, parse_request, render_request};
//!
//! // A request read in one dialect goes out in another.
//! let body = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
//! let request = parse_request(Dialect::OpenAiChat, body)?;
//! let body = render_request(Dialect::AnthropicMessages, &request);
//! assert!(body.starts_with(br#"{"model":"m","max_tokens":4096"#));
//!
//! // A streamed answer arrives in any pieces and is whole only behind its end marker.
//! let mut parser = StreamParser::new(Dialect::OllamaChat);
//! parser.push(br#"{"message":{"content":"he"},"done":fal"#)?;
//! parser.push(b"se}\n{\"message\":{\"content\":\"y\"},\"done\":true}\n")?;
//! assert_eq!(parser.finish()?.text(), "hey");
//! # Ok::<(), wire::WireError>(())
//! ```
//!
//! A field that is known but has an unexpected shape stays in the node's [`Extra`] untouched;
//! only what the conversation cannot be understood without (`model`, `messages`, `role`) is an error.

mod anthropic;
mod conversation;
mod dialect;
mod error;
mod extra;
mod function_tool;
mod json;
pub mod limits;
pub mod ndjson;
mod ollama;
mod openai_chat;
mod openai_responses;
mod openai_usage;
mod received;
mod response;
pub mod sse;
mod stream;
mod surrogates;
mod utf8;

pub use conversation::{
    Image, ImageSource, Message, Part, Reasoning, Request, Role, Text, Tool, ToolCall, ToolChoice,
    ToolResult, ToolSpec, Unknown,
};
pub use dialect::{
    Dialect, parse_request, parse_response, render_error, render_request, render_request_value,
    render_response, render_response_value,
};
pub use error::{ProviderError, WireError};
pub use extra::Extra;
pub use received::Received;
pub use response::{Choice, Response, StopReason, Usage};
pub use stream::{Frame, Owner, PartAt, StreamEvent, StreamParser, StreamRenderer};
