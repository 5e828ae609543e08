//! The state tree: who may enter which directory, agents, models, settings,
//! and reserving and finding run directories.
//!
//! With separate uids the tree is the control plane's, closed to everybody
//! else; each agent account gets search permission along the way to what is
//! its own by ACL entries, and nothing here ever changes a mode afterwards (a
//! `chmod` rewrites the ACL mask and shuts agents out). With a single uid there
//! are no ACLs: directories are 0700 and files 0600.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use domain::action::Rule;
use domain::config::{Config, parse_config};
use domain::id::{AgentName, Millis, RunId, Subject};
use domain::log::Control;
use domain::profile::{AgentProfile, Models, parse_profile};
use domain::record::{Boundary, RunRecord};
use rustix::fs::{AtFlags, FileType};

use crate::access::{self, Entry};
use crate::beneath::{self, Expect};
use crate::log::Log;
use crate::run_dir::{HalfOwner, RUN_FILE, RunDir, WORKER_HALF, read_json};
use crate::{StoreError, durable, legacy, limits};

const RUNS: &str = "runs";
const AGENTS: &str = "agents";
const CONFIG_FILE: &str = "sentinel.yaml";
const RULES_FILE: &str = "actions.yaml";
const MODELS_FILE: &str = "models.json";

/// Where a state tree lies and how its processes are kept apart.
#[derive(Debug, Clone)]
pub struct StateLayout {
    pub root: PathBuf,
    pub boundary: Boundary,
    /// The control plane's own uid, which keeps access to workers' files.
    pub control_uid: u32,
}

/// The open state tree.
#[derive(Debug)]
pub struct State {
    layout: StateLayout,
    root: OwnedFd,
    runs: OwnedFd,
    agents: OwnedFd,
}

impl State {
    /// Opens the tree, creating what is missing below its root.
    pub fn open(layout: StateLayout) -> Result<Self, StoreError> {
        let io = |act, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { act, path, source }
        };
        let root = beneath::open_dir(&layout.root).map_err(io("open", &layout.root))?;
        #[cfg(feature = "crash-points")]
        arm_crash_points(root.as_fd());
        let sub = |name: &str| {
            let path = layout.root.join(name);
            durable::create_dir(root.as_fd(), name, 0o700).map_err(io("create", &path))?;
            beneath::open_dir_at(root.as_fd(), name).map_err(io("open", &path))
        };
        let (runs, agents) = (sub(RUNS)?, sub(AGENTS)?);
        for name in ["memory", "operator", "skills", "log"] {
            sub(name)?;
        }
        Ok(Self { layout, root, runs, agents })
    }

    pub fn path(&self) -> &Path {
        &self.layout.root
    }

    pub fn boundary(&self) -> Boundary {
        self.layout.boundary
    }

    fn separate(&self) -> bool {
        self.layout.boundary == Boundary::Separate
    }

    /// Mode of files in a control half: with separate uids the group class is
    /// the ACL mask and must let the agent's read entry through.
    fn control_mode(&self) -> u32 {
        if self.separate() { 0o640 } else { 0o600 }
    }

    fn owner(&self, account: Option<u32>) -> HalfOwner {
        match (self.separate(), account) {
            (false, _) => HalfOwner::AnyOfOne,
            (true, Some(uid)) => HalfOwner::Account(uid),
            (true, None) => HalfOwner::Unknown,
        }
    }

    fn io(
        &self,
        act: &'static str,
        relative: impl AsRef<Path>,
    ) -> impl FnOnce(std::io::Error) -> StoreError {
        let path = self.layout.root.join(relative);
        move |source| StoreError::Io { act, path, source }
    }

    /// Lets `subject` (account `uid`) reach its own segment, profile directory
    /// and nothing else. Harmless when repeated.
    pub fn admit_agent(&self, subject: &Subject, uid: u32) -> Result<(), StoreError> {
        self.create_at(self.runs.as_fd(), RUNS, subject.as_str())?;
        self.create_at(self.agents.as_fd(), AGENTS, subject.agent())?;
        if !self.separate() {
            return Ok(());
        }
        let search = Entry { uid, bits: access::SEARCH };
        let segment = self.open_at(self.runs.as_fd(), RUNS, subject.as_str())?;
        let home = self.open_at(self.agents.as_fd(), AGENTS, subject.agent())?;
        for (dir, name) in [
            (self.root.as_fd(), ""),
            (self.runs.as_fd(), RUNS),
            (segment.as_fd(), subject.as_str()),
            (self.agents.as_fd(), AGENTS),
            (home.as_fd(), subject.agent()),
        ] {
            access::admit(dir, search).map_err(self.io("set the ACL of", name))?;
        }
        Ok(())
    }

    fn create_at(&self, dir: BorrowedFd<'_>, parent: &str, name: &str) -> Result<bool, StoreError> {
        durable::create_dir(dir, name, 0o700)
            .map_err(self.io("create", Path::new(parent).join(name)))
    }

    fn open_at(
        &self,
        dir: BorrowedFd<'_>,
        parent: &str,
        name: &str,
    ) -> Result<OwnedFd, StoreError> {
        beneath::open_dir_at(dir, name).map_err(self.io("open", Path::new(parent).join(name)))
    }

    /// Reserves the run's directory exclusively, writes `first` into its control
    /// log and `run.json` last: a directory without it is no run, and is taken
    /// over by the next reservation of the same id. `agent_uid` is the account
    /// of the run's subject.
    pub fn reserve_run(
        &self,
        record: &RunRecord,
        agent_uid: u32,
        at: Millis,
        first: &[Control],
    ) -> Result<(RunDir, Log<Control>), StoreError> {
        let id = record.id.as_str();
        let dir = self.reserve_dir(record, agent_uid)?;
        let path = self.layout.root.join(RUNS).join(record.subject.as_str()).join(id);
        let run = RunDir::new(
            dir,
            path,
            record.id.clone(),
            record.subject.clone(),
            self.control_mode(),
            self.owner(Some(agent_uid)),
        );
        let log = run.begin_control(at, first)?;
        run.write_record(record)?;
        Ok((run, log))
    }

    /// The run's directory with its worker half, opened to the agent by ACL.
    fn reserve_dir(&self, record: &RunRecord, agent_uid: u32) -> Result<OwnedFd, StoreError> {
        let shown = Path::new(RUNS).join(record.subject.as_str());
        let segment = self.open_at(self.runs.as_fd(), RUNS, record.subject.as_str())?;
        let id = record.id.as_str();
        let new = durable::create_dir(segment.as_fd(), id, 0o700)
            .map_err(self.io("create", shown.join(id)))?;
        let shown = shown.join(id);
        let dir = beneath::open_dir_at(segment.as_fd(), id).map_err(self.io("open", &shown))?;
        if !new && rustix::fs::statat(&dir, RUN_FILE, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(StoreError::Exists { what: "a run", name: id.to_owned() });
        }
        durable::create_dir(dir.as_fd(), WORKER_HALF, 0o700).map_err(self.io("create", &shown))?;
        let worker =
            beneath::open_dir_at(dir.as_fd(), WORKER_HALF).map_err(self.io("open", &shown))?;
        if self.separate() {
            let agent = |bits| Entry { uid: agent_uid, bits };
            let control = Entry { uid: self.layout.control_uid, bits: access::ALL };
            access::admit(worker.as_fd(), agent(access::ALL))
                .and_then(|()| access::inherit(worker.as_fd(), &[agent(access::ALL), control]))
                .and_then(|()| {
                    access::inherit(dir.as_fd(), &[agent(access::READ | access::SEARCH)])
                })
                .and_then(|()| access::admit(dir.as_fd(), agent(access::READ | access::SEARCH)))
                .map_err(self.io("set the ACL of", &shown))?;
        }
        Ok(dir)
    }

    /// Opens a run. `uid_of` gives the account of a subject.
    pub fn open_run(
        &self,
        id: &RunId,
        uid_of: impl Fn(&Subject) -> Option<u32>,
    ) -> Result<RunDir, StoreError> {
        for subject in self.subjects()? {
            let segment = self.open_at(self.runs.as_fd(), RUNS, subject.as_str())?;
            let Ok(dir) = beneath::open_dir_at(segment.as_fd(), id.as_str()) else { continue };
            if rustix::fs::statat(&dir, RUN_FILE, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                continue;
            }
            let path = self.layout.root.join(RUNS).join(subject.as_str()).join(id.as_str());
            let owner = self.owner(uid_of(&subject));
            return Ok(RunDir::new(dir, path, id.clone(), subject, self.control_mode(), owner));
        }
        Err(StoreError::NotFound { what: "run", name: id.as_str().to_owned() })
    }

    /// Every nested run with a record, in no particular order.
    pub fn runs(&self) -> Result<Vec<(Subject, RunId)>, StoreError> {
        let mut found = Vec::new();
        for subject in self.subjects()? {
            let segment = self.open_at(self.runs.as_fd(), RUNS, subject.as_str())?;
            for id in self.names(segment.as_fd(), RUNS)? {
                let Ok(id) = RunId::new(&id) else { continue };
                let record = format!("{id}/{RUN_FILE}");
                if rustix::fs::statat(&segment, record, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                    found.push((subject.clone(), id));
                }
            }
        }
        Ok(found)
    }

    /// Runs of the flat layout that have no nested copy, read-only.
    pub fn legacy_runs(&self) -> Result<Vec<legacy::LegacyRun>, StoreError> {
        let nested = self.runs()?;
        let mut found = Vec::new();
        for name in self.names(self.runs.as_fd(), RUNS)? {
            let Ok(id) = RunId::new(&name) else { continue };
            if nested.iter().any(|(_, other)| *other == id) {
                continue;
            }
            let Ok(dir) = beneath::open_dir_at(self.runs.as_fd(), &name) else { continue };
            let path = self.layout.root.join(RUNS).join(&name);
            if let Some(run) = legacy::read(dir.as_fd(), &path, id)? {
                found.push(run);
            }
        }
        Ok(found)
    }

    /// Directories under `runs/` that are segments and not flat legacy runs.
    fn subjects(&self) -> Result<Vec<Subject>, StoreError> {
        let names = self.names(self.runs.as_fd(), RUNS)?;
        Ok(names
            .into_iter()
            .filter(|name| {
                let flat = format!("{name}/{}", legacy::STATE_FILE);
                rustix::fs::statat(&self.runs, flat, AtFlags::SYMLINK_NOFOLLOW).is_err()
            })
            .filter_map(|name| Subject::new(&name).ok())
            .collect())
    }

    fn names(&self, dir: BorrowedFd<'_>, shown: &str) -> Result<Vec<String>, StoreError> {
        let io = |e: rustix::io::Errno| self.io("list", shown)(e.into());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            let directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if let (true, Ok(name)) = (directory, entry.file_name().to_str())
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// `sentinel.yaml`; absent means the defaults.
    pub fn config(&self) -> Result<Config, StoreError> {
        let text = self.read_text(self.root.as_fd(), "", CONFIG_FILE)?.unwrap_or_default();
        parse_config(&text).map_err(|problems| self.problems(CONFIG_FILE, &problems))
    }

    /// The operator's action rules, each already checked against its examples.
    pub fn rules(&self) -> Result<Vec<Rule>, StoreError> {
        let Some(text) = self.read_text(self.root.as_fd(), "", RULES_FILE)? else {
            return Ok(Vec::new());
        };
        let rules = domain::action::parse_rules(&text)
            .map_err(|problems| self.problems(RULES_FILE, &problems))?;
        Ok(rules)
    }

    pub fn models(&self) -> Result<Models, StoreError> {
        match read_json(self.root.as_fd(), &self.layout.root, MODELS_FILE, "the model list") {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(Models::default())
            }
            other => other,
        }
    }

    pub fn save_models(&self, models: &Models) -> Result<(), StoreError> {
        let mut bytes = serde_json::to_vec_pretty(models).map_err(|source| StoreError::Format {
            path: self.layout.root.join(MODELS_FILE),
            what: "JSON",
            source,
        })?;
        bytes.push(b'\n');
        durable::replace(self.root.as_fd(), MODELS_FILE, &bytes, 0o600)
            .map_err(self.io("write", MODELS_FILE))
    }

    /// Names of agents with a profile, sorted.
    pub fn agents(&self) -> Result<Vec<AgentName>, StoreError> {
        let io = |e: rustix::io::Errno| self.io("list", AGENTS)(e.into());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.agents).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_str().ok().and_then(|n| n.strip_suffix(".yaml"));
            names.extend(name.and_then(|n| AgentName::new(n).ok()));
        }
        names.sort();
        Ok(names)
    }

    /// A profile and its soul; `None` when there is none of that name.
    pub fn agent(&self, name: &AgentName) -> Result<Option<(AgentProfile, String)>, StoreError> {
        let file = format!("{name}.yaml");
        let Some(text) = self.read_text(self.agents.as_fd(), AGENTS, &file)? else {
            return Ok(None);
        };
        let profile = parse_profile(&text)
            .map_err(|problems| self.problems(Path::new(AGENTS).join(&file), &problems))?;
        let soul = self.read_text(self.agents.as_fd(), AGENTS, &format!("{name}.soul.md"))?;
        Ok(Some((profile, soul.unwrap_or_default())))
    }

    /// Profile and soul as they are written; `None` when there is none.
    pub fn agent_text(&self, name: &AgentName) -> Result<Option<(String, String)>, StoreError> {
        let Some(profile) = self.read_text(self.agents.as_fd(), AGENTS, &format!("{name}.yaml"))?
        else {
            return Ok(None);
        };
        let soul = self.read_text(self.agents.as_fd(), AGENTS, &format!("{name}.soul.md"))?;
        Ok(Some((profile, soul.unwrap_or_default())))
    }

    pub fn save_agent(
        &self,
        name: &AgentName,
        profile_yaml: &str,
        soul: &str,
    ) -> Result<(), StoreError> {
        let file = format!("{name}.yaml");
        parse_profile(profile_yaml)
            .map_err(|problems| self.problems(Path::new(AGENTS).join(&file), &problems))?;
        for (file, text) in [(format!("{name}.soul.md"), soul), (file, profile_yaml)] {
            durable::replace(self.agents.as_fd(), &file, text.as_bytes(), 0o600)
                .map_err(self.io("write", Path::new(AGENTS).join(&file)))?;
        }
        Ok(())
    }

    /// Removes profile and soul; runs, workspace and account stay.
    pub fn remove_agent(&self, name: &AgentName) -> Result<(), StoreError> {
        for file in [format!("{name}.yaml"), format!("{name}.soul.md")] {
            durable::remove(self.agents.as_fd(), &file)
                .map_err(self.io("remove", Path::new(AGENTS).join(&file)))?;
        }
        Ok(())
    }

    /// The agent's own workspace.
    pub fn workspace(&self, agent: &str) -> PathBuf {
        self.layout.root.join(AGENTS).join(agent).join("workspace")
    }

    fn read_text(
        &self,
        dir: BorrowedFd<'_>,
        parent: &str,
        name: &str,
    ) -> Result<Option<String>, StoreError> {
        let shown = Path::new(parent).join(name);
        let expect = Expect { uid: None, limit: limits::RECORD_BYTES };
        let shown_dir = self.layout.root.join(parent);
        let Some(file) = crate::run_dir::open_optional(dir, &shown_dir, name, expect)? else {
            return Ok(None);
        };
        let bytes = beneath::read_all(&file, expect.limit).map_err(self.io("read", &shown))?;
        String::from_utf8(bytes).map(Some).map_err(|e| StoreError::Foreign {
            path: self.layout.root.join(&shown),
            what: format!("it is not UTF-8 after byte {}", e.utf8_error().valid_up_to()),
        })
    }

    fn problems(&self, file: impl AsRef<Path>, problems: &[impl ToString]) -> StoreError {
        StoreError::Problems {
            path: self.layout.root.join(file),
            problems: problems.iter().map(ToString::to_string).collect(),
        }
    }
}

#[cfg(feature = "crash-points")]
fn arm_crash_points(root: BorrowedFd<'_>) {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    if let Ok(counter) = rustix::fs::openat(root, ".crash-count", flags, Mode::from_raw_mode(0o600))
    {
        durable::crash::arm("control", counter.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::record::{ApprovalMode, Budgets, Grants, Kind, ModelSnapshot, Provider, Scope};

    fn state(root: &Path) -> State {
        State::open(StateLayout {
            root: root.to_owned(),
            boundary: Boundary::SingleUid,
            control_uid: 0,
        })
        .unwrap()
    }

    fn write(path: PathBuf, text: &str) {
        std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), text.as_bytes())
            .unwrap();
    }

    pub(crate) fn record(id: &str) -> RunRecord {
        RunRecord {
            version: 1,
            id: RunId::new(id).unwrap(),
            kind: Kind::Task,
            scope: Scope::Head,
            agent: AgentName::new("naomi").unwrap(),
            subject: Subject::new("naomi").unwrap(),
            owner: "os:root".into(),
            shares: vec![],
            guests: vec![],
            agent_waivers: vec![],
            title: "t".into(),
            pinned: false,
            created: Millis(1),
            last_activity: Millis(1),
            parent: None,
            cron_job: None,
            profile: domain::config::DeploymentProfile::Development,
            boundary: Boundary::SingleUid,
            fs_sandbox: true,
            approvals: ApprovalMode::Queue,
            model: ModelSnapshot {
                name: "m".into(),
                provider: Provider::Openai,
                model: "m".into(),
                port: 1,
            },
            grants: Grants::default(),
            budgets: Budgets::default(),
            soul: String::new(),
            rules: vec![],
            workspace: "/tmp".into(),
        }
    }

    #[test]
    fn a_run_directory_is_reserved_once_and_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let state = state(temp.path());
        let record = record("r1");
        state.admit_agent(&record.subject, 0).unwrap();
        state.reserve_run(&record, 0, Millis(1), &[]).unwrap();
        assert!(matches!(
            state.reserve_run(&record, 0, Millis(1), &[]),
            Err(StoreError::Exists { .. })
        ));
        assert_eq!(state.open_run(&record.id, |_| None).unwrap().record().unwrap(), record);
        assert_eq!(state.runs().unwrap(), [(record.subject.clone(), record.id.clone())]);
        let missing = RunId::new("none").unwrap();
        assert!(matches!(state.open_run(&missing, |_| None), Err(StoreError::NotFound { .. })));
    }

    #[test]
    fn a_reservation_that_was_interrupted_is_no_run_and_is_taken_over() {
        let temp = tempfile::tempdir().unwrap();
        let state = state(temp.path());
        let record = record("r1");
        state.admit_agent(&record.subject, 0).unwrap();
        let turn = |text: &str| Control::Steer { text: text.into(), speaker: None };
        state.reserve_run(&record, 0, Millis(1), &[turn("lost")]).unwrap();
        std::fs::remove_file(temp.path().join("runs/naomi/r1/run.json")).unwrap();
        assert!(state.runs().unwrap().is_empty());
        let (run, _log) = state.reserve_run(&record, 0, Millis(1), &[turn("kept")]).unwrap();
        let entries = run.read_control().unwrap().entries;
        assert_eq!(entries.iter().map(|e| e.body.clone()).collect::<Vec<_>>(), [turn("kept")]);
    }

    #[test]
    fn a_flat_run_is_read_and_a_nested_copy_of_it_counts_once() {
        let temp = tempfile::tempdir().unwrap();
        let state = state(temp.path());
        let flat = temp.path().join("runs/ab12");
        std::fs::create_dir(&flat).unwrap();
        write(
            flat.join("state.json"),
            r#"{"id":"ab12","agent":"main","status":"done","messages":[{"role":"user","content":"hi"}],"created":1,"x":2}"#,
        );
        let legacy = state.legacy_runs().unwrap();
        assert_eq!(legacy.len(), 1);
        assert_eq!(legacy[0].state.as_ref().unwrap().messages.len(), 1);
        let record = record("ab12");
        state.admit_agent(&record.subject, 0).unwrap();
        state.reserve_run(&record, 0, Millis(1), &[]).unwrap();
        assert!(state.legacy_runs().unwrap().is_empty());
        assert_eq!(state.runs().unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_flat_run_is_still_listed() {
        let temp = tempfile::tempdir().unwrap();
        let state = state(temp.path());
        std::fs::create_dir(temp.path().join("runs/ab12")).unwrap();
        write(temp.path().join("runs/ab12/state.json"), "");
        assert!(state.legacy_runs().unwrap()[0].state.is_none());
    }

    #[test]
    fn a_bad_config_key_names_file_and_line() {
        let temp = tempfile::tempdir().unwrap();
        let state = state(temp.path());
        write(temp.path().join("sentinel.yaml"), "profile: development\nfs_sandbx: true\n");
        let error = state.config().unwrap_err().to_string();
        assert!(error.contains("sentinel.yaml: line 2") && error.contains("fs_sandbx"), "{error}");
    }

    #[test]
    fn a_policy_record_that_is_corrupt_means_queue_and_a_missing_one_the_mode_at_creation() {
        use crate::run_dir::effective_policy;
        let temp = tempfile::tempdir().unwrap();
        let state = state(temp.path());
        let record = record("r1");
        state.admit_agent(&record.subject, 0).unwrap();
        let (run, _log) = state.reserve_run(&record, 0, Millis(1), &[]).unwrap();
        let now = || effective_policy(&run.policy(), ApprovalMode::Automatic);
        assert_eq!(now(), (ApprovalMode::Automatic, 0));
        let policy = domain::record::PolicyRecord {
            version: 1,
            generation: 4,
            approvals: ApprovalMode::Automatic,
        };
        run.write_policy(&policy).unwrap();
        assert_eq!(now(), (ApprovalMode::Automatic, 4));
        write(run.path().join("control.json"), "{\"version\":1,");
        assert_eq!(now(), (ApprovalMode::Queue, 0));
    }
}
