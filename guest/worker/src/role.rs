//! The life of a worker process, from a single-threaded start to its last
//! entry: read the snapshot, fork the tool host, narrow itself, lock its log,
//! attest, drive.
//!
//! It gets one argument, the run id, and `SENTINEL_RUN`, the run's directory.
//! The run's outcome stands in its log; the exit code is for people reading
//! the worker log.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use domain::action::Policy;
use domain::log::{Event, Finish};
use domain::record::RunRecord;
use store::{OpenedHalf, StoreError, WorkerHalf, clock};

use crate::attest::attest;
use crate::driver::{Driver, Parts};
use crate::host::{HostError, ToolHost};
use crate::model::Model;
use crate::sandbox::{BaseLayer, confine_worker};
use crate::workspace::Workspace;

/// Exit code of a worker that could not write for lack of room: nothing is
/// wrong with the run, and it goes on once there is some (`EX_TEMPFAIL`).
pub const EXIT_NO_ROOM: u8 = 75;

/// A worker that could not begin or go on.
#[derive(Debug, thiserror::Error)]
enum RoleError {
    #[error("SENTINEL_RUN is not set; a worker is started by the launcher, not by hand")]
    NoRun,
    #[error("the run directory {path} is not that of run {id}", path = .path.display())]
    OtherRun { path: PathBuf, id: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the tool host was lost while it started")]
    HostLost(#[source] HostError),
    /// Recorded on the run before this is returned.
    #[error("{0}")]
    Refused(String),
}

/// The whole body of `sentinel worker <run-id>`.
pub fn run_role(run_id: &str) -> ExitCode {
    match drive(run_id) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The worker log is the only place left to say it.
            let _unwritable = writeln!(std::io::stderr(), "worker {run_id}: {error}");
            match error {
                RoleError::Store(error) if error.is_no_room() => ExitCode::from(EXIT_NO_ROOM),
                RoleError::NoRun
                | RoleError::OtherRun { .. }
                | RoleError::Store(_)
                | RoleError::HostLost(_)
                | RoleError::Refused(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn drive(run_id: &str) -> Result<(), RoleError> {
    let path = PathBuf::from(std::env::var_os("SENTINEL_RUN").ok_or(RoleError::NoRun)?);
    let record = WorkerHalf::record(&path)?;
    if record.id.as_str() != run_id {
        return Err(RoleError::OtherRun { path, id: run_id.to_owned() });
    }
    match prepare(&path, &record) {
        Ok(prepared) => {
            prepared.driver.run(prepared.first)?;
            Ok(())
        }
        Err(RoleError::Refused(why)) => {
            refuse(&path, &why)?;
            Err(RoleError::Refused(why))
        }
        Err(error) => Err(error),
    }
}

struct Prepared {
    driver: Driver,
    /// The first entries of this drive.
    first: Vec<Event>,
}

fn prepare(path: &Path, record: &RunRecord) -> Result<Prepared, RoleError> {
    let refused =
        |what: &str, error: &dyn std::fmt::Display| RoleError::Refused(format!("{what}: {error}"));
    let workspace_path = PathBuf::from(&record.workspace);
    let workspace = Workspace::open(&workspace_path)
        .map_err(|e| refused("workspace_unwritable", &format!("{}: {e}", record.workspace)))?;
    let base = BaseLayer {
        run_dir: path.to_owned(),
        workspace: workspace_path.clone(),
        read: record.grants.read.iter().map(PathBuf::from).collect(),
        write: Vec::new(),
    };
    // One thread until confinement is complete: a layer covers one thread.
    let host = fork_host(&base)?;
    let applied = host.base().clone();
    let OpenedHalf { half, read, torn } = WorkerHalf::open(path)?;
    // Read after the fork, so that the tool host never holds it.
    let token = half.token()?;
    let confinement = confine_worker(path, &workspace_path, record.model.port)
        .map_err(|e| refused("the worker could not be confined", &e))?;
    if record.profile.is_strict() && !applied.fs {
        return Err(RoleError::Refused(
            "security_preflight_failed: landlock: the kernel applied no file sandbox".to_owned(),
        ));
    }
    let policy = Policy::load(&record.rules).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        RoleError::Refused(format!("the action rules cannot be used: {}", problems.join("; ")))
    })?;
    let model = Model::new(&record.model, token).map_err(|e| refused("model", &e))?;
    let mut first: Vec<Event> = Vec::new();
    first.extend(torn.map(|torn| Event::TornTail { bytes: torn.bytes, kept_as: torn.kept_as }));
    first.push(Event::SecurityAttestation(Box::new(attest(record, &applied, &confinement))));
    let parts = Parts {
        record: record.clone(),
        half,
        events: read.entries,
        workspace,
        host,
        model,
        policy,
    };
    Ok(Prepared { driver: Driver::new(parts)?, first })
}

/// A host that died while it started says nothing about the run: the worker
/// ends and is launched again.
fn fork_host(base: &BaseLayer) -> Result<ToolHost, RoleError> {
    ToolHost::fork(base).map_err(|error| {
        if matches!(error, HostError::Gone | HostError::Unresponsive) {
            RoleError::HostLost(error)
        } else {
            RoleError::Refused(format!("the tool host could not start: {error}"))
        }
    })
}

/// Records on the run that it cannot be driven.
fn refuse(path: &Path, why: &str) -> Result<(), StoreError> {
    let OpenedHalf { half, .. } = WorkerHalf::open(path)?;
    let control = half.control_after(0)?;
    let consumed = control.last().map_or(0, |entry| entry.seq);
    half.append(
        clock::now(),
        &[
            Event::Consumed { control_seq: consumed },
            Event::Finished(Finish::Failed { reason: why.to_owned() }),
        ],
    )?;
    Ok(())
}
