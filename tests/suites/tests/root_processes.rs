//! As root: who runs as whom, with which capabilities, and what a worker's
//! account can write.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use domain::run::Status;
use suites::{Instance, processes, scenario, until};

/// Whether a process of `uid` can do what the shell command says.
fn as_uid(uid: u32, command: &str) -> bool {
    let status =
        Command::new("sh").args(["-c", command]).uid(uid).gid(uid).current_dir("/").status();
    status.is_ok_and(|status| status.success())
}

fn assert_identity(process: &processes::Process, uid: u32) {
    let same_four = |value: String| value.split_whitespace().all(|id| id == uid.to_string());
    assert!(same_four(process.status("Uid")), "{}: {}", process.role(), process.status("Uid"));
    assert!(same_four(process.status("Gid")), "{}: {}", process.role(), process.status("Gid"));
    assert_eq!(process.status("Groups"), "", "{}", process.role());
    for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(process.status(set), "0000000000000000", "{} {set}", process.role());
    }
    assert_eq!(process.status("NoNewPrivs"), "1", "{}", process.role());
}

#[test]
fn launcher_control_plane_muzzle_and_worker_have_the_uids_and_capabilities_of_their_zone() {
    let turns =
        [scenario::command("cat /dev/zero | head -c 1; sleep 30"), scenario::answer("done")];
    let instance = Instance::start(&scenario::of_turns(&turns.each_ref().map(String::as_str)));
    let run = instance.submit_with(Instance::automatic("wait"));
    let launcher = instance.launcher();
    let worker = until("a worker runs", || processes::worker(launcher));
    let host = until("its tool host runs", || processes::tool_host(worker.pid));
    let control = processes::control_plane(launcher).unwrap();
    let muzzle = processes::muzzle(launcher).unwrap();
    let uid = |p: &processes::Process| {
        p.status("Uid").split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    let me = processes::all().into_iter().find(|p| p.pid == launcher).unwrap();
    assert_eq!(uid(&me), 0);
    let uids = [uid(&control), uid(&muzzle), uid(&worker)];
    assert!(uids.iter().all(|uid| *uid != 0), "{uids:?}");
    assert!(uids[0] != uids[1] && uids[1] != uids[2] && uids[0] != uids[2], "{uids:?}");
    for process in [&control, &muzzle, &worker, &host] {
        assert_identity(process, uid(process));
    }
    assert_eq!(uid(&host), uids[2]);

    // The worker's account reads its control half and writes its own half only.
    let dir = instance.run_dir(&run);
    let path = |name: &str| dir.join(name).display().to_string();
    for name in ["run.json", "control.jsonl"] {
        assert!(
            as_uid(uids[2], &format!("cat {} >/dev/null", path(name))),
            "{name} unreadable to its worker"
        );
        assert!(!as_uid(uids[2], &format!("echo x >> {}", path(name))), "{name} writable");
        assert!(as_uid(uids[0], &format!("true >> {}", path(name))), "positive control: {name}");
    }
    assert!(!as_uid(uids[2], &format!("mv {} {}", path("run.json"), path("run.old"))));
    assert!(!as_uid(uids[2], &format!("touch {}", path("control.json"))));
    assert!(as_uid(uids[2], &format!("touch {}", path("worker/mine"))));
    // Another agent's account gets nowhere.
    assert!(!as_uid(uids[2] + 1, &format!("cat {}", path("run.json"))));
    assert!(!as_uid(uids[2] + 1, &format!("ls {}", instance.workspace().display())));
    // Muzzle's account neither.
    assert!(!as_uid(uids[1], &format!("cat {}", path("token"))));
    instance.ask(&api::control::Request::Cancel { run: run.clone() });
    instance.wait_for(&run, Status::Cancelled);
    until("every process of the run is gone", || {
        processes::worker(launcher).is_none().then_some(())
    });
}

#[test]
fn what_the_worker_claims_is_what_the_launcher_saw() {
    let turns = [scenario::answer("hello")];
    let instance = Instance::start(&scenario::of_turns(&turns.each_ref().map(String::as_str)));
    let run = instance.submit("say hello");
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(view.attestation_differences, Vec::<String>::new());
    let seen = view.attestation.unwrap();
    assert_eq!(seen.pointer("/observed/cap_bnd").and_then(serde_json::Value::as_u64), Some(0));
    assert_ne!(seen.pointer("/observed/uid").and_then(serde_json::Value::as_u64), Some(0));
}
