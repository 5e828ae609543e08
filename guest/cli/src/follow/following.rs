//! What follows from what a follower hears. Pure: frames, lines and signals in,
//! things to show and decisions to send out.
//!
//! ```text
//!              waits, somebody can answer          answered, more waits
//!  watching ───────────────────────────────▶ asking ◀────────────┐
//!     ▲                                        │ │               │
//!     │ goes on (decided here or elsewhere)    │ └───────────────┘
//!     └────────────────────────────────────────┘
//!  ended: over · waits and nobody can answer · Ctrl-C · connection lost for good
//! ```

use std::collections::{BTreeMap, BTreeSet};

use api::control::{Body, Item, Pending, Response};
use domain::approval::Wants;
use domain::log::Verdict;
use domain::run::Status;

use crate::exit::{Exit, Failure};

/// Who answers what a run asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The person at the terminal.
    Person,
    /// Nobody here: the follower ends and says how to decide.
    Nobody,
    /// Somebody in another place: the follower only watches.
    Elsewhere,
    /// The demo itself, after a moment in which the card can be read.
    Rehearsal,
}

/// What a follower hears.
#[derive(Debug)]
pub(crate) enum Heard {
    Frame(Response),
    /// The connection broke and is being made again.
    Lost,
    /// It could not be made again.
    Broken(Failure),
    Line(String),
    EndOfInput,
    Interrupt,
    /// The moment for reading a card is over.
    MomentOver,
    /// What became of a decision that was sent.
    Decided {
        request: u64,
        result: Result<(), Failure>,
    },
}

/// What a follower does.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    Item(Box<Item>),
    Card(Box<Pending>),
    /// Puts the question under the card.
    Ask(Wants),
    /// Takes an open question back.
    Unask,
    /// Leaves the card standing for a moment.
    Moment,
    Note(String),
    Decide {
        pending: Box<Pending>,
        verdict: Verdict,
        reason: Option<String>,
    },
    Status(Status),
    End(End),
}

/// How following ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    Over { status: Status, failure: Option<String> },
    Waiting(Vec<Pending>),
    Detached,
    Broken(Failure),
}

impl End {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Over { status, .. } => match status {
                Status::Failed => Exit::Failed,
                Status::Cancelled => Exit::Cancelled,
                Status::Done | Status::Running | Status::WaitingApproval => Exit::Ok,
            },
            Self::Waiting(_) => Exit::Waiting,
            Self::Detached => Exit::Interrupted,
            Self::Broken(failure) => failure.exit,
        }
    }
}

/// A line typed under a card.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Verdict(Verdict, Option<String>),
    /// Leave it waiting.
    Later,
    /// Not understood.
    Again,
}

/// The state of one follower.
#[derive(Debug)]
pub(crate) struct Following {
    answers: Answers,
    /// Highest entry seen of each log: a connection made again repeats them.
    seen_control: u64,
    seen_worker: u64,
    status: Option<Status>,
    /// What waits, by request number.
    waiting: BTreeMap<u64, Pending>,
    /// Requests a decision was sent for.
    sent: BTreeSet<u64>,
    /// The request whose question is open.
    asking: Option<u64>,
}

impl Following {
    pub(crate) fn new(answers: Answers) -> Self {
        Self {
            answers,
            seen_control: 0,
            seen_worker: 0,
            status: None,
            waiting: BTreeMap::new(),
            sent: BTreeSet::new(),
            asking: None,
        }
    }

    /// Does not repeat items that were shown already.
    pub(crate) fn skip(&mut self, items: &[Item]) {
        for item in items {
            self.is_new(item);
        }
    }

    pub(crate) fn hear(&mut self, heard: Heard) -> Vec<Effect> {
        match heard {
            Heard::Frame(Response::Item(item)) => {
                if self.is_new(&item) {
                    vec![Effect::Item(item)]
                } else {
                    Vec::new()
                }
            }
            Heard::Frame(Response::Status { status, failure, pending }) => {
                self.status(status, failure, pending)
            }
            Heard::Frame(_) => vec![Effect::End(End::Broken(Failure::other_version()))],
            Heard::Lost => vec![Effect::Note("connection lost; trying again".to_owned())],
            Heard::Broken(failure) => vec![Effect::End(End::Broken(failure))],
            Heard::Line(line) => self.line(&line),
            Heard::EndOfInput if self.asking.is_some() => vec![Effect::End(self.leave_waiting())],
            Heard::EndOfInput => Vec::new(),
            Heard::Interrupt => vec![Effect::End(End::Detached)],
            Heard::MomentOver => self.rehearsed(),
            Heard::Decided { request, result } => self.decided(request, result),
        }
    }

    fn is_new(&mut self, item: &Item) -> bool {
        let seen = match item.body {
            Body::Control(_) => &mut self.seen_control,
            Body::Worker(_) => &mut self.seen_worker,
        };
        let new = item.seq > *seen;
        *seen = item.seq.max(*seen);
        new
    }

    fn status(
        &mut self,
        status: Status,
        failure: Option<String>,
        pending: Vec<Pending>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.status.replace(status) != Some(status) {
            effects.push(Effect::Status(status));
        }
        self.waiting = pending
            .into_iter()
            .filter(|pending| !self.sent.contains(&pending.request))
            .map(|pending| (pending.request, pending))
            .collect();
        let open = self.asking.is_some_and(|request| !self.waiting.contains_key(&request));
        if open || (self.asking.is_some() && status != Status::WaitingApproval) {
            self.asking = None;
            effects.push(Effect::Unask);
        }
        if status.is_over() {
            effects.push(Effect::End(End::Over { status, failure }));
        } else if status == Status::WaitingApproval {
            effects.extend(self.next_question());
        }
        effects
    }

    /// Puts the oldest question, unless one is open.
    fn next_question(&mut self) -> Vec<Effect> {
        if self.asking.is_some() || self.answers == Answers::Elsewhere {
            return Vec::new();
        }
        let Some(pending) = self.waiting.values().next() else { return Vec::new() };
        let card = Effect::Card(Box::new(pending.clone()));
        let asked = match self.answers {
            Answers::Nobody | Answers::Elsewhere => {
                let cards = self.waiting.values().map(|p| Effect::Card(Box::new(p.clone())));
                let mut effects: Vec<Effect> = cards.collect();
                effects.push(Effect::End(self.leave_waiting()));
                return effects;
            }
            Answers::Person => Effect::Ask(pending.card.wants),
            Answers::Rehearsal => Effect::Moment,
        };
        self.asking = Some(pending.request);
        vec![card, asked]
    }

    fn leave_waiting(&self) -> End {
        End::Waiting(self.waiting.values().cloned().collect())
    }

    fn open_request(&self) -> Option<&Pending> {
        self.asking.and_then(|request| self.waiting.get(&request))
    }

    fn line(&mut self, line: &str) -> Vec<Effect> {
        let Some(pending) = self.open_request() else { return Vec::new() };
        match parse_answer(pending.card.wants, line) {
            Answer::Verdict(verdict, reason) => self.send(verdict, reason),
            Answer::Later => vec![Effect::End(self.leave_waiting())],
            Answer::Again => vec![Effect::Ask(pending.card.wants)],
        }
    }

    fn rehearsed(&mut self) -> Vec<Effect> {
        let Some(pending) = self.open_request() else { return Vec::new() };
        let (verdict, says) = match pending.card.wants {
            Wants::Approval => (Verdict::Approve, "yes"),
            Wants::Answer => (Verdict::Answer("go ahead".to_owned()), "go ahead"),
        };
        let mut effects =
            vec![Effect::Note(format!("{says}   (no terminal: the rehearsal answers)"))];
        effects.extend(self.send(verdict, None));
        effects
    }

    fn send(&mut self, verdict: Verdict, reason: Option<String>) -> Vec<Effect> {
        let Some(pending) = self.asking.take().and_then(|request| self.waiting.remove(&request))
        else {
            return Vec::new();
        };
        self.sent.insert(pending.request);
        vec![Effect::Decide { pending: Box::new(pending), verdict, reason }]
    }

    fn decided(&mut self, request: u64, result: Result<(), Failure>) -> Vec<Effect> {
        let mut effects = Vec::new();
        match result {
            Ok(()) => {}
            // Somebody else was faster, or it drifted: the next status says what waits now.
            Err(failure) if failure.exit == Exit::Conflict => {
                self.sent.remove(&request);
                effects.push(Effect::Note(failure.what));
            }
            Err(failure) => return vec![Effect::End(End::Broken(failure))],
        }
        effects.extend(self.next_question());
        effects
    }
}

/// Reads a line typed under a card. A yes is a whole word; anything longer than
/// a letter that is no answer is the reason of a no.
fn parse_answer(wants: Wants, line: &str) -> Answer {
    let line = line.trim();
    match (wants, line.to_lowercase().as_str()) {
        (_, "l" | "later") | (Wants::Answer, "") => Answer::Later,
        (Wants::Approval, "y" | "yes") => Answer::Verdict(Verdict::Approve, None),
        (Wants::Approval, "" | "n" | "no") => Answer::Verdict(Verdict::Deny, None),
        (Wants::Approval, other) if other.chars().count() == 1 => Answer::Again,
        (Wants::Approval, _) => Answer::Verdict(Verdict::Deny, Some(line.to_owned())),
        (Wants::Answer, _) => Answer::Verdict(Verdict::Answer(line.to_owned()), None),
    }
}

#[cfg(test)]
#[path = "following_tests.rs"]
mod tests;
