//! The one owner of all runs. It takes messages from the control socket and
//! the launcher in turn, writes the control half, and asks the launcher for
//! workers. What follows from a run's two logs is decided by
//! `domain::drive::plan_next`, so that a restart goes on where it was.
//!
//! `people` is what clients ask, `steps` what one run does, `launcher` what the
//! launcher says.
//!
//! Blocking on purpose: each step ends in a durable write, and nothing else may
//! happen to the same run meanwhile.

mod launcher;
mod people;
mod steps;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use api::control::{Request, Response, Submit};
use broker::client::Broker;
use broker::protocol::{Notice, WorkerSignal};
use domain::config::Config;
use domain::drive::Drive;
use domain::id::{RunId, Subject};
use domain::log::{Control, Event, Gone};
use domain::record::{ApprovalMode, Boundary, RunRecord};
use domain::run::{RunState, Status};
use store::{Log, RunDir, State, StoreError, Tail};
use tokio::sync::{oneshot, watch};

use crate::accounts::Accounts;
use crate::muzzle_link::MuzzleLink;
use crate::preflight;

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
    /// What the launcher observed and could not be recorded yet.
    Attest(RunId, serde_json::Value),
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
                Due::Attest(id, observed) => self.attest(&id, observed),
                Due::Kill(id) => {
                    if self.runs.get(&id).is_some_and(|run| run.state.launched) {
                        self.signal(&id, WorkerSignal::Kill);
                    }
                }
            }
        }
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
