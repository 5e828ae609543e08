//! The control plane's side of one run directory: it writes the control half
//! and reads the worker half as a claim by a stranger.
//!
//! ```text
//! runs/<subject>/<id>/   run.json  control.jsonl  control.json  attestation.json  cancel  token
//!                 worker/ events.jsonl  state.json  blobs/<sha256>
//! ```

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use domain::id::{Millis, RunId, Subject};
use domain::log::{Control, Event};
use domain::record::{ApprovalMode, PolicyRecord, RunRecord};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::beneath::{self, Expect};
use crate::log::{Log, OpenedLog, ReadLog, read_log};
use crate::{StoreError, durable, limits};

pub(crate) const RUN_FILE: &str = "run.json";
pub(crate) const CONTROL_LOG: &str = "control.jsonl";
pub(crate) const POLICY_FILE: &str = "control.json";
pub(crate) const ATTESTATION_FILE: &str = "attestation.json";
pub(crate) const CANCEL_FILE: &str = "cancel";
pub(crate) const TOKEN_FILE: &str = "token";
pub(crate) const WORKER_HALF: &str = "worker";
pub(crate) const EVENT_LOG: &str = "events.jsonl";
pub(crate) const BLOBS: &str = "blobs";

/// Whose files a worker half must hold.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HalfOwner {
    /// Everything has one uid.
    AnyOfOne,
    Account(u32),
    /// The launcher has not said yet: nothing is read.
    Unknown,
}

/// One run's directory, opened by the control plane.
#[derive(Debug)]
pub struct RunDir {
    dir: OwnedFd,
    path: PathBuf,
    id: RunId,
    subject: Subject,
    /// Mode of control-half files.
    mode: u32,
    owner: HalfOwner,
}

impl RunDir {
    pub(crate) fn new(
        dir: OwnedFd,
        path: PathBuf,
        id: RunId,
        subject: Subject,
        mode: u32,
        owner: HalfOwner,
    ) -> Self {
        Self { dir, path, id, subject, mode, owner }
    }

    pub fn id(&self) -> &RunId {
        &self.id
    }

    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `run.json`.
    pub fn record(&self) -> Result<RunRecord, StoreError> {
        read_json(self.dir.as_fd(), &self.path, RUN_FILE, "a run record")
    }

    pub fn write_record(&self, record: &RunRecord) -> Result<(), StoreError> {
        self.write_json(RUN_FILE, record)
    }

    /// Starts the control log anew with its first entries.
    pub(crate) fn begin_control(
        &self,
        at: Millis,
        first: &[Control],
    ) -> Result<Log<Control>, StoreError> {
        self.remove(CONTROL_LOG)?;
        let log = self.open_control()?.log;
        if !first.is_empty() {
            log.append(at, first)?;
        }
        Ok(log)
    }

    /// Opens the control log as its one writer.
    pub fn open_control(&self) -> Result<OpenedLog<Control>, StoreError> {
        let expect = Expect { uid: None, limit: limits::CONTROL_LOG_BYTES };
        Log::open(self.dir.as_fd(), CONTROL_LOG, &self.path, self.mode, expect)
    }

    /// Reads the control log without becoming its writer.
    pub fn read_control(&self) -> Result<ReadLog<Control>, StoreError> {
        let expect = Expect { uid: None, limit: limits::CONTROL_LOG_BYTES };
        read_log_file(self.dir.as_fd(), &self.path, CONTROL_LOG, expect)
    }

    /// `control.json`; `None` when it is missing.
    pub fn policy(&self) -> Result<Option<PolicyRecord>, StoreError> {
        read_policy(self.dir.as_fd(), &self.path)
    }

    pub fn write_policy(&self, policy: &PolicyRecord) -> Result<(), StoreError> {
        self.write_json(POLICY_FILE, policy)
    }

    /// What launcher and gate observed, as JSON.
    pub fn write_attestation(&self, observed: &impl Serialize) -> Result<(), StoreError> {
        self.write_json(ATTESTATION_FILE, observed)
    }

    /// Removed before a launch: a worker starts no tool until the next one is
    /// there.
    pub fn remove_attestation(&self) -> Result<(), StoreError> {
        self.remove(ATTESTATION_FILE)
    }

    /// The open control log, for following it.
    pub fn open_control_for_reading(&self) -> Result<Option<File>, StoreError> {
        let expect = Expect { uid: None, limit: limits::CONTROL_LOG_BYTES };
        open_optional(self.dir.as_fd(), &self.path, CONTROL_LOG, expect)
    }

    /// The directory itself, for watching it.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// `attestation.json` as it stands, for showing.
    pub fn attestation(&self) -> Result<serde_json::Value, StoreError> {
        read_json(self.dir.as_fd(), &self.path, ATTESTATION_FILE, "an attestation")
    }

    /// The bearer for this launch.
    pub fn write_token(&self, token: &str) -> Result<(), StoreError> {
        self.put(TOKEN_FILE, token.as_bytes())
    }

    /// The bearer of the present launch; `None` when there is none.
    pub fn token(&self) -> Result<Option<String>, StoreError> {
        let expect = Expect { uid: None, limit: 1024 };
        let Some(file) = open_optional(self.dir.as_fd(), &self.path, TOKEN_FILE, expect)? else {
            return Ok(None);
        };
        let path = self.path.join(TOKEN_FILE);
        let io = |source| StoreError::Io { act: "read", path: path.clone(), source };
        let bytes = beneath::read_all(&file, expect.limit).map_err(io)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub fn remove_token(&self) -> Result<(), StoreError> {
        self.remove(TOKEN_FILE)
    }

    /// Tells the worker at its next gate that the run is to stop.
    pub fn request_cancel(&self) -> Result<(), StoreError> {
        self.put(CANCEL_FILE, b"")
    }

    pub fn clear_cancel(&self) -> Result<(), StoreError> {
        self.remove(CANCEL_FILE)
    }

    /// The worker half, for reading.
    pub fn worker(&self) -> Result<WorkerReader, StoreError> {
        let path = self.path.join(WORKER_HALF);
        let uid = match self.owner {
            HalfOwner::AnyOfOne => None,
            HalfOwner::Account(uid) => Some(uid),
            HalfOwner::Unknown => {
                let what = format!("the account of {} is not known yet", self.subject);
                return Err(StoreError::Foreign { path, what });
            }
        };
        let dir = beneath::open_dir_at(self.dir.as_fd(), WORKER_HALF)
            .map_err(|source| StoreError::Io { act: "open", path: path.clone(), source })?;
        Ok(WorkerReader { dir, path, uid })
    }

    pub(crate) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|source| StoreError::Format {
            path: self.path.join(name),
            what: "JSON",
            source,
        })?;
        bytes.push(b'\n');
        self.put(name, &bytes)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        durable::replace(self.dir.as_fd(), name, bytes, self.mode)
            .map_err(|source| StoreError::Io { act: "write", path: self.path.join(name), source })
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        durable::remove(self.dir.as_fd(), name).map_err(|source| StoreError::Io {
            act: "remove",
            path: self.path.join(name),
            source,
        })
    }
}

/// The worker half as the control plane sees it: claims, opened with care.
#[derive(Debug)]
pub struct WorkerReader {
    dir: OwnedFd,
    path: PathBuf,
    uid: Option<u32>,
}

impl WorkerReader {
    /// Every event so far; an absent log is an empty one.
    pub fn events(&self) -> Result<ReadLog<Event>, StoreError> {
        let expect = Expect { uid: self.uid, limit: limits::WORKER_LOG_BYTES };
        read_log_file(self.dir.as_fd(), &self.path, EVENT_LOG, expect)
    }

    /// The open log, for following it; `None` before the worker made it.
    pub fn open_events(&self) -> Result<Option<File>, StoreError> {
        let expect = Expect { uid: self.uid, limit: limits::WORKER_LOG_BYTES };
        open_optional(self.dir.as_fd(), &self.path, EVENT_LOG, expect)
    }

    /// A blob by its digest; the bytes must hash to it.
    pub fn blob(&self, sha256: &str) -> Result<Vec<u8>, StoreError> {
        let dir = beneath::open_dir_at(self.dir.as_fd(), BLOBS).map_err(|source| {
            StoreError::Io { act: "open", path: self.path.join(BLOBS), source }
        })?;
        let expect = Expect { uid: self.uid, limit: limits::BLOB_BYTES };
        read_blob(dir.as_fd(), &self.path.join(BLOBS), sha256, expect)
    }

    /// The directory itself, for watching it.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

pub(crate) fn read_blob(
    dir: BorrowedFd<'_>,
    shown: &Path,
    sha256: &str,
    expect: Expect,
) -> Result<Vec<u8>, StoreError> {
    let path = shown.join(sha256);
    if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(StoreError::NotFound { what: "blob", name: sha256.to_owned() });
    }
    let io = |source| StoreError::Io { act: "read", path: path.clone(), source };
    let file = beneath::open_regular(dir, sha256, expect).map_err(io)?;
    let bytes = beneath::read_all(&file, expect.limit).map_err(io)?;
    if domain::approval::sha256_hex(&bytes) == sha256 {
        Ok(bytes)
    } else {
        Err(StoreError::Foreign { path, what: "its bytes do not hash to its name".to_owned() })
    }
}

pub(crate) fn open_optional(
    dir: BorrowedFd<'_>,
    shown: &Path,
    name: &str,
    expect: Expect,
) -> Result<Option<File>, StoreError> {
    match beneath::open_regular(dir, name, expect) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
        Err(source) => Err(StoreError::Io { act: "open", path: shown.join(name), source }),
    }
}

pub(crate) fn read_log_file<T: DeserializeOwned>(
    dir: BorrowedFd<'_>,
    shown: &Path,
    name: &str,
    expect: Expect,
) -> Result<ReadLog<T>, StoreError> {
    match open_optional(dir, shown, name, expect)? {
        Some(file) => read_log(&file, &shown.join(name)),
        None => Ok(ReadLog::default()),
    }
}

/// Reads a record file of our own.
pub(crate) fn read_json<T: DeserializeOwned>(
    dir: BorrowedFd<'_>,
    shown: &Path,
    name: &str,
    what: &'static str,
) -> Result<T, StoreError> {
    let path = shown.join(name);
    let io = |source| StoreError::Io { act: "read", path: path.clone(), source };
    let expect = Expect { uid: None, limit: limits::RECORD_BYTES };
    let file = beneath::open_regular(dir, name, expect).map_err(io)?;
    let bytes = beneath::read_all(&file, expect.limit).map_err(io)?;
    serde_json::from_slice(&bytes).map_err(|source| StoreError::Format { path, what, source })
}

/// The policy record: `None` when missing, an error when unreadable.
pub(crate) fn read_policy(
    dir: BorrowedFd<'_>,
    shown: &Path,
) -> Result<Option<PolicyRecord>, StoreError> {
    match read_json(dir, shown, POLICY_FILE, "a policy record") {
        Ok(policy) => Ok(Some(policy)),
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The mode in force and its generation: a missing record means the mode at
/// creation, an unreadable or corrupt one means [`ApprovalMode::Queue`].
pub(crate) fn effective_policy(
    read: &Result<Option<PolicyRecord>, StoreError>,
    created: ApprovalMode,
) -> (ApprovalMode, u64) {
    match read {
        Ok(Some(policy)) => (policy.approvals, policy.generation),
        Ok(None) => (created, 0),
        Err(_) => (ApprovalMode::Queue, 0),
    }
}
