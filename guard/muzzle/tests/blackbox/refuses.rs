//! What is refused is refused before the upstream hears of it, and the client is told why.
//!
//! Every refusal is one change to a request that passes unchanged.

use muzzle::limits::Ceilings;

use crate::support::*;

struct Case {
    upstream: FakeUpstream,
    muzzle: Muzzle,
    address: std::net::SocketAddr,
}

impl Case {
    fn new(ceilings: Ceilings) -> Self {
        let upstream = FakeUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let (muzzle, address) = Muzzle::start(ceilings, upstream.address);
        Self { upstream, muzzle, address }
    }

    fn good(&self) -> String {
        format!("{}\r\nContent-Length: 2\r\n\r\n{{}}", post(self.address, "/v1/chat/completions"))
    }

    fn send(&self, request: &str) -> Message {
        let mut wire = Wire::dial(self.address);
        wire.send(request.as_bytes());
        wire.read().unwrap()
    }

    /// Checks that the good request passes, and that the changed one is refused without the upstream seeing it.
    fn refuses(&self, from: &str, to: &str) -> (u16, String) {
        assert_eq!(self.send(&self.good()).status(), 200);
        self.upstream.request();
        let changed = self.good().replacen(from, to, 1);
        assert_ne!(changed, self.good());
        let answer = self.send(&changed);
        assert!(self.upstream.is_untouched(), "{changed}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        (answer.status(), answer.refusal())
    }
}

#[test]
fn a_bearer_that_is_absent_wrong_or_of_another_scheme() {
    let case = Case::new(Ceilings::default());
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(case.refuses(&bearer, ""), (401, "bearer_missing".to_owned()));
    assert_eq!(
        case.refuses(&bearer, "Authorization: Bearer other\r\n"),
        (401, "bearer_unknown".to_owned())
    );
    assert_eq!(case.refuses("Bearer", "Basic"), (401, "bearer_missing".to_owned()));
    assert_eq!(case.refuses(&bearer, &bearer.repeat(2)), (400, "bearer_ambiguous".to_owned()));
    let digest = muzzle::TokenDigest::of(TOKEN.as_bytes());
    assert_eq!(case.refuses(TOKEN, &digest.to_string()), (401, "bearer_unknown".to_owned()));
}

#[test]
fn a_bearer_that_was_revoked() {
    let case = Case::new(Ceilings::default());
    assert_eq!(case.send(&case.good()).status(), 200);
    assert!(case.muzzle.revoke(TOKEN));
    assert_eq!(case.send(&case.good()).refusal(), "bearer_unknown");
    case.muzzle.admit(TOKEN, "run-1");
    assert_eq!(case.send(&case.good()).status(), 200);
}

#[test]
fn a_bearer_that_another_muzzle_admitted() {
    let (one, two) = (Case::new(Ceilings::default()), Case::new(Ceilings::default()));
    two.muzzle.revoke(TOKEN);
    assert_eq!(one.send(&one.good()).status(), 200);
    assert_eq!(two.send(&two.good()).refusal(), "bearer_unknown");
}

#[test]
fn a_web_page_and_a_name_that_was_rebound() {
    let case = Case::new(Ceilings::default());
    let host = format!("Host: {}", case.address);
    let with_origin = format!("{host}\r\nOrigin: http://{}", case.address);
    assert_eq!(case.refuses(&host, &with_origin), (403, "origin_refused".to_owned()));
    for foreign in ["rebound.test", &format!("rebound.test:{}", case.address.port()), "127.0.0.1"] {
        assert_eq!(
            case.refuses(&host, &format!("Host: {foreign}")),
            (421, "foreign_host".to_owned()),
            "{foreign}"
        );
    }
    assert_eq!(case.refuses(&format!("{host}\r\n"), ""), (421, "foreign_host".to_owned()));
    assert_eq!(
        case.refuses("POST /", "POST http://rebound.test/"),
        (421, "foreign_host".to_owned())
    );
}

#[test]
fn its_own_names_are_not_foreign() {
    let case = Case::new(Ceilings::default());
    for name in ["localhost", "[::1]", "LOCALHOST"] {
        let request = case.good().replacen("127.0.0.1", name, 1);
        assert_eq!(case.send(&request).status(), 200, "{name}");
    }
}

#[test]
fn a_websocket_upgrade_is_refused_with_the_status_that_makes_clients_fall_back() {
    let case = Case::new(Ceilings::default());
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Type";
    assert_eq!(case.refuses("Content-Type", upgrade), (426, "websocket_refused".to_owned()));
}

#[test]
fn a_path_or_method_outside_the_surface() {
    let case = Case::new(Ceilings::default());
    for path in ["/v1/models", "/api/tags", "/", "/v1/chat/completions/", "/v1/%63hat/completions"]
    {
        assert_eq!(
            case.refuses("/v1/chat/completions", path),
            (403, "path_not_inspected".to_owned()),
            "{path}"
        );
    }
    assert_eq!(case.refuses("POST", "GET"), (405, "method_not_allowed".to_owned()));
    assert_eq!(case.refuses("POST", "PUT"), (405, "method_not_allowed".to_owned()));
}

#[test]
fn http_1_0_in_which_a_cut_answer_looks_whole() {
    let case = Case::new(Ceilings::default());
    assert_eq!(case.refuses("HTTP/1.1", "HTTP/1.0"), (505, "http_version".to_owned()));
}

#[test]
fn a_body_that_says_it_is_too_large_and_is_sent_all_the_same() {
    let case = Case::new(Ceilings { request_body_bytes: 1 << 20, ..Ceilings::default() });
    // Far more than fits into the buffers on the way: unless it is read, the refusal cannot be.
    let body = vec![b'x'; 8 << 20];
    let mut wire = Wire::dial(case.address);
    wire.send(
        format!("{}\r\nContent-Length: {}\r\n\r\n", post(case.address, "/v1/messages"), body.len())
            .as_bytes(),
    );
    wire.send(&body);
    let answer = wire.read().unwrap();
    assert_eq!((answer.status(), answer.refusal()), (413, "request_too_large".to_owned()));
    assert!(case.upstream.is_untouched());
}

#[test]
fn a_body_that_turns_out_too_large() {
    let case = Case::new(Ceilings { request_body_bytes: 1 << 20, ..Ceilings::default() });
    let mut wire = Wire::dial(case.address);
    wire.send(
        format!("{}\r\nTransfer-Encoding: chunked\r\n\r\n", post(case.address, "/v1/messages"))
            .as_bytes(),
    );
    for _ in 0..512 {
        wire.send_chunk(&[b'x'; 16 * 1024]);
    }
    wire.send_chunk(b"");
    let answer = wire.read().unwrap();
    assert_eq!((answer.status(), answer.refusal()), (413, "request_too_large".to_owned()));
    assert!(case.upstream.is_untouched(), "half a request is no request");
}

#[test]
fn more_requests_at_once_than_the_ceilings_allow() {
    // An upstream that answers when it is told to.
    let (go, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let upstream = FakeUpstream::new(move |_, wire, seen| {
        while let Some(request) = wire.read() {
            seen.send(request).unwrap();
            told.lock().unwrap().recv_timeout(DEADLINE).unwrap();
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let ceilings = Ceilings { listener_requests: 2, run_requests: 1, ..Ceilings::default() };
    let (muzzle, address) = Muzzle::start(ceilings, upstream.address);
    muzzle.admit("token-2", "run-2");
    muzzle.admit("token-3", "run-3");
    let send = |token: &str| {
        let mut wire = Wire::dial(address);
        let head = post(address, "/v1/chat/completions").replace(TOKEN, token);
        wire.send(format!("{head}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        wire
    };
    let mut first = send(TOKEN);
    upstream.request();
    let busy = send(TOKEN).read().unwrap();
    assert_eq!(
        (busy.status(), busy.refusal(), busy.header("retry-after")),
        (503, "run_busy".to_owned(), Some("1"))
    );
    let mut second = send("token-2");
    upstream.request();
    assert_eq!(send("token-3").read().unwrap().refusal(), "listener_busy");
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!((first.read().unwrap().status(), second.read().unwrap().status()), (200, 200));
    go.send(()).unwrap();
    assert_eq!(send("token-3").read().unwrap().status(), 200);
}
