//! What the launcher says: who is alive, who is gone, what became of a request.

use std::time::Instant;

use api::control::{RefusalCode, Response};
use broker::protocol::{self, Exit, Notice, Reply};
use domain::id::{RunId, Subject};
use domain::log::{Control, Gone};

use super::{Core, Due, Pending};
use crate::launch::{self, refuse};
use crate::limits;

impl Core {
    pub(super) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Hello { live, .. } => self.greet(&live),
            // Seen again after a restart of the control plane, which may have
            // ended before it recorded what the launcher had seen.
            Notice::Live { run_id, pid, observed } => {
                if let Ok(id) = RunId::new(run_id.as_str()) {
                    let attestation = self.attestation(pid, &observed);
                    self.attest(&id, attestation);
                }
            }
            Notice::MuzzleStarted { .. } => self.configure_muzzle(),
            Notice::Exited { run_id, how } => {
                if let Ok(id) = RunId::new(run_id.as_str()) {
                    self.worker_gone(&id, exit_of(how));
                }
            }
            Notice::Reply { seq, result } => self.reply(seq, result),
        }
    }

    /// What was launched and is not alive any more is gone; everything that is
    /// neither alive nor over goes on.
    pub(super) fn greet(&mut self, live: &[protocol::LiveWorker]) {
        self.greeted = true;
        let mut subjects = std::collections::BTreeSet::new();
        let ids: Vec<RunId> = self.runs.keys().cloned().collect();
        for id in ids {
            let Some(run) = self.runs.get(&id) else { continue };
            if run.damaged.is_some() {
                continue;
            }
            let alive = live.iter().any(|worker| worker.run_id.as_str() == id.as_str());
            if run.state.launched && !alive {
                self.worker_gone(&id, Gone::Lost);
            }
            if let Some(run) = self.runs.get(&id) {
                subjects.insert(run.record.subject.clone());
            }
        }
        // A worker half is read only once its owner is known.
        for subject in subjects {
            self.ensure_account(subject);
        }
        self.check_ready();
    }

    pub(super) fn check_ready(&mut self) {
        let asking = self.pending.values().any(|pending| matches!(pending, Pending::AgentUser(_)));
        if self.greeted && !asking {
            self.ready.send_replace(true);
        }
    }

    pub(crate) fn configure_muzzle(&mut self) {
        let models = self.state.models().map(|models| models.models).unwrap_or_default();
        if let Err(error) = self.muzzle.configure(&models) {
            tracing::error!(%error, "Muzzle did not take its configuration");
            return;
        }
        let live: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.state.launched)
            .map(|(id, _)| id.clone())
            .collect();
        for id in live {
            match self.with_open(&id, |open| open.dir.token()) {
                Ok(Some(token)) => {
                    if let Err(error) = self.muzzle.admit(&token, &id) {
                        tracing::warn!(run = %id, %error, "the run's bearer could not be admitted again");
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(run = %id, %error, "the run's bearer could not be read");
                }
            }
        }
    }

    pub(super) fn worker_gone(&mut self, id: &RunId, how: Gone) {
        if !self.runs.get(id).is_some_and(|run| run.state.launched) {
            return;
        }
        let token = self.with_open(id, |open| {
            let token = open.dir.token()?;
            open.dir.remove_token()?;
            Ok(token)
        });
        match token {
            Ok(Some(token)) => self.muzzle.revoke(&token),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(run = %id, %error, "the run's bearer could not be removed");
            }
        }
        if let Err(error) = self.append(id, vec![Control::Gone { how: how.clone() }]) {
            self.note_trouble(id, &error);
            self.due.push((Instant::now() + limits::RETRY_WRITE, Due::Gone(id.clone(), how)));
            return;
        }
        // An unreadable half is dealt with by the next step.
        let _read = self.read_worker(id);
        let Some(run) = self.runs.get_mut(id) else { return };
        let progressed =
            run.open.as_ref().is_some_and(|open| open.drive.progress > open.progress_at_launch);
        let no_room = how == Gone::Code(i32::from(worker::EXIT_NO_ROOM));
        run.stalled = match (progressed, no_room) {
            (true, _) => 0,
            (false, true) => run.stalled,
            (false, false) => run.stalled + 1,
        };
        run.gone = Some(how);
        if no_room {
            self.no_room = Some(format!("the worker of run {id} could not write"));
            self.due.push((Instant::now() + limits::RETRY_WRITE, Due::Advance(id.clone())));
            return;
        }
        if self.accounts.get(&run.record.subject).is_none() {
            return;
        }
        if run.stalled > 1 {
            let wait = limits::RELAUNCH * run.stalled;
            self.due.push((Instant::now() + wait, Due::Advance(id.clone())));
        } else {
            self.advance(id);
        }
    }

    pub(super) fn reply(&mut self, seq: u64, result: Result<Reply, protocol::Refusal>) {
        let Some(pending) = self.pending.remove(&seq) else { return };
        match (pending, result) {
            (Pending::Spawn(id), Ok(Reply::Spawned { pid, observed })) => {
                let attestation = self.attestation(pid, &observed);
                self.attest(&id, attestation);
            }
            (Pending::Spawn(id), Err(refusal)) => {
                let reason = format!(
                    "the launcher refused ({}): {}; {}",
                    refusal.rule, refusal.why, refusal.remedy
                );
                if let Err(error) = self.append(&id, vec![Control::Failed { reason }]) {
                    // The refusal is met again at the next launch.
                    self.note_trouble(&id, &error);
                    self.due
                        .push((Instant::now() + limits::RETRY_WRITE, Due::Gone(id, Gone::Lost)));
                }
            }
            (Pending::AgentUser(subject), Ok(Reply::AgentUser { uid })) => {
                self.accounts.set(subject.clone(), uid);
                self.account_ready(&subject);
            }
            (Pending::AgentUser(subject), Err(refusal)) => self.account_refused(&subject, &refusal),
            (Pending::Signal, Err(refusal)) => {
                tracing::info!(why = %refusal.why, "a worker was not signalled");
            }
            (_, Ok(_)) => {}
        }
        self.check_ready();
    }

    /// `attestation.json`: what the launcher saw of a worker.
    fn attestation(&self, pid: u32, observed: &protocol::Observed) -> serde_json::Value {
        serde_json::json!({
            "version": 1, "by": "launcher", "pid": pid, "observed": observed,
            "boundary": self.state.boundary().as_str(), "muzzle_inspecting": false, "leash": "not bound",
        })
    }

    /// Records what the launcher observed; the worker starts no tool before.
    pub(super) fn attest(&mut self, id: &RunId, observed: serde_json::Value) {
        if !self.runs.get(id).is_some_and(|run| run.state.launched) {
            return;
        }
        if let Err(error) = self.with_open(id, |open| open.dir.write_attestation(&observed)) {
            self.note_trouble(id, &error);
            let again = Instant::now() + limits::RETRY_ATTESTATION;
            self.due.push((again, Due::Attest(id.clone(), observed)));
        }
    }

    /// Goes on with everything that waited for this account.
    pub(super) fn account_ready(&mut self, subject: &Subject) {
        let ids: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.record.subject == *subject && run.damaged.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            // Opened before the account was known, its worker half is closed.
            if let Some(run) = self.runs.get_mut(&id) {
                run.open = None;
            }
            self.advance(&id);
        }
        let (ready, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(.., other)| other == subject);
        self.waiting = rest;
        for (submit, who, answer, _) in ready {
            let resolved =
                self.config_or_refusal().and_then(|c| launch::resolve(&self.state, &c, &submit));
            let response = match resolved {
                Ok(resolved) => self.create_run(&submit, who, &resolved),
                Err(refusal) => Response::Refused(refusal),
            };
            let _gone = answer.send(response);
        }
    }

    pub(super) fn account_refused(&mut self, subject: &Subject, refusal: &protocol::Refusal) {
        let (refused, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(.., other)| other == subject);
        self.waiting = rest;
        for (_, _, answer, _) in refused {
            let why = format!(
                "the launcher refused an account for {subject} ({}): {}",
                refusal.rule, refusal.why
            );
            let _gone = answer.send(Response::Refused(refuse(
                RefusalCode::Unavailable,
                why,
                refusal.remedy.clone(),
            )));
        }
    }
}

fn exit_of(how: Exit) -> Gone {
    match how {
        Exit::Code(code) => Gone::Code(code),
        Exit::Signal(signal) => Gone::Signal(signal),
    }
}
