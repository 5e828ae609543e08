//! `sentinel run`: submit a task, then follow it. The run's id is chosen here,
//! so that asking again after a lost connection never starts a second run.

use api::control::{Item, Request, Response, Submit};
use domain::id::{AgentName, RunId};
use domain::record::Budgets;
use nix::sys::signal::Signal;
use serde_json::json;

use super::input;
use crate::Context;
use crate::args::RunArgs;
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::follow::{self, Answers, Follower};
use crate::interrupt::Interrupts;

/// Times a submission is sent when the connection breaks before the answer.
const TRIES: usize = 3;

pub(crate) fn run(context: &mut Context, args: &RunArgs) -> Result<Exit, Failure> {
    let submit = submission(args)?;
    let (run, existed) = submit_once(context, submit)?;
    if args.detach {
        return detached(context, &run, existed);
    }
    if context.out.json {
        context.out.json_line(&json!({"submitted": {"run": run, "existed": existed}}))?;
    } else {
        let word = if existed { "attached to" } else { "started" };
        context.out.line(&context.out.style.dim(&format!("· {word} run {run}")))?;
    }
    let used_up = args.task == "-";
    watch(context, &run, Watching { used_up, ..Watching::default() })
}

/// How a run is followed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Watching<'a> {
    /// Items that stand on the screen already.
    pub(crate) shown: &'a [Item],
    /// Standard input was read to its end.
    pub(crate) used_up: bool,
    /// Entries as they are in the logs; what waits is decided elsewhere.
    pub(crate) entries: bool,
}

/// Follows a run and says how it ended.
pub(crate) fn watch(
    context: &mut Context,
    run: &RunId,
    watching: Watching<'_>,
) -> Result<Exit, Failure> {
    let interrupts = Interrupts::watch(&[Signal::SIGINT, Signal::SIGTERM])?;
    let answers = match (watching.entries, input::can_ask(watching.used_up)) {
        (true, _) => Answers::Elsewhere,
        (false, true) if !context.out.json => Answers::Person,
        (false, _) => Answers::Nobody,
    };
    let end = Follower {
        place: &context.place,
        out: &mut context.out,
        interrupts: &interrupts,
        run,
        answers,
        shown: watching.shown,
        entries: watching.entries,
        witness: &mut |_| {},
    }
    .follow()?;
    follow::conclude(&mut context.out, &context.place, run, watching.entries, end)
}

fn submission(args: &RunArgs) -> Result<Submit, Failure> {
    let agent = args.agent.as_deref().map(AgentName::new).transpose().map_err(|error| {
        Failure::usage(error.to_string(), "list agents with `sentinel agent list`")
    })?;
    let fresh = RunId::new(&uuid::Uuid::new_v4().to_string());
    let id = match &args.id {
        Some(id) => id.clone(),
        None => {
            fresh.map_err(|error| Failure::new(Exit::Failed, error.to_string(), "try again"))?
        }
    };
    Ok(Submit {
        task: input::text(&args.task, "the task")?,
        agent,
        model: args.model.clone(),
        title: args.title.clone(),
        budgets: budgets(args.steps, args.minutes),
        id: Some(id),
        ..Submit::default()
    })
}

/// Ceilings for this run, where any was given.
fn budgets(steps: Option<u32>, minutes: Option<u32>) -> Option<Budgets> {
    if steps.is_none() && minutes.is_none() {
        return None;
    }
    let usual = Budgets::default();
    Some(Budgets {
        steps: steps.unwrap_or(usual.steps),
        wall_seconds: minutes.map_or(usual.wall_seconds, |minutes| u64::from(minutes) * 60),
        ..usual
    })
}

fn submit_once(context: &Context, submit: Submit) -> Result<(RunId, bool), Failure> {
    let request = Request::Submit(submit);
    let mut tries = 1;
    loop {
        let answer = Session::open(&context.place)?.ask(&request);
        match answer {
            Ok(Response::Submitted { run, existed }) => return Ok((run, existed)),
            Ok(_) => return Err(Failure::other_version()),
            Err(failure) if failure.exit == Exit::Unreachable && tries < TRIES => tries += 1,
            Err(failure) => return Err(failure),
        }
    }
}

fn detached(context: &mut Context, run: &RunId, existed: bool) -> Result<Exit, Failure> {
    let sentinel = context.place.invocation.0.clone();
    context.out.either(&json!({"run": run, "existed": existed}), |style| {
        vec![run.to_string(), style.dim(&format!("follow it: {sentinel} show {run} --follow"))]
    })?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> RunArgs {
        let mut all = vec!["run"];
        all.extend(words);
        let crate::args::Command::Run(args) = crate::args::tests::command(&all) else { panic!() };
        args
    }

    #[test]
    fn a_submission_has_an_id_of_its_own_and_only_the_ceilings_that_were_given() {
        let one = submission(&args(&["count words"])).unwrap();
        let two = submission(&args(&["count words"])).unwrap();
        assert!(one.id.is_some() && one.id != two.id);
        assert_eq!(one.budgets, None);
        let id = "5f0c1e9e-7c0a-4c5e-9d5e-0a1b2c3d4e5f";
        let words = ["x", "--agent", "coder", "--minutes", "2", "--id", id, "--title", "t"];
        let given = submission(&args(&words)).unwrap();
        assert_eq!(given.id.unwrap().as_str(), id);
        assert_eq!(given.agent.unwrap().as_str(), "coder");
        let budgets = given.budgets.unwrap();
        assert_eq!((budgets.wall_seconds, budgets.steps), (120, Budgets::default().steps));
    }

    #[test]
    fn an_empty_task_and_a_name_no_agent_can_have_are_refused_before_anything_is_asked() {
        assert_eq!(submission(&args(&[" "])).unwrap_err().exit, Exit::Usage);
        assert_eq!(submission(&args(&["x", "--agent", "../y"])).unwrap_err().exit, Exit::Usage);
    }
}
