//! Messages of the control socket. A connection starts with [`Hello`] and its
//! answer; then each [`Request`] gets one [`Response`], except
//! [`Request::Follow`], which gets a stream of them.

use domain::approval::Card;
use domain::id::{AgentName, Millis, RunId};
use domain::log::{Control, Event, Verdict};
use domain::profile::ModelRecord;
use domain::record::{ApprovalMode, Budgets, RunRecord};
use domain::run::Status;
use serde::{Deserialize, Serialize};

/// Version of these messages.
pub const VERSION: u32 = 1;

/// First frame of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
    /// `<state>/control.token`; asked for where everything has one uid.
    #[serde(default)]
    pub token: Option<String>,
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Greeting {
    /// `who` is the account the caller acts as.
    Welcome {
        version: u32,
        who: String,
    },
    Refused(Refusal),
}

/// A refusal or an error, in terms a person can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: RefusalCode,
    pub why: String,
    pub remedy: String,
}

/// What kind of no it is; each has an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The caller may not.
    Forbidden,
    NotFound,
    /// The request does not fit the present state.
    Conflict,
    /// The request itself is wrong.
    Invalid,
    /// A control the profile requires is missing.
    Preflight,
    /// Disk full, launcher gone, Muzzle down.
    Unavailable,
}

/// What a client may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    Submit(Submit),
    Runs {
        limit: usize,
    },
    Show {
        run: RunId,
    },
    /// Streams every transcript item, then status changes, until the run is
    /// over or the client goes away.
    Follow {
        run: RunId,
    },
    /// Cards that wait for a person, oldest first.
    Approvals,
    Decide {
        run: RunId,
        request: u64,
        digest: String,
        verdict: Verdict,
        reason: Option<String>,
    },
    /// A further turn of the conversation, or a message to a run under way.
    Say {
        run: RunId,
        text: String,
    },
    Resume {
        run: RunId,
    },
    Cancel {
        run: RunId,
    },
    SetApprovals {
        run: RunId,
        approvals: ApprovalMode,
    },
    Status,
    Models,
    ModelAdd {
        model: ModelRecord,
    },
    ModelRemove {
        name: String,
    },
    /// Asks the model for one word through Muzzle.
    ModelTest {
        name: String,
    },
    Agents,
    Agent {
        name: AgentName,
    },
    AgentSave {
        name: AgentName,
        profile: String,
        soul: String,
        create: bool,
    },
    AgentRemove {
        name: AgentName,
    },
}

/// A new run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    pub task: String,
    /// Empty means the head agent.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// Empty means the agent's own.
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub approvals: ApprovalMode,
    #[serde(default)]
    pub budgets: Option<Budgets>,
    /// Submitting the same id again attaches to the existing run.
    #[serde(default)]
    pub id: Option<RunId>,
}

/// What the control plane answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Submitted {
        run: RunId,
        existed: bool,
    },
    Runs(Vec<RunSummary>),
    Run(Box<RunView>),
    /// One transcript item of a followed run.
    Item(Box<Item>),
    /// A followed run's status, sent once after the first items and whenever
    /// it changes; the last frame of the stream carries a status that is over.
    Status {
        status: Status,
        failure: Option<String>,
        pending: Vec<Pending>,
    },
    Approvals(Vec<Pending>),
    Done,
    System(Box<SystemStatus>),
    Models(Vec<ModelRecord>),
    ModelTested {
        reply: String,
        ms: u64,
    },
    Agents(Vec<AgentSummary>),
    Agent {
        name: AgentName,
        profile: String,
        soul: String,
    },
    Refused(Refusal),
}

/// One row of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    pub id: RunId,
    pub title: String,
    pub agent: String,
    pub status: Status,
    pub owner: String,
    pub created: Millis,
    pub last_activity: Millis,
    pub pending: usize,
    /// Flat layout of an older version: read-only.
    #[serde(default)]
    pub legacy: bool,
    /// The run cannot be read; why.
    #[serde(default)]
    pub damaged: Option<String>,
}

/// A card that waits, with what is needed to decide it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    pub run: RunId,
    pub title: String,
    pub agent: String,
    pub request: u64,
    pub digest: String,
    pub asked_at: Millis,
    pub card: Card,
}

/// One entry of either log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    pub seq: u64,
    pub at: Millis,
    pub body: Body,
}

/// Whose entry it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    Control(Control),
    Worker(Event),
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunView {
    pub record: RunRecord,
    pub status: Status,
    pub failure: Option<String>,
    pub pending: Vec<Pending>,
    pub items: Vec<Item>,
    /// What the launcher observed.
    pub attestation: Option<serde_json::Value>,
    /// Differences between claim and observation: each one is critical.
    pub attestation_differences: Vec<String>,
    pub path: String,
}

/// One agent in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSummary {
    pub name: AgentName,
    pub display_name: String,
    pub model: String,
    pub head: bool,
}

/// State of the whole installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemStatus {
    pub version: String,
    pub profile: String,
    pub boundary: String,
    pub state: String,
    pub control_pid: u32,
    pub control_uid: u32,
    pub control_cap_eff: String,
    pub control_cap_bnd: String,
    pub muzzle: MuzzleStatus,
    pub leash: String,
    /// 0 where the kernel has none.
    pub landlock_abi: u32,
    pub running: usize,
    pub waiting: usize,
    pub models: usize,
    pub findings: Vec<Finding>,
}

/// Muzzle as the control plane sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MuzzleStatus {
    pub running: bool,
    /// This build forwards; it does not inspect yet.
    pub inspecting: bool,
    /// `name -> upstream on port`.
    pub listeners: Vec<String>,
}

/// One thing `status` and `doctor` show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub level: Level,
    pub what: String,
    pub remedy: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    Warning,
    Critical,
}
