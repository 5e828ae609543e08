//! What a tool child can do to other processes of its account, and what it inherits from its worker.

use std::process::{Child, Command, Stdio};

use worker::host::Program;
use worker::sandbox::Abi;

use crate::stage::{World, attempt_inside, attempt_outside, attempts, run_child, without_sandbox};

/// An unprotected process of the same account, outside the sandbox.
fn bystander() -> Child {
    let child = Command::new("sleep")
        .arg("300")
        .env("DEMO_API_KEY", "zzz-demo")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let environment = format!("/proc/{}/environ", child.id());
    let executed = || {
        std::fs::read(&environment)
            .is_ok_and(|bytes| bytes.windows(8).any(|part| part == b"zzz-demo"))
    };
    assert!(crate::stage::wait_until(std::time::Duration::from_secs(5), executed));
    child
}

pub(crate) fn a_child_has_neither_the_environment_nor_the_descriptors_of_its_worker() {
    let world = World::new();
    assert_eq!(std::env::var("DEMO_API_KEY").as_deref(), Ok("zzz-demo"));
    // Not closed on exec, as a careless library might leave it.
    let secret = std::fs::File::open(world.run_dir.join("run.json")).unwrap();
    let leaked = nix::unistd::dup(&secret).unwrap();
    let spec = world.sh("env; echo fds: $(ls /proc/self/fd)");
    let outside = String::from_utf8(without_sandbox(&spec).stdout).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&leaked).to_string();
    assert!(outside.lines().last().unwrap().split(' ').any(|fd| fd == number), "{outside}");
    let mut host = world.fork();
    let said = run_child(&mut host, &spec).must_succeed().out();
    let mut names: Vec<&str> =
        said.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    let expected = [
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_NAME",
        "HOME",
        "LANG",
        "PATH",
        "PWD",
        "TERM",
        "TMPDIR",
        "USER",
    ];
    assert_eq!(names, expected);
    assert!(!said.contains("zzz-demo"));
    // The fourth is the listing's own.
    assert_eq!(said.lines().last(), Some("fds: 0 1 2 3"));
    for name in ["DEMO_API_KEY", "LD_PRELOAD", "GIT_SSH_COMMAND"] {
        let mut spec = world.sh("true");
        spec.env.push((name.to_owned(), "x".to_owned()));
        assert!(host.run(&spec).is_err(), "{name}");
    }
}

pub(crate) fn the_memory_and_environment_of_worker_and_tool_host_are_closed() {
    let world = World::new();
    let own = std::process::id();
    let bystander = bystander();
    let read = |pid: &str| {
        ["environ", "mem", "maps", "auxv"]
            .map(|file| format!("open('/proc/{pid}/{file}', 'rb').read(0) and None"))
            .into_iter()
            .chain([
                format!("os.listdir('/proc/{pid}/fd')"),
                format!("os.readlink('/proc/{pid}/cwd')"),
            ])
            .collect::<Vec<String>>()
    };
    let spec_for = |pid: &str| {
        world.python(&attempts(&read(pid).iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let (worker, other) = (spec_for(&own.to_string()), spec_for(&bystander.id().to_string()));
    assert_eq!(attempt_outside(&worker), ["ok"; 6]);
    assert_eq!(attempt_outside(&other), ["ok"; 6]);
    let mut host = world.fork();
    let tool_host = spec_for("'+str(os.getppid())+'");
    for spec in [&worker, &tool_host] {
        let inside = attempt_inside(&mut host, spec);
        assert!(inside.iter().all(|answer| answer == "EACCES"), "{inside:?}");
    }
    // Which descriptors a process that did not close itself has is no secret, what they are is.
    let inside = attempt_inside(&mut host, &other);
    assert_eq!(inside, ["EACCES", "EACCES", "EACCES", "EACCES", "ok", "EACCES"]);
    let said =
        run_child(&mut host, &world.sh("cat /proc/$PPID/environ /proc/1/environ | tr '\\0' '\\n'"));
    assert!(!said.out().contains("zzz-demo"));
    assert!(said.err().contains("environ: Permission denied"), "{}", said.err());
    end(bystander);
}

pub(crate) fn without_landlock_worker_and_tool_host_are_still_closed() {
    let world = World::new();
    let own = std::process::id();
    let bystander = bystander();
    let read = |pid: &str| format!("open('/proc/{pid}/environ', 'rb').read()");
    let acts =
        [read(&own.to_string()), read("'+str(os.getppid())+'"), read(&bystander.id().to_string())];
    let spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    assert_eq!(attempt_outside(&spec), ["ok", "ok", "ok"]);
    let mut host = world.fork_at_most(Abi::NONE);
    assert_eq!(
        attempt_inside(&mut host, &spec),
        ["EACCES", "EACCES", "ok"],
        "closed by themselves, not by a layer"
    );
    end(bystander);
}

fn end(mut bystander: Child) {
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

pub(crate) fn signals_end_at_the_sandbox() {
    let world = World::new();
    let bystander = bystander();
    let (own, other) = (std::process::id(), bystander.id());
    let acts = [
        format!("os.kill({own}, 0)"),
        format!("os.kill({other}, 0)"),
        format!("call({}, {own}, {own}, 0)", libc::SYS_tgkill),
        format!("__import__('signal').pidfd_send_signal(os.pidfd_open({other}), 0)"),
    ];
    let inner = "os.kill(os.getppid() if False else os.getpid(), 0)";
    let spec =
        world.python(&attempts(&[&acts.each_ref().map(String::as_str)[..], &[inner]].concat()));
    assert_eq!(attempt_outside(&spec), ["ok"; 5]);
    let mut host = world.fork();
    let tool_host = world
        .python(&attempts(&["os.kill(os.getppid(), 0)", "os.killpg(os.getpgid(os.getppid()), 0)"]));
    assert_eq!(attempt_inside(&mut host, &spec), ["EPERM", "EPERM", "EPERM", "EPERM", "ok"]);
    assert_eq!(attempt_inside(&mut host, &tool_host), ["EPERM", "EPERM"]);
    host.reap().unwrap();
    end(bystander);
}

pub(crate) fn below_abi_6_signals_reach_other_processes_and_that_is_said() {
    let world = World::new();
    let mut host = world.fork_at_most(Abi(5));
    let spec = world.python(&attempts(&["os.kill(os.getppid(), 0)"]));
    assert_eq!(attempt_inside(&mut host, &spec), ["ok"]);
    let applied = host.prepare(&spec.grants).unwrap();
    assert!(!applied.scopes);
    assert!(
        applied.missing.iter().any(|missing| missing.what.starts_with("signals and abstract")),
        "{applied:?}"
    );
}

pub(crate) fn other_processes_cannot_be_traced_read_limited_or_slowed() {
    let world = World::new();
    let bystander = bystander();
    let pid = bystander.id();
    let limit = "ctypes.create_string_buffer(16)";
    let acts = [
        // PTRACE_SEIZE, then let go by exiting.
        format!("call({}, 0x4206, {pid}, 0, 0)", libc::SYS_ptrace),
        format!("call({}, {pid}, 0, 0, 0, 0, 0)", libc::SYS_process_vm_readv),
        format!("call({}, {pid}, {pid}, 0, 0, 0)", libc::SYS_kcmp),
        format!("call({}, os.pidfd_open({pid}), 0, 0)", libc::SYS_pidfd_getfd),
        format!("call({}, {pid}, 7, 0, {limit})", libc::SYS_prlimit64),
        format!("os.sched_setaffinity({pid}, os.sched_getaffinity(0))"),
        format!("os.setpriority(os.PRIO_PROCESS, {pid}, 19)"),
        "os.setpriority(os.PRIO_PGRP, 0, 19)".to_owned(),
        format!("call({}, 1, {pid}, 0)", libc::SYS_ioprio_set),
        format!("call({}, 2, 0, 0)", libc::SYS_ioprio_set),
    ];
    let own = [
        format!("call({}, 0, 7, 0, {limit})", libc::SYS_prlimit64),
        "os.sched_setaffinity(0, os.sched_getaffinity(0))".to_owned(),
        "os.setpriority(os.PRIO_PROCESS, 0, 19)".to_owned(),
        format!("call({}, 1, 0, 0)", libc::SYS_ioprio_set),
    ];
    // A group of its own, so that nobody else is slowed outside.
    let group = "os.getpgid(0) == os.getpid() or os.setpgrp()".to_owned();
    let text: Vec<&str> =
        std::iter::once(&group).chain(&acts).chain(&own).map(String::as_str).collect();
    let spec = world.python(&attempts(&text));
    assert_eq!(attempt_outside(&spec), vec!["ok"; text.len()]);
    let mut host = world.fork();
    let expected = [vec!["ok"], vec!["EPERM"; acts.len()], vec!["ok"; own.len()]].concat();
    assert_eq!(attempt_inside(&mut host, &spec), expected);
    end(bystander);
}

pub(crate) fn a_new_namespace_is_refused_and_clone3_is_unknown() {
    let world = World::new();
    let acts = [
        format!(
            "os.waitpid(call({}, {} | 17, 0, 0, 0, 0) or os._exit(0), 0)",
            libc::SYS_clone,
            libc::CLONE_NEWUSER
        ),
        format!("call({}, {})", libc::SYS_unshare, libc::CLONE_NEWUSER),
    ];
    let plain = [
        format!("os.waitpid(call({}, 17, 0, 0, 0, 0) or os._exit(0), 0)", libc::SYS_clone),
        "__import__('threading').Thread(target=print).start()".to_owned(),
        format!("call({}, 0, 0)", libc::SYS_clone3),
    ];
    let text: Vec<&str> = acts.iter().chain(&plain).map(String::as_str).collect();
    let spec = world.python(&attempts(&text));
    let outside: Vec<String> =
        attempt_outside(&spec).into_iter().filter(|line| !line.is_empty()).collect();
    // As root in a container these may be refused already; then this test proves less, and says so by failing.
    assert_eq!(outside, ["ok", "ok", "ok", "ok", "EINVAL"]);
    let mut host = world.fork();
    let inside: Vec<String> =
        attempt_inside(&mut host, &spec).into_iter().filter(|line| !line.is_empty()).collect();
    assert_eq!(inside, ["EPERM", "EPERM", "ok", "ok", "ENOSYS"]);
}

pub(crate) fn a_program_of_another_system_call_table_dies() {
    let world = World::new();
    // x32 marks its numbers with bit 30; without the filter the kernel does not know the number or runs it.
    let number = libc::SYS_getpid | 0x4000_0000;
    let spec = world.python(&attempts(&[&format!("call({number})")]));
    let outside = without_sandbox(&spec);
    assert!(outside.status.success());
    let mut host = world.fork();
    let said = run_child(&mut host, &spec);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(said.outcome.exit, worker::host::Exit::Signal(libc::SIGSYS));
    }
}

pub(crate) fn shared_kernel_objects_are_refused() {
    let world = World::new();
    // Nobody else's names: objects outlive their makers.
    let own = std::process::id();
    let key = 0x5300_0000 + own;
    let acts = [
        format!("call({}, {key}, 4096, 0o1600)", libc::SYS_shmget),
        format!("call({}, {key}, 1, 0o1600)", libc::SYS_semget),
        format!("call({}, {key}, 0o1600)", libc::SYS_msgget),
        format!(
            "call({}, b'stage{own}', {}, 0o600, 0)",
            libc::SYS_mq_open,
            libc::O_CREAT | libc::O_RDWR
        ),
        format!("call({}, b'stage{own}')", libc::SYS_mq_unlink),
        format!("call({}, b'user', b'stage{own}', b'x', 1, -2)", libc::SYS_add_key),
        format!("call({}, 1, ctypes.create_string_buffer(120))", libc::SYS_io_uring_setup),
    ];
    let tidy = [
        format!("call({}, call({}, {key}, 0, 0), 0, 0)", libc::SYS_shmctl, libc::SYS_shmget),
        format!("call({}, call({}, {key}, 0, 0), 0, 0, 0)", libc::SYS_semctl, libc::SYS_semget),
        format!("call({}, call({}, {key}, 0), 0, 0)", libc::SYS_msgctl, libc::SYS_msgget),
    ];
    let spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    let tidy = world.python(&attempts(&tidy.each_ref().map(String::as_str)));
    let outside = attempt_outside(&spec);
    assert_eq!(attempt_outside(&tidy), ["ok"; 3]);
    assert_eq!(outside, ["ok"; 7]);
    assert_eq!(attempt_inside(&mut world.fork(), &spec), ["EPERM"; 7]);
}

pub(crate) fn a_role_is_confined_like_any_other_child() {
    let world = World::new();
    let mut host = world.fork();
    let mut spec = world.sh("");
    spec.program = Program::Role { role: "read".to_owned() };
    spec.stdin = world.run_dir.join("run.json").to_str().unwrap().as_bytes().to_vec();
    assert_eq!(run_child(&mut host, &spec).must_succeed().out(), "PermissionDenied");
    spec.stdin = world.put("file", "text").to_str().unwrap().as_bytes().to_vec();
    assert_eq!(run_child(&mut host, &spec).must_succeed().out(), "text");
}
