//! `run.json`: what a run is, written by the control plane alone when the run
//! is created and when a person changes its title, shares or model. The worker
//! reads only this snapshot, never the profile or model files it came from.
//!
//! Version 1. A reader keeps what it does not know by leaving the file alone:
//! only the version that wrote a field rewrites it.

use serde::{Deserialize, Serialize};

use crate::action::Rule;
use crate::config::DeploymentProfile;
use crate::id::{AgentName, Millis, RunId, Subject};
use crate::limits;

/// The version this program writes.
pub const RUN_RECORD_VERSION: u32 = 1;

/// What a run is for. A missing or unknown kind reads as [`Kind::Private`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Chat,
    Task,
    Cron,
    Api,
    /// A kind this program does not know: nobody but the owner sees it.
    #[default]
    #[serde(other)]
    Private,
}

/// Where a human-side turn came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Web,
    Shell,
    /// The instruction a run was created with.
    Task,
    /// Written by a parent agent.
    Delegated,
    Cron,
    Api,
}

/// Which agents and workspaces a run may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Head,
    Team(String),
    Agent(AgentName),
}

/// Who keeps whom out on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// Control plane, Muzzle and each agent have uids of their own.
    Separate,
    /// One uid: integrity by nested sandbox layers; chmod, ACLs and prlimit
    /// between processes of that uid are not covered.
    SingleUid,
}

impl Boundary {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::SingleUid => "single-uid",
        }
    }
}

/// What happens when the action policy says "ask".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalMode {
    /// Go ahead without a person. Setting it needs the right to decide.
    Automatic,
    /// Wait for a person. The strictest, and what an unreadable record means.
    #[default]
    Queue,
}

/// `control.json`: the policy record re-read before every gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRecord {
    pub version: u32,
    /// Counts changes; an approval is bound to the generation it was asked under.
    pub generation: u64,
    pub approvals: ApprovalMode,
}

/// The wire dialect a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// OpenAI chat completions, and everything that imitates them.
    Openai,
    OpenaiResponses,
    Anthropic,
    Ollama,
    /// Ollama's prompt endpoint without messages.
    OllamaGenerate,
}

impl Provider {
    pub const ALL: [Self; 5] =
        [Self::Openai, Self::OpenaiResponses, Self::Anthropic, Self::Ollama, Self::OllamaGenerate];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
            Self::OllamaGenerate => "ollama-generate",
        }
    }
}

/// The model a run talks to, and the Muzzle listener it reaches it through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSnapshot {
    /// The alias people use.
    pub name: String,
    pub provider: Provider,
    /// The provider's own name for it.
    pub model: String,
    /// Loopback port of the listener; refreshed at each launch.
    pub port: u16,
}

/// What the run's tools may do beyond the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grants {
    pub tools: Vec<String>,
    /// TCP ports tool children may connect to; empty means no internet socket.
    #[serde(default)]
    pub tcp_ports: Vec<u16>,
    /// Extra directories readable and executable, such as toolchains.
    #[serde(default)]
    pub read: Vec<String>,
    /// Unix sockets: any one of them can leave the sandbox, so off by default.
    #[serde(default)]
    pub unix_sockets: bool,
}

impl RunRecord {
    /// The whole environment of a tool child, sorted by name. Worker and
    /// control plane compute it from the same record: an approval is bound to it.
    pub fn tool_environment(&self) -> Vec<(String, String)> {
        let account = self.subject.as_str();
        let mail = format!("{account}@sentinel.invalid");
        let mut path = "/usr/local/bin:/usr/bin:/bin".to_owned();
        for dir in &self.grants.read {
            path.push_str(&format!(":{dir}/bin"));
        }
        [
            ("GIT_AUTHOR_EMAIL", mail.as_str()),
            ("GIT_AUTHOR_NAME", account),
            ("GIT_COMMITTER_EMAIL", mail.as_str()),
            ("GIT_COMMITTER_NAME", account),
            ("HOME", self.workspace.as_str()),
            ("LANG", "C.UTF-8"),
            ("LOGNAME", account),
            ("PATH", path.as_str()),
            ("USER", account),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }
}

/// Ceilings checked before work is dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Model calls.
    pub steps: u32,
    /// Seconds of driving; time spent waiting for a person does not count.
    pub wall_seconds: u64,
    pub tool_calls: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            steps: limits::RUN_STEPS,
            wall_seconds: limits::RUN_WALL_SECONDS,
            tool_calls: limits::RUN_TOOL_CALLS,
        }
    }
}

/// How far another account may use a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub account: String,
    /// May add turns, not only read.
    pub reply: bool,
}

/// The whole of `run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    pub version: u32,
    pub id: RunId,
    #[serde(default)]
    pub kind: Kind,
    pub scope: Scope,
    pub agent: AgentName,
    pub subject: Subject,
    /// `os:<login>` until accounts exist; empty means nobody's.
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub shares: Vec<Share>,
    #[serde(default)]
    pub guests: Vec<AgentName>,
    #[serde(default)]
    pub agent_waivers: Vec<String>,
    pub title: String,
    #[serde(default)]
    pub pinned: bool,
    pub created: Millis,
    pub last_activity: Millis,
    #[serde(default)]
    pub parent: Option<RunId>,
    #[serde(default)]
    pub cron_job: Option<String>,
    pub profile: DeploymentProfile,
    pub boundary: Boundary,
    pub fs_sandbox: bool,
    /// The mode at creation; a later change stands in `control.json`.
    pub approvals: ApprovalMode,
    pub model: ModelSnapshot,
    pub grants: Grants,
    pub budgets: Budgets,
    /// The agent's persona as it was when the run was created.
    pub soul: String,
    /// Operator rules that were in force, laid over the built-in table.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Absolute path of the agent's workspace.
    pub workspace: String,
}
