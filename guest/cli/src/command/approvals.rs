//! `sentinel approvals`: what waits for a person, oldest first.

use api::control::{Pending, Request, Response};
use domain::id::RunId;
use serde_json::json;

use super::resolve;
use crate::Context;
use crate::args::ApprovalsArgs;
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::render::card::{self, Foot};
use crate::render::style::{Style, Tone};
use crate::render::table::{self, Cell};
use crate::render::time::Clock;

pub(crate) fn run(context: &mut Context, args: &ApprovalsArgs) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.place)?;
    let mut waiting = all(&mut session)?;
    if let Some(given) = &args.run {
        let run = resolve::run_id(&mut session, given)?;
        waiting.retain(|pending| pending.run == run);
    }
    let clock = Clock::of_machine();
    let invocation = context.place.invocation.clone();
    context.out.either(&json!({"approvals": waiting}), |style| {
        if args.cards || args.run.is_some() {
            let foot = Foot { invocation: &invocation, decide: true };
            let card = |pending| card::pending(style, &clock, foot, pending);
            waiting.iter().flat_map(card).collect()
        } else {
            lines(style, &clock, &waiting)
        }
    })?;
    Ok(Exit::Ok)
}

/// Every request that waits, oldest first.
pub(crate) fn all(session: &mut Session) -> Result<Vec<Pending>, Failure> {
    let Response::Approvals(waiting) = session.ask(&Request::Approvals)? else {
        return Err(Failure::other_version());
    };
    Ok(waiting)
}

fn lines(style: Style, clock: &Clock, waiting: &[Pending]) -> Vec<String> {
    if waiting.is_empty() {
        return vec!["nothing waits for you".to_owned()];
    }
    let ids: Vec<&RunId> = waiting.iter().map(|pending| &pending.run).collect();
    let rows: Vec<Vec<Cell>> = waiting
        .iter()
        .zip(resolve::short_ids(&ids))
        .map(|(pending, id)| {
            vec![
                Cell::new(id),
                Cell::new(pending.request.to_string()),
                Cell::new(&pending.agent),
                Cell::new(clock.age(pending.asked_at)),
                Cell::toned(&pending.card.call.tool, Tone::Strong),
                Cell::new(&pending.card.summary),
            ]
        })
        .collect();
    let mut lines =
        table::lines(style, &["RUN", "REQUEST", "AGENT", "WAITS", "TOOL", "WHAT"], &rows);
    lines.push(style.dim("whole cards: sentinel approvals --cards"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::card::tests::{clock, request};
    use domain::approval::Wants;

    #[test]
    fn a_listing_has_one_row_for_each_request() {
        let mut other = request(2, Wants::Approval);
        other.run = RunId::new("a1b2").unwrap();
        let waiting = [request(7, Wants::Approval), request(9, Wants::Answer), other];
        insta::assert_snapshot!(lines(Style::PLAIN, &clock(), &waiting).join("\n"));
        assert_eq!(lines(Style::PLAIN, &clock(), &[]), ["nothing waits for you"]);
    }
}
