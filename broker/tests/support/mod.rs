//! A launcher in a process of its own, with state, sockets and uids that belong to one test.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(dead_code, reason = "each test binary uses its part of this")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use broker::{SliceLease, UidRange};
use serde_json::{Value, json};

/// How long anything may take before it counts as not happening.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Repeats `probe` until it yields something.
pub(crate) fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes a file of a test's own, whose loss with the machine would not matter.
pub(crate) fn put(path: impl AsRef<Path>, text: &str) {
    fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

pub(crate) fn is_alive(pid: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

pub(crate) fn kill(pid: u64, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A field of `/proc/<pid>/status` with single spaces.
pub(crate) fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn status_of(pid: u64) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap()
}

/// Where a launcher works.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    lease: Option<SliceLease>,
    env: Value,
}

impl Place {
    /// For root: separate uids from a slice of this test's own.
    pub(crate) fn separate() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this suite needs root");
        let place = Self::new(Some(broker::lease_slice().unwrap()));
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o711)).unwrap();
        place
    }

    /// For anyone: one uid, which is a bare one when the test runs as root.
    pub(crate) fn single() -> Self {
        let root = rustix::process::geteuid().is_root();
        let place = Self::new(root.then(|| broker::lease_slice().unwrap()));
        if let Some(uid) = place.ordinary_uid() {
            chown(place.path(), Some(uid), Some(uid)).unwrap();
        }
        place
    }

    fn new(lease: Option<SliceLease>) -> Self {
        let directory = tempfile::Builder::new().prefix("launcher").tempdir_in("/var/tmp").unwrap();
        // An agent uid, or the ordinary one, may not reach the build directory.
        fs::copy(env!("CARGO_BIN_EXE_broker-fake-sentinel"), directory.path().join("sentinel"))
            .unwrap();
        Self { directory, lease, env: json!({}) }
    }

    fn ordinary_uid(&self) -> Option<u32> {
        Some(self.uids()?.control)
    }

    pub(crate) fn uids(&self) -> Option<&UidRange> {
        self.lease.as_ref().map(|lease| &lease.uids)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.path().join("sockets")
    }

    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        self.env[name] = json!(value);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.state().join("log/workers.log")).unwrap_or_default()
    }

    /// Starts a launcher with separate uids.
    pub(crate) fn launch(&self) -> Launcher {
        let slice = self.lease.as_ref().map(|lease| lease.index);
        self.spawn(&json!({ "slice": slice }), None)
    }

    /// Starts a launcher with one uid.
    pub(crate) fn launch_single(&self) -> Launcher {
        self.spawn(&json!({}), self.ordinary_uid())
    }

    /// Starts a launcher with separate uids and some settings of another place.
    pub(crate) fn launch_with_config(&self, changes: &Value) -> Launcher {
        let mut config = changes.clone();
        config["slice"] = json!(self.lease.as_ref().map(|lease| lease.index));
        self.spawn(&config, None)
    }

    /// Starts a launcher with separate uids through another program.
    pub(crate) fn launch_by(&self, program: &Path) -> Launcher {
        let slice = self.lease.as_ref().map(|lease| lease.index);
        self.spawn_by(program, &json!({ "slice": slice }), None)
    }

    fn spawn(&self, changes: &Value, uid: Option<u32>) -> Launcher {
        self.spawn_by(&self.path().join("sentinel"), changes, uid)
    }

    fn spawn_by(&self, program: &Path, changes: &Value, uid: Option<u32>) -> Launcher {
        let mut config =
            json!({ "state": self.state(), "sockets": self.sockets(), "env": self.env });
        for (name, value) in changes.as_object().unwrap() {
            config[name] = value.clone();
        }
        let mut command = Command::new(program);
        command.arg("launch").arg(config.to_string()).stderr(Stdio::piped()).stdin(Stdio::null());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        command.process_group(0);
        let mut process = command.spawn().unwrap();
        let stderr = process.stderr.take().unwrap();
        let text = std::thread::spawn(move || {
            let mut text = String::new();
            BufReader::new(stderr).read_to_string(&mut text).unwrap();
            text
        });
        Launcher { process, text: Some(text), sockets: self.sockets() }
    }

    /// Makes a run directory as the control plane would.
    pub(crate) fn make_run(&self, subject: &str, run_id: &str) -> PathBuf {
        let segment = self.state().join("runs").join(subject);
        let run = segment.join(run_id);
        fs::create_dir_all(&run).unwrap();
        if let Some(uids) = self.uids() {
            for path in [&self.state().join("runs"), &segment, &run] {
                chown(path, Some(uids.control), Some(uids.control)).unwrap();
            }
        }
        run
    }
}

/// A running launcher; killed with the value.
pub(crate) struct Launcher {
    process: Child,
    text: Option<std::thread::JoinHandle<String>>,
    sockets: PathBuf,
}

impl Launcher {
    pub(crate) fn pid(&self) -> u64 {
        self.process.id().into()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        kill(self.pid(), signal);
    }

    /// Waits until the launcher has ended: its exit status and everything it wrote.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = wait_for("the launcher to end", || self.process.try_wait().unwrap());
        (status, self.text.take().unwrap().join().unwrap())
    }

    /// The launcher must refuse to start; returns why.
    pub(crate) fn refusal(self) -> String {
        let (status, text) = self.wait();
        assert_eq!(status.code(), Some(3), "{text}");
        text
    }

    /// Connects to the control plane that lives now, or to the next one.
    pub(crate) fn control(&self) -> Control {
        wait_for("a control plane", || {
            let stream = UnixStream::connect(self.sockets.join("control.sock")).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let stream = BufReader::new(stream);
            let mut control = Control { stream, seen: 0, last: 0, hello: Value::Null };
            let question = json!({ "do": "notices", "from": 0, "wait": 1000 });
            let first = control.try_ask(&question)?.as_array()?.first()?["notice"].clone();
            assert_eq!(first["notice"], "hello");
            control.seen = 1;
            control.hello = first;
            Some(control)
        })
    }

    /// What Muzzle reports about itself.
    pub(crate) fn muzzle(&self) -> Value {
        let stream = wait_for("the admin socket", || {
            UnixStream::connect(self.sockets.join("muzzle.sock")).ok()
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Numbers of requests: a control plane remembers what earlier conversations asked.
static SEQ: AtomicU64 = AtomicU64::new(0);

/// A conversation with the scripted control plane.
pub(crate) struct Control {
    stream: BufReader<UnixStream>,
    seen: usize,
    last: u64,
    pub(crate) hello: Value,
}

impl Control {
    pub(crate) fn ask(&mut self, question: &Value) -> Value {
        self.try_ask(question).unwrap()
    }

    fn try_ask(&mut self, question: &Value) -> Option<Value> {
        writeln!(self.stream.get_mut(), "{question}").ok()?;
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// What the control plane reports about itself.
    pub(crate) fn report(&mut self) -> Value {
        self.ask(&json!({ "do": "report" }))
    }

    pub(crate) fn pid(&mut self) -> u64 {
        self.report()["pid"].as_u64().unwrap()
    }

    /// Makes the control plane go away, with an answer or without.
    pub(crate) fn end(mut self, question: &Value) {
        self.try_ask(question);
    }

    /// The next notice, with whether a descriptor came along.
    pub(crate) fn next_notice(&mut self) -> Value {
        wait_for("a notice", || self.notice_within(Duration::from_secs(1)))
    }

    pub(crate) fn notice_within(&mut self, wait: Duration) -> Option<Value> {
        let wait = u64::try_from(wait.as_millis()).unwrap();
        let question = json!({ "do": "notices", "from": self.seen, "wait": wait });
        let first = self.ask(&question).as_array().unwrap().first().cloned()?;
        self.seen += 1;
        Some(first)
    }

    /// Skips to the next notice of a kind.
    pub(crate) fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let next = self.next_notice();
            if next["notice"]["notice"] == kind {
                return next;
            }
        }
    }

    /// Sends what the launcher will not forgive; the control plane may be gone before it says so.
    pub(crate) fn send_last(mut self, datagram: &str) {
        self.try_ask(&json!({ "do": "send", "datagram": datagram }));
    }

    pub(crate) fn send(&mut self, datagram: &str) {
        assert_eq!(self.ask(&json!({ "do": "send", "datagram": datagram })), true);
    }

    /// Sends a request and returns the reply to it: the result, and whether a descriptor came.
    pub(crate) fn request(&mut self, mut request: Value) -> (Value, bool) {
        let seq = SEQ.fetch_add(1, Ordering::SeqCst) + 1;
        self.last = seq;
        request["seq"] = json!(seq);
        self.send(&request.to_string());
        loop {
            let next = self.next_of("reply");
            if next["notice"]["seq"] == seq {
                return (next["notice"]["result"].clone(), next["fd"].as_bool().unwrap());
            }
        }
    }

    pub(crate) fn ensure(&mut self, subject: &str) -> Value {
        self.request(json!({ "verb": "ensure_agent_user", "subject": subject })).0
    }

    /// Starts a worker that must start: its pid.
    pub(crate) fn spawn(&mut self, run_id: &str) -> Value {
        let (result, fd) = self.request(json!({ "verb": "worker_spawn", "run_id": run_id }));
        assert!(result["Ok"].is_object(), "{result}");
        assert!(fd, "no pidfd came");
        result["Ok"].clone()
    }

    /// Starts a worker that must be refused: the rule and the whole refusal.
    pub(crate) fn spawn_refusal(&mut self, run_id: &str) -> (String, String) {
        let (result, fd) = self.request(json!({ "verb": "worker_spawn", "run_id": run_id }));
        assert!(!fd);
        let refusal = &result["Err"];
        (refusal["rule"].as_str().unwrap_or_default().to_owned(), refusal.to_string())
    }

    pub(crate) fn signal(&mut self, run_id: &str, signal: &str) -> Value {
        self.request(json!({ "verb": "worker_signal", "run_id": run_id, "signal": signal })).0
    }

    /// Whether the pidfd under `key` says within `wait` that its process has ended.
    pub(crate) fn pidfd_ended(&mut self, key: &str, wait: Duration) -> bool {
        let wait = u64::try_from(wait.as_millis()).unwrap();
        self.ask(&json!({ "do": "pidfd", "key": key, "wait": wait })).as_bool().unwrap()
    }

    /// The seq of the last request, under which a spawn's pidfd is kept.
    pub(crate) fn last_seq(&self) -> String {
        self.last.to_string()
    }

    /// Waits for the end of a run.
    pub(crate) fn exited(&mut self, run_id: &str) -> Value {
        loop {
            let notice = self.next_of("exited");
            if notice["notice"]["run_id"] == run_id {
                return notice["notice"]["how"].clone();
            }
        }
    }
}

/// The pid that a script of a worker wrote as `daemon <run id> <pid>`.
pub(crate) fn daemon_pid(place: &Place, run_id: &str) -> u64 {
    let prefix = format!("daemon {run_id} ");
    wait_for("the daemon's pid", || {
        let log = place.log();
        let (_, rest) = log.split_once(&prefix)?;
        let (pid, _) = rest.split_once('\n')?;
        pid.parse().ok()
    })
}

/// What the worker of a run reported about itself.
pub(crate) fn worker_report(place: &Place, run_id: &str) -> Value {
    let prefix = format!("worker {run_id} ");
    wait_for("the worker's report", || {
        let log = place.log();
        let (_, rest) = log.split_once(&prefix)?;
        let (report, _) = rest.split_once('\n')?;
        serde_json::from_str(report).ok()
    })
}
