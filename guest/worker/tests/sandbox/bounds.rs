//! The bounded runner: what comes back, what ends a call, and that nothing outlives one.

use std::time::{Duration, Instant};

use worker::host::{EndedBy, Exit, HostError, Limits, Program, Step};

use crate::stage::{
    World, lives, must_not_start, number_in, run_child, wait_until, without_sandbox,
};

pub(crate) fn returns_what_a_program_wrote_and_how_it_ended() {
    let world = World::new();
    let mut host = world.fork();
    let said = run_child(&mut host, &world.sh("echo out; echo err >&2; exit 7"));
    assert_eq!((said.out(), said.err()), ("out".to_owned(), "err".to_owned()));
    assert_eq!((said.outcome.exit, said.outcome.ended_by), (Exit::Code(7), EndedBy::Itself));
    let said = run_child(&mut host, &world.sh("kill -SEGV $$"));
    assert_eq!((said.outcome.exit, said.outcome.ended_by), (Exit::Signal(11), EndedBy::Itself));
    host.reap().unwrap();
}

pub(crate) fn feeds_input_and_closes_it() {
    let world = World::new();
    let mut host = world.fork();
    let mut spec = world.sh("wc -c");
    spec.stdin = vec![b'x'; 1_000_000];
    assert_eq!(run_child(&mut host, &spec).must_succeed().out(), "1000000");
    let mut spec = world.sh("exec 0<&-; echo done");
    spec.stdin = vec![b'x'; 1_000_000];
    assert_eq!(run_child(&mut host, &spec).must_succeed().out(), "done");
}

pub(crate) fn arguments_and_paths_need_not_be_text() {
    use std::os::unix::ffi::OsStringExt;
    let world = World::new();
    let mut host = world.fork();
    let mut spec = world.sh("");
    let odd = std::ffi::OsString::from_vec(b"\xff\xfe".to_vec());
    let directory = world.workspace.join(&odd);
    std::fs::create_dir(&directory).unwrap();
    spec.cwd = directory;
    spec.program = Program::Argv(vec![
        "/bin/sh".into(),
        "-c".into(),
        "printf %s \"$1\"; pwd".into(),
        "sh".into(),
        odd,
    ]);
    let said = run_child(&mut host, &spec).must_succeed();
    assert!(said.outcome.stdout.starts_with(b"\xff\xfe/"));
    assert!(said.outcome.stdout.ends_with(b"/\xff\xfe\n"));
}

pub(crate) fn ends_at_the_deadline_although_a_reader_waits_for_a_fifo() {
    let world = World::new();
    let mut host = world.fork();
    let mut spec =
        world.sh("mkfifo fifo; (while :; do echo t >> tick; sleep 0.2; done) & cat fifo");
    spec.limits =
        Limits { deadline: Duration::from_secs(2), grace: Duration::from_secs(1), ..spec.limits };
    let started = Instant::now();
    let said = run_child(&mut host, &spec);
    assert_eq!(said.outcome.ended_by, EndedBy::Deadline);
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert!(said.outcome.survivors_killed >= 1, "{said:?}");
    let size = || std::fs::metadata(world.workspace.join("tick")).unwrap().len();
    let ticks = size();
    assert!(ticks > 0);
    assert!(
        !wait_until(Duration::from_millis(600), || size() != ticks),
        "it ticks on after the call has ended"
    );
}

pub(crate) fn a_program_that_ends_when_asked_may_tidy_up_at_the_deadline() {
    let world = World::new();
    let mut host = world.fork();
    let mut spec = world.sh("trap 'echo tidied; exit 3' TERM; while :; do sleep 0.05; done");
    spec.limits.deadline = Duration::from_millis(300);
    let said = run_child(&mut host, &spec);
    assert_eq!((said.outcome.ended_by, said.outcome.exit), (EndedBy::Deadline, Exit::Code(3)));
    assert_eq!(said.out(), "tidied");
}

pub(crate) fn kills_what_a_program_leaves_behind() {
    let world = World::new();
    let mut host = world.fork();
    let said =
        run_child(&mut host, &world.sh("sleep 300 & echo $! > pid; echo done")).must_succeed();
    assert_eq!((said.out().as_str(), said.outcome.survivors_killed), ("done", 1));
    assert!(!lives(number_in(&world.workspace.join("pid")).unwrap()));
    let said = run_child(&mut host, &world.sh("sleep 0.01 & wait; echo done")).must_succeed();
    assert_eq!(said.outcome.survivors_killed, 0);
}

pub(crate) fn kills_a_double_forked_daemon_that_ignores_requests_to_end() {
    let world = World::new();
    let mut host = world.fork();
    let script = "
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
        os.setpgid(0, 0)
        open('pid', 'w').write(str(os.getpid()))
        while True: time.sleep(1)
    os._exit(0)
while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)
";
    let mut spec = world.python(script);
    spec.limits.grace = Duration::from_millis(200);
    let said = run_child(&mut host, &spec).must_succeed();
    assert_eq!(said.outcome.survivors_killed, 1, "{said:?}");
    assert!(!lives(number_in(&world.workspace.join("pid")).unwrap()));
}

pub(crate) fn kills_descendants_below_a_reaper_of_their_own_and_those_that_are_stopped() {
    let world = World::new();
    let mut host = world.fork();
    let script = "
import ctypes, os, signal, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    if os.fork() == 0:
        open('pid', 'w').write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        while True: time.sleep(1)
    os._exit(0)
while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)
os.wait()
time.sleep(300)
";
    let mut spec = world.python(script);
    spec.limits = Limits {
        deadline: Duration::from_secs(1),
        grace: Duration::from_millis(100),
        ..spec.limits
    };
    let said = run_child(&mut host, &spec);
    assert_eq!(said.outcome.ended_by, EndedBy::Deadline);
    assert!(!lives(number_in(&world.workspace.join("pid")).unwrap()));
}

pub(crate) fn a_gibibyte_of_output_ends_the_call_at_the_cap() {
    let world = World::new();
    let mut host = world.fork();
    let pid = host.pid().unwrap();
    let said = run_child(&mut host, &world.sh("head -c 1073741824 /dev/zero >&2"));
    assert_eq!(said.outcome.ended_by, EndedBy::OutputCap);
    assert_eq!(said.outcome.stderr.len(), 1 << 20);
    let said = run_child(&mut host, &world.sh("head -c 1073741824 /dev/zero"));
    assert_eq!((said.outcome.ended_by, said.outcome.stdout.len()), (EndedBy::OutputCap, 1 << 20));
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 64 * 1024, "the tool host held {kilobytes} kB");
    let said = run_child(&mut host, &world.sh("head -c 1048576 /dev/zero")).must_succeed();
    assert_eq!(said.outcome.ended_by, EndedBy::Itself, "exactly the cap is within it");
}

pub(crate) fn a_process_that_burns_its_processor_time_is_ended() {
    let world = World::new();
    let mut host = world.fork();
    let mut spec = world.sh("while :; do :; done");
    spec.limits.cpu_seconds = 1;
    let said = run_child(&mut host, &spec);
    assert_eq!(said.outcome.ended_by, EndedBy::CpuCeiling);
    assert!(said.outcome.cpu_ms >= 500, "{said:?}");
}

pub(crate) fn processor_time_is_counted_over_the_whole_tree() {
    let world = World::new();
    let mut host = world.fork();
    let burn = "t = time.process_time()\n        while time.process_time() - t < 0.3: pass\n        os._exit(0)";
    let waited = format!(
        "
import os, time
for _ in range(20):
    if os.fork() == 0:
        {burn}
    os.wait()
"
    );
    let unwaited = format!(
        "
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(20):
    if os.fork() == 0:
        {burn}
    try: os.wait()
    except ChildProcessError: pass
"
    );
    for script in [waited, unwaited] {
        let mut spec = world.python(&script);
        spec.limits.cpu_seconds = 1;
        let said = run_child(&mut host, &spec);
        assert_eq!(said.outcome.ended_by, EndedBy::CpuCeiling, "{said:?}");
    }
}

pub(crate) fn a_storm_of_forks_is_bounded_and_gone() {
    let world = World::new();
    let mut host = world.fork();
    // Two thousand processes at most, where nothing bounds it.
    let storm = "
import os, time
depth = 0
while depth < 11:
    try:
        if os.fork() == 0: os.write(os.open('pids', os.O_CREAT | os.O_APPEND | os.O_WRONLY), f'{os.getpid()}\\n'.encode())
    except OSError as error:
        open('refused', 'w').write(str(error.errno))
    depth += 1
time.sleep(300)
";
    let mut spec = world.python(storm);
    spec.limits = Limits {
        deadline: Duration::from_secs(2),
        grace: Duration::ZERO,
        processes: 40,
        ..spec.limits
    };
    let said = run_child(&mut host, &spec);
    assert_eq!(said.outcome.ended_by, EndedBy::Deadline, "{said:?}");
    assert_eq!(number_in(&world.workspace.join("refused")), Some(libc::EAGAIN));
    assert!(said.outcome.survivors_killed < 40, "{said:?}");
    let pids = std::fs::read_to_string(world.workspace.join("pids")).unwrap();
    let pids: Vec<i32> = pids.lines().map(|line| line.parse().unwrap()).collect();
    assert!(!pids.is_empty() && pids.iter().all(|pid| !lives(*pid)));
}

pub(crate) fn a_call_is_cancelled_from_another_thread() {
    let world = World::new();
    let mut host = world.fork();
    let canceller = host.canceller();
    canceller.cancel().unwrap();
    let file = world.workspace.join("started");
    let waiter = std::thread::spawn(move || {
        assert!(wait_until(Duration::from_secs(20), || file.exists()));
        canceller.cancel().unwrap();
    });
    let said = run_child(&mut host, &world.sh("touch started; sleep 300"));
    waiter.join().unwrap();
    assert_eq!(said.outcome.ended_by, EndedBy::Cancelled);
    assert_eq!(run_child(&mut host, &world.sh("echo next")).must_succeed().out(), "next");
}

pub(crate) fn a_child_that_cannot_start_says_which_step_failed_and_never_looks_like_an_exit() {
    let world = World::new();
    let outside = world.root.join("outside");
    std::fs::copy("/bin/true", &outside).unwrap();
    let text = world.put("text", "no program");
    assert!(without_sandbox(&world.spec(&[outside.to_str().unwrap()])).status.success());
    let mut host = world.fork();
    let cases = [
        ("nosuchcmd", Step::Exec, libc::ENOENT),
        ("./nosuchcmd", Step::Exec, libc::ENOENT),
        (text.to_str().unwrap(), Step::Exec, libc::EACCES),
        (outside.to_str().unwrap(), Step::Exec, libc::EACCES),
    ];
    for (program, step, errno) in cases {
        let error = must_not_start(&mut host, &world.spec(&[program]));
        assert_eq!(error, HostError::Spawn { program: program.to_owned(), step, errno });
    }
    let nowhere = world.workspace.join("nowhere");
    let error = must_not_start(&mut host, &{
        let mut spec = world.sh("true");
        spec.cwd.clone_from(&nowhere);
        spec
    });
    let expected = HostError::Spawn {
        program: "/bin/sh".to_owned(),
        step: Step::WorkingDirectory,
        errno: libc::ENOENT,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "start /bin/sh: could not enter the working directory: No such file or directory (os error 2)"
    );
    assert_eq!(run_child(&mut host, &world.sh("echo well")).must_succeed().out(), "well");
}

pub(crate) fn a_role_of_this_binary_runs_as_a_child() {
    let world = World::new();
    let mut host = world.fork();
    let mut spec = world.sh("");
    spec.program = Program::Role { role: "echo".to_owned() };
    spec.stdin = b"request".to_vec();
    assert_eq!(run_child(&mut host, &spec).must_succeed().out(), "echo: request");
}

pub(crate) fn a_child_leads_a_session_of_its_own_with_default_signals_and_its_limits() {
    let world = World::new();
    let mut host = world.fork();
    let mut spec = world.python(
        "
import os, resource, signal
print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())
print([s.name for s in signal.valid_signals() if isinstance(s, signal.Signals) and signal.getsignal(s) == signal.SIG_IGN])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(*[resource.getrlimit(r) for r in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)])
print(open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0])
",
    );
    spec.limits = Limits { cpu_seconds: 9, file_size: 4096, open_files: 99, ..spec.limits };
    let said = run_child(&mut host, &spec).must_succeed();
    // Python itself ignores these two.
    let expected =
        "True True\n['SIGPIPE', 'SIGXFSZ']\nset()\n(9, 10) (4096, 4096) (99, 99) (0, 0)\n1";
    assert_eq!(said.out(), expected);
    let said = run_child(&mut host, &world.sh("grep -E '^Sig(Ign|Blk):' /proc/self/status"))
        .must_succeed();
    assert_eq!(said.out(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000");
}

pub(crate) fn refuses_to_fork_or_narrow_with_a_second_thread() {
    let world = World::new();
    let (tell, hear) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || hear.recv().is_ok());
    let refused = worker::host::ToolHost::fork(&world.base()).unwrap_err();
    assert_eq!(refused, HostError::NotSingleThreaded { threads: 2 });
    let refused = worker::sandbox::confine_worker(&world.run_dir, &world.workspace, 1).unwrap_err();
    assert_eq!(refused, worker::sandbox::SandboxError::NotSingleThreaded { threads: 2 });
    tell.send(()).unwrap();
    thread.join().unwrap();
    world.fork().reap().unwrap();
}

pub(crate) fn a_program_whose_first_thread_has_ended_is_not_taken_for_gone() {
    let world = World::new();
    let mut host = world.fork();
    let script = "
import ctypes, os, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def stay():
    open('pid', 'w').write(str(os.getpid()))
    time.sleep(300)
threading.Thread(target=stay).start()
while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)
ctypes.CDLL(None).syscall(EXIT, 0)
"
    .replace("EXIT", &libc::SYS_exit.to_string());
    let mut spec = world.python(&script);
    spec.limits = Limits {
        deadline: Duration::from_secs(1),
        grace: Duration::from_millis(100),
        ..spec.limits
    };
    let said = run_child(&mut host, &spec);
    assert_eq!(said.outcome.ended_by, EndedBy::Deadline);
    assert!(
        !std::path::Path::new(&format!(
            "/proc/{}",
            number_in(&world.workspace.join("pid")).unwrap()
        ))
        .exists()
    );
    let behind = world.sh(&format!(
        "/usr/bin/python3 -c \"{script}\" & while ! test -s pid; do :; done; rm pid; sleep 0.3"
    ));
    let said = run_child(&mut host, &behind);
    assert_eq!(
        (said.outcome.ended_by, said.outcome.survivors_killed),
        (EndedBy::Itself, 1),
        "{said:?}"
    );
}
