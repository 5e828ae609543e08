//! `sentinel approve`, `deny` and `answer`. The waiting cards are fetched first:
//! what is sent carries the digest of the card that was printed, so a yes is
//! never for something that changed in between.

use api::control::{Pending, Request, Response};
use domain::id::RunId;
use domain::log::Verdict;
use serde_json::{Value, json};

use super::choice::{choose, choose_question, parse_targets, split_questions};
use super::{approvals, input, resolve};
use crate::Context;
use crate::args::{AnswerArgs, DecideArgs};
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::render::card::{self, Foot};
use crate::render::style::{Style, Tone};
use crate::render::time::Clock;

pub(crate) fn approve(context: &mut Context, args: &DecideArgs) -> Result<Exit, Failure> {
    decide(context, args, &Verdict::Approve)
}

pub(crate) fn deny(context: &mut Context, args: &DecideArgs) -> Result<Exit, Failure> {
    decide(context, args, &Verdict::Deny)
}

fn decide(context: &mut Context, args: &DecideArgs, verdict: &Verdict) -> Result<Exit, Failure> {
    let targets = parse_targets(&args.targets)?;
    let mut session = Session::open(&context.place)?;
    let waiting = approvals::all(&mut session)?;
    let mut chosen: Vec<Pending> = Vec::new();
    if targets.is_empty() {
        chosen.clone_from(&waiting);
    }
    for target in &targets {
        let run = waiting_run(&mut session, &target.run, &waiting)?;
        chosen.extend(choose(&run, target.request, args.all, &waiting)?);
    }
    let (questions, chosen) = split_questions(chosen, verdict, args.all)?;
    if !context.out.json && chosen.is_empty() && questions.is_empty() {
        context.out.line("nothing waits for you")?;
    }
    let outcome = send_all(context, &mut session, &chosen, verdict, args.reason.as_deref())?;
    if !context.out.json {
        for question in &questions {
            let how = card::command_lines(&context.place.invocation, question);
            let how = how.into_iter().next().unwrap_or_default();
            context.out.line(&format!("still waits for an answer in words: {how}"))?;
        }
    }
    if outcome == Exit::Ok && !questions.is_empty() { Ok(Exit::Waiting) } else { Ok(outcome) }
}

pub(crate) fn answer(context: &mut Context, args: &AnswerArgs) -> Result<Exit, Failure> {
    let text = input::text(&args.text, "the answer")?;
    let mut session = Session::open(&context.place)?;
    let waiting = approvals::all(&mut session)?;
    let run = waiting_run(&mut session, &args.run, &waiting)?;
    let chosen = choose_question(&run, args.request, &waiting)?;
    send_all(context, &mut session, &[chosen], &Verdict::Answer(text), None)
}

/// Sends one decision.
pub(crate) fn send(
    session: &mut Session,
    pending: &Pending,
    verdict: Verdict,
    reason: Option<String>,
) -> Result<(), Failure> {
    let request = Request::Decide {
        run: pending.run.clone(),
        request: pending.request,
        digest: pending.digest.clone(),
        verdict,
        reason,
    };
    let Response::Done = session.ask(&request)? else {
        return Err(Failure::other_version());
    };
    Ok(())
}

/// Shows each card and sends its decision; one that fails does not keep the
/// others back.
fn send_all(
    context: &mut Context,
    session: &mut Session,
    chosen: &[Pending],
    verdict: &Verdict,
    reason: Option<&str>,
) -> Result<Exit, Failure> {
    let clock = Clock::of_machine();
    let mut exit = Exit::Ok;
    let mut documents: Vec<Value> = Vec::new();
    for pending in chosen {
        if !context.out.json {
            let style = context.out.style;
            let foot = Foot { invocation: &context.place.invocation, decide: false };
            context.out.lines(card::pending(style, &clock, foot, pending))?;
        }
        let result = send(session, pending, verdict.clone(), reason.map(str::to_owned));
        if let (Err(failure), Exit::Ok) = (&result, exit) {
            exit = failure.exit;
        }
        documents.push(document(pending, verdict, &result));
        match result {
            _ if context.out.json => {}
            Ok(()) => {
                let line = done_line(context.out.style, pending, verdict, reason);
                context.out.line(&line)?;
            }
            Err(failure) => output::report(&failure, false),
        }
    }
    if context.out.json {
        context.out.document(&json!({"decided": documents}))?;
    }
    Ok(exit)
}

fn document(pending: &Pending, verdict: &Verdict, result: &Result<(), Failure>) -> Value {
    let mut value = json!({
        "run": pending.run,
        "request": pending.request,
        "digest": pending.digest,
        "verdict": verdict,
        "ok": result.is_ok(),
    });
    if let (Err(failure), Some(fields)) = (result, value.as_object_mut()) {
        fields.extend(failure.json().as_object().cloned().unwrap_or_default());
    }
    value
}

fn done_line(style: Style, pending: &Pending, verdict: &Verdict, reason: Option<&str>) -> String {
    let (mark, word) = match verdict {
        Verdict::Approve => (style.paint(Tone::Good, "✔"), "approved"),
        Verdict::Deny => (style.paint(Tone::Bad, "✘"), "denied"),
        Verdict::Answer(_) => (style.paint(Tone::Good, "✔"), "answered"),
    };
    let reason = reason.map(|reason| format!("; the agent is told: {reason}")).unwrap_or_default();
    format!("{mark} {word} request {} of {}{reason}", pending.request, pending.run)
}

/// The waiting run that is meant; where none waits, what is the matter with it.
fn waiting_run(
    session: &mut Session,
    given: &RunId,
    waiting: &[Pending],
) -> Result<RunId, Failure> {
    let known = waiting.iter().map(|pending| (&pending.run, pending.title.as_str()));
    match resolve::resolve(given, known) {
        Err(failure) if failure.exit == Exit::NotFound => {
            let runs = resolve::runs(session, crate::limits::RUNS_SEARCHED)?;
            let run = resolve::resolve(given, runs.iter().map(|r| (&r.id, r.title.as_str())))?;
            let status = runs.iter().find(|r| r.id == run).map_or("unknown", |r| r.status.as_str());
            Err(Failure::new(
                Exit::Conflict,
                format!("run {run} waits for nothing: it is {status}"),
                format!("see it with `sentinel show {run}`"),
            ))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::card::tests::request;
    use domain::approval::Wants;

    #[test]
    fn a_decision_that_failed_says_why_in_its_document() {
        let failure = Failure::new(Exit::Conflict, "decided by mara", "look");
        let value = document(&request(7, Wants::Approval), &Verdict::Approve, &Err(failure));
        assert_eq!(value["ok"], false);
        assert_eq!(value["error"]["kind"], "conflict");
    }
}
