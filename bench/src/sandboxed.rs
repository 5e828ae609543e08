//! Row 3: a child in its whole sandbox, from the worker's request to its
//! outcome, beside plain fork and exec, bubblewrap and firejail.
//!
//! Ours is asked for by a process of its own, since forking a tool host narrows
//! a process for good; as root it has an account of its own, as a worker has.

use std::ffi::CStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use worker::host::{ChildSpec, Exit, Limits, Program, ToolHost};
use worker::sandbox::{BaseLayer, ChildGrants};

use crate::peers::{Places, scratch, system_program};
use crate::row::{MILLISECONDS, Row};
use crate::series::{Plan, Subject, interleave};
use crate::sys::fork_exec;

/// What this binary is called when it plays the worker.
pub(crate) const ROLE: &str = "play-worker";

const PROGRAM: &CStr = c"/bin/true";
const PLAN: Plan = Plan { rounds: 9, runs: 15 };

/// A view of the system, a private `/tmp`, `/dev` and `/proc`, and no namespace shared.
const BWRAP: [&str; 24] = [
    "--ro-bind",
    "/usr",
    "/usr",
    "--ro-bind",
    "/etc",
    "/etc",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--tmpfs",
    "/tmp",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
];
const FIREJAIL: [&str; 6] =
    ["--quiet", "--noprofile", "--private-dev", "--net=none", "--seccomp", "--caps.drop=all"];

pub(crate) fn measure(_places: &Places) -> anyhow::Result<Vec<Row>> {
    let scratch = scratch()?;
    let mut worker = Worker::start(scratch.path())?;
    let mut subjects: Vec<Subject<'_>> = vec![Box::new(|| worker.ask()), Box::new(plain)];
    let mut names = vec![("plain fork and exec", 1.25)];
    let wrappers = [
        ("bwrap", &BWRAP[..], "bwrap, all namespaces", 0.2),
        ("firejail", &FIREJAIL[..], "firejail, seccomp and no network", 0.05),
    ];
    for (program, options, name, goal) in wrappers {
        let Some(path) = system_program(program) else { continue };
        subjects.push(Box::new(move || wrapped(&path, options)));
        names.push((name, goal));
    }
    let series = interleave(PLAN, &mut subjects)?;
    drop(subjects);
    worker.end()?;
    let rows = names.into_iter().zip(1..).map(|((name, goal), index)| {
        Row::beside("3 sandboxed child", MILLISECONDS, &series, (index, name), Some(goal))
    });
    Ok(rows.collect())
}

fn plain() -> anyhow::Result<Duration> {
    let started = Instant::now();
    let status = fork_exec(PROGRAM)?;
    let took = started.elapsed();
    ensure!(status == 0, "plain fork and exec ended with {status}");
    Ok(took)
}

fn wrapped(wrapper: &Path, options: &[&str]) -> anyhow::Result<Duration> {
    let mut command = Command::new(wrapper);
    command.args(options).arg("/bin/true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status()?;
    let took = started.elapsed();
    ensure!(status.success(), "{} ended with {status}", wrapper.display());
    Ok(took)
}

/// The process that has the tool host.
struct Worker {
    process: Child,
    asking: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(place: &Path) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(ROLE)
            .arg(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let asking = process.stdin.take().context("a pipe to the worker")?;
        let answers = BufReader::new(process.stdout.take().context("a pipe from the worker")?);
        Ok(Self { process, asking, answers })
    }

    /// One child; the worker's own time of it.
    fn ask(&mut self) -> anyhow::Result<Duration> {
        self.asking.write_all(b"\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let nanoseconds = line.trim().parse().context("the worker did not answer")?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    fn end(self) -> anyhow::Result<()> {
        let Self { mut process, asking, .. } = self;
        drop(asking);
        ensure!(process.wait()?.success(), "the worker ended badly");
        Ok(())
    }
}

/// The worker's process: one child for each line it reads.
pub(crate) fn play(place: &Path) -> anyhow::Result<()> {
    let spec = prepare(place)?;
    let base = BaseLayer {
        run_dir: place.join("run"),
        workspace: place.join("workspace"),
        read: Vec::new(),
        write: vec![place.join("tmp")],
    };
    let mut host = ToolHost::fork(&base)?;
    let (mut line, mut input, mut out) =
        (String::new(), std::io::stdin().lock(), std::io::stdout());
    while input.read_line(&mut line)? > 0 {
        line.clear();
        let started = Instant::now();
        let outcome = host.run(&spec)?;
        let took = started.elapsed();
        if outcome.exit != Exit::Code(0) {
            bail!("the child ended with {:?}", outcome.exit);
        }
        writeln!(out, "{}", took.as_nanos())?;
        out.flush()?;
    }
    Ok(host.reap()?)
}

fn prepare(place: &Path) -> anyhow::Result<ChildSpec> {
    let (workspace, tmp) = (place.join("workspace"), place.join("tmp"));
    let directories: [PathBuf; 4] =
        [place.join("run"), place.join("run/worker"), workspace.clone(), tmp.clone()];
    for directory in &directories {
        std::fs::create_dir_all(directory)?;
    }
    if nix::unistd::getuid().is_root() {
        let id = 1_900_000_000 + std::process::id();
        for path in directories.iter().map(PathBuf::as_path).chain([place]) {
            std::os::unix::fs::chown(path, Some(id), Some(id))?;
        }
        nix::unistd::setgroups(&[])?;
        nix::unistd::setresgid(id.into(), id.into(), id.into())?;
        nix::unistd::setresuid(id.into(), id.into(), id.into())?;
        // As after an exec, which is how a worker comes to its account.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    }
    let home = workspace.to_string_lossy().into_owned();
    let env = [("HOME", home.as_str()), ("LANG", "C.UTF-8"), ("USER", "tool")];
    Ok(ChildSpec {
        program: Program::Argv(vec!["/bin/true".into()]),
        cwd: workspace.clone(),
        env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        stdin: Vec::new(),
        grants: ChildGrants::new(workspace, tmp),
        limits: Limits {
            deadline: Duration::from_mins(1),
            grace: Duration::from_secs(2),
            output: 1 << 20,
            cpu_seconds: 60,
            processes: 512,
            open_files: 1024,
            file_size: 1 << 30,
        },
    })
}
