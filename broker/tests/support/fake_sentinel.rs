//! A stand-in for `sentinel` in the launcher's tests: the launcher itself, and every role it starts,
//! scripted. It is driven over the control socket, one JSON line per question, and by run ids.
#![expect(clippy::unwrap_used, reason = "a test program: failing loudly is what it is for")]
#![expect(clippy::exit, reason = "a test program: exit codes are part of the script")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, exit};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use broker::client::{Broker, CHANNEL_FD, CONTROL_LISTENER_FD, MUZZLE_ADMIN_FD};
use broker::protocol::{Notice, Reply};
use broker::{Applier, LauncherConfig, UidRange};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["launch", config] => launch(config),
        ["serve"] => serve(),
        ["muzzle", "--admin-fd", "3"] => muzzle(),
        ["worker", run_id] => worker(run_id),
        other => fail(&format!("unknown role {other:?}")),
    }
}

fn fail(why: &str) -> ! {
    say(why);
    exit(64);
}

fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn launch(config: &str) {
    let config: Value = serde_json::from_str(config).unwrap();
    let text = |name: &str| config[name].as_str().unwrap().to_owned();
    let applier = match config["slice"].as_u64() {
        Some(slice) => Applier::ForkSetuid(UidRange::slice(u32::try_from(slice).unwrap()).unwrap()),
        None => Applier::SingleUid,
    };
    let extra_env = config["env"].as_object().unwrap().iter();
    let result = broker::run(LauncherConfig {
        state: text("state").into(),
        sockets: text("sockets").into(),
        applier,
        program: "/proc/self/exe".into(),
        extra_env: extra_env.map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned())).collect(),
        verbose: false,
    });
    match result {
        Ok(ended) => say(&format!("ended, {} runs kept", ended.runs_kept)),
        Err(error) => {
            let mut text = format!("refused: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(inner) = source {
                text = format!("{text}: {inner}");
                source = inner.source();
            }
            say(&text);
            exit(3);
        }
    }
}

/// What this process can tell about itself.
fn report() -> Value {
    let mut fds = serde_json::Map::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if let Ok(target) = std::fs::read_link(entry.path()) {
            let name = entry.file_name().into_string().unwrap();
            fds.insert(name, json!(target.to_string_lossy()));
        }
    }
    let signal = rustix::process::parent_process_death_signal().unwrap();
    json!({
        "pid": std::process::id(),
        "status": std::fs::read_to_string("/proc/self/status").unwrap(),
        "fds": fds,
        "env": std::env::vars().collect::<HashMap<_, _>>(),
        "args": std::env::args().collect::<Vec<_>>(),
        "cwd": std::env::current_dir().unwrap(),
        "exe": std::fs::read_link("/proc/self/exe").unwrap(),
        "session": rustix::process::getsid(None).unwrap().as_raw_nonzero().get(),
        "death_signal": signal.map(rustix::process::Signal::as_raw),
    })
}

/// Everything the control plane was told so far.
#[derive(Default)]
struct Told {
    notices: Mutex<(Vec<Value>, HashMap<String, OwnedFd>)>,
    more: Condvar,
}

fn serve() {
    // Taken before anything else is opened, so that the report shows what was inherited.
    let inherited = report();
    if let Some(code) = std::env::var("FAKE_CONTROL_DIES").ok().and_then(|code| code.parse().ok()) {
        exit(code);
    }
    let channel = broker::take_inherited_fd(CHANNEL_FD).unwrap();
    let listener: UnixListener = broker::take_inherited_fd(CONTROL_LISTENER_FD).unwrap().into();
    let broker = Arc::new(Broker::from_fd(channel).unwrap());
    let told = Arc::new(Told::default());
    let (receiver, listened) = (Arc::clone(&broker), Arc::clone(&told));
    std::thread::spawn(move || listen(&receiver, &listened));
    for stream in listener.incoming().flatten() {
        let (broker, told, inherited) = (Arc::clone(&broker), Arc::clone(&told), inherited.clone());
        std::thread::spawn(move || converse(&stream, &broker, &told, &inherited));
    }
}

fn listen(broker: &Broker, told: &Told) {
    loop {
        let Ok((notice, fd)) = broker.recv() else { exit(0) };
        let mut guard = told.notices.lock().unwrap();
        let run = match &notice {
            Notice::Live { run_id, .. } => Some(run_id.to_string()),
            Notice::Reply { seq, result: Ok(Reply::Spawned { .. }) } => Some(seq.to_string()),
            Notice::Hello { .. }
            | Notice::Reply { .. }
            | Notice::Exited { .. }
            | Notice::MuzzleStarted { .. } => None,
        };
        let with_fd = fd.is_some();
        if let (Some(run), Some(fd)) = (run, fd) {
            guard.1.insert(run, fd);
        }
        guard.0.push(json!({ "notice": notice, "fd": with_fd }));
        drop(guard);
        told.more.notify_all();
    }
}

fn converse(stream: &UnixStream, broker: &Broker, told: &Told, inherited: &Value) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let question: Value = serde_json::from_str(&line).unwrap();
        let answer = match question["do"].as_str().unwrap() {
            "report" => inherited.clone(),
            "send" => {
                let datagram = question["datagram"].as_str().unwrap().as_bytes();
                let flags = rustix::net::SendFlags::NOSIGNAL;
                json!(rustix::net::send(broker.as_fd(), datagram, flags).is_ok())
            }
            "notices" => json!(notices(told, &question)),
            "pidfd" => json!(ended(told, &question)),
            "close" => {
                rustix::net::shutdown(broker.as_fd(), rustix::net::Shutdown::Both).unwrap();
                json!(true)
            }
            "exit" => exit(i32::try_from(question["code"].as_i64().unwrap()).unwrap()),
            other => fail(other),
        };
        writeln!(&mut &*stream, "{answer}").unwrap();
    }
}

/// The notices from number `from`, once there are any, or none after `wait` milliseconds.
fn notices(told: &Told, question: &Value) -> Vec<Value> {
    let from = usize::try_from(question["from"].as_u64().unwrap()).unwrap();
    let wait = Duration::from_millis(question["wait"].as_u64().unwrap());
    let (guard, _) = told
        .more
        .wait_timeout_while(told.notices.lock().unwrap(), wait, |told| told.0.len() <= from)
        .unwrap();
    guard.0.iter().skip(from).cloned().collect()
}

/// Whether the pidfd that came for `key` (a run id, or the seq of its spawn) says "ended" within
/// `wait` milliseconds.
fn ended(told: &Told, question: &Value) -> Option<bool> {
    let guard = told.notices.lock().unwrap();
    let fd = guard.1.get(question["key"].as_str().unwrap())?.try_clone().unwrap();
    drop(guard);
    let wait = Duration::from_millis(question["wait"].as_u64().unwrap());
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    Some(rustix::event::poll(&mut fds, Some(&Timespec::try_from(wait).unwrap())).unwrap() == 1)
}

fn muzzle() {
    let inherited = report();
    if std::env::var_os("FAKE_MUZZLE_DIES").is_some() {
        exit(5);
    }
    let listener: UnixListener = broker::take_inherited_fd(MUZZLE_ADMIN_FD).unwrap().into();
    for stream in listener.incoming().flatten() {
        writeln!(&stream, "{inherited}").unwrap();
    }
}

/// The part of the run id before the first dash says what the worker does.
fn worker(run_id: &str) {
    let inherited = report();
    say(&format!("worker {run_id} {inherited}"));
    match run_id.split('-').next().unwrap() {
        "sleep" => sleep(),
        "exit7" => exit(7),
        "aborts" => std::process::abort(),
        // A daemon as tools make them: reparented, own session, deaf to polite signals.
        "daemon" => {
            leave_behind(&format!(
                "(trap '' TERM HUP INT; exec setsid sh -c 'trap \"\" TERM HUP INT; echo daemon {run_id} $$ >&2; \
                 while :; do sleep 1000; done') & exit"
            ));
            sleep()
        }
        // Chains of processes that fork and exit, to outrun whoever lists and kills.
        "chain" => {
            leave_behind("perl -e 'for (1 .. 40) { fork or last } while (1) { exit if fork }'");
        }
        "stubborn" => {
            let mut deaf = nix::sys::signal::SigSet::empty();
            deaf.add(nix::sys::signal::Signal::SIGTERM);
            deaf.thread_block().unwrap();
            say("stubborn");
            sleep()
        }
        other => fail(other),
    }
}

fn leave_behind(script: &str) {
    Command::new("sh").arg("-c").arg(script).spawn().unwrap().wait().unwrap();
}

fn sleep() -> ! {
    let start = Instant::now();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if start.elapsed() > Duration::from_mins(5) {
            fail("nobody ended this worker");
        }
    }
}
