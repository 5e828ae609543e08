//! Whoever dies, and however: no process of a call is left.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use worker::host::{Exit, HostError};
use worker::sandbox::Abi;

use crate::stage::{World, lives, number_in, run_child, wait_until};

/// A daemon far below, which ignores requests to end, and a program that waits for ever.
const STUBBORN: &str = "(trap '' TERM HUP INT; echo $$ > shell; setsid sh -c 'trap \"\" TERM; echo $$ > daemon; sleep 300' &) ; \
                        sleep 300";

/// The role of a worker that runs one call and is killed meanwhile. Its world is where its directory says.
pub(crate) fn play_worker() {
    let root = std::env::current_dir().unwrap();
    let world = World::at(&root);
    let mut host = world.fork();
    world.put("host", &host.pid().unwrap().to_string());
    host.run(&world.sh(STUBBORN)).unwrap();
}

fn start_worker(world: &World) -> (Child, [i32; 3]) {
    let worker = Command::new(std::env::current_exe().unwrap())
        .args(["tool-role", "worker"])
        .current_dir(&world.root)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let file = |name: &str| world.workspace.join(name);
    let number = |path: PathBuf| {
        assert!(
            wait_until(Duration::from_secs(20), || number_in(&path).is_some()),
            "{}",
            path.display()
        );
        number_in(&path).unwrap()
    };
    let pids = [number(file("host")), number(file("shell")), number(file("daemon"))];
    assert!(pids.iter().all(|pid| lives(*pid)));
    (worker, pids)
}

pub(crate) fn a_killed_worker_leaves_no_tool_host_and_no_child() {
    let world = World::new();
    let (mut worker, pids) = start_worker(&world);
    kill(Pid::from_raw(i32::try_from(worker.id()).unwrap()), Signal::SIGKILL).unwrap();
    worker.wait().unwrap();
    assert!(
        wait_until(Duration::from_secs(20), || pids.iter().all(|pid| !lives(*pid))),
        "{pids:?}"
    );
    assert!(
        wait_until(Duration::from_secs(5), || no_private_directory(&world.tmp)),
        "temporary files are left"
    );
}

fn no_private_directory(place: &Path) -> bool {
    std::fs::read_dir(place).unwrap().next().is_none()
}

pub(crate) fn a_killed_tool_host_takes_its_children_with_it_and_the_worker_hears_of_it() {
    let world = World::new();
    let mut host = world.fork();
    let pid = Pid::from_raw(host.pid().unwrap());
    let daemon = world.workspace.join("daemon");
    let killer = std::thread::spawn(move || {
        assert!(wait_until(Duration::from_secs(20), || number_in(&daemon).is_some()));
        kill(pid, Signal::SIGKILL).unwrap();
        number_in(&daemon).unwrap()
    });
    assert_eq!(host.run(&world.sh(STUBBORN)), Err(HostError::Gone));
    let daemon = killer.join().unwrap();
    assert!(!lives(daemon), "gone before the worker is told");
    assert_eq!(host.run(&world.sh("true")), Err(HostError::Gone));
    host.reap().unwrap();
}

pub(crate) fn a_tool_host_shrugs_off_requests_to_end_and_ends_with_its_socket() {
    let world = World::new();
    let mut host = world.fork();
    let pid = host.pid().unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        kill(Pid::from_raw(pid), signal).unwrap();
    }
    let said = run_child(&mut host, &world.sh("true"));
    assert_eq!(said.outcome.exit, Exit::Code(0));
    host.reap().unwrap();
    assert!(!lives(pid));
    assert!(no_private_directory(&world.tmp));
}

pub(crate) fn dropping_a_tool_host_ends_it() {
    let world = World::new();
    let host = world.fork();
    let pid = host.pid().unwrap();
    drop(host);
    assert!(!lives(pid));
}

pub(crate) fn threads_may_start_once_the_tool_host_is_forked() {
    let world = World::new();
    let mut host = world.fork();
    let spec = world.sh("echo well");
    let said = std::thread::spawn(move || host.run(&spec).unwrap()).join().unwrap();
    assert_eq!(said.stdout, b"well\n");
}

pub(crate) fn a_stopped_tool_host_is_given_up_with_everything_below_it() {
    // Below ABI 6 a tool can stop its own tool host.
    let world = World::new();
    let mut host = world.fork_at_most(Abi(5));
    let pid = host.pid().unwrap();
    let mut spec = world.sh("echo $$ > daemon; kill -STOP $PPID; sleep 300");
    spec.limits.deadline = Duration::from_millis(100);
    spec.limits.grace = Duration::ZERO;
    assert_eq!(host.run(&spec), Err(HostError::Unresponsive));
    assert!(!lives(pid));
    assert!(!lives(number_in(&world.workspace.join("daemon")).unwrap()));
    assert_eq!(host.run(&spec), Err(HostError::Gone));
}
