//! Configurations and bearers change while exchanges are open.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use muzzle::admin::AdminError;
use muzzle::limits::Ceilings;
use muzzle::{Auth, Listener};

use crate::support::*;

/// An upstream that answers with its name, in two pieces, the second when it is told to.
fn named(name: &'static str) -> (FakeUpstream, std::sync::mpsc::Sender<()>) {
    let (go, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let upstream = FakeUpstream::new(move |_, wire, _| {
        while wire.read().is_some() {
            wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            wire.send_chunk(name.as_bytes());
            told.lock().unwrap().recv_timeout(DEADLINE).unwrap();
            wire.send_chunk(b" done");
            wire.send_chunk(b"");
        }
    });
    (upstream, go)
}

struct Stream(Wire);

impl Stream {
    fn open(wire: Wire, address: std::net::SocketAddr, says: &str) -> Self {
        let mut wire = wire;
        wire.send(
            format!("{}\r\nContent-Length: 2\r\n\r\n{{}}", post(address, "/v1/chat/completions"))
                .as_bytes(),
        );
        wire.read_head().unwrap();
        assert_eq!(wire.read_chunk().unwrap(), says.as_bytes());
        Self(wire)
    }

    fn finish(mut self) -> Wire {
        assert_eq!(self.0.read_chunk().unwrap(), b" done");
        assert_eq!(self.0.read_chunk().unwrap(), b"");
        self.0
    }
}

fn refusal(error: &AdminError) -> (u16, &str, &str) {
    let AdminError::Refused { status, kind, message } = error else {
        panic!("not a refusal: {error}")
    };
    (*status, kind, message)
}

#[test]
fn a_new_configuration_takes_effect_on_the_next_request_and_leaves_open_streams_alone() {
    let ((one, go_one), (two, go_two)) = (named("one"), named("two"));
    let muzzle = Muzzle::bare(Ceilings::default());
    muzzle.admit(TOKEN, "run-1");
    let upstreams = [("one", one.address), ("two", two.address)];
    let address = muzzle.put(&config(&[listener("main", 0, "one")], &upstreams)).unwrap().listeners
        [0]
    .address;
    let open = Stream::open(Wire::dial(address), address, "one");
    let idle = Wire::dial(address);
    let after = muzzle.put(&config(&[listener("main", 0, "two")], &upstreams)).unwrap();
    assert_eq!(
        (after.listeners[0].address, after.listeners[0].upstream.as_str()),
        (address, "two")
    );
    let second = Stream::open(idle, address, "two");
    go_one.send(()).unwrap();
    let same_connection = Stream::open(open.finish(), address, "two");
    go_two.send(()).unwrap();
    go_two.send(()).unwrap();
    second.finish();
    same_connection.finish();
}

#[test]
fn a_removed_listener_gives_its_port_back_at_once_and_lets_open_streams_finish() {
    let (upstream, go) = named("up");
    let (muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let open = Stream::open(Wire::dial(address), address, "up");
    assert!(muzzle.put(&config(&[], &[])).unwrap().listeners.is_empty());
    let taken = TcpListener::bind(address).unwrap();
    go.send(()).unwrap();
    let mut wire = open.finish();
    assert!(wire.is_closed(), "a drained connection is closed after its last answer");
    drop(taken);
}

#[test]
fn a_removed_listener_waits_for_its_streams_only_so_long() {
    let (upstream, _never) = named("up");
    let ceilings = Ceilings {
        removed_listener_drain: std::time::Duration::from_millis(20),
        ..Ceilings::default()
    };
    let (muzzle, address) = Muzzle::start(ceilings, upstream.address);
    let mut open = Stream::open(Wire::dial(address), address, "up");
    muzzle.put(&config(&[], &[])).unwrap();
    assert_eq!(open.0.read_chunk(), None);
}

#[test]
fn listeners_may_swap_ports_and_names() {
    let ((one, go_one), (two, go_two)) = (named("one"), named("two"));
    let muzzle = Muzzle::bare(Ceilings::default());
    muzzle.admit(TOKEN, "run-1");
    let upstreams = [("one", one.address), ("two", two.address)];
    let first = muzzle
        .put(&config(&[listener("a", 0, "one"), listener("b", 0, "two")], &upstreams))
        .unwrap();
    let (a, b) = (first.listeners[0].address, first.listeners[1].address);
    let swapped =
        config(&[listener("a", b.port(), "one"), listener("b", a.port(), "two")], &upstreams);
    let second = muzzle.put(&swapped).unwrap();
    assert_eq!((second.listeners[0].address, second.listeners[1].address), (b, a));
    let (on_a, on_b) =
        (Stream::open(Wire::dial(a), a, "two"), Stream::open(Wire::dial(b), b, "one"));
    go_one.send(()).unwrap();
    go_two.send(()).unwrap();
    on_a.finish();
    on_b.finish();
}

#[test]
fn a_configuration_that_cannot_bind_changes_nothing_and_names_the_port() {
    let (upstream, go) = named("up");
    let (muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let before = muzzle.status();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let free = dead_port();
    let wanted = config(
        &[listener("new", free.port(), "up"), listener("other", port, "up")],
        &[("up", upstream.address)],
    );
    let error = muzzle.put(&wanted).unwrap_err();
    let (status, kind, message) = refusal(&error);
    assert_eq!((status, kind), (409, "cannot_bind"));
    assert!(
        message.contains("listeners[1].bind") && message.contains(&format!("127.0.0.1:{port}")),
        "{message}"
    );
    assert_eq!(muzzle.status(), before);
    TcpListener::bind(free).unwrap();
    go.send(()).unwrap();
    Stream::open(Wire::dial(address), address, "up").finish();
    drop(taken);
    assert_eq!(muzzle.put(&wanted).unwrap().listeners.len(), 2);
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_stays() {
    let (upstream, go) = named("up");
    let (muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    let before = muzzle.status();
    let mut bad = config(&[listener("main", 0, "nowhere")], &[]);
    let error = muzzle.put(&bad).unwrap_err();
    assert_eq!(refusal(&error).1, "config_refused");
    bad.version = 9;
    let error = muzzle.put(&bad).unwrap_err();
    assert!(refusal(&error).2.contains("version: is 9"), "{error}");
    for (body, kind, says) in [
        ("", "config_shape", "line 1"),
        ("{", "config_shape", "line 1"),
        (
            "{\"version\":1,\n\"listenres\":[]}",
            "config_shape",
            "unknown field `listenres`, expected one of `version`, `upstreams`, `listeners` at line 2",
        ),
        ("{\"version\":\"1\"}", "config_shape", "line 1"),
    ] {
        let (status, answer) = raw(&muzzle, "PUT", "/v1/config", body);
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains(kind) && answer.contains(says), "{answer}");
    }
    assert_eq!(muzzle.status(), before);
    go.send(()).unwrap();
    Stream::open(Wire::dial(address), address, "up").finish();
}

#[test]
fn a_key_is_refused_in_words_and_not_repeated() {
    let muzzle = Muzzle::bare(Ceilings::default());
    let body = r#"{"version":1,"upstreams":[{"name":"u","provider":"openai","base_url":"http://127.0.0.1:9","key":"sk-secret-value"}]}"#;
    let (status, answer) = raw(&muzzle, "PUT", "/v1/config", body);
    assert_eq!(status, 422, "{answer}");
    assert!(
        answer.contains("needs Muzzle's inspection, which this build does not have"),
        "{answer}"
    );
    assert!(!answer.contains("sk-secret-value"), "{answer}");
    assert!(muzzle.status().listeners.is_empty());
}

#[test]
fn status_says_what_runs() {
    let (upstream, _go) = named("up");
    let muzzle = Muzzle::bare(Ceilings::default());
    assert_eq!((muzzle.status().listeners.len(), muzzle.status().admitted), (0, 0));
    let open = Listener { auth: Auth::None, passthrough: true, ..listener("open", 0, "up") };
    let put = muzzle
        .put(&config(&[open, listener("main", 0, "up")], &[("up", upstream.address)]))
        .unwrap();
    muzzle.admit(TOKEN, "run-1");
    let status = muzzle.status();
    assert_eq!((status.listeners.clone(), status.admitted), (put.listeners, 1));
    let said: Vec<_> = status
        .listeners
        .iter()
        .map(|l| {
            (
                l.name.as_str(),
                l.upstream.as_str(),
                l.auth,
                l.passthrough,
                l.port == l.address.port(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [("open", "up", Auth::None, true, true), ("main", "up", Auth::Bearer, false, true)]
    );
    let json: serde_json::Value =
        serde_json::from_str(&raw(&muzzle, "GET", "/v1/status", "").1).unwrap();
    assert_eq!(json["listeners"][0]["auth"], "none");
}

#[test]
fn a_restarted_muzzle_admits_nobody_until_told_again() {
    let (upstream, go) = named("up");
    let (first, address) = Muzzle::start(Ceilings::default(), upstream.address);
    go.send(()).unwrap();
    Stream::open(Wire::dial(address), address, "up").finish();
    drop(first);
    let second = Muzzle::bare(Ceilings::default());
    let put = second
        .put(&config(&[listener("main", address.port(), "up")], &[("up", upstream.address)]))
        .unwrap();
    assert_eq!((put.listeners[0].address, put.admitted), (address, 0));
    assert_eq!(ask(address).refusal(), "bearer_unknown");
    second.admit(TOKEN, "run-1");
    go.send(()).unwrap();
    Stream::open(Wire::dial(address), address, "up").finish();
}

#[test]
fn stopping_lets_open_streams_finish_and_then_ends() {
    let (upstream, go) = named("up");
    let (mut muzzle, address) = Muzzle::start(
        Ceilings { shutdown_drain: DEADLINE, ..Ceilings::default() },
        upstream.address,
    );
    let open = Stream::open(Wire::dial(address), address, "up");
    muzzle.tell_to_stop();
    until("the port becoming free", || std::net::TcpStream::connect(address).is_err());
    go.send(()).unwrap();
    open.finish();
    muzzle.join();
}

#[test]
fn it_ends_when_the_owner_of_the_admin_socket_closes_it() {
    let home = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(home.path().join("admin.sock")).unwrap();
    let owners = listener.try_clone().unwrap();
    let thread =
        std::thread::spawn(move || block_on(muzzle::serve(listener, None, std::future::pending())));
    let client = muzzle::admin::Client::new(home.path().join("admin.sock"));
    until("the admin interface answering", || block_on(client.status()).is_ok());
    rustix::net::shutdown(&owners, rustix::net::Shutdown::Both).unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn the_admin_interface_refuses_what_it_does_not_know() {
    let muzzle = Muzzle::bare(Ceilings::default());
    let good = "0".repeat(64);
    for (method, path, body, status, kind) in [
        ("GET", "/".to_owned(), "", 404, "not_found"),
        ("GET", "/v1/config".to_owned(), "", 405, "method_not_allowed"),
        ("DELETE", "/v1/config".to_owned(), "", 405, "method_not_allowed"),
        ("POST", "/v1/status".to_owned(), "", 405, "method_not_allowed"),
        ("PUT", "/v1/tokens/xyz".to_owned(), "{\"run\":\"r\"}", 400, "digest"),
        ("PUT", format!("/v1/tokens/{good}/"), "{\"run\":\"r\"}", 400, "digest"),
        ("PUT", format!("/v1/tokens/{good}"), "", 400, "body"),
        ("PUT", format!("/v1/tokens/{good}"), "{\"run\":\"\"}", 400, "body"),
        ("PUT", format!("/v1/tokens/{good}"), "{\"run\":\"r\",\"listener\":\"l\"}", 400, "body"),
        ("GET", format!("/v1/tokens/{good}"), "", 405, "method_not_allowed"),
        ("DELETE", format!("/v1/tokens/{good}"), "", 404, "not_admitted"),
    ] {
        let (said, answer) = raw(&muzzle, method, &path, body);
        assert_eq!(said, status, "{method} {path}: {answer}");
        assert!(answer.contains(&format!("\"type\":\"{kind}\"")), "{method} {path}: {answer}");
    }
    assert_eq!(raw(&muzzle, "PUT", &format!("/v1/tokens/{good}"), "{\"run\":\"r\"}").0, 204);
    assert_eq!(raw(&muzzle, "PUT", &format!("/v1/tokens/{good}"), "{\"run\":\"other\"}").0, 409);
    let large =
        format!("{{\"version\":1,\"listeners\":[{}", " ".repeat(muzzle::limits::ADMIN_BODY_BYTES));
    assert_eq!(raw(&muzzle, "PUT", "/v1/config", &large).0, 413);
}

#[test]
fn a_client_says_when_nothing_answers() {
    let home = tempfile::tempdir().unwrap();
    let client = muzzle::admin::Client::new(home.path().join("nobody.sock"));
    let error = block_on(client.status()).unwrap_err();
    assert!(
        matches!(&error, AdminError::Connect { .. }) && error.to_string().contains("nobody.sock"),
        "{error}"
    );
}

/// One admin request as bytes; returns status and body.
fn raw(muzzle: &Muzzle, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(&muzzle.socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: muzzle\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // What is refused by its size alone may be refused before it was written whole.
    stream.write_all(request.as_bytes()).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
