//! `sentinel resume`, `cancel`, `steer` and `say`: what a person does to a run
//! that exists.

use api::control::{Request, Response};
use domain::id::RunId;
use serde_json::json;

use super::{input, resolve, run};
use crate::Context;
use crate::args::{FollowArgs, RunOnly, SayArgs, SteerArgs};
use crate::connect::Session;
use crate::exit::{Exit, Failure};

pub(crate) fn resume(context: &mut Context, args: &FollowArgs) -> Result<Exit, Failure> {
    let run = tell(context, &args.run, |run| Request::Resume { run })?;
    then_follow(context, &run, "resumed", args.follow, false)
}

pub(crate) fn cancel(context: &mut Context, args: &RunOnly) -> Result<Exit, Failure> {
    let run = tell(context, &args.run, |run| Request::Cancel { run })?;
    then_follow(context, &run, "asked to stop", false, false)
}

pub(crate) fn steer(context: &mut Context, args: &SteerArgs) -> Result<Exit, Failure> {
    let text = input::text(&args.text, "the message")?;
    let run = tell(context, &args.run, |run| Request::Say { run, text })?;
    then_follow(context, &run, "told", false, false)
}

pub(crate) fn say(context: &mut Context, args: &SayArgs) -> Result<Exit, Failure> {
    let text = input::text(&args.text, "the message")?;
    let run = tell(context, &args.run, |run| Request::Say { run, text })?;
    then_follow(context, &run, "told", args.follow, args.text == "-")
}

fn tell(
    context: &Context,
    given: &RunId,
    request: impl FnOnce(RunId) -> Request,
) -> Result<RunId, Failure> {
    let mut session = Session::open(&context.place)?;
    let run = resolve::run_id(&mut session, given)?;
    let answer = session.ask(&request(run.clone()))?;
    if !matches!(answer, Response::Done | Response::Submitted { .. }) {
        return Err(Failure::other_version());
    }
    Ok(run)
}

fn then_follow(
    context: &mut Context,
    id: &RunId,
    done: &str,
    follow: bool,
    used_up: bool,
) -> Result<Exit, Failure> {
    if follow {
        return run::watch(context, id, run::Watching { used_up, ..run::Watching::default() });
    }
    let sentinel = context.place.invocation.0.clone();
    context.out.either(&json!({"run": id, "done": done}), |style| {
        let hint = format!("follow it: {sentinel} show {id} --follow");
        vec![format!("{done}: run {id}"), style.dim(&hint)]
    })?;
    Ok(Exit::Ok)
}
