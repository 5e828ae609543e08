//! The launcher: one thread that owns every process of Sentinel.
//!
//! ```text
//!            signalfd ----> turn ----> start services that are due
//!            channel  ---->  |         wait for a signal, a request, or the next deadline
//!                            |         reap own children; kill and reap what they left behind
//!                            |         tell the control plane; answer its requests
//!                            '-------- until stopped and nothing is left
//! ```
//!
//! It decides nothing about runs and reads none of their content. It must run on the main thread of
//! a process of its own: the kernel ties every child to that thread, and every child that was not
//! there before and that the launcher did not start is killed as an orphan.

mod orphans;
mod requests;
mod service;
mod stop;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus};

use crate::channel::{LauncherEnd, Sent};
use crate::children;
use crate::config::{Applier, Ended, LauncherConfig, LauncherError};
use crate::limits;
use crate::lock::Lock;
use crate::observed;
use crate::plan::{Identity, Inherited, LaunchPlan, Output, Surroundings};
use crate::program::Program;
use crate::protocol::{
    self, Boundary, Exit, LiveWorker, Notice, Observed, PROTOCOL_VERSION, RunId,
};
use crate::registry::Registry;
use crate::sockets::Sockets;
use crate::state::StateTree;
use crate::sys::{purge, spawn};
use crate::uids::{self, UidRange};

use self::orphans::Orphans;
use self::service::Service;
use self::stop::Stop;

/// Runs a launcher until SIGINT, SIGTERM or SIGHUP, or until a service keeps failing. Either way
/// every process it started is gone and its sockets are removed when this returns.
pub fn run(config: LauncherConfig) -> Result<Ended, LauncherError> {
    let config = config.checked()?;
    let signals = Signals::block()?;
    let mut launcher = Launcher::prepare(config)?;
    loop {
        match launcher.turn(&signals) {
            Ok(None) => {}
            Ok(Some(result)) => return result,
            Err(error) => {
                launcher.kill_everything();
                return Err(error);
            }
        }
    }
}

/// One line to whoever started the launcher. If nobody reads it, there is nobody else to tell.
fn tell(line: std::fmt::Arguments<'_>) {
    writeln!(std::io::stderr(), "sentinel: {line}").unwrap_or_default();
}

/// Signals arrive as data; the mask that was there before returns with the value's end.
struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    const STOP: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

    fn block() -> Result<Self, LauncherError> {
        let system = |operation| {
            move |errno: nix::errno::Errno| LauncherError::System {
                operation,
                source: errno.into(),
            }
        };
        // If it were ignored, children would vanish before anyone waited for them.
        spawn::default_child_signal();
        let mut set = SigSet::from_iter(Self::STOP);
        set.add(Signal::SIGCHLD);
        let before = set
            .thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)
            .map_err(system("block signals"))?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(system("receive signals"))?;
        Ok(Self { fd, before })
    }

    /// Takes all that wait; whether one asks to stop.
    fn take(&self) -> bool {
        let mut stop = false;
        while let Ok(Some(info)) = self.fd.read_signal() {
            stop |= Self::STOP.iter().any(|signal| *signal as u32 == info.ssi_signo);
        }
        stop
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Only an invalid set could be refused.
        self.before.thread_set_mask().unwrap_or_default();
    }
}

/// Whose uids agents have.
enum Accounts {
    Separate { registry: Registry, uids: UidRange },
    Single { uid: u32 },
}

/// A live worker.
struct Worker {
    child: spawn::Child,
    identity: Option<Identity>,
    observed: Observed,
}

/// A worker that has ended; its notice waits until what it left behind is gone.
struct Ending {
    run_id: RunId,
    how: Exit,
    identity: Option<Identity>,
}

/// A notice that was not sent yet.
struct Outgoing {
    notice: Notice,
    fd: Option<OwnedFd>,
}

/// The channel to the control plane that is alive.
struct Channel {
    end: LauncherEnd,
    outbox: VecDeque<Outgoing>,
}

struct Launcher {
    surroundings: Surroundings,
    control_identity: Option<Identity>,
    muzzle_identity: Option<Identity>,
    state: StateTree,
    accounts: Accounts,
    program: Program,
    sockets: Sockets,
    null: File,
    control: Service,
    muzzle: Service,
    channel: Option<Channel>,
    workers: BTreeMap<RunId, Worker>,
    endings: Vec<Ending>,
    /// `Exited` notices that no control plane was told.
    kept: VecDeque<Notice>,
    orphans: Orphans,
    stop: Option<Stop>,
    _locks: Vec<Lock>,
}

/// Why a process was not started.
struct LaunchProblem {
    rule: &'static str,
    why: String,
}

impl Launcher {
    fn prepare(config: LauncherConfig) -> Result<Self, LauncherError> {
        let before_us = children::of_this_process()
            .map_err(|source| LauncherError::System { operation: "list own children", source })?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(LauncherError::system("adopt orphans"))?;
        let (control, muzzle) = match &config.applier {
            Applier::ForkSetuid(uids) => {
                (Some(Identity::of(uids.control)), Some(Identity::of(uids.muzzle)))
            }
            Applier::SingleUid => (None, None),
        };
        if let Applier::ForkSetuid(uids) = &config.applier {
            uids::check(uids)?;
        }
        let state = StateTree::open(&config.state, control)?;
        let lock = Lock::acquire(state.as_fd(), LOCK, &config.state.join(LOCK));
        let mut locks = vec![lock.map_err(LauncherError::of_lock(&config.state))?];
        let accounts = open_accounts(&config.applier, &state)?;
        if let Applier::ForkSetuid(uids) = &config.applier {
            locks.push(claim(uids, &accounts)?);
        }
        let program = match control {
            Some(_) => Program::open_copy(&config.program, state.as_fd(), &state.path)?,
            None => Program::open(&config.program)?,
        };
        let sockets = Sockets::bind(&config.sockets, control)?;
        let null = File::open("/dev/null")
            .map_err(|source| LauncherError::System { operation: "open /dev/null", source })?;
        Ok(Self {
            surroundings: surroundings(config),
            control_identity: control,
            muzzle_identity: muzzle,
            state,
            accounts,
            program,
            sockets,
            null,
            control: Service::control(),
            muzzle: Service::muzzle(),
            channel: None,
            workers: BTreeMap::new(),
            endings: Vec::new(),
            kept: VecDeque::new(),
            orphans: Orphans::new(before_us),
            stop: None,
            _locks: locks,
        })
    }

    /// One round; the result when everything is over.
    fn turn(
        &mut self,
        signals: &Signals,
    ) -> Result<Option<Result<Ended, LauncherError>>, LauncherError> {
        self.start_due_services();
        self.send_outbox();
        let readable = self.wait(signals)?;
        if signals.take() {
            self.begin_stop(None);
        }
        self.reap_services();
        self.reap_workers();
        self.sweep_orphans();
        self.announce_endings();
        if readable {
            self.serve_requests();
        }
        Ok(self.advance_stop())
    }

    /// Waits for a signal, the channel, or the next deadline; whether a request may be there.
    fn wait(&self, signals: &Signals) -> Result<bool, LauncherError> {
        let mut interest = PollFlags::empty();
        if let Some(channel) = &self.channel {
            if channel.outbox.len() < limits::OUTBOX {
                interest |= PollFlags::IN;
            }
            if !channel.outbox.is_empty() {
                interest |= PollFlags::OUT;
            }
        }
        let signals = signals.fd.as_fd();
        let channel = self.channel.as_ref().map_or(signals, |channel| channel.end.as_fd());
        let mut fds = [
            PollFd::from_borrowed_fd(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(channel, interest),
        ];
        let timeout = self.next_deadline().and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(LauncherError::system("wait for events")(errno)),
        }
        let [_, channel] = fds;
        let wanted = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        Ok(self.channel.is_some() && channel.revents().intersects(wanted))
    }

    /// How long until something has to happen by itself.
    fn next_deadline(&self) -> Option<Duration> {
        let now = Instant::now();
        let services = [&self.control, &self.muzzle].into_iter().filter_map(Service::due);
        let stop = self.stop.as_ref().map(Stop::next_deadline);
        let sweep = self.orphans.remain().then(|| now + limits::SWEEP_INTERVAL);
        let earliest = services.chain(stop).chain(sweep).min()?;
        Some(earliest.saturating_duration_since(now))
    }

    /// Starts one process by its plan and proves that it is what was planned.
    fn launch(
        &self,
        plan: &LaunchPlan,
        channel: Option<BorrowedFd<'_>>,
    ) -> Result<(spawn::Child, Observed), LaunchProblem> {
        let failed = |why: String| LaunchProblem { rule: "launch", why };
        let log = match plan.output {
            Output::Launcher | Output::LauncherError => None,
            Output::Log(name) => {
                Some(self.state.open_log(name).map_err(|error| failed(full(&error)))?)
            }
        };
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        let null = self.null.as_fd();
        let standard = match (&log, plan.output) {
            (Some(log), _) => [null, log.as_fd(), log.as_fd()],
            (None, Output::LauncherError) => [null, stderr.as_fd(), stderr.as_fd()],
            (None, Output::Launcher | Output::Log(_)) => [null, stdout.as_fd(), stderr.as_fd()],
        };
        let inherited = plan
            .inherited
            .iter()
            .map(|inherited| match inherited {
                Inherited::Channel => channel.ok_or_else(|| {
                    failed("the plan has a channel, the launch has none".to_owned())
                }),
                Inherited::ControlListener => Ok(self.sockets.control.as_fd()),
                Inherited::MuzzleAdmin => Ok(self.sockets.muzzle.as_fd()),
            })
            .collect::<Result<_, _>>()?;
        let resources = spawn::Resources { program: self.program.as_fd(), standard, inherited };
        let child =
            spawn::apply(plan, &resources).map_err(|failure| failed(failure.to_string()))?;
        match observed::observe(child.number(), &self.program, plan.identity) {
            Ok(observed) => Ok((child, observed)),
            Err(why) => {
                spawn::discard(child.pid);
                Err(LaunchProblem { rule: "not-as-planned", why })
            }
        }
    }

    fn reap_workers(&mut self) {
        let ended: Vec<(RunId, Exit)> = self
            .workers
            .iter()
            .filter_map(|(run_id, worker)| Some((run_id.clone(), try_reap(&worker.child)?)))
            .collect();
        for (run_id, how) in ended {
            if let Some(worker) = self.workers.remove(&run_id) {
                self.endings.push(Ending { run_id, how, identity: worker.identity });
            }
        }
    }

    /// Sends the notices of workers that left nothing behind any more.
    fn announce_endings(&mut self) {
        let orphans = &self.orphans;
        let (held, gone): (Vec<Ending>, Vec<Ending>) = std::mem::take(&mut self.endings)
            .into_iter()
            .partition(|ending| orphans.may_belong_to(ending.identity));
        self.endings = held;
        for Ending { run_id, how, .. } in gone {
            let notice = Notice::Exited { run_id, how };
            match &mut self.channel {
                Some(channel) => channel.outbox.push_back(Outgoing { notice, fd: None }),
                None => self.kept.push_back(notice),
            }
        }
        self.send_outbox();
    }

    fn notify(&mut self, notice: Notice, fd: Option<OwnedFd>) {
        if let Some(channel) = &mut self.channel {
            channel.outbox.push_back(Outgoing { notice, fd });
        }
    }

    /// Sends what the channel takes. What cannot be sent at all ends the control plane: it would
    /// wait for it for ever.
    fn send_outbox(&mut self) {
        let Some(channel) = &mut self.channel else { return };
        while let Some(next) = channel.outbox.front() {
            let sent = match protocol::encode(&next.notice) {
                Ok(bytes) => channel
                    .end
                    .try_send(&bytes, next.fd.as_ref().map(AsFd::as_fd))
                    .map_err(|errno| errno.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match sent {
                Ok(Sent::Taken) => {
                    channel.outbox.pop_front();
                }
                Ok(Sent::Full) => return,
                Ok(Sent::Closed) => return self.close_channel("it closed its channel"),
                Err(why) => return self.close_channel(&why),
            }
        }
    }

    /// What a new control plane is told first.
    fn greet(&mut self, end: LauncherEnd) {
        let separate = matches!(self.accounts, Accounts::Separate { .. });
        let own = rustix::process::geteuid().as_raw();
        let live = self.workers.iter().map(|(run_id, worker)| LiveWorker {
            run_id: run_id.clone(),
            pid: worker.child.number(),
        });
        let hello = Notice::Hello {
            version: PROTOCOL_VERSION,
            boundary: self.surroundings.boundary,
            control_uid: self.control_identity.map_or(own, |identity| identity.uid),
            muzzle_uid: self.muzzle_identity.map_or(own, |identity| identity.uid),
            single_uid: !separate,
            live: live.collect(),
        };
        let mut outbox = VecDeque::from([Outgoing { notice: hello, fd: None }]);
        for (run_id, worker) in &self.workers {
            let notice = Notice::Live {
                run_id: run_id.clone(),
                pid: worker.child.number(),
                observed: worker.observed.clone(),
            };
            match worker.child.pidfd.try_clone() {
                Ok(fd) => outbox.push_back(Outgoing { notice, fd: Some(fd) }),
                Err(error) => tell(format_args!("could not pass the pidfd of {run_id}: {error}")),
            }
        }
        if let Some(pid) = self.muzzle.pid() {
            outbox.push_back(Outgoing { notice: Notice::MuzzleStarted { pid }, fd: None });
        }
        let kept = self.kept.drain(..);
        outbox.extend(kept.map(|notice| Outgoing { notice, fd: None }));
        self.channel = Some(Channel { end, outbox });
    }
}

const LOCK: &str = "launcher.lock";

/// Takes the uid range and ends what an earlier launcher of it left running. Processes that fork and
/// exit may be missed by looking; therefore every uid that was given out is cleared unseen. Of a
/// slice, which many use one after another with new state, those are all.
fn claim(uids: &UidRange, accounts: &Accounts) -> Result<Lock, LauncherError> {
    let lock = uids::claim(uids)?;
    let mut owners: BTreeSet<u32> = match accounts {
        Accounts::Separate { registry, .. } if *uids == UidRange::development() => {
            let given_out = registry.accounts().map(|(_, uid)| uid);
            given_out.chain([uids.control, uids.muzzle]).collect()
        }
        Accounts::Separate { .. } | Accounts::Single { .. } => uids.all().collect(),
    };
    let deadline = Instant::now() + limits::STOP_REAP;
    loop {
        for uid in &owners {
            purge::kill_all_of(*uid).map_err(LauncherError::system("end leftover processes"))?;
        }
        let found = children::with_uid(|uid| uids.contains(uid))
            .map_err(|source| LauncherError::System { operation: "list processes", source })?;
        if found.is_empty() {
            return Ok(lock);
        }
        if Instant::now() > deadline {
            let pids = found.into_iter().map(|(pid, _)| pid).collect();
            return Err(LauncherError::Leftovers { pids });
        }
        owners = found.into_iter().map(|(_, uid)| uid).collect();
        std::thread::sleep(limits::SWEEP_INTERVAL);
    }
}

fn open_accounts(applier: &Applier, state: &StateTree) -> Result<Accounts, LauncherError> {
    match applier {
        Applier::SingleUid => Ok(Accounts::Single { uid: rustix::process::geteuid().as_raw() }),
        Applier::ForkSetuid(uids) => {
            let fresh = state.is_fresh()?;
            let range = uids.agents.clone();
            let registry = Registry::open(state.as_fd(), &state.path, range, fresh)?;
            Ok(Accounts::Separate { registry, uids: uids.clone() })
        }
    }
}

fn surroundings(config: LauncherConfig) -> Surroundings {
    Surroundings {
        boundary: match config.applier {
            Applier::ForkSetuid(_) => Boundary::Separate,
            Applier::SingleUid => Boundary::SingleUid,
        },
        state: config.state,
        sockets: config.sockets,
        path: std::env::var_os("PATH"),
        lang: std::env::var_os("LANG"),
        extra_env: config.extra_env,
        verbose: config.verbose,
    }
}

/// How a child ended, if it has.
fn try_reap(child: &spawn::Child) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    loop {
        match rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), options) {
            Err(Errno::INTR) => {}
            Ok(status) => return status.map(|status| exit_of(&status)),
            Err(_) => return None,
        }
    }
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}

/// An error with its sources, for one line.
fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
