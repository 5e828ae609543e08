//! A scenario: what the scripted provider says, turn by turn, and how it misbehaves.
//!
//! ```yaml
//! version: 1
//! name: greeting
//! conversations:
//!   - model: rehearsal            # the model name a client asks for
//!     task: Say hello.            # when given: answer only requests whose first user text contains it
//!     turns:                      # one after the other; a turn's step is the number of assistant turns before it
//!       - say: I look first.
//!         calls: [{ name: list_dir, arguments: { path: . } }]
//!       - when: { result_contains: README }   # of the turns of one step, the first that matches
//!         say: There is a README.
//!       - step: 1                             # another turn of the same step
//!         say: "I found: {{last_tool_result}}"
//!         stop: end_turn          # end_turn, tool_use, max_tokens, stop_sequence, content_filter or another word
//!         usage: { input: 10, output: 4 }
//!         stream: { delta_chars: 1, chunk_bytes: 7, headers_after_ms: 20, event_every_ms: 10 }
//!         faults: [{ status: 503, times: 1 }]
//!     otherwise: { say: That is all I rehearsed. }   # any other step
//! ```
//!
//! The step comes from the request alone, so a conversation that is taken up again gets the same answers. The one piece
//! of state is how often a fault with `times` was used; see [`Fault`].

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;
use wire::StopReason;

use crate::file::{
    CallFile, ConversationFile, FaultFile, ScenarioFile, StreamFile, TurnFile, UsageFile,
};
use crate::{limits, template};

/// The one version of the file's shape that this build reads.
pub(crate) const VERSION: u32 = 1;

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read into its shape. The message names the field and the line.
    #[error("the scenario cannot be read: {message}")]
    Shape {
        /// What the reader said.
        message: String,
    },
    /// It has the right shape and says something that cannot be.
    #[error("the scenario is refused: {place}: {why}")]
    Refused {
        /// For example `conversations[0].turns[2].calls[0]`.
        place: String,
        /// What is wrong and what to write instead.
        why: String,
    },
}

/// A checked scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) conversations: Vec<Conversation>,
}

/// What is said to requests for one model.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) model: String,
    pub(crate) task: Option<String>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) otherwise: Option<Turn>,
}

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// Number of assistant turns before it.
    pub(crate) step: usize,
    pub(crate) user_contains: Option<String>,
    pub(crate) result_contains: Option<String>,
    pub(crate) think: Option<String>,
    pub(crate) say: Option<String>,
    pub(crate) calls: Vec<Call>,
    pub(crate) stop: StopReason,
    pub(crate) usage: Option<UsageFile>,
    pub(crate) stream: Stream,
    pub(crate) faults: Vec<LimitedFault>,
}

/// One tool call of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: Arguments,
    pub(crate) id: Option<String>,
}

/// What a tool is called with.
#[derive(Debug, Clone)]
pub(crate) enum Arguments {
    /// A value; placeholders are filled in its texts.
    Json(Value),
    /// A text that may be no JSON at all.
    Text(String),
}

/// How an answer is cut and paced.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    /// Characters of one event; nothing = a text is one event.
    pub(crate) delta_chars: Option<usize>,
    pub(crate) cut: Cut,
    pub(crate) headers_after: Duration,
    /// Time between two events, or between two chunks where these are cut otherwise.
    pub(crate) event_every: Duration,
}

/// Where the bytes of an answer are cut into chunks, which are written one by one.
#[derive(Debug, Clone, Default)]
pub(crate) enum Cut {
    /// Each event is a chunk.
    #[default]
    Events,
    /// Each so many bytes, events or not.
    Bytes(usize),
    /// At these places, counted from the start.
    At(Vec<usize>),
}

/// A fault and how often it happens.
#[derive(Debug, Clone)]
pub(crate) struct LimitedFault {
    pub(crate) fault: Fault,
    /// The first so many requests for this turn; nothing = all of them.
    pub(crate) times: Option<usize>,
}

/// One way to misbehave. Of a turn's faults the first that is not used up happens, and only that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An HTTP status instead of the answer; without a body the dialect's own error.
    Status {
        code: u16,
        body: Option<String>,
        headers: BTreeMap<String, String>,
    },
    BeforeHeaders(Break),
    /// The connection closes after so many bytes of the body, and the body's framing says it is not whole.
    CloseAfterBytes(usize),
    /// The connection is reset after so many bytes of the body.
    ResetAfterBytes(usize),
    /// The body ends well-formed after so many events: only the dialect's own end is missing.
    TruncateAfterEvents(usize),
    /// Nothing more comes after so many events.
    StallAfterEvents(usize),
    /// A Content-Length that is not the body's.
    ContentLength(u64),
    /// Bytes that belong to no event, after so many events.
    Inject {
        after_events: usize,
        text: String,
    },
}

/// What happens in place of an answer's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    Close,
    Reset,
    Stall,
}

impl Scenario {
    /// Reads a scenario file.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > limits::SCENARIO_BYTES {
            return Err(refused(
                "the file",
                format!("is larger than {} bytes", limits::SCENARIO_BYTES),
            ));
        }
        let file: ScenarioFile = serde_yaml::from_str(text)
            .map_err(|error| ScenarioError::Shape { message: error.to_string() })?;
        if file.version != VERSION {
            return Err(refused(
                "version",
                format!("is {}, and this build reads version {VERSION}", file.version),
            ));
        }
        if HeaderValue::try_from(&file.name).is_err() || file.name.is_empty() {
            return Err(refused("name", "is not a short text without control characters"));
        }
        check_count("conversations", file.conversations.len(), limits::CONVERSATIONS)?;
        let mut models = HashSet::new();
        let mut conversations = Vec::new();
        for (index, conversation) in file.conversations.into_iter().enumerate() {
            let place = format!("conversations[{index}]");
            if !models.insert(conversation.model.clone()) {
                return Err(refused(
                    format!("{place}.model"),
                    format!("`{}` is used twice", conversation.model),
                ));
            }
            conversations.push(check_conversation(&place, conversation)?);
        }
        if conversations.is_empty() {
            return Err(refused("conversations", "is empty: write at least one"));
        }
        Ok(Self { name: file.name, about: file.about, conversations })
    }

    /// The scenario's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it shows, in a sentence for people.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The model names it answers to, in the order of the file.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.conversations.iter().map(|conversation| conversation.model.as_str())
    }

    /// The task that a model's conversation is written for, where it names one.
    pub fn task(&self, model: &str) -> Option<&str> {
        self.conversations.iter().find(|conversation| conversation.model == model)?.task.as_deref()
    }
}

fn refused(place: impl Into<String>, why: impl Into<String>) -> ScenarioError {
    ScenarioError::Refused { place: place.into(), why: why.into() }
}

fn check_count(place: &str, count: usize, most: usize) -> Result<(), ScenarioError> {
    if count > most {
        Err(refused(place, format!("has {count} entries; {most} are allowed")))
    } else {
        Ok(())
    }
}

fn check_conversation(place: &str, file: ConversationFile) -> Result<Conversation, ScenarioError> {
    check_count(&format!("{place}.turns"), file.turns.len(), limits::TURNS)?;
    if file.turns.is_empty() && file.otherwise.is_none() {
        return Err(refused(
            format!("{place}.turns"),
            "is empty, and there is no `otherwise`: write a turn",
        ));
    }
    let stream = file.stream;
    let mut turns = Vec::new();
    let mut next = 0;
    for (index, turn) in file.turns.into_iter().enumerate() {
        let place = format!("{place}.turns[{index}]");
        let step = turn.step.unwrap_or(next);
        if step > limits::TURNS {
            return Err(refused(
                format!("{place}.step"),
                format!("is more than {}", limits::TURNS),
            ));
        }
        next = step + 1;
        turns.push(check_turn(&place, step, turn, &stream)?);
    }
    let otherwise = match file.otherwise {
        Some(turn) if turn.step.is_some() => {
            return Err(refused(
                format!("{place}.otherwise.step"),
                "has no meaning here: remove it",
            ));
        }
        Some(turn) => Some(check_turn(&format!("{place}.otherwise"), 0, turn, &stream)?),
        None => None,
    };
    Ok(Conversation { model: file.model, task: file.task, turns, otherwise })
}

fn check_turn(
    place: &str,
    step: usize,
    file: TurnFile,
    default: &StreamFile,
) -> Result<Turn, ScenarioError> {
    check_count(&format!("{place}.calls"), file.calls.len(), limits::CALLS)?;
    for (name, text) in [("think", &file.think), ("say", &file.say)] {
        check_template(&format!("{place}.{name}"), text.as_deref().unwrap_or_default())?;
    }
    if file.think.is_none() && file.say.is_none() && file.calls.is_empty() && file.faults.is_empty()
    {
        return Err(refused(place, "says nothing: write `say`, `calls`, `think` or `faults`"));
    }
    let mut calls = Vec::new();
    for (index, call) in file.calls.into_iter().enumerate() {
        calls.push(check_call(&format!("{place}.calls[{index}]"), call)?);
    }
    let stop = match file.stop.as_deref() {
        None if calls.is_empty() => StopReason::EndTurn,
        None => StopReason::ToolUse,
        Some(word) => stop_reason(word),
    };
    let mut faults = Vec::new();
    for (index, fault) in file.faults.into_iter().enumerate() {
        faults.push(check_fault(&format!("{place}.faults[{index}]"), fault)?);
    }
    Ok(Turn {
        step,
        user_contains: file.when.user_contains,
        result_contains: file.when.result_contains,
        think: file.think,
        say: file.say,
        calls,
        stop,
        usage: file.usage,
        stream: check_stream(&format!("{place}.stream"), file.stream.as_ref().unwrap_or(default))?,
        faults,
    })
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "end_turn" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "stop_sequence" => StopReason::StopSequence,
        "content_filter" => StopReason::ContentFilter,
        other => StopReason::Other(other.to_owned()),
    }
}

fn check_template(place: &str, text: &str) -> Result<(), ScenarioError> {
    template::check(text).map_err(|why| refused(place, why))
}

fn check_call(place: &str, file: CallFile) -> Result<Call, ScenarioError> {
    let arguments = match (file.arguments, file.arguments_text) {
        (Some(_), Some(_)) => {
            return Err(refused(place, "has both `arguments` and `arguments_text`: write one"));
        }
        (Some(value), None) => {
            check_value(&format!("{place}.arguments"), &value)?;
            Arguments::Json(value)
        }
        (None, Some(text)) => {
            check_template(&format!("{place}.arguments_text"), &text)?;
            Arguments::Text(text)
        }
        (None, None) => Arguments::Json(Value::Object(serde_json::Map::new())),
    };
    Ok(Call { name: file.name, arguments, id: file.id })
}

fn check_value(place: &str, value: &Value) -> Result<(), ScenarioError> {
    match value {
        Value::String(text) => check_template(place, text),
        Value::Array(values) => values.iter().try_for_each(|value| check_value(place, value)),
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(name, value)| check_value(&format!("{place}.{name}"), value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_stream(place: &str, file: &StreamFile) -> Result<Stream, ScenarioError> {
    for (name, count) in [("delta_chars", file.delta_chars), ("chunk_bytes", file.chunk_bytes)] {
        if count == Some(0) {
            return Err(refused(
                format!("{place}.{name}"),
                "is 0: write 1 or more, or leave it out",
            ));
        }
    }
    let cut = match (file.chunk_bytes, file.chunk_at.clone()) {
        (Some(_), Some(_)) => {
            return Err(refused(place, "has both `chunk_bytes` and `chunk_at`: write one"));
        }
        (Some(bytes), None) => Cut::Bytes(bytes),
        (None, Some(places)) if places.is_sorted() => Cut::At(places),
        (None, Some(_)) => {
            return Err(refused(format!("{place}.chunk_at"), "is not in ascending order"));
        }
        (None, None) => Cut::Events,
    };
    let delay = |name: &str, milliseconds: u64| {
        let delay = Duration::from_millis(milliseconds);
        if delay > limits::DELAY {
            Err(refused(
                format!("{place}.{name}"),
                format!("is more than {} s", limits::DELAY.as_secs()),
            ))
        } else {
            Ok(delay)
        }
    };
    Ok(Stream {
        delta_chars: file.delta_chars,
        cut,
        headers_after: delay("headers_after_ms", file.headers_after_ms)?,
        event_every: delay("event_every_ms", file.event_every_ms)?,
    })
}

fn check_fault(place: &str, file: FaultFile) -> Result<LimitedFault, ScenarioError> {
    let FaultFile {
        times, status, body, headers, before_headers, inject, inject_after_events, ..
    } = file;
    if status.is_none() && (body.is_some() || !headers.is_empty()) {
        return Err(refused(place, "has a body or headers without a `status`"));
    }
    if inject.is_none() && inject_after_events.is_some() {
        return Err(refused(place, "has `inject_after_events` without `inject`"));
    }
    let mut kinds = Vec::new();
    if let Some(code) = status {
        if !(200..=599).contains(&code) {
            return Err(refused(
                format!("{place}.status"),
                format!("{code} is not a status from 200 to 599"),
            ));
        }
        check_template(&format!("{place}.body"), body.as_deref().unwrap_or_default())?;
        for (name, value) in &headers {
            if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
                return Err(refused(
                    format!("{place}.headers"),
                    format!("`{name}` with its value is no HTTP header"),
                ));
            }
        }
        kinds.push(Fault::Status { code, body, headers });
    }
    if let Some(word) = before_headers {
        kinds.push(Fault::BeforeHeaders(match word.as_str() {
            "close" => Break::Close,
            "reset" => Break::Reset,
            "stall" => Break::Stall,
            _ => {
                return Err(refused(
                    format!("{place}.before_headers"),
                    format!("`{word}` is none of close, reset, stall"),
                ));
            }
        }));
    }
    kinds.extend(file.close_after_bytes.map(Fault::CloseAfterBytes));
    kinds.extend(file.reset_after_bytes.map(Fault::ResetAfterBytes));
    kinds.extend(file.truncate_after_events.map(Fault::TruncateAfterEvents));
    kinds.extend(file.stall_after_events.map(Fault::StallAfterEvents));
    kinds.extend(file.content_length.map(Fault::ContentLength));
    if let Some(text) = inject {
        check_template(&format!("{place}.inject"), &text)?;
        kinds.push(Fault::Inject { after_events: inject_after_events.unwrap_or(0), text });
    }
    match (kinds.pop(), kinds.is_empty()) {
        (Some(fault), true) => Ok(LimitedFault { fault, times }),
        (Some(_), false) => {
            Err(refused(place, "is several faults at once: write each as an entry of its own"))
        }
        (None, _) => Err(refused(
            place,
            "names no fault: write one of status, before_headers, close_after_bytes, reset_after_bytes, truncate_after_events, stall_after_events, content_length, inject",
        )),
    }
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
