//! Runs of the flat layout of older versions, `runs/<id>/{state.json,
//! events.jsonl}`: read for listing and showing, never written.

use std::os::fd::BorrowedFd;
use std::path::Path;

use domain::id::RunId;
use serde::Deserialize;

use crate::beneath::Expect;
use crate::run_dir::{open_optional, read_json};
use crate::{StoreError, limits};

pub(crate) const STATE_FILE: &str = "state.json";

/// `state.json` of a flat run. Unknown fields are kept by leaving the file
/// alone.
#[derive(Debug, Clone, Deserialize)]
pub struct LegacyState {
    #[serde(default)]
    pub agent: Option<String>,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub messages: Vec<LegacyMessage>,
    /// Seconds since 1970 or a text; shown as it is.
    #[serde(default)]
    pub created: serde_json::Value,
    #[serde(default)]
    pub owner: Option<String>,
    #[serde(default)]
    pub kind: Option<String>,
}

/// One message of a flat run.
#[derive(Debug, Clone, Deserialize)]
pub struct LegacyMessage {
    pub role: String,
    #[serde(default)]
    pub content: serde_json::Value,
    #[serde(default)]
    pub speaker: Option<String>,
}

/// A flat run.
#[derive(Debug, Clone)]
pub struct LegacyRun {
    pub id: RunId,
    /// `None` when the file is empty or damaged: the run is listed all the same.
    pub state: Option<LegacyState>,
}

pub(crate) fn read(
    dir: BorrowedFd<'_>,
    path: &Path,
    id: RunId,
) -> Result<Option<LegacyRun>, StoreError> {
    let expect = Expect { uid: None, limit: limits::RECORD_BYTES };
    if open_optional(dir, path, STATE_FILE, expect)?.is_none() {
        return Ok(None);
    }
    let state = read_json(dir, path, STATE_FILE, "a run of an older version").ok();
    Ok(Some(LegacyRun { id, state }))
}
