//! Drives one run: consume what people said, call the model, gate and execute
//! its calls, record each step before the next.
//!
//! Every decision is made from both logs, so a drive that starts after a crash
//! goes on exactly where the last durable entry left it. An effect happens
//! between two durable entries; found between them after a crash, its outcome
//! is unknown and is said to be.

use std::time::{Duration, Instant};

use domain::action::{Judgement, Policy};
use domain::approval::{Binding, drift};
use domain::denial::{Denial, Layer};
use domain::drive::{Drive, Stage};
use domain::log::{Call, Control, Entry, Event, Finish, Outcome, Verdict};
use domain::record::RunRecord;
use domain::redact::{redact, redact_json};
use domain::run::RunState;
use domain::transcript::{self, Item};
use serde_json::Value;
use store::{StoreError, WorkerHalf, clock};

use crate::conversation::Conversation;
use crate::gate::{self, Gate, Planned};
use crate::host::ToolHost;
use crate::limits;
use crate::model::{Answer, Model, ModelError};
use crate::tools::{Context, Output, ToolError, tool_host_gone};
use crate::workspace::Workspace;

/// How a drive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Finished,
    /// Requests wait for a person; the next launch goes on from here.
    Waiting,
}

/// The present state of one run.
pub(crate) struct Driver {
    record: RunRecord,
    half: WorkerHalf,
    workspace: Workspace,
    /// Gone once the run waits for a person.
    host: Option<ToolHost>,
    model: Model,
    policy: Policy,
    drive: Drive,
    state: RunState,
    conversation: Conversation,
    /// Length of the control log when it was last read.
    control_length: u64,
    began: Instant,
    /// Driving time of earlier launches.
    earlier: Duration,
}

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) record: RunRecord,
    pub(crate) half: WorkerHalf,
    pub(crate) events: Vec<Entry<Event>>,
    pub(crate) workspace: Workspace,
    pub(crate) host: ToolHost,
    pub(crate) model: Model,
    pub(crate) policy: Policy,
}

impl Driver {
    /// Folds both logs up to the present.
    pub(crate) fn new(parts: Parts) -> Result<Self, StoreError> {
        let Parts { record, half, events, workspace, host, model, policy } = parts;
        let drive = Drive::fold(&events);
        let control = half.control_after(0)?;
        let consumed: Vec<_> =
            control.into_iter().take_while(|c| c.seq <= drive.consumed).collect();
        let mut conversation = Conversation::new(&record);
        for item in transcript::fold(&consumed, &events) {
            match item {
                Item::Control(entry) => conversation.control(entry),
                Item::Event(entry) => conversation.event(&entry.body),
            }
        }
        let state = RunState::fold(&consumed);
        let earlier = Duration::from_millis(drive.driven_ms);
        Ok(Self {
            record,
            half,
            workspace,
            host: Some(host),
            model,
            policy,
            drive,
            state,
            conversation,
            control_length: 0,
            began: Instant::now(),
            earlier,
        })
    }

    /// Records `first`, then drives until the run is finished or has to wait.
    pub(crate) fn run(mut self, first: Vec<Event>) -> Result<Ending, StoreError> {
        self.append(first)?;
        loop {
            if self.half.cancelled() {
                return self.finish(Finish::Cancelled);
            }
            if self.drive.unsettled().next().is_some() {
                if !self.await_attestation() {
                    let reason = "what the launcher observed of this worker was not recorded within 5 seconds, so no tool may start; \
                                  see `sentinel status`, then `sentinel resume`";
                    return self.finish(Finish::Failed { reason: reason.to_owned() });
                }
                self.absorb_decisions()?;
                if self.settle_calls()? == Settled::Waiting {
                    return Ok(Ending::Waiting);
                }
                continue;
            }
            self.absorb()?;
            if self.drive.answered() && !self.conversation.awaits_model() {
                let text = self.drive.text.clone();
                return self.finish(Finish::Done { text });
            }
            if let Some(reason) = self.over_budget() {
                return self.finish(Finish::Failed { reason });
            }
            if let Err(reason) = self.step()? {
                return self.finish(Finish::Failed { reason });
            }
        }
    }

    fn finish(mut self, finish: Finish) -> Result<Ending, StoreError> {
        self.append(vec![Event::Finished(finish)])?;
        self.write_state()?;
        Ok(Ending::Finished)
    }

    fn write_state(&self) -> Result<(), StoreError> {
        self.half.write_state(&serde_json::json!({
            "version": 1, "seq": self.drive.seq, "step": self.drive.step, "tool_calls": self.drive.tool_calls,
            "waiting": self.drive.waiting,
        }))
    }

    /// Makes events durable and takes them in.
    fn append(&mut self, events: Vec<Event>) -> Result<u64, StoreError> {
        let at = clock::now();
        let first = self.half.append(at, &events)?;
        for (body, seq) in events.into_iter().zip(first..) {
            self.conversation.event(&body);
            self.drive.apply(&Entry { seq, at, body });
        }
        Ok(first)
    }

    /// Control entries not yet part of the conversation, when there are any.
    fn unread(&mut self) -> Result<Vec<Entry<Control>>, StoreError> {
        let length = self.half.control_length();
        if length == self.control_length {
            return Ok(Vec::new());
        }
        let entries = self.half.control_after(self.state.seq)?;
        if entries.is_empty() {
            self.control_length = length;
        }
        Ok(entries)
    }

    /// Makes everything people said so far part of the conversation.
    fn absorb(&mut self) -> Result<(), StoreError> {
        let entries = self.unread()?;
        let Some(last) = entries.last() else { return Ok(()) };
        let consumed = Event::Consumed { control_seq: last.seq };
        let at = clock::now();
        let seq = self.half.append(at, std::slice::from_ref(&consumed))?;
        for entry in &entries {
            self.state.apply(entry);
            self.conversation.control(entry);
        }
        self.drive.apply(&Entry { seq, at, body: consumed });
        Ok(())
    }

    /// While calls wait for decisions, the decisions are what is needed.
    fn absorb_decisions(&mut self) -> Result<(), StoreError> {
        let waits = self
            .drive
            .calls
            .iter()
            .any(|c| matches!(self.drive.stage(&c.id), Stage::Requested { .. }));
        if waits { self.absorb() } else { Ok(()) }
    }

    fn over_budget(&self) -> Option<String> {
        let budgets = &self.record.budgets;
        if self.drive.step >= budgets.steps {
            return Some(format!("budget: all {} steps are used", budgets.steps));
        }
        let wall = self.earlier + self.began.elapsed();
        if wall.as_secs() >= budgets.wall_seconds {
            return Some(format!("budget: {} seconds of driving are used", budgets.wall_seconds));
        }
        None
    }

    /// One model call, tried again where that may help.
    fn step(&mut self) -> Result<Result<(), String>, StoreError> {
        let (_, generation) = self.half.policy(self.record.approvals);
        let mut backoff = limits::MODEL_BACKOFF;
        for attempt in 1.. {
            let request = self.conversation.lend(&self.record);
            let answer = self.model.call(&request);
            self.conversation.give_back(request);
            match answer {
                Ok(answer) => {
                    self.record_answer(answer, generation)?;
                    return Ok(Ok(()));
                }
                Err(error) => {
                    let why = error.to_string();
                    self.append(vec![Event::ModelError { attempt, why: redact(&why) }])?;
                    if !error.may_pass() || attempt >= limits::MODEL_ATTEMPTS {
                        return Ok(Err(failure(&error, attempt)));
                    }
                    if self.half.cancelled() {
                        return Ok(Err("cancelled while the model did not answer".to_owned()));
                    }
                    std::thread::sleep(backoff);
                    backoff *= 2;
                }
            }
        }
        Ok(Err("the model did not answer".to_owned()))
    }

    fn record_answer(&mut self, answer: Answer, policy_generation: u64) -> Result<(), StoreError> {
        let step = self.drive.step + 1;
        let mut calls = answer.calls;
        for index in 0..calls.len() {
            let taken = calls
                .iter()
                .take(index)
                .any(|c| calls.get(index).is_some_and(|own| own.id == c.id));
            let Some(call) = calls.get_mut(index) else { continue };
            if call.id.is_empty() || taken {
                call.id = format!("call_{step}_{index}");
            }
            let masked = redact(&call.arguments);
            if masked != call.arguments {
                call.raw = Some(self.half.put_blob(call.arguments.as_bytes())?);
                call.arguments = masked;
            }
        }
        self.append(vec![Event::Assistant {
            step,
            text: redact(&answer.text),
            reasoning: redact(&answer.reasoning),
            calls,
            model: answer.model,
            usage: answer.usage,
            stop: answer.stop,
            prompt_digest: answer.prompt_digest,
            policy_generation,
        }])?;
        Ok(())
    }

    /// Goes through the open calls of the latest turn in order.
    fn settle_calls(&mut self) -> Result<Settled, StoreError> {
        let calls: Vec<Call> = self.drive.calls.clone();
        for (index, call) in calls.iter().enumerate() {
            if self.half.cancelled() {
                return Ok(Settled::All);
            }
            match self.drive.stage(&call.id) {
                Stage::Settled => {}
                Stage::Started | Stage::Applied { .. } => self.settle_unknown(call)?,
                Stage::Requested { request } => match self.decided(request) {
                    None => return self.wait(calls.get(index..).unwrap_or_default()),
                    Some((verdict, reason)) => {
                        if self.settle_decided(call, request, &verdict, reason)? == Settled::Waiting
                        {
                            return self.wait(calls.get(index..).unwrap_or_default());
                        }
                    }
                },
                Stage::Planned => {
                    if self.new_instruction()? {
                        self.skip(calls.get(index..).unwrap_or_default())?;
                        return Ok(Settled::All);
                    }
                    if self.settle_planned(call, index + 1 == calls.len())? == Settled::Waiting {
                        return self.wait(calls.get(index..).unwrap_or_default());
                    }
                }
            }
        }
        Ok(Settled::All)
    }

    fn decided(&self, request: u64) -> Option<(Verdict, Option<String>)> {
        let decision = self.state.requests.get(&request)?.decision.as_ref()?;
        Some((decision.verdict.clone(), decision.reason.clone()))
    }

    /// A person wrote something new: what is still planned is not done.
    fn new_instruction(&mut self) -> Result<bool, StoreError> {
        let unread = self.unread()?;
        Ok(unread
            .iter()
            .any(|entry| matches!(entry.body, Control::Steer { .. } | Control::Turn { .. })))
    }

    fn skip(&mut self, calls: &[Call]) -> Result<(), StoreError> {
        let why = "not run: the person sent a new instruction first";
        let events: Vec<Event> = calls
            .iter()
            .filter(|call| self.drive.stage(&call.id) == Stage::Planned)
            .map(|call| result(call, Outcome::Skipped, why.to_owned()))
            .collect();
        self.append(events).map(|_| ())
    }

    fn settle_unknown(&mut self, call: &Call) -> Result<(), StoreError> {
        let text = "interrupted, result unknown: the call was started and the run was interrupted before its result was \
                    recorded. Look at what it would have changed before doing it again.";
        self.append(vec![result(call, Outcome::Unknown, text.to_owned())]).map(|_| ())
    }

    fn settle_planned(&mut self, call: &Call, last: bool) -> Result<Settled, StoreError> {
        if self.drive.cut && last {
            let why = "the answer was cut at the token ceiling, so this call may be half; send it again, shorter";
            self.append(vec![result(call, Outcome::Error, why.to_owned())])?;
            return Ok(Settled::All);
        }
        match self.judge(call)? {
            Gate::Correct(why) => {
                self.append(vec![result(call, Outcome::Error, redact(&why))])?;
                Ok(Settled::All)
            }
            Gate::Deny(judgement) => self.deny(call, judgement).map(|()| Settled::All),
            Gate::Run(planned) => {
                if !planned.tool.reads_only {
                    self.append(vec![Event::CallStarted {
                        call: call.id.clone(),
                        tool: call.tool.clone(),
                    }])?;
                }
                self.execute(call, &planned).map(|()| Settled::All)
            }
            Gate::Ask(_) => Ok(Settled::Waiting),
        }
    }

    fn judge(&self, call: &Call) -> Result<Gate, StoreError> {
        let mut call = call.clone();
        if let Some(blob) = &call.raw {
            call.arguments = String::from_utf8_lossy(&self.half.blob(blob)?).into_owned();
        }
        let (mode, _) = self.half.policy(self.record.approvals);
        if self.drive.tool_calls >= self.record.budgets.tool_calls {
            return Ok(Gate::Deny(Judgement {
                verdict: domain::action::Verdict::Deny,
                rule: "budget.tool_calls".to_owned(),
                why: format!("all {} tool calls are used", self.record.budgets.tool_calls),
                alternatives: vec!["answer with what you have".to_owned()],
            }));
        }
        Ok(gate::judge(&self.policy, &self.record, &self.workspace, &call, mode))
    }

    fn deny(&mut self, call: &Call, judgement: Judgement) -> Result<(), StoreError> {
        let layer =
            if judgement.rule.starts_with("budget.") { Layer::Budget } else { Layer::ActionPolicy };
        let denial = Denial {
            layer,
            subject: self.record.subject.as_str().to_owned(),
            object: object_of(call),
            rule: judgement.rule,
            why: judgement.why,
            alternatives: judgement.alternatives,
            request_id: call.id.clone(),
        };
        self.block(call, denial)
    }

    fn block(&mut self, call: &Call, denial: Denial) -> Result<(), StoreError> {
        let text = redact(&denial.to_string());
        self.append(vec![Event::GuardrailBlock(denial), result(call, Outcome::Denied, text)])
            .map(|_| ())
    }

    fn settle_decided(
        &mut self,
        call: &Call,
        request: u64,
        verdict: &Verdict,
        reason: Option<String>,
    ) -> Result<Settled, StoreError> {
        match verdict {
            Verdict::Deny => {
                let reason = reason.map(|r| format!(": {r}")).unwrap_or_default();
                let text = format!("the person refused this call{reason}. Do not repeat it.");
                self.append(vec![result(call, Outcome::Denied, redact(&text))])?;
                Ok(Settled::All)
            }
            Verdict::Answer(text) => {
                self.append(vec![result(call, Outcome::Ok, redact(text))])?;
                Ok(Settled::All)
            }
            Verdict::Approve => self.apply_approval(call, request),
        }
    }

    /// Runs an approved call if what was approved is what would run now.
    fn apply_approval(&mut self, call: &Call, request: u64) -> Result<Settled, StoreError> {
        let planned = match self.judge(call)? {
            Gate::Run(planned) | Gate::Ask(planned) => planned,
            Gate::Deny(judgement) => return self.deny(call, judgement).map(|()| Settled::All),
            Gate::Correct(why) => {
                self.append(vec![result(call, Outcome::Error, redact(&why))])?;
                return Ok(Settled::All);
            }
        };
        let binding = self.binding(&planned);
        let approved = domain::drive::approved_parts(&self.state, request).unwrap_or_default();
        let changes = drift(approved, &binding);
        if !changes.is_empty() {
            self.append(vec![request_of(call, &planned, changes)])?;
            return Ok(Settled::Waiting);
        }
        self.append(vec![Event::ApprovalApplied {
            call: call.id.clone(),
            request,
            digest: binding.digest,
        }])?;
        self.execute(call, &planned).map(|()| Settled::All)
    }

    fn binding(&self, planned: &Planned) -> Binding {
        let (_, generation) = self.half.policy(self.record.approvals);
        gate::bind_now(
            &self.record,
            &self.workspace,
            planned.tool.name,
            &planned.arguments,
            generation,
        )
    }

    fn execute(&mut self, call: &Call, planned: &Planned) -> Result<(), StoreError> {
        let Some(host) = self.host.as_mut() else {
            return Err(tool_host_gone(&self.workspace, "it was ended"));
        };
        let mut context = Context {
            record: &self.record,
            workspace: &self.workspace,
            half: &self.half,
            host,
            call: &call.id,
        };
        let (outcome, output) = match (planned.tool.run)(&mut context, &planned.arguments) {
            Ok(output) => (Outcome::Ok, output),
            Err(ToolError::Failed(text)) => (Outcome::Error, Output::from(text)),
            Err(ToolError::Denied(denial)) => return self.block(call, *denial),
            Err(ToolError::Store(error)) => return Err(error),
        };
        let (text, blob) = self.fit(redact(&output.text))?;
        self.append(vec![Event::Result {
            call: call.id.clone(),
            tool: call.tool.clone(),
            outcome,
            text,
            blob,
            changes: output.changes,
        }])
        .map(|_| ())
    }

    /// Long text is kept whole as a blob and its absence is said.
    fn fit(&self, text: String) -> Result<(String, Option<String>), StoreError> {
        if text.len() <= limits::RESULT_TEXT_BYTES {
            return Ok((text, None));
        }
        let blob = self.half.put_blob(text.as_bytes())?;
        let end =
            (0..=limits::RESULT_TEXT_BYTES).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        let shown = text.get(..end).unwrap_or_default();
        let left = text.len() - end;
        Ok((
            format!("{shown}\n[{left} more bytes are not shown; ask for a part of it]"),
            Some(blob),
        ))
    }

    /// No tool starts before the control plane has recorded what the launcher
    /// saw of this process. Whether it has, in time.
    fn await_attestation(&self) -> bool {
        let deadline = Instant::now() + limits::ATTESTATION_WAIT;
        while !self.half.attested() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Requests every call of `open` that needs a person and is not requested
    /// yet, ends the tool host, and records that the run waits.
    fn wait(&mut self, open: &[Call]) -> Result<Settled, StoreError> {
        let mut events = Vec::new();
        for call in open.iter().filter(|call| self.drive.stage(&call.id) == Stage::Planned) {
            if let Gate::Ask(planned) = self.judge(call)? {
                events.push(request_of(call, &planned, Vec::new()));
            }
        }
        if !events.is_empty() {
            self.append(events)?;
        }
        let requests: Vec<u64> = open
            .iter()
            .filter_map(|call| match self.drive.stage(&call.id) {
                Stage::Requested { request } if self.decided(request).is_none() => Some(request),
                Stage::Requested { .. }
                | Stage::Planned
                | Stage::Started
                | Stage::Applied { .. }
                | Stage::Settled => None,
            })
            .collect();
        if let Some(host) = self.host.take() {
            host.reap().map_err(|error| tool_host_gone(&self.workspace, &error.to_string()))?;
        }
        self.append(vec![Event::Waiting { requests }])?;
        self.write_state()?;
        Ok(Settled::Waiting)
    }
}

/// Whether open calls are all settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    All,
    Waiting,
}

fn result(call: &Call, outcome: Outcome, text: String) -> Event {
    Event::Result {
        call: call.id.clone(),
        tool: call.tool.clone(),
        outcome,
        text,
        blob: None,
        changes: Vec::new(),
    }
}

fn request_of(call: &Call, planned: &Planned, drift: Vec<String>) -> Event {
    let mut arguments = planned.arguments.clone();
    redact_json(&mut arguments);
    Event::ApprovalRequested {
        call: call.id.clone(),
        tool: call.tool.clone(),
        arguments,
        rule: planned.judgement.rule.clone(),
        why: planned.judgement.why.clone(),
        drift,
    }
}

/// What a denied call wanted to touch, in one line.
fn object_of(call: &Call) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let named = ["path", "command", "url"].iter().find_map(|name| arguments.get(name)?.as_str());
    named.map_or_else(|| call.tool.clone(), str::to_owned)
}

fn failure(error: &ModelError, attempts: u32) -> String {
    let remedy = "check it with `sentinel model test`, then `sentinel resume`";
    if error.may_pass() {
        format!("the model could not be reached in {attempts} attempts: {error}; {remedy}")
    } else {
        format!("{error}; {remedy}")
    }
}
