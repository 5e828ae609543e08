//! What is let through arrives as it was sent, in both directions and piece by piece.

use std::sync::Mutex;

use muzzle::limits::Ceilings;
use proptest::prelude::*;

use crate::support::*;

#[test]
fn forwards_a_request_and_its_answer() {
    let answer = "HTTP/1.1 201 Created\r\nX-Model: m\r\nContent-Length: 5\r\n\r\nhello";
    let upstream = FakeUpstream::answering(answer);
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let mut wire = Wire::dial(address);
    let head = post(address, "/v1/chat/completions?a=b%20c");
    wire.send(format!("{head}\r\nX-Mine: 1\r\nContent-Length: 8\r\n\r\n{{\"a\": 1}}").as_bytes());
    let answer = wire.read().unwrap();
    assert_eq!(
        (answer.status(), answer.header("x-model"), answer.body.as_slice()),
        (201, Some("m"), b"hello".as_slice())
    );
    let request = upstream.request();
    assert!(
        request.head.starts_with("post /v1/chat/completions?a=b%20c http/1.1\n"),
        "{}",
        request.head
    );
    assert_eq!(request.header("host"), Some(upstream.address.to_string().as_str()));
    assert_eq!(
        (request.header("x-mine"), request.header("content-length")),
        (Some("1"), Some("8"))
    );
    assert_eq!(request.body, br#"{"a": 1}"#);
}

#[test]
fn the_bearer_and_the_connections_own_headers_stay_here() {
    let upstream = FakeUpstream::answering(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=9\r\nX-Hop: 1\r\nX-End: 1\r\nContent-Length: 0\r\n\r\n",
    );
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let mut wire = Wire::dial(address);
    let head = post(address, "/v1/messages");
    wire.send(format!("{head}\r\nX-Api-Key: other\r\nConnection: X-Secret\r\nX-Secret: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes());
    let mut answer = wire.read().unwrap();
    if answer.status() == 100 {
        answer = wire.read().unwrap();
    }
    assert_eq!(
        (
            answer.status(),
            answer.header("x-end"),
            answer.header("x-hop"),
            answer.header("keep-alive")
        ),
        (200, Some("1"), None, None)
    );
    let request = upstream.request();
    for gone in
        ["authorization", "x-api-key", "x-secret", "te", "upgrade", "proxy-authorization", "expect"]
    {
        assert_eq!(request.header(gone), None, "{gone} in {}", request.head);
    }
    assert!(!request.head.contains(TOKEN), "{}", request.head);
}

#[test]
fn a_listener_without_bearer_asks_for_none() {
    let upstream = FakeUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let muzzle = Muzzle::bare(Ceilings::default());
    let open = muzzle::Listener { auth: muzzle::Auth::None, ..listener("open", 0, "up") };
    let status = muzzle.put(&config(&[open], &[("up", upstream.address)])).unwrap();
    assert_eq!(status.listeners[0].auth, muzzle::Auth::None);
    let address = status.listeners[0].address;
    let mut wire = Wire::dial(address);
    wire.send(
        format!("POST /api/chat HTTP/1.1\r\nHost: {address}\r\nContent-Length: 2\r\n\r\n{{}}")
            .as_bytes(),
    );
    assert_eq!(wire.read().unwrap().status(), 200);
}

#[test]
fn other_paths_pass_where_the_listener_says_so() {
    let upstream = FakeUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let muzzle = Muzzle::bare(Ceilings::default());
    let open = muzzle::Listener { passthrough: true, ..listener("open", 0, "up") };
    let address =
        muzzle.put(&config(&[open], &[("up", upstream.address)])).unwrap().listeners[0].address;
    muzzle.admit(TOKEN, "run-1");
    let mut wire = Wire::dial(address);
    wire.send(
        format!(
            "GET /api/tags HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(wire.read().unwrap().status(), 200);
    assert!(upstream.request().head.starts_with("get /api/tags http/1.1\n"));
}

#[test]
fn a_redirect_is_passed_on_and_not_followed() {
    let elsewhere = FakeUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let location = format!("http://{}/v1/chat/completions", elsewhere.address);
    let upstream = FakeUpstream::answering(format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    ));
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let answer = ask(address);
    assert_eq!((answer.status(), answer.header("location")), (307, Some(location.as_str())));
    assert!(elsewhere.is_untouched());
}

#[test]
fn each_piece_is_passed_on_before_the_next_one_exists() {
    let upstream = FakeUpstream::new(|_, wire, _| {
        let head = wire.read_head().unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        // An echo: a piece of the answer for each piece of the request.
        while let Some(piece) = wire.read_chunk().filter(|piece| !piece.is_empty()) {
            wire.send_chunk(&piece);
        }
        wire.send_chunk(b"");
    });
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let mut wire = Wire::dial(address);
    wire.send(
        format!("{}\r\nTransfer-Encoding: chunked\r\n\r\n", post(address, "/v1/chat/completions"))
            .as_bytes(),
    );
    assert!(wire.read_head().unwrap().starts_with("http/1.1 200"));
    for piece in ["data: 1\n\n", "d", "ata: \u{1f30d}\n\n"] {
        wire.send_chunk(piece.as_bytes());
        assert_eq!(wire.read_chunk().unwrap(), piece.as_bytes());
    }
    wire.send_chunk(b"");
    assert_eq!(wire.read_chunk().unwrap(), b"");
}

#[test]
fn a_body_at_the_ceiling_passes() {
    let upstream = FakeUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let ceilings = Ceilings { request_body_bytes: 300_000, ..Ceilings::default() };
    let (_muzzle, address) = Muzzle::start(ceilings, upstream.address);
    let body = vec![b'x'; 300_000];
    let mut wire = Wire::dial(address);
    wire.send(
        format!("{}\r\nContent-Length: {}\r\n\r\n", post(address, "/v1/responses"), body.len())
            .as_bytes(),
    );
    wire.send(&body);
    assert_eq!(wire.read().unwrap().status(), 200);
    assert_eq!(upstream.request().body, body);
}

#[test]
fn one_connection_serves_many_requests_and_the_upstream_sees_one_too() {
    let connections = std::sync::Arc::new(Mutex::new(Vec::new()));
    let counted = std::sync::Arc::clone(&connections);
    let upstream = FakeUpstream::new(move |number, wire, _| {
        while wire.read().is_some() {
            counted.lock().unwrap().push(number);
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let mut wire = Wire::dial(address);
    for _ in 0..20 {
        wire.send(
            format!("{}\r\nContent-Length: 2\r\n\r\n{{}}", post(address, "/v1/embeddings"))
                .as_bytes(),
        );
        assert_eq!(wire.read().unwrap().status(), 200);
    }
    assert_eq!(connections.lock().unwrap().len(), 20);
}

#[test]
fn an_upstream_that_says_it_closes_after_each_answer_is_no_fault() {
    let upstream = FakeUpstream::new(|_, wire, _| {
        if wire.read().is_some() {
            wire.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let mut wire = Wire::dial(address);
    for _ in 0..20 {
        wire.send(
            format!(
                "{}\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{{}}",
                post(address, "/v1/embeddings")
            )
            .as_bytes(),
        );
        assert_eq!(wire.read().unwrap().status(), 200);
    }
}

/// Cuts a body at the given places.
fn pieces<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    places.push(0);
    places.push(body.len());
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| &body[pair[0]..pair[1]])
        .filter(|piece| !piece.is_empty())
        .collect()
}

fn framed(body: &[u8], cuts: &[prop::sample::Index], chunked: bool) -> (String, Vec<Vec<u8>>) {
    let pieces = pieces(body, cuts);
    if chunked {
        let mut sent: Vec<Vec<u8>> = pieces.into_iter().map(chunk).collect();
        sent.push(b"0\r\n\r\n".to_vec());
        ("Transfer-Encoding: chunked".to_owned(), sent)
    } else {
        (
            format!("Content-Length: {}", body.len()),
            pieces.into_iter().map(<[u8]>::to_vec).collect(),
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_the_same_however_they_are_cut(
        request in prop::collection::vec(any::<u8>(), 0..6000),
        answer in prop::collection::vec(any::<u8>(), 0..6000),
        request_cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        answer_cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        request_chunked: bool,
        answer_chunked: bool,
    ) {
        let (framing, sent) = framed(&answer, &answer_cuts, answer_chunked);
        let upstream = FakeUpstream::new(move |_, wire, seen| {
            while let Some(request) = wire.read() {
                seen.send(request).unwrap();
                wire.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes());
                for piece in &sent {
                    wire.send(piece);
                }
            }
        });
        let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
        let (framing, sent) = framed(&request, &request_cuts, request_chunked);
        let mut wire = Wire::dial(address);
        wire.send(format!("{}\r\n{framing}\r\n\r\n", post(address, "/v1/chat/completions")).as_bytes());
        for piece in &sent {
            wire.send(piece);
        }
        let received = wire.read().unwrap();
        prop_assert!(received.whole);
        prop_assert_eq!(received.status(), 200);
        prop_assert_eq!(received.body, answer);
        prop_assert_eq!(upstream.request().body, request);
    }
}
