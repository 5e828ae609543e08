//! Which requests are meant: by the words of a command line, among what waits.
//! Pure; nothing is decided for more than what was named.

use api::control::Pending;
use domain::approval::Wants;
use domain::id::RunId;
use domain::log::Verdict;

use crate::exit::{Exit, Failure};

/// Digits that are a request's number; a run's beginning is longer.
const REQUEST_DIGITS: usize = 7;

/// What one word or two on the command line name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) run: RunId,
    pub(super) request: Option<u64>,
}

/// The words of the command line: runs, each with the number of a request
/// behind it where one is meant.
pub(super) fn parse_targets(words: &[String]) -> Result<Vec<Target>, Failure> {
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

/// What waits in `run`: the request that is named, the only one, or all.
pub(super) fn choose(
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

/// The question of `run` that is meant.
pub(super) fn choose_question(
    run: &RunId,
    request: Option<u64>,
    waiting: &[Pending],
) -> Result<Pending, Failure> {
    let asks = |pending: &&Pending| pending.run == *run && pending.card.wants == Wants::Answer;
    let questions: Vec<Pending> = waiting.iter().filter(asks).cloned().collect();
    let mut chosen = match request {
        Some(_) => choose(run, request, false, waiting)?,
        None if questions.is_empty() => choose(run, None, true, waiting)?,
        None => choose(run, None, false, &questions)?,
    };
    let pending = chosen.swap_remove(0);
    if pending.card.wants == Wants::Approval {
        return Err(Failure::new(
            Exit::Conflict,
            format!("request {} of {run} wants a yes or a no", pending.request),
            format!("use `sentinel approve {run}` or `sentinel deny {run}`"),
        ));
    }
    Ok(pending)
}

/// A yes is no answer to a question: with `--all` questions are left over, one
/// by one they are refused.
pub(super) fn split_questions(
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
    fn an_answer_goes_to_a_question_and_to_nothing_else() {
        let waiting = [request(7, Wants::Approval), request(9, Wants::Answer)];
        let run = waiting[0].run.clone();
        let chosen = |request, waiting: &[Pending]| {
            choose_question(&run, request, waiting).map(|pending| pending.request)
        };
        assert_eq!(chosen(None, &waiting).unwrap(), 9);
        assert_eq!(chosen(Some(9), &waiting).unwrap(), 9);
        for (request, waiting) in [(Some(7), &waiting[..]), (None, &waiting[..1]), (None, &[])] {
            assert_eq!(chosen(request, waiting).unwrap_err().exit, Exit::Conflict);
        }
        let two = [request(9, Wants::Answer), request(11, Wants::Answer)];
        assert_eq!(chosen(None, &two).unwrap_err().exit, Exit::Usage);
    }
}
