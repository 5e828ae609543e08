//! Decides whether a request may be forwarded, from its head alone.
//!
//! A pure decision over the head, the listener's plan and the admitted bearers. What it protects from: a web page that
//! makes the person's browser dial loopback (Origin, DNS rebinding by Host), a process without a run, and a path nobody
//! inspects. (Two lengths in one head are settled before: Transfer-Encoding wins and Content-Length is gone.)

use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, ORIGIN, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use crate::config::{Auth, ListenerPlan, has_dot_segment};
use crate::refusal::Refusal;
use crate::tokens::{Admission, TokenTable};

/// The paths whose content Muzzle knows how to read.
pub(crate) const SURFACE: [&str; 8] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
    "/api/embed",
];

/// Header in which some vendors' clients send their credential.
pub(crate) const API_KEY_HEADER: &str = "x-api-key";

/// A request that may be forwarded.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// The run it belongs to; nothing on a listener that asks for no bearer.
    pub(crate) admission: Option<Admission>,
}

/// Decides over one request head that came to `port`.
pub(crate) fn decide_admission(
    head: &Parts,
    plan: &ListenerPlan,
    port: u16,
    tokens: &TokenTable,
    body_ceiling: u64,
) -> Result<Admitted, Refusal> {
    if head.version != Version::HTTP_11 {
        return Err(Refusal::HttpVersion);
    }
    if !is_own_host(head, port) {
        return Err(Refusal::ForeignHost { port });
    }
    if head.headers.contains_key(ORIGIN) {
        return Err(Refusal::Origin);
    }
    if asks_for_websocket(&head.headers) {
        return Err(Refusal::WebSocket);
    }
    let admission = match plan.auth {
        Auth::Bearer => Some(decide_bearer(&head.headers, tokens)?),
        Auth::None => None,
    };
    decide_path(head, plan)?;
    decide_length(&head.headers, body_ceiling)?;
    Ok(Admitted { admission })
}

fn is_own_host(head: &Parts, port: u16) -> bool {
    let mut named = head.headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else { return false };
    // An absolute request target must name us too, since it is what a server is told to prefer over Host.
    let targets = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    [Some(host.as_bytes()), targets].into_iter().flatten().all(|name| names_us(name, port))
}

fn names_us(name: &[u8], port: u16) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|own| {
        let rest = name
            .get(..own.len())
            .filter(|start| start.eq_ignore_ascii_case(own))
            .and(name.get(own.len()..));
        match rest {
            Some("") => port == 80,
            Some(rest) => rest.strip_prefix(':').is_some_and(|digits| digits == port.to_string()),
            None => false,
        }
    })
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let upgrades =
        headers.get_all(UPGRADE).iter().any(|value| contains_token(value.as_bytes(), b"websocket"));
    upgrades || headers.contains_key("sec-websocket-key")
}

/// Whether a comma-separated header value holds a token, in any letter case.
fn contains_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

/// The names a request or an answer declares as belonging to this connection only.
pub(crate) fn connection_tokens(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

/// The bearer in an Authorization value: the scheme in any letter case, then the token.
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
        .filter(|token| !token.is_empty())
}

fn decide_bearer(headers: &HeaderMap, tokens: &TokenTable) -> Result<Admission, Refusal> {
    let mut authorizations = headers.get_all(AUTHORIZATION).iter();
    let mut api_keys = headers.get_all(API_KEY_HEADER).iter();
    let shown = match (authorizations.next(), api_keys.next()) {
        (Some(value), _) => bearer(value.as_bytes()),
        (None, Some(value)) => Some(value.as_bytes()),
        (None, None) => None,
    };
    if authorizations.next().is_some() || api_keys.next().is_some() {
        return Err(Refusal::BearerAmbiguous);
    }
    tokens.look_up(shown.ok_or(Refusal::BearerMissing)?).ok_or(Refusal::BearerUnknown)
}

fn decide_path(head: &Parts, plan: &ListenerPlan) -> Result<(), Refusal> {
    let path = head.uri.path();
    if SURFACE.contains(&path) {
        return if head.method == Method::POST || plan.passthrough {
            Ok(())
        } else {
            Err(Refusal::Method)
        };
    }
    if !plan.passthrough || !path.starts_with('/') || head.method == Method::CONNECT {
        let path = path.chars().take(200).collect();
        return Err(Refusal::PathNotInspected { listener: plan.name.clone(), path });
    }
    if has_dot_segment(path) { Err(Refusal::DotSegment) } else { Ok(()) }
}

fn decide_length(headers: &HeaderMap, most: u64) -> Result<(), Refusal> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > most) {
        Err(Refusal::TooLarge { most })
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
