//! Starts the built `sentinel` for real, against the scripted provider, and
//! gives suites hold of what runs: processes, files, the control socket. It
//! judges nothing; each suite says what must be true.
//!
//! Nothing here sleeps for a result: [`until`] asks again until a condition
//! holds or its deadline is over.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a broken harness must fail its suite"
)]

pub mod attacks;
pub mod processes;
pub mod scenario;

use std::ffi::OsStr;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::Client;
use api::control::{Item, Pending, RefusalCode, Request, Response, RunView, Submit};
use domain::id::RunId;
use domain::log::Verdict;
use domain::profile::ModelRecord;
use domain::record::{ApprovalMode, Provider};
use domain::run::Status;
use rehearsal::{Scenario, Server};
use rustix::process::{Gid, Uid};

/// How long a condition may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks `condition` until it gives something.
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    try_until(PATIENCE, condition)
        .unwrap_or_else(|| panic!("waited {PATIENCE:?} in vain until {what}"))
}

/// Asks `condition` until it gives something or `patience` is over.
pub fn try_until<T>(patience: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes a file as a person or an attacker would: at once, not through the store.
#[expect(clippy::disallowed_methods, reason = "a test plants files; it keeps no state")]
pub fn put(path: impl AsRef<Path>, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// The built program: `SENTINEL_BIN`, or the one beside the test executables.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("SENTINEL_BIN") {
        return PathBuf::from(path);
    }
    let mut dir = std::env::current_exe().unwrap();
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    let program = dir.join("sentinel");
    assert!(program.exists(), "{} is not built; run `cargo build` first", program.display());
    program
}

/// Whether this suite runs with separate uids.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A running `sentinel up` in state of its own.
pub struct Instance {
    up: Option<Child>,
    /// Removed with everything in it when the instance is dropped.
    temp: tempfile::TempDir,
    provider: Option<Server>,
    environment: Vec<(String, String)>,
    account: Option<Account>,
}

/// An ordinary user: a bare uid without a passwd entry.
#[derive(Debug, Clone, Copy)]
struct Account(u32);

impl Account {
    /// One that no other test process has: limits are counted by uid.
    fn of_this_process() -> Self {
        Self(55_000 + std::process::id() % 1_000)
    }

    /// Runs `act` in a thread that has this uid, this gid and no group.
    fn act<T: Send>(self, act: impl FnOnce() -> T + Send) -> T {
        let become_it = move || -> rustix::io::Result<()> {
            let (uid, gid) = (Uid::from_raw(self.0), Gid::from_raw(self.0));
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                become_it().unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }

    /// A command as this uid, with nothing in its environment that is not given here.
    fn command(self, program: impl AsRef<OsStr>, home: &Path) -> Command {
        let mut command = Command::new(program);
        command.uid(self.0).gid(self.0).current_dir("/").env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.env("HOME", home);
        command
    }
}

impl Instance {
    /// Starts with one model `rehearsal` that plays `scenario`.
    pub fn start(scenario: &str) -> Self {
        Self::start_with(scenario, &[])
    }

    /// [`Instance::start`] with variables in the environment of `sentinel up`.
    pub fn start_with(scenario: &str, environment: &[(&str, &str)]) -> Self {
        let mut instance = Self::bare(environment);
        instance.launch();
        instance.play(scenario);
        instance
    }

    /// Starts the scripted provider and adds it as model `rehearsal`.
    pub fn play(&mut self, scenario: &str) {
        let scenario = Scenario::parse(scenario).unwrap();
        let model = scenario.models().next().unwrap().to_owned();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let provider = Server::in_thread(listener, scenario, None).unwrap();
        self.add_model("rehearsal", Provider::Openai, &provider.base_url(), &model);
        self.provider = Some(provider);
    }

    /// [`Instance::start`] as an ordinary user, which is this one unless this is root.
    pub fn start_single_uid(scenario: &str) -> Self {
        let mut instance = Self::bare(&[]);
        if is_root() {
            let account = Account::of_this_process();
            for name in ["state", "sockets"] {
                let dir = instance.path(name);
                std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
                std::os::unix::fs::chown(&dir, Some(account.0), Some(account.0)).unwrap();
            }
            std::fs::create_dir(instance.path("bin")).unwrap();
            let copy = instance.path("bin/sentinel");
            if std::fs::hard_link(program(), &copy).is_err() {
                std::fs::copy(program(), &copy).unwrap();
            }
            instance.account = Some(account);
        }
        instance.launch();
        instance.play(scenario);
        instance
    }

    /// The one uid of an instance that root started as an ordinary user.
    pub fn single_uid(&self) -> Option<u32> {
        self.account.map(|account| account.0)
    }

    /// State and sockets without a process yet.
    pub fn bare(environment: &[(&str, &str)]) -> Self {
        let temp =
            tempfile::Builder::new().prefix("sentinel-suite-").tempdir_in("/var/tmp").unwrap();
        // Agents walk through it to what is theirs.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(temp.path(), mode).unwrap();
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self { up: None, temp, provider: None, environment, account: None }
    }

    /// Starts `sentinel up` and waits until it answers.
    pub fn launch(&mut self) {
        self.spawn();
        self.wait_until_ready();
    }

    /// Starts `sentinel up`.
    pub fn spawn(&mut self) {
        let log =
            std::fs::File::options().append(true).create(true).open(self.path("up.log")).unwrap();
        let mut command = self.program_command();
        command
            .args(["up", "--verbose", "--any-slice", "--end-with-parent"])
            .arg("--state")
            .arg(self.state())
            .arg("--sockets")
            .arg(self.path("sockets"))
            .envs(self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.up = Some(command.spawn().unwrap());
    }

    /// The program, to be run as whoever this instance belongs to.
    fn program_command(&self) -> Command {
        match self.account {
            Some(account) => account.command(self.path("bin/sentinel"), &self.state()),
            None => Command::new(program()),
        }
    }

    /// Waits until the control plane answers and Muzzle is configured.
    pub fn wait_until_ready(&self) {
        let ready = try_until(PATIENCE, || {
            let Ok(Response::System(status)) = self.try_ask(&Request::Status) else { return None };
            status.muzzle.running.then_some(())
        });
        assert!(ready.is_some(), "sentinel up did not get ready:\n{}", self.log());
    }

    /// A file or directory of this instance.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.temp.path().join(relative)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub fn socket(&self) -> PathBuf {
        self.path("sockets/control.sock")
    }

    /// What the launcher and its children wrote.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("up.log")).unwrap_or_default()
    }

    /// The launcher's process id.
    pub fn launcher(&self) -> i32 {
        i32::try_from(self.up.as_ref().unwrap().id()).unwrap()
    }

    /// The scripted provider.
    pub fn provider(&self) -> &Server {
        self.provider.as_ref().unwrap()
    }

    /// The head agent's workspace.
    pub fn workspace(&self) -> PathBuf {
        self.state().join("agents/naomi/workspace")
    }

    /// The directory of a run of the head agent.
    pub fn run_dir(&self, run: &RunId) -> PathBuf {
        self.state().join("runs/naomi").join(run.as_str())
    }

    pub fn token(&self) -> Option<String> {
        std::fs::read_to_string(self.state().join("control.token")).ok()
    }

    /// A connection to the control plane.
    pub fn client(&self) -> Result<Client, api::ClientError> {
        self.client_with(self.token())
    }

    /// The same with this control token.
    pub fn client_with(&self, token: Option<String>) -> Result<Client, api::ClientError> {
        match self.account {
            Some(account) => account.act(|| Client::connect(&self.socket(), token)),
            None => Client::connect(&self.socket(), token),
        }
    }

    /// One question, whatever comes of it.
    pub fn try_ask(&self, request: &Request) -> Result<Response, api::ClientError> {
        self.client()?.ask(request)
    }

    /// One question to a control plane that may be restarting.
    pub fn ask(&self, request: &Request) -> Response {
        until("the control plane answered", || match self.try_ask(request) {
            Ok(response) => Some(Ok(response)),
            Err(api::ClientError::Refused(refusal)) => Some(Err(refusal)),
            Err(_) => None,
        })
        .unwrap_or_else(|refusal| panic!("refused: {refusal:?}\n{}", self.log()))
    }

    pub fn add_model(&self, name: &str, provider: Provider, base_url: &str, model: &str) {
        let model = ModelRecord {
            name: name.to_owned(),
            provider,
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            owner: String::new(),
        };
        let added = try_until(PATIENCE, || {
            match self.try_ask(&Request::ModelAdd { model: model.clone() }) {
                Ok(Response::Done) => Some(()),
                // Asked again after an interruption that came after the write.
                Err(api::ClientError::Refused(r)) if r.code == RefusalCode::Conflict => Some(()),
                Ok(_) | Err(_) => None,
            }
        });
        assert!(added.is_some(), "model add failed:\n{}", self.log());
    }

    /// Submits a task for the head agent.
    pub fn submit(&self, task: &str) -> RunId {
        self.submit_with(Submit { task: task.to_owned(), ..Submit::default() })
    }

    pub fn submit_with(&self, submit: Submit) -> RunId {
        match self.ask(&Request::Submit(submit)) {
            Response::Submitted { run, .. } => run,
            other => panic!("submit: {other:?}"),
        }
    }

    pub fn view(&self, run: &RunId) -> RunView {
        match self.ask(&Request::Show { run: run.clone() }) {
            Response::Run(view) => *view,
            other => panic!("show: {other:?}"),
        }
    }

    pub fn status(&self, run: &RunId) -> Status {
        match self.ask(&Request::Runs { limit: 1000 }) {
            Response::Runs(rows) => rows.into_iter().find(|row| row.id == *run).unwrap().status,
            other => panic!("runs: {other:?}"),
        }
    }

    /// Waits until the run has this status.
    pub fn wait_for(&self, run: &RunId, wanted: Status) -> RunView {
        let mut seen = None;
        let found = try_until(PATIENCE, || {
            let now = self.status(run);
            seen = Some(now);
            (now == wanted).then_some(())
        });
        let view = self.view(run);
        assert!(
            found.is_some(),
            "the run is {seen:?}, not {wanted:?}; {:?}\n{:#?}\n{}",
            view.failure,
            view.items,
            self.log()
        );
        view
    }

    pub fn approvals(&self) -> Vec<Pending> {
        match self.ask(&Request::Approvals) {
            Response::Approvals(pending) => pending,
            other => panic!("approvals: {other:?}"),
        }
    }

    /// Waits for a card of this run and decides it.
    pub fn decide_next(&self, run: &RunId, verdict: Verdict) -> Pending {
        let card =
            until("a card waits", || self.approvals().into_iter().find(|card| card.run == *run));
        self.decide(&card, verdict, None).unwrap();
        card
    }

    pub fn decide(
        &self,
        card: &Pending,
        verdict: Verdict,
        reason: Option<&str>,
    ) -> Result<Response, api::ClientError> {
        self.try_ask(&Request::Decide {
            run: card.run.clone(),
            request: card.request,
            digest: card.digest.clone(),
            verdict,
            reason: reason.map(str::to_owned),
        })
    }

    /// Approves everything that is asked until the run is over.
    pub fn drive(&self, run: &RunId) -> RunView {
        let over = try_until(PATIENCE * 2, || {
            if let Ok(Response::Approvals(cards)) = self.try_ask(&Request::Approvals) {
                for card in cards.iter().filter(|card| card.run == *run) {
                    // Lost with a control plane that dies under it: asked again.
                    let _decided = self.decide(card, Verdict::Approve, None);
                }
            }
            let Ok(Response::Runs(rows)) = self.try_ask(&Request::Runs { limit: 1000 }) else {
                return None;
            };
            rows.into_iter().find(|row| row.id == *run)?.status.is_over().then_some(())
        });
        let view = self.view(run);
        assert!(
            over.is_some(),
            "the run is not over: {:?}\n{:#?}\n{}",
            view.status,
            view.items,
            self.log()
        );
        view
    }

    /// A standing yes for a new run.
    pub fn automatic(task: &str) -> Submit {
        Submit { task: task.to_owned(), approvals: ApprovalMode::Automatic, ..Submit::default() }
    }

    /// Runs the CLI against this instance and returns exit code, stdout and stderr.
    pub fn cli(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self
            .program_command()
            .arg("--state")
            .arg(self.state())
            .arg("--sockets")
            .arg(self.path("sockets"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// Ends the launcher as Ctrl-C does and waits for it.
    pub fn stop(&mut self) {
        let Some(mut up) = self.up.take() else { return };
        let pid = rustix::process::Pid::from_raw(i32::try_from(up.id()).unwrap()).unwrap();
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if try_until(Duration::from_secs(20), || up.try_wait().unwrap()).is_none() {
            let _gone = up.kill();
            let _reaped = up.wait();
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The worker's events of a view, in order.
pub fn events(view: &RunView) -> Vec<&domain::log::Event> {
    view.items
        .iter()
        .filter_map(|item: &Item| match &item.body {
            api::control::Body::Worker(event) => Some(event),
            api::control::Body::Control(_) => None,
        })
        .collect()
}
