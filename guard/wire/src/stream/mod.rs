//! Streams: bytes in any split to events and a whole answer, and events back to bytes.
//!
//! ```text
//!   bytes --framing--> frames --dialect--> events --assembly--> Response
//!                      (raw kept)                     only behind the dialect's own end marker
//! ```
//!
//! A reader that shows text uses [`StreamParser::push`]; one that forwards uses
//! [`StreamParser::push_frames`], whose raw bytes joined are what was pushed.

mod assembly;
mod parser;
mod renderer;

use std::fmt::Debug;

use serde_json::{Map, Value};

use crate::{Dialect, Extra, ProviderError, Response, StopReason, Unknown, Usage, WireError};

pub use parser::{Frame, StreamParser};
pub use renderer::StreamRenderer;

/// Names one part of a streamed answer: parts of a choice count from 0 in order of appearance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PartAt {
    /// The choice; 0 unless the request asked for several.
    pub choice: u32,
    /// The part within the choice.
    pub part: u32,
}

/// What a [`StreamEvent::Field`] belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The answer.
    Response,
    /// A choice.
    Choice(u32),
    /// The assistant message of a choice.
    Message(u32),
    /// The output item that holds a part; the responses dialect alone has items.
    Item(PartAt),
    /// A part.
    Part(PartAt),
}

/// One step of a streamed answer, the same in every dialect.
///
/// A part begins with its first delta, a tool call with [`StreamEvent::ToolCallStarted`]. Parts may
/// interleave. Nothing in a stream may be acted on before [`StreamParser::finish`] has said that the
/// answer is whole; a tool call before [`StreamEvent::ToolCallEnded`] is half of one.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// The first event.
    Started {
        /// The provider's id of the answer.
        id: String,
        /// The model that answers.
        model: String,
        /// Other fields of the answer known at its start.
        extra: Extra,
    },
    /// More words.
    TextDelta {
        /// The part.
        at: PartAt,
        /// Whole characters, however bytes were cut.
        text: String,
    },
    /// More words of a refusal.
    RefusalDelta {
        /// The part.
        at: PartAt,
        /// The words.
        text: String,
    },
    /// More thinking.
    ReasoningDelta {
        /// The part.
        at: PartAt,
        /// The words.
        text: String,
    },
    /// A tool call begins.
    ToolCallStarted {
        /// The part.
        at: PartAt,
        /// [`crate::ToolCall::id`].
        id: String,
        /// [`crate::ToolCall::name`].
        name: String,
        /// [`crate::ToolCall::free_form`].
        free_form: bool,
    },
    /// More of a tool call's raw arguments.
    ToolCallArguments {
        /// The part.
        at: PartAt,
        /// Raw text; pieces join to [`crate::ToolCall::arguments`].
        fragment: String,
    },
    /// A tool call has all its arguments.
    ToolCallEnded {
        /// The part.
        at: PartAt,
    },
    /// A field without canonical place: arrays of one name grow, objects merge, the rest replaces.
    Field {
        /// The dialect that knows it; others drop it.
        dialect: Dialect,
        /// What it belongs to.
        owner: Owner,
        /// Its name in the dialect.
        name: String,
        /// Its value.
        value: Value,
    },
    /// Generation of a choice ended.
    Finished {
        /// The choice.
        choice: u32,
        /// Why.
        stop: StopReason,
    },
    /// Tokens used so far; a later one replaces an earlier one.
    Usage(Usage),
    /// The provider broke off with an error. The stream is over and there is no answer.
    Error(ProviderError),
    /// A whole part this crate does not know.
    UnknownPart {
        /// The part.
        at: PartAt,
        /// The part as sent.
        unknown: Unknown,
    },
    /// An event this crate does not know. Renderers leave it out: it may speak of places in the
    /// stream that a rewritten one does not have, and nobody understood what it says.
    Unknown(Unknown),
    /// The dialect's own end marker.
    Ended,
}

impl StreamEvent {
    /// The part an event belongs to.
    pub fn part(&self) -> Option<PartAt> {
        match self {
            Self::TextDelta { at, .. }
            | Self::RefusalDelta { at, .. }
            | Self::ReasoningDelta { at, .. }
            | Self::ToolCallStarted { at, .. }
            | Self::ToolCallArguments { at, .. }
            | Self::ToolCallEnded { at }
            | Self::UnknownPart { at, .. }
            | Self::Field { owner: Owner::Part(at) | Owner::Item(at), .. } => Some(*at),
            Self::Field { .. }
            | Self::Started { .. }
            | Self::Finished { .. }
            | Self::Usage(_)
            | Self::Error(_)
            | Self::Unknown(_)
            | Self::Ended => None,
        }
    }
}

/// What reads one dialect's frames.
pub(crate) trait Reader: Debug + Send + Sync {
    /// One JSON object.
    fn object(
        &mut self,
        map: Map<String, Value>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), WireError>;

    /// `data: [DONE]`, which some servers also send behind another dialect's end.
    fn done(&mut self, _events: &mut Vec<StreamEvent>) -> Result<(), WireError> {
        Ok(())
    }

    /// What a stream that ends now lacks.
    fn missing(&self) -> String;

    /// Gives the assembled answer the shape its dialect would have given it whole.
    fn shape(&self, _response: &mut Response) {}
}

/// What writes one dialect's frames.
pub(crate) trait Writer: Debug + Send + Sync {
    /// The bytes for one event.
    fn write(&mut self, event: &StreamEvent) -> Vec<u8>;
}
