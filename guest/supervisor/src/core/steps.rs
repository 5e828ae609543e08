//! The steps of one run: opening it, appending to its control log, reading its
//! worker's, and doing what follows from both.

use std::time::Instant;

use broker::protocol::{self, WorkerSignal};
use domain::drive::{Drive, Next, plan_next};
use domain::id::RunId;
use domain::log::{Control, Entry};
use domain::redact::redact;
use domain::run::{RunState, Status};
use store::{OpenedLog, StoreError, Tail, clock};

use super::{Core, CoreError, Due, OpenRun, Pending, chain};
use crate::muzzle_link::mint_token;
use crate::{cards, limits};

impl Core {
    /// Runs `act` on the open run, opening it first where needed.
    pub(super) fn with_open<T>(
        &mut self,
        id: &RunId,
        act: impl FnOnce(&mut OpenRun) -> Result<T, StoreError>,
    ) -> Result<T, CoreError> {
        let accounts = &self.accounts;
        let run = self.runs.get_mut(id).ok_or_else(|| CoreError::NoRun(id.clone()))?;
        if run.open.is_none() {
            let dir = self.state.open_run(id, |subject| accounts.get(subject))?;
            let OpenedLog { log, read, torn } = dir.open_control()?;
            run.state = RunState::fold(&read.entries);
            let open = OpenRun {
                dir,
                log,
                tail: Tail::default(),
                drive: Drive::default(),
                progress_at_launch: 0,
            };
            if let Some(torn) = torn {
                let body = Control::TornTail { bytes: torn.bytes, kept_as: torn.kept_as };
                let at = clock::now();
                let seq = open.log.append(at, std::slice::from_ref(&body))?;
                run.state.apply(&Entry { seq, at, body });
            }
            run.open = Some(open);
        }
        match run.open.as_mut() {
            Some(open) => Ok(act(open)?),
            None => Err(CoreError::NoRun(id.clone())),
        }
    }

    /// Makes entries durable, then takes them in.
    pub(super) fn append(&mut self, id: &RunId, bodies: Vec<Control>) -> Result<(), CoreError> {
        let at = clock::now();
        match self.with_open(id, |open| open.log.append(at, &bodies)) {
            Ok(first) => {
                if let Some(run) = self.runs.get_mut(id) {
                    for (body, seq) in bodies.into_iter().zip(first..) {
                        run.state.apply(&Entry { seq, at, body });
                    }
                    run.record.last_activity = run.state.last_activity;
                }
                self.no_room = None;
                Ok(())
            }
            Err(error) => {
                // What is on disk decides: the log is read again before the next write.
                if let Some(run) = self.runs.get_mut(id) {
                    run.open = None;
                }
                Err(error)
            }
        }
    }

    /// Reads what the worker wrote since the last look.
    pub(super) fn read_worker(&mut self, id: &RunId) -> Result<(), CoreError> {
        self.with_open(id, |open| {
            let worker = open.dir.worker()?;
            let Some(file) = worker.open_events()? else { return Ok(()) };
            for entry in open.tail.read(&file, open.dir.path())? {
                open.drive.apply(&entry);
            }
            Ok(())
        })
    }

    /// Does what follows from both logs until nothing does.
    pub(super) fn advance(&mut self, id: &RunId) {
        loop {
            match self.advance_once(id) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.trouble(id, &error);
                    break;
                }
            }
        }
        if let Some(run) = self.runs.get_mut(id)
            && (run.state.status.is_over() || run.state.status == Status::WaitingApproval)
            && !run.state.launched
        {
            run.open = None;
        }
    }

    pub(super) fn advance_once(&mut self, id: &RunId) -> Result<bool, CoreError> {
        let Some(run) = self.runs.get(id) else { return Ok(false) };
        if run.state.launched || run.state.status.is_over() || !self.greeted {
            return Ok(false);
        }
        if let Err(error) = self.read_worker(id) {
            let reason = format!("worker half unreadable: {error}");
            self.append(id, vec![Control::Failed { reason }])?;
            return Ok(false);
        }
        let Some(run) = self.runs.get(id) else { return Ok(false) };
        let Some(open) = &run.open else { return Ok(false) };
        match plan_next(&run.state, &open.drive, run.stalled, run.gone.as_ref()) {
            Next::Rest => Ok(false),
            Next::Ask(requests) => {
                let cards: Result<Vec<Control>, _> = requests
                    .iter()
                    .map(|r| cards::build_card(&open.dir, &run.record, &open.drive, *r))
                    .collect();
                match cards {
                    Ok(cards) => {
                        self.append(id, cards)?;
                    }
                    Err(error) => {
                        self.append(id, vec![Control::Failed { reason: error.to_string() }])?;
                    }
                }
                Ok(true)
            }
            Next::End(status) => {
                self.append(id, vec![Control::Ended { status }])?;
                Ok(true)
            }
            Next::Fail(reason) => {
                self.append(id, vec![Control::Failed { reason: redact(&reason) }])?;
                Ok(true)
            }
            Next::Launch => {
                self.launch(id)?;
                Ok(false)
            }
        }
    }

    /// A step that could not be recorded is tried again; the run does not move
    /// before it is.
    pub(super) fn trouble(&mut self, id: &RunId, error: &CoreError) {
        self.note_trouble(id, error);
        self.due.push((Instant::now() + limits::RETRY_WRITE, Due::Advance(id.clone())));
    }

    pub(super) fn note_trouble(&mut self, id: &RunId, error: &CoreError) {
        tracing::error!(run = %id, error = %chain(error), "a run's next step could not be recorded");
        if let CoreError::Store(store) = error
            && store.is_no_room()
        {
            self.no_room = Some(store.to_string());
        }
    }

    pub(super) fn launch(&mut self, id: &RunId) -> Result<(), CoreError> {
        self.refresh_port(id)?;
        let token = match mint_token() {
            Ok(token) => token,
            Err(error) => {
                let reason = format!("the system gives no random bytes: {error}");
                return self.append(id, vec![Control::Failed { reason }]);
            }
        };
        self.with_open(id, |open| {
            open.dir.clear_cancel()?;
            open.dir.remove_attestation()?;
            open.dir.write_token(&token)?;
            open.progress_at_launch = open.drive.progress;
            Ok(())
        })?;
        if let Err(error) = self.muzzle.admit(&token, id) {
            // Without Muzzle the worker meets a closed door and says so; a
            // restart of Muzzle admits the token again.
            tracing::warn!(run = %id, %error, "the run's bearer could not be admitted");
        }
        let Ok(run_id) = protocol::RunId::new(id.as_str()) else {
            return self.append(
                id,
                vec![Control::Failed { reason: "the launcher refuses this run id".to_owned() }],
            );
        };
        let attempt = self.runs.get(id).map_or(1, |run| run.state.launches + 1);
        self.append(id, vec![Control::Launched { attempt }])?;
        let seq = self.next_seq();
        self.pending.insert(seq, Pending::Spawn(id.clone()));
        self.send(&protocol::Request::WorkerSpawn { seq, run_id });
        Ok(())
    }

    /// The listener's port may have changed since the run was created.
    pub(super) fn refresh_port(&mut self, id: &RunId) -> Result<(), CoreError> {
        let models = self.state.models()?;
        let Some(run) = self.runs.get(id) else { return Err(CoreError::NoRun(id.clone())) };
        let port = models
            .models
            .iter()
            .find(|m| m.name == run.record.model.name)
            .and_then(|m| self.muzzle.port(m));
        let Some(port) = port.filter(|port| *port != run.record.model.port) else { return Ok(()) };
        let mut record = run.record.clone();
        record.model.port = port;
        self.with_open(id, |open| open.dir.write_record(&record))?;
        if let Some(run) = self.runs.get_mut(id) {
            run.record = record;
        }
        Ok(())
    }

    pub(super) fn signal(&mut self, id: &RunId, signal: WorkerSignal) {
        if let Ok(run_id) = protocol::RunId::new(id.as_str()) {
            let seq = self.next_seq();
            self.pending.insert(seq, Pending::Signal);
            self.send(&protocol::Request::WorkerSignal { seq, run_id, signal });
        }
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub(super) fn send(&self, request: &protocol::Request) {
        if let Err(error) = self.broker.send(request) {
            tracing::error!(%error, verb = request.verb(), "the launcher could not be asked");
        }
    }
}
