//! Rows 5a and 5b: one durable append to a log, beside a raw write with a sync
//! and beside a durable step of DBOS; and a hundred threads that append to one
//! log, beside a hundred that take a lock for it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::slice;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use domain::id::Millis;
use domain::log::{Event, Outcome, encode_line};
use store::beneath::{self, Expect};
use store::{Log, OpenedLog};

use crate::peers::{Places, scratch};
use crate::row::{MICROSECONDS, Row};
use crate::series::{Plan, Series, Subject, interleave};

const ONE: Plan = Plan { rounds: 9, runs: 60 };
const THREADS: usize = 100;
/// Appends of each of them in a round.
const EACH: usize = 20;
const ROUNDS: usize = 7;

const AT: Millis = Millis(1_700_000_000_000);
const LOG: &str = "events.jsonl";
const EXPECT: Expect = Expect { uid: None, limit: 1 << 40 };

pub(crate) fn measure(places: &Places) -> anyhow::Result<Vec<Row>> {
    let mut rows = one(places)?;
    rows.push(many()?);
    Ok(rows)
}

/// A log in `dir` as its writer opens it.
pub(crate) fn open(dir: &Path) -> anyhow::Result<OpenedLog<Event>> {
    let handle = beneath::open_dir(dir)?;
    Ok(Log::open(handle.as_fd(), LOG, dir, 0o600, EXPECT)?)
}

/// An entry whose line has about 300 bytes.
fn event() -> Event {
    Event::Result {
        call: "call_1_0".to_owned(),
        tool: "read_file".to_owned(),
        outcome: Outcome::Ok,
        text: "x".repeat(160),
        blob: None,
        changes: Vec::new(),
    }
}

fn one(places: &Places) -> anyhow::Result<Vec<Row>> {
    let scratch = scratch()?;
    let log = open(scratch.path())?.log;
    let event = event();
    let line = encode_line(1000, AT, &event)?;
    let raw = File::options().append(true).create(true).open(scratch.path().join("raw"))?;
    let mut dbos = places.dbos_python().map(|p| Dbos::start(&p, scratch.path())).transpose()?;
    let mut appended = 0;
    let mut subjects: Vec<Subject<'_>> = vec![
        Box::new(|| {
            appended += 1;
            let started = Instant::now();
            let seq = log.append(AT, slice::from_ref(&event))?;
            let took = started.elapsed();
            ensure!(seq == appended, "entry {appended} got number {seq}");
            Ok(took)
        }),
        Box::new(|| raw_append(&raw, &line)),
    ];
    let mut names = vec![("raw append and fdatasync", 1.3)];
    if let Some(dbos) = &mut dbos {
        subjects.push(Box::new(|| dbos.step()));
        names.push(("a step of DBOS on SQLite", 0.1));
    }
    let series = interleave(ONE, &mut subjects)?;
    drop(subjects);
    if let Some(dbos) = dbos {
        dbos.end()?;
    }
    drop(log);
    check(scratch.path(), appended)?;
    let rows = names.into_iter().zip(1..).map(|((name, goal), index)| {
        Row::beside("5a one log append", MICROSECONDS, &series, (index, name), Some(goal))
    });
    Ok(rows.collect())
}

fn raw_append(mut file: &File, line: &[u8]) -> anyhow::Result<Duration> {
    let started = Instant::now();
    file.write_all(line)?;
    file.sync_data()?;
    Ok(started.elapsed())
}

/// The log reads back whole.
fn check(dir: &Path, appended: u64) -> anyhow::Result<()> {
    let read = open(dir)?.read;
    let entries = read.entries.len() as u64;
    ensure!(
        (entries, read.last_seq, read.torn) == (appended, appended, 0),
        "{appended} entries were appended and {entries} read back"
    );
    ensure!(read.entries.iter().all(|entry| entry.body == event()), "an entry was changed");
    Ok(())
}

fn many() -> anyhow::Result<Row> {
    let scratch = scratch()?;
    let log = open(scratch.path())?.log;
    let raw = Mutex::new(File::create(scratch.path().join("raw"))?);
    let event = event();
    let line = encode_line(1000, AT, &event)?;
    let mut rounds = 0;
    let mut ours = || {
        rounds += 1;
        together(|| log.append(AT, slice::from_ref(&event)).is_ok())
    };
    let locked = || {
        together(|| {
            let mut file = raw.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(&line).and_then(|()| file.sync_data()).is_ok()
        })
    };
    let (mut first, mut peer, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        first.push(ours()?);
        peer.push(locked()?);
        again.push(ours()?);
    }
    drop(log);
    check(scratch.path(), rounds * (THREADS * EACH) as u64)?;
    let series = Series::of(first, peer, again);
    let peer = (1, "a lock around append and fdatasync");
    Ok(Row::beside("5b append, 100 at once", MICROSECONDS, &series, peer, Some(0.143)))
}

/// Seconds that one of many appends takes when all threads make theirs at once.
fn together(append: impl Fn() -> bool + Sync) -> anyhow::Result<f64> {
    let (ready, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let (took, good) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    ready.wait();
                    let good = (0..EACH).all(|_| append());
                    done.wait();
                    good
                })
            })
            .collect();
        ready.wait();
        let started = Instant::now();
        done.wait();
        let took = started.elapsed();
        (took, threads.into_iter().all(|thread| thread.join().unwrap_or(false)))
    });
    ensure!(good, "an append failed");
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    Ok(took.as_secs_f64() / (THREADS * EACH) as f64)
}

/// A workflow that waits for a line before each of its steps.
struct Dbos {
    process: Child,
    asking: ChildStdin,
    answers: BufReader<ChildStdout>,
    steps: u64,
}

impl Dbos {
    fn start(python: &Path, dir: &Path) -> anyhow::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/dbos_steps.py");
        let mut process = Command::new(python)
            .arg(script)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let asking = process.stdin.take().context("a pipe to DBOS")?;
        let answers = BufReader::new(process.stdout.take().context("a pipe from DBOS")?);
        Ok(Self { process, asking, answers, steps: 0 })
    }

    fn step(&mut self) -> anyhow::Result<Duration> {
        self.steps += 1;
        self.asking.write_all(b"\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(Duration::from_nanos(line.trim().parse().context("DBOS did not answer")?))
    }

    fn end(self) -> anyhow::Result<()> {
        let Self { mut process, asking, mut answers, steps } = self;
        drop(asking);
        let mut held = String::new();
        answers.read_to_string(&mut held)?;
        ensure!(process.wait()?.success(), "DBOS ended badly");
        ensure!(held.trim() == steps.to_string(), "DBOS holds {held} steps of {steps}");
        Ok(())
    }
}
