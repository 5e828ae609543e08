//! `sentinel show`: one run, from its header to what it waits for.

use api::control::{Body, Item, Request, Response, RunView};
use domain::log::{Attestation, Event};

use super::resolve;
use super::run::{Watching, watch};
use crate::Context;
use crate::args::ShowArgs;
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::render::card::{self, Foot, Invocation};
use crate::render::style::Style;
use crate::render::time::{self, Clock};
use crate::render::transcript::Transcript;
use crate::render::{attestation, table};

pub(crate) fn run(context: &mut Context, args: &ShowArgs) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.place)?;
    let run = resolve::run_id(&mut session, &args.run)?;
    let Response::Run(view) = session.ask(&Request::Show { run: run.clone() })? else {
        return Err(Failure::other_version());
    };
    if !args.follow {
        let (clock, invocation) = (Clock::of_machine(), context.place.invocation.clone());
        context.out.either(&view, |style| whole(style, &clock, &invocation, &view))?;
        return Ok(if view.attestation_differences.is_empty() {
            Exit::Ok
        } else {
            Exit::Preflight
        });
    }
    drop(session);
    let shown: &[Item] = if context.out.json { &[] } else { &view.items };
    if !context.out.json {
        let style = context.out.style;
        context.out.lines(header(style, &Clock::of_machine(), &view))?;
        context.out.lines(transcript(style, &view.items))?;
    }
    watch(context, &run, Watching { shown, ..Watching::default() })
}

/// Everything about a run.
fn whole(style: Style, clock: &Clock, invocation: &Invocation, view: &RunView) -> Vec<String> {
    let mut lines = header(style, clock, view);
    lines.push(String::new());
    lines.extend(transcript(style, &view.items));
    lines.push(String::new());
    lines.push(style.strong("What confined it"));
    lines.extend(attestation::side_by_side(
        style,
        claim(&view.items),
        view.attestation.as_ref(),
        &view.attestation_differences,
    ));
    for pending in &view.pending {
        lines.push(String::new());
        lines.extend(card::pending(style, clock, Foot { invocation, decide: true }, pending));
    }
    lines
}

fn header(style: Style, clock: &Clock, view: &RunView) -> Vec<String> {
    let record = &view.record;
    let status = match &view.failure {
        Some(failure) => format!("{}: {failure}", view.status.as_str()),
        None => view.status.as_str().to_owned(),
    };
    let tools = record.grants.tools.join(", ");
    let ports = if record.grants.tcp_ports.is_empty() {
        "none".to_owned()
    } else {
        format!("tcp ports {:?}", record.grants.tcp_ports)
    };
    let budgets = &record.budgets;
    let ceilings = format!(
        "{} steps, {} tool calls, {} of work",
        budgets.steps,
        budgets.tool_calls,
        time::span(budgets.wall_seconds.saturating_mul(1_000))
    );
    let pairs = [
        ("run", record.id.to_string()),
        ("title", record.title.clone()),
        ("status", status),
        ("agent", format!("{} as {}", record.agent, record.subject)),
        ("owner", record.owner.clone()),
        ("model", format!("{} ({})", record.model.name, record.model.model)),
        ("created", clock.stamp(record.created)),
        ("latest", format!("{} ago", clock.age(record.last_activity))),
        ("profile", format!("{}, {}", record.profile.as_str(), record.boundary.as_str())),
        ("tools", tools),
        ("network", ports),
        ("ceilings", ceilings),
        ("workspace", record.workspace.clone()),
        ("kept in", view.path.clone()),
    ];
    table::pairs(style, &pairs)
}

fn transcript(style: Style, items: &[Item]) -> Vec<String> {
    let mut transcript = Transcript::new(style);
    items.iter().flat_map(|item| transcript.item(item)).collect()
}

/// The latest worker's claim.
fn claim(items: &[Item]) -> Option<&Attestation> {
    items.iter().rev().find_map(|item| {
        let Body::Worker(Event::SecurityAttestation(claim)) = &item.body else { return None };
        Some(&**claim)
    })
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
