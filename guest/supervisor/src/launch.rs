//! From a person's request to a run record: which agent, which model, which
//! account, with everything the worker needs snapshotted. Pure but for reading
//! profiles; reserving and launching are the core's.

use api::control::{Refusal, RefusalCode, Submit};
use domain::config::Config;
use domain::id::{AgentName, Millis, RunId, Subject};
use domain::profile::{AgentProfile, ModelRecord, Models};
use domain::record::{Boundary, Grants, Kind, ModelSnapshot, RUN_RECORD_VERSION, RunRecord, Scope};
use store::State;

/// A refusal with its parts.
pub(crate) fn refuse(
    code: RefusalCode,
    why: impl Into<String>,
    remedy: impl Into<String>,
) -> Refusal {
    Refusal { code, why: why.into(), remedy: remedy.into() }
}

/// What a submission resolves to before a directory is reserved.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) agent: AgentName,
    pub(crate) profile: AgentProfile,
    pub(crate) soul: String,
    pub(crate) model: ModelRecord,
    pub(crate) subject: Subject,
    pub(crate) scope: Scope,
}

/// Resolves agent and model of a submission.
pub(crate) fn resolve(
    state: &State,
    config: &Config,
    submit: &Submit,
) -> Result<Resolved, Refusal> {
    let head = &config.default_agent;
    let agent = submit.agent.clone().unwrap_or_else(|| head.clone());
    let store = |error: store::StoreError| {
        refuse(RefusalCode::Invalid, error.to_string(), "correct the file named")
    };
    let (profile, soul) = match state.agent(&agent).map_err(store)? {
        Some(found) => found,
        // The head agent exists from the first run on, before anybody wrote it down.
        None if agent == *head => (AgentProfile::default(), String::new()),
        None => {
            return Err(refuse(
                RefusalCode::NotFound,
                format!("there is no agent named {agent}"),
                "see `sentinel agent list`, or create it with `sentinel agent create`",
            ));
        }
    };
    let models = state.models().map_err(store)?;
    let wanted = submit.model.as_deref().or(Some(profile.model.as_str()).filter(|m| !m.is_empty()));
    let model = pick_model(&models, wanted)?;
    let scope = if agent == *head { Scope::Head } else { Scope::Agent(agent.clone()) };
    Ok(Resolved { subject: Subject::of(&agent, head), agent, profile, soul, model, scope })
}

fn pick_model(models: &Models, wanted: Option<&str>) -> Result<ModelRecord, Refusal> {
    let add = "add one with `sentinel model add <name> --provider ollama --base-url http://127.0.0.1:11434 --model <model>`";
    let found = match wanted {
        Some(name) => models.models.iter().find(|model| model.name == name),
        None => models.models.first(),
    };
    found.cloned().ok_or_else(|| match wanted {
        Some(name) => refuse(
            RefusalCode::NotFound,
            format!("there is no model named {name:?}"),
            if models.models.is_empty() {
                add.to_owned()
            } else {
                "see `sentinel model list`".to_owned()
            },
        ),
        None => refuse(RefusalCode::Unavailable, "no model is configured", add),
    })
}

/// The record of a new run.
pub(crate) fn record(
    state: &State,
    config: &Config,
    submit: &Submit,
    resolved: &Resolved,
    facts: &Facts,
) -> RunRecord {
    let profile = &resolved.profile;
    let workspace = if profile.workspace.is_empty() {
        state.workspace(resolved.subject.agent()).to_string_lossy().into_owned()
    } else {
        profile.workspace.clone()
    };
    RunRecord {
        version: RUN_RECORD_VERSION,
        id: facts.id.clone(),
        kind: Kind::Task,
        scope: resolved.scope.clone(),
        agent: resolved.agent.clone(),
        subject: resolved.subject.clone(),
        owner: facts.owner.clone(),
        shares: Vec::new(),
        guests: Vec::new(),
        agent_waivers: Vec::new(),
        title: submit.title.clone().unwrap_or_else(|| title_of(&submit.task)),
        pinned: false,
        created: facts.now,
        last_activity: facts.now,
        parent: None,
        cron_job: None,
        profile: config.profile,
        boundary: facts.boundary,
        fs_sandbox: config.fs_sandbox,
        approvals: submit.approvals,
        model: ModelSnapshot {
            name: resolved.model.name.clone(),
            provider: resolved.model.provider,
            model: resolved.model.model.clone(),
            port: facts.port,
        },
        grants: Grants {
            tools: profile.granted_tools(),
            tcp_ports: profile.tcp_ports.clone(),
            read: profile.read.clone(),
            unix_sockets: profile.unix_sockets,
        },
        budgets: submit.budgets.or(profile.budgets).unwrap_or_default(),
        soul: resolved.soul.clone(),
        rules: facts.rules.clone(),
        workspace,
    }
}

/// What a record needs that neither the submission nor the profile says.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) id: RunId,
    pub(crate) owner: String,
    pub(crate) now: Millis,
    pub(crate) boundary: Boundary,
    pub(crate) port: u16,
    pub(crate) rules: Vec<domain::action::Rule>,
}

/// The first line of a task, short enough for a row.
fn title_of(task: &str) -> String {
    let line = task.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if line.chars().count() <= 80 {
        line.to_owned()
    } else {
        line.chars().take(79).chain(std::iter::once('…')).collect()
    }
}
