//! Which headers travel on to an upstream and back, and which stay.

use super::*;
use crate::tokens::TokenDigest;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn headers_of_one_connection_stay_there() {
    let mut headers = headers(&[
        ("connection", "keep-alive, X-Private , upgrade"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic x"),
        ("proxy-connection", "close"),
        ("content-type", "application/json"),
        ("x-kept", "1"),
    ]);
    strip_hop_by_hop(&mut headers);
    assert_eq!(names(&headers), ["content-type", "x-kept"]);
}

#[test]
fn a_bearer_of_a_run_never_leaves_whatever_the_listener_asks_for() {
    let tokens = TokenTable::new(1);
    tokens.admit(TokenDigest::of(b"of-run"), "run").unwrap();
    let after = |auth, name, value| {
        let mut headers = headers(&[(name, value)]);
        strip_credentials(&mut headers, auth, &tokens);
        headers.len()
    };
    for (name, value) in [("authorization", "Bearer of-run"), ("x-api-key", "of-run")] {
        assert_eq!(after(Auth::Bearer, name, value), 0);
        assert_eq!(after(Auth::None, name, value), 0);
    }
    assert_eq!(after(Auth::Bearer, "authorization", "Bearer own-key"), 0);
    assert_eq!(after(Auth::None, "authorization", "Bearer own-key"), 1);
    assert_eq!(after(Auth::None, "authorization", "Basic of-run"), 1);
}

#[test]
fn a_prefix_is_put_in_front_and_v1_written_once() {
    let target = |prefix: &str, asked: &str| {
        let upstream = UpstreamPlan {
            name: String::new(),
            provider: String::new(),
            host: String::new(),
            port: 1,
            authority: String::new(),
            prefix: prefix.to_owned(),
        };
        outgoing_target(&asked.parse().unwrap(), &upstream).unwrap().to_string()
    };
    assert_eq!(target("", "/v1/messages?beta=true"), "/v1/messages?beta=true");
    assert_eq!(target("/v1", "/v1/messages"), "/v1/messages");
    assert_eq!(target("/openai/v1", "/v1/chat/completions"), "/openai/v1/chat/completions");
    assert_eq!(target("/tenant", "/v1/messages"), "/tenant/v1/messages");
    assert_eq!(target("/v1", "/api/chat"), "/v1/api/chat");
    assert_eq!(target("", "http://127.0.0.1:8790/api/chat?a=b"), "/api/chat?a=b");
}
