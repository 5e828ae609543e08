//! The one owner of all runs. It takes messages from the control socket and
//! the launcher in turn, writes the control half, and asks the launcher for
//! workers. What follows from a run's two logs is decided by
//! `domain::drive::plan_next`, so that a restart goes on where it was.
//!
//! Blocking on purpose: each step ends in a durable write, and nothing else may
//! happen to the same run meanwhile.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use api::control::{Refusal, RefusalCode, Request, Response, Submit};
use broker::client::Broker;
use broker::protocol::{self, Exit, Notice, Reply, WorkerSignal};
use domain::config::Config;
use domain::drive::{Drive, Next, plan_next};
use domain::id::{RunId, Subject};
use domain::log::{Control, Entry, Event, Gone, Verdict};
use domain::record::{ApprovalMode, Boundary, PolicyRecord, RunRecord, Source};
use domain::redact::redact;
use domain::run::{RunState, Status};
use store::{Log, OpenedLog, RunDir, State, StoreError, Tail, clock};
use tokio::sync::{oneshot, watch};

use crate::accounts::Accounts;
use crate::launch::{self, Facts, refuse};
use crate::muzzle_link::{MuzzleLink, mint_token};
use crate::{cards, limits, preflight};

/// What the core is told.
pub(crate) enum Message {
    Ask {
        request: Request,
        who: String,
        answer: oneshot::Sender<Response>,
    },
    Notice(Notice),
    /// The launcher is gone: nothing can be started or stopped any more.
    LauncherClosed,
}

/// One known run.
pub(crate) struct Run {
    pub(crate) record: RunRecord,
    pub(crate) state: RunState,
    /// Open while the run is being worked on.
    open: Option<OpenRun>,
    /// Launches in a row that added nothing.
    stalled: u32,
    gone: Option<Gone>,
    /// Why the run cannot be read.
    pub(crate) damaged: Option<String>,
}

struct OpenRun {
    dir: RunDir,
    log: Log<Control>,
    tail: Tail<Event>,
    drive: Drive,
    progress_at_launch: u64,
}

enum Pending {
    Spawn(RunId),
    Signal,
    AgentUser(Subject),
}

enum Due {
    Advance(RunId),
    Kill(RunId),
    /// The end of a worker that could not be recorded yet.
    Gone(RunId, Gone),
}

pub(crate) struct Core {
    pub(crate) state: Arc<State>,
    pub(crate) runs: HashMap<RunId, Run>,
    pub(crate) config: Result<Config, String>,
    pub(crate) muzzle: MuzzleLink,
    pub(crate) landlock_abi: u32,
    broker: Arc<Broker>,
    /// Accounts of subjects, as the launcher gave them.
    accounts: Accounts,
    pending: HashMap<u64, Pending>,
    /// Submissions that wait for their subject's account.
    waiting: Vec<(Submit, String, oneshot::Sender<Response>, Subject)>,
    seq: u64,
    due: Vec<(Instant, Due)>,
    /// The latest write that failed for lack of room.
    pub(crate) no_room: Option<String>,
    greeted: bool,
    /// Set once the launcher has greeted and every known account is known to
    /// it: before that nothing of a worker can be read.
    ready: watch::Sender<bool>,
}

/// Why a step of a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CoreError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("there is no run {0}")]
    NoRun(RunId),
}

impl Core {
    /// Loads every run's state. Nothing is launched before the launcher's
    /// greeting, which says what is alive.
    pub(crate) fn new(
        state: Arc<State>,
        broker: Arc<Broker>,
        muzzle: MuzzleLink,
        accounts: Accounts,
        ready: watch::Sender<bool>,
    ) -> Result<Self, StoreError> {
        let config = state.config().map_err(|error| error.to_string());
        let mut core = Self {
            state,
            runs: HashMap::new(),
            config,
            muzzle,
            landlock_abi: preflight::landlock_abi(),
            broker,
            accounts,
            pending: HashMap::new(),
            waiting: Vec::new(),
            seq: 0,
            due: Vec::new(),
            no_room: None,
            greeted: false,
            ready,
        };
        for (subject, id) in core.state.runs()? {
            core.load(&subject, id);
        }
        Ok(core)
    }

    fn load(&mut self, subject: &Subject, id: RunId) {
        let read = self
            .state
            .open_run(&id, |_| None)
            .and_then(|dir| Ok((dir.record()?, dir.read_control()?)));
        let (record, state, damaged) = match read {
            Ok((record, control)) => (record, RunState::fold(&control.entries), None),
            Err(error) => {
                tracing::error!(run = %id, %error, "a run cannot be read");
                let record = unreadable_record(&id, subject);
                let state = RunState { status: Status::Failed, ..RunState::default() };
                (record, state, Some(error.to_string()))
            }
        };
        self.runs.insert(id, Run { record, state, open: None, stalled: 0, gone: None, damaged });
    }

    /// Handles messages until the launcher is gone.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match self.next_due() {
                None => messages.recv().map_err(|_closed| RecvTimeoutError::Disconnected),
                Some(wait) => messages.recv_timeout(wait),
            };
            match message {
                Ok(Message::Ask { request, who, answer }) => self.ask(request, who, answer),
                Ok(Message::Notice(notice)) => self.notice(notice),
                Ok(Message::LauncherClosed) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.handle_due(),
            }
        }
    }

    fn next_due(&self) -> Option<Duration> {
        let first = self.due.iter().map(|(at, _)| *at).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    fn handle_due(&mut self) {
        let now = Instant::now();
        let (ready, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.due).into_iter().partition(|(at, _)| *at <= now);
        self.due = later;
        for (_, due) in ready {
            match due {
                Due::Advance(id) => self.advance(&id),
                Due::Gone(id, how) => self.worker_gone(&id, how),
                Due::Kill(id) => {
                    if self.runs.get(&id).is_some_and(|run| run.state.launched) {
                        self.signal(&id, WorkerSignal::Kill);
                    }
                }
            }
        }
    }

    // ---- people -----------------------------------------------------------

    fn ask(&mut self, request: Request, who: String, answer: oneshot::Sender<Response>) {
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

    fn submit(&mut self, submit: Submit, who: String, answer: oneshot::Sender<Response>) {
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
    fn check_submit(&self, submit: &Submit) -> Result<Option<Response>, Refusal> {
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

    fn config_or_refusal(&mut self) -> Result<Config, Refusal> {
        self.config = self.state.config().map_err(|error| error.to_string());
        self.config.clone().map_err(|why| {
            refuse(RefusalCode::Invalid, why, "correct sentinel.yaml; nothing was started")
        })
    }

    fn ensure_account(&mut self, subject: Subject) {
        let Ok(name) = protocol::Subject::new(subject.as_str()) else { return };
        let seq = self.next_seq();
        self.pending.insert(seq, Pending::AgentUser(subject));
        self.send(&protocol::Request::EnsureAgentUser { seq, subject: name });
    }

    fn create_run(
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

    fn try_create_run(
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

    fn store_refusal(&mut self, error: &StoreError) -> Refusal {
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

    fn refusal_of(&mut self, error: &CoreError) -> Refusal {
        match error {
            CoreError::Store(error) => self.store_refusal(error),
            CoreError::NoRun(id) => refuse(
                RefusalCode::NotFound,
                format!("there is no run {id}"),
                "see `sentinel runs`",
            ),
        }
    }

    fn decide(&mut self, id: &RunId, decision: Control) -> Response {
        self.change(id, |_| vec![decision])
    }

    fn say(&mut self, id: &RunId, text: &str, who: String) -> Response {
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

    fn cancel(&mut self, id: &RunId, by: String) -> Response {
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

    fn set_approvals(&mut self, id: &RunId, approvals: ApprovalMode, by: String) -> Response {
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

    fn resume(&mut self, id: &RunId) -> Response {
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
    fn change(&mut self, id: &RunId, entries: impl FnOnce(&RunState) -> Vec<Control>) -> Response {
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

    // ---- one run ----------------------------------------------------------

    /// Runs `act` on the open run, opening it first where needed.
    fn with_open<T>(
        &mut self,
        id: &RunId,
        act: impl FnOnce(&mut OpenRun) -> Result<T, StoreError>,
    ) -> Result<T, CoreError> {
        let accounts = &self.accounts;
        let run = self.runs.get_mut(id).ok_or_else(|| CoreError::NoRun(id.clone()))?;
        if run.open.is_none() {
            let dir = self.state.open_run(id, |subject| accounts.get(subject))?;
            let OpenedLog { log, read, torn } = dir.open_control()?;
            run.state = RunState::fold(&read.entries);
            let open = OpenRun {
                dir,
                log,
                tail: Tail::default(),
                drive: Drive::default(),
                progress_at_launch: 0,
            };
            if let Some(torn) = torn {
                let body = Control::TornTail { bytes: torn.bytes, kept_as: torn.kept_as };
                let at = clock::now();
                let seq = open.log.append(at, std::slice::from_ref(&body))?;
                run.state.apply(&Entry { seq, at, body });
            }
            run.open = Some(open);
        }
        match run.open.as_mut() {
            Some(open) => Ok(act(open)?),
            None => Err(CoreError::NoRun(id.clone())),
        }
    }

    /// Makes entries durable, then takes them in.
    fn append(&mut self, id: &RunId, bodies: Vec<Control>) -> Result<(), CoreError> {
        let at = clock::now();
        match self.with_open(id, |open| open.log.append(at, &bodies)) {
            Ok(first) => {
                if let Some(run) = self.runs.get_mut(id) {
                    for (body, seq) in bodies.into_iter().zip(first..) {
                        run.state.apply(&Entry { seq, at, body });
                    }
                    run.record.last_activity = run.state.last_activity;
                }
                self.no_room = None;
                Ok(())
            }
            Err(error) => {
                // What is on disk decides: the log is read again before the next write.
                if let Some(run) = self.runs.get_mut(id) {
                    run.open = None;
                }
                Err(error)
            }
        }
    }

    /// Reads what the worker wrote since the last look.
    fn read_worker(&mut self, id: &RunId) -> Result<(), CoreError> {
        self.with_open(id, |open| {
            let worker = open.dir.worker()?;
            let Some(file) = worker.open_events()? else { return Ok(()) };
            for entry in open.tail.read(&file, open.dir.path())? {
                open.drive.apply(&entry);
            }
            Ok(())
        })
    }

    /// Does what follows from both logs until nothing does.
    fn advance(&mut self, id: &RunId) {
        loop {
            match self.advance_once(id) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.trouble(id, &error);
                    break;
                }
            }
        }
        if let Some(run) = self.runs.get_mut(id)
            && (run.state.status.is_over() || run.state.status == Status::WaitingApproval)
            && !run.state.launched
        {
            run.open = None;
        }
    }

    fn advance_once(&mut self, id: &RunId) -> Result<bool, CoreError> {
        let Some(run) = self.runs.get(id) else { return Ok(false) };
        if run.state.launched || run.state.status.is_over() || !self.greeted {
            return Ok(false);
        }
        if let Err(error) = self.read_worker(id) {
            let reason = format!("worker half unreadable: {error}");
            self.append(id, vec![Control::Failed { reason }])?;
            return Ok(false);
        }
        let Some(run) = self.runs.get(id) else { return Ok(false) };
        let Some(open) = &run.open else { return Ok(false) };
        match plan_next(&run.state, &open.drive, run.stalled, run.gone.as_ref()) {
            Next::Rest => Ok(false),
            Next::Ask(requests) => {
                let cards: Result<Vec<Control>, _> = requests
                    .iter()
                    .map(|r| cards::build_card(&open.dir, &run.record, &open.drive, *r))
                    .collect();
                match cards {
                    Ok(cards) => {
                        self.append(id, cards)?;
                    }
                    Err(error) => {
                        self.append(id, vec![Control::Failed { reason: error.to_string() }])?;
                    }
                }
                Ok(true)
            }
            Next::End(status) => {
                self.append(id, vec![Control::Ended { status }])?;
                Ok(true)
            }
            Next::Fail(reason) => {
                self.append(id, vec![Control::Failed { reason: redact(&reason) }])?;
                Ok(true)
            }
            Next::Launch => {
                self.launch(id)?;
                Ok(false)
            }
        }
    }

    /// A step that could not be recorded is tried again; the run does not move
    /// before it is.
    fn trouble(&mut self, id: &RunId, error: &CoreError) {
        self.note_trouble(id, error);
        self.due.push((Instant::now() + limits::RETRY_WRITE, Due::Advance(id.clone())));
    }

    fn note_trouble(&mut self, id: &RunId, error: &CoreError) {
        tracing::error!(run = %id, error = %chain(error), "a run's next step could not be recorded");
        if let CoreError::Store(store) = error
            && store.is_no_room()
        {
            self.no_room = Some(store.to_string());
        }
    }

    fn launch(&mut self, id: &RunId) -> Result<(), CoreError> {
        self.refresh_port(id)?;
        let token = match mint_token() {
            Ok(token) => token,
            Err(error) => {
                let reason = format!("the system gives no random bytes: {error}");
                return self.append(id, vec![Control::Failed { reason }]);
            }
        };
        self.with_open(id, |open| {
            open.dir.clear_cancel()?;
            open.dir.remove_attestation()?;
            open.dir.write_token(&token)?;
            open.progress_at_launch = open.drive.progress;
            Ok(())
        })?;
        if let Err(error) = self.muzzle.admit(&token, id) {
            // Without Muzzle the worker meets a closed door and says so; a
            // restart of Muzzle admits the token again.
            tracing::warn!(run = %id, %error, "the run's bearer could not be admitted");
        }
        let Ok(run_id) = protocol::RunId::new(id.as_str()) else {
            return self.append(
                id,
                vec![Control::Failed { reason: "the launcher refuses this run id".to_owned() }],
            );
        };
        let attempt = self.runs.get(id).map_or(1, |run| run.state.launches + 1);
        self.append(id, vec![Control::Launched { attempt }])?;
        let seq = self.next_seq();
        self.pending.insert(seq, Pending::Spawn(id.clone()));
        self.send(&protocol::Request::WorkerSpawn { seq, run_id });
        Ok(())
    }

    /// The listener's port may have changed since the run was created.
    fn refresh_port(&mut self, id: &RunId) -> Result<(), CoreError> {
        let models = self.state.models()?;
        let Some(run) = self.runs.get(id) else { return Err(CoreError::NoRun(id.clone())) };
        let port = models
            .models
            .iter()
            .find(|m| m.name == run.record.model.name)
            .and_then(|m| self.muzzle.port(m));
        let Some(port) = port.filter(|port| *port != run.record.model.port) else { return Ok(()) };
        let mut record = run.record.clone();
        record.model.port = port;
        self.with_open(id, |open| open.dir.write_record(&record))?;
        if let Some(run) = self.runs.get_mut(id) {
            run.record = record;
        }
        Ok(())
    }

    fn signal(&mut self, id: &RunId, signal: WorkerSignal) {
        if let Ok(run_id) = protocol::RunId::new(id.as_str()) {
            let seq = self.next_seq();
            self.pending.insert(seq, Pending::Signal);
            self.send(&protocol::Request::WorkerSignal { seq, run_id, signal });
        }
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn send(&self, request: &protocol::Request) {
        if let Err(error) = self.broker.send(request) {
            tracing::error!(%error, verb = request.verb(), "the launcher could not be asked");
        }
    }

    // ---- the launcher -----------------------------------------------------

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Hello { live, .. } => self.greet(&live),
            Notice::Live { .. } => {}
            Notice::MuzzleStarted { .. } => self.configure_muzzle(),
            Notice::Exited { run_id, how } => {
                if let Ok(id) = RunId::new(run_id.as_str()) {
                    self.worker_gone(&id, exit_of(how));
                }
            }
            Notice::Reply { seq, result } => self.reply(seq, result),
        }
    }

    /// What was launched and is not alive any more is gone; everything that is
    /// neither alive nor over goes on.
    fn greet(&mut self, live: &[protocol::LiveWorker]) {
        self.greeted = true;
        let mut subjects = std::collections::BTreeSet::new();
        let ids: Vec<RunId> = self.runs.keys().cloned().collect();
        for id in ids {
            let Some(run) = self.runs.get(&id) else { continue };
            if run.damaged.is_some() {
                continue;
            }
            let alive = live.iter().any(|worker| worker.run_id.as_str() == id.as_str());
            if run.state.launched && !alive {
                self.worker_gone(&id, Gone::Lost);
            }
            if let Some(run) = self.runs.get(&id) {
                subjects.insert(run.record.subject.clone());
            }
        }
        // A worker half is read only once its owner is known.
        for subject in subjects {
            self.ensure_account(subject);
        }
        self.check_ready();
    }

    fn check_ready(&mut self) {
        let asking = self.pending.values().any(|pending| matches!(pending, Pending::AgentUser(_)));
        if self.greeted && !asking {
            self.ready.send_replace(true);
        }
    }

    pub(crate) fn configure_muzzle(&mut self) {
        let models = self.state.models().map(|models| models.models).unwrap_or_default();
        if let Err(error) = self.muzzle.configure(&models) {
            tracing::error!(%error, "Muzzle did not take its configuration");
            return;
        }
        let live: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.state.launched)
            .map(|(id, _)| id.clone())
            .collect();
        for id in live {
            match self.with_open(&id, |open| open.dir.token()) {
                Ok(Some(token)) => {
                    if let Err(error) = self.muzzle.admit(&token, &id) {
                        tracing::warn!(run = %id, %error, "the run's bearer could not be admitted again");
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(run = %id, %error, "the run's bearer could not be read");
                }
            }
        }
    }

    fn worker_gone(&mut self, id: &RunId, how: Gone) {
        if !self.runs.get(id).is_some_and(|run| run.state.launched) {
            return;
        }
        let token = self.with_open(id, |open| {
            let token = open.dir.token()?;
            open.dir.remove_token()?;
            Ok(token)
        });
        match token {
            Ok(Some(token)) => self.muzzle.revoke(&token),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(run = %id, %error, "the run's bearer could not be removed");
            }
        }
        if let Err(error) = self.append(id, vec![Control::Gone { how: how.clone() }]) {
            self.note_trouble(id, &error);
            self.due.push((Instant::now() + limits::RETRY_WRITE, Due::Gone(id.clone(), how)));
            return;
        }
        // An unreadable half is dealt with by the next step.
        let _read = self.read_worker(id);
        let Some(run) = self.runs.get_mut(id) else { return };
        let progressed =
            run.open.as_ref().is_some_and(|open| open.drive.progress > open.progress_at_launch);
        let no_room = how == Gone::Code(i32::from(worker::EXIT_NO_ROOM));
        run.stalled = match (progressed, no_room) {
            (true, _) => 0,
            (false, true) => run.stalled,
            (false, false) => run.stalled + 1,
        };
        run.gone = Some(how);
        if no_room {
            self.no_room = Some(format!("the worker of run {id} could not write"));
            self.due.push((Instant::now() + limits::RETRY_WRITE, Due::Advance(id.clone())));
            return;
        }
        if self.accounts.get(&run.record.subject).is_none() {
            return;
        }
        if run.stalled > 1 {
            let wait = limits::RELAUNCH * run.stalled;
            self.due.push((Instant::now() + wait, Due::Advance(id.clone())));
        } else {
            self.advance(id);
        }
    }

    fn reply(&mut self, seq: u64, result: Result<Reply, protocol::Refusal>) {
        let Some(pending) = self.pending.remove(&seq) else { return };
        match (pending, result) {
            (Pending::Spawn(id), Ok(Reply::Spawned { pid, observed })) => {
                let attestation = serde_json::json!({
                    "version": 1, "by": "launcher", "pid": pid, "observed": observed,
                    "boundary": self.state.boundary().as_str(), "muzzle_inspecting": false, "leash": "not bound",
                });
                if let Err(error) =
                    self.with_open(&id, |open| open.dir.write_attestation(&attestation))
                {
                    tracing::error!(run = %id, %error, "what the launcher observed could not be recorded");
                }
            }
            (Pending::Spawn(id), Err(refusal)) => {
                let reason = format!(
                    "the launcher refused ({}): {}; {}",
                    refusal.rule, refusal.why, refusal.remedy
                );
                if let Err(error) = self.append(&id, vec![Control::Failed { reason }]) {
                    // The refusal is met again at the next launch.
                    self.note_trouble(&id, &error);
                    self.due
                        .push((Instant::now() + limits::RETRY_WRITE, Due::Gone(id, Gone::Lost)));
                }
            }
            (Pending::AgentUser(subject), Ok(Reply::AgentUser { uid })) => {
                self.accounts.set(subject.clone(), uid);
                self.account_ready(&subject);
            }
            (Pending::AgentUser(subject), Err(refusal)) => self.account_refused(&subject, &refusal),
            (Pending::Signal, Err(refusal)) => {
                tracing::info!(why = %refusal.why, "a worker was not signalled");
            }
            (_, Ok(_)) => {}
        }
        self.check_ready();
    }

    /// Goes on with everything that waited for this account.
    fn account_ready(&mut self, subject: &Subject) {
        let ids: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.record.subject == *subject && run.damaged.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            // Opened before the account was known, its worker half is closed.
            if let Some(run) = self.runs.get_mut(&id) {
                run.open = None;
            }
            self.advance(&id);
        }
        let (ready, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(.., other)| other == subject);
        self.waiting = rest;
        for (submit, who, answer, _) in ready {
            let resolved =
                self.config_or_refusal().and_then(|c| launch::resolve(&self.state, &c, &submit));
            let response = match resolved {
                Ok(resolved) => self.create_run(&submit, who, &resolved),
                Err(refusal) => Response::Refused(refusal),
            };
            let _gone = answer.send(response);
        }
    }

    fn account_refused(&mut self, subject: &Subject, refusal: &protocol::Refusal) {
        let (refused, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(.., other)| other == subject);
        self.waiting = rest;
        for (_, _, answer, _) in refused {
            let why = format!(
                "the launcher refused an account for {subject} ({}): {}",
                refusal.rule, refusal.why
            );
            let _gone = answer.send(Response::Refused(refuse(
                RefusalCode::Unavailable,
                why,
                refusal.remedy.clone(),
            )));
        }
    }
}

fn redact_verdict(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Answer(text) => Verdict::Answer(redact(&text)),
        verdict @ (Verdict::Approve | Verdict::Deny) => verdict,
    }
}

fn exit_of(how: Exit) -> Gone {
    match how {
        Exit::Code(code) => Gone::Code(code),
        Exit::Signal(signal) => Gone::Signal(signal),
    }
}

/// Stands in a listing for a run whose record cannot be read.
fn unreadable_record(id: &RunId, subject: &Subject) -> RunRecord {
    use domain::record::{Budgets, Grants, Kind, ModelSnapshot, Provider, Scope};
    let agent = domain::id::AgentName::new(subject.agent())
        .unwrap_or_else(|_| Config::default().default_agent);
    RunRecord {
        version: 0,
        id: id.clone(),
        kind: Kind::Private,
        scope: Scope::Head,
        agent,
        subject: subject.clone(),
        owner: String::new(),
        shares: Vec::new(),
        guests: Vec::new(),
        agent_waivers: Vec::new(),
        title: "(cannot be read)".to_owned(),
        pinned: false,
        created: domain::id::Millis(0),
        last_activity: domain::id::Millis(0),
        parent: None,
        cron_job: None,
        profile: domain::config::DeploymentProfile::Development,
        boundary: Boundary::Separate,
        fs_sandbox: true,
        approvals: ApprovalMode::Queue,
        model: ModelSnapshot {
            name: String::new(),
            provider: Provider::Openai,
            model: String::new(),
            port: 0,
        },
        grants: Grants::default(),
        budgets: Budgets::default(),
        soul: String::new(),
        rules: Vec::new(),
        workspace: PathBuf::new().to_string_lossy().into_owned(),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
