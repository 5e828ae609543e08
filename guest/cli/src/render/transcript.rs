//! The transcript of a run, an item at a time: one line for a call, one for its
//! result, the assistant's own words behind a gutter. Live output and `show`
//! use the same lines.

use std::collections::HashMap;

use api::control::{Body, Item};
use domain::log::{Control, EndStatus, Event, Finish, Gone, Outcome, Verdict};
use domain::record::ApprovalMode;
use serde_json::Value;

use super::style::{Style, Tone};
use super::{attestation, block, card};
use crate::limits;

/// The argument that says most about a call, first match wins.
const TELLING: [&str; 8] =
    ["command", "path", "pattern", "query", "url", "question", "file", "name"];

/// Turns items into lines and remembers what a later item refers to.
#[derive(Debug)]
pub(crate) struct Transcript {
    style: Style,
    /// What each request was about, for the line of its decision.
    requests: HashMap<u64, String>,
    last_words: String,
}

impl Transcript {
    pub(crate) fn new(style: Style) -> Self {
        Self { style, requests: HashMap::new(), last_words: String::new() }
    }

    /// The lines of one item; none where another item says the same.
    pub(crate) fn item(&mut self, item: &Item) -> Vec<String> {
        match &item.body {
            Body::Control(entry) => self.control(entry),
            Body::Worker(event) => self.worker(event),
        }
    }

    fn control(&mut self, entry: &Control) -> Vec<String> {
        let style = self.style;
        match entry {
            Control::Turn { text, speaker, images, .. } => {
                let mut lines = self.said("you", speaker.as_deref(), text);
                if *images > 0 {
                    lines.push(self.note(&format!("with {images} images")));
                }
                lines
            }
            Control::Steer { text, speaker } => {
                self.said("you, meanwhile", speaker.as_deref(), text)
            }
            Control::Asked { request, card, .. } => {
                let summary = block::row(&card.summary, 60);
                let about = format!("{} {summary}", block::row(&card.call.tool, 40));
                let line = self.marked("?", Tone::Warn, &format!("request {request}: {about}"));
                self.requests.insert(*request, about);
                vec![line]
            }
            Control::Decided { request, verdict, by, reason, .. } => {
                vec![self.decided(*request, verdict, by, reason.as_deref())]
            }
            Control::Policy { generation, approvals, by } => {
                let what = match approvals {
                    ApprovalMode::Automatic => "nothing asks first",
                    ApprovalMode::Queue => "what the policy says asks first",
                };
                vec![self.note(&format!("from now on {what}, by {by} (policy {generation})"))]
            }
            Control::Launched { attempt: 1 } => vec![self.note("a worker started")],
            Control::Launched { attempt } => {
                vec![self.note(&format!("a worker started again (launch {attempt})"))]
            }
            Control::Gone { how: Gone::Code(0) } => Vec::new(),
            Control::Gone { how } => vec![self.marked("!", Tone::Warn, &gone(how))],
            Control::Cancel { by } => vec![self.note(&format!("{by} asked to cancel"))],
            Control::Failed { reason } => self.block("✘ failed: ", Tone::Bad, reason),
            Control::Ended { status: EndStatus::Done } => {
                vec![style.paint(Tone::Good, "✔ done")]
            }
            Control::Ended { status: EndStatus::Cancelled } => {
                vec![style.paint(Tone::Warn, "✘ cancelled")]
            }
            Control::TornTail { bytes, kept_as } => vec![self.torn("control log", *bytes, kept_as)],
        }
    }

    fn worker(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::SecurityAttestation(claim) => attestation::in_transcript(self.style, claim),
            Event::Assistant { step, text, calls, .. } => {
                text.trim().clone_into(&mut self.last_words);
                let mut lines = self.block(&format!("● {step}  "), Tone::Strong, text.trim());
                for call in calls {
                    let tool = block::row(&call.tool, 40);
                    let room = self.style.width.saturating_sub(block::width(&tool) + 7);
                    let about = block::row(&about(&call.arguments), room);
                    let arrow = self.style.paint(Tone::Accent, "→");
                    let line = format!("  {arrow} {}  {about}", self.style.strong(&tool));
                    lines.push(line.trim_end().to_owned());
                }
                lines
            }
            Event::ModelError { attempt, why } => {
                vec![self.marked(
                    "!",
                    Tone::Warn,
                    &format!("the model did not answer (try {attempt}): {why}"),
                )]
            }
            Event::Result { tool, outcome, text, changes, .. } => {
                let written = changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>();
                vec![self.result(tool, *outcome, text, &written)]
            }
            Event::GuardrailBlock(denial) => card::denial(self.style, denial),
            Event::Note { text } => vec![self.note(text)],
            Event::TornTail { bytes, kept_as } => vec![self.torn("worker's log", *bytes, kept_as)],
            Event::Finished(Finish::Done { text }) if text.trim() != self.last_words => {
                self.block("", Tone::Plain, text.trim())
            }
            Event::Finished(Finish::Failed { reason }) => {
                vec![self.marked("!", Tone::Warn, &format!("the worker gave up: {reason}"))]
            }
            // Each of these is told by an item of the control log, or by the result that follows.
            Event::Finished(Finish::Done { .. } | Finish::Cancelled)
            | Event::Consumed { .. }
            | Event::CallStarted { .. }
            | Event::ApprovalRequested { .. }
            | Event::Waiting { .. }
            | Event::ApprovalApplied { .. } => Vec::new(),
        }
    }

    fn decided(&self, request: u64, verdict: &Verdict, by: &str, reason: Option<&str>) -> String {
        let (mark, tone, word) = match verdict {
            Verdict::Approve => ("✔", Tone::Good, "approved"),
            Verdict::Deny => ("✘", Tone::Bad, "denied"),
            Verdict::Answer(_) => ("✔", Tone::Good, "answered"),
        };
        let mut text = format!("request {request} {word} by {by}");
        if let Verdict::Answer(answer) = verdict {
            text = format!("{text}: {answer}");
        } else if let Some(about) = self.requests.get(&request) {
            text = format!("{text}: {about}");
        }
        if let Some(reason) = reason {
            text = format!("{text}; reason: {reason}");
        }
        self.marked(mark, tone, &text)
    }

    fn result(&self, tool: &str, outcome: Outcome, text: &str, written: &[&str]) -> String {
        let (mark, tone, word) = match outcome {
            Outcome::Ok => ("✓", Tone::Good, ""),
            Outcome::Error => ("✗", Tone::Bad, "failed: "),
            Outcome::Denied => ("⊘", Tone::Bad, "refused: "),
            Outcome::Unknown => ("?", Tone::Warn, "interrupted, result unknown: "),
            Outcome::Skipped => ("-", Tone::Dim, "not run: "),
        };
        let mut rest = text.trim().lines();
        let first = rest.next().unwrap_or_default();
        let more = rest.count();
        let more = if more > 0 { format!("  (+{more} lines)") } else { String::new() };
        let wrote = if written.is_empty() {
            String::new()
        } else {
            format!("  [wrote {}]", block::row(&written.join(", "), 60))
        };
        let mut tail = format!("{more}{wrote}");
        if block::width(&tail) > self.style.width / 2 {
            tail.clear();
        }
        let room = self.style.width.saturating_sub(block::width(&tail) + 5);
        let said = block::row(&format!("{tool}  {word}{first}"), room);
        let mark = self.style.paint(tone, mark);
        format!("  {mark} {}{}", said.trim_end(), self.style.dim(&tail))
    }

    /// A person's words.
    fn said(&self, who: &str, speaker: Option<&str>, text: &str) -> Vec<String> {
        let who = speaker.map_or_else(|| who.to_owned(), |name| block::row(name, 30));
        self.block(&format!("▸ {who}: "), Tone::Accent, text.trim())
    }

    /// Text behind a head, its further lines behind a gutter.
    fn block(&self, head: &str, tone: Tone, text: &str) -> Vec<String> {
        let room = self.style.width.saturating_sub(block::width(head).max(2));
        let mut lines = block::wrap(text, room, limits::TURN_CHARACTERS).into_iter();
        let first = lines.next().unwrap_or_default();
        let head = if first.is_empty() { head.trim_end() } else { head };
        let mut out = vec![format!("{}{first}", self.style.paint(tone, head))];
        let bar = self.style.paint(tone, "│");
        out.extend(lines.map(|line| format!("{bar} {line}").trim_end().to_owned()));
        out
    }

    fn marked(&self, mark: &str, tone: Tone, text: &str) -> String {
        let text = block::row(text, self.style.width.saturating_sub(2));
        format!("{} {text}", self.style.paint(tone, mark))
    }

    fn note(&self, text: &str) -> String {
        self.style.dim(&self.marked("·", Tone::Plain, text))
    }

    fn torn(&self, what: &str, bytes: u64, kept_as: &str) -> String {
        let text = format!("{bytes} bytes torn off the {what} were set aside as {kept_as}");
        self.marked("!", Tone::Warn, &text)
    }
}

fn gone(how: &Gone) -> String {
    match how {
        Gone::Code(code) => format!("the worker ended with code {code}"),
        Gone::Signal(signal) => format!("the worker was ended by signal {signal}"),
        Gone::Lost => "the worker was lost when the launcher ended".to_owned(),
    }
}

/// The one argument that tells most, or all of them as JSON.
fn about(arguments: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(arguments) else {
        return arguments.to_owned();
    };
    if fields.is_empty() {
        return String::new();
    }
    let telling = TELLING.iter().find_map(|name| fields.get(*name).and_then(Value::as_str));
    telling.map_or_else(|| Value::Object(fields.clone()).to_string(), str::to_owned)
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
