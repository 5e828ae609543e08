//! The launcher as root: separate uids, real processes, real signals.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use support::{
    Control, Launcher, Place, daemon_pid, field, is_alive, kill, put, status_of, wait_for,
    worker_report,
};

/// A launcher with one agent account and one run.
fn with_run(run_id: &str) -> (Place, Launcher, Control) {
    let place = Place::separate();
    let launcher = place.launch();
    let mut control = launcher.control();
    assert_eq!(control.ensure("leash-scout")["Ok"]["done"], "agent_user");
    place.make_run("leash-scout", run_id);
    (place, launcher, control)
}

/// The kernel's view of a process that must be `uid` and nothing more.
fn assert_bare(pid: u64, uid: u32) {
    let status = status_of(pid);
    let four = format!("{uid} {uid} {uid} {uid}");
    assert_eq!(field(&status, "Uid"), four);
    assert_eq!(field(&status, "Gid"), four);
    assert_eq!(field(&status, "Groups"), "");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(field(&status, "NoNewPrivs"), "1");
}

/// A process's own view: what it inherited.
fn assert_clean(report: &Value, fds: &[&str]) {
    let status = report["status"].as_str().unwrap();
    assert_eq!(field(status, "Umask"), "0007");
    assert_eq!(field(status, "SigBlk"), "0000000000000000");
    assert_eq!(report["session"], report["pid"]);
    assert_eq!(report["death_signal"], 9);
    assert_eq!(report["cwd"], "/");
    // The directory being listed is open while it is listed.
    let mut open: Vec<&str> =
        report["fds"].as_object().unwrap().keys().map(String::as_str).collect();
    open.retain(|fd| !report["fds"][fd].as_str().unwrap().starts_with("/proc/"));
    open.sort_unstable();
    assert_eq!(open, fds);
    assert_eq!(report["fds"]["0"], "/dev/null");
}

#[test]
fn every_process_has_its_own_uid_no_capability_and_only_its_descriptors() {
    let (place, launcher, mut control) = with_run("sleep-1");
    let uids = place.uids().unwrap().clone();
    assert_eq!(control.hello["control_uid"], uids.control);
    assert_eq!(control.hello["muzzle_uid"], uids.muzzle);
    assert_eq!(control.hello["boundary"], "separate");
    assert_eq!(control.hello["single_uid"], false);

    assert_eq!(field(&status_of(launcher.pid()), "Uid"), "0 0 0 0");
    let report = control.report();
    assert_bare(report["pid"].as_u64().unwrap(), uids.control);
    assert_clean(&report, &["0", "1", "2", "3", "4"]);

    let muzzle = launcher.muzzle();
    assert_bare(muzzle["pid"].as_u64().unwrap(), uids.muzzle);
    assert_clean(&muzzle, &["0", "1", "2", "3"]);

    let spawned = control.spawn("sleep-1");
    let agent = *uids.agents.start();
    assert_bare(spawned["pid"].as_u64().unwrap(), agent);
    let worker = worker_report(&place, "sleep-1");
    assert_eq!(worker["pid"], spawned["pid"]);
    assert_clean(&worker, &["0", "1", "2"]);
    assert_eq!(
        worker["env"]["SENTINEL_RUN"],
        json!(place.state().join("runs/leash-scout/sleep-1"))
    );
    assert_eq!(worker["args"], json!(["sentinel", "worker", "sleep-1"]));

    let observed = &spawned["observed"];
    assert_eq!(observed["uid"], agent);
    assert_eq!(observed["groups"], json!([]));
    for set in ["cap_eff", "cap_bnd", "cap_prm", "cap_inh", "cap_amb"] {
        assert_eq!(observed[set], 0, "{set}");
    }
    assert_eq!(observed["no_new_privs"], true);
    let copy = place.state().join("bin").join(observed["exe_sha256"].as_str().unwrap());
    assert_eq!(worker["exe"], json!(copy.join("sentinel")));
}

#[test]
fn nothing_of_what_the_launcher_itself_was_given_is_handed_on() {
    let place = Place::separate();
    let lavish = place.path().join("lavish");
    let script = format!(
        "#!/bin/sh\ntrap '' HUP USR1\nexec 9</dev/zero\nexport INTRUDER=1\nexec setpriv --groups 1,2 \
         --inh-caps +chown,+kill --ambient-caps +chown,+kill {} \"$@\"\n",
        place.path().join("sentinel").display()
    );
    put(&lavish, &script);
    fs::set_permissions(&lavish, fs::Permissions::from_mode(0o755)).unwrap();
    let launcher = place.launch_by(&lavish);
    let mut control = launcher.control();

    let own = status_of(launcher.pid());
    assert_eq!(field(&own, "Groups"), "1 2");
    assert_eq!(field(&own, "CapInh"), "0000000000000021");
    assert_eq!(field(&own, "CapAmb"), "0000000000000021");
    assert!(fs::read_link(format!("/proc/{}/fd/9", launcher.pid())).unwrap().ends_with("zero"));
    let ignored = |status: &str| u64::from_str_radix(&field(status, "SigIgn"), 16).unwrap();
    let hangup_and_user = 1 | 1 << 9;
    assert_eq!(ignored(&own) & hangup_and_user, hangup_and_user);

    let uids = place.uids().unwrap().clone();
    control.ensure("leash-scout");
    place.make_run("leash-scout", "sleep-1");
    control.spawn("sleep-1");
    let reports = [
        (control.report(), uids.control, 5),
        (launcher.muzzle(), uids.muzzle, 4),
        (worker_report(&place, "sleep-1"), *uids.agents.start(), 3),
    ];
    for (report, uid, fds) in reports {
        assert_bare(report["pid"].as_u64().unwrap(), uid);
        assert_clean(&report, &["0", "1", "2", "3", "4"][..fds]);
        assert_eq!(report["env"]["INTRUDER"], Value::Null);
        assert_eq!(ignored(report["status"].as_str().unwrap()) & hangup_and_user, 0);
    }
}

#[test]
fn files_have_the_owners_and_modes_that_keep_them() {
    let (place, launcher, mut control) = with_run("sleep-1");
    let uids = place.uids().unwrap().clone();
    control.spawn("sleep-1");
    let check = |path: &str, owner: u32, mode: u32| {
        let metadata = fs::symlink_metadata(place.path().join(path)).unwrap();
        let found = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        let group = if path.contains("log") { uids.control } else { owner };
        assert_eq!(found, (owner, group, mode), "{path}");
    };
    let agent = *uids.agents.start();
    check("state", uids.control, 0o710);
    check("state/dev-uids.json", 0, 0o600);
    check("state/launcher.lock", 0, 0o600);
    check("state/bin", 0, 0o711);
    check("state/log", 0, 0o750);
    check("state/log/workers.log", 0, 0o640);
    check("state/agents", uids.control, 0o710);
    check("state/agents/scout", uids.control, 0o710);
    check("state/agents/scout/workspace", agent, 0o770);
    check("state/memory/scout", agent, 0o770);
    check("sockets", 0, 0o755);
    check("sockets/control.sock", 0, 0o660);
    check("sockets/muzzle.sock", uids.control, 0o600);
    drop(launcher);
}

#[test]
fn a_pidfd_says_when_a_worker_ends_and_the_notice_says_how() {
    let (place, _launcher, mut control) = with_run("sleep-1");
    control.spawn("sleep-1");
    let key = control.last_seq();
    assert!(!control.pidfd_ended(&key, Duration::ZERO));
    assert_eq!(control.signal("sleep-1", "terminate")["Ok"]["done"], "signalled");
    assert!(control.pidfd_ended(&key, support::PATIENCE));
    assert_eq!(control.exited("sleep-1"), json!({ "signal": 15 }));

    for (run_id, how) in [("exit7-1", json!({ "code": 7 })), ("aborts-1", json!({ "signal": 6 }))] {
        place.make_run("leash-scout", run_id);
        control.spawn(run_id);
        assert_eq!(control.exited(run_id), how);
    }
    place.make_run("leash-scout", "stubborn-1");
    control.spawn("stubborn-1");
    wait_for("the worker to be deaf", || place.log().contains("\nstubborn\n").then_some(()));
    let key = control.last_seq();
    control.signal("stubborn-1", "terminate");
    assert!(!control.pidfd_ended(&key, Duration::from_millis(200)));
    control.signal("stubborn-1", "kill");
    assert_eq!(control.exited("stubborn-1"), json!({ "signal": 9 }));
    assert_eq!(control.signal("stubborn-1", "kill")["Err"]["rule"], "no-live-worker");
}

#[test]
fn a_run_may_be_started_again_after_its_notice_and_not_before() {
    let (_place, _launcher, mut control) = with_run("sleep-1");
    let first = control.spawn("sleep-1")["pid"].as_u64().unwrap();
    let (rule, text) = control.spawn_refusal("sleep-1");
    assert_eq!(rule, "worker-alive");
    assert!(text.contains(&first.to_string()), "{text}");
    control.signal("sleep-1", "kill");
    control.exited("sleep-1");
    let second = control.spawn("sleep-1")["pid"].as_u64().unwrap();
    assert_ne!(first, second);
}

#[test]
fn a_daemon_that_a_worker_left_is_gone_before_its_notice() {
    let (place, launcher, mut control) = with_run("daemon-1");
    place.make_run("leash-scout", "daemon-2");
    control.spawn("daemon-1");
    let daemon = daemon_pid(&place, "daemon-1");
    // It is what it claims to be: in a session of its own, deaf to what asks politely, and adopted.
    kill(daemon, Signal::TERM);
    let status = status_of(daemon);
    assert_eq!(field(&status, "PPid"), launcher.pid().to_string());
    assert_eq!(field(&status, "NSsid"), daemon.to_string());
    control.signal("daemon-1", "kill");
    control.exited("daemon-1");
    assert!(!is_alive(daemon));

    control.spawn("daemon-2");
    let daemon = daemon_pid(&place, "daemon-2");
    control.signal("daemon-2", "kill");
    control.exited("daemon-2");
    assert!(!is_alive(daemon));
}

#[test]
fn a_chain_of_processes_that_fork_and_exit_is_ended() {
    let (place, _launcher, mut control) = with_run("chain-1");
    control.spawn("chain-1");
    control.exited("chain-1");
    let uid = *place.uids().unwrap().agents.start();
    assert_eq!(processes_of(uid), Vec::<u64>::new());
    // The account works as before.
    place.make_run("leash-scout", "sleep-2");
    control.spawn("sleep-2");
    assert_eq!(processes_of(uid).len(), 1);
}

fn processes_of(uid: u32) -> Vec<u64> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u64>() else { continue };
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        if field(&status, "Uid").starts_with(&format!("{uid} ")) && is_alive(pid) {
            found.push(pid);
        }
    }
    found
}

#[test]
fn a_killed_control_plane_is_started_again_and_told_what_lives() {
    let (place, launcher, mut control) = with_run("sleep-1");
    place.make_run("leash-scout", "sleep-2");
    let first = control.spawn("sleep-1")["pid"].clone();
    let second = control.spawn("sleep-2")["pid"].clone();
    let old = control.pid();
    kill(old, Signal::KILL);
    wait_for("the control plane to be gone", || (!is_alive(old)).then_some(()));

    let mut control = launcher.control();
    assert_ne!(control.pid(), old);
    assert_eq!(
        control.hello["live"],
        json!([{ "run_id": "sleep-1", "pid": first }, { "run_id": "sleep-2", "pid": second }])
    );
    for (run_id, pid) in [("sleep-1", &first), ("sleep-2", &second)] {
        let live = control.next_notice();
        assert_eq!(live["notice"]["notice"], "live");
        assert_eq!(live["notice"]["run_id"], run_id);
        assert_eq!(&live["notice"]["pid"], pid);
        assert_eq!(live["fd"], true);
        assert!(live["notice"]["observed"]["exe_sha256"].is_string());
    }
    assert_eq!(control.next_notice()["notice"]["notice"], "muzzle_started");
    assert!(!control.pidfd_ended("sleep-2", Duration::ZERO));
    control.signal("sleep-2", "kill");
    assert!(control.pidfd_ended("sleep-2", support::PATIENCE));
    assert_eq!(control.exited("sleep-2"), json!({ "signal": 9 }));
    assert!(!control.pidfd_ended("sleep-1", Duration::ZERO));
}

#[test]
fn ends_that_nobody_was_there_to_be_told_are_told_to_the_next_control_plane() {
    let (place, launcher, mut control) = with_run("sleep-1");
    place.make_run("leash-scout", "sleep-2");
    let ends = control.spawn("sleep-1")["pid"].as_u64().unwrap();
    control.spawn("sleep-2");
    let old = control.pid();
    // The launcher finds both dead at once.
    launcher.signal(Signal::STOP);
    for pid in [old, ends] {
        kill(pid, Signal::KILL);
        wait_for("the process to be gone", || (!is_alive(pid)).then_some(()));
    }
    launcher.signal(Signal::CONT);
    let mut control = launcher.control();
    assert_eq!(control.hello["live"].as_array().unwrap().len(), 1);
    assert_eq!(control.hello["live"][0]["run_id"], "sleep-2");
    assert_eq!(control.exited("sleep-1"), json!({ "signal": 9 }));
    control.spawn("sleep-1");
}

#[test]
fn a_launch_that_fails_is_a_refusal_with_its_step() {
    let place = Place::separate();
    let limited = place.path().join("limited");
    let program = place.path().join("sentinel");
    put(&limited, &format!("#!/bin/sh\nexec prlimit --nproc=20 {} \"$@\"\n", program.display()));
    fs::set_permissions(&limited, fs::Permissions::from_mode(0o755)).unwrap();
    let launcher = place.launch_by(&limited);
    let mut control = launcher.control();
    control.ensure("leash-scout");
    let start = |control: &mut Control, index: usize| {
        let run_id = format!("sleep-{index}");
        place.make_run("leash-scout", &run_id);
        control.request(json!({ "verb": "worker_spawn", "run_id": run_id })).0
    };
    // The dead of another test may still count against the limit.
    wait_for("the first worker", || start(&mut control, 0)["Ok"].is_object().then_some(()));
    let refusals = (1..100).map(|index| start(&mut control, index)["Err"].clone());
    let refusal = refusals.into_iter().find(|refusal| !refusal.is_null()).unwrap();
    assert_eq!(refusal["rule"], "launch");
    let why = refusal["why"].as_str().unwrap();
    let step = "could not execute the program: Resource temporarily unavailable";
    assert!(why.contains(step), "{why}");
    // Nothing of it is left, and there is room again when another has ended.
    control.signal("sleep-0", "kill");
    control.exited("sleep-0");
    control.spawn("sleep-0");
}

#[test]
fn a_control_plane_that_keeps_failing_ends_the_launcher_with_a_reason() {
    let mut place = Place::separate();
    place.set_env("FAKE_CONTROL_DIES", "9");
    let text = place.launch().refusal();
    assert!(
        text.contains("refused: the control plane ended 8 times in a row, last with exit code 9"),
        "{text}"
    );
    assert!(!place.sockets().join("control.sock").exists());
    place.set_env("FAKE_CONTROL_DIES", "no");
    place.launch().control();
}

#[test]
fn muzzle_is_started_again_and_the_control_plane_is_told() {
    let place = Place::separate();
    let launcher = place.launch();
    let mut control = launcher.control();
    let first = control.next_of("muzzle_started")["notice"]["pid"].as_u64().unwrap();
    assert_eq!(launcher.muzzle()["pid"], first);
    kill(first, Signal::KILL);
    let second = control.next_of("muzzle_started")["notice"]["pid"].as_u64().unwrap();
    assert_ne!(first, second);
    assert_eq!(launcher.muzzle()["pid"], second);
}

#[test]
fn what_is_no_request_is_refused_or_ends_the_control_plane_and_nothing_else() {
    let (place, launcher, mut control) = with_run("sleep-1");
    control.spawn("sleep-1");
    for (datagram, seq) in [
        (r#"{"verb":"worker_spawn","seq":900,"run_id":"../../../etc"}"#.to_owned(), 900),
        (r#"{"verb":"run_as_root","seq":901,"command":"id"}"#.to_owned(), 901),
        (r#"{"verb":"worker_spawn","seq":902,"run_id":"sleep-1","uid":0}"#.to_owned(), 902),
    ] {
        control.send(&datagram);
        let reply = control.next_of("reply");
        assert_eq!(reply["notice"]["seq"], seq);
        assert_eq!(reply["notice"]["result"]["Err"]["rule"], "malformed-request");
    }
    for datagram in ["{".to_owned(), "no".to_owned(), "x".repeat(70_000), "[".repeat(60_000)] {
        let old = control.pid();
        control.send_last(&datagram);
        wait_for("the control plane to be ended", || (!is_alive(old)).then_some(()));
        control = launcher.control();
        assert_eq!(control.hello["live"].as_array().unwrap().len(), 1);
    }
    let old = control.pid();
    control.send_last(&format!("{}x", " ".repeat(65_535)));
    wait_for("the control plane to be ended", || (!is_alive(old)).then_some(()));
    let mut control = launcher.control();
    place.make_run("leash-scout", "sleep-2");
    control.spawn("sleep-2");
}

#[test]
fn a_control_plane_that_closes_its_channel_is_replaced() {
    let place = Place::separate();
    let launcher = place.launch();
    let mut control = launcher.control();
    let old = control.pid();
    control.end(&json!({ "do": "close" }));
    wait_for("the control plane to be ended", || (!is_alive(old)).then_some(()));
    assert_ne!(launcher.control().pid(), old);
    launcher.control().end(&json!({ "do": "exit", "code": 0 }));
    launcher.control();
}

#[test]
fn only_a_real_run_directory_of_a_registered_account_gets_a_worker() {
    let (place, _launcher, mut control) = with_run("sleep-1");
    let uids = place.uids().unwrap().clone();
    let refused = |control: &mut Control, run_id: &str, rule: &str| {
        let (found, text) = control.spawn_refusal(run_id);
        assert_eq!(found, rule, "{text}");
    };
    refused(&mut control, "sleep-none", "unknown-run");

    place.make_run("leash-stranger", "sleep-2");
    refused(&mut control, "sleep-2", "unknown-run");
    control.ensure("leash-stranger");
    control.spawn("sleep-2");

    let scout = place.state().join("runs/leash-scout");
    symlink("sleep-1", scout.join("sleep-3")).unwrap();
    refused(&mut control, "sleep-3", "run-directory");
    fs::remove_file(scout.join("sleep-3")).unwrap();
    put(scout.join("sleep-3"), "");
    refused(&mut control, "sleep-3", "run-directory");
    fs::remove_file(scout.join("sleep-3")).unwrap();
    let run = place.make_run("leash-scout", "sleep-3");
    let agent = *uids.agents.start();
    chown(&run, Some(agent), Some(agent)).unwrap();
    refused(&mut control, "sleep-3", "run-owner");
    chown(&run, Some(uids.control), Some(uids.control)).unwrap();
    control.spawn("sleep-3");

    place.make_run("leash-scout", "sleep-4");
    place.make_run("leash-stranger", "sleep-4");
    refused(&mut control, "sleep-4", "ambiguous-run");
    fs::remove_dir(scout.join("sleep-4")).unwrap();
    let spawned = control.spawn("sleep-4");
    assert_eq!(spawned["observed"]["uid"], agent + 1);
}

#[test]
fn an_account_directory_that_is_a_link_holds_no_run() {
    let (place, _launcher, mut control) = with_run("sleep-1");
    control.ensure("leash-other");
    let runs = place.state().join("runs");
    fs::rename(runs.join("leash-scout"), runs.join("elsewhere")).unwrap();
    symlink("elsewhere", runs.join("leash-scout")).unwrap();
    assert_eq!(control.spawn_refusal("sleep-1").0, "unknown-run");
    fs::remove_file(runs.join("leash-scout")).unwrap();
    fs::rename(runs.join("elsewhere"), runs.join("leash-scout")).unwrap();
    control.spawn("sleep-1");
}

#[test]
fn a_uid_that_the_machine_knows_is_refused() {
    // The name service is asked in a mount namespace of the launcher's own, where the machine has
    // an account with the uid in question.
    let place = Place::separate();
    let uids = place.uids().unwrap().clone();
    let passwd =
        |id: u32| format!("root:x:0:0:root:/root:/bin/sh\nintruder:x:{id}:{id}::/:/bin/sh\n");
    for id in [uids.control, uids.muzzle] {
        let text = launch_with(&place, "passwd", &passwd(id)).refusal();
        assert!(text.contains(&format!("uid {id} belongs to \"intruder\"")), "{text}");
    }
    let group = format!("root:x:0:\nintruders:x:{}:\n", uids.muzzle);
    let text = launch_with(&place, "group", &group).refusal();
    assert!(text.contains(&format!("gid {} belongs to \"intruders\"", uids.muzzle)), "{text}");
    let delegated = format!("intruder:{}:5\n", uids.agents.end() - 1);
    let text = launch_with(&place, "subuid", &delegated).refusal();
    assert!(text.contains("/etc/subuid: line 1"), "{text}");

    // An agent's uid: asked for when it is given out.
    let launcher = launch_with(&place, "passwd", &passwd(uids.agents.start() + 1));
    let mut control = launcher.control();
    assert_eq!(control.ensure("leash-one")["Ok"]["uid"], *uids.agents.start());
    let refusal = control.ensure("leash-two")["Err"].clone();
    assert_eq!(refusal["rule"], "known-uid");
    assert!(refusal["why"].as_str().unwrap().contains("\"intruder\""), "{refusal}");
    drop(launcher);
    let launcher = launch_with(&place, "passwd", &passwd(4_000));
    assert_eq!(launcher.control().ensure("leash-two")["Ok"]["uid"], uids.agents.start() + 1);
    drop(launcher);

    // And when its worker is started.
    place.make_run("leash-two", "sleep-1");
    let launcher = launch_with(&place, "passwd", &passwd(uids.agents.start() + 1));
    let mut control = launcher.control();
    assert_eq!(control.spawn_refusal("sleep-1").0, "known-uid");
    drop(launcher);
    let launcher = place.launch();
    launcher.control().spawn("sleep-1");
}

/// Starts a launcher that sees `text` as the content of a file in `/etc`: in a mount namespace of its
/// own, on a copy.
fn launch_with(place: &Place, file: &str, text: &str) -> Launcher {
    let (etc, program) = (place.path().join("etc"), place.path().join("sentinel"));
    let copied = Command::new("cp").arg("-a").arg("/etc/.").arg(&etc).status().unwrap();
    assert!(copied.success());
    put(etc.join(file), text);
    let wrapper = place.path().join("wrapped");
    let script = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {} /etc && exec {} \"$@\"' sh \"$@\"\n",
        etc.display(),
        program.display()
    );
    put(&wrapper, &script);
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    place.launch_by(&wrapper)
}

#[test]
fn a_second_launcher_on_the_same_state_or_sockets_is_refused_with_the_first_ones_pid() {
    let place = Place::separate();
    let launcher = place.launch();
    launcher.control();
    let first = format!("another launcher (process {})", launcher.pid());
    let other = Place::separate();
    assert!(place.launch().refusal().contains(&first));
    let elsewhere = json!({ "state": place.path().join("state2"), "sockets": other.sockets() });
    let text = place.launch_with_config(&elsewhere).refusal();
    assert!(text.contains(&format!("{first} works with the uids")), "{text}");
    let text = other.launch_with_config(&json!({ "state": place.state() })).refusal();
    assert!(text.contains("belongs to uid"), "{text}");
    let text = other.launch_with_config(&json!({ "sockets": place.sockets() })).refusal();
    assert!(text.contains(&first), "{text}");
    launcher.control();
    other.launch().control();
    launcher.signal(Signal::TERM);
    assert!(launcher.wait().0.success());
    place.launch().control();
}

#[test]
fn a_damaged_registry_is_refused_by_name_and_nothing_changes() {
    let place = Place::separate();
    let launcher = place.launch();
    launcher.control().ensure("leash-scout");
    launcher.signal(Signal::TERM);
    launcher.wait();
    let path = place.state().join("dev-uids.json");
    let good = fs::read_to_string(&path).unwrap();
    for damaged in [&good[..good.len() / 2], "{}", ""] {
        put(&path, damaged);
        let text = place.launch().refusal();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    }
    fs::remove_file(&path).unwrap();
    assert!(place.launch().refusal().contains("it is missing"));
    assert!(!path.exists());
    put(&path, &good);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let uid = place.launch().control().ensure("leash-scout")["Ok"]["uid"].clone();
    assert_eq!(uid, *place.uids().unwrap().agents.start());
}

#[test]
fn a_state_directory_that_cannot_be_the_control_planes_is_refused() {
    let place = Place::separate();
    fs::create_dir(place.state()).unwrap();
    put(place.state().join("something"), "");
    assert!(place.launch().refusal().contains("belongs to uid 0"));
    fs::remove_file(place.state().join("something")).unwrap();
    // Root's, but empty: adopted.
    drop(place.launch().control());
    fs::rename(place.state(), place.path().join("real")).unwrap();
    symlink("real", place.state()).unwrap();
    assert!(place.launch().refusal().contains("symbolic link"));
    fs::remove_file(place.state()).unwrap();
    fs::rename(place.path().join("real"), place.state()).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(place.launch().refusal().contains("cannot be passed by uid"));
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o711)).unwrap();
    place.launch().control();
}

#[test]
fn everything_dies_with_a_killed_launcher_and_the_next_one_starts() {
    let (place, launcher, mut control) = with_run("sleep-1");
    let worker = control.spawn("sleep-1")["pid"].as_u64().unwrap();
    let muzzle = launcher.muzzle()["pid"].as_u64().unwrap();
    let everyone = [control.pid(), worker, muzzle];
    assert!(everyone.iter().all(|pid| is_alive(*pid)));
    kill(launcher.pid(), Signal::KILL);
    wait_for("everything to be gone", || everyone.iter().all(|pid| !is_alive(*pid)).then_some(()));
    assert!(place.sockets().join("control.sock").exists());
    let launcher = place.launch();
    let mut control = launcher.control();
    assert_eq!(control.hello["live"], json!([]));
    control.spawn("sleep-1");
}

#[test]
fn what_an_earlier_launcher_left_running_is_ended_first() {
    let place = Place::separate();
    let uid = *place.uids().unwrap().agents.start();
    let mut leftover = Command::new("setpriv")
        .args(["--reuid", &uid.to_string(), "--regid", &uid.to_string(), "--clear-groups"])
        .args(["sh", "-c", "trap '' TERM HUP; while :; do sleep 1000; done"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut bystander = Command::new("setpriv")
        .args(["--reuid", "57995", "--regid", "57995", "--clear-groups", "sleep", "60"])
        .spawn()
        .unwrap();
    wait_for("the leftover", || (!processes_of(uid).is_empty()).then_some(()));
    place.launch().control();
    leftover.wait().unwrap();
    assert_eq!(processes_of(uid), Vec::<u64>::new());
    assert!(is_alive(bystander.id().into()));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn on_ctrl_c_everything_ends_and_the_runs_are_kept() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (place, launcher, mut control) = with_run("sleep-1");
        let worker = control.spawn("sleep-1")["pid"].as_u64().unwrap();
        let everyone = [control.pid(), worker, launcher.muzzle()["pid"].as_u64().unwrap()];
        launcher.signal(signal);
        let (status, text) = launcher.wait();
        assert!(status.success(), "{text}");
        assert!(text.contains("ended, 1 runs kept"), "{text}");
        assert!(everyone.iter().all(|pid| !is_alive(*pid)));
        assert!(!place.sockets().join("control.sock").exists());
        assert!(!place.sockets().join("muzzle.sock").exists());
    }
}

#[test]
fn a_worker_deaf_to_sigterm_is_killed_when_the_launcher_ends() {
    let (place, launcher, mut control) = with_run("stubborn-1");
    let worker = control.spawn("stubborn-1")["pid"].as_u64().unwrap();
    wait_for("the worker to be deaf", || place.log().contains("\nstubborn\n").then_some(()));
    launcher.signal(Signal::TERM);
    let (status, text) = launcher.wait();
    assert!(status.success(), "{text}");
    assert!(!is_alive(worker));
}

#[test]
fn the_program_is_executed_from_roots_copy_whatever_stands_under_its_name_later() {
    let (place, launcher, mut control) = with_run("sleep-1");
    let bin = place.state().join("bin");
    fs::rename(&bin, place.state().join("moved")).unwrap();
    let digest = fs::read_dir(place.state().join("moved")).unwrap().next().unwrap().unwrap();
    let forged = bin.join(digest.file_name());
    fs::create_dir_all(&forged).unwrap();
    put(forged.join("sentinel"), "#!/bin/sh\necho forged >&2\n");
    fs::set_permissions(forged.join("sentinel"), fs::Permissions::from_mode(0o755)).unwrap();
    control.spawn("sleep-1");
    worker_report(&place, "sleep-1");
    assert!(!place.log().contains("forged"));
    drop(launcher);
    // At the next start the forged copy is found out by its digest.
    let launcher = place.launch();
    launcher.control().spawn("sleep-1");
    assert_ne!(
        fs::read_to_string(forged.join("sentinel")).ok(),
        Some("#!/bin/sh\necho forged >&2\n".to_owned())
    );
}
