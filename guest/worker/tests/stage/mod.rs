//! A stage for tests of the sandbox: every test is played by a process of its own that has one thread, so it can fork a tool host
//! and narrow itself for good.
//!
//! The binary speaks the part of libtest's command line that cargo and nextest use.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use worker::host::{ChildOutcome, ChildSpec, HostError, Limits, Program, ToolHost};
use worker::sandbox::{Abi, BaseLayer, ChildGrants};

/// A test: its name, a sentence, and what it does.
pub(crate) type Play = (&'static str, fn());

/// Names functions as tests.
#[macro_export]
macro_rules! plays {
    ($($module:ident::$name:ident),+ $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn())),+]
    };
}

/// The variable that names a test's own directory.
const ROOT: &str = "SENTINEL_STAGE";

/// Longest a test may take before its process is killed.
const PATIENCE: Duration = Duration::from_mins(3);

/// The whole of `main`.
pub(crate) fn run(plays: &[Play], role: fn(&str)) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["play", name] => {
            let (_, play) = plays.iter().find(|(known, _)| known == name).expect("a known test");
            play();
            ExitCode::SUCCESS
        }
        ["tool-role", name] => {
            role(name);
            ExitCode::SUCCESS
        }
        words if words.contains(&"--list") => {
            let mut out = std::io::stdout();
            if !words.contains(&"--ignored") {
                for (name, _) in plays {
                    writeln!(out, "{name}: test").unwrap();
                }
            }
            ExitCode::SUCCESS
        }
        words => run_selected(plays, words),
    }
}

fn run_selected(plays: &[Play], words: &[&str]) -> ExitCode {
    let exact = words.contains(&"--exact");
    let wanted: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let selected = plays.iter().filter(|(name, _)| {
        wanted.is_empty()
            || wanted.iter().any(|want| if exact { *want == name } else { name.contains(**want) })
    });
    let mut out = std::io::stdout();
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, _) in selected {
        let started = Instant::now();
        match play_alone(name) {
            Ok(()) => {
                passed += 1;
                writeln!(out, "test {name} ... ok ({} ms)", started.elapsed().as_millis()).unwrap();
            }
            Err(said) => {
                failed.push(*name);
                writeln!(out, "test {name} ... FAILED\n{said}").unwrap();
            }
        }
    }
    writeln!(out, "\ntest result: {passed} passed; {} failed {failed:?}", failed.len()).unwrap();
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play_alone(name: &str) -> Result<(), String> {
    // Not below /tmp, which the base layer opens to the worker. Removed here: who is confined cannot.
    // Everything below /tmp is in the base layer, so nothing there is "elsewhere".
    let place = env!("CARGO_TARGET_TMPDIR");
    let place = if place.starts_with("/tmp/") { "/var/tmp" } else { place };
    let root = tempfile::tempdir_in(place).unwrap();
    let mut said = tempfile::tempfile().unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["play", name])
        .env("DEMO_API_KEY", "zzz-demo")
        .env(ROOT, root.path())
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(said.try_clone().unwrap())
        .spawn()
        .unwrap();
    let ended = wait_until(PATIENCE, || process.try_wait().unwrap().is_some());
    if !ended {
        process.kill().unwrap();
    }
    let status = process.wait().unwrap();
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    std::io::Seek::rewind(&mut said).unwrap();
    said.read_to_string(&mut text).unwrap();
    Err(format!("{status}\n{text}"))
}

/// Looks at a condition until it holds; false when it never does.
pub(crate) fn wait_until(longest: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !holds() {
        if started.elapsed() > longest {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A run directory, a workspace and a place for temporary directories, with the account they belong to.
pub(crate) struct World {
    pub(crate) root: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) workspace: PathBuf,
    pub(crate) tmp: PathBuf,
    pub(crate) read: Vec<PathBuf>,
}

impl World {
    /// As an ordinary account, also when root runs the tests: then as one that nobody else has.
    pub(crate) fn new() -> Self {
        let world = Self::keeping_account();
        if nix::unistd::getuid().is_root() {
            let id = 1_900_000_000 + std::process::id();
            let (worker, control) = (world.run_dir.join("worker"), world.run_dir.join("run.json"));
            for path in
                [&world.root, &world.run_dir, &worker, &control, &world.workspace, &world.tmp]
            {
                std::os::unix::fs::chown(path, Some(id), Some(id)).unwrap();
            }
            nix::unistd::setgroups(&[]).unwrap();
            nix::unistd::setresgid(id.into(), id.into(), id.into()).unwrap();
            nix::unistd::setresuid(id.into(), id.into(), id.into()).unwrap();
            // Changing accounts closed this process to inspection, which is for the code under test to do.
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
                .unwrap();
        }
        world
    }

    /// As whoever runs the tests.
    pub(crate) fn keeping_account() -> Self {
        let world =
            Self::at(Path::new(&std::env::var_os(ROOT).expect("a directory for this test")));
        for directory in [&world.run_dir.join("worker"), &world.workspace, &world.tmp] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::File::create(world.run_dir.join("run.json"))
            .unwrap()
            .write_all(b"control half")
            .unwrap();
        world
    }

    /// One that somebody else made.
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            run_dir: root.join("run"),
            workspace: root.join("workspace"),
            tmp: root.join("tmp"),
            root: root.to_owned(),
            read: Vec::new(),
        }
    }

    pub(crate) fn base(&self) -> BaseLayer {
        BaseLayer {
            run_dir: self.run_dir.clone(),
            workspace: self.workspace.clone(),
            read: self.read.clone(),
            write: vec![self.tmp.clone()],
        }
    }

    pub(crate) fn grants(&self) -> ChildGrants {
        ChildGrants {
            read: self.read.clone(),
            ..ChildGrants::new(self.workspace.clone(), self.tmp.clone())
        }
    }

    pub(crate) fn fork(&self) -> ToolHost {
        ToolHost::fork(&self.base()).unwrap()
    }

    pub(crate) fn fork_at_most(&self, most: Abi) -> ToolHost {
        ToolHost::fork_at_most(&self.base(), most).unwrap()
    }

    /// A file in the workspace.
    pub(crate) fn put(&self, name: &str, content: &str) -> PathBuf {
        let path = self.workspace.join(name);
        std::fs::File::create(&path).unwrap().write_all(content.as_bytes()).unwrap();
        path
    }

    pub(crate) fn spec(&self, argv: &[&str]) -> ChildSpec {
        let home = self.workspace.to_str().unwrap();
        let env = [
            ("HOME", home),
            ("LANG", "C.UTF-8"),
            ("USER", "tool"),
            ("GIT_AUTHOR_NAME", "tool"),
            ("GIT_AUTHOR_EMAIL", "tool@localhost"),
            ("GIT_COMMITTER_NAME", "tool"),
            ("GIT_COMMITTER_EMAIL", "tool@localhost"),
        ];
        ChildSpec {
            program: Program::Argv(argv.iter().map(Into::into).collect()),
            cwd: self.workspace.clone(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            stdin: Vec::new(),
            grants: self.grants(),
            limits: Limits {
                deadline: Duration::from_mins(1),
                grace: Duration::from_secs(2),
                output: 1 << 20,
                cpu_seconds: 60,
                processes: 512,
                open_files: 1024,
                file_size: 1 << 30,
            },
        }
    }

    pub(crate) fn sh(&self, script: &str) -> ChildSpec {
        self.spec(&["/bin/sh", "-c", script])
    }

    pub(crate) fn python(&self, script: &str) -> ChildSpec {
        self.spec(&["/usr/bin/python3", "-c", script])
    }
}

/// The same program without any sandbox, by the same account: what a refusal is compared with.
pub(crate) fn without_sandbox(spec: &ChildSpec) -> std::process::Output {
    let Program::Argv(argv) = &spec.program else {
        panic!("only programs run without a tool host")
    };
    Command::new(&argv[0])
        .args(&argv[1..])
        .current_dir(&spec.cwd)
        .env_clear()
        .envs(spec.env.iter().cloned())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("TMPDIR", &spec.grants.tmp)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a child that is expected to start, and shows what it said when a check fails.
pub(crate) fn run_child(host: &mut ToolHost, spec: &ChildSpec) -> Said {
    match host.run(spec) {
        Ok(outcome) => Said { outcome },
        Err(error) => panic!("{error}"),
    }
}

/// An outcome with its text at hand.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) outcome: ChildOutcome,
}

impl Said {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stdout).trim().to_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stderr).trim().to_owned()
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.outcome.exit == worker::host::Exit::Code(0)
    }

    #[track_caller]
    pub(crate) fn must_succeed(self) -> Self {
        assert!(
            self.succeeded(),
            "{:?}\nout: {}\nerr: {}",
            self.outcome.exit,
            self.out(),
            self.err()
        );
        self
    }
}

/// Whether a process is there and not a zombie.
pub(crate) fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with('Z'))
}

/// Reads a number a script wrote.
pub(crate) fn number_in(path: &Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The error of a call that must not start.
pub(crate) fn must_not_start(host: &mut ToolHost, spec: &ChildSpec) -> HostError {
    host.run(spec).unwrap_err()
}

/// Python that prints, for each attempt, `ok` or the name of the errno, one per line. `call` is a raw system call.
pub(crate) fn attempts(acts: &[&str]) -> String {
    let mut script = String::from(
        "
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(*arguments):
    answer = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if answer < 0: raise OSError(ctypes.get_errno(), 'call')
    return answer
def attempt(act):
    try:
        act()
        print('ok', flush=True)
    except OSError as error:
        print(errno.errorcode.get(error.errno, error.errno), flush=True)
",
    );
    script.extend(acts.iter().map(|act| format!("attempt(lambda: {act})\n")));
    script
}

/// What a list of attempts came to inside the sandbox.
pub(crate) fn attempt_inside(host: &mut ToolHost, spec: &ChildSpec) -> Vec<String> {
    run_child(host, spec).must_succeed().out().lines().map(ToOwned::to_owned).collect()
}

/// The same outside.
pub(crate) fn attempt_outside(spec: &ChildSpec) -> Vec<String> {
    let output = without_sandbox(spec);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
}
