//! Row 9, start-up: the binary says its version, beside a static program that
//! says a line.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::peers::Places;
use crate::row::{MILLISECONDS, Row};
use crate::series::{Plan, interleave};

const PLAN: Plan = Plan { rounds: 9, runs: 30 };

pub(crate) fn measure(places: &Places) -> anyhow::Result<Vec<Row>> {
    let hello = places.hello();
    let series = interleave(
        PLAN,
        &mut [
            Box::new(|| says(&places.sentinel, &["--version"], "sentinel ")),
            Box::new(|| says(&hello, &[], "hello")),
        ],
    )?;
    let peer = (1, "static hello world");
    let size = |path: &Path| -> anyhow::Result<f64> {
        Ok(f64::from(u32::try_from(std::fs::metadata(path)?.len())?) / 1e6)
    };
    Ok(vec![
        Row::beside("9 sentinel --version", MILLISECONDS, &series, peer, Some(2.0)),
        Row::alone("9 size of the binary sentinel", "MB", size(&places.sentinel)?, 20.0),
    ])
}

fn says(program: &Path, arguments: &[&str], wanted: &str) -> anyhow::Result<Duration> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let started = Instant::now();
    let output = command.output()?;
    let took = started.elapsed();
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && said.starts_with(wanted),
        "{} said {said:?}",
        program.display()
    );
    Ok(took)
}
