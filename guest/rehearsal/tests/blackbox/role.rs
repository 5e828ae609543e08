//! The role as a process: this test binary, started again.

use std::process::{Command, Stdio};

use rehearsal::{RoleArguments, run_role};

use crate::support::*;

/// Set for the process that plays the role.
const CHILD: &str = "REHEARSAL_TEST_PORT_FILE";

#[test]
fn plays_the_role_when_started_for_it() {
    if let Some(port_file) = std::env::var_os(CHILD) {
        let arguments = ["--scenario".into(), "demo".into(), "--port-file".into(), port_file];
        run_role(&RoleArguments::parse(arguments).unwrap()).unwrap();
    }
}

#[test]
fn writes_its_port_once_it_answers_and_ends_well_when_told() {
    let home = tempfile::tempdir().unwrap();
    let port_file = home.path().join("port");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["role::plays_the_role_when_started_for_it", "--exact"])
        .env(CHILD, &port_file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    let port = loop {
        if let Ok(text) = std::fs::read_to_string(&port_file) {
            break text;
        }
        assert!(start.elapsed() < DEADLINE && child.try_wait().unwrap().is_none(), "no port came");
        std::thread::yield_now();
    };
    let address = format!("127.0.0.1:{}", port.strip_suffix('\n').unwrap()).parse().unwrap();
    let mut client = Client::connect(address);
    client.send("GET", "/v1/models", "");
    assert!(client.read().text().contains("\"rehearsal\""));
    let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert!(child.wait().unwrap().success());
}
