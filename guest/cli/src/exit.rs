//! How a command ends: the exit codes, and the failure that carries one. What
//! happened, to what, and what to do next are one value, so that no command can
//! leave a part out.

use std::fmt::Write as _;

use api::ClientError;
use api::control::{Refusal, RefusalCode};
use api::frame::FrameError;
use domain::text;
use serde_json::json;

/// Every way a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok,
    Failed,
    Usage,
    Waiting,
    NotFound,
    Refused,
    Unreachable,
    Preflight,
    Conflict,
    Unavailable,
    Cancelled,
    Interrupted,
}

impl Exit {
    /// In the order of their codes.
    const ALL: [Self; 12] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::Waiting,
        Self::NotFound,
        Self::Refused,
        Self::Unreachable,
        Self::Preflight,
        Self::Conflict,
        Self::Unavailable,
        Self::Cancelled,
        Self::Interrupted,
    ];

    /// The number the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Waiting => 3,
            Self::NotFound => 4,
            Self::Refused => 5,
            Self::Unreachable => 6,
            Self::Preflight => 7,
            Self::Conflict => 8,
            Self::Unavailable => 9,
            Self::Cancelled => 10,
            Self::Interrupted => 130,
        }
    }

    /// The name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Waiting => "waiting",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Preflight => "preflight",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "it worked",
            Self::Failed => "it failed, or the followed run did",
            Self::Usage => "the command line or a value in it is wrong",
            Self::Waiting => "the run waits for a person",
            Self::NotFound => "there is no such run, request, agent or model",
            Self::Refused => "you may not",
            Self::Unreachable => "no control plane answers",
            Self::Preflight => {
                "a control that the profile requires is missing, or a finding is critical"
            }
            Self::Conflict => {
                "it does not fit the present state, such as a request already decided"
            }
            Self::Unavailable => "the control plane cannot do it now, such as a full disk",
            Self::Cancelled => "the followed run was cancelled",
            Self::Interrupted => "Ctrl-C; a followed run goes on",
        }
    }

    /// What kind of no the control plane gave.
    pub(crate) fn of(code: RefusalCode) -> Self {
        match code {
            RefusalCode::Forbidden => Self::Refused,
            RefusalCode::NotFound => Self::NotFound,
            RefusalCode::Conflict => Self::Conflict,
            RefusalCode::Invalid => Self::Usage,
            RefusalCode::Preflight => Self::Preflight,
            RefusalCode::Unavailable => Self::Unavailable,
        }
    }
}

/// The table in `--help`.
pub(crate) fn table() -> String {
    let mut text = "Exit codes:\n".to_owned();
    for exit in Exit::ALL {
        let _infallible = writeln!(text, "{:>5}  {}", exit.code(), exit.meaning());
    }
    text
}

/// A command that did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// What happened, and to what.
    pub(crate) what: String,
    /// What to do next.
    pub(crate) next: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { exit, what: what.into(), next: next.into() }
    }

    pub(crate) fn usage(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what, next)
    }

    /// Nobody reads what is printed any more (`sentinel runs | head -1`): the
    /// command ends without a word.
    pub(crate) fn nobody_reads() -> Self {
        Self::new(Exit::Ok, "", "")
    }

    /// An answer that does not belong to the question.
    pub(crate) fn other_version() -> Self {
        Self::new(
            Exit::Failed,
            "the control plane gave an answer that this program does not know",
            "use the `sentinel` of the same build as `sentinel up`",
        )
    }

    /// Lines for a person. Both texts may quote a model or a repository.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.what.is_empty() {
            return Vec::new();
        }
        let mut lines: Vec<String> = Vec::new();
        for (index, line) in text::paragraph(&self.what).lines().enumerate() {
            let start = if index == 0 { "sentinel: " } else { "  " };
            lines.push(format!("{start}{line}"));
        }
        lines.extend(text::paragraph(&self.next).lines().map(|line| format!("  {line}")));
        lines
    }

    /// The one document of a command that failed.
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({"error": {
            "kind": self.exit.name(),
            "exit": self.exit.code(),
            "what": self.what,
            "next": self.next,
        }})
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(Exit::of(refusal.code), refusal.why, refusal.remedy)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Connect { path, source } => no_connection(&path, &source),
            ClientError::Refused(refusal) => refusal.into(),
            ClientError::Frame(FrameError::Closed) => Self::new(
                Exit::Unreachable,
                "the control plane closed the connection before it answered",
                "it is started again by itself: repeat the command, and see `sentinel status`",
            ),
            ClientError::Frame(error @ FrameError::TooLarge { .. }) => Self::new(
                Exit::Failed,
                error.to_string(),
                "ask for less at a time, such as `sentinel logs RUN` instead of `sentinel show RUN`",
            ),
            ClientError::Frame(FrameError::Io { source }) => Self::new(
                Exit::Unreachable,
                format!("the connection to the control plane failed: {source}"),
                "repeat the command, and see `sentinel status`",
            ),
            ClientError::Frame(FrameError::Format { .. }) | ClientError::Unexpected => {
                Self::other_version()
            }
        }
    }
}

fn no_connection(path: &std::path::Path, source: &std::io::Error) -> Failure {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    let path = path.display();
    if matches!(source.kind(), NotFound | ConnectionRefused) {
        return Failure::new(
            Exit::Unreachable,
            format!("nothing answers at {path}"),
            "start it with `sentinel up`",
        );
    }
    if source.kind() == PermissionDenied {
        return Failure::new(
            Exit::Refused,
            format!("this account may not open {path}"),
            "run the command as root, or as the user who runs `sentinel up`",
        );
    }
    Failure::new(
        Exit::Unreachable,
        format!("could not connect to {path}: {source}"),
        "see `sentinel doctor`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::ErrorKind;
    use std::path::PathBuf;

    #[test]
    fn codes_and_names_are_distinct_and_in_order() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert!(codes.is_sorted());
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), Exit::ALL.len());
        let names: BTreeSet<&str> = Exit::ALL.iter().map(|exit| exit.name()).collect();
        assert_eq!(names.len(), Exit::ALL.len());
    }

    #[test]
    fn the_table_names_every_code() {
        insta::assert_snapshot!(table(), @r"
        Exit codes:
            0  it worked
            1  it failed, or the followed run did
            2  the command line or a value in it is wrong
            3  the run waits for a person
            4  there is no such run, request, agent or model
            5  you may not
            6  no control plane answers
            7  a control that the profile requires is missing, or a finding is critical
            8  it does not fit the present state, such as a request already decided
            9  the control plane cannot do it now, such as a full disk
           10  the followed run was cancelled
          130  Ctrl-C; a followed run goes on
        ");
    }

    #[test]
    fn each_refusal_has_an_exit_code_of_its_own() {
        let codes = [
            RefusalCode::Forbidden,
            RefusalCode::NotFound,
            RefusalCode::Conflict,
            RefusalCode::Invalid,
            RefusalCode::Preflight,
            RefusalCode::Unavailable,
        ];
        let exits: BTreeSet<u8> = codes.into_iter().map(|code| Exit::of(code).code()).collect();
        assert_eq!(exits.len(), codes.len());
        assert!(!exits.contains(&Exit::Ok.code()));
    }

    #[test]
    fn an_absent_control_plane_says_how_to_start_it() {
        let connect = |kind: ErrorKind| {
            let source = kind.into();
            Failure::from(ClientError::Connect {
                path: PathBuf::from("/run/x/control.sock"),
                source,
            })
        };
        for kind in [ErrorKind::NotFound, ErrorKind::ConnectionRefused] {
            assert_eq!(connect(kind).exit, Exit::Unreachable);
            assert_eq!(
                connect(kind).lines(),
                [
                    "sentinel: nothing answers at /run/x/control.sock",
                    "  start it with `sentinel up`"
                ]
            );
        }
        assert_eq!(connect(ErrorKind::PermissionDenied).exit, Exit::Refused);
    }

    #[test]
    fn a_refusal_that_quotes_an_agent_cannot_move_the_cursor() {
        let refusal = Refusal {
            code: RefusalCode::Invalid,
            why: "no \u{1b}[2Jfile".into(),
            remedy: "r\u{202e}".into(),
        };
        assert_eq!(Failure::from(refusal).lines(), ["sentinel: no ␛[2Jfile", "  r⟨U+202E⟩"]);
    }
}
