//! The tool host: a process forked from the worker before anything else happens, which starts, bounds and reaps every child the run
//! will ever have.
//!
//! It is forked, not executed, while the worker has one thread and nothing to lose: no token, no connection. It holds one
//! descriptor, its end of a socket pair; when the other end closes, however the worker ended, it kills and reaps everything and
//! goes. That is why it has no parent-death signal of its own: SIGKILL at that moment would leave its children without a reaper.
//! Its children do have one, for the day it is killed itself, and the worker is a subreaper too, so even then nothing gets away.
//!
//! This module does not decide what may run or with which grants.

pub mod environment;
mod frame;
mod ledger;
mod runner;
mod serve;
mod spec;
mod streams;
mod temporary;
mod tree;

use std::borrow::Cow;
use std::fs::File;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use spec::{ChildOutcome, ChildSpec, EndedBy, Exit, HostError, Limits, Program, Step};

use crate::limits;
use crate::sandbox::{
    Abi, Applied, BaseLayer, ChildGrants, Extra, KeepOut, Rights, SandboxError, become_private,
    build, plan_base, probe_landlock,
};
use crate::sys::confine::restrict_self;
use crate::sys::process::{Forked, Waited, fork_single_threaded, leave, reap_one, thread_count};
use frame::{Request, Response};

/// The worker's side of its tool host. Dropping it ends the tool host like [`ToolHost::reap`] does.
#[derive(Debug)]
pub struct ToolHost {
    socket: UnixStream,
    /// A second handle on the same socket, shared with [`Canceller`]s so that two messages never mix.
    sending: Arc<Mutex<UnixStream>>,
    /// `None` once it has been waited for.
    pid: Option<i32>,
    base: Applied,
}

/// Ends the running call of a tool host from another thread.
#[derive(Debug, Clone)]
pub struct Canceller {
    sending: Arc<Mutex<UnixStream>>,
}

impl Canceller {
    /// Asks for the end of the call that is running; [`ToolHost::run`] then returns with [`EndedBy::Cancelled`]. Nothing happens
    /// when no call is running.
    ///
    /// # Errors
    /// [`HostError::Gone`] when the tool host is gone.
    pub fn cancel(&self) -> Result<(), HostError> {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        frame::send(&mut *sending, &Request::Cancel, &[])
    }
}

impl ToolHost {
    /// Puts the base layer on this process and forks the tool host from it.
    ///
    /// Afterwards this process has no new privileges, is closed to inspection, and is a subreaper. Without Landlock it has no base
    /// layer either: [`ToolHost::base`] says so, and whether a run may go on is the caller's to decide.
    ///
    /// # Errors
    /// [`HostError::NotSingleThreaded`]; a step the kernel refuses; an error of the tool host's own start.
    pub fn fork(base: &BaseLayer) -> Result<Self, HostError> {
        Self::fork_at_most(base, Abi::NEWEST_USED)
    }

    /// The same as if the kernel offered no Landlock above `most`, for the tool host and every child: to see, on a newer kernel,
    /// what an older one leaves open.
    ///
    /// # Errors
    /// As [`ToolHost::fork`].
    pub fn fork_at_most(base: &BaseLayer, most: Abi) -> Result<Self, HostError> {
        let threads = thread_count().map_err(|error| HostError::system("count threads", &error))?;
        if threads != 1 {
            return Err(HostError::NotSingleThreaded { threads });
        }
        let landlock = probe_landlock()?.at_most(most);
        let own = open_own_executable()?;
        let extras = [Extra { file: &own, rights: Rights::ReadExecute }];
        let built = build(&plan_base(base), landlock, &extras, &KeepOut::nothing())?;
        let keep_out = KeepOut::of(&base.run_dir)
            .map_err(|error| HostError::system("find the run directory", &error))?;
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| HostError::system("make a socket pair", &error))?;
        become_private()?;
        if let Some(ruleset) = &built.ruleset {
            restrict_self(ruleset.as_fd())
                .map_err(|errno| SandboxError::kernel("enter the base landlock layer", errno))?;
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|errno| HostError::system("become the reaper of its tree", &errno.into()))?;
        match fork_single_threaded()
            .map_err(|error| HostError::system("fork the tool host", &error))?
        {
            Err(threads) => Err(HostError::NotSingleThreaded { threads }),
            Ok(Forked::Child) => {
                let clean = std::panic::catch_unwind(|| serve::serve(&theirs, landlock, &keep_out));
                leave(i32::from(!matches!(clean, Ok(true))))
            }
            Ok(Forked::Parent { child }) => {
                drop(theirs);
                let sending = ours
                    .try_clone()
                    .map_err(|error| HostError::system("share a socket", &error))?;
                let mut host = Self {
                    socket: ours,
                    sending: Arc::new(Mutex::new(sending)),
                    pid: Some(child),
                    base: built.applied,
                };
                match frame::receive(&mut host.socket)?.0 {
                    Response::Ready(ready) => ready.map(|()| host),
                    Response::Ran { .. } | Response::Prepared(_) => Err(unexpected()),
                }
            }
        }
    }

    /// The base layer, as applied to the worker and its tool host.
    pub fn base(&self) -> &Applied {
        &self.base
    }

    /// The process id of the tool host while it has not been reaped.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// A handle that ends the running call.
    pub fn canceller(&self) -> Canceller {
        Canceller { sending: Arc::clone(&self.sending) }
    }

    /// Builds the sandbox for a set of grants and says what it will be, without running anything. [`ToolHost::run`] uses the same.
    ///
    /// # Errors
    /// A sandbox that cannot be built; [`HostError::Gone`].
    pub fn prepare(&mut self, grants: &ChildGrants) -> Result<Applied, HostError> {
        self.patience(Some(limits::HOST_MARGIN))?;
        self.send(&Request::Prepare(Cow::Borrowed(grants)), &[])?;
        match self.receive()?.0 {
            Response::Prepared(applied) => applied,
            Response::Ready(_) | Response::Ran { .. } => Err(unexpected()),
        }
    }

    /// Runs a child and blocks until its last descendant is gone.
    ///
    /// # Errors
    /// A child that failed before its program ran, a specification no child is started for, [`HostError::Gone`] and
    /// [`HostError::StillAlive`], after which the tool host is of no use. An ordinary failure is an outcome.
    pub fn run(&mut self, spec: &ChildSpec) -> Result<ChildOutcome, HostError> {
        self.patience(Some(
            spec.limits
                .deadline
                .saturating_add(spec.limits.grace)
                .saturating_add(limits::HOST_MARGIN),
        ))?;
        self.send(&Request::Run(Cow::Borrowed(spec)), &spec.stdin)?;
        match self.receive()? {
            (Response::Ran { outcome, stdout }, mut body) => {
                let mut outcome = outcome?;
                outcome.stderr = body.split_off(stdout.min(body.len()));
                outcome.stdout = body;
                Ok(outcome)
            }
            (Response::Ready(_) | Response::Prepared(_), _) => Err(unexpected()),
        }
    }

    /// Ends the tool host and waits until it and its last descendant are gone.
    ///
    /// # Errors
    /// [`HostError::StillAlive`] when something survives SIGKILL.
    pub fn reap(mut self) -> Result<(), HostError> {
        self.end(limits::TREE_PATIENCE + limits::TREE_PATIENCE)
    }

    fn send(&mut self, request: &Request<'_>, body: &[u8]) -> Result<(), HostError> {
        let sent = {
            let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            frame::send(&mut *sending, request, &[body])
        };
        self.or_bury(sent)
    }

    fn receive(&mut self) -> Result<(Response, Vec<u8>), HostError> {
        let received = frame::receive(&mut self.socket);
        self.or_bury(received)
    }

    /// How long an answer may take: a tool that can signal its tool host (below ABI 6) can also stop it.
    fn patience(&self, longest: Option<Duration>) -> Result<(), HostError> {
        self.socket
            .set_read_timeout(longest)
            .and_then(|()| self.socket.set_write_timeout(longest))
            .map_err(|error| HostError::system("limit the wait for the tool host", &error))
    }

    /// When the tool host is gone its children come to this process, and must not be left.
    fn or_bury<T>(&mut self, answer: Result<T, HostError>) -> Result<T, HostError> {
        match &answer {
            Err(HostError::Gone) => self.end(limits::TREE_PATIENCE)?,
            Err(HostError::Unresponsive) => self.end(Duration::ZERO)?,
            _ => {}
        }
        answer
    }

    /// Closes the socket, waits for the tool host to clean up and go, and does it in its place when it does not.
    fn end(&mut self, patience: Duration) -> Result<(), HostError> {
        let Some(pid) = self.pid.take() else {
            return Ok(());
        };
        // An end that is closed already needs no closing.
        drop(self.socket.shutdown(Shutdown::Both));
        let started = Instant::now();
        while started.elapsed() < patience {
            match reap_one(pid) {
                Waited::Nothing => std::thread::sleep(Duration::from_millis(1)),
                // It went on its own terms, after its last descendant.
                Waited::Reaped(host) if host.status == 0 => return Ok(()),
                Waited::Reaped(_) | Waited::NoChildren => break,
            }
        }
        tree::kill_all(&mut tree::Signalled::new(), |_| {})
    }
}

impl Drop for ToolHost {
    fn drop(&mut self) {
        drop(self.end(limits::TREE_PATIENCE + limits::TREE_PATIENCE));
    }
}

/// This program's file, whatever its path has come to mean since it was executed.
pub(crate) fn open_own_executable() -> Result<File, HostError> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open("/proc/self/exe")
        .map_err(|error| HostError::system("open its own executable", &error))
}

fn unexpected() -> HostError {
    HostError::Protocol { problem: "an answer to something else".to_owned() }
}
