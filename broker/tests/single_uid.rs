//! The launcher as an ordinary user: everything has one uid, what is proved does not need root.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use support::{
    Control, Launcher, Place, daemon_pid, field, is_alive, kill, wait_for, worker_report,
};

fn with_run(run_id: &str) -> (Place, Launcher, Control) {
    let place = Place::single();
    let launcher = place.launch_single();
    let control = launcher.control();
    place.make_run("leash-scout", run_id);
    (place, launcher, control)
}

#[test]
fn one_uid_runs_everything_and_says_so() {
    let (place, launcher, mut control) = with_run("sleep-1");
    let uid = fs::metadata(place.state()).unwrap().uid();
    assert_eq!(control.hello["boundary"], "single-uid");
    assert_eq!(control.hello["single_uid"], true);
    assert_eq!(control.hello["control_uid"], uid);
    assert_eq!(control.hello["muzzle_uid"], uid);
    assert_eq!(control.ensure("leash-scout")["Ok"]["uid"], uid);
    for path in ["agents/scout/workspace", "memory/scout"] {
        let metadata = fs::metadata(place.state().join(path)).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (uid, 0o700), "{path}");
    }
    let observed = control.spawn("sleep-1")["observed"].clone();
    assert_eq!(observed["uid"], uid);
    assert_eq!(observed["cap_eff"], 0);
    assert_eq!(observed["no_new_privs"], true);
    let worker = worker_report(&place, "sleep-1");
    let status = worker["status"].as_str().unwrap();
    assert_eq!(field(status, "Umask"), "0077");
    assert_eq!(field(status, "NoNewPrivs"), "1");
    assert_eq!(worker["session"], worker["pid"]);
    assert_eq!(worker["death_signal"], 9);
    assert_eq!(launcher.muzzle()["session"], launcher.muzzle()["pid"]);
    let mode = |path: &str| fs::metadata(place.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("state"), 0o700);
    assert_eq!(mode("sockets"), 0o700);
    assert_eq!(mode("sockets/control.sock"), 0o600);
}

#[test]
fn an_orphan_is_gone_before_the_notice_and_a_pidfd_says_when() {
    let (place, _launcher, mut control) = with_run("daemon-1");
    control.spawn("daemon-1");
    let key = control.last_seq();
    let daemon = daemon_pid(&place, "daemon-1");
    assert!(!control.pidfd_ended(&key, Duration::ZERO));
    control.signal("daemon-1", "kill");
    assert_eq!(control.exited("daemon-1"), json!({ "signal": 9 }));
    assert!(control.pidfd_ended(&key, Duration::ZERO));
    assert!(!is_alive(daemon));
}

#[test]
fn a_killed_control_plane_finds_its_workers_again() {
    let (_place, launcher, mut control) = with_run("sleep-1");
    let pid = control.spawn("sleep-1")["pid"].clone();
    let old = control.pid();
    kill(old, Signal::KILL);
    wait_for("the control plane to be gone", || (!is_alive(old)).then_some(()));
    let mut control = launcher.control();
    assert_eq!(control.hello["live"], json!([{ "run_id": "sleep-1", "pid": pid }]));
    assert_eq!(control.next_notice()["fd"], true);
}

#[test]
fn a_run_in_two_places_or_none_is_refused() {
    let (place, _launcher, mut control) = with_run("sleep-1");
    assert_eq!(control.spawn_refusal("sleep-2").0, "unknown-run");
    place.make_run("leash-other", "sleep-1");
    assert_eq!(control.spawn_refusal("sleep-1").0, "ambiguous-run");
    fs::remove_dir(place.state().join("runs/leash-other/sleep-1")).unwrap();
    control.spawn("sleep-1");
}

#[test]
fn a_second_launcher_is_refused_and_a_killed_one_leaves_nothing_alive() {
    let (place, launcher, mut control) = with_run("sleep-1");
    let text = place.launch_single().refusal();
    assert!(text.contains(&format!("another launcher (process {})", launcher.pid())), "{text}");
    let everyone = [
        control.spawn("sleep-1")["pid"].as_u64().unwrap(),
        control.pid(),
        launcher.muzzle()["pid"].as_u64().unwrap(),
    ];
    kill(launcher.pid(), Signal::KILL);
    wait_for("everything to be gone", || everyone.iter().all(|pid| !is_alive(*pid)).then_some(()));
    place.launch_single().control();
}

#[test]
fn on_ctrl_c_everything_ends_and_the_runs_are_kept() {
    let (place, launcher, mut control) = with_run("sleep-1");
    control.spawn("sleep-1");
    launcher.signal(Signal::INT);
    let (status, text) = launcher.wait();
    assert!(status.success(), "{text}");
    assert!(text.contains("ended, 1 runs kept"), "{text}");
    assert!(!place.sockets().join("control.sock").exists());
}

#[test]
fn muzzle_that_keeps_failing_ends_the_launcher_with_its_log() {
    let mut place = Place::single();
    place.set_env("FAKE_MUZZLE_DIES", "1");
    let text = place.launch_single().refusal();
    assert!(text.contains("muzzle ended 8 times in a row, last with exit code 5"), "{text}");
    assert!(text.contains("log/muzzle.log"), "{text}");
}
