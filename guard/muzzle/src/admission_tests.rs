//! Who is let in: each refusal beside the request that passes.

use std::sync::Arc;

use hyper::Request;

use super::*;
use crate::config::UpstreamPlan;
use crate::tokens::TokenDigest;

const PORT: u16 = 8790;
const TOKEN: &str = "bearer-of-run-1";

fn plan(auth: Auth, passthrough: bool) -> ListenerPlan {
    ListenerPlan {
        name: "ollama".to_owned(),
        bind: ([127, 0, 0, 1], PORT).into(),
        auth,
        passthrough,
        upstream: Arc::new(UpstreamPlan {
            name: "local".to_owned(),
            provider: "ollama".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 11434,
            authority: "127.0.0.1:11434".to_owned(),
            prefix: String::new(),
        }),
    }
}

fn decide_for(
    plan: &ListenerPlan,
    port: u16,
    change: impl FnOnce(&mut Parts),
) -> Result<Option<&'static str>, &'static str> {
    let tokens = TokenTable::new(1);
    tokens.admit(TokenDigest::of(TOKEN.as_bytes()), "run-1").unwrap();
    let request = Request::post("/v1/chat/completions")
        .header("host", format!("127.0.0.1:{port}"))
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(())
        .unwrap();
    let mut head = request.into_parts().0;
    change(&mut head);
    decide_admission(&head, plan, port, &tokens, 100)
        .map(|admitted| {
            admitted
                .admission
                .map(|admission| if &*admission.run == "run-1" { "run-1" } else { "another run" })
        })
        .map_err(|refusal| refusal.kind())
}

fn decide(change: impl FnOnce(&mut Parts)) -> Result<Option<&'static str>, &'static str> {
    decide_for(&plan(Auth::Bearer, false), PORT, change)
}

fn with(name: &'static str, value: &'static str) -> impl FnOnce(&mut Parts) {
    move |head| drop(head.headers.insert(name, value.parse().unwrap()))
}

fn target(text: &'static str) -> impl FnOnce(&mut Parts) {
    move |head| head.uri = text.parse().unwrap()
}

/// What [`decide`] says of a request that passes: for run 1, or for nobody.
const RUN: Result<Option<&'static str>, &'static str> = Ok(Some("run-1"));
const NOBODY: Result<Option<&'static str>, &'static str> = Ok(None);

#[test]
fn admits_a_request_of_a_run() {
    assert_eq!(decide(|_| {}), RUN);
}

#[test]
fn knows_its_own_names_and_no_other() {
    for host in ["127.0.0.1:8790", "localhost:8790", "LocalHost:8790", "[::1]:8790"] {
        assert_eq!(decide(with("host", host)), RUN, "{host}");
    }
    for host in [
        "127.0.0.1",
        "127.0.0.1:8791",
        "127.0.0.1:08790",
        "127.0.0.1:8790:8790",
        "127.0.0.1.evil.test:8790",
        "evil.test",
        "evil.test:8790",
        "localhost.:8790",
        "localhost",
        "::1:8790",
        "user@localhost:8790",
        "",
        "127.0.0.2:8790",
        "0.0.0.0:8790",
    ] {
        assert_eq!(decide(with("host", host)), Err("foreign_host"), "{host}");
    }
    assert_eq!(decide(|head| drop(head.headers.remove("host"))), Err("foreign_host"));
    let twice =
        |head: &mut Parts| assert!(head.headers.append("host", "127.0.0.1:8790".parse().unwrap()));
    assert_eq!(decide(twice), Err("foreign_host"));
}

#[test]
fn on_port_80_the_port_may_be_left_out() {
    let plan = plan(Auth::Bearer, false);
    assert_eq!(decide_for(&plan, 80, with("host", "localhost")), RUN);
    assert_eq!(decide_for(&plan, 80, with("host", "localhost:80")), RUN);
    assert_eq!(decide_for(&plan, 80, with("host", "localhost:")), Err("foreign_host"));
}

#[test]
fn an_absolute_target_must_name_us_too() {
    assert_eq!(decide(target("http://localhost:8790/v1/messages")), RUN);
    assert_eq!(decide(target("http://evil.test/v1/messages")), Err("foreign_host"));
    assert_eq!(decide(target("http://user@localhost:8790/v1/messages")), Err("foreign_host"));
}

#[test]
fn refuses_web_pages_websockets_and_old_http() {
    for origin in ["http://evil.test", "null", "http://127.0.0.1:8790", ""] {
        assert_eq!(decide(with("origin", origin)), Err("origin_refused"), "{origin}");
    }
    assert_eq!(decide(with("upgrade", "websocket")), Err("websocket_refused"));
    assert_eq!(decide(with("upgrade", "h2c, WebSocket")), Err("websocket_refused"));
    assert_eq!(decide(with("sec-websocket-key", "x")), Err("websocket_refused"));
    assert_eq!(decide(with("upgrade", "h2c")), RUN);
    assert_eq!(decide(|head| head.version = Version::HTTP_10), Err("http_version"));
}

#[test]
fn takes_the_bearer_from_either_header_and_from_one_only() {
    let without = |head: &mut Parts| drop(head.headers.remove("authorization"));
    assert_eq!(decide(without), Err("bearer_missing"));
    for value in ["bearer bearer-of-run-1", "BEARER bearer-of-run-1", "Bearer  bearer-of-run-1"] {
        assert_eq!(decide(with("authorization", value)), RUN, "{value}");
    }
    for value in ["Basic bearer-of-run-1", "bearer-of-run-1", "Bearer", "Bearer "] {
        assert_eq!(decide(with("authorization", value)), Err("bearer_missing"), "{value}");
    }
    for value in [
        "Bearer bearer-of-run-",
        "Bearer bearer-of-run-11",
        "Bearer BEARER-OF-RUN-1",
        "Bearer other",
    ] {
        assert_eq!(decide(with("authorization", value)), Err("bearer_unknown"), "{value}");
    }
    let api_key = |head: &mut Parts| {
        head.headers.remove("authorization");
        head.headers.insert("x-api-key", TOKEN.parse().unwrap());
    };
    assert_eq!(decide(api_key), RUN);
    let twice = |head: &mut Parts| {
        assert!(head.headers.append("authorization", "Bearer x".parse().unwrap()));
    };
    assert_eq!(decide(twice), Err("bearer_ambiguous"));
}

#[test]
fn a_listener_without_bearer_asks_for_none_and_keeps_every_other_rule() {
    let open = plan(Auth::None, false);
    let without = |head: &mut Parts| drop(head.headers.remove("authorization"));
    assert_eq!(decide_for(&open, PORT, without), NOBODY);
    assert_eq!(decide_for(&open, PORT, with("origin", "http://evil.test")), Err("origin_refused"));
    assert_eq!(decide_for(&open, PORT, with("host", "evil.test")), Err("foreign_host"));
    assert_eq!(decide_for(&open, PORT, target("/api/tags")), Err("path_not_inspected"));
}

#[test]
fn lets_only_the_inspected_surface_through() {
    for path in SURFACE {
        assert_eq!(decide(|head| head.uri = path.parse().unwrap()), RUN, "{path}");
    }
    assert_eq!(decide(target("/v1/messages?beta=true")), RUN);
    let outside = [
        "/",
        "/v1/models",
        "/api/tags",
        "/api/pull",
        "/v1/chat/completions/",
        "/v1/%63hat/completions",
        "//v1/messages",
        "/V1/messages",
        "*",
    ];
    for path in outside {
        assert_eq!(
            decide(|head| head.uri = path.parse().unwrap()),
            Err("path_not_inspected"),
            "{path}"
        );
    }
    assert_eq!(decide(|head| head.method = Method::GET), Err("method_not_allowed"));
}

#[test]
fn passthrough_opens_other_paths_but_no_way_around_the_prefix() {
    let open = plan(Auth::Bearer, true);
    for path in ["/api/tags", "/v1/models", "/"] {
        assert_eq!(decide_for(&open, PORT, |head| head.uri = path.parse().unwrap()), RUN, "{path}");
    }
    for path in ["/a/../b", "/a/./b", "/a/%2e%2E/b", "/.."] {
        assert_eq!(
            decide_for(&open, PORT, |head| head.uri = path.parse().unwrap()),
            Err("path_refused"),
            "{path}"
        );
    }
    let connect = |head: &mut Parts| {
        head.method = Method::CONNECT;
        head.uri = "localhost:8790".parse().unwrap();
    };
    assert_eq!(decide_for(&open, PORT, connect), Err("path_not_inspected"));
}

#[test]
fn refuses_an_announced_body_above_the_ceiling_only() {
    assert_eq!(decide(with("content-length", "100")), RUN);
    assert_eq!(decide(with("content-length", "101")), Err("request_too_large"));
}
