//! Carrying out what the control plane asks for.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Signal;

use super::{Accounts, Launcher, Notice, Worker, full, tell};
use crate::channel::Incoming;
use crate::grants;
use crate::limits;
use crate::plan::{self, FoundRun, Identity, Presence, WorkerFacts};
use crate::protocol::{Refusal, Reply, Request, RunId, Subject, WorkerSignal};
use crate::registry::RegistryError;
use crate::uids;
type Outcome = Result<(Reply, Option<OwnedFd>), Refusal>;

impl Launcher {
    /// Answers what waits, up to a number that leaves everything else its turn.
    pub(super) fn serve_requests(&mut self) {
        for _ in 0..limits::REQUESTS_PER_TURN {
            let Some(channel) = &self.channel else { return };
            if channel.outbox.len() >= limits::OUTBOX {
                return;
            }
            match channel.end.try_receive() {
                Ok(Incoming::Request(request)) => self.serve(&request),
                Ok(Incoming::Malformed { seq: Some(seq), why }) => {
                    let refusal = Refusal {
                        verb: "unknown".to_owned(),
                        rule: "malformed-request".to_owned(),
                        why,
                        remedy: "send one of the requests of this protocol version".to_owned(),
                    };
                    self.notify(Notice::Reply { seq, result: Err(refusal) }, None);
                }
                Ok(Incoming::Malformed { seq: None, why }) => {
                    return self.close_channel(&format!("it sent what is no request ({why})"));
                }
                Ok(Incoming::Nothing) => break,
                Ok(Incoming::Closed) => return self.close_channel("it closed its channel"),
                Err(errno) => return self.close_channel(&format!("its channel failed ({errno})")),
            }
        }
        self.send_outbox();
    }

    fn serve(&mut self, request: &Request) {
        let outcome = match request {
            Request::EnsureAgentUser { subject, .. } => self.ensure_agent_user(subject),
            Request::WorkerSpawn { run_id, .. } => self.spawn_worker(run_id),
            Request::WorkerSignal { run_id, signal, .. } => self.signal_worker(run_id, *signal),
        };
        let (result, fd) = match outcome {
            Ok((reply, fd)) => (Ok(reply), fd),
            Err(refusal) => (Err(refusal), None),
        };
        self.notify(Notice::Reply { seq: request.seq(), result }, fd);
    }

    fn ensure_agent_user(&mut self, subject: &Subject) -> Outcome {
        let refuse = |rule: &str, why: String, remedy: &str| Refusal {
            verb: "ensure_agent_user".to_owned(),
            rule: rule.to_owned(),
            why,
            remedy: remedy.to_owned(),
        };
        let (uid, identity) = match &mut self.accounts {
            Accounts::Single { uid } => (*uid, None),
            Accounts::Separate { registry, .. } => {
                let refuse_registry = |error: &RegistryError| {
                    let (rule, remedy) = registry_rule(error);
                    refuse(rule, full(error), remedy)
                };
                let uid = registry.uid_for(subject).map_err(|error| refuse_registry(&error))?;
                uids::refuse_known(uid)
                    .map_err(|error| refuse("known-uid", error.to_string(), "then ask again"))?;
                let uid = registry
                    .add(self.state.as_fd(), subject)
                    .map_err(|error| refuse_registry(&error))?;
                (uid, Some(Identity::of(uid)))
            }
        };
        grants::prepare_agent(&self.state, subject, identity).map_err(|error| {
            refuse("agent-directory", full(&error), "put that right, then ask again")
        })?;
        Ok((Reply::AgentUser { uid }, None))
    }

    fn spawn_worker(&mut self, run_id: &RunId) -> Outcome {
        let found = self.find_run(run_id)?;
        let facts = WorkerFacts {
            run_id,
            found,
            run_owner: self.control_identity.map(|control| control.uid),
            presence: self.presence(run_id),
            workers: self.workers.len(),
            stopping: self.stop.is_some(),
        };
        let plan = plan::plan_worker(&self.surroundings, &facts)?;
        if let Some(identity) = plan.identity {
            uids::refuse_known(identity.uid)
                .map_err(|error| plan::refusal("known-uid", error.to_string(), "then ask again"))?;
        }
        let (child, observed) = self.launch(&plan, None).map_err(|problem| {
            let why = format!("the worker of run {run_id} was not started: {}", problem.why);
            plan::refusal(problem.rule, why, "put that right, then resume the run")
        })?;
        let pid = child.number();
        let passed = child.pidfd.try_clone();
        let reply = Reply::Spawned { pid, observed: observed.clone() };
        let worker = Worker { child, identity: plan.identity, observed };
        self.workers.insert(run_id.clone(), worker);
        match passed {
            Ok(fd) => Ok((reply, Some(fd))),
            Err(error) => {
                // Without its pidfd the control plane could not follow it; its end is still told.
                if let Some(worker) = self.workers.get(run_id) {
                    worker.child.signal(Signal::KILL);
                }
                let why = format!("the pidfd of run {run_id} could not be passed: {error}");
                Err(plan::refusal("launch", why, "close what holds many files open, then retry"))
            }
        }
    }

    fn find_run(&self, run_id: &RunId) -> Result<Vec<FoundRun>, Refusal> {
        let accounts: Vec<(Subject, Option<Identity>)> = match &self.accounts {
            Accounts::Separate { registry, .. } => registry
                .accounts()
                .map(|(subject, uid)| (subject.clone(), Some(Identity::of(uid))))
                .collect(),
            Accounts::Single { .. } => {
                let subjects = self.state.subjects_with_runs().map_err(|error| {
                    plan::refusal("runs-unreadable", full(&error), "put that right, then retry")
                })?;
                subjects.into_iter().map(|subject| (subject, None)).collect()
            }
        };
        Ok(accounts
            .into_iter()
            .filter_map(|(subject, identity)| {
                let entry = self.state.examine_run(&subject, run_id)?;
                Some(FoundRun { subject, identity, entry })
            })
            .collect())
    }

    fn presence(&self, run_id: &RunId) -> Presence {
        if let Some(worker) = self.workers.get(run_id) {
            Presence::Live { pid: worker.child.number() }
        } else if self.endings.iter().any(|ending| ending.run_id == *run_id) {
            Presence::Ending
        } else {
            Presence::Absent
        }
    }

    fn signal_worker(&mut self, run_id: &RunId, signal: WorkerSignal) -> Outcome {
        let refuse = |rule: &str, why: String| Refusal {
            verb: "worker_signal".to_owned(),
            rule: rule.to_owned(),
            why,
            remedy: "its Exited notice tells how it ended".to_owned(),
        };
        let Some(worker) = self.workers.get(run_id) else {
            return Err(refuse("no-live-worker", format!("run {run_id} has no live worker")));
        };
        let signal = match signal {
            WorkerSignal::Terminate => Signal::TERM,
            WorkerSignal::Kill => Signal::KILL,
        };
        match rustix::process::pidfd_send_signal(&worker.child.pidfd, signal) {
            Ok(()) => Ok((Reply::Signalled, None)),
            Err(Errno::SRCH) => {
                Err(refuse("no-live-worker", format!("the worker of run {run_id} just ended")))
            }
            Err(errno) => {
                tell(format_args!("could not signal the worker of run {run_id}: {errno}"));
                Err(refuse("signal", format!("the worker of run {run_id}: {errno}")))
            }
        }
    }
}

fn registry_rule(error: &RegistryError) -> (&'static str, &'static str) {
    match error {
        RegistryError::AgentTaken { .. } => {
            ("agent-taken", "use the account it has, or another name for the agent")
        }
        RegistryError::Exhausted { .. } => ("uids-exhausted", "use another state directory"),
        RegistryError::Corrupt { .. } | RegistryError::Failed { .. } => {
            ("registry", "put that right, then ask again")
        }
    }
}
