//! Row 5c, recovery: what a worker does first after a crash, on a log of a
//! million entries: it reads and checks every line and folds them.
//!
//! A plain read can mean two things, so there are two peers. One decodes each
//! line into the same type and forgets it: the least that can be done with the
//! entries. The other looks for line ends and decodes nothing.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use domain::drive::Drive;
use domain::id::Millis;
use domain::log::{Call, Event, Outcome, Usage};
use serde::Deserialize;

use crate::append::open;
use crate::peers::{Places, scratch};
use crate::row::{MILLISECONDS, Row};
use crate::series::{Plan, interleave};

/// Three entries each.
const STEPS: u32 = 333_334;
const ENTRIES: u64 = 1_000_002;
const PLAN: Plan = Plan { rounds: 5, runs: 1 };

pub(crate) fn measure(_places: &Places) -> anyhow::Result<Vec<Row>> {
    let scratch = scratch()?;
    fill(scratch.path())?;
    let path = scratch.path().join("events.jsonl");
    let series = interleave(
        PLAN,
        &mut [
            Box::new(|| recover(scratch.path())),
            Box::new(|| decode(&path)),
            Box::new(|| count_lines(&path)),
        ],
    )?;
    let row = |index, name, goal| {
        Row::beside("5c recovery of 1 M entries", MILLISECONDS, &series, (index, name), goal)
    };
    Ok(vec![
        row(1, "decode each line and forget it", Some(1.5)),
        row(2, "count the lines of the file", None),
    ])
}

fn fill(dir: &Path) -> anyhow::Result<()> {
    let log = open(dir)?.log;
    let steps: Vec<u32> = (1..=STEPS).collect();
    for some in steps.chunks(10_000) {
        let events: Vec<Event> = some.iter().copied().flat_map(of_step).collect();
        log.append(Millis(1_700_000_000_000), &events)?;
    }
    Ok(())
}

/// What one step of a run leaves in its log.
fn of_step(step: u32) -> [Event; 3] {
    let id = format!("call_{step}_0");
    let call = Call {
        id: id.clone(),
        tool: "read_file".to_owned(),
        arguments: "{\"path\":\"note.txt\"}".to_owned(),
        raw: None,
    };
    [
        Event::Assistant {
            step,
            text: "I read the next part.".to_owned(),
            reasoning: String::new(),
            calls: vec![call],
            model: "rehearsal".to_owned(),
            usage: Usage { input: 1000, output: 20 },
            stop: "tool_use".to_owned(),
            prompt_digest: "0123456789abcdef".repeat(4),
            policy_generation: 0,
        },
        Event::CallStarted { call: id.clone(), tool: "read_file".to_owned() },
        Event::Result {
            call: id,
            tool: "read_file".to_owned(),
            outcome: Outcome::Ok,
            text: "one\ntwo\nthree\n".to_owned(),
            blob: None,
            changes: Vec::new(),
        },
    ]
}

fn recover(dir: &Path) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let opened = open(dir)?;
    let drive = Drive::fold(&opened.read.entries);
    let took = started.elapsed();
    ensure!(
        (drive.seq, drive.step, drive.tool_calls) == (ENTRIES, STEPS, STEPS),
        "recovered {} entries and {} steps",
        drive.seq,
        drive.step
    );
    ensure!(opened.torn.is_none() && opened.read.unknown.is_empty(), "an entry was not understood");
    Ok(took)
}

#[derive(Deserialize)]
struct PlainLine {
    seq: u64,
    #[serde(rename = "entry")]
    _entry: Event,
}

fn decode(path: &Path) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let (mut line, mut last) = (Vec::new(), 0);
    while reader.read_until(b'\n', &mut line)? > 0 {
        last = serde_json::from_slice::<PlainLine>(&line)?.seq;
        line.clear();
    }
    let took = started.elapsed();
    ensure!(last == ENTRIES, "decoded {last} lines");
    Ok(took)
}

fn count_lines(path: &Path) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let mut file = File::open(path)?;
    let (mut chunk, mut lines) = (vec![0; 1 << 16], 0_u64);
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        let ends = chunk.iter().take(read).map(|byte| u64::from(*byte == b'\n'));
        lines += ends.sum::<u64>();
    }
    let took = started.elapsed();
    ensure!(lines == ENTRIES, "counted {lines} lines");
    Ok(took)
}
