//! `bench`: figures of the sandbox, the log and start-up beside their peers.
//! What each row means is in `bench/README.md`; `bench/run` builds and starts it.
//!
//! Every timed run checks its own output first and ends the program when that
//! is wrong. A missed goal is printed and is not an error.

mod append;
mod footprint;
mod peers;
mod recovery;
mod row;
mod sandboxed;
mod series;
mod start;
mod steps;
mod sys;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use peers::Places;
use row::Row;

type Part = fn(&Places) -> anyhow::Result<Vec<Row>>;

/// In this order: the first ones fork, and must find a process without threads.
const PARTS: [(&str, Part); 6] = [
    ("sandbox", sandboxed::measure),
    ("start", start::measure),
    ("append", append::measure),
    ("recovery", recovery::measure),
    ("footprint", footprint::measure),
    ("steps", steps::measure),
];

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().context("usage: bench CACHE SENTINEL DATE RESULTS [PART…]")?;
    if first == sandboxed::ROLE {
        return sandboxed::play(&PathBuf::from(arguments.next().context("a directory")?));
    }
    let mut next = || arguments.next().context("usage: bench CACHE SENTINEL DATE RESULTS [PART…]");
    let places = Places { cache: first.into(), sentinel: next()?.into() };
    let date = next()?.to_string_lossy().into_owned();
    let results = PathBuf::from(next()?);
    let wanted: Vec<String> = arguments.map(|part| part.to_string_lossy().into_owned()).collect();
    if let Some(unknown) = wanted.iter().find(|name| PARTS.iter().all(|(part, _)| part != name)) {
        bail!("no part is named {unknown}");
    }
    let mut rows = Vec::new();
    for (name, part) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|part| part == name) {
            writeln!(std::io::stderr(), "bench: {name}")?;
            rows.extend(part(&places).with_context(|| format!("part {name}"))?);
        }
    }
    for row in &mut rows {
        row.date.clone_from(&date);
    }
    std::io::stdout().write_all(row::table(&rows).as_bytes())?;
    row::append(&results, rows)
}
