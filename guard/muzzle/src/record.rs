//! One line in the log for each request, written when its answer has ended.
//!
//! Method, path, listener, run, status and time; never a header, a query, a bearer or a body.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The answer went through to its end.
    Whole,
    /// Muzzle answered itself.
    Refused,
    /// The client's body was too large, too slow or cut.
    RequestBroken,
    /// The client went away before the end.
    ClientGone,
    /// The upstream's connection broke in the middle of the answer.
    UpstreamBroken,
    /// The upstream sent nothing for too long.
    UpstreamSilent,
    /// The bearer was revoked in the middle of the answer.
    Revoked,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::Refused => "refused",
            Self::RequestBroken => "request_broken",
            Self::ClientGone => "client_gone",
            Self::UpstreamBroken => "upstream_broken",
            Self::UpstreamSilent => "upstream_silent",
            Self::Revoked => "revoked",
        })
    }
}

/// The facts of one exchange. Dropping it writes the line.
pub(crate) struct ExchangeRecord {
    started: Instant,
    method: String,
    path: String,
    listener: String,
    upstream: String,
    run: Option<Arc<str>>,
    status: Option<StatusCode>,
    why: &'static str,
    bytes: u64,
    ended: Ended,
}

impl ExchangeRecord {
    pub(crate) fn begin(method: &str, path: &str, listener: &str, upstream: &str) -> Self {
        Self {
            started: Instant::now(),
            method: method.to_owned(),
            path: path.chars().take(200).collect(),
            listener: listener.to_owned(),
            upstream: upstream.to_owned(),
            run: None,
            status: None,
            why: "",
            bytes: 0,
            ended: Ended::ClientGone,
        }
    }

    pub(crate) fn belongs_to(&mut self, run: Arc<str>) {
        self.run = Some(run);
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    pub(crate) fn refused(&mut self, status: StatusCode, why: &'static str) {
        self.status = Some(status);
        self.why = why;
        self.ended = Ended::Refused;
    }

    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    pub(crate) fn ended(&mut self, how: Ended) {
        self.ended = how;
    }
}

impl Drop for ExchangeRecord {
    fn drop(&mut self) {
        // Fields that a client chooses are written with escapes.
        tracing::info!(
            method = ?self.method,
            path = ?self.path,
            listener = %self.listener,
            upstream = %self.upstream,
            run = self.run.as_deref().unwrap_or("-"),
            status = self.status.map_or(0, |status| status.as_u16()),
            refusal = self.why,
            bytes = self.bytes,
            ended = %self.ended,
            ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "request",
        );
    }
}
