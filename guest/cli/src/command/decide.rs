//! `sentinel approve`, `deny` and `answer`. The waiting cards are fetched first:
//! what is sent carries the digest of the card that was printed, so a yes is
//! never for something that changed in between.

use api::control::{Pending, Request, Response};
use domain::approval::Wants;
use domain::id::RunId;
use domain::log::Verdict;
use serde_json::{Value, json};

use super::{approvals, input, resolve};
use crate::Context;
use crate::args::{AnswerArgs, DecideArgs};
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::render::card;
use crate::render::style::{Style, Tone};
use crate::render::time::Clock;

/// Digits that are a request's number; a run's beginning is longer.
const REQUEST_DIGITS: usize = 7;

/// What one word or two on the command line name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    run: RunId,
    request: Option<u64>,
}

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
    let questions: Vec<Pending> =
        waiting.iter().filter(|p| p.card.wants == Wants::Answer).cloned().collect();
    let candidates = if args.request.is_some() { &waiting } else { &questions };
    let mut chosen = choose(&run, args.request, false, candidates)?;
    chosen.truncate(1);
    if let Some(pending) = chosen.iter().find(|p| p.card.wants == Wants::Approval) {
        return Err(Failure::new(
            Exit::Conflict,
            format!("request {} of {run} wants a yes or a no", pending.request),
            format!("use `sentinel approve {run}` or `sentinel deny {run}`"),
        ));
    }
    send_all(context, &mut session, &chosen, &Verdict::Answer(text), None)
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
            let invocation = &context.place.invocation;
            context.out.lines(card::pending(style, &clock, invocation, pending))?;
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

/// The words of the command line: runs, each with the number of a request
/// behind it where one is meant.
fn parse_targets(words: &[String]) -> Result<Vec<Target>, Failure> {
    let mut targets: Vec<Target> = Vec::new();
    for word in words {
        let number = Some(word)
            .filter(|word| word.len() <= REQUEST_DIGITS)
            .and_then(|word| word.parse::<u64>().ok());
        match (number, targets.last_mut()) {
            (Some(number), Some(target)) if target.request.is_none() => {
                target.request = Some(number);
            }
            (Some(_), _) => {
                return Err(Failure::usage(
                    format!("{word} is the number of a request, and no run stands before it"),
                    "name the run first: sentinel approve RUN REQUEST",
                ));
            }
            (None, _) => {
                let run = RunId::new(word).map_err(|error| {
                    Failure::usage(error.to_string(), "list what waits with `sentinel approvals`")
                })?;
                targets.push(Target { run, request: None });
            }
        }
    }
    Ok(targets)
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

/// What waits in `run`: the request that is named, the only one, or all.
fn choose(
    run: &RunId,
    request: Option<u64>,
    all: bool,
    waiting: &[Pending],
) -> Result<Vec<Pending>, Failure> {
    let of_run: Vec<&Pending> = waiting.iter().filter(|pending| pending.run == *run).collect();
    let chosen: Vec<Pending> = of_run
        .iter()
        .filter(|pending| request.is_none_or(|number| pending.request == number))
        .map(|pending| (*pending).clone())
        .collect();
    let numbers: Vec<String> = of_run.iter().map(|p| p.request.to_string()).collect();
    match (chosen.as_slice(), request) {
        ([], Some(number)) => Err(Failure::new(
            Exit::NotFound,
            format!("run {run} does not wait for request {number}"),
            format!("it waits for {}", numbers.join(", ")),
        )),
        ([], None) => Err(Failure::new(
            Exit::Conflict,
            format!("run {run} has no such request"),
            "see what waits with `sentinel approvals`",
        )),
        ([_, _, ..], None) if !all => Err(Failure::usage(
            format!("run {run} waits for {} requests: {}", chosen.len(), numbers.join(", ")),
            "name one after the run, or decide them together with --all",
        )),
        _ => Ok(chosen),
    }
}

/// A yes is no answer to a question: with `--all` questions are left over, one
/// by one they are refused.
fn split_questions(
    chosen: Vec<Pending>,
    verdict: &Verdict,
    all: bool,
) -> Result<(Vec<Pending>, Vec<Pending>), Failure> {
    if *verdict != Verdict::Approve {
        return Ok((Vec::new(), chosen));
    }
    let (questions, rest): (Vec<Pending>, Vec<Pending>) =
        chosen.into_iter().partition(|pending| pending.card.wants == Wants::Answer);
    match questions.first() {
        Some(question) if !all => Err(Failure::new(
            Exit::Conflict,
            format!("request {} of {} is a question", question.request, question.run),
            format!("answer it in words: sentinel answer {} \"…\"", question.run),
        )),
        _ => Ok((questions, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::card::tests::request;

    fn targets(words: &[&str]) -> Result<Vec<(String, Option<u64>)>, Failure> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(parse_targets(&words)?
            .into_iter()
            .map(|target| (target.run.to_string(), target.request))
            .collect())
    }

    #[test]
    fn short_numbers_are_requests_and_long_ones_runs() {
        let run = |id: &str, request| (id.to_owned(), request);
        assert_eq!(targets(&["5f0c", "7"]).unwrap(), [run("5f0c", Some(7))]);
        assert_eq!(
            targets(&["5f0c", "a1b2", "9", "12345678"]).unwrap(),
            [run("5f0c", None), run("a1b2", Some(9)), run("12345678", None)]
        );
        for bad in [&["7"][..], &["5f0c", "7", "8"], &["../x"], &["a b"]] {
            assert_eq!(targets(bad).unwrap_err().exit, Exit::Usage, "{bad:?}");
        }
    }

    #[test]
    fn several_requests_are_never_decided_by_one_word() {
        let waiting = [request(7, Wants::Approval), request(9, Wants::Approval)];
        let run = waiting[0].run.clone();
        let numbers = |request, all| {
            choose(&run, request, all, &waiting)
                .map(|chosen| chosen.iter().map(|p| p.request).collect::<Vec<_>>())
        };
        let failure = numbers(None, false).unwrap_err();
        assert_eq!((failure.exit, failure.what.contains("7, 9")), (Exit::Usage, true));
        assert_eq!(numbers(Some(9), false).unwrap(), [9]);
        assert_eq!(numbers(None, true).unwrap(), [7, 9]);
        assert_eq!(numbers(Some(8), true).unwrap_err().exit, Exit::NotFound);
        let other = RunId::new("a1b2").unwrap();
        assert_eq!(choose(&other, None, true, &waiting).unwrap_err().exit, Exit::Conflict);
    }

    #[test]
    fn a_yes_answers_no_question() {
        let waiting = || vec![request(7, Wants::Approval), request(9, Wants::Answer)];
        let failure = split_questions(waiting(), &Verdict::Approve, false).unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert!(failure.next.contains("sentinel answer"));
        let (left, rest) = split_questions(waiting(), &Verdict::Approve, true).unwrap();
        assert_eq!((left[0].request, rest[0].request), (9, 7));
        let (left, rest) = split_questions(waiting(), &Verdict::Deny, false).unwrap();
        assert!(left.is_empty());
        assert_eq!(rest.len(), 2);
    }

    #[test]
    fn a_decision_that_failed_says_why_in_its_document() {
        let failure = Failure::new(Exit::Conflict, "decided by mara", "look");
        let value = document(&request(7, Wants::Approval), &Verdict::Approve, &Err(failure));
        assert_eq!(value["ok"], false);
        assert_eq!(value["error"]["kind"], "conflict");
    }
}
