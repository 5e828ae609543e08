//! What a client is told when its request did not get an answer from the upstream.
//!
//! A refusal is a value with a status, a stable type and a sentence that says what to do next; it becomes the JSON body
//! `{"error":{"type":…,"message":…}}`. It never repeats a header's or a body's content.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// Every way in which Muzzle itself answers a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "Muzzle speaks HTTP/1.1 only, so that a cut answer can be told from a whole one: use an HTTP/1.1 client"
    )]
    HttpVersion,
    #[error("the Host header must be one of {}: dial Muzzle by its own address", hosts(*.port))]
    ForeignHost { port: u16 },
    #[error(
        "requests from web pages are refused (an Origin header is present): call Muzzle from a program instead"
    )]
    Origin,
    #[error(
        "WebSocket connections are not inspected and are refused: send the same request over HTTP, streaming included"
    )]
    WebSocket,
    #[error("this listener asks for a bearer: send `Authorization: Bearer <token of the run>`")]
    BearerMissing,
    #[error(
        "this bearer is not admitted: it is wrong or its run has ended; a new launch of the run gets a new one"
    )]
    BearerUnknown,
    #[error("more than one credential was sent: send one Authorization header")]
    BearerAmbiguous,
    #[error("the path {path} is not inspected, and listener `{listener}` lets only inspected paths through: use one of {}, or set `passthrough: true` on the listener", crate::admission::SURFACE.join(", "))]
    PathNotInspected { listener: String, path: String },
    #[error("the path has a `.` or `..` segment: write the path it leads to")]
    DotSegment,
    #[error("this path takes POST only")]
    Method,
    #[error("the request body is larger than {most} bytes: send less context or smaller images")]
    TooLarge { most: u64 },
    #[error("no byte of the request body came for {} s: send the request again", .silence.as_secs())]
    RequestStalled { silence: Duration },
    #[error("the request body ended before its announced length: send the request again")]
    RequestCut,
    #[error(
        "listener `{listener}` has {most} requests in flight, which is its ceiling: try again when some have finished"
    )]
    ListenerBusy { listener: String, most: usize },
    #[error(
        "this run has {most} model requests in flight, which is its ceiling: try again when some have finished"
    )]
    RunBusy { most: usize },
    #[error("this bearer was revoked while the request was open: its run has ended")]
    Revoked,
    #[error(
        "upstream `{upstream}` cannot be reached at {address} ({why}): start the model server or correct the upstream's base_url"
    )]
    UpstreamUnreachable { upstream: String, address: String, why: String },
    #[error("upstream `{upstream}` at {address} did not {what} within {} s: see whether the model server is overloaded or still loading the model, then try again", .waited.as_secs())]
    UpstreamTimeout { upstream: String, address: String, what: &'static str, waited: Duration },
    #[error(
        "upstream `{upstream}` at {address} broke off before it answered ({why}): look at the model server's log, then try again"
    )]
    UpstreamBroken { upstream: String, address: String, why: String },
}

fn hosts(port: u16) -> String {
    format!("127.0.0.1:{port}, localhost:{port}, [::1]:{port}")
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::HttpVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::ForeignHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin | Self::PathNotInspected { .. } => StatusCode::FORBIDDEN,
            // Coding agents fall back to HTTP streaming on this status and on no other.
            Self::WebSocket => StatusCode::UPGRADE_REQUIRED,
            Self::BearerMissing | Self::BearerUnknown | Self::Revoked => StatusCode::UNAUTHORIZED,
            Self::BearerAmbiguous | Self::DotSegment | Self::RequestCut => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestStalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::ListenerBusy { .. } | Self::RunBusy { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::UpstreamUnreachable { .. } | Self::UpstreamBroken { .. } => {
                StatusCode::BAD_GATEWAY
            }
            Self::UpstreamTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The stable word a program decides by.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::HttpVersion => "http_version",
            Self::ForeignHost { .. } => "foreign_host",
            Self::Origin => "origin_refused",
            Self::WebSocket => "websocket_refused",
            Self::BearerMissing => "bearer_missing",
            Self::BearerUnknown => "bearer_unknown",
            Self::BearerAmbiguous => "bearer_ambiguous",
            Self::PathNotInspected { .. } => "path_not_inspected",
            Self::DotSegment => "path_refused",
            Self::Method => "method_not_allowed",
            Self::TooLarge { .. } => "request_too_large",
            Self::RequestStalled { .. } => "request_stalled",
            Self::RequestCut => "request_cut",
            Self::ListenerBusy { .. } => "listener_busy",
            Self::RunBusy { .. } => "run_busy",
            Self::Revoked => "bearer_revoked",
            Self::UpstreamUnreachable { .. } => "upstream_unreachable",
            Self::UpstreamTimeout { .. } => "upstream_timeout",
            Self::UpstreamBroken { .. } => "upstream_broken",
        }
    }

    /// The header that the status asks for.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self.status() {
            StatusCode::UPGRADE_REQUIRED => Some((UPGRADE, HeaderValue::from_static("HTTP/1.1"))),
            StatusCode::UNAUTHORIZED => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, HeaderValue::from_static("POST"))),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => None,
        }
    }

    /// The answer a client gets.
    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = error_response(self.status(), self.kind(), &self.to_string());
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorText<'a>,
}

#[derive(Serialize)]
struct ErrorText<'a> {
    r#type: &'a str,
    message: &'a str,
}

/// An answer with the body `{"error":{"type":…,"message":…}}`.
pub(crate) fn error_response(
    status: StatusCode,
    kind: &str,
    message: &str,
) -> Response<Full<Bytes>> {
    let body = ErrorBody { error: ErrorText { r#type: kind, message } };
    json_response(status, &body)
}

/// An answer with a JSON body.
pub(crate) fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    // Our own structures always serialise; an empty body with the right status is what remains if one ever does not.
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// How an address is written in a message.
pub(crate) fn address(host: &str, port: u16) -> String {
    host.parse().map_or_else(
        |_name: std::net::AddrParseError| format!("{host}:{port}"),
        |ip| SocketAddr::new(ip, port).to_string(),
    )
}
