//! `sentinel runs`: a listing, latest first.

use api::control::RunSummary;
use domain::id::RunId;
use domain::run::Status;
use serde_json::json;

use super::resolve;
use crate::Context;
use crate::args::RunsArgs;
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::render::style::{Style, Tone};
use crate::render::table::{self, Cell};
use crate::render::time::Clock;

pub(crate) fn run(context: &mut Context, args: &RunsArgs) -> Result<Exit, Failure> {
    let runs = resolve::runs(&mut Session::open(&context.place)?, args.limit)?;
    let clock = Clock::of_machine();
    let full = runs.len() == args.limit;
    context.out.either(&json!({"runs": runs}), |style| {
        let mut lines = lines(style, &clock, &runs);
        if full {
            lines.push(style.dim(&format!("the latest {}; more with --limit", runs.len())));
        }
        lines
    })?;
    Ok(Exit::Ok)
}

/// The colour of a status.
pub(crate) fn tone(status: Status) -> Tone {
    match status {
        Status::Running => Tone::Accent,
        Status::WaitingApproval => Tone::Warn,
        Status::Done => Tone::Good,
        Status::Failed => Tone::Bad,
        Status::Cancelled => Tone::Dim,
    }
}

fn lines(style: Style, clock: &Clock, runs: &[RunSummary]) -> Vec<String> {
    if runs.is_empty() {
        return vec!["no runs yet; start one with: sentinel run \"…\"".to_owned()];
    }
    let ids: Vec<&RunId> = runs.iter().map(|run| &run.id).collect();
    let rows: Vec<Vec<Cell>> = runs
        .iter()
        .zip(resolve::short_ids(&ids))
        .map(|(run, id)| {
            let status = match (&run.damaged, run.pending) {
                (Some(_), _) => Cell::toned("damaged", Tone::Bad),
                (None, 0) => Cell::toned(run.status.as_str(), tone(run.status)),
                (None, pending) => {
                    Cell::toned(format!("{} ({pending})", run.status.as_str()), tone(run.status))
                }
            };
            let title = match &run.damaged {
                Some(why) if run.title.is_empty() => why.clone(),
                Some(why) => format!("{}: {why}", run.title),
                None if run.legacy => format!("{} (older layout, read-only)", run.title),
                None => run.title.clone(),
            };
            vec![
                Cell::new(id),
                status,
                Cell::new(&run.agent),
                Cell::new(&run.owner),
                Cell::new(clock.age(run.last_activity)),
                Cell::new(title),
            ]
        })
        .collect();
    table::lines(style, &["RUN", "STATUS", "AGENT", "OWNER", "LAST", "TITLE"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::card::tests::clock;
    use domain::id::Millis;

    fn summary(id: &str, status: Status, title: &str) -> RunSummary {
        RunSummary {
            id: RunId::new(id).unwrap(),
            title: title.into(),
            agent: "naomi".into(),
            status,
            owner: "os:root".into(),
            created: Millis(1_793_700_000_000),
            last_activity: Millis(1_793_700_061_000),
            pending: 0,
            legacy: false,
            damaged: None,
        }
    }

    #[test]
    fn a_listing_shows_what_needs_attention() {
        let runs = [
            RunSummary {
                pending: 2,
                ..summary("5f0c1e9e-7c0a-4c5e-9d5e-0a1b2c3d4e5f", Status::WaitingApproval, "words")
            },
            summary("0b1c1e9e-7c0a-4c5e-9d5e-0a1b2c3d4e5f", Status::Done, "tidy\u{1b}[2J up"),
            RunSummary { legacy: true, ..summary("a1b2", Status::Done, "old") },
            RunSummary {
                damaged: Some("worker half unreadable".into()),
                ..summary("c3d4", Status::Failed, "")
            },
        ];
        insta::assert_snapshot!(lines(Style::PLAIN, &clock(), &runs).join("\n"));
    }

    #[test]
    fn an_empty_listing_says_how_to_start() {
        assert!(lines(Style::PLAIN, &clock(), &[])[0].contains("sentinel run"));
    }
}
