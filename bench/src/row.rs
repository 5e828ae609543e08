//! A row of results, the table a person reads, and the file they are kept in.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::series::Series;

/// One figure. Lower is better in all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) ours: f64,
    pub(crate) peer: Option<f64>,
    pub(crate) peer_name: String,
    /// Ours as a multiple of the peer's.
    pub(crate) ratio: Option<f64>,
    /// Ceiling of the ratio, or of our own figure where there is no peer.
    pub(crate) goal: Option<f64>,
    /// How far a second measurement of ours was from the first.
    pub(crate) noise: Option<f64>,
    pub(crate) date: String,
}

impl Row {
    /// Ours beside the peer that is subject `index` of the series, in `unit`s of which a second has `per_second`.
    pub(crate) fn beside(
        metric: &str,
        (unit, per_second): (&str, f64),
        series: &Series,
        (index, peer_name): (usize, &str),
        goal: Option<f64>,
    ) -> Self {
        Self {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            ours: rounded(series.seconds(0) * per_second),
            peer: Some(rounded(series.seconds(index) * per_second)),
            peer_name: peer_name.to_owned(),
            ratio: Some(rounded(series.ratio(index))),
            goal,
            noise: Some(rounded(series.noise())),
            date: String::new(),
        }
    }

    /// A figure with a ceiling and no peer.
    pub(crate) fn alone(metric: &str, unit: &str, ours: f64, goal: f64) -> Self {
        Self {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            ours: rounded(ours),
            peer: None,
            peer_name: String::new(),
            ratio: None,
            goal: Some(goal),
            noise: None,
            date: String::new(),
        }
    }

    /// What a person makes of it. A goal counts as met, or as missed, by more than the noise.
    fn verdict(&self) -> &'static str {
        let Some(goal) = self.goal else { return "" };
        let figure = self.ratio.unwrap_or(self.ours);
        let noise = self.noise.unwrap_or(0.0) * figure;
        if figure + noise <= goal {
            "met"
        } else if figure - noise > goal {
            "missed"
        } else {
            "within noise"
        }
    }
}

/// Microseconds in a second, and how they are written.
pub(crate) const MICROSECONDS: (&str, f64) = ("us", 1e6);
/// Milliseconds likewise.
pub(crate) const MILLISECONDS: (&str, f64) = ("ms", 1e3);

/// Four significant digits: more would only look exact.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The rows as lines of text.
pub(crate) fn table(rows: &[Row]) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
    let percent = |value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |v| format!("{:.1} %", v * 100.0))
    };
    let head = ["metric", "unit", "ours", "peer", "peer is", "ratio", "goal", "noise", ""]
        .map(str::to_owned);
    let mut lines = vec![head];
    lines.extend(rows.iter().map(|row| {
        [
            row.metric.clone(),
            row.unit.clone(),
            row.ours.to_string(),
            number(row.peer),
            row.peer_name.clone(),
            number(row.ratio),
            number(row.goal),
            percent(row.noise),
            row.verdict().to_owned(),
        ]
    }));
    let widths: Vec<usize> = (0..9)
        .map(|column| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Adds rows to the array in a file, which is made where it is missing.
pub(crate) fn append(path: &Path, rows: Vec<Row>) -> anyhow::Result<()> {
    let shown = || path.display().to_string();
    let mut all: Vec<Row> = match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(shown)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(shown),
    };
    all.extend(rows);
    // A row on a line: a later run is a few added lines in a difference.
    let lines = all.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let mut file = File::create(path).with_context(shown)?;
    writeln!(file, "[\n{}\n]", lines.join(",\n")).with_context(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, goal: f64) -> Row {
        let mut row = Row::alone("m", "us", 1.0, goal);
        (row.ratio, row.noise) = (Some(ratio), Some(0.1));
        row
    }

    #[test]
    fn a_goal_is_met_or_missed_by_more_than_the_noise() {
        assert_eq!(row(0.8, 1.0).verdict(), "met");
        assert_eq!(row(0.95, 1.0).verdict(), "within noise");
        assert_eq!(row(1.2, 1.0).verdict(), "missed");
        assert_eq!(Row::alone("m", "MB", 9.0, 10.0).verdict(), "met");
    }

    #[test]
    fn rows_are_added_to_those_that_are_there() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("run.json");
        append(&path, vec![row(1.0, 1.0)]).unwrap();
        append(&path, vec![row(2.0, 1.0), row(3.0, 1.0)]).unwrap();
        let read: Vec<Row> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read.iter().filter_map(|row| row.ratio).sum::<f64>().to_string(), "6");
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(rounded(1_234_567.0).to_string(), "1235000");
        assert_eq!(rounded(0.001_234_567).to_string(), "0.001235");
    }
}
