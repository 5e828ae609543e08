//! The public state of a run: the fold of its control log.
//!
//! ```text
//!            launched            asked                 decided (all)
//!  created ───────────▶ running ───────▶ waiting_approval ───────▶ running
//!                         │  ▲                                       │
//!         ended/failed    │  │ turn, launched                        │ …
//!                         ▼  │                                       ▼
//!             done · failed · cancelled ◀────────────────────────────┘
//! ```
//!
//! What the worker writes is a claim and never changes this state by itself:
//! the control plane reads the claim and appends a control entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::approval::Card;
use crate::id::Millis;
use crate::log::{Control, EndStatus, Entry, Verdict};

/// A run's status as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Running,
    WaitingApproval,
    Done,
    Failed,
    Cancelled,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::WaitingApproval => "waiting_approval",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// No worker will be launched without somebody asking for it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// One request and, once there, its decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub request: u64,
    pub card: Card,
    pub digest: String,
    pub asked_at: Millis,
    pub decision: Option<Decision>,
}

/// A person's decision on one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub seq: u64,
    pub verdict: Verdict,
    pub digest: String,
    pub by: String,
    pub reason: Option<String>,
}

/// Why a control entry may not follow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    #[error("request {request} is not known to this run")]
    UnknownRequest { request: u64 },
    #[error("request {request} was already decided by {by}")]
    AlreadyDecided { request: u64, by: String },
    #[error("the decision is for digest {given}, the card shown has {shown}")]
    OtherDigest { given: String, shown: String },
    #[error("request {request} wants {wants}")]
    WrongAnswer { request: u64, wants: &'static str },
    #[error("the run is {status}", status = .status.as_str())]
    Over { status: Status },
}

/// The fold itself. `apply` entries in order; [`RunState::default`] is a run
/// whose control log is still empty.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    pub status: Status,
    pub requests: BTreeMap<u64, Request>,
    /// Highest sequence number applied.
    pub seq: u64,
    /// Launches so far.
    pub launches: u32,
    /// A worker was launched and is not yet recorded as gone.
    pub launched: bool,
    pub cancel_requested: bool,
    pub failure: Option<String>,
    pub turns: u32,
    /// Latest message to the model (turn, steer): a worker that finished
    /// without having consumed it is not finished.
    pub last_input: u64,
    pub last_activity: Millis,
}

impl Default for RunState {
    fn default() -> Self {
        Self {
            status: Status::Running,
            requests: BTreeMap::new(),
            seq: 0,
            launches: 0,
            launched: false,
            cancel_requested: false,
            failure: None,
            turns: 0,
            last_input: 0,
            last_activity: Millis(0),
        }
    }
}

impl RunState {
    /// Folds a whole control log.
    pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry<Control>>) -> Self {
        let mut state = Self::default();
        for entry in entries {
            state.apply(entry);
        }
        state
    }

    /// Whether `entry` may be appended now. The control plane asks before it
    /// writes; a log on disk is folded as it is.
    pub fn check(&self, entry: &Control) -> Result<(), Illegal> {
        match entry {
            Control::Decided { request, digest, verdict, .. } => {
                self.check_decision(*request, digest, verdict)
            }
            Control::Steer { .. } | Control::Cancel { .. } if self.status.is_over() => {
                Err(Illegal::Over { status: self.status })
            }
            Control::Turn { .. }
            | Control::Steer { .. }
            | Control::Asked { .. }
            | Control::Policy { .. }
            | Control::Launched { .. }
            | Control::Gone { .. }
            | Control::Cancel { .. }
            | Control::Failed { .. }
            | Control::Ended { .. }
            | Control::TornTail { .. } => Ok(()),
        }
    }

    fn check_decision(&self, request: u64, digest: &str, verdict: &Verdict) -> Result<(), Illegal> {
        use crate::approval::Wants;
        let asked = self.requests.get(&request).ok_or(Illegal::UnknownRequest { request })?;
        if let Some(decision) = &asked.decision {
            return Err(Illegal::AlreadyDecided { request, by: decision.by.clone() });
        }
        if self.status != Status::WaitingApproval {
            return Err(Illegal::Over { status: self.status });
        }
        if asked.digest != digest {
            return Err(Illegal::OtherDigest {
                given: digest.to_owned(),
                shown: asked.digest.clone(),
            });
        }
        match (asked.card.wants, verdict) {
            (Wants::Answer, Verdict::Approve) => {
                Err(Illegal::WrongAnswer { request, wants: "an answer in words" })
            }
            (Wants::Approval, Verdict::Answer(_)) => {
                Err(Illegal::WrongAnswer { request, wants: "approve or deny" })
            }
            (Wants::Approval, Verdict::Approve | Verdict::Deny)
            | (Wants::Answer, Verdict::Answer(_) | Verdict::Deny) => Ok(()),
        }
    }

    /// Takes one entry in.
    pub fn apply(&mut self, entry: &Entry<Control>) {
        self.seq = entry.seq;
        self.last_activity = self.last_activity.max(entry.at);
        match &entry.body {
            Control::Turn { .. } => {
                self.turns += 1;
                self.last_input = entry.seq;
                self.resume();
            }
            Control::Steer { .. } => self.last_input = entry.seq,
            Control::Policy { .. } | Control::TornTail { .. } => {}
            Control::Asked { request, card, digest } => {
                self.status = Status::WaitingApproval;
                self.requests.insert(
                    *request,
                    Request {
                        request: *request,
                        card: (**card).clone(),
                        digest: digest.clone(),
                        asked_at: entry.at,
                        decision: None,
                    },
                );
            }
            Control::Decided { request, digest, verdict, by, reason } => {
                if let Some(asked) = self.requests.get_mut(request) {
                    asked.decision.get_or_insert(Decision {
                        seq: entry.seq,
                        verdict: verdict.clone(),
                        digest: digest.clone(),
                        by: by.clone(),
                        reason: reason.clone(),
                    });
                }
                if self.status == Status::WaitingApproval && self.pending().next().is_none() {
                    self.status = Status::Running;
                }
            }
            Control::Launched { .. } => {
                self.launches += 1;
                self.launched = true;
                if self.status.is_over() {
                    self.resume();
                }
            }
            Control::Gone { .. } => self.launched = false,
            Control::Cancel { .. } => self.cancel_requested = true,
            Control::Failed { reason } => {
                self.status = Status::Failed;
                self.failure = Some(reason.clone());
                self.launched = false;
            }
            Control::Ended { status } => {
                self.status = match status {
                    EndStatus::Done => Status::Done,
                    EndStatus::Cancelled => Status::Cancelled,
                };
                self.launched = false;
            }
        }
    }

    fn resume(&mut self) {
        if self.status != Status::WaitingApproval {
            self.status = Status::Running;
        }
        self.cancel_requested = false;
        self.failure = None;
    }

    /// Requests that wait for a person, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Request> {
        self.requests.values().filter(|r| r.decision.is_none())
    }

    /// A worker should be running and none is recorded.
    pub fn wants_launch(&self) -> bool {
        self.status == Status::Running && !self.launched && !self.cancel_requested
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval::Wants;
    use crate::log::{Call, Gone};
    use crate::record::Source;

    fn card(wants: Wants) -> Card {
        Card {
            wants,
            call: Call {
                id: "c1".into(),
                tool: "run_command".into(),
                arguments: "{}".into(),
                raw: None,
            },
            summary: "ls".into(),
            cwd: "/ws".into(),
            rule: "command.ask".into(),
            why: "not known to be safe".into(),
            policy_generation: 0,
            bound: vec![],
            not_bound: vec![],
            drift: vec![],
        }
    }

    fn fold(bodies: Vec<Control>) -> RunState {
        let entries: Vec<Entry<Control>> =
            (1..).zip(bodies).map(|(seq, body)| Entry { seq, at: Millis(seq), body }).collect();
        RunState::fold(&entries)
    }

    fn turn() -> Control {
        Control::Turn { text: "go".into(), speaker: None, source: Source::Task, images: 0 }
    }

    fn asked(request: u64) -> Control {
        Control::Asked { request, card: Box::new(card(Wants::Approval)), digest: "d".into() }
    }

    fn decided(request: u64) -> Control {
        Control::Decided {
            request,
            digest: "d".into(),
            verdict: Verdict::Approve,
            by: "os:x".into(),
            reason: None,
        }
    }

    #[test]
    fn a_run_waits_until_every_request_of_a_batch_is_decided() {
        let mut log = vec![turn(), Control::Launched { attempt: 1 }, asked(3), asked(4)];
        log.push(Control::Gone { how: Gone::Code(0) });
        assert_eq!(fold(log.clone()).status, Status::WaitingApproval);
        log.push(decided(3));
        assert_eq!(fold(log.clone()).status, Status::WaitingApproval);
        log.push(decided(4));
        let state = fold(log);
        assert_eq!(state.status, Status::Running);
        assert!(state.wants_launch());
    }

    #[test]
    fn a_request_is_decided_once() {
        let state = fold(vec![turn(), asked(3), decided(3)]);
        assert_eq!(
            state.check(&decided(3)),
            Err(Illegal::AlreadyDecided { request: 3, by: "os:x".into() })
        );
        assert_eq!(state.check(&decided(9)), Err(Illegal::UnknownRequest { request: 9 }));
        assert_eq!(fold(vec![turn(), asked(3)]).check(&decided(3)), Ok(()));
    }

    #[test]
    fn a_decision_for_another_digest_is_refused() {
        let state = fold(vec![turn(), asked(3)]);
        let mut other = decided(3);
        if let Control::Decided { digest, .. } = &mut other {
            *digest = "e".into();
        }
        assert!(matches!(state.check(&other), Err(Illegal::OtherDigest { .. })));
    }

    #[test]
    fn a_question_is_not_answered_by_yes() {
        let question =
            Control::Asked { request: 3, card: Box::new(card(Wants::Answer)), digest: "d".into() };
        let state = fold(vec![turn(), question]);
        assert!(matches!(state.check(&decided(3)), Err(Illegal::WrongAnswer { .. })));
    }

    #[test]
    fn a_new_turn_reopens_what_was_over() {
        for end in [
            Control::Ended { status: EndStatus::Done },
            Control::Ended { status: EndStatus::Cancelled },
            Control::Failed { reason: "x".into() },
        ] {
            let over = fold(vec![turn(), Control::Launched { attempt: 1 }, end.clone()]);
            assert!(over.status.is_over() && !over.wants_launch());
            let again = fold(vec![turn(), Control::Launched { attempt: 1 }, end, turn()]);
            assert!(again.wants_launch());
        }
    }

    #[test]
    fn a_cancelled_run_is_not_launched_again_by_itself() {
        let state = fold(vec![turn(), Control::Cancel { by: "os:x".into() }]);
        assert!(!state.wants_launch());
    }
}
