//! The two processes that are always there: the control plane and Muzzle. Whatever ends one of
//! them, it is started again as [`crate::restart`] says.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Launcher, Notice, tell, try_reap};
use crate::channel::LauncherEnd;
use crate::config::LauncherError;
use crate::limits;
use crate::plan::{self, Output};
use crate::protocol::Exit;
use crate::restart::{Failures, Next};
use crate::sys::spawn::Child;

/// One of the two.
pub(super) struct Service {
    name: &'static str,
    running: Option<(Child, Instant)>,
    failures: Failures,
    due: Option<Instant>,
}

impl Service {
    pub(super) fn control() -> Self {
        Self::due_now("control plane")
    }

    pub(super) fn muzzle() -> Self {
        Self::due_now("muzzle")
    }

    fn due_now(name: &'static str) -> Self {
        Self { name, running: None, failures: Failures::default(), due: Some(Instant::now()) }
    }

    /// When it has to be started, if it has to.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|(child, _)| child.number())
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// It is not started any more.
    pub(super) fn retire(&mut self) {
        self.due = None;
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some((child, _)) = &self.running {
            child.signal(signal);
        }
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    fn started(&mut self, child: Child) {
        self.due = None;
        self.running = Some((child, Instant::now()));
    }

    /// Plans the next start after a life of `lived`; `false` when there is none.
    fn plan_restart(&mut self, lived: Duration) -> bool {
        match self.failures.ended_after(lived) {
            Next::StartAfter(delay) => {
                self.due = Some(Instant::now() + delay);
                true
            }
            Next::GiveUp => {
                self.due = None;
                false
            }
        }
    }

    fn try_reap(&mut self) -> Option<(Exit, Duration)> {
        let (child, since) = self.running.as_ref()?;
        let (exit, lived) = (try_reap(child)?, since.elapsed());
        self.running = None;
        Some((exit, lived))
    }
}

impl Launcher {
    /// Starts what is due. Muzzle comes first, so that the control plane finds it.
    pub(super) fn start_due_services(&mut self) {
        if self.muzzle.is_due() {
            self.start_muzzle();
        }
        if self.control.is_due() {
            self.start_control();
        }
    }

    fn start_muzzle(&mut self) {
        let plan =
            plan::plan_muzzle(&self.surroundings, self.muzzle_identity, self.control_identity);
        match self.launch(&plan, None) {
            Ok((child, _)) => {
                let pid = child.number();
                self.muzzle.started(child);
                self.notify(Notice::MuzzleStarted { pid }, None);
            }
            Err(problem) => self.muzzle_ended(&problem.why, Duration::ZERO),
        }
    }

    fn start_control(&mut self) {
        let plan = plan::plan_control(&self.surroundings, self.control_identity);
        let started = match LauncherEnd::pair() {
            Ok((end, theirs)) => match self.launch(&plan, Some(theirs.as_fd())) {
                Ok((child, _)) => Ok((end, child)),
                Err(problem) => Err(problem.why),
            },
            Err(errno) => Err(errno.to_string()),
        };
        match started {
            Ok((end, child)) => {
                self.control.started(child);
                self.greet(end);
                self.send_outbox();
            }
            Err(why) => self.control_ended(&why, Duration::ZERO),
        }
    }

    pub(super) fn reap_services(&mut self) {
        if let Some((exit, lived)) = self.control.try_reap() {
            self.control_ended(&describe(exit), lived);
        }
        if let Some((exit, lived)) = self.muzzle.try_reap() {
            self.muzzle_ended(&describe(exit), lived);
        }
    }

    fn control_ended(&mut self, how: &str, lived: Duration) {
        self.drop_channel();
        let look_at = format!("its messages above and {}", self.surroundings.state.display());
        if self.stop.is_none() && !self.control.plan_restart(lived) {
            self.give_up("the control plane", how, look_at);
        } else if self.stop.is_none() {
            self.tell_restart("control plane", how);
        }
    }

    fn muzzle_ended(&mut self, how: &str, lived: Duration) {
        let look_at = match plan::plan_muzzle(&self.surroundings, None, None).output {
            Output::Launcher | Output::LauncherError => "its messages above".to_owned(),
            Output::Log(name) => {
                self.surroundings.state.join("log").join(name).display().to_string()
            }
        };
        if self.stop.is_none() && !self.muzzle.plan_restart(lived) {
            self.give_up("muzzle", how, look_at);
        } else if self.stop.is_none() {
            self.tell_restart("muzzle", how);
        }
    }

    fn tell_restart(&self, name: &str, how: &str) {
        let live = self.workers.len();
        tell(format_args!("{name} ended ({how}) and is started again; {live} workers go on"));
    }

    fn give_up(&mut self, service: &'static str, how: &str, look_at: String) {
        self.begin_stop(Some(LauncherError::KeepsFailing {
            service,
            times: limits::FAILURES,
            last: how.to_owned(),
            look_at,
        }));
    }

    /// Ends a control plane that cannot be talked to any more; its end starts the next one.
    pub(super) fn close_channel(&mut self, why: &str) {
        if self.channel.is_none() {
            return;
        }
        self.drop_channel();
        if self.stop.is_none() {
            let name = self.control.name;
            tell(format_args!("{name}: {why}; ending it"));
            self.control.signal(Signal::KILL);
        }
    }

    /// Keeps the notices that the next control plane must have.
    fn drop_channel(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        let unsent = channel.outbox.into_iter().map(|outgoing| outgoing.notice);
        let exits = unsent.filter(|notice| matches!(notice, Notice::Exited { .. }));
        self.kept.extend(exits);
    }
}

fn describe(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}
