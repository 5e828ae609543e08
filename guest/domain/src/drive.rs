//! Where a worker stands: the fold of its own log, from which a drive resumes
//! after any interruption, and from which the control plane decides what to
//! record when the worker is gone.
//!
//! A call goes through these stages; the ones in brackets touch the world:
//!
//! ```text
//! Planned ─┬─────────────▶ [reads] ───────────────────────────────▶ Settled
//!          ├─ call_started ─▶ Started [effect] ───────────────────▶ Settled
//!          └─ approval_requested ─▶ Requested ─ approval_applied
//!                                      ─▶ Applied [effect] ───────▶ Settled
//! ```
//! A call found `Started` or `Applied` after a crash has an unknown outcome and
//! is never run again by itself; one found `Planned` or `Requested` never began.

use std::collections::HashMap;

use crate::approval::Bound;
use crate::log::{Call, Entry, Event, Finish, Gone};
use crate::run::{RunState, Status};
use crate::{limits, log};

/// How far one call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Planned,
    Started,
    /// The latest request for it.
    Requested {
        request: u64,
    },
    Applied {
        request: u64,
    },
    Settled,
}

/// A request as the worker wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Requested {
    pub call: String,
    pub tool: String,
    pub arguments: serde_json::Value,
    pub rule: String,
    pub why: String,
    pub drift: Vec<String>,
}

/// The fold of `events.jsonl`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drive {
    pub seq: u64,
    pub step: u32,
    pub tool_calls: u32,
    /// Entries that moved the run on: a worker that dies again and again
    /// without adding one is in a crash loop.
    pub progress: u64,
    /// Highest control entry that is part of the conversation.
    pub consumed: u64,
    /// Calls of the latest assistant turn, in order.
    pub calls: Vec<Call>,
    /// Text of the latest assistant turn.
    pub text: String,
    /// The latest turn ran into the token ceiling: its last call may be half.
    pub cut: bool,
    stages: HashMap<String, Stage>,
    pub requests: HashMap<u64, Requested>,
    /// Requests the worker last exited for.
    pub waiting: Vec<u64>,
    pub finished: Option<Finish>,
    /// Milliseconds spent driving in launches before the present one.
    pub driven_ms: u64,
    /// The same of the present one, so far.
    present_ms: u64,
    latest_at: u64,
}

impl Drive {
    /// Folds a whole log.
    pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry<Event>>) -> Self {
        let mut drive = Self::default();
        for entry in entries {
            drive.apply(entry);
        }
        drive
    }

    /// The stage of a call of the latest turn.
    pub fn stage(&self, call: &str) -> Stage {
        self.stages.get(call).copied().unwrap_or(Stage::Planned)
    }

    /// Takes one entry in.
    pub fn apply(&mut self, entry: &Entry<Event>) {
        self.seq = entry.seq;
        let at = entry.at.0;
        if !matches!(
            entry.body,
            Event::Consumed { .. }
                | Event::SecurityAttestation(_)
                | Event::TornTail { .. }
                | Event::ModelError { .. }
        ) {
            self.progress += 1;
        }
        match &entry.body {
            Event::Consumed { control_seq } => {
                self.consumed = *control_seq;
                self.finished = None;
            }
            Event::SecurityAttestation(_) => {
                // First entry of each drive: what was between is not driving time.
                self.driven_ms += self.present_ms;
                self.present_ms = 0;
                self.latest_at = at;
                self.waiting.clear();
                self.finished = None;
            }
            Event::Assistant { step, text, calls, stop, .. } => {
                self.step = *step;
                self.text.clone_from(text);
                self.cut = stop == "max_tokens";
                self.calls.clone_from(calls);
                self.stages = calls.iter().map(|c| (c.id.clone(), Stage::Planned)).collect();
                self.requests.clear();
                self.waiting.clear();
            }
            Event::CallStarted { call, .. } => {
                self.tool_calls += 1;
                self.set(call, Stage::Started);
            }
            Event::ApprovalRequested { call, tool, arguments, rule, why, drift } => {
                self.set(call, Stage::Requested { request: entry.seq });
                self.requests.insert(
                    entry.seq,
                    Requested {
                        call: call.clone(),
                        tool: tool.clone(),
                        arguments: arguments.clone(),
                        rule: rule.clone(),
                        why: why.clone(),
                        drift: drift.clone(),
                    },
                );
            }
            Event::Waiting { requests } => self.waiting.clone_from(requests),
            Event::ApprovalApplied { call, request, .. } => {
                self.tool_calls += 1;
                self.set(call, Stage::Applied { request: *request });
            }
            Event::Result { call, .. } => {
                if self.stage(call) == Stage::Planned {
                    self.tool_calls += 1;
                }
                self.set(call, Stage::Settled);
            }
            Event::Finished(finish) => self.finished = Some(finish.clone()),
            Event::ModelError { .. }
            | Event::GuardrailBlock(_)
            | Event::Note { .. }
            | Event::TornTail { .. } => {}
        }
        // A clock that was set while the worker ran moves one gap, and a gap is
        // never longer than the longest single act.
        self.present_ms += at.saturating_sub(self.latest_at).min(limits::LONGEST_ACT_MS);
        self.latest_at = at;
    }

    fn set(&mut self, call: &str, stage: Stage) {
        self.stages.insert(call.to_owned(), stage);
    }

    /// Calls of the latest turn that have no result yet, in order.
    pub fn unsettled(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| self.stage(&call.id) != Stage::Settled)
    }

    /// The latest turn called no tool: its text is the answer.
    pub fn answered(&self) -> bool {
        self.step > 0 && self.calls.is_empty()
    }
}

/// What the control plane does about a run whose worker is gone.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Build a card for each of these requests and record `asked`.
    Ask(Vec<u64>),
    /// Record the end.
    End(log::EndStatus),
    Fail(String),
    /// The worker stopped before it was finished: launch it again.
    Launch,
    /// Nothing to do: the run waits for a person or is over.
    Rest,
}

/// Decides from both logs alone, so that the same answer comes out before and
/// after a crash of the control plane. `stalled` counts launches in a row that
/// added nothing to the worker's log.
pub fn plan_next(state: &RunState, drive: &Drive, stalled: u32, gone: Option<&Gone>) -> Next {
    if state.status.is_over() || state.launched {
        return Next::Rest;
    }
    // A message that arrived while the worker finished reopens the run.
    let current = drive.consumed >= state.last_input;
    match &drive.finished {
        Some(Finish::Done { .. }) if current => return Next::End(log::EndStatus::Done),
        Some(Finish::Cancelled) if current => return Next::End(log::EndStatus::Cancelled),
        Some(Finish::Failed { reason }) if current => return Next::Fail(reason.clone()),
        Some(_) | None => {}
    }
    if state.cancel_requested {
        return Next::End(log::EndStatus::Cancelled);
    }
    // A run that was cancelled while it waited and taken up again waits for
    // the same requests: they are shown anew.
    let lapsed = |request: &u64| {
        state.status == Status::Running
            && state.requests.get(request).is_some_and(|asked| asked.decision.is_none())
    };
    let unasked: Vec<u64> = drive
        .waiting
        .iter()
        .copied()
        .filter(|request| !state.requests.contains_key(request) || lapsed(request))
        .collect();
    if !unasked.is_empty() {
        return Next::Ask(unasked);
    }
    if state.pending().next().is_some() {
        return Next::Rest;
    }
    if stalled >= limits::LAUNCHES_WITHOUT_PROGRESS {
        let how = match gone {
            Some(Gone::Code(code)) => format!("exit code {code}"),
            Some(Gone::Signal(signal)) => format!("signal {signal}"),
            Some(Gone::Lost) | None => "no exit seen".to_owned(),
        };
        return Next::Fail(format!(
            "the worker died {stalled} times in a row without a step ({how}); see `sentinel logs --workers`, then `sentinel resume`"
        ));
    }
    Next::Launch
}

/// The parts an earlier decision on `request` was bound to.
pub fn approved_parts(state: &RunState, request: u64) -> Option<&[Bound]> {
    state.requests.get(&request).map(|r| r.card.bound.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Millis;
    use crate::log::{Control, EndStatus, Outcome, Usage};
    use crate::record::Source;

    fn entries<T>(bodies: Vec<T>) -> Vec<Entry<T>> {
        bodies
            .into_iter()
            .zip(1..)
            .map(|(body, seq)| Entry { seq, at: Millis(seq), body })
            .collect()
    }

    fn assistant(calls: &[&str]) -> Event {
        Event::Assistant {
            step: 1,
            text: String::new(),
            reasoning: String::new(),
            calls: calls
                .iter()
                .map(|id| Call {
                    id: (*id).into(),
                    tool: "t".into(),
                    arguments: "{}".into(),
                    raw: None,
                })
                .collect(),
            model: "m".into(),
            usage: Usage::default(),
            stop: "tool_use".into(),
            prompt_digest: String::new(),
            policy_generation: 0,
        }
    }

    fn result(call: &str) -> Event {
        Event::Result {
            call: call.into(),
            tool: "t".into(),
            outcome: Outcome::Ok,
            text: String::new(),
            blob: None,
            changes: vec![],
        }
    }

    fn requested(call: &str) -> Event {
        Event::ApprovalRequested {
            call: call.into(),
            tool: "t".into(),
            arguments: serde_json::json!({}),
            rule: "r".into(),
            why: "w".into(),
            drift: vec![],
        }
    }

    fn running() -> Vec<Control> {
        vec![
            Control::Turn { text: "go".into(), speaker: None, source: Source::Task, images: 0 },
            Control::Launched { attempt: 1 },
            Control::Gone { how: Gone::Signal(9) },
        ]
    }

    fn next(control: Vec<Control>, events: Vec<Event>, stalled: u32) -> Next {
        let (control, events) = (entries(control), entries(events));
        plan_next(&RunState::fold(&control), &Drive::fold(&events), stalled, None)
    }

    #[test]
    fn stages_follow_the_log() {
        let mut log = vec![assistant(&["a", "b", "c"]), result("a")];
        log.push(Event::CallStarted { call: "b".into(), tool: "t".into() });
        log.push(requested("c"));
        let drive = Drive::fold(&entries(log.clone()));
        assert_eq!(drive.stage("a"), Stage::Settled);
        assert_eq!(drive.stage("b"), Stage::Started);
        assert_eq!(drive.stage("c"), Stage::Requested { request: 4 });
        log.push(Event::ApprovalApplied { call: "c".into(), request: 4, digest: "d".into() });
        let drive = Drive::fold(&entries(log));
        assert_eq!(drive.stage("c"), Stage::Applied { request: 4 });
        assert_eq!(drive.unsettled().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn a_clock_that_jumps_neither_reorders_a_run_nor_uses_up_its_time() {
        let year = 365 * 24 * 3_600_000;
        let attested = || {
            Event::SecurityAttestation(Box::new(log::Attestation {
                profile: String::new(),
                boundary: String::new(),
                subject: String::new(),
                uid: 0,
                cap_eff: String::new(),
                cap_bnd: String::new(),
                no_new_privs: true,
                landlock_abi: 0,
                seccomp: true,
                missing: vec![],
                cgroup: String::new(),
                egress: String::new(),
                muzzle_routed: true,
                muzzle_inspected: false,
                cli_runtime: false,
            }))
        };
        let times = [1_000, 2_000, year, year + 500, 3_000, 4_000, 5_000];
        let bodies = vec![
            attested(),
            assistant(&["a"]),
            result("a"),
            assistant(&["b"]),
            result("b"),
            assistant(&["c"]),
            attested(),
        ];
        let log: Vec<Entry<Event>> = bodies
            .into_iter()
            .zip(times)
            .zip(1..)
            .map(|((body, at), seq)| Entry { seq, at: Millis(at), body })
            .collect();
        let drive = Drive::fold(&log);
        assert_eq!(drive.driven_ms, 1_000 + limits::LONGEST_ACT_MS + 500 + 1_000);
        assert_eq!(drive.calls.len(), 1);
        assert_eq!(drive.stage("c"), Stage::Planned);
    }

    #[test]
    fn a_dead_worker_is_launched_again_until_it_makes_no_progress() {
        let log = vec![Event::Consumed { control_seq: 1 }, assistant(&["a"])];
        assert_eq!(next(running(), log.clone(), 0), Next::Launch);
        assert!(matches!(next(running(), log, 5), Next::Fail(_)));
    }

    #[test]
    fn only_requests_not_yet_asked_are_asked() {
        let log = vec![
            Event::Consumed { control_seq: 1 },
            assistant(&["a", "b"]),
            requested("a"),
            requested("b"),
            Event::Waiting { requests: vec![3, 4] },
        ];
        assert_eq!(next(running(), log, 0), Next::Ask(vec![3, 4]));
    }

    #[test]
    fn a_run_cancelled_while_it_waited_asks_again_when_it_is_taken_up() {
        use crate::approval::{Card, Wants};
        let card = Card {
            wants: Wants::Approval,
            call: Call { id: "a".into(), tool: "t".into(), arguments: "{}".into(), raw: None },
            summary: String::new(),
            cwd: String::new(),
            rule: String::new(),
            why: String::new(),
            policy_generation: 0,
            bound: vec![],
            not_bound: vec![],
            drift: vec![],
        };
        let log = vec![
            Event::Consumed { control_seq: 1 },
            assistant(&["a"]),
            requested("a"),
            Event::Waiting { requests: vec![3] },
        ];
        let mut control = running();
        control.push(Control::Asked { request: 3, card: Box::new(card), digest: "d".into() });
        assert_eq!(next(control.clone(), log.clone(), 0), Next::Rest);
        control.push(Control::Cancel { by: "os:x".into() });
        control.push(Control::Ended { status: EndStatus::Cancelled });
        control.push(Control::Launched { attempt: 2 });
        control.push(Control::Gone { how: Gone::Code(0) });
        assert_eq!(next(control, log, 0), Next::Ask(vec![3]));
    }

    #[test]
    fn a_turn_that_arrived_while_the_worker_finished_reopens_the_run() {
        let done = Event::Finished(Finish::Done { text: "ok".into() });
        let log = vec![Event::Consumed { control_seq: 1 }, assistant(&[]), done];
        assert_eq!(next(running(), log.clone(), 0), Next::End(EndStatus::Done));
        let mut control = running();
        control.push(Control::Turn {
            text: "more".into(),
            speaker: None,
            source: Source::Shell,
            images: 0,
        });
        assert_eq!(next(control, log, 0), Next::Launch);
    }

    #[test]
    fn a_cancelled_run_ends_when_its_worker_is_gone() {
        let mut control = running();
        control.push(Control::Cancel { by: "os:x".into() });
        assert_eq!(next(control, vec![assistant(&["a"])], 0), Next::End(EndStatus::Cancelled));
    }
}
