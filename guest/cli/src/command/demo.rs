//! `sentinel demo`: one supervised run in throw-away state, played by the
//! scripted provider behind the real dialect and the real guards. It never
//! answers a task that a person typed, and says on each card it answers itself
//! that it did.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::control::{Body, Item, Request, Response, Submit};
use domain::id::RunId;
use domain::log::{Control, Event};
use domain::profile::ModelRecord;
use domain::record::Provider;
use domain::run::Status;
use nix::sys::signal::Signal;
use rehearsal::Scenario;
use serde_json::json;

use super::input;
use crate::Context;
use crate::args::{DemoArgs, Options};
use crate::connect::{Facts, Place, Session};
use crate::exit::{Exit, Failure};
use crate::follow::{Answers, End, Follower};
use crate::interrupt::Interrupts;

/// This program, whatever has become of its file.
const PROGRAM: &str = "/proc/self/exe";
/// Account of the scripted provider as root: it needs nothing and gets nothing.
const NOBODY: u32 = 65_534;
/// How long each process has to get ready.
const READY: Duration = Duration::from_secs(30);
/// How long `sentinel up` has to stop what it started.
const STOPPING: Duration = Duration::from_secs(15);

/// What must have been seen for the demo to have shown anything.
#[derive(Debug, Default)]
struct Seen {
    tools: u32,
    asked: u32,
    blocks: u32,
    files: Vec<String>,
}

impl Seen {
    fn take(&mut self, item: &Item) {
        match &item.body {
            Body::Worker(Event::Result { changes, .. }) => {
                self.tools += 1;
                for change in changes {
                    if !self.files.contains(&change.path) {
                        self.files.push(change.path.clone());
                    }
                }
            }
            Body::Worker(Event::GuardrailBlock(_)) => self.blocks += 1,
            Body::Control(Control::Asked { .. }) => self.asked += 1,
            Body::Worker(_) | Body::Control(_) => {}
        }
    }

    /// What the built-in script would have shown and did not.
    fn missing(&self, workspace: &Path) -> Vec<String> {
        let mut missing = Vec::new();
        for (count, what) in
            [(self.tools, "a tool"), (self.asked, "an approval"), (self.blocks, "a block")]
        {
            if count == 0 {
                missing.push(format!("{what} was not seen"));
            }
        }
        for file in &self.files {
            if !workspace.join(file).exists() {
                missing.push(format!("{file} is not in the workspace"));
            }
        }
        missing
    }
}

pub(crate) fn run(context: &mut Context, args: &DemoArgs) -> Result<Exit, Failure> {
    let scenario = scenario(args)?;
    let interrupts = Interrupts::watch(&[Signal::SIGINT, Signal::SIGTERM])?;
    let mut stage = Stage::prepare(args)?;
    context.place = stage.place.clone();
    let out = &mut context.out;
    if out.json {
        out.json_line(&json!({"rehearsal": {"state": stage.place.state}}))?;
    } else {
        out.line(&out.style.strong(
            "REHEARSAL: a scripted model plays one run. Guards, approvals and files are real.",
        ))?;
        out.line(&out.style.dim(&format!("throw-away state: {}", stage.place.state.display())))?;
        out.line("")?;
    }
    let mut seen = Seen::default();
    let end = stage.play(args, &scenario, &interrupts).and_then(|run| {
        let answers = match (input::can_ask(false), out.json) {
            (true, false) => Answers::Person,
            (true, true) | (false, _) => Answers::Rehearsal,
        };
        Follower {
            place: &stage.place,
            out,
            interrupts: &interrupts,
            run: &run,
            answers,
            shown: &[],
            entries: false,
            witness: &mut |item| seen.take(item),
        }
        .follow()
    });
    let workspace =
        stage.place.state.join("agents").join(domain::config::FIRST_AGENT).join("workspace");
    let missing = if args.scenario.is_some() { Vec::new() } else { seen.missing(&workspace) };
    let log = stage.log();
    stage.clear(args.keep)?;
    conclude(context, end, &seen, &missing, &log, args.keep)
}

fn scenario(args: &DemoArgs) -> Result<Scenario, Failure> {
    let parsed = match &args.scenario {
        None => rehearsal::embedded("demo"),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::usage(
                    format!("{} cannot be read: {error}", path.display()),
                    "name a script with --scenario",
                )
            })?;
            Some(Scenario::parse(&text))
        }
    };
    match parsed {
        Some(Ok(scenario)) => Ok(scenario),
        Some(Err(error)) => Err(Failure::usage(error.to_string(), "correct the script")),
        None => Err(Failure::new(
            Exit::Failed,
            "the built-in script is missing",
            "use a build that has it",
        )),
    }
}

fn conclude(
    context: &mut Context,
    end: Result<End, Failure>,
    seen: &Seen,
    missing: &[String],
    log: &str,
    keep: bool,
) -> Result<Exit, Failure> {
    let End::Over { status: Status::Done, .. } = &end? else {
        return Err(Failure::new(
            Exit::Failed,
            "the rehearsal did not reach its end",
            format!("what its processes wrote:\n{log}"),
        ));
    };
    if !missing.is_empty() {
        return Err(Failure::new(
            Exit::Failed,
            format!("the rehearsal was not what it should be: {}", missing.join("; ")),
            format!("what its processes wrote:\n{log}"),
        ));
    }
    let out = &mut context.out;
    if out.json {
        out.json_line(&json!({"seen": {
            "tools": seen.tools, "approvals": seen.asked, "blocks": seen.blocks, "files": seen.files,
        }}))?;
        return Ok(Exit::Ok);
    }
    out.line("")?;
    out.line(&out.style.strong(&format!(
        "Seen: {} tool results, {} approval waited for, {} block, files {}.",
        seen.tools,
        seen.asked,
        seen.blocks,
        seen.files.join(" and ")
    )))?;
    let place = if keep {
        format!("Kept in {}.", context.place.state.display())
    } else {
        "Everything of it is removed.".to_owned()
    };
    out.line(&place)?;
    out.line("")?;
    out.line("For a run of your own: sentinel up, then in another terminal")?;
    out.line("  sentinel model add local --provider ollama --base-url http://127.0.0.1:11434 --model qwen3:8b")?;
    out.line("  sentinel run \"…\"")?;
    Ok(Exit::Ok)
}

/// The throw-away processes and their state.
struct Stage {
    place: Place,
    directory: Option<tempfile::TempDir>,
    children: Vec<Child>,
}

impl Stage {
    fn prepare(args: &DemoArgs) -> Result<Self, Failure> {
        let facts = Facts::of_process();
        let root = facts.uid == 0;
        let base = match (root, &facts.xdg_runtime_dir) {
            (true, _) => PathBuf::from("/var/lib"),
            (false, Some(runtime)) if Path::new(runtime).is_dir() => PathBuf::from(runtime),
            // Not /tmp, which every worker may write.
            (false, _) => PathBuf::from("/var/tmp"),
        };
        let failed = |error: std::io::Error| {
            Failure::new(
                Exit::Failed,
                format!("no directory could be made in {}: {error}", base.display()),
                "see whether the disk is full",
            )
        };
        let directory =
            tempfile::Builder::new().prefix("sentinel-demo-").tempdir_in(&base).map_err(failed)?;
        if root {
            // Each account walks through it to what is its own.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
            std::fs::set_permissions(directory.path(), mode).map_err(failed)?;
        }
        let options = Options {
            state: Some(directory.path().join("state")),
            sockets: Some(directory.path().join("sockets")),
            ..Options::default()
        };
        let place = Place::choose(&options, &facts)?;
        let mut stage = Self { place, directory: Some(directory), children: Vec::new() };
        stage.start_provider(args, root)?;
        stage.start_launcher()?;
        Ok(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.state.with_file_name(name)
    }

    fn log_file(&self) -> Result<std::fs::File, Failure> {
        std::fs::File::options().append(true).create(true).open(self.path("demo.log")).map_err(
            |error| {
                Failure::new(
                    Exit::Failed,
                    format!("no log could be made: {error}"),
                    "see whether the disk is full",
                )
            },
        )
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("demo.log")).unwrap_or_default()
    }

    fn start(&mut self, mut command: Command) -> Result<(), Failure> {
        let log = self.log_file()?;
        let copy = log
            .try_clone()
            .map_err(|error| Failure::new(Exit::Failed, error.to_string(), "try again"))?;
        let child = command.stdin(Stdio::null()).stdout(log).stderr(copy).process_group(0).spawn();
        let child = child.map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("this program could not be started again: {error}"),
                "see whether /proc is mounted",
            )
        })?;
        self.children.push(child);
        Ok(())
    }

    fn start_provider(&mut self, args: &DemoArgs, root: bool) -> Result<(), Failure> {
        let ports = self.path("provider");
        std::fs::create_dir(&ports)
            .and_then(|()| {
                if root {
                    std::os::unix::fs::chown(&ports, Some(NOBODY), Some(NOBODY))
                } else {
                    Ok(())
                }
            })
            .map_err(|error| {
                Failure::new(Exit::Failed, format!("{}: {error}", ports.display()), "try again")
            })?;
        let mut command = Command::new(PROGRAM);
        command.arg0("sentinel").args(["rehearsal", "--end-with-parent", "--scenario"]);
        command.arg(args.scenario.clone().unwrap_or_else(|| "demo".into()));
        command.arg("--port-file").arg(ports.join("port"));
        if root {
            command.uid(NOBODY).gid(NOBODY);
        }
        self.start(command)
    }

    fn start_launcher(&mut self) -> Result<(), Failure> {
        let mut command = Command::new(PROGRAM);
        command.arg0("sentinel").args(["up", "--any-slice", "--verbose", "--end-with-parent"]);
        command.arg("--state").arg(&self.place.state).arg("--sockets").arg(&self.place.sockets);
        self.start(command)
    }

    /// Waits until `ready` gives something, the child ends or time is over.
    fn wait<T>(
        &mut self,
        interrupts: &Interrupts,
        what: &str,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + READY;
        loop {
            if let Some(found) = ready() {
                return Ok(found);
            }
            let ended =
                self.children.iter_mut().any(|child| matches!(child.try_wait(), Ok(Some(_))));
            if ended || Instant::now() > deadline || interrupts.came() {
                let why = if interrupts.came() { "it was interrupted" } else { "it did not come" };
                return Err(Failure::new(
                    Exit::Failed,
                    format!("waiting for {what}: {why}"),
                    format!("what the processes wrote:\n{}", self.log()),
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Adds the scripted model and submits its task.
    fn play(
        &mut self,
        args: &DemoArgs,
        scenario: &Scenario,
        interrupts: &Interrupts,
    ) -> Result<RunId, Failure> {
        let port_file = self.path("provider").join("port");
        let port: u16 = self.wait(interrupts, "the scripted model", || {
            std::fs::read_to_string(&port_file).ok()?.trim().parse().ok()
        })?;
        let place = self.place.clone();
        let ask = |request: &Request| Session::open(&place)?.ask(request);
        self.wait(interrupts, "the control plane", || match ask(&Request::Status) {
            Ok(Response::System(status)) if status.muzzle.running => Some(()),
            Ok(_) | Err(_) => None,
        })?;
        let model = scenario.models().next().unwrap_or("rehearsal").to_owned();
        let task = match (scenario.task(&model), &args.scenario) {
            (Some(task), _) => task.to_owned(),
            (None, _) => scenario.about().to_owned(),
        };
        let record = ModelRecord {
            name: "rehearsal".to_owned(),
            provider: Provider::Openai,
            base_url: format!("http://127.0.0.1:{port}"),
            model,
            owner: String::new(),
        };
        ask(&Request::ModelAdd { model: record })?;
        let answer = ask(&Request::Submit(Submit { task, ..Submit::default() }))?;
        if let Response::Submitted { run, .. } = answer {
            Ok(run)
        } else {
            Err(Failure::other_version())
        }
    }

    /// Ends the processes and removes the state, unless it is to be kept.
    fn clear(mut self, keep: bool) -> Result<(), Failure> {
        self.end_children();
        let Some(directory) = self.directory.take() else { return Ok(()) };
        if keep {
            let _kept = directory.keep();
            return Ok(());
        }
        let path = directory.path().to_owned();
        directory.close().map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("{} could not be removed: {error}", path.display()),
                "remove it by hand",
            )
        })
    }

    fn end_children(&mut self) {
        for child in &mut self.children {
            let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            // One that is gone already is as good as ended.
            let _gone =
                pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        }
        let deadline = Instant::now() + STOPPING;
        for mut child in self.children.drain(..) {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end_children();
    }
}
