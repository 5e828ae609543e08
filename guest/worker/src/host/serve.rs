//! The tool host's own process: one call at a time, until the worker's end of the socket closes.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use seccompiler::sock_filter;

use super::environment::{display, plan_command, plan_limits};
use super::frame::{Request, Response, receive, send};
use super::open_own_executable;
use super::runner::Call;
use super::spec::{ChildOutcome, ChildSpec, HostError};
use super::streams::{ChildEnds, Streams};
use super::temporary::{Emptied, Temporary};
use super::tree::{self, Signalled};
use crate::limits;
use crate::sandbox::{
    Applied, ChildGrants, Extra, Filter, KeepOut, Landlock, Rights, SandboxError, become_private,
    build, child_filters, host_filters, plan_child,
};
use crate::sys::confine::install_filter;
use crate::sys::process::{close_all_but, ignore_ending_signals, ignored_signals};
use crate::sys::spawn::{CStrings, Image, SpawnStack, spawn};

/// Serves calls until the worker is gone, then kills what is left. False when something survived that.
pub(crate) fn serve(socket: &UnixStream, landlock: Landlock, keep_out: &KeepOut) -> bool {
    let mut stream = socket;
    let mut host = match Host::prepare(socket, landlock, keep_out.clone()) {
        Ok(host) => host,
        Err(error) => {
            drop(send(&mut stream, &Response::Ready(Err(error)), &[]));
            return true;
        }
    };
    let mut alive = send(&mut stream, &Response::Ready(Ok(())), &[]).is_ok();
    while alive {
        alive = match receive::<Request<'_>>(&mut stream) {
            Ok((Request::Run(spec), input)) => {
                host.answer_run(ChildSpec { stdin: input, ..spec.into_owned() }, socket)
            }
            Ok((Request::Prepare(grants), _)) => {
                let applied = host.prepared(&grants).map(|prepared| prepared.applied.clone());
                send(&mut stream, &Response::Prepared(applied), &[]).is_ok()
            }
            Ok((Request::Cancel, _)) => true,
            Err(_) => false,
        };
    }
    let ended = tree::kill_all(&mut Signalled::new(), |_| {});
    host.close();
    ended.is_ok()
}

/// What is ready for a set of grants.
#[derive(Debug)]
struct Prepared {
    ruleset: Option<OwnedFd>,
    filters: Vec<Filter>,
    applied: Applied,
}

#[derive(Debug)]
struct Host {
    landlock: Landlock,
    keep_out: KeepOut,
    /// Entries of the table that every child inherits from this process.
    inherited_entries: usize,
    stack: SpawnStack,
    own_executable: File,
    ignored_signals: u64,
    prepared: HashMap<ChildGrants, Prepared>,
    temporary: HashMap<PathBuf, Temporary>,
    /// Directories that could not be emptied in time.
    retired: Vec<Temporary>,
    others: Option<(Instant, u64)>,
}

impl Host {
    fn prepare(
        socket: &UnixStream,
        landlock: Landlock,
        keep_out: KeepOut,
    ) -> Result<Self, HostError> {
        close_all_but(socket.as_fd())
            .map_err(|error| HostError::system("close inherited descriptors", &error))?;
        detach()?;
        become_private()?;
        let mut inherited_entries = 0;
        for filter in host_filters(landlock.abi())? {
            install_filter(&filter.program).map_err(|errno| {
                SandboxError::kernel("enter the tool host's system call filter", errno)
            })?;
            inherited_entries += filter.entries;
        }
        Ok(Self {
            landlock,
            keep_out,
            inherited_entries,
            stack: SpawnStack::new().map_err(|error| HostError::system("map a stack", &error))?,
            own_executable: open_own_executable()?,
            ignored_signals: ignored_signals()
                .map_err(|error| HostError::system("read its ignored signals", &error))?,
            prepared: HashMap::new(),
            temporary: HashMap::new(),
            retired: Vec::new(),
            others: None,
        })
    }

    fn answer_run(&mut self, mut spec: ChildSpec, socket: &UnixStream) -> bool {
        let mut outcome = self.run(&mut spec, socket);
        if outcome == Err(HostError::Gone) {
            return false;
        }
        let usable = !matches!(outcome, Err(HostError::StillAlive { .. }));
        let (stdout, stderr) = outcome
            .as_mut()
            .map(|outcome| {
                (std::mem::take(&mut outcome.stdout), std::mem::take(&mut outcome.stderr))
            })
            .unwrap_or_default();
        let response = Response::Ran { outcome, stdout: stdout.len() };
        send(&mut &*socket, &response, &[&stdout, &stderr]).is_ok() && usable
    }

    fn run(
        &mut self,
        spec: &mut ChildSpec,
        socket: &UnixStream,
    ) -> Result<ChildOutcome, HostError> {
        if spec.limits.output > limits::HOST_BODY_BYTES {
            return Err(HostError::TooLarge {
                bytes: spec.limits.output,
                ceiling: limits::HOST_BODY_BYTES,
            });
        }
        self.prepared(&spec.grants)?;
        let others = self.other_tasks();
        let temporary = temporary(&mut self.temporary, &spec.grants)?;
        let command = plan_command(spec, temporary.path())?;
        let limits = plan_limits(&spec.limits, others);
        let prepared = self.prepared.get(&spec.grants).ok_or_else(lost)?;
        let input = std::mem::take(&mut spec.stdin);
        let (streams, ends) = Streams::open(input, spec.limits.output)
            .map_err(|errno| HostError::system("make pipes", &errno.into()))?;
        let ChildEnds { stdin, stdout, stderr } = &ends;
        let (arguments, environment) =
            (CStrings::new(command.arguments), CStrings::new(command.environment));
        let filters: Vec<&[sock_filter]> =
            prepared.filters.iter().map(|filter| filter.program.as_slice()).collect();
        let image = Image {
            program: &command.program,
            arguments: &arguments,
            environment: &environment,
            working_directory: &command.working_directory,
            stdin: stdin.as_fd(),
            stdout: stdout.as_fd(),
            stderr: stderr.as_fd(),
            limits: &limits,
            ruleset: prepared.ruleset.as_ref().map(AsFd::as_fd),
            ignored_signals: self.ignored_signals,
            filters: &filters,
        };
        let spawned = spawn(&image, &mut self.stack).map_err(|failure| HostError::Spawn {
            program: display(&spec.program),
            step: failure.step,
            errno: failure.errno,
        })?;
        drop(ends);
        let outcome = Call::new(spawned, streams, &spec.limits, socket).finish();
        self.clean(&spec.grants.tmp);
        outcome
    }

    /// Empties a private temporary directory; one that cannot be emptied is never used again.
    fn clean(&mut self, place: &PathBuf) {
        let until = Instant::now() + limits::TMP_EMPTYING;
        let clean = |temporary: &Temporary| matches!(temporary.empty(until), Ok(Emptied::Wholly));
        if self.temporary.get(place).is_some_and(|temporary| !clean(temporary)) {
            self.retired.extend(self.temporary.remove(place));
            self.prepared.retain(|grants, _| grants.tmp != *place);
        }
    }

    /// The sandbox for these grants, built on first use.
    fn prepared(&mut self, grants: &ChildGrants) -> Result<&Prepared, HostError> {
        if !self.prepared.contains_key(grants) {
            if self.prepared.len() >= limits::PREPARED_GRANTS {
                self.prepared.clear();
            }
            let prepared = self.build(grants)?;
            self.prepared.insert(grants.clone(), prepared);
        }
        self.prepared.get(grants).ok_or_else(lost)
    }

    fn build(&mut self, grants: &ChildGrants) -> Result<Prepared, HostError> {
        let temporary = temporary(&mut self.temporary, grants)?;
        let extras = [
            Extra { file: temporary.directory(), rights: Rights::Write },
            Extra { file: &self.own_executable, rights: Rights::ReadExecute },
        ];
        let built = build(&plan_child(grants), self.landlock, &extras, &self.keep_out)?;
        let filters = child_filters(grants, self.landlock.abi())?;
        let mut applied = built.applied;
        // Below ABI 3 the filters stand in, which this process and every child of it have.
        applied.truncate |= applied.fs;
        applied.syscall_rules =
            self.inherited_entries + filters.iter().map(|filter| filter.entries).sum::<usize>();
        Ok(Prepared { ruleset: built.ruleset, filters, applied })
    }

    /// Tasks of the account that are not the child's; the kernel counts them against the child's limit.
    fn other_tasks(&mut self) -> u64 {
        match self.others {
            Some((counted, tasks)) if counted.elapsed() < limits::ACCOUNT_COUNT_AGE => tasks,
            _ => {
                let tasks = tree::account_tasks(rustix::process::getuid().as_raw());
                self.others = Some((Instant::now(), tasks));
                tasks
            }
        }
    }

    fn close(self) {
        let until = Instant::now() + limits::TREE_PATIENCE;
        for temporary in self.temporary.into_values().chain(self.retired) {
            // Nobody is left to hear of it.
            drop(temporary.remove(until));
        }
    }
}

fn lost() -> HostError {
    HostError::Protocol { problem: "a sandbox was dropped while in use".to_owned() }
}

fn temporary<'a>(
    made: &'a mut HashMap<PathBuf, Temporary>,
    grants: &ChildGrants,
) -> Result<&'a Temporary, HostError> {
    if !made.contains_key(&grants.tmp) {
        let temporary = Temporary::make(&grants.tmp).map_err(|error| HostError::Temporary {
            place: grants.tmp.display().to_string(),
            errno: crate::sandbox::errno_of(&error),
        })?;
        made.insert(grants.tmp.clone(), temporary);
    }
    made.get(&grants.tmp).ok_or_else(lost)
}

/// A session of its own, standard streams to nowhere, subreaper, deaf to requests to end.
fn detach() -> Result<(), HostError> {
    let failed =
        |verb: &'static str| move |errno: rustix::io::Errno| HostError::system(verb, &errno.into());
    rustix::process::setsid().map_err(failed("start the tool host's session"))?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| HostError::system("open /dev/null", &error))?;
    nix::unistd::dup2_stdin(&null)
        .map_err(|errno| HostError::system("close standard input", &errno.into()))?;
    nix::unistd::dup2_stdout(&null)
        .map_err(|errno| HostError::system("close standard output", &errno.into()))?;
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own))
        .map_err(failed("become the reaper of its tree"))?;
    ignore_ending_signals().map_err(|error| HostError::system("ignore signals", &error))
}
