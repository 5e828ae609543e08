//! As root: every row of the attack table, tried as the tool of a real run or from a subverted worker's account, with
//! its positive control, in both modes. The mode of an ordinary user runs here under a bare uid.

#![expect(clippy::unwrap_used, reason = "a broken harness must fail its suite")]

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use api::control::Request;
use domain::id::{AgentName, RunId};
use domain::log::{Event, Verdict};
use domain::record::Provider;
use domain::run::Status;
use suites::attacks::{self, Act, Attack, By, Expected, Layer, ShownBy};
use suites::{Instance, events, processes, scenario, until};

type Variables = BTreeMap<&'static str, String>;

/// What a guard says when it stops something; anything else is a broken row.
const REFUSALS: [&str; 7] = [
    "Permission denied",
    "Operation not permitted",
    "not supported",
    "Couldn't connect",
    "may not use the control socket",
    "control token",
    "this account may not open",
];

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn output(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn as_uid(uid: u32, command: &str, dir: &Path, variables: &Variables) -> (bool, String) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env_clear().env("PATH", PATH).envs(variables).current_dir(dir);
    output(shell.uid(uid).gid(uid))
}

/// Stands in for a process of the product when an act is shown to work.
struct Victim(Child);

impl Victim {
    fn of(uid: u32) -> Self {
        Self(Command::new("/bin/sleep").arg("600").uid(uid).gid(uid).spawn().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn uid_of(pid: i32) -> u32 {
    let all = processes::all();
    let process = all.iter().find(|process| process.pid == pid).unwrap();
    process.status("Uid").split_whitespace().next().unwrap().parse().unwrap()
}

/// Daemons of the machine that an agent should not reach, and what they listen on.
struct Neighbours {
    dir: tempfile::TempDir,
    _unix: Vec<UnixListener>,
    tcp: std::net::TcpListener,
    udp: std::net::UdpSocket,
    user: PathBuf,
    tmux_as: u32,
}

impl Neighbours {
    fn of(uid: u32) -> Self {
        let dir = tempfile::Builder::new().prefix("fake-docker-").tempdir_in("/run").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let user = PathBuf::from(format!("/run/user/{uid}"));
        std::fs::create_dir_all(user.join("systemd")).unwrap();
        let mut unix: Vec<UnixListener> =
            [dir.path().join("fake-docker.sock"), user.join("bus"), user.join("systemd/private")]
                .iter()
                .map(|path| {
                    let _stale = std::fs::remove_file(path);
                    let listener = UnixListener::bind(path).unwrap();
                    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
                    listener
                })
                .collect();
        let name = format!("sentinel-attack-{uid}");
        unix.push(UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap());
        answer_http(unix.first().unwrap().try_clone().unwrap());
        let this = Self {
            _unix: unix,
            tcp: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
            user,
            tmux_as: uid,
            dir,
        };
        let (ran, text) = this.tmux("new-session -d");
        assert!(ran, "a tmux server of uid {uid}: {text}");
        this
    }

    fn tmux(&self, arguments: &str) -> (bool, String) {
        let socket = self.dir.path().join("tmux").display().to_string();
        let variables = BTreeMap::from([("SOCKET", socket), ("LANG", "C.UTF-8".to_owned())]);
        as_uid(self.tmux_as, &format!("tmux -S $SOCKET {arguments}"), Path::new("/"), &variables)
    }

    fn variables(&self) -> Variables {
        let text = |path: PathBuf| path.display().to_string();
        BTreeMap::from([
            ("DOCKER", text(self.dir.path().join("fake-docker.sock"))),
            ("TMUX_SOCKET", text(self.dir.path().join("tmux"))),
            ("BUS", text(self.user.join("bus"))),
            ("SYSTEMD", text(self.user.join("systemd/private"))),
            ("ABSTRACT", format!("sentinel-attack-{}", self.tmux_as)),
            ("TCP", self.tcp.local_addr().unwrap().port().to_string()),
            ("UDP", self.udp.local_addr().unwrap().port().to_string()),
        ])
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.tmux("kill-server");
        let _left = std::fs::remove_dir_all(&self.user);
    }
}

/// Answers every connection, so that an HTTP client that gets through is content.
fn answer_http(listener: UnixListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            let _read = std::io::Read::read(&mut stream, &mut request);
            let _sent = std::io::Write::write_all(
                &mut stream,
                b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
    });
}

/// The rows of one kind of tool; each is one call of one run.
struct Group {
    by: By,
    agent: &'static str,
    model: &'static str,
}

const GROUPS: [Group; 3] = [
    Group { by: By::Tool, agent: "naomi", model: "m" },
    Group { by: By::NetworkTool, agent: "dialler", model: "network" },
    Group { by: By::UnixSocketTool, agent: "connector", model: "unix" },
];

fn rows_of(by: By) -> Vec<&'static Attack> {
    attacks::all().filter(|attack| attack.by == by).collect()
}

fn turns_of(by: By) -> Vec<String> {
    let wait = "while [ ! -e targets ]; do sleep 0.02; done".to_owned();
    let act = |attack: &Attack| format!("set -a; . ./targets; set +a; {}", attack.act.command());
    let commands = [wait].into_iter().chain(rows_of(by).into_iter().map(act));
    commands.map(|text| scenario::command(&text)).chain([scenario::answer("done")]).collect()
}

fn script() -> String {
    let turns: Vec<(&str, Vec<String>)> =
        GROUPS.iter().map(|group| (group.model, turns_of(group.by))).collect();
    let turns: Vec<(&str, Vec<&str>)> = turns
        .iter()
        .map(|(model, turns)| (*model, turns.iter().map(String::as_str).collect()))
        .collect();
    let turns: Vec<(&str, &[&str])> =
        turns.iter().map(|(model, turns)| (*model, turns.as_slice())).collect();
    scenario::of_models(&turns)
}

/// One mode under attack.
struct Battle {
    instance: Instance,
    neighbours: Neighbours,
    single: bool,
    /// The account of the agent that is tried at the moment.
    uid: u32,
    control_uid: u32,
    /// The kernel's Landlock.
    abi: u32,
    problems: Vec<String>,
}

impl Battle {
    fn begin(instance: Instance, single: bool, port_of: impl Fn(&Neighbours) -> u16) -> Self {
        let control = until("the control plane", || processes::control_plane(instance.launcher()));
        let control_uid = uid_of(control.pid);
        // The head agent's account: its directory is its own.
        let uid = if single { control_uid } else { Self::account_of_head(&instance) };
        let neighbours = Neighbours::of(uid);
        let base = instance.provider().base_url();
        for group in GROUPS.iter().skip(1) {
            instance.add_model(group.model, Provider::Openai, &base, group.model);
            let grant = if group.by == By::NetworkTool {
                format!("tcp_ports: [{}]", port_of(&neighbours))
            } else {
                "unix_sockets: true".to_owned()
            };
            instance.ask(&Request::AgentSave {
                name: AgentName::new(group.agent).unwrap(),
                profile: format!("model: {}\n{grant}\n", group.model),
                soul: String::new(),
                create: true,
            });
        }
        let abi = worker::sandbox::probe_abi().unwrap().0;
        Self { instance, neighbours, single, uid, control_uid, abi, problems: Vec::new() }
    }

    /// A run of the head agent that waits, which also makes its account.
    fn waiting(instance: &Instance) -> RunId {
        let run = instance.submit("wait");
        instance.wait_for(&run, Status::WaitingApproval);
        run
    }

    fn account_of_head(instance: &Instance) -> u32 {
        Self::waiting(instance);
        let file = instance.workspace();
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(file).unwrap())
    }

    fn expected(&self, attack: &Attack) -> Expected {
        let expected = if self.single { attack.single_uid } else { attack.separate };
        let old = self.abi < attack.abi && expected == Expected::StoppedBy(Layer::Landlock);
        if old { Expected::NotCovered } else { expected }
    }

    fn record(&mut self, attack: &Attack, what: impl std::fmt::Display) {
        self.problems.push(format!("{} (by {:?}): {what}", attack.name, attack.by));
    }

    fn variables(&self, run_dir: &Path, workspace: &Path) -> Variables {
        let text = |path: &Path| path.display().to_string();
        let mut variables = self.neighbours.variables();
        let record = std::fs::read_to_string(run_dir.join("run.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        let provider = self.instance.provider().base_url();
        let port = provider.split(':').next_back().unwrap().split('/').next().unwrap();
        variables.extend([
            ("RUN", text(run_dir)),
            ("STATE", text(&self.instance.state())),
            ("SOCKETS", text(&self.instance.path("sockets"))),
            ("CONTROL_SOCKET", text(&self.instance.socket())),
            ("MUZZLE_SOCKET", text(&self.instance.path("sockets/muzzle.sock"))),
            ("WORKSPACE", text(workspace)),
            ("LAUNCHER", self.instance.launcher().to_string()),
            ("PROVIDER", port.to_owned()),
            ("MUZZLE_PORT", record.pointer("/model/port").unwrap().to_string()),
            ("MARK", format!("sentinel-mark-{}", self.uid)),
        ]);
        variables
    }

    /// Runs the rows of one group as the tool calls of one run, and shows that each works without the guard.
    fn try_group(&mut self, group: &Group) {
        let mut submit = Instance::automatic("attack");
        submit.agent = Some(AgentName::new(group.agent).unwrap());
        let waiting = (group.by == By::Tool).then(|| Self::waiting(&self.instance));
        let run = self.instance.submit_with(submit);
        let launcher = self.instance.launcher();
        let found = suites::try_until(suites::PATIENCE, || {
            let worker = processes::worker(launcher)?;
            let host = processes::tool_host(worker.pid)?;
            Some((worker, host))
        });
        let (worker, host) = found
            .ok_or_else(|| {
                let view = self.instance.view(&run);
                format!("no worker: {:?} {:?}\n{}", view.status, view.failure, self.instance.log())
            })
            .unwrap();
        self.uid = uid_of(worker.pid);
        let view = self.instance.view(&run);
        let (run_dir, workspace) =
            (PathBuf::from(&view.path), PathBuf::from(&view.record.workspace));
        let mut variables = self.variables(&run_dir, &workspace);
        let control = processes::control_plane(launcher).unwrap();
        let program = std::fs::read_link(format!("/proc/{}/exe", worker.pid)).unwrap();
        variables.extend([
            ("WORKER", worker.pid.to_string()),
            ("HOST", host.pid.to_string()),
            ("CONTROL", control.pid.to_string()),
            ("SENTINEL", program.display().to_string()),
        ]);
        if let Some(run) = &waiting {
            let card = self.instance.approvals().into_iter().find(|card| card.run == *run).unwrap();
            variables.insert("WAITING", format!("{run} {}", card.request));
        }
        let replica = Replica::of(&run_dir);
        let targets: Vec<String> = variables
            .iter()
            .map(|(name, value)| {
                format!(
                    "{name}=\"{value}\"
"
                )
            })
            .collect();
        // Whole at once: the tool waits for the name.
        suites::put(workspace.join("targets.new"), &targets.concat());
        std::fs::rename(workspace.join("targets.new"), workspace.join("targets")).unwrap();
        let view = self.instance.wait_for(&run, Status::Done);
        let results: Vec<String> = events(&view)
            .into_iter()
            .filter_map(|event| {
                if let Event::Result { text, .. } = event { Some(text.clone()) } else { None }
            })
            .collect();
        let rows = rows_of(group.by);
        assert_eq!(results.len(), rows.len() + 1, "{results:#?}");
        if let Some(waiting) = &waiting {
            let status = self.instance.status(waiting);
            assert_eq!(status, Status::WaitingApproval, "a tool decided a card");
        }
        for (attack, text) in rows.into_iter().zip(results.iter().skip(1)) {
            self.judge(attack, text);
            self.show(attack, &variables, &replica);
        }
    }

    /// What came of the act in the sandbox.
    fn judge(&mut self, attack: &Attack, text: &str) {
        let succeeded = text.starts_with("exit code 0");
        let refused = REFUSALS.iter().any(|refusal| text.contains(refusal));
        match self.expected(attack) {
            Expected::NotCovered if !succeeded => {
                self.record(attack, format_args!("is covered after all: {text}"));
            }
            Expected::StoppedBy(_) if succeeded => {
                self.record(attack, format_args!("SUCCEEDED: {text}"));
            }
            Expected::StoppedBy(_) if !refused => {
                self.record(attack, format_args!("failed for another reason: {text}"));
            }
            Expected::NotCovered | Expected::StoppedBy(_) | Expected::Absent => {}
        }
    }

    /// The positive control, on a copy of the run directory and on processes that stand in for the product's.
    fn show(&mut self, attack: &Attack, variables: &Variables, replica: &Replica) {
        let expected = self.expected(attack);
        if expected == Expected::Absent {
            return;
        }
        let by_accounts =
            matches!(expected, Expected::StoppedBy(Layer::Accounts | Layer::ControlSocket))
                && !self.single;
        if by_accounts {
            let (worked, _) = self.outside(attack, self.uid, variables, replica);
            if worked {
                self.record(attack, "the account alone does not stop it");
            }
        }
        let root = by_accounts || attack.shown_by == ShownBy::Root;
        let who = if root { 0 } else { self.uid };
        let (mut worked, mut text) = self.outside(attack, who, variables, replica);
        if !worked && by_accounts {
            // Root in a container may lack the capability; the owner needs none.
            (worked, text) = self.outside(attack, self.control_uid, variables, replica);
        }
        if !worked {
            self.record(attack, format_args!("the positive control failed as uid {who}: {text}"));
        }
    }

    fn outside(
        &self,
        attack: &Attack,
        who: u32,
        variables: &Variables,
        replica: &Replica,
    ) -> (bool, String) {
        let victims = [Victim::of(self.uid), Victim::of(self.control_uid)];
        let pid = |victim: &Victim| victim.0.id().to_string();
        let mut variables = variables.clone();
        variables.extend([
            ("RUN", replica.fresh().display().to_string()),
            ("WORKER", pid(&victims[0])),
            ("HOST", pid(&victims[0])),
            ("CONTROL", pid(&victims[1])),
            ("LAUNCHER", pid(&victims[1])),
            ("HOME", self.instance.state().display().to_string()),
        ]);
        if self.single
            && let Some(token) = self.instance.token()
        {
            variables.insert("TOKEN", token);
        }
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        std::os::unix::fs::chown(place.path(), Some(self.uid), Some(self.uid)).unwrap();
        as_uid(who, &attack.act.command(), place.path(), &variables)
    }

    /// A worker's account plants a file in its half of a run that waits; then a person approves.
    fn plant(&mut self, attack: &Attack) {
        let Act::Plant(plant, open) = attack.act else { return };
        let run = Self::waiting(&self.instance);
        let view = self.instance.view(&run);
        let run_dir = PathBuf::from(&view.path);
        let half = run_dir.join("worker");
        let card = self.instance.approvals().into_iter().find(|card| card.run == run).unwrap();
        let variables = self.variables(&run_dir, Path::new(&view.record.workspace));
        self.uid = std::os::unix::fs::MetadataExt::uid(
            &std::fs::metadata(half.join("events.jsonl")).unwrap(),
        );
        let (planted, text) = as_uid(self.uid, plant, &half, &variables);
        if !planted {
            self.record(attack, format_args!("could not be planted: {text}"));
            return;
        }
        let (careless, text) = as_uid(0, open, &half, &variables);
        if !careless {
            self.record(attack, format_args!("the positive control failed: {text}"));
        }
        let _refused = self.instance.decide(&card, Verdict::Approve, None);
        let failed = suites::try_until(suites::PATIENCE, || {
            (self.instance.status(&run) == Status::Failed).then_some(())
        });
        if failed.is_none() {
            self.record(attack, "the run did not fail as unreadable");
        }
    }

    fn fight(mut self) {
        for attack in rows_of(By::Worker) {
            self.plant(attack);
        }
        for group in &GROUPS {
            self.try_group(group);
        }
        assert!(self.problems.is_empty(), "{}", self.problems.join("\n"));
    }
}

/// A copy of a run directory, made anew for each act.
struct Replica {
    from: PathBuf,
    dir: tempfile::TempDir,
}

impl Replica {
    fn of(run_dir: &Path) -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let from = dir.path().join("original");
        copy(run_dir, &from);
        Self { from, dir }
    }

    fn fresh(&self) -> PathBuf {
        let to = self.dir.path().join("copy");
        let _first = std::fs::remove_dir_all(&to);
        copy(&self.from, &to);
        to
    }
}

fn copy(from: &Path, to: &Path) {
    let (copied, text) = output(Command::new("cp").arg("-a").arg(from).arg(to));
    assert!(copied, "{text}");
}

#[test]
fn with_separate_uids_every_attack_ends_as_the_table_says() {
    let instance = Instance::start(&script());
    Battle::begin(instance, false, |n| n.tcp.local_addr().unwrap().port()).fight();
}

#[test]
fn with_a_single_uid_every_attack_ends_as_the_table_says() {
    let instance = Instance::start_single_uid(&script());
    Battle::begin(instance, true, |n| n.tcp.local_addr().unwrap().port()).fight();
}
