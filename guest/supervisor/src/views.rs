//! What people ask to see, from the core's own memory and the files.

use api::control::{
    AgentSummary, Body, Finding, Item, Level, MuzzleStatus, Pending, RefusalCode, Response,
    RunSummary, RunView, SystemStatus,
};
use domain::id::{AgentName, RunId};
use domain::log::{Entry, Event};
use domain::profile::ModelRecord;
use domain::run::Status;
use domain::transcript::{self, Item as Fold};

use crate::core::{Core, Run, chain};
use crate::launch::refuse;
use crate::{cards, limits, preflight};

impl Core {
    pub(crate) fn list_runs(&self, limit: usize) -> Response {
        let mut rows: Vec<RunSummary> = self.runs.values().map(summary).collect();
        if let Ok(legacy) = self.state.legacy_runs() {
            rows.extend(legacy.into_iter().map(legacy_summary));
        }
        rows.sort_by(|a, b| (b.last_activity, &b.id).cmp(&(a.last_activity, &a.id)));
        rows.truncate(limit.min(limits::LISTED_RUNS));
        Response::Runs(rows)
    }

    pub(crate) fn list_pending(&self) -> Response {
        let mut all: Vec<Pending> = self.runs.values().flat_map(pending_of).collect();
        all.sort_by(|a, b| (a.asked_at, &a.run, a.request).cmp(&(b.asked_at, &b.run, b.request)));
        Response::Approvals(all)
    }

    pub(crate) fn show(&self, id: &RunId) -> Response {
        let Some(run) = self.runs.get(id) else { return self.show_legacy(id) };
        if let Some(damaged) = &run.damaged {
            return Response::Refused(refuse(
                RefusalCode::Unavailable,
                format!("the run cannot be read: {damaged}"),
                "its files are left as they are",
            ));
        }
        match self.view(id, run) {
            Ok(view) => Response::Run(Box::new(view)),
            Err(error) => Response::Refused(refuse(
                RefusalCode::Unavailable,
                chain(&error),
                "see `sentinel doctor`",
            )),
        }
    }

    fn view(&self, id: &RunId, run: &Run) -> Result<RunView, store::StoreError> {
        let dir = self.state.open_run(id, |subject| self.account(subject))?;
        let control = dir.read_control()?;
        let events = dir.worker()?.events()?;
        let items: Vec<Item> =
            transcript::fold(&control.entries, &events.entries).iter().map(item_of).collect();
        let attestation = dir.attestation().ok();
        let differences =
            attestation.as_ref().map(|seen| differences(&events.entries, seen)).unwrap_or_default();
        Ok(RunView {
            record: run.record.clone(),
            status: run.state.status,
            failure: run.state.failure.clone(),
            pending: pending_of(run),
            items: newest(items),
            attestation,
            attestation_differences: differences,
            path: dir.path().to_string_lossy().into_owned(),
        })
    }

    fn show_legacy(&self, id: &RunId) -> Response {
        let known =
            self.state.legacy_runs().unwrap_or_default().into_iter().any(|run| run.id == *id);
        if known {
            let path = self.state.path().join("runs").join(id.as_str());
            return Response::Refused(refuse(
                RefusalCode::Conflict,
                "the run was written by an older version and is read-only",
                format!("its transcript is {}/state.json", path.display()),
            ));
        }
        Self::no_such(id)
    }

    pub(crate) fn status(&mut self) -> Response {
        let config = match self.state.config() {
            Ok(config) => config,
            Err(error) => {
                return Response::Refused(refuse(
                    RefusalCode::Invalid,
                    error.to_string(),
                    "correct the file",
                ));
            }
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            status
                .lines()
                .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let count =
            |wanted: Status| self.runs.values().filter(|run| run.state.status == wanted).count();
        let mut findings = preflight::missing_controls(
            &config,
            self.state.boundary(),
            self.landlock_abi,
            self.muzzle.running,
        );
        if let Some(why) = &self.no_room {
            findings.push(Finding {
                level: Level::Critical,
                what: format!("the state cannot be written: {why}"),
                remedy: "free some space; runs go on by themselves afterwards".to_owned(),
            });
        }
        findings.extend(self.runs.values().filter_map(|run| {
            Some(Finding {
                level: Level::Critical,
                what: format!("run {} cannot be read: {}", run.record.id, run.damaged.as_ref()?),
                remedy: "its files are left as they are".to_owned(),
            })
        }));
        let models = self.state.models().map_or(0, |m| m.models.len());
        Response::System(Box::new(SystemStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            profile: config.profile.as_str().to_owned(),
            boundary: self.state.boundary().as_str().to_owned(),
            state: self.state.path().to_string_lossy().into_owned(),
            control_pid: std::process::id(),
            control_uid: rustix::process::geteuid().as_raw(),
            control_cap_eff: field("CapEff"),
            control_cap_bnd: field("CapBnd"),
            muzzle: MuzzleStatus {
                running: self.muzzle.running,
                inspecting: false,
                listeners: self.muzzle.listeners.clone(),
            },
            leash: "not in this build".to_owned(),
            landlock_abi: self.landlock_abi,
            running: count(Status::Running),
            waiting: count(Status::WaitingApproval),
            models,
            findings,
        }))
    }

    pub(crate) fn list_models(&self) -> Response {
        match self.state.models() {
            Ok(models) => Response::Models(models.models),
            Err(error) => Response::Refused(refuse(
                RefusalCode::Unavailable,
                chain(&error),
                "correct models.json",
            )),
        }
    }

    pub(crate) fn add_model(&mut self, model: &ModelRecord) -> Response {
        let changed = self.state.models().and_then(|mut models| {
            if models.models.iter().any(|other| other.name == model.name) {
                return Err(store::StoreError::Exists {
                    what: "a model",
                    name: model.name.clone(),
                });
            }
            models.models.push(model.clone());
            Ok(models)
        });
        let models = match changed {
            Ok(models) => models,
            Err(error) => {
                let remedy = "choose another name, or remove that one with `sentinel model rm`";
                return Response::Refused(refuse(RefusalCode::Conflict, chain(&error), remedy));
            }
        };
        // Muzzle first: what it refuses is not written down.
        if let Err(error) = self.muzzle.configure(&models.models) {
            self.configure_muzzle();
            return Response::Refused(refuse(
                RefusalCode::Invalid,
                error.to_string(),
                "nothing was changed",
            ));
        }
        self.save_models(&models)
    }

    pub(crate) fn remove_model(&mut self, name: &str) -> Response {
        let Ok(mut models) = self.state.models() else { return self.list_models() };
        let before = models.models.len();
        models.models.retain(|model| model.name != name);
        if models.models.len() == before {
            return Response::Refused(refuse(
                RefusalCode::NotFound,
                format!("there is no model named {name:?}"),
                "see `sentinel model list`",
            ));
        }
        let response = self.save_models(&models);
        self.configure_muzzle();
        response
    }

    fn save_models(&self, models: &domain::profile::Models) -> Response {
        match self.state.save_models(models) {
            Ok(()) => Response::Done,
            Err(error) => Response::Refused(refuse(
                RefusalCode::Unavailable,
                chain(&error),
                "nothing was changed",
            )),
        }
    }

    pub(crate) fn list_agents(&self) -> Response {
        let head = self.config.as_ref().map_or_else(|_| head_name(), |c| c.default_agent.clone());
        let mut names = match self.state.agents() {
            Ok(names) => names,
            Err(error) => {
                return Response::Refused(refuse(
                    RefusalCode::Unavailable,
                    chain(&error),
                    "see `sentinel doctor`",
                ));
            }
        };
        if !names.contains(&head) {
            names.insert(0, head.clone());
        }
        let rows = names.into_iter().map(|name| {
            let (profile, _) = self.state.agent(&name).ok().flatten().unwrap_or_default();
            AgentSummary {
                head: name == head,
                display_name: profile.display_name,
                model: profile.model,
                name,
            }
        });
        Response::Agents(rows.collect())
    }

    pub(crate) fn show_agent(&self, name: &AgentName) -> Response {
        match self.state.agent_text(name) {
            Ok(Some((profile, soul))) => Response::Agent { name: name.clone(), profile, soul },
            Ok(None) => no_agent(name),
            Err(error) => Response::Refused(refuse(
                RefusalCode::Unavailable,
                chain(&error),
                "correct the file",
            )),
        }
    }

    pub(crate) fn save_agent(
        &self,
        name: &AgentName,
        profile: &str,
        soul: &str,
        create: bool,
    ) -> Response {
        let exists = self.state.agent_text(name).ok().flatten().is_some();
        match (create, exists) {
            (true, true) => {
                return Response::Refused(refuse(
                    RefusalCode::Conflict,
                    format!("there is already an agent named {name}"),
                    format!("change it with `sentinel agent edit {name}`"),
                ));
            }
            (false, false) if *name != head_name() => return no_agent(name),
            (true, false) | (false, _) => {}
        }
        match self.state.save_agent(name, profile, soul) {
            Ok(()) => Response::Done,
            Err(error) => Response::Refused(refuse(
                RefusalCode::Invalid,
                error.to_string(),
                "nothing was changed",
            )),
        }
    }

    pub(crate) fn remove_agent(&self, name: &AgentName) -> Response {
        if self.state.agent_text(name).ok().flatten().is_none() {
            return no_agent(name);
        }
        match self.state.remove_agent(name) {
            Ok(()) => Response::Done,
            Err(error) => Response::Refused(refuse(
                RefusalCode::Unavailable,
                chain(&error),
                "see `sentinel doctor`",
            )),
        }
    }
}

fn head_name() -> AgentName {
    domain::config::Config::default().default_agent
}

fn no_agent(name: &AgentName) -> Response {
    Response::Refused(refuse(
        RefusalCode::NotFound,
        format!("there is no agent named {name}"),
        "see `sentinel agent list`",
    ))
}

fn pending_of(run: &Run) -> Vec<Pending> {
    if run.state.status != Status::WaitingApproval {
        return Vec::new();
    }
    run.state.pending().map(|request| cards::pending(&run.record, request)).collect()
}

fn summary(run: &Run) -> RunSummary {
    RunSummary {
        id: run.record.id.clone(),
        title: run.record.title.clone(),
        agent: run.record.agent.as_str().to_owned(),
        status: run.state.status,
        owner: run.record.owner.clone(),
        created: run.record.created,
        last_activity: run.state.last_activity.max(run.record.created),
        pending: pending_of(run).len(),
        legacy: false,
        damaged: run.damaged.clone(),
    }
}

fn legacy_summary(run: store::legacy::LegacyRun) -> RunSummary {
    let state = run.state.as_ref();
    let status = match state.map(|s| s.status.as_str()) {
        Some("done") => Status::Done,
        Some("cancelled") => Status::Cancelled,
        // No worker of this version drives it, whatever it was.
        Some(_) | None => Status::Failed,
    };
    let first = state.and_then(|s| s.messages.iter().find(|m| m.role == "user"));
    let title = first.and_then(|m| m.content.as_str()).unwrap_or("(a run of an older version)");
    RunSummary {
        id: run.id,
        title: title.chars().take(80).collect(),
        agent: state.and_then(|s| s.agent.clone()).unwrap_or_default(),
        status,
        owner: state.and_then(|s| s.owner.clone()).unwrap_or_default(),
        created: domain::id::Millis(state.and_then(|s| s.created.as_u64()).unwrap_or(0)),
        last_activity: domain::id::Millis(state.and_then(|s| s.created.as_u64()).unwrap_or(0)),
        pending: 0,
        legacy: true,
        damaged: state.is_none().then(|| "state.json is empty or damaged".to_owned()),
    }
}

pub(crate) fn item_of(item: &Fold<'_>) -> Item {
    match item {
        Fold::Control(entry) => {
            Item { seq: entry.seq, at: entry.at, body: Body::Control(entry.body.clone()) }
        }
        Fold::Event(entry) => {
            Item { seq: entry.seq, at: entry.at, body: Body::Worker(entry.body.clone()) }
        }
    }
}

/// The newest items that fit one answer; what is left out is said.
fn newest(items: Vec<Item>) -> Vec<Item> {
    let mut left = limits::SHOWN_BYTES;
    let mut kept: Vec<Item> = Vec::new();
    let total = items.len();
    for item in items.into_iter().rev() {
        let size = serde_json::to_vec(&item).map_or(0, |bytes| bytes.len());
        if size > left {
            break;
        }
        left -= size;
        kept.push(item);
    }
    let omitted = total - kept.len();
    if omitted > 0 {
        let text =
            format!("[{omitted} earlier entries are not shown; `sentinel logs` prints them all]");
        let at = kept.last().map_or(domain::id::Millis(0), |item| item.at);
        kept.push(Item { seq: 0, at, body: Body::Worker(Event::Note { text }) });
    }
    kept.reverse();
    kept
}

/// Claim and observation side by side: what differs is critical.
fn differences(events: &[Entry<Event>], observed: &serde_json::Value) -> Vec<String> {
    let claim = events.iter().rev().find_map(|entry| {
        if let Event::SecurityAttestation(claim) = &entry.body { Some(claim) } else { None }
    });
    let Some(claim) = claim else { return Vec::new() };
    let seen = observed.get("observed").cloned().unwrap_or_default();
    let hex = |name: &str| {
        format!("{:016x}", seen.get(name).and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX))
    };
    let rows = [
        (
            "uid",
            claim.uid.to_string(),
            seen.get("uid").map(ToString::to_string).unwrap_or_default(),
        ),
        ("CapEff", claim.cap_eff.clone(), hex("cap_eff")),
        ("CapBnd", claim.cap_bnd.clone(), hex("cap_bnd")),
        (
            "no_new_privs",
            claim.no_new_privs.to_string(),
            seen.get("no_new_privs").map(ToString::to_string).unwrap_or_default(),
        ),
    ];
    rows.into_iter()
        .filter(|(_, claimed, observed)| claimed != observed)
        .map(|(what, claimed, observed)| {
            format!("{what}: the worker claims {claimed}, the launcher saw {observed}")
        })
        .collect()
}
