//! What people ask of the core, each request checked against the run's present
//! state before anything is written.

use std::time::Instant;

use api::control::{Refusal, RefusalCode, Request, Response, Submit};
use broker::protocol::{self, WorkerSignal};
use domain::config::Config;
use domain::drive::Drive;
use domain::id::{RunId, Subject};
use domain::log::{Control, Entry, Verdict};
use domain::record::{ApprovalMode, PolicyRecord, Source};
use domain::redact::redact;
use domain::run::{RunState, Status};
use store::{StoreError, Tail, clock};
use tokio::sync::oneshot;

use super::{Core, CoreError, Due, OpenRun, Pending, Run, chain};
use crate::launch::{self, Facts, refuse};
use crate::{limits, preflight};

impl Core {
    pub(super) fn ask(&mut self, request: Request, who: String, answer: oneshot::Sender<Response>) {
        let response = match request {
            Request::Submit(submit) => return self.submit(submit, who, answer),
            Request::Runs { limit } => self.list_runs(limit),
            Request::Show { run } => self.show(&run),
            Request::Approvals => self.list_pending(),
            Request::Decide { run, request, digest, verdict, reason } => {
                let reason = reason.map(|text| redact(&text));
                let verdict = redact_verdict(verdict);
                self.decide(&run, Control::Decided { request, digest, verdict, by: who, reason })
            }
            Request::Say { run, text } => self.say(&run, &text, who),
            Request::Resume { run } => self.resume(&run),
            Request::Cancel { run } => self.cancel(&run, who),
            Request::SetApprovals { run, approvals } => self.set_approvals(&run, approvals, who),
            Request::Status => self.status(),
            Request::Models => self.list_models(),
            Request::ModelAdd { model } => self.add_model(&model),
            Request::ModelRemove { name } => self.remove_model(&name),
            Request::Agents => self.list_agents(),
            Request::Agent { name } => self.show_agent(&name),
            Request::AgentSave { name, profile, soul, create } => {
                self.save_agent(&name, &profile, &soul, create)
            }
            Request::AgentRemove { name } => self.remove_agent(&name),
            // Answered by the connection itself, which streams.
            Request::Follow { .. } | Request::ModelTest { .. } => Response::Refused(refuse(
                RefusalCode::Invalid,
                "the request is answered on the connection",
                "this is a fault in the control plane; report it",
            )),
        };
        // The client may be gone; what it asked for is done and recorded.
        let _gone = answer.send(response);
    }

    pub(super) fn submit(
        &mut self,
        submit: Submit,
        who: String,
        answer: oneshot::Sender<Response>,
    ) {
        let response = match self.check_submit(&submit) {
            Ok(None) => None,
            Ok(Some(existing)) => Some(existing),
            Err(refusal) => Some(Response::Refused(refusal)),
        };
        if let Some(response) = response {
            let _gone = answer.send(response);
            return;
        }
        let resolved = match self
            .config_or_refusal()
            .and_then(|c| launch::resolve(&self.state, &c, &submit))
        {
            Ok(resolved) => resolved,
            Err(refusal) => {
                let _gone = answer.send(Response::Refused(refusal));
                return;
            }
        };
        // The account first: directories are opened to it by ACL.
        if self.accounts.get(&resolved.subject).is_some() {
            let response = self.create_run(&submit, who, &resolved);
            let _gone = answer.send(response);
            return;
        }
        let subject = resolved.subject;
        self.waiting.push((submit, who, answer, subject.clone()));
        self.ensure_account(subject);
    }

    /// `Some` when the submission is answered by an existing run.
    pub(super) fn check_submit(&self, submit: &Submit) -> Result<Option<Response>, Refusal> {
        if let Some(run) = submit.id.as_ref().filter(|id| self.runs.contains_key(*id)) {
            return Ok(Some(Response::Submitted { run: run.clone(), existed: true }));
        }
        if submit.task.trim().is_empty() {
            return Err(refuse(
                RefusalCode::Invalid,
                "the task is empty",
                "say what is to be done",
            ));
        }
        if submit.task.len() > domain::limits::TURN_BYTES {
            return Err(refuse(
                RefusalCode::Invalid,
                format!(
                    "the task has {} bytes; the ceiling is {}",
                    submit.task.len(),
                    domain::limits::TURN_BYTES
                ),
                "put long material into a file of the workspace",
            ));
        }
        Ok(None)
    }

    pub(super) fn config_or_refusal(&mut self) -> Result<Config, Refusal> {
        self.config = self.state.config().map_err(|error| error.to_string());
        self.config.clone().map_err(|why| {
            refuse(RefusalCode::Invalid, why, "correct sentinel.yaml; nothing was started")
        })
    }

    pub(super) fn ensure_account(&mut self, subject: Subject) {
        let Ok(name) = protocol::Subject::new(subject.as_str()) else { return };
        let seq = self.next_seq();
        self.pending.insert(seq, Pending::AgentUser(subject));
        self.send(&protocol::Request::EnsureAgentUser { seq, subject: name });
    }

    pub(super) fn create_run(
        &mut self,
        submit: &Submit,
        who: String,
        resolved: &launch::Resolved,
    ) -> Response {
        match self.try_create_run(submit, who, resolved) {
            Ok(run) => Response::Submitted { run, existed: false },
            Err(refusal) => Response::Refused(refusal),
        }
    }

    pub(super) fn try_create_run(
        &mut self,
        submit: &Submit,
        who: String,
        resolved: &launch::Resolved,
    ) -> Result<RunId, Refusal> {
        let config = self.config_or_refusal()?;
        let rules = self.state.rules().map_err(|e| {
            refuse(RefusalCode::Invalid, e.to_string(), "correct the file; nothing was started")
        })?;
        let missing = preflight::missing_controls(
            &config,
            self.state.boundary(),
            self.landlock_abi,
            self.muzzle.running,
        );
        let unfit = preflight::refusal(&config, &missing);
        let port = self.muzzle.port(&resolved.model);
        if port.is_none() && unfit.is_none() {
            return Err(refuse(
                RefusalCode::Unavailable,
                format!("Muzzle has no listener for model {}", resolved.model.name),
                "see `sentinel status`; it may be starting again",
            ));
        }
        let id = match &submit.id {
            Some(id) => id.clone(),
            None => RunId::new(&uuid::Uuid::new_v4().to_string())
                .map_err(|e| refuse(RefusalCode::Invalid, e.to_string(), "report this"))?,
        };
        let facts = Facts {
            id: id.clone(),
            owner: who,
            now: clock::now(),
            boundary: self.state.boundary(),
            port: port.unwrap_or(0),
            rules,
        };
        let record = launch::record(&self.state, &config, submit, resolved, &facts);
        let uid = self.accounts.get(&record.subject).unwrap_or_default();
        let turn = Control::Turn {
            text: redact(&submit.task),
            speaker: None,
            source: Source::Task,
            images: 0,
        };
        let mut first = vec![turn];
        first.extend(unfit.map(|reason| Control::Failed { reason }));
        let at = facts.now;
        let (dir, log) = self
            .state
            .admit_agent(&record.subject, uid)
            .and_then(|()| self.state.reserve_run(&record, uid, at, &first))
            .map_err(|error| self.store_refusal(&error))?;
        let mut state = RunState::default();
        for (body, seq) in first.into_iter().zip(1..) {
            state.apply(&Entry { seq, at, body });
        }
        let open = OpenRun {
            dir,
            log,
            tail: Tail::default(),
            drive: Drive::default(),
            progress_at_launch: 0,
        };
        let run = Run { record, state, open: Some(open), stalled: 0, gone: None, damaged: None };
        self.runs.insert(id.clone(), run);
        self.advance(&id);
        Ok(id)
    }

    pub(super) fn store_refusal(&mut self, error: &StoreError) -> Refusal {
        if error.is_no_room() {
            self.no_room = Some(error.to_string());
            return refuse(
                RefusalCode::Unavailable,
                format!("{error}: there is no room or the disk is read-only"),
                "free some space; nothing was started",
            );
        }
        refuse(RefusalCode::Unavailable, chain(error), "see `sentinel doctor`")
    }

    pub(super) fn refusal_of(&mut self, error: &CoreError) -> Refusal {
        match error {
            CoreError::Store(error) => self.store_refusal(error),
            CoreError::NoRun(id) => refuse(
                RefusalCode::NotFound,
                format!("there is no run {id}"),
                "see `sentinel runs`",
            ),
        }
    }

    pub(super) fn decide(&mut self, id: &RunId, decision: Control) -> Response {
        self.change(id, |_| vec![decision])
    }

    pub(super) fn say(&mut self, id: &RunId, text: &str, who: String) -> Response {
        if text.trim().is_empty() || text.len() > domain::limits::TURN_BYTES {
            return Response::Refused(refuse(
                RefusalCode::Invalid,
                format!("a message has 1 to {} bytes", domain::limits::TURN_BYTES),
                "say something shorter",
            ));
        }
        let text = redact(text);
        self.change(id, |state| {
            let speaker = Some(who);
            vec![if state.status == Status::Running {
                Control::Steer { text, speaker }
            } else {
                Control::Turn { text, speaker, source: Source::Shell, images: 0 }
            }]
        })
    }

    pub(super) fn cancel(&mut self, id: &RunId, by: String) -> Response {
        let launched = self.runs.get(id).is_some_and(|run| run.state.launched);
        let response = self.change(id, |_| vec![Control::Cancel { by }]);
        if response == Response::Done && launched {
            let asked = self.with_open(id, |open| open.dir.request_cancel());
            if let Err(error) = asked {
                tracing::warn!(run = %id, %error, "the cancel file could not be written; the worker is signalled");
            }
            self.signal(id, WorkerSignal::Terminate);
            self.due.push((Instant::now() + limits::CANCEL_GRACE, Due::Kill(id.clone())));
        }
        response
    }

    pub(super) fn set_approvals(
        &mut self,
        id: &RunId,
        approvals: ApprovalMode,
        by: String,
    ) -> Response {
        let generation = match self.with_open(id, |open| open.dir.policy()) {
            Ok(policy) => policy.map_or(1, |p| p.generation + 1),
            // Unreadable means queue; writing a whole record mends it.
            Err(_) => 1,
        };
        let record = PolicyRecord { version: 1, generation, approvals };
        match self.with_open(id, |open| open.dir.write_policy(&record)) {
            Ok(()) => self.change(id, |_| vec![Control::Policy { generation, approvals, by }]),
            Err(error) => Response::Refused(self.refusal_of(&error)),
        }
    }

    pub(super) fn resume(&mut self, id: &RunId) -> Response {
        let Some(run) = self.runs.get_mut(id) else { return Self::no_such(id) };
        run.stalled = 0;
        match run.state.status {
            Status::WaitingApproval => Response::Refused(refuse(
                RefusalCode::Conflict,
                "the run waits for a decision",
                format!("decide with `sentinel approve {id}` or `sentinel deny {id}`"),
            )),
            Status::Running if run.state.launched => Response::Refused(refuse(
                RefusalCode::Conflict,
                "the run is running",
                format!("follow it with `sentinel logs -f {id}`"),
            )),
            Status::Running | Status::Done | Status::Failed | Status::Cancelled => {
                match self.launch(id) {
                    Ok(()) => Response::Done,
                    Err(error) => Response::Refused(self.refusal_of(&error)),
                }
            }
        }
    }

    /// Appends what `entries` makes of the present state, after each was
    /// checked, and goes on from there.
    pub(super) fn change(
        &mut self,
        id: &RunId,
        entries: impl FnOnce(&RunState) -> Vec<Control>,
    ) -> Response {
        let Some(run) = self.runs.get(id) else { return Self::no_such(id) };
        let entries = entries(&run.state);
        for entry in &entries {
            if let Err(illegal) = run.state.check(entry) {
                return Response::Refused(refuse(
                    RefusalCode::Conflict,
                    illegal.to_string(),
                    format!("see `sentinel show {id}`"),
                ));
            }
        }
        match self.append(id, entries) {
            Ok(()) => {
                self.advance(id);
                Response::Done
            }
            Err(error) => Response::Refused(self.refusal_of(&error)),
        }
    }

    pub(crate) fn account(&self, subject: &Subject) -> Option<u32> {
        self.accounts.get(subject)
    }

    pub(crate) fn no_such(id: &RunId) -> Response {
        Response::Refused(refuse(
            RefusalCode::NotFound,
            format!("there is no run {id}"),
            "see `sentinel runs`",
        ))
    }
}

fn redact_verdict(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Answer(text) => Verdict::Answer(redact(&text)),
        verdict @ (Verdict::Approve | Verdict::Deny) => verdict,
    }
}
