//! Facts in, launch plan out: who a process is, what it is told, which descriptors it holds.
//!
//! Pure. The launcher gathers facts, these functions decide, `sys` applies the plan and leaves
//! nothing to choose. What no plan can ask for is capabilities: every process is started with all
//! five sets empty (as far as the launcher may empty them), `no_new_privs` and a session of its own.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::limits;
use crate::protocol::{Boundary, Refusal, RunId, Subject};

/// `PATH` when the launcher has no usable one.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const DEFAULT_LANG: &str = "C.UTF-8";
const SPAWN: &str = "worker_spawn";

/// Names of the logs in the log directory.
const WORKERS_LOG: &str = "workers.log";
const MUZZLE_LOG: &str = "muzzle.log";

/// A bare uid and gid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User id: real, effective, saved and for files.
    pub uid: u32,
    /// Group id, likewise; there are no supplementary groups.
    pub gid: u32,
}

impl Identity {
    /// The identity whose uid and gid are `id`.
    pub fn of(id: u32) -> Self {
        Self { uid: id, gid: id }
    }
}

/// A descriptor that a role finds from 3 upwards, in the order of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inherited {
    /// The control plane's end of the channel.
    Channel,
    /// The listening control socket.
    ControlListener,
    /// The listening admin socket of Muzzle.
    MuzzleAdmin,
}

/// Where standard output and error go. Standard input is always `/dev/null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Where the launcher's own go.
    Launcher,
    /// Both where the launcher's standard error goes.
    LauncherError,
    /// Appended to this file in the log directory.
    Log(&'static str),
}

/// Everything about one launch except the program, which is the same for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Program name and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, OsString)>,
    /// Who to become; `None` keeps the launcher's uid (single uid).
    pub identity: Option<Identity>,
    /// The file mode creation mask.
    pub umask: u32,
    /// Descriptors from 3 upwards; all others are closed.
    pub inherited: Vec<Inherited>,
    /// Standard output and error.
    pub output: Output,
}

/// What is the same for every launch of one launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// How processes are kept apart.
    pub boundary: Boundary,
    /// The state directory, absolute.
    pub state: PathBuf,
    /// The sockets directory, absolute.
    pub sockets: PathBuf,
    /// The launcher's own `PATH`.
    pub path: Option<OsString>,
    /// The launcher's own `LANG`.
    pub lang: Option<OsString>,
    /// Variables the operator adds; a variable of the plan wins.
    pub extra_env: Vec<(String, String)>,
    /// Whether workers and Muzzle write to the launcher's standard error.
    pub verbose: bool,
}

impl Surroundings {
    fn umask(&self) -> u32 {
        match self.boundary {
            // Files under a default access list need 0660: 0600 would empty its mask.
            Boundary::Separate => 0o007,
            Boundary::SingleUid => 0o077,
        }
    }

    fn output(&self, log: &'static str) -> Output {
        if self.verbose { Output::LauncherError } else { Output::Log(log) }
    }

    fn environment(
        &self,
        home: &Path,
        login: &str,
        own: Vec<(&str, OsString)>,
    ) -> Vec<(String, OsString)> {
        let lang = self.lang.clone().unwrap_or_else(|| DEFAULT_LANG.into());
        let base = [
            ("PATH", absolute_entries(self.path.as_deref())),
            ("LANG", lang),
            ("HOME", home.as_os_str().to_owned()),
            ("USER", login.into()),
            ("LOGNAME", login.into()),
        ];
        let mut env: Vec<(String, OsString)> =
            base.into_iter().chain(own).map(|(name, value)| (name.to_owned(), value)).collect();
        for (name, value) in &self.extra_env {
            if env.iter().all(|(taken, _)| taken != name) {
                env.push((name.clone(), value.into()));
            }
        }
        env
    }
}

/// The absolute entries of a `PATH`: a relative one would mean another program in every directory.
fn absolute_entries(path: Option<&OsStr>) -> OsString {
    let entries = path.into_iter().flat_map(std::env::split_paths).filter(|e| e.is_absolute());
    match std::env::join_paths(entries) {
        Ok(joined) if !joined.is_empty() => joined,
        _ => DEFAULT_PATH.into(),
    }
}

/// The control plane: channel at 3, control listener at 4.
pub fn plan_control(surroundings: &Surroundings, identity: Option<Identity>) -> LaunchPlan {
    let own = vec![
        ("SENTINEL_STATE", surroundings.state.clone().into_os_string()),
        ("SENTINEL_SOCKETS", surroundings.sockets.clone().into_os_string()),
        ("SENTINEL_BOUNDARY", surroundings.boundary.as_str().into()),
    ];
    LaunchPlan {
        argv: words(&["sentinel", "serve"]),
        env: surroundings.environment(&surroundings.state, "sentinel", own),
        identity,
        umask: surroundings.umask(),
        inherited: vec![Inherited::Channel, Inherited::ControlListener],
        output: Output::Launcher,
    }
}

/// Muzzle: admin listener at 3. With a uid of its own it is told the control plane's, which may
/// administer it; the listener's own path says nothing about its owner.
pub fn plan_muzzle(
    surroundings: &Surroundings,
    identity: Option<Identity>,
    control: Option<Identity>,
) -> LaunchPlan {
    let own = control.map(|control| ("SENTINEL_CONTROL_UID", control.uid.to_string().into()));
    LaunchPlan {
        argv: words(&["sentinel", "muzzle", "--admin-fd", "3"]),
        env: surroundings.environment(
            Path::new("/nonexistent"),
            "muzzle",
            own.into_iter().collect(),
        ),
        identity,
        umask: surroundings.umask(),
        inherited: vec![Inherited::MuzzleAdmin],
        output: surroundings.output(MUZZLE_LOG),
    }
}

/// What stands at `runs/<subject>/<run id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory {
        /// Its owner.
        owner: u32,
    },
    /// A symbolic link.
    SymbolicLink,
    /// Something that is no directory.
    NotADirectory,
    /// It could not be examined.
    Unreadable {
        /// Why.
        why: String,
    },
}

/// One place where the run was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The account whose directory it is in.
    pub subject: Subject,
    /// That account's identity; `None` with a single uid.
    pub identity: Option<Identity>,
    /// What is there.
    pub entry: Entry,
}

/// Whether a worker of the run is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// None.
    Absent,
    /// One lives.
    Live {
        /// Its process id.
        pid: u32,
    },
    /// One ended, and what it left behind is being removed.
    Ending,
}

/// What is known when a worker is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFacts<'a> {
    /// The run.
    pub run_id: &'a RunId,
    /// Every place where it was found.
    pub found: Vec<FoundRun>,
    /// Who has to own the run directory; `None` with a single uid.
    pub run_owner: Option<u32>,
    /// A worker of this run.
    pub presence: Presence,
    /// Live workers of all runs.
    pub workers: usize,
    /// Whether the launcher is ending.
    pub stopping: bool,
}

/// The worker of a run: no descriptor but the standard three. Its account follows from where the run
/// directory is.
pub fn plan_worker(
    surroundings: &Surroundings,
    facts: &WorkerFacts<'_>,
) -> Result<LaunchPlan, Refusal> {
    refuse_unready(facts)?;
    let found = the_one_place(facts)?;
    refuse_unfit_entry(found, facts)?;
    let subject = found.subject.as_str();
    let agent = found.subject.agent();
    let state = &surroundings.state;
    let home = state.join("agents").join(agent).join("workspace");
    let run = state.join("runs").join(subject).join(facts.run_id.as_str());
    let email = format!("{subject}@sentinel.invalid");
    let own = vec![
        ("GIT_AUTHOR_NAME", subject.into()),
        ("GIT_AUTHOR_EMAIL", email.clone().into()),
        ("GIT_COMMITTER_NAME", subject.into()),
        ("GIT_COMMITTER_EMAIL", email.into()),
        ("TMPDIR", "/tmp".into()),
        ("SENTINEL_RUN", run.into_os_string()),
    ];
    Ok(LaunchPlan {
        argv: words(&["sentinel", "worker", facts.run_id.as_str()]),
        env: surroundings.environment(&home, subject, own),
        identity: found.identity,
        umask: surroundings.umask(),
        inherited: vec![],
        output: surroundings.output(WORKERS_LOG),
    })
}

fn refuse_unready(facts: &WorkerFacts<'_>) -> Result<(), Refusal> {
    let run = facts.run_id;
    if facts.stopping {
        let why = format!("the launcher is ending, run {run} stays as it is");
        return Err(refusal("stopping", why, "start sentinel again, it resumes the run"));
    }
    match facts.presence {
        Presence::Absent => {}
        Presence::Live { pid } => {
            let why = format!("run {run} has a live worker, process {pid}");
            return Err(refusal("worker-alive", why, "wait for it to end or signal it"));
        }
        Presence::Ending => {
            let why = format!("what the last worker of run {run} left behind is being removed");
            return Err(refusal("worker-alive", why, "wait for the notice that it has ended"));
        }
    }
    if facts.workers >= limits::WORKERS {
        let why = format!("{} workers are alive, the most there may be", facts.workers);
        return Err(refusal("worker-limit", why, "wait for a run to end or cancel one"));
    }
    Ok(())
}

fn the_one_place<'a>(facts: &'a WorkerFacts<'_>) -> Result<&'a FoundRun, Refusal> {
    match facts.found.as_slice() {
        [one] => Ok(one),
        [] => Err(refusal(
            "unknown-run",
            format!("no registered account has a run {}", facts.run_id),
            "ask for the account first (ensure_agent_user) and create the run directory in it",
        )),
        several => {
            let places: Vec<&str> = several.iter().map(|found| found.subject.as_str()).collect();
            let why = format!("run {} is in several accounts: {}", facts.run_id, places.join(", "));
            Err(refusal("ambiguous-run", why, "move the copies that are not the run away"))
        }
    }
}

fn refuse_unfit_entry(found: &FoundRun, facts: &WorkerFacts<'_>) -> Result<(), Refusal> {
    let place = format!("runs/{}/{}", found.subject, facts.run_id);
    let problem = match &found.entry {
        Entry::Directory { owner } => match facts.run_owner {
            Some(expected) if expected != *owner => {
                let why = format!(
                    "{place} belongs to uid {owner}, not to the control plane's {expected}"
                );
                let remedy = "only directories the control plane made are runs; remove this one";
                return Err(refusal("run-owner", why, remedy));
            }
            Some(_) | None => return Ok(()),
        },
        Entry::SymbolicLink => "is a symbolic link".to_owned(),
        Entry::NotADirectory => "is not a directory".to_owned(),
        Entry::Unreadable { why } => format!("could not be examined: {why}"),
    };
    let remedy = "a run is a real directory in its account's own; remove what stands there";
    Err(refusal("run-directory", format!("{place} {problem}"), remedy))
}

/// A refusal of `worker_spawn`.
pub(crate) fn refusal(rule: &str, why: String, remedy: &str) -> Refusal {
    Refusal { verb: SPAWN.to_owned(), rule: rule.to_owned(), why, remedy: remedy.to_owned() }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn surroundings(boundary: Boundary) -> Surroundings {
        Surroundings {
            boundary,
            state: "/var/lib/sentinel-dev".into(),
            sockets: "/run/sentinel-dev".into(),
            path: Some("/usr/bin:.:/bin:relative".into()),
            lang: None,
            extra_env: vec![
                ("SENTINEL_CRASH_AT".to_owned(), "3".to_owned()),
                ("HOME".to_owned(), "/root".to_owned()),
            ],
            verbose: false,
        }
    }

    fn print(plan: &LaunchPlan) -> String {
        let mut text = format!("argv: {}\n", plan.argv.join(" "));
        match plan.identity {
            Some(Identity { uid, gid }) => writeln!(text, "uid {uid} gid {gid}").unwrap(),
            None => writeln!(text, "uid of the launcher").unwrap(),
        }
        writeln!(text, "umask {:04o}", plan.umask).unwrap();
        writeln!(text, "from 3: {:?}; output: {:?}", plan.inherited, plan.output).unwrap();
        for (name, value) in &plan.env {
            writeln!(text, "{name}={}", value.display()).unwrap();
        }
        text
    }

    fn run_id() -> RunId {
        RunId::new("r-1").unwrap()
    }

    fn found(name: &str, uid: u32, entry: Entry) -> FoundRun {
        let subject = Subject::new(name).unwrap();
        FoundRun { subject, identity: Some(Identity::of(uid)), entry }
    }

    fn facts(run_id: &RunId) -> WorkerFacts<'_> {
        WorkerFacts {
            run_id,
            found: vec![found("leash-scout", 58_001, Entry::Directory { owner: 58_000 })],
            run_owner: Some(58_000),
            presence: Presence::Absent,
            workers: 0,
            stopping: false,
        }
    }

    #[test]
    fn the_control_plane_gets_its_channel_and_its_listener() {
        let plan = plan_control(&surroundings(Boundary::Separate), Some(Identity::of(58_000)));
        insta::assert_snapshot!(print(&plan), @"
        argv: sentinel serve
        uid 58000 gid 58000
        umask 0007
        from 3: [Channel, ControlListener]; output: Launcher
        PATH=/usr/bin:/bin
        LANG=C.UTF-8
        HOME=/var/lib/sentinel-dev
        USER=sentinel
        LOGNAME=sentinel
        SENTINEL_STATE=/var/lib/sentinel-dev
        SENTINEL_SOCKETS=/run/sentinel-dev
        SENTINEL_BOUNDARY=separate
        SENTINEL_CRASH_AT=3
        ");
    }

    #[test]
    fn muzzle_gets_its_admin_listener_alone() {
        let plan = plan_muzzle(&surroundings(Boundary::SingleUid), None, None);
        insta::assert_snapshot!(print(&plan), @r#"
        argv: sentinel muzzle --admin-fd 3
        uid of the launcher
        umask 0077
        from 3: [MuzzleAdmin]; output: Log("muzzle.log")
        PATH=/usr/bin:/bin
        LANG=C.UTF-8
        HOME=/nonexistent
        USER=muzzle
        LOGNAME=muzzle
        SENTINEL_CRASH_AT=3
        "#);
    }

    #[test]
    fn a_worker_is_the_account_that_its_run_is_in() {
        let id = run_id();
        let plan = plan_worker(&surroundings(Boundary::Separate), &facts(&id)).unwrap();
        insta::assert_snapshot!(print(&plan), @r#"
        argv: sentinel worker r-1
        uid 58001 gid 58001
        umask 0007
        from 3: []; output: Log("workers.log")
        PATH=/usr/bin:/bin
        LANG=C.UTF-8
        HOME=/var/lib/sentinel-dev/agents/scout/workspace
        USER=leash-scout
        LOGNAME=leash-scout
        GIT_AUTHOR_NAME=leash-scout
        GIT_AUTHOR_EMAIL=leash-scout@sentinel.invalid
        GIT_COMMITTER_NAME=leash-scout
        GIT_COMMITTER_EMAIL=leash-scout@sentinel.invalid
        TMPDIR=/tmp
        SENTINEL_RUN=/var/lib/sentinel-dev/runs/leash-scout/r-1
        SENTINEL_CRASH_AT=3
        "#);
    }

    #[test]
    fn verbose_sends_workers_where_the_launcher_writes_errors() {
        let id = run_id();
        let verbose = Surroundings { verbose: true, ..surroundings(Boundary::SingleUid) };
        let plan = plan_worker(&verbose, &facts(&id)).unwrap();
        assert_eq!(plan.output, Output::LauncherError);
        assert_eq!(plan.umask, 0o077);
    }

    #[test]
    fn a_path_without_absolute_entries_falls_back() {
        for path in [None, Some(""), Some(".:bin"), Some("::")] {
            assert_eq!(absolute_entries(path.map(OsStr::new)), DEFAULT_PATH, "{path:?}");
        }
        assert_eq!(absolute_entries(Some(OsStr::new("/a:b:/c"))), "/a:/c");
    }

    #[test]
    fn every_reason_not_to_start_a_worker_is_told() {
        let id = run_id();
        let here = Entry::Directory { owner: 58_000 };
        let with = |change: &dyn Fn(&mut WorkerFacts<'_>)| {
            let mut facts = facts(&id);
            change(&mut facts);
            plan_worker(&surroundings(Boundary::Separate), &facts).unwrap_err().to_string()
        };
        let entry = |entry: Entry| with(&|facts| facts.found[0].entry = entry.clone());
        let refusals = [
            with(&|facts| facts.stopping = true),
            with(&|facts| facts.presence = Presence::Live { pid: 7 }),
            with(&|facts| facts.presence = Presence::Ending),
            with(&|facts| facts.workers = limits::WORKERS),
            with(&|facts| facts.found.clear()),
            with(&|facts| facts.found.push(found("naomi", 58_002, here.clone()))),
            entry(Entry::Directory { owner: 58_001 }),
            entry(Entry::SymbolicLink),
            entry(Entry::NotADirectory),
            entry(Entry::Unreadable { why: "input/output error".to_owned() }),
        ];
        insta::assert_snapshot!(refusals.join("\n"), @"
        worker_spawn refused (stopping): the launcher is ending, run r-1 stays as it is; start sentinel again, it resumes the run
        worker_spawn refused (worker-alive): run r-1 has a live worker, process 7; wait for it to end or signal it
        worker_spawn refused (worker-alive): what the last worker of run r-1 left behind is being removed; wait for the notice that it has ended
        worker_spawn refused (worker-limit): 256 workers are alive, the most there may be; wait for a run to end or cancel one
        worker_spawn refused (unknown-run): no registered account has a run r-1; ask for the account first (ensure_agent_user) and create the run directory in it
        worker_spawn refused (ambiguous-run): run r-1 is in several accounts: leash-scout, naomi; move the copies that are not the run away
        worker_spawn refused (run-owner): runs/leash-scout/r-1 belongs to uid 58001, not to the control plane's 58000; only directories the control plane made are runs; remove this one
        worker_spawn refused (run-directory): runs/leash-scout/r-1 is a symbolic link; a run is a real directory in its account's own; remove what stands there
        worker_spawn refused (run-directory): runs/leash-scout/r-1 is not a directory; a run is a real directory in its account's own; remove what stands there
        worker_spawn refused (run-directory): runs/leash-scout/r-1 could not be examined: input/output error; a run is a real directory in its account's own; remove what stands there
        ");
    }

    #[test]
    fn with_a_single_uid_nobody_else_can_own_a_run() {
        let id = run_id();
        let mut facts = facts(&id);
        facts.run_owner = None;
        facts.found[0].identity = None;
        let plan = plan_worker(&surroundings(Boundary::SingleUid), &facts).unwrap();
        assert_eq!(plan.identity, None);
    }
}
