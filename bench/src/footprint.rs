//! Row 9, memory: the control plane with nothing to do, and a worker that waits
//! for its model.
//!
//! Resident memory counts pages that all processes of one binary share, in each
//! of them; the proportional set size counts them once.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use suites::{Instance, processes, until};

use crate::peers::Places;
use crate::row::Row;

/// A model that takes longer to answer than this measurement does.
const SILENT: &str = "version: 1\nname: silent\nconversations:\n  - model: m\n    turns:\n      \
                      - say: late\n        stream: { headers_after_ms: 120000 }\n";
/// Time for what a start leaves to be over.
const SETTLING: Duration = Duration::from_secs(3);

pub(crate) fn measure(places: &Places) -> anyhow::Result<Vec<Row>> {
    ensure!(suites::program() == places.sentinel, "SENTINEL_BIN is not the measured binary");
    let mut instance = Instance::start(SILENT);
    std::thread::sleep(SETTLING);
    let serve = processes::control_plane(instance.launcher()).context("no control plane runs")?;
    let control = Memory::of(serve.pid)?;
    let run = instance.submit("Wait.");
    let worker = until("the worker runs", || processes::worker(instance.launcher()));
    until("the model is asked", || (!instance.provider().requests().is_empty()).then_some(()));
    std::thread::sleep(SETTLING);
    let worker = Memory::of(worker.pid)?;
    ensure!(!instance.status(&run).is_over(), "the run ended while it was looked at");
    instance.stop();
    Ok(vec![
        Row::alone("9 control plane idle, proportional", "MB", control.proportional, 60.0),
        Row::alone("9 control plane idle, resident", "MB", control.resident, 60.0),
        Row::alone("9 worker idle, proportional", "MB", worker.proportional, 10.0),
        Row::alone("9 worker idle, resident", "MB", worker.resident, 10.0),
    ])
}

/// Megabytes of a process.
struct Memory {
    proportional: f64,
    resident: f64,
}

impl Memory {
    fn of(pid: i32) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let field = |name: &str| -> anyhow::Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).context("a field")?;
            let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
            Ok(kibibytes * 1024.0 / 1e6)
        };
        Ok(Self { proportional: field("Pss:")?, resident: field("Rss:")? })
    }
}
