//! The two append-only logs of a run and the line format they share.
//!
//! `control.jsonl` has one writer, the control plane; `worker/events.jsonl`
//! has one writer, the worker, and everything in it is a claim. A line is
//! `{"v":1,"seq":N,"at":MILLIS,"entry":{"<name>":{…}}}` and ends in `\n`.
//! `seq` starts at 1 and grows by one. A reader meets entries of newer
//! programs as [`Line::Unknown`] and keeps going; a line that is no JSON, or
//! whose `seq` does not follow, is damage.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::approval::Card;
use crate::denial::Denial;
use crate::id::Millis;
use crate::record::{ApprovalMode, Source};

/// The line version this program writes.
pub const LINE_VERSION: u32 = 1;

/// One decoded entry with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<T> {
    pub seq: u64,
    pub at: Millis,
    pub body: T,
}

/// What a line of a log turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<T> {
    Known(Entry<T>),
    /// Written by a newer program.
    Unknown {
        seq: u64,
        name: String,
    },
}

impl<T> Line<T> {
    pub fn seq(&self) -> u64 {
        match self {
            Self::Known(entry) => entry.seq,
            Self::Unknown { seq, .. } => *seq,
        }
    }
}

/// Why a line is damage.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("is no log line: {source}")]
    NotALine { source: serde_json::Error },
    #[error("has sequence number {found} where {wanted} follows")]
    OutOfSequence { found: u64, wanted: u64 },
}

#[derive(Deserialize)]
struct RawLine<'a> {
    seq: u64,
    at: Millis,
    #[serde(borrow)]
    entry: &'a serde_json::value::RawValue,
}

#[derive(Serialize)]
struct OutLine<'a, T> {
    v: u32,
    seq: u64,
    at: Millis,
    entry: &'a T,
}

/// Encodes one line, the newline included.
pub fn encode_line<T: Serialize>(
    seq: u64,
    at: Millis,
    body: &T,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&OutLine { v: LINE_VERSION, seq, at, entry: body })?;
    line.push(b'\n');
    Ok(line)
}

/// Decodes one line without its newline; `wanted` is the number that follows.
pub fn decode_line<T: DeserializeOwned>(line: &[u8], wanted: u64) -> Result<Line<T>, LineError> {
    let raw: RawLine<'_> =
        serde_json::from_slice(line).map_err(|source| LineError::NotALine { source })?;
    if raw.seq != wanted {
        return Err(LineError::OutOfSequence { found: raw.seq, wanted });
    }
    Ok(match serde_json::from_str::<T>(raw.entry.get()) {
        Ok(body) => Line::Known(Entry { seq: raw.seq, at: raw.at, body }),
        Err(_) => Line::Unknown { seq: raw.seq, name: entry_name(raw.entry.get()) },
    })
}

/// The name an entry of unknown shape goes by: its only key, or itself.
fn entry_name(json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    match value.as_str() {
        Some(name) => name.to_owned(),
        None => {
            value.as_object().and_then(|fields| fields.keys().next().cloned()).unwrap_or_default()
        }
    }
}

/// A person's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approve,
    Deny,
    /// The text given to a question the agent asked.
    Answer(String),
}

/// How a worker process ended, as the launcher saw it. Recorded for people;
/// the outcome of a run comes from its logs alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    Code(i32),
    Signal(i32),
    /// The launcher was restarted and knows no such worker any more.
    Lost,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndStatus {
    Done,
    Cancelled,
}

/// Entries of `control.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// A human-side message.
    Turn {
        text: String,
        #[serde(default)]
        speaker: Option<String>,
        source: Source,
        /// Images are counted here; their bytes lie in blobs by digest.
        #[serde(default)]
        images: u32,
    },
    /// A message to a run that is under way.
    Steer {
        text: String,
        speaker: Option<String>,
    },
    /// The card a person sees for the worker's request `request`.
    Asked {
        request: u64,
        card: Box<Card>,
        digest: String,
    },
    Decided {
        request: u64,
        digest: String,
        verdict: Verdict,
        by: String,
        reason: Option<String>,
    },
    /// `control.json` was replaced.
    Policy {
        generation: u64,
        approvals: ApprovalMode,
        by: String,
    },
    Launched {
        attempt: u32,
    },
    Gone {
        how: Gone,
    },
    /// Somebody asked for the run to stop.
    Cancel {
        by: String,
    },
    Failed {
        reason: String,
    },
    Ended {
        status: EndStatus,
    },
    /// Bytes after the last whole line of this log were set aside.
    TornTail {
        bytes: u64,
        kept_as: String,
    },
}

/// Tokens of one model call as the provider reported them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
}

/// One call inside an assistant turn, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The provider's id, unique within the run.
    pub id: String,
    pub tool: String,
    /// JSON text, not yet validated, with credential shapes masked.
    pub arguments: String,
    /// Blob with the text as the model wrote it, where masking changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    /// The tool ran and failed, or the arguments did not fit it.
    Error,
    /// A guard or a person refused it.
    Denied,
    /// Started, and the worker was interrupted before it knew the result.
    Unknown,
    /// Not run: the person sent a new instruction first.
    Skipped,
}

/// A claim of what confines the worker; the observed counterpart is
/// `attestation.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    pub profile: String,
    pub boundary: String,
    pub subject: String,
    pub uid: u32,
    pub cap_eff: String,
    pub cap_bnd: String,
    pub no_new_privs: bool,
    /// 0 when no Landlock layer was applied.
    pub landlock_abi: u32,
    pub seccomp: bool,
    /// What is not enforced here, each with consequence and remedy.
    pub missing: Vec<String>,
    pub cgroup: String,
    /// `unfiltered` where Leash does not bind the run.
    pub egress: String,
    pub muzzle_routed: bool,
    pub muzzle_inspected: bool,
    pub cli_runtime: bool,
}

/// A file state kept so that an edit can be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Workspace-relative path.
    pub path: String,
    /// Blob with the bytes before, `None` when the file did not exist.
    pub before: Option<String>,
    /// SHA-256 of the bytes after.
    pub after: String,
}

/// How the worker says a drive ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Done { text: String },
    Failed { reason: String },
    Cancelled,
}

/// Entries of `worker/events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Control entries up to this number are part of the conversation from here.
    Consumed {
        control_seq: u64,
    },
    SecurityAttestation(Box<Attestation>),
    /// One assistant turn with all its calls.
    Assistant {
        step: u32,
        text: String,
        #[serde(default)]
        reasoning: String,
        calls: Vec<Call>,
        model: String,
        usage: Usage,
        stop: String,
        /// SHA-256 of the request body that was sent.
        prompt_digest: String,
        policy_generation: u64,
    },
    ModelError {
        attempt: u32,
        why: String,
    },
    /// Durable before an effect that needs no approval begins.
    CallStarted {
        call: String,
        tool: String,
    },
    /// The worker cannot go on without a person. `seq` of this entry is the
    /// request's number.
    ApprovalRequested {
        call: String,
        tool: String,
        arguments: serde_json::Value,
        rule: String,
        why: String,
        /// What changed since an earlier approval of the same call.
        #[serde(default)]
        drift: Vec<String>,
    },
    /// Last entry before the worker exits to wait for these requests.
    Waiting {
        requests: Vec<u64>,
    },
    /// Durable before an approved effect begins.
    ApprovalApplied {
        call: String,
        request: u64,
        digest: String,
    },
    Result {
        call: String,
        tool: String,
        outcome: Outcome,
        text: String,
        /// Whole output as a blob where `text` had to be cut.
        #[serde(default)]
        blob: Option<String>,
        #[serde(default)]
        changes: Vec<Change>,
    },
    GuardrailBlock(Denial),
    /// A machine-written message to the model: a correction, a nudge.
    Note {
        text: String,
    },
    /// Bytes after the last whole line were set aside.
    TornTail {
        bytes: u64,
        kept_as: String,
    },
    Finished(Finish),
}

impl Event {
    /// The name of the entry as it stands in the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Consumed { .. } => "consumed",
            Self::SecurityAttestation(_) => "security_attestation",
            Self::Assistant { .. } => "assistant",
            Self::ModelError { .. } => "model_error",
            Self::CallStarted { .. } => "call_started",
            Self::ApprovalRequested { .. } => "approval_requested",
            Self::Waiting { .. } => "waiting",
            Self::ApprovalApplied { .. } => "approval_applied",
            Self::Result { .. } => "result",
            Self::GuardrailBlock(_) => "guardrail_block",
            Self::Note { .. } => "note",
            Self::TornTail { .. } => "torn_tail",
            Self::Finished(_) => "finished",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_as_it_was_written() {
        let body = Control::Steer { text: "smaller".to_owned(), speaker: None };
        let line = encode_line(7, Millis(42), &body).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        let decoded: Line<Control> = decode_line(&line[..line.len() - 1], 7).unwrap();
        assert_eq!(decoded, Line::Known(Entry { seq: 7, at: Millis(42), body }));
    }

    #[test]
    fn an_entry_of_a_newer_program_is_kept_as_unknown() {
        let line = br#"{"v":9,"seq":1,"at":0,"entry":{"teleported":{"to":"mars"}}}"#;
        let decoded: Line<Control> = decode_line(line, 1).unwrap();
        assert_eq!(decoded, Line::Unknown { seq: 1, name: "teleported".to_owned() });
    }

    #[test]
    fn a_gap_and_garbage_are_damage() {
        let line = encode_line(2, Millis(0), &Event::Waiting { requests: vec![1] }).unwrap();
        assert!(matches!(
            decode_line::<Event>(&line, 3),
            Err(LineError::OutOfSequence { found: 2, wanted: 3 })
        ));
        assert!(matches!(
            decode_line::<Event>(b"{\"v\":1,\"se", 1),
            Err(LineError::NotALine { .. })
        ));
    }
}
