//! The messages between the launcher and the control plane.
//!
//! One JSON message is one datagram on a `SOCK_SEQPACKET` socket pair, at most [`MAX_DATAGRAM`]
//! bytes, with at most one descriptor attached. The control plane sends a [`Request`], the launcher
//! sends a [`Notice`]. This module holds the shapes and their checks; it opens and sends nothing.
//!
//! Order the launcher keeps on every (re)start of the control plane:
//!
//! 1. [`Notice::Hello`], which lists the live workers;
//! 2. one [`Notice::Live`] per worker of that list, in that order, each with the worker's pidfd;
//! 3. [`Notice::MuzzleStarted`] when Muzzle is running;
//! 4. one [`Notice::Exited`] per worker that ended while no control plane was there to be told;
//! 5. replies and further notices as they happen.
//!
//! A notice that was sent but not read before the control plane died is not sent again: the list in
//! `Hello` is the truth about what lives, and a run's outcome comes from its logs.

use std::fmt;

pub use crate::limits::{MAX_DATAGRAM, MAX_RUN_ID, MAX_SUBJECT};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the messages, sent in [`Notice::Hello`]. Both ends are one binary, so a difference
/// means that two builds were mixed.
pub const PROTOCOL_VERSION: u32 = 1;

/// What an agent account's name starts with, unless it is the head's.
const AGENT_PREFIX: &str = "leash-";

/// Why a name is not a run id or a subject.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The length is out of bounds.
    #[error("{kind} has {length} bytes, allowed are 1 to {limit}")]
    Length {
        /// What was named: `run id` or `subject`.
        kind: &'static str,
        /// Bytes given.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A character is outside the allowed set, or at a place where it is not allowed.
    #[error("{kind} {name:?} may not contain {found:?} at byte {at}")]
    Character {
        /// What was named: `run id` or `subject`.
        kind: &'static str,
        /// The name as given; its length is within the limit.
        name: String,
        /// The first character refused.
        found: char,
        /// Byte offset of that character.
        at: usize,
    },
    /// The subject is `leash-` with no agent after it.
    #[error("subject {name:?} names no agent")]
    NoAgent {
        /// The name as given.
        name: String,
    },
}

/// A run's id: one safe path component of 1 to 64 bytes from `[A-Za-z0-9._-]` that starts with
/// neither a dot (hidden, `..`) nor a dash (an option to any program it is handed to).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Checks `name`.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        check_name("run id", &name, MAX_RUN_ID, |at, found| {
            found.is_ascii_alphanumeric() || found == '_' || (at > 0 && matches!(found, '.' | '-'))
        })?;
        Ok(Self(name))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An agent account's name: `[a-z_][a-z0-9_-]{0,31}`. The head's is bare, all others start with
/// `leash-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subject(String);

impl Subject {
    /// Checks `name`.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        check_name("subject", &name, MAX_SUBJECT, |at, found| {
            found.is_ascii_lowercase()
                || found == '_'
                || (at > 0 && (found.is_ascii_digit() || found == '-'))
        })?;
        if name == AGENT_PREFIX {
            return Err(NameError::NoAgent { name });
        }
        Ok(Self(name))
    }

    /// The account name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The agent's name, which its directories carry: the subject without `leash-`.
    pub fn agent(&self) -> &str {
        self.0.strip_prefix(AGENT_PREFIX).unwrap_or(&self.0)
    }
}

macro_rules! text_conversions {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

text_conversions!(RunId);
text_conversions!(Subject);

fn check_name(
    kind: &'static str,
    name: &str,
    limit: usize,
    allowed: impl Fn(usize, char) -> bool,
) -> Result<(), NameError> {
    if name.is_empty() || name.len() > limit {
        return Err(NameError::Length { kind, length: name.len(), limit });
    }
    match name.char_indices().find(|(at, found)| !allowed(*at, *found)) {
        None => Ok(()),
        Some((at, found)) => Err(NameError::Character { kind, name: name.to_owned(), found, at }),
    }
}

/// What the control plane may ask for. The list is closed; a request carries no command, no path
/// and no uid. `seq` is the caller's number and comes back in [`Notice::Reply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Gives the subject a uid (if it has none) and prepares its workspace and memory bank. Asking
    /// again is harmless. Answered by [`Reply::AgentUser`].
    EnsureAgentUser {
        /// The caller's number for the reply.
        seq: u64,
        /// The account.
        subject: Subject,
    },
    /// Starts the worker of a run whose directory exists under exactly one account. Answered by
    /// [`Reply::Spawned`] with a pidfd.
    WorkerSpawn {
        /// The caller's number for the reply.
        seq: u64,
        /// The run; account, program and arguments follow from it.
        run_id: RunId,
    },
    /// Signals a live worker that the launcher started. Answered by [`Reply::Signalled`].
    WorkerSignal {
        /// The caller's number for the reply.
        seq: u64,
        /// The run.
        run_id: RunId,
        /// Which signal.
        signal: WorkerSignal,
    },
}

impl Request {
    /// The caller's number for the reply.
    pub fn seq(&self) -> u64 {
        match self {
            Self::EnsureAgentUser { seq, .. }
            | Self::WorkerSpawn { seq, .. }
            | Self::WorkerSignal { seq, .. } => *seq,
        }
    }

    /// The verb as it stands on the wire and in a [`Refusal`].
    pub fn verb(&self) -> &'static str {
        match self {
            Self::EnsureAgentUser { .. } => "ensure_agent_user",
            Self::WorkerSpawn { .. } => "worker_spawn",
            Self::WorkerSignal { .. } => "worker_signal",
        }
    }
}

/// The signals a worker may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerSignal {
    /// SIGTERM: finish the current record and leave.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// What the launcher tells the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum Notice {
    /// The first datagram of every (re)start.
    Hello {
        /// [`PROTOCOL_VERSION`] of the launcher.
        version: u32,
        /// How processes are kept apart.
        boundary: Boundary,
        /// The control plane's own uid.
        control_uid: u32,
        /// Muzzle's uid; the control plane's own when there is one uid.
        muzzle_uid: u32,
        /// True when `boundary` is [`Boundary::SingleUid`].
        single_uid: bool,
        /// Every worker that is alive now.
        live: Vec<LiveWorker>,
    },
    /// Carries the pidfd of a worker listed in `Hello`.
    Live {
        /// The run.
        run_id: RunId,
        /// The worker's process id.
        pid: u32,
        /// What the launcher saw when it started that worker.
        observed: Observed,
    },
    /// The answer to the request with the same `seq`.
    Reply {
        /// The number of the request.
        seq: u64,
        /// What was done, or the terms of the refusal.
        result: Result<Reply, Refusal>,
    },
    /// A worker is gone, and so is everything it left behind.
    Exited {
        /// The run.
        run_id: RunId,
        /// How the worker process itself ended.
        how: Exit,
    },
    /// Muzzle was started or restarted: it knows no configuration and no token yet.
    MuzzleStarted {
        /// Its process id.
        pid: u32,
    },
}

/// How processes are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// Control plane, Muzzle and every agent have a uid of their own.
    Separate,
    /// Everything runs as the person who started the launcher.
    SingleUid,
}

impl Boundary {
    /// The word used on the wire, in `SENTINEL_BOUNDARY` and in what people read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::SingleUid => "single-uid",
        }
    }
}

/// A live worker in [`Notice::Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveWorker {
    /// The run.
    pub run_id: RunId,
    /// The worker's process id; for display, the pidfd is what identifies the process.
    pub pid: u32,
}

/// What a request did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum Reply {
    /// The account exists and its directories are ready.
    AgentUser {
        /// Its uid, which is also its gid; the launcher's own with a single uid.
        uid: u32,
    },
    /// The worker runs. The datagram carries its pidfd.
    Spawned {
        /// The worker's process id.
        pid: u32,
        /// What the launcher saw in `/proc` after exec.
        observed: Observed,
    },
    /// The signal was delivered.
    Signalled,
}

/// What the launcher saw of a process in `/proc/<pid>` after it had executed the program. All ids
/// are the effective ones; real, saved and file system ids were equal, or the launch had failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities, one bit each.
    pub cap_eff: u64,
    /// Capability bounding set.
    pub cap_bnd: u64,
    /// Permitted capabilities.
    pub cap_prm: u64,
    /// Inheritable capabilities.
    pub cap_inh: u64,
    /// Ambient capabilities.
    pub cap_amb: u64,
    /// Whether exec can no longer gain privileges.
    pub no_new_privs: bool,
    /// SHA-256 of the running program in lower-case hex.
    pub exe_sha256: String,
}

/// How a worker process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Why a request was not carried out, in terms a person can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a refusal has to reach whoever asked"]
pub struct Refusal {
    /// The verb that was refused.
    pub verb: String,
    /// The rule that refused it, a stable kebab-case name.
    pub rule: String,
    /// What was found.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} refused ({}): {}; {}", self.verb, self.rule, self.why, self.remedy)
    }
}

/// Why a message could not be turned into a datagram or back.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// The message does not fit a datagram.
    #[error("message of {length} bytes is larger than a datagram of {MAX_DATAGRAM}")]
    TooLarge {
        /// Bytes of the message.
        length: usize,
    },
    /// The message could not be written as JSON.
    #[error("message could not be encoded")]
    Encode {
        /// What serde said.
        source: serde_json::Error,
    },
    /// The datagram is not a message of this version.
    #[error("datagram is not a message: {why}")]
    Malformed {
        /// The number of the request, where it could be read.
        seq: Option<u64>,
        /// What is wrong, without the datagram's own text beyond names of fields.
        why: String,
    },
}

/// Renders a message as one datagram.
pub fn encode<Message: Serialize>(message: &Message) -> Result<Vec<u8>, ProtocolError> {
    let bytes = serde_json::to_vec(message).map_err(|source| ProtocolError::Encode { source })?;
    if bytes.len() > MAX_DATAGRAM {
        return Err(ProtocolError::TooLarge { length: bytes.len() });
    }
    Ok(bytes)
}

/// Parses one datagram. A malformed one yields the `seq` it carried, if that much is readable, so
/// that the sender can be told.
pub fn decode<Message: DeserializeOwned>(datagram: &[u8]) -> Result<Message, ProtocolError> {
    if datagram.len() > MAX_DATAGRAM {
        return Err(ProtocolError::TooLarge { length: datagram.len() });
    }
    serde_json::from_slice(datagram).map_err(|error| ProtocolError::Malformed {
        seq: readable_seq(datagram),
        why: error.to_string(),
    })
}

fn readable_seq(datagram: &[u8]) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(datagram).ok()?.get("seq")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunId {
        RunId::new(name).unwrap()
    }

    fn observed() -> Observed {
        Observed {
            uid: 58_001,
            gid: 58_001,
            groups: vec![],
            cap_eff: 0,
            cap_bnd: 0,
            cap_prm: 0,
            cap_inh: 0,
            cap_amb: 0,
            no_new_privs: true,
            exe_sha256: "00".repeat(32),
        }
    }

    #[test]
    fn accepts_run_ids_that_are_one_safe_path_component() {
        for name in ["a", "0190b3c2-7d5e-7c1a-9f6e-2f1f0e0a4b7c", "2026.legacy_1", &"x".repeat(64)]
        {
            assert_eq!(run(name).as_str(), name);
        }
    }

    #[test]
    fn refuses_run_ids_that_could_be_paths_options_or_hidden() {
        for name in
            ["", ".", "..", ".hidden", "-rf", "--help", "a/b", "a\\b", "a b", "a\0", "ä", "a\n"]
        {
            assert!(RunId::new(name).is_err(), "{name:?}");
        }
        assert!(RunId::new("x".repeat(65)).is_err());
    }

    #[test]
    fn accepts_subjects_and_names_their_agent() {
        for (name, agent) in [
            ("leash-scout", "scout"),
            ("naomi", "naomi"),
            ("_x", "_x"),
            ("leash-leash-", "leash-"),
            ("leash", "leash"),
            (&format!("leash-{}", "a".repeat(26)), &"a".repeat(26)),
        ] {
            assert_eq!(Subject::new(name).unwrap().agent(), agent, "{name}");
        }
    }

    #[test]
    fn refuses_subjects_that_are_no_account_name() {
        for name in ["", "leash-", "Scout", "1up", "-x", "a.b", "a/b", "..", "ä", "root "] {
            assert!(Subject::new(name).is_err(), "{name:?}");
        }
        assert!(Subject::new("a".repeat(33)).is_err());
    }

    #[test]
    fn requests_have_a_fixed_form_on_the_wire() {
        let forms = [
            (
                Request::EnsureAgentUser { seq: 1, subject: Subject::new("leash-scout").unwrap() },
                r#"{"verb":"ensure_agent_user","seq":1,"subject":"leash-scout"}"#,
            ),
            (
                Request::WorkerSpawn { seq: 2, run_id: run("r-1") },
                r#"{"verb":"worker_spawn","seq":2,"run_id":"r-1"}"#,
            ),
            (
                Request::WorkerSignal {
                    seq: u64::MAX,
                    run_id: run("r-1"),
                    signal: WorkerSignal::Terminate,
                },
                r#"{"verb":"worker_signal","seq":18446744073709551615,"run_id":"r-1","signal":"terminate"}"#,
            ),
        ];
        for (request, form) in forms {
            assert_eq!(String::from_utf8(encode(&request).unwrap()).unwrap(), form);
            assert_eq!(decode::<Request>(form.as_bytes()).unwrap(), request);
        }
    }

    #[test]
    fn every_notice_survives_the_wire() {
        let notices = [
            Notice::Hello {
                version: PROTOCOL_VERSION,
                boundary: Boundary::SingleUid,
                control_uid: 1000,
                muzzle_uid: 1000,
                single_uid: true,
                live: vec![LiveWorker { run_id: run("r"), pid: 7 }],
            },
            Notice::Live { run_id: run("r"), pid: 7, observed: observed() },
            Notice::Reply { seq: 3, result: Ok(Reply::AgentUser { uid: 58_001 }) },
            Notice::Reply { seq: 3, result: Ok(Reply::Spawned { pid: 9, observed: observed() }) },
            Notice::Reply { seq: 3, result: Ok(Reply::Signalled) },
            Notice::Reply {
                seq: 3,
                result: Err(Refusal {
                    verb: "worker_spawn".to_owned(),
                    rule: "unknown-run".to_owned(),
                    why: "w".to_owned(),
                    remedy: "r".to_owned(),
                }),
            },
            Notice::Exited { run_id: run("r"), how: Exit::Code(3) },
            Notice::Exited { run_id: run("r"), how: Exit::Signal(9) },
            Notice::MuzzleStarted { pid: 4 },
        ];
        for notice in notices {
            assert_eq!(decode::<Notice>(&encode(&notice).unwrap()).unwrap(), notice);
        }
    }

    #[test]
    fn a_malformed_request_yields_its_seq_where_that_is_readable() {
        for (datagram, expected) in [
            (r#"{"verb":"worker_spawn","seq":5,"run_id":"../../etc"}"#, Some(5)),
            (r#"{"verb":"become_root","seq":6}"#, Some(6)),
            (r#"{"verb":"worker_spawn","seq":7,"run_id":"r","uid":0}"#, Some(7)),
            (r#"{"verb":"worker_spawn","seq":8}"#, Some(8)),
            (r#"{"verb":"worker_spawn","seq":-1,"run_id":"r"}"#, None),
            (r#"{"verb":"worker_spawn","seq":"9","run_id":"r"}"#, None),
            ("[]", None),
            ("{", None),
            ("\u{0}\u{1}", None),
        ] {
            let Err(ProtocolError::Malformed { seq, .. }) = decode::<Request>(datagram.as_bytes())
            else {
                panic!("{datagram}");
            };
            assert_eq!(seq, expected, "{datagram}");
        }
    }

    #[test]
    fn a_message_larger_than_a_datagram_is_refused_both_ways() {
        let fits = "x".repeat(MAX_DATAGRAM - 2);
        assert_eq!(encode(&fits).unwrap().len(), MAX_DATAGRAM);
        assert!(decode::<String>(&encode(&fits).unwrap()).is_ok());
        let too_large = "x".repeat(MAX_DATAGRAM - 1);
        assert!(matches!(encode(&too_large), Err(ProtocolError::TooLarge { .. })));
        let raw = serde_json::to_vec(&too_large).unwrap();
        assert!(matches!(decode::<String>(&raw), Err(ProtocolError::TooLarge { .. })));
    }
}
