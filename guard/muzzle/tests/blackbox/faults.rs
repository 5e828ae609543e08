//! When something breaks, a client gets either an error it can read or a body that is visibly cut.

use std::time::Duration;

use muzzle::limits::Ceilings;

use crate::support::*;

/// Short waits for tests in which the upstream is silent on purpose.
fn impatient() -> Ceilings {
    let short = Duration::from_millis(50);
    Ceilings {
        answer_head: short,
        answer_silence: short,
        request_silence: short,
        ..Ceilings::default()
    }
}

#[test]
fn an_upstream_that_is_down() {
    let nobody = dead_port();
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), nobody);
    let answer = ask(address);
    assert_eq!((answer.status(), answer.refusal()), (502, "upstream_unreachable".to_owned()));
    assert!(answer.message().contains(&nobody.to_string()), "{}", answer.message());
    assert!(answer.message().contains("start the model server"), "{}", answer.message());
}

#[test]
fn an_upstream_whose_name_does_not_exist() {
    let muzzle = Muzzle::bare(Ceilings::default());
    let mut config = config(&[listener("main", 0, "up")], &[("up", dead_port())]);
    config.upstreams[0].base_url = "http://no-such-host.invalid:1".to_owned();
    let address = muzzle.put(&config).unwrap().listeners[0].address;
    muzzle.admit(TOKEN, "run-1");
    assert_eq!(ask(address).refusal(), "upstream_unreachable");
}

#[test]
fn an_upstream_that_does_not_answer_in_time() {
    let upstream = FakeUpstream::new(|_, wire, _| {
        wire.read();
        wire.is_closed();
    });
    let (_muzzle, address) = Muzzle::start(impatient(), upstream.address);
    let answer = ask(address);
    assert_eq!((answer.status(), answer.refusal()), (504, "upstream_timeout".to_owned()));
}

#[test]
fn an_upstream_that_closes_or_resets_before_it_answers() {
    for reset in [false, true] {
        let upstream = FakeUpstream::new(move |_, wire, _| {
            wire.read();
            if reset {
                wire.reset();
            }
        });
        let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
        let answer = ask(address);
        assert_eq!(
            (answer.status(), answer.refusal()),
            (502, "upstream_broken".to_owned()),
            "reset: {reset}"
        );
    }
}

#[test]
fn an_upstream_that_does_not_speak_http() {
    for noise in [
        "hello\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ] {
        let upstream = FakeUpstream::answering(noise);
        let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
        assert_eq!(ask(address).refusal(), "upstream_broken", "{noise}");
    }
}

/// How an upstream breaks off an answer whose beginning it sent.
#[derive(Clone, Copy, Debug)]
enum Break {
    Close,
    Reset,
    Silence,
    BadChunk,
}

#[test]
fn an_answer_that_breaks_off_never_looks_whole() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let counted = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello";
    for begin in [chunked, counted] {
        for how in [Break::Close, Break::Reset, Break::Silence, Break::BadChunk] {
            let upstream = FakeUpstream::new(move |_, wire, _| {
                wire.read();
                wire.send(begin.as_bytes());
                match how {
                    Break::Close => {}
                    Break::Reset => wire.reset(),
                    Break::Silence => drop(wire.is_closed()),
                    Break::BadChunk => wire.send(b"not a chunk size\r\n"),
                }
            });
            let (_muzzle, address) = Muzzle::start(impatient(), upstream.address);
            let answer = ask(address);
            assert_eq!(answer.status(), 200, "{how:?}");
            assert!(!answer.whole, "{how:?} after {begin:?} looked whole: {answer:?}");
            assert!(answer.body.starts_with(b"hello"), "what came before is passed on: {answer:?}");
        }
    }
}

#[test]
fn what_comes_after_a_counted_answer_is_not_part_of_the_next_one() {
    let upstream = FakeUpstream::new(|number, wire, _| {
        while wire.read().is_some() {
            let body = format!("{number}");
            wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother", body.len()).as_bytes());
        }
    });
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    for number in 0..5 {
        assert_eq!(ask(address).body, number.to_string().into_bytes());
    }
}

#[test]
fn an_idle_connection_that_the_upstream_closed_is_replaced() {
    let (closed, was_closed) = std::sync::mpsc::channel();
    let upstream = FakeUpstream::new(move |_, wire, _| {
        wire.read();
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        wire.shut_down();
        closed.send(()).unwrap();
    });
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    for _ in 0..10 {
        assert_eq!(ask(address).status(), 200);
        was_closed.recv_timeout(DEADLINE).unwrap();
    }
}

#[test]
fn a_client_that_goes_away_ends_the_exchange_upstream() {
    for answered in [false, true] {
        let (gone, was_gone) = std::sync::mpsc::channel();
        let upstream = FakeUpstream::new(move |_, wire, seen| {
            let request = wire.read().unwrap();
            if answered {
                wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
            }
            seen.send(request).unwrap();
            gone.send(wire.is_closed()).unwrap();
        });
        let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
        let mut wire = Wire::dial(address);
        wire.send(
            format!("{}\r\nContent-Length: 2\r\n\r\n{{}}", post(address, "/api/chat")).as_bytes(),
        );
        upstream.request();
        if answered {
            wire.read_head().unwrap();
            assert_eq!(wire.read_chunk().unwrap(), b"hello");
        }
        drop(wire);
        assert!(was_gone.recv_timeout(DEADLINE).unwrap(), "answered: {answered}");
    }
}

#[test]
fn a_client_that_stops_sending_is_told_so() {
    let upstream = FakeUpstream::new(|_, wire, _| {
        wire.read();
    });
    let (_muzzle, address) =
        Muzzle::start(Ceilings { answer_head: DEADLINE, ..impatient() }, upstream.address);
    let mut wire = Wire::dial(address);
    wire.send(
        format!("{}\r\nContent-Length: 20\r\n\r\n{{}}", post(address, "/api/chat")).as_bytes(),
    );
    let answer = wire.read().unwrap();
    assert_eq!((answer.status(), answer.refusal()), (408, "request_stalled".to_owned()));
}

#[test]
fn half_a_request_is_never_a_request() {
    let upstream = FakeUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (_muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    for framing in ["Content-Length: 20\r\n\r\n{}", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"]
    {
        let mut wire = Wire::dial(address);
        wire.send(format!("{}\r\n{framing}", post(address, "/api/chat")).as_bytes());
        wire.shut_down();
        wire.is_closed();
    }
    assert_eq!(ask(address).status(), 200);
    let whole = upstream.request();
    assert_eq!(whole.body, b"{}");
    assert_eq!(whole.header("content-length"), Some("2"));
}

#[test]
fn revoking_a_bearer_ends_what_is_open_with_it_and_nothing_else() {
    let (go, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let upstream = FakeUpstream::new(move |_, wire, seen| {
        let request = wire.read().unwrap();
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        seen.send(request).unwrap();
        told.lock().unwrap().recv_timeout(DEADLINE).unwrap();
        wire.try_send(b"0\r\n\r\n").ok();
    });
    let (muzzle, address) = Muzzle::start(Ceilings::default(), upstream.address);
    muzzle.admit("token-2", "run-2");
    let open = |token: &str| {
        let mut wire = Wire::dial(address);
        let head = post(address, "/api/chat").replace(TOKEN, token);
        wire.send(format!("{head}\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes());
        wire.read_head().unwrap();
        assert_eq!(wire.read_chunk().unwrap(), b"hello");
        wire
    };
    let (mut revoked, mut kept) = (open(TOKEN), open("token-2"));
    assert!(muzzle.revoke(TOKEN));
    assert_eq!(revoked.read_chunk(), None);
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(kept.read_chunk(), Some(Vec::new()));
}
