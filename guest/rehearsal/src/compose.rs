//! Turns a chosen turn into what is done on the wire, step by step.
//!
//! A pure plan: bytes, pauses and breaks in order. [`crate::reply`] carries it out.

use std::time::Duration;

use serde_json::Value;
use wire::{
    Dialect, Extra, Part, PartAt, ProviderError, Reasoning, Request, Response, StreamEvent,
    StreamRenderer, Usage,
};

use crate::choose::Chosen;
use crate::file::UsageFile;
use crate::scenario::{Arguments, Break, Call, Cut, Fault, Turn};
use crate::template::{Values, fill, raw_bytes};

/// One thing to do with a connection while a body is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write these bytes, as one chunk.
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Close; the body's framing says that it is not whole.
    Close,
    /// Close by a reset.
    Reset,
    /// Do nothing more and keep the connection.
    Stall,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// What happens before the head, if it ever comes.
    pub(crate) before: Vec<Step>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<Step>,
}

/// Plans the answer to a request.
pub(crate) fn plan_answer(
    dialect: Dialect,
    request: &Request,
    chosen: &Chosen<'_>,
    values: &Values,
    fault: Option<&Fault>,
) -> Answer {
    let turn = chosen.turn;
    let said = Said::new(chosen, values, request);
    let events =
        if request.stream { said.stream(dialect, turn) } else { vec![said.whole(dialect)] };
    let content_type = match (request.stream, dialect.is_ndjson()) {
        (false, _) => "application/json",
        (true, false) => "text/event-stream",
        (true, true) => "application/x-ndjson",
    };
    let mut answer = Answer {
        before: wait(turn.stream.headers_after),
        status: 200,
        headers: vec![("content-type".to_owned(), content_type.to_owned())],
        body: Vec::new(),
    };
    if !request.stream {
        answer.headers.push(length(events.iter().map(|event| event.len() as u64).sum()));
    }
    let body = Body { events: events.iter().map(|event| raw_bytes(event)).collect(), end: None };
    answer.body = match fault {
        None => paced(body, turn),
        Some(fault) => plan_fault(dialect, fault, body, turn, values, &mut answer),
    };
    answer
}

/// An answer outside any scenario: an error in the dialect's own words.
pub(crate) fn plan_error(dialect: Dialect, status: u16, kind: &str, message: String) -> Answer {
    let error = ProviderError { kind: kind.to_owned(), message, code: None };
    plan_json(status, wire::render_error(dialect, &error).to_string().into_bytes())
}

/// A short JSON answer.
pub(crate) fn plan_json(status: u16, body: Vec<u8>) -> Answer {
    let headers =
        vec![("content-type".to_owned(), "application/json".to_owned()), length(body.len() as u64)];
    Answer { before: Vec::new(), status, headers, body: vec![Step::Bytes(body)] }
}

fn length(bytes: u64) -> (String, String) {
    ("content-length".to_owned(), bytes.to_string())
}

fn wait(delay: Duration) -> Vec<Step> {
    if delay.is_zero() { Vec::new() } else { vec![Step::Wait(delay)] }
}

/// The events of a body, as bytes, and how it ends when not by itself.
struct Body {
    events: Vec<Vec<u8>>,
    end: Option<Step>,
}

fn plan_fault(
    dialect: Dialect,
    fault: &Fault,
    mut body: Body,
    turn: &Turn,
    values: &Values,
    answer: &mut Answer,
) -> Vec<Step> {
    match fault {
        Fault::Status { code, body: text, headers } => {
            let error = ProviderError {
                kind: if *code == 429 { "rate_limit_error" } else { "server_error" }.to_owned(),
                message: format!("rehearsed status {code}"),
                code: None,
            };
            let text = text.as_ref().map_or_else(
                || wire::render_error(dialect, &error).to_string(),
                |text| fill(text, values),
            );
            let bytes = raw_bytes(text.as_bytes());
            answer.status = *code;
            answer.headers = vec![
                ("content-type".to_owned(), "application/json".to_owned()),
                length(bytes.len() as u64),
            ];
            for (name, value) in headers {
                answer.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
                answer.headers.push((name.clone(), value.clone()));
            }
            vec![Step::Bytes(bytes)]
        }
        Fault::BeforeHeaders(how) => {
            answer.before.push(match how {
                Break::Close => Step::Close,
                Break::Reset => Step::Reset,
                Break::Stall => Step::Stall,
            });
            Vec::new()
        }
        Fault::CloseAfterBytes(bytes) => cut_off(paced(body, turn), *bytes, Step::Close),
        Fault::ResetAfterBytes(bytes) => cut_off(paced(body, turn), *bytes, Step::Reset),
        Fault::TruncateAfterEvents(events) => {
            body.events.truncate(*events);
            paced(body, turn)
        }
        Fault::StallAfterEvents(events) => {
            body.events.truncate(*events);
            body.end = Some(Step::Stall);
            paced(body, turn)
        }
        Fault::ContentLength(bytes) => {
            answer.headers.retain(|(name, _)| name != "content-length");
            answer.headers.push(length(*bytes));
            paced(body, turn)
        }
        Fault::Inject { after_events, text } => {
            answer.headers.retain(|(name, _)| name != "content-length");
            let place = (*after_events).min(body.events.len());
            body.events.insert(place, raw_bytes(fill(text, values).as_bytes()));
            paced(body, turn)
        }
    }
}

/// The body cut into chunks, with pauses between them.
fn paced(body: Body, turn: &Turn) -> Vec<Step> {
    let chunks = match &turn.stream.cut {
        Cut::Events => body.events,
        Cut::Bytes(bytes) => {
            body.events.concat().chunks((*bytes).max(1)).map(<[u8]>::to_vec).collect()
        }
        Cut::At(places) => cut_at(&body.events.concat(), places),
    };
    let mut steps = Vec::new();
    for (index, chunk) in chunks.into_iter().filter(|chunk| !chunk.is_empty()).enumerate() {
        if index > 0 {
            steps.extend(wait(turn.stream.event_every));
        }
        steps.push(Step::Bytes(chunk));
    }
    steps.extend(body.end);
    steps
}

fn cut_at(bytes: &[u8], places: &[usize]) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let (mut rest, mut begin) = (bytes, 0);
    for place in places {
        let (chunk, behind) =
            rest.split_at_checked(place.saturating_sub(begin)).unwrap_or((rest, &[]));
        chunks.push(chunk.to_vec());
        (rest, begin) = (behind, *place);
    }
    chunks.push(rest.to_vec());
    chunks
}

/// The steps up to so many bytes, then `end`.
fn cut_off(steps: Vec<Step>, bytes: usize, end: Step) -> Vec<Step> {
    let mut left = bytes;
    let mut kept = Vec::new();
    for step in steps {
        match step {
            Step::Bytes(mut chunk) => {
                chunk.truncate(left);
                left -= chunk.len();
                if !chunk.is_empty() {
                    kept.push(Step::Bytes(chunk));
                }
                if left == 0 {
                    break;
                }
            }
            other @ (Step::Wait(_) | Step::Close | Step::Reset | Step::Stall) => kept.push(other),
        }
    }
    kept.push(end);
    kept
}

/// A turn with its placeholders filled in.
struct Said<'a> {
    id: String,
    model: &'a str,
    think: Option<String>,
    say: Option<String>,
    /// Id, name and arguments.
    calls: Vec<(String, &'a str, String)>,
    turn: &'a Turn,
    usage: Usage,
}

impl<'a> Said<'a> {
    fn new(chosen: &Chosen<'a>, values: &Values, request: &'a Request) -> Self {
        let turn = chosen.turn;
        let filled = |text: &Option<String>| {
            text.as_ref().map(|text| fill(text, values)).filter(|text| !text.is_empty())
        };
        let calls: Vec<_> = turn
            .calls
            .iter()
            .enumerate()
            .map(|(index, call)| {
                let id = call.id.clone().unwrap_or_else(|| format!("call_{}_{index}", chosen.step));
                (id, call.name.as_str(), arguments(call, values))
            })
            .collect();
        let (think, say) = (filled(&turn.think), filled(&turn.say));
        let words = [&think, &say].into_iter().flatten().map(String::len).sum::<usize>();
        let words = words
            + calls.iter().map(|(_, name, arguments)| name.len() + arguments.len()).sum::<usize>();
        Self {
            id: format!("rehearsal-{}", chosen.step),
            model: &request.model,
            think,
            say,
            calls,
            turn,
            usage: usage(turn, request, words),
        }
    }

    fn parts(&self, dialect: Dialect) -> Vec<Part> {
        let mut parts = Vec::new();
        if let Some(text) = &self.think {
            // Bound to the dialect, as its own thinking is: foreign thinking would not be written.
            let extra = Extra::of(dialect);
            parts.push(Part::Reasoning(Reasoning { text: text.clone(), extra }));
        }
        parts.extend(self.say.as_ref().map(Part::text));
        parts.extend(
            self.calls.iter().map(|(id, name, arguments)| Part::tool_call(id, *name, arguments)),
        );
        parts
    }

    fn whole(&self, dialect: Dialect) -> Vec<u8> {
        let mut response =
            Response::new(&self.id, self.model, self.parts(dialect), self.turn.stop.clone());
        response.usage = Some(self.usage.clone());
        wire::render_response(dialect, &response)
    }

    /// The streamed answer, one piece of bytes for each event that the dialect writes.
    fn stream(&self, dialect: Dialect, turn: &Turn) -> Vec<Vec<u8>> {
        let mut renderer = StreamRenderer::new(dialect);
        let events = self.events(turn.stream.delta_chars);
        events
            .iter()
            .map(|event| renderer.render(event))
            .filter(|bytes| !bytes.is_empty())
            .collect()
    }

    fn events(&self, delta_chars: Option<usize>) -> Vec<StreamEvent> {
        let started = StreamEvent::Started {
            id: self.id.clone(),
            model: self.model.to_owned(),
            extra: Extra::default(),
        };
        let mut events = vec![started];
        let mut place = 0;
        let mut next = || {
            place += 1;
            PartAt { choice: 0, part: place - 1 }
        };
        if let Some(text) = &self.think {
            let at = next();
            events.extend(
                deltas(text, delta_chars).map(|text| StreamEvent::ReasoningDelta { at, text }),
            );
        }
        if let Some(text) = &self.say {
            let at = next();
            events
                .extend(deltas(text, delta_chars).map(|text| StreamEvent::TextDelta { at, text }));
        }
        for (id, name, arguments) in &self.calls {
            let at = next();
            events.push(StreamEvent::ToolCallStarted {
                at,
                id: id.clone(),
                name: (*name).to_owned(),
                free_form: false,
            });
            events.extend(
                deltas(arguments, delta_chars)
                    .map(|fragment| StreamEvent::ToolCallArguments { at, fragment }),
            );
            events.push(StreamEvent::ToolCallEnded { at });
        }
        events.push(StreamEvent::Finished { choice: 0, stop: self.turn.stop.clone() });
        events.push(StreamEvent::Usage(self.usage.clone()));
        events.push(StreamEvent::Ended);
        events
    }
}

/// A text in pieces of so many characters, or in one.
fn deltas(text: &str, chars: Option<usize>) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let size = chars.unwrap_or(characters.len()).max(1);
    characters.chunks(size).map(|piece| piece.iter().collect()).collect::<Vec<String>>().into_iter()
}

fn arguments(call: &Call, values: &Values) -> String {
    match &call.arguments {
        Arguments::Text(text) => fill(text, values),
        Arguments::Json(value) => fill_value(value, values).to_string(),
    }
}

fn fill_value(value: &Value, values: &Values) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, values)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, values)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), fill_value(value, values))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// What was written, or a guess of four bytes a token that is the same for the same request.
fn usage(turn: &Turn, request: &Request, written_bytes: usize) -> Usage {
    let guess = |bytes: usize| (bytes as u64).div_ceil(4);
    if let Some(UsageFile { input, output, cached, reasoning }) = turn.usage {
        return Usage { input, output, cached, reasoning, extra: Extra::default() };
    }
    let read = request.messages.iter().flat_map(|message| &message.parts).map(|part| match part {
        Part::Text(text) => text.text.len(),
        Part::ToolCall(call) => call.name.len() + call.arguments.len(),
        Part::ToolResult(result) => result.text().len(),
        Part::Reasoning(reasoning) => reasoning.text.len(),
        Part::Image(_) | Part::Unknown(_) => 0,
    });
    Usage { input: guess(read.sum()), output: guess(written_bytes), ..Usage::default() }
}

#[cfg(test)]
#[path = "compose_tests.rs"]
mod tests;
