//! The throw-away place of a rehearsal: directories, uids, and the two processes
//! (launcher and scripted provider) that are started as this same program. Both
//! end with this process; taking the stage down ends them first.

use std::fs::{DirBuilder, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::control::SystemStatus;
use broker::SliceLease;
use domain::text;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::args::Options;
use crate::command::{input, status};
use crate::connect::{Facts, Place, Session};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupts;
use crate::output::Output;
use crate::{limits, roles};

/// This program, whatever has become of its file.
const PROGRAM: &str = "/proc/self/exe";
const LOG: &str = "up.log";
/// Between two looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(25);

/// A prepared stage.
pub(super) struct Stage {
    pub(super) place: Place,
    /// Holds state, sockets and scratch files.
    base: TempDir,
    /// Uids nobody else uses meanwhile; `None` for an ordinary user.
    lease: Option<SliceLease>,
    keep: bool,
    provider: Option<Child>,
    launcher: Option<Child>,
}

impl Stage {
    /// Chooses uids and makes the directories.
    pub(super) fn prepare(keep: bool) -> Result<Self, Failure> {
        let facts = Facts::of_process();
        let root = facts.uid == 0;
        let lease = if root { Some(lease()?) } else { None };
        let runtime = facts.xdg_runtime_dir.as_ref().map(PathBuf::from);
        let parent = match runtime.filter(|path| path.is_dir()) {
            _ if root => PathBuf::from("/var/lib"),
            Some(runtime) => runtime,
            // Not /tmp, which every worker may write.
            None => PathBuf::from("/var/tmp"),
        };
        // As root every account walks through it to what is its own.
        let mode = Permissions::from_mode(if root { 0o711 } else { 0o700 });
        let base = tempfile::Builder::new()
            .prefix("sentinel-demo-")
            .permissions(mode.clone())
            .tempdir_in(&parent)
            .map_err(|error| cannot("make a directory in", &parent, &error))?;
        std::fs::set_permissions(base.path(), mode)
            .map_err(|error| cannot("change the mode of", base.path(), &error))?;
        let options = Options {
            state: Some(base.path().join("state")),
            sockets: Some(base.path().join("sockets")),
            ..Options::default()
        };
        let place = Place::choose(&options, &facts)?;
        Ok(Self { place, base, lease, keep, provider: None, launcher: None })
    }

    /// Starts the scripted provider as Muzzle's account, which is the only one
    /// that talks to it, and returns its port.
    pub(super) fn start_provider(
        &mut self,
        scenario: &str,
        interrupts: &Interrupts,
    ) -> Result<u16, Failure> {
        let directory = self.base.path().join("provider");
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.map_err(|error| cannot("make", &directory, &error))?;
        let (script, port) = (directory.join("scenario.yaml"), directory.join("port"));
        let written =
            File::create_new(&script).and_then(|mut file| file.write_all(scenario.as_bytes()));
        written.map_err(|error| cannot("write", &script, &error))?;
        let mut command = self.command()?;
        command.env_clear().args(["rehearsal", "--end-with-parent", "--scenario"]);
        command.arg(&script).arg("--port-file").arg(&port);
        if let Some(lease) = &self.lease {
            let muzzle = lease.uids.muzzle;
            for path in [&directory, &script] {
                std::os::unix::fs::chown(path, Some(muzzle), Some(muzzle))
                    .map_err(|error| cannot("give away", path, &error))?;
            }
            // With a uid named, the supplementary groups are dropped too.
            command.uid(muzzle).gid(muzzle);
        }
        self.provider = Some(start(command, "the scripted provider")?);
        self.wait("the scripted provider", interrupts, |stage| {
            stage.fail_if_ended(|stage| &mut stage.provider, "the scripted provider")?;
            let text = input::file(&port.display().to_string(), limits::PORT_BYTES).ok();
            Ok(text.and_then(|text| text.trim().parse().ok()))
        })
    }

    /// Starts `sentinel up` here.
    pub(super) fn start_launcher(&mut self) -> Result<(), Failure> {
        let mut command = self.command()?;
        command.arg("--state").arg(&self.place.state).arg("--sockets").arg(&self.place.sockets);
        command.args(["up", "--verbose", "--end-with-parent"]);
        match &self.lease {
            Some(lease) => command.arg("--slice").arg(lease.index.to_string()),
            None => command.arg("--any-slice"),
        };
        self.launcher = Some(start(command, "`sentinel up`")?);
        Ok(())
    }

    /// Waits until the control plane answers and Muzzle runs.
    pub(super) fn wait_until_ready(
        &mut self,
        out: &mut Output,
        interrupts: &Interrupts,
    ) -> Result<SystemStatus, Failure> {
        out.passing(&out.style.dim("… starting"))?;
        self.wait("`sentinel up`", interrupts, |stage| {
            stage.fail_if_ended(|stage| &mut stage.launcher, "`sentinel up`")?;
            let status =
                Session::open(&stage.place).and_then(|mut session| status::system(&mut session));
            Ok(status.ok().filter(|status| status.muzzle.running))
        })
    }

    fn wait<T>(
        &mut self,
        what: &str,
        interrupts: &Interrupts,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + limits::START_DEADLINE;
        while Instant::now() < deadline {
            if interrupts.came() {
                return Err(Failure::new(Exit::Interrupted, "stopped while starting", ""));
            }
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            std::thread::sleep(PAUSE);
        }
        let seconds = limits::START_DEADLINE.as_secs();
        Err(Failure::new(
            Exit::Failed,
            format!("{what} was not ready after {seconds} s"),
            "see `sentinel doctor`",
        ))
    }

    fn fail_if_ended(
        &mut self,
        child: impl Fn(&mut Self) -> &mut Option<Child>,
        what: &str,
    ) -> Result<(), Failure> {
        let ended = child(self).as_mut().and_then(|child| child.try_wait().ok().flatten());
        match ended {
            None => Ok(()),
            Some(status) => Err(Failure::new(
                Exit::Failed,
                format!("{what} ended with {status} instead of getting ready"),
                "see `sentinel doctor`",
            )),
        }
    }

    /// This program again, quiet, in a group of its own: Ctrl-C reaches this
    /// process, which ends the others in order.
    fn command(&self) -> Result<Command, Failure> {
        let path = self.base.path().join(LOG);
        let log = File::options().append(true).create(true).open(&path);
        let log = log.map_err(|error| cannot("open", &path, &error))?;
        let again = log.try_clone().map_err(|error| cannot("open", &path, &error))?;
        let mut command = Command::new(PROGRAM);
        command.arg0("sentinel").current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(log).stderr(again);
        Ok(command)
    }

    /// The end of what the processes said, for a failure.
    pub(super) fn log_tail(&self) -> String {
        let bytes = std::fs::read(self.base.path().join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = log.lines().collect();
        let start = lines.len().saturating_sub(limits::LOG_TAIL_LINES);
        let tail = lines.get(start..).unwrap_or_default().join("\n");
        text::visible(&tail, text::Lines::Keep, limits::TURN_CHARACTERS)
    }

    /// Ends the processes and removes what was made; says what was removed or
    /// is left.
    pub(super) fn tear_down(mut self) -> Vec<String> {
        let mut said = Vec::new();
        if !self.end_processes() {
            said.push("a process did not end and was killed".to_owned());
        }
        let path = self.base.path().to_owned();
        if self.keep {
            self.base.disable_cleanup(true);
            let slice = self.lease.as_ref().map(|lease| format!(" --slice {}", lease.index));
            let again = format!("{} up{}", self.place.start.0, slice.unwrap_or_default());
            said.push(format!("kept {}; start it again with: {again}", path.display()));
            return said;
        }
        said.push(match std::fs::remove_dir_all(&path) {
            Ok(()) => format!("removed {}", path.display()),
            Err(error) => {
                let path = path.display();
                format!("could not remove {path}: {error}; remove it with: rm -rf {path}")
            }
        });
        said
    }

    /// Whether all of them ended when they were asked to.
    fn end_processes(&mut self) -> bool {
        let children = [self.launcher.take(), self.provider.take()];
        children.into_iter().flatten().fold(true, |all, child| {
            let ended = end(child, limits::STOP_DEADLINE);
            all && ended
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end_processes();
    }
}

fn lease() -> Result<SliceLease, Failure> {
    broker::lease_slice().map_err(|error| {
        Failure::new(
            Exit::Unavailable,
            roles::chain(&error),
            "end another demonstration, and try again",
        )
    })
}

fn cannot(act: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("could not {act} {}: {error}", path.display()),
        "see `sentinel doctor`",
    )
}

fn start(mut command: Command, what: &str) -> Result<Child, Failure> {
    command.spawn().map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("could not start {what}: {error}"),
            "see `sentinel doctor`",
        )
    })
}

/// Ends a process: TERM, and KILL when it takes too long. Whether TERM was
/// enough.
fn end(mut child: Child, patience: Duration) -> bool {
    let pid = Pid::from_child(&child);
    let deadline = Instant::now() + patience;
    // One that has ended already is only waited for.
    rustix::process::kill_process(pid, Signal::TERM).ok();
    while Instant::now() < deadline {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    child.kill().ok();
    child.wait().ok();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ignores_the_first_word_is_killed() {
        let mut stubborn = Command::new("/bin/sh");
        stubborn.args(["-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]);
        let mut child = stubborn.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0u8; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        assert!(!end(child, Duration::from_millis(50)));
        let mut obedient = Command::new("/bin/sh");
        let child = obedient.args(["-c", "exec sleep 60"]).spawn().unwrap();
        assert!(end(child, Duration::from_secs(20)));
    }
}
