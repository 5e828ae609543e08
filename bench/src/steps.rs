//! Row 5c, long runs: the thousandth step of a run beside its tenth, through
//! the whole product and the scripted provider.
//!
//! A step is a model call and one small read. The model is sent the whole
//! transcript each time, so its request grows whatever Sentinel does. Two
//! figures tell what is whose: the time between entries of the log, in which the
//! provider's reading of the request is included, and the worker's own time on a
//! processor.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::control::Submit;
use domain::id::RunId;
use domain::log::{Entry, Event, Outcome};
use domain::record::{ApprovalMode, Budgets};
use domain::run::Status;
use store::Tail;
use suites::{Instance, processes, until};

use crate::peers::Places;
use crate::row::{MILLISECONDS, Row};
use crate::series::Series;

const STEPS: u32 = 1000;
const ROUNDS: usize = 5;
/// Steps around the tenth, the same a second time, and up to the thousandth.
const EARLY: (u32, u32) = (5, 15);
const AGAIN: (u32, u32) = (15, 25);
const LATE: (u32, u32) = (985, 995);
const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) fn measure(_places: &Places) -> anyhow::Result<Vec<Row>> {
    let mut instance = Instance::start(&scenario());
    let (mut clock, mut cpu) = (Windows::default(), Windows::default());
    for _ in 0..ROUNDS {
        let watched = drive(&instance)?;
        clock.take(&watched, |sample| sample.clock)?;
        cpu.take(&watched, |sample| sample.cpu)?;
    }
    instance.stop();
    let row = |metric: &str, windows: Windows, goal| {
        let series = windows.series();
        Row::beside(metric, MILLISECONDS, &series, (1, "step 10"), goal)
    };
    Ok(vec![
        row("5c step 1,000, by the log's clock", clock, Some(1.2)),
        row("5c step 1,000, worker's processor", cpu, Some(1.2)),
    ])
}

fn scenario() -> String {
    let mut text = String::from(
        "version: 1\nname: long\nconversations:\n  - model: m\n    turns:\n      \
         - calls: [{ name: write_file, arguments: { path: note.txt, content: \"a note\\n\" } }]\n",
    );
    for _ in 1..STEPS {
        text.push_str("      - calls: [{ name: read_file, arguments: { path: note.txt } }]\n");
    }
    text.push_str("      - say: All is read.\n");
    text
}

/// A moment at which a step's assistant turn was in the log.
#[derive(Debug, Clone, Copy)]
struct Sample {
    step: u32,
    /// Seconds, by the log.
    clock: f64,
    /// Seconds on a processor, of the worker.
    cpu: f64,
}

/// One run to its end; a sample for each step that was seen.
fn drive(instance: &Instance) -> anyhow::Result<Vec<Sample>> {
    let run = instance.submit_with(Submit {
        task: "Read the note a thousand times.".to_owned(),
        approvals: ApprovalMode::Automatic,
        budgets: Some(Budgets { steps: STEPS + 10, tool_calls: STEPS + 10, ..Budgets::default() }),
        ..Submit::default()
    });
    let path = instance.run_dir(&run).join("worker/events.jsonl");
    let file = until("the run has a log", || File::open(&path).ok());
    let worker = until("the worker runs", || processes::worker(instance.launcher())).pid;
    let (mut tail, mut samples, mut good) = (Tail::<Event>::default(), Vec::new(), 0);
    let started = Instant::now();
    loop {
        let entries = tail.read(&file, &path)?;
        let cpu = on_cpu(worker).unwrap_or(f64::NAN);
        samples.extend(entries.iter().filter_map(|entry| sample(entry, cpu)));
        good += entries.iter().filter(|entry| is_good_result(entry)).count();
        if entries.iter().any(|entry| matches!(entry.body, Event::Finished(_))) {
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "the run is at step {}", samples.len());
        std::thread::sleep(Duration::from_micros(500));
    }
    check(instance, &run, good)?;
    Ok(samples)
}

fn check(instance: &Instance, run: &RunId, good: usize) -> anyhow::Result<()> {
    let status = until("the run is over", || {
        let status = instance.status(run);
        status.is_over().then_some(status)
    });
    ensure!(status == Status::Done, "the run ended as {status:?}");
    ensure!(good == STEPS as usize, "{good} results of {STEPS} are good");
    Ok(())
}

fn sample(entry: &Entry<Event>, cpu: f64) -> Option<Sample> {
    let Event::Assistant { step, .. } = &entry.body else { return None };
    #[expect(clippy::cast_precision_loss, reason = "differences within one run")]
    let clock = entry.at.0 as f64 / 1e3;
    Some(Sample { step: *step, clock, cpu })
}

fn is_good_result(entry: &Entry<Event>) -> bool {
    let Event::Result { tool, outcome: Outcome::Ok, text, .. } = &entry.body else { return false };
    tool == "write_file" || text.contains("a note")
}

/// Seconds on a processor of all threads of a process.
fn on_cpu(pid: i32) -> Option<f64> {
    let tasks = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).ok()?;
    let mut nanoseconds = 0.0;
    for task in tasks {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split(' ').next()?.parse::<f64>().ok()?;
    }
    Some(nanoseconds / 1e9)
}

/// Seconds of one step in the windows of each run.
#[derive(Debug, Default)]
struct Windows {
    early: Vec<f64>,
    again: Vec<f64>,
    late: Vec<f64>,
}

impl Windows {
    fn take(&mut self, samples: &[Sample], of: fn(&Sample) -> f64) -> anyhow::Result<()> {
        let at = |step: u32| {
            samples.iter().find(|sample| sample.step == step).map(of).context("a step is missing")
        };
        let mean = |(from, to): (u32, u32)| -> anyhow::Result<f64> {
            Ok((at(to)? - at(from)?) / f64::from(to - from))
        };
        self.early.push(mean(EARLY)?);
        self.again.push(mean(AGAIN)?);
        self.late.push(mean(LATE)?);
        Ok(())
    }

    /// Late steps as ours, early ones as the peer; the noise is that of the early ones.
    fn series(self) -> Series {
        let noise = self.early.iter().zip(&self.again).map(|(one, two)| two / one);
        let again = self.late.iter().zip(noise).map(|(late, noise)| late * noise).collect();
        Series::of(self.late, self.early, again)
    }
}
