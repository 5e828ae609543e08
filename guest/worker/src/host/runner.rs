//! The one bounded runner: every child there will ever be runs here.
//!
//! ```text
//!            program gone ──────────────┐
//! Running ──┤ deadline, cancelled ──> Ending (SIGTERM, grace) ──> Killing (SIGSTOP, SIGKILL) ──> gone
//!            output, cpu, processes, worker gone ────────────────────^
//! ```
//! From Running with the program gone and no other process left the way is straight to gone. Nothing is returned before the last
//! descendant has been reaped.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::{Request, receive};
use super::ledger::Ledger;
use super::spec::{ChildOutcome, EndedBy, Exit, HostError, Limits};
use super::streams::Streams;
use super::tree::{self, Signalled};
use crate::limits::TREE_TICK;
use crate::sys::process::{Reaped, Waited, reap_any};
use crate::sys::spawn::Spawned;

/// What a running call is judged by.
#[derive(Debug, Clone, Copy, Default)]
struct Facts {
    elapsed: Duration,
    cpu: Duration,
    processes: u64,
    overflowed: bool,
    cancelled: bool,
}

/// The first bound a call has broken.
fn decide_end(facts: &Facts, limits: &Limits) -> Option<EndedBy> {
    if facts.overflowed {
        Some(EndedBy::OutputCap)
    } else if facts.cancelled {
        Some(EndedBy::Cancelled)
    } else if facts.cpu >= Duration::from_secs(limits.cpu_seconds.max(1)) {
        Some(EndedBy::CpuCeiling)
    } else if facts.processes > limits.processes {
        Some(EndedBy::ProcessCeiling)
    } else if facts.elapsed >= limits.deadline {
        Some(EndedBy::Deadline)
    } else {
        None
    }
}

/// Whether the tree is asked to end before it is killed.
fn is_gentle(ended_by: EndedBy) -> bool {
    match ended_by {
        EndedBy::Itself | EndedBy::Deadline | EndedBy::Cancelled => true,
        EndedBy::OutputCap | EndedBy::CpuCeiling | EndedBy::ProcessCeiling => false,
    }
}

/// A call that has started.
pub(crate) struct Call<'a> {
    program: Spawned,
    streams: Streams,
    limits: &'a Limits,
    control: &'a UnixStream,
    started: Instant,
    status: Option<i32>,
    ledger: Ledger,
    cancelled: bool,
    worker_gone: bool,
    signalled: Signalled,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        program: Spawned,
        streams: Streams,
        limits: &'a Limits,
        control: &'a UnixStream,
    ) -> Self {
        Self {
            program,
            streams,
            limits,
            control,
            started: Instant::now(),
            status: None,
            ledger: Ledger::default(),
            cancelled: false,
            worker_gone: false,
            signalled: Signalled::new(),
        }
    }

    /// Runs the call to the end of its last process.
    ///
    /// # Errors
    /// [`HostError::Gone`] when the worker is gone (everything has been killed), [`HostError::StillAlive`].
    pub(crate) fn finish(mut self) -> Result<ChildOutcome, HostError> {
        let ended_by = self.watch();
        if !matches!(self.reap(), Left::Nobody) {
            if is_gentle(ended_by) && !self.worker_gone {
                self.end_gently();
            }
            self.kill()?;
        }
        if self.worker_gone {
            return Err(HostError::Gone);
        }
        self.streams.pump();
        let exit = self.status.map_or(Exit::Signal(libc::SIGKILL), exit);
        let ended_by = match (ended_by, exit) {
            (EndedBy::Itself, Exit::Signal(libc::SIGXCPU)) => EndedBy::CpuCeiling,
            (EndedBy::Itself, _) if self.streams.overflowed() => EndedBy::OutputCap,
            (ended_by, _) => ended_by,
        };
        self.signalled.remove(&self.program.pid);
        let (stdout, stderr) = self.streams.into_outputs();
        Ok(ChildOutcome {
            exit,
            stdout,
            stderr,
            ended_by,
            cpu_ms: milliseconds(self.ledger.total_reaped()),
            wall_ms: milliseconds(self.started.elapsed()),
            survivors_killed: u32::try_from(self.signalled.len()).unwrap_or(u32::MAX),
        })
    }

    /// Until the program is gone or a bound is broken.
    fn watch(&mut self) -> EndedBy {
        let mut next_look = self.started + TREE_TICK;
        let mut facts = Facts::default();
        loop {
            self.reap();
            if self.status.is_some() {
                return EndedBy::Itself;
            }
            let now = Instant::now();
            if now >= next_look {
                self.look(&mut facts);
                // Looking at a large tree takes time; it may take a tenth of ours.
                let next = Instant::now();
                next_look = next + TREE_TICK.max(next.duration_since(now) * 9);
            }
            facts.elapsed = now.duration_since(self.started);
            facts.overflowed = self.streams.overflowed();
            facts.cancelled = self.cancelled || self.worker_gone;
            if let Some(ended_by) = decide_end(&facts, self.limits) {
                return ended_by;
            }
            let left = self.limits.deadline.saturating_sub(facts.elapsed);
            self.wait(left.min(next_look.saturating_duration_since(now)));
        }
    }

    fn look(&mut self, facts: &mut Facts) {
        let living = tree::descendants();
        facts.cpu = self.ledger.observe(living.iter().map(|descendant| descendant.sample));
        facts.processes = u64::try_from(living.len()).unwrap_or(u64::MAX);
    }

    /// Waits until something moves: the program, its streams, the worker.
    fn wait(&mut self, longest: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let worker = {
            let mut events: Vec<PollFd<'_>> = Vec::with_capacity(5);
            events.push(PollFd::new(self.control, PollFlags::IN));
            if self.status.is_none() {
                events.push(PollFd::from_borrowed_fd(self.program.pidfd.as_fd(), PollFlags::IN));
            }
            events.extend(self.streams.interests());
            match poll(&mut events, Some(&timeout)) {
                Ok(_) => events.first().is_some_and(|control| !control.revents().is_empty()),
                Err(_interrupted) => false,
            }
        };
        self.streams.pump();
        if worker {
            self.hear_worker();
        }
    }

    fn hear_worker(&mut self) {
        if self.worker_gone {
            return;
        }
        match receive::<Request<'_>>(&mut &*self.control) {
            Ok((Request::Cancel, _)) => self.cancelled = true,
            // Nothing else may be said during a call: a worker that does is as good as gone.
            Ok((Request::Run(_) | Request::Prepare(_), _)) | Err(_) => self.worker_gone = true,
        }
    }

    fn reap(&mut self) -> Left {
        loop {
            match reap_any() {
                Waited::Reaped(gone) => self.note(gone),
                Waited::Nothing => return Left::Somebody,
                Waited::NoChildren => return Left::Nobody,
            }
        }
    }

    fn note(&mut self, gone: Reaped) {
        self.ledger.reaped(gone.cpu);
        if gone.pid == self.program.pid {
            self.status = Some(gone.status);
        }
    }

    /// Asks the tree to end and gives it its grace, still taking its output.
    fn end_gently(&mut self) {
        tree::terminate_all(&mut self.signalled);
        let asked = Instant::now();
        loop {
            if matches!(self.reap(), Left::Nobody) || self.streams.overflowed() || self.worker_gone
            {
                return;
            }
            let left = self.limits.grace.saturating_sub(asked.elapsed());
            if left.is_zero() {
                return;
            }
            self.wait(left.min(SHORT));
        }
    }

    fn kill(&mut self) -> Result<(), HostError> {
        let mut gone = Vec::new();
        let answer = tree::kill_all(&mut self.signalled, |reaped| gone.push(reaped));
        for reaped in gone {
            self.note(reaped);
        }
        answer
    }
}

/// How long to wait for descendants that are no children of ours yet, whose end wakes nobody.
const SHORT: Duration = Duration::from_millis(5);

enum Left {
    Nobody,
    Somebody,
}

fn exit(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
