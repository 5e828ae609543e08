//! Kill -9 at every durable write.
//!
//! A clean run of the ten-step scenario with two approvals is counted first:
//! each role counts its durable writes in a file. Then, for each write, before
//! and after it, and for each victim (the worker, its tool host, the control
//! plane), the run is played again: the writer stops itself with SIGSTOP at
//! that point, the victim is killed, the writer goes on, and the run is driven
//! to its end. After each, nothing may be lost and no approved effect may have
//! happened twice.
//!
//! `CRASH_ONLY=worker:7:before` plays the points whose name contains that;
//! `CRASH_JOBS` says how many at a time.
//!
//! Needs a program built with the `crash-points` feature: `SENTINEL_BIN`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a broken harness must fail its suite, and the suite reports on standard output"
)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use domain::id::RunId;
use domain::log::{Event, Outcome};
use domain::run::Status;
use rustix::process::Signal;
use suites::processes::{self, Process};
use suites::{Instance, events, try_until};

const SCENARIO: &str = include_str!("../../../../guest/rehearsal/scenarios/ten-steps.yaml");

/// Processes whose durable writes are counted.
const ROLES: [&str; 2] = ["control", "worker"];

/// Least number of points below which the suite itself is broken.
const LEAST_POINTS: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Worker,
    ToolHost,
    ControlPlane,
}

#[derive(Debug, Clone)]
struct Point {
    role: &'static str,
    write: u64,
    after: bool,
    victim: Victim,
}

impl Point {
    fn environment(&self) -> String {
        format!("{}:{}:{}", self.role, self.write, if self.after { "after" } else { "before" })
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} kills {:?}", self.environment(), self.victim)
    }
}

fn main() {
    let began = Instant::now();
    let counts = count();
    let points = enumerate(&counts);
    say(&format!("durable writes of a clean run: {counts:?}; {} points", points.len()));
    assert!(points.len() >= LEAST_POINTS, "only {} crash points", points.len());
    let only = std::env::var("CRASH_ONLY").unwrap_or_default();
    let points: Vec<Point> =
        points.into_iter().filter(|point| point.to_string().contains(&only)).collect();
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<BTreeMap<&'static str, usize>> = Mutex::default();
    let failures: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::env::var("CRASH_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(3) {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = std::panic::catch_unwind(|| play(point));
                    match result {
                        Ok(outcome) => *outcomes.lock().unwrap().entry(outcome).or_default() += 1,
                        Err(panic) => {
                            let why = panic
                                .downcast_ref::<String>()
                                .cloned()
                                .unwrap_or_else(|| "panicked".to_owned());
                            say(&format!("FAILED {point}: {why}"));
                            failures.lock().unwrap().push(point.to_string());
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    if !failures.is_empty() {
        say(&format!("failed: {failures:?}"));
    }
    say(&format!("{:?} in {:.0} s", outcomes.into_inner().unwrap(), began.elapsed().as_secs_f64()));
    say(&format!(
        "{} crash points passed, {} failed",
        points.len() - failures.len(),
        failures.len()
    ));
    assert!(failures.is_empty());
}

fn say(text: &str) {
    println!("{text}");
}

/// Durable writes of each role in a clean run.
fn count() -> BTreeMap<&'static str, u64> {
    let mut instance = Instance::start_with(SCENARIO, &[("SENTINEL_CRASH", "count")]);
    let run = instance.submit("count the writes");
    let view = instance.drive(&run);
    assert_eq!(view.status, Status::Done, "{:?}\n{:#?}", view.failure, view.items);
    check(&instance, &run, &view);
    instance.stop();
    let counts = [
        ("control", instance.state().join(".crash-count")),
        ("worker", instance.run_dir(&run).join("worker/.crash-count")),
    ];
    counts.into_iter().map(|(role, path)| (role, std::fs::metadata(path).unwrap().len())).collect()
}

fn enumerate(counts: &BTreeMap<&'static str, u64>) -> Vec<Point> {
    let mut points = Vec::new();
    for role in ROLES {
        for write in 1..=counts.get(role).copied().unwrap_or(0) {
            for after in [false, true] {
                for victim in [Victim::Worker, Victim::ToolHost, Victim::ControlPlane] {
                    points.push(Point { role, write, after, victim });
                }
            }
        }
    }
    points
}

/// Plays the run with one crash and says what became of the crash.
fn play(point: &Point) -> &'static str {
    let environment = point.environment();
    let mut instance = Instance::bare(&[("SENTINEL_CRASH", &environment)]);
    let (started, crash) = std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let crash = scope.spawn(move || {
            let launcher: i32 = told.recv().unwrap();
            crash_once(launcher, point)
        });
        instance.spawn();
        tell.send(instance.launcher()).unwrap();
        let run = submit_through(&mut instance);
        let view = instance.drive(&run);
        ((run, view), crash.join().unwrap())
    });
    let (run, view) = started;
    assert_eq!(
        view.status,
        Status::Done,
        "{:?}\n{:#?}\n{}",
        view.failure,
        view.items,
        instance.log()
    );
    check(&instance, &run, &view);
    crash
}

/// Adds the model and submits under one id until both are done: the control
/// plane may be the one that dies.
fn submit_through(instance: &mut Instance) -> RunId {
    instance.wait_until_ready();
    instance.play(SCENARIO);
    let id = RunId::new("00000000-0000-4000-8000-000000000001").unwrap();
    let submit = || api::control::Submit {
        task: "ten steps".to_owned(),
        id: Some(id.clone()),
        ..api::control::Submit::default()
    };
    suites::until("the run is submitted", || {
        match instance.try_ask(&api::control::Request::Submit(submit())) {
            Ok(api::control::Response::Submitted { run, .. }) => Some(run),
            Ok(_) | Err(_) => None,
        }
    })
}

/// Waits for the stopped writer, kills the victim, lets the writer go on.
fn crash_once(launcher: i32, point: &Point) -> &'static str {
    let role = if point.role == "worker" { "worker" } else { "serve" };
    let stopped = try_until(Duration::from_secs(30), || {
        processes::all()
            .into_iter()
            .find(|p| p.parent == launcher && p.role() == role && p.state == 'T')
    });
    let Some(stopped) = stopped else { return "the point was not reached" };
    let victim = find(launcher, point.victim);
    let said = match &victim {
        Some(victim) => {
            processes::signal(victim.pid, Signal::KILL);
            "killed"
        }
        None => "no such process at that point",
    };
    processes::signal(stopped.pid, Signal::CONT);
    said
}

fn find(launcher: i32, victim: Victim) -> Option<Process> {
    match victim {
        Victim::Worker => processes::worker(launcher),
        Victim::ToolHost => {
            processes::worker(launcher).and_then(|worker| processes::tool_host(worker.pid))
        }
        Victim::ControlPlane => processes::control_plane(launcher),
    }
}

/// Nothing lost, nothing doubled.
fn check(instance: &Instance, run: &RunId, view: &api::control::RunView) {
    let events = events(view);
    let mut steps = Vec::new();
    let mut results: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
    let mut applied: BTreeMap<&str, usize> = BTreeMap::new();
    let mut calls = Vec::new();
    for event in &events {
        match event {
            Event::Assistant { step, calls: made, .. } => {
                steps.push(*step);
                calls.extend(made.iter().map(|call| call.id.as_str()));
            }
            Event::Result { call, outcome, .. } => results.entry(call).or_default().push(*outcome),
            Event::ApprovalApplied { call, .. } => *applied.entry(call).or_default() += 1,
            _ => {}
        }
    }
    let wanted: Vec<u32> = (1..=u32::try_from(steps.len()).unwrap()).collect();
    assert_eq!(steps, wanted, "steps");
    assert!(steps.len() >= 10, "{steps:?}");
    for call in &calls {
        assert_eq!(results.get(call).map(Vec::len), Some(1), "results of {call}: {results:?}");
    }
    assert!(applied.values().all(|times| *times == 1), "{applied:?}");
    let unknown =
        results.values().flatten().filter(|outcome| **outcome == Outcome::Unknown).count();
    for name in ["effect-1.txt", "effect-2.txt"] {
        let text = std::fs::read_to_string(instance.workspace().join(name)).unwrap_or_default();
        let lines = text.lines().count();
        // An effect whose outcome is unknown happened once or not at all.
        assert!(
            lines == 1 || (lines == 0 && unknown > 0),
            "{name} has {lines} lines, {unknown} unknown"
        );
    }
    let turns = view.items.iter().filter(|item| {
        matches!(&item.body, api::control::Body::Control(domain::log::Control::Turn { .. }))
    });
    assert_eq!(turns.count(), 1, "the task stands once");
    assert!(!instance.run_dir(run).join("token").exists(), "the bearer is removed");
}
