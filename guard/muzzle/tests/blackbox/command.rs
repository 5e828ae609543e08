//! `muzzle serve` as a person starts it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

struct Serving {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn serve(config: &str, admin: bool) -> (Serving, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("muzzle.yaml");
    #[expect(clippy::disallowed_methods, reason = "a test's own file")]
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_muzzle"));
    command
        .args(["serve", "--config"])
        .arg(&file)
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .stdin(Stdio::null());
    if admin {
        command.arg("--admin-socket").arg(home.path().join("admin.sock"));
    }
    let mut child = command.spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    (Serving { child, log }, home)
}

fn failure(config: &str, admin: bool) -> String {
    let (mut serving, _home) = serve(config, admin);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut serving.log, &mut said).unwrap();
    assert_eq!(serving.child.wait().unwrap().code(), Some(1), "{said}");
    said
}

const UPSTREAM: &str = "version: 1\nupstreams:\n  - { name: local, provider: ollama, base_url: \"http://127.0.0.1:9\" }\n";

#[test]
fn a_bad_file_is_refused_with_its_line() {
    let said = failure(
        &format!(
            "{UPSTREAM}listeners:\n  - {{ name: a, bnid: \"127.0.0.1:0\", upstream: local }}\n"
        ),
        true,
    );
    assert!(
        said.contains("muzzle.yaml")
            && said.contains("unknown field `bnid`")
            && said.contains("line 5"),
        "{said}"
    );
    let said = failure(
        "version: 1\nupstreams: [{ name: a, provider: openai, base_url: \"http://h\", key: sk-secret }]\n",
        true,
    );
    assert!(
        said.contains("needs Muzzle's inspection, which this build does not have")
            && !said.contains("sk-secret"),
        "{said}"
    );
}

#[test]
fn a_bearer_that_nobody_could_admit_is_a_mistake() {
    let said = failure(
        &format!(
            "{UPSTREAM}listeners:\n  - {{ name: a, bind: \"127.0.0.1:0\", upstream: local }}\n"
        ),
        false,
    );
    assert!(
        said.contains("listener `a` asks for a bearer") && said.contains("auth: none"),
        "{said}"
    );
}

#[test]
fn it_logs_requests_without_their_secrets_and_stops_when_told() {
    let upstream =
        FakeUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nanswer-content");
    let config = UPSTREAM.replace("127.0.0.1:9", &upstream.address.to_string());
    let (mut serving, home) = serve(
        &format!("{config}listeners:\n  - {{ name: a, bind: \"127.0.0.1:0\", upstream: local }}\n"),
        true,
    );
    let socket = home.path().join("admin.sock");
    let client = muzzle::admin::Client::new(&socket);
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert_ne!(serving.log.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    until("the admin interface answering", || block_on(client.status()).is_ok());
    let address = block_on(client.status()).unwrap().listeners[0].address;
    block_on(client.admit(muzzle::TokenDigest::of(TOKEN.as_bytes()), "run-1")).unwrap();
    let mut wire = Wire::dial(address);
    let head = post(address, "/v1/messages?key=query-secret");
    wire.send(format!("{head}\r\nContent-Length: 12\r\n\r\nbody-content").as_bytes());
    assert_eq!(wire.read().unwrap().status(), 200);
    drop(wire);
    kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut serving.log, &mut said).unwrap();
    assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{said}");
    assert!(!socket.exists());
    for part in [
        "method=\"POST\"",
        "path=\"/v1/messages\"",
        "listener=a",
        "run=\"run-1\"",
        "status=200",
        "ended=whole",
        "ms=",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    for secret in [TOKEN, "query-secret", "body-content", "answer-content"] {
        assert!(!said.contains(secret), "{secret} in {said}");
    }
}
