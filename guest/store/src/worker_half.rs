//! The worker's side of its run: it reads the control half, and is the only
//! writer of `worker/`, torn-tail repair included. The write lock on its event
//! log keeps a second worker out; it says nothing about who is alive.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use domain::approval::sha256_hex;
use domain::id::Millis;
use domain::log::{Control, Entry, Event};
use domain::record::{ApprovalMode, RunRecord};
use serde::Serialize;

use crate::beneath::{self, Expect};
use crate::log::{Log, OpenedLog, ReadLog, Torn};
use crate::run_dir::{
    ATTESTATION_FILE, BLOBS, CANCEL_FILE, CONTROL_LOG, EVENT_LOG, RUN_FILE, TOKEN_FILE,
    WORKER_HALF, effective_policy, read_json, read_log_file, read_policy,
};
use crate::{StoreError, durable, limits};

/// Mode of the worker's files: the default ACL's mask must stay open for the
/// control plane, so group bits are set.
const FILE_MODE: u32 = 0o660;

/// A run as its worker sees it.
pub struct WorkerHalf {
    run: OwnedFd,
    path: PathBuf,
    worker: OwnedFd,
    blobs: OwnedFd,
    log: Log<Event>,
}

/// The worker half just opened by its writer.
pub struct OpenedHalf {
    pub half: WorkerHalf,
    pub read: ReadLog<Event>,
    pub torn: Option<Torn>,
}

impl WorkerHalf {
    /// Reads `run.json` in `path` without touching anything.
    pub fn record(path: &Path) -> Result<RunRecord, StoreError> {
        let run = open_run(path)?;
        read_json(run.as_fd(), path, RUN_FILE, "a run record")
    }

    /// Becomes the one writer of the worker half: locks and reads the event
    /// log, and sets a torn tail aside.
    pub fn open(path: &Path) -> Result<OpenedHalf, StoreError> {
        let run = open_run(path)?;
        let shown = path.join(WORKER_HALF);
        let io = |act| {
            let path = shown.clone();
            move |source: std::io::Error| StoreError::Io { act, path, source }
        };
        let worker = beneath::open_dir_at(run.as_fd(), WORKER_HALF).map_err(io("open"))?;
        #[cfg(feature = "crash-points")]
        arm_crash_points(worker.as_fd());
        durable::create_dir(worker.as_fd(), BLOBS, 0o770).map_err(io("create blobs in"))?;
        let blobs = beneath::open_dir_at(worker.as_fd(), BLOBS).map_err(io("open blobs in"))?;
        let expect = Expect { uid: None, limit: limits::WORKER_LOG_BYTES };
        let OpenedLog { log, read, torn } =
            Log::open_locked(worker.as_fd(), EVENT_LOG, &shown, FILE_MODE, expect)?;
        let half = Self { run, path: path.to_owned(), worker, blobs, log };
        Ok(OpenedHalf { half, read, torn })
    }

    /// Appends events as one write and returns the number of the first.
    pub fn append(&self, at: Millis, events: &[Event]) -> Result<u64, StoreError> {
        self.log.append(at, events)
    }

    /// Control entries with a number above `after`.
    pub fn control_after(&self, after: u64) -> Result<Vec<Entry<Control>>, StoreError> {
        let expect = Expect { uid: None, limit: limits::CONTROL_LOG_BYTES };
        let mut log = read_log_file::<Control>(self.run.as_fd(), &self.path, CONTROL_LOG, expect)?;
        log.entries.retain(|entry| entry.seq > after);
        Ok(log.entries)
    }

    /// Bytes of the control log now: unchanged means nothing new to read.
    pub fn control_length(&self) -> u64 {
        rustix::fs::statat(&self.run, CONTROL_LOG, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// The approval mode in force now and its generation.
    pub fn policy(&self, created: ApprovalMode) -> (ApprovalMode, u64) {
        effective_policy(&read_policy(self.run.as_fd(), &self.path), created)
    }

    pub fn cancelled(&self) -> bool {
        self.has(CANCEL_FILE)
    }

    /// The control plane has recorded what the launcher observed.
    pub fn attested(&self) -> bool {
        self.has(ATTESTATION_FILE)
    }

    fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.run, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// The bearer for this launch's model calls.
    pub fn token(&self) -> Result<String, StoreError> {
        let path = self.path.join(TOKEN_FILE);
        let io = |source| StoreError::Io { act: "read", path: path.clone(), source };
        let expect = Expect { uid: None, limit: 1024 };
        let file = beneath::open_regular(self.run.as_fd(), TOKEN_FILE, expect).map_err(io)?;
        let bytes = beneath::read_all(&file, expect.limit).map_err(io)?;
        String::from_utf8(bytes)
            .map_err(|error| StoreError::Foreign { path, what: error.utf8_error().to_string() })
    }

    /// Keeps bytes under their SHA-256 and returns it.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let name = sha256_hex(bytes);
        durable::put_new(self.blobs.as_fd(), &name, bytes, FILE_MODE).map_err(|source| {
            StoreError::Io {
                act: "write",
                path: self.path.join(WORKER_HALF).join(BLOBS).join(&name),
                source,
            }
        })?;
        Ok(name)
    }

    pub fn blob(&self, sha256: &str) -> Result<Vec<u8>, StoreError> {
        let expect = Expect { uid: None, limit: limits::BLOB_BYTES };
        crate::run_dir::read_blob(self.blobs.as_fd(), &self.path.join(BLOBS), sha256, expect)
    }

    /// Replaces `state.json`, a cache a reader may ignore.
    pub fn write_state(&self, state: &impl Serialize) -> Result<(), StoreError> {
        let path = self.path.join(WORKER_HALF).join("state.json");
        let bytes = serde_json::to_vec(state).map_err(|source| StoreError::Format {
            path: path.clone(),
            what: "JSON",
            source,
        })?;
        durable::replace(self.worker.as_fd(), "state.json", &bytes, FILE_MODE)
            .map_err(|source| StoreError::Io { act: "write", path, source })
    }
}

fn open_run(path: &Path) -> Result<OwnedFd, StoreError> {
    beneath::open_dir(path).map_err(|source| StoreError::Io {
        act: "open",
        path: path.to_owned(),
        source,
    })
}

#[cfg(feature = "crash-points")]
fn arm_crash_points(worker: std::os::fd::BorrowedFd<'_>) {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    if let Ok(counter) =
        rustix::fs::openat(worker, ".crash-count", flags, Mode::from_raw_mode(FILE_MODE))
    {
        durable::crash::arm("worker", counter.into());
    }
}
