//! `sentinel demo`: one supervised run in throw-away state. The model is a
//! script; launcher, control plane, Muzzle, worker, sandbox and approval are the
//! real ones. What is claimed at the end is looked up, and everything is removed
//! whatever happens.

mod stage;
mod summary;

use std::path::Path;

use api::control::{Request, Response, RunView, Submit};
use domain::id::RunId;
use domain::profile::ModelRecord;
use domain::record::Provider;
use nix::sys::signal::Signal;
use rehearsal::Scenario;
use serde_json::json;

use self::stage::Stage;
use self::summary::{Evidence, Tally};
use super::{input, model};
use crate::Context;
use crate::args::DemoArgs;
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::follow::{Answers, End, Follower};
use crate::interrupt::Interrupts;
use crate::output::Output;
use crate::render::block;
use crate::render::style::Tone;
use crate::{limits, roles};

/// The script that is played unless another is named.
const SCENARIO: &str = "demo";
/// The name of the model that is a script.
const MODEL: &str = "rehearsal";
/// Stands before every line of the run.
const LABEL: &str = "rehearsal │ ";

/// What is played.
struct Play {
    /// The scenario file's text.
    text: String,
    /// The model's name there, and the task it is written for.
    model: String,
    task: String,
    /// The script shows all that the summary asks for.
    complete: bool,
}

pub(crate) fn run(context: &mut Context, args: &DemoArgs) -> Result<Exit, Failure> {
    let play = load(args.scenario.as_deref())?;
    let interrupts = Interrupts::watch(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    banner(&mut context.out)?;
    let mut stage = Stage::prepare(args.keep)?;
    let played = perform(&mut stage, &mut context.out, &interrupts, &play);
    context.out.set_gutter("");
    let log = stage.log_tail();
    let left = stage.tear_down();
    let exit = match played {
        Ok(exit) => exit,
        Err(mut failure) if failure.exit == Exit::Failed || failure.exit == Exit::Unreachable => {
            failure.next = format!("{}\nwhat `sentinel up` said last:\n{log}", failure.next);
            return Err(failure);
        }
        Err(failure) => return Err(failure),
    };
    if context.out.json {
        context.out.json_line(&json!({"afterwards": left}))?;
    } else {
        context.out.lines(left)?;
        if exit == Exit::Ok {
            context.out.line("")?;
            context.out.line("Next, with a model of your own: sentinel up")?;
        }
    }
    Ok(exit)
}

/// The script from a file, or the built-in one.
fn load(file: Option<&Path>) -> Result<Play, Failure> {
    let (name, text) = if let Some(path) = file {
        let name = path.display().to_string();
        let text = input::file(&name, limits::SCENARIO_BYTES)?;
        (name, text)
    } else {
        let built_in = rehearsal::EMBEDDED.iter().find(|(name, _)| *name == SCENARIO);
        (SCENARIO.to_owned(), built_in.map_or("", |(_, text)| *text).to_owned())
    };
    let wrong = |why: String| {
        Failure::usage(
            format!("{name} is no scenario: {why}"),
            "leave out --scenario to play the built-in one",
        )
    };
    let scenario = Scenario::parse(&text).map_err(|error| wrong(roles::chain(&error)))?;
    let model = scenario.models().next().ok_or_else(|| wrong("it has no model".to_owned()))?;
    let task = scenario.task(model).unwrap_or("Play your part.").to_owned();
    let model = model.to_owned();
    Ok(Play { text, model, task, complete: file.is_none() })
}

fn banner(out: &mut Output) -> Result<(), Failure> {
    if out.json {
        return out.json_line(&json!({"rehearsal": true}));
    }
    let style = out.style;
    out.line(&style.strong(
        "This is a rehearsal: the model is a script. The rest is real: the launcher, the",
    ))?;
    out.line(&style.strong(
        "control plane, the worker, its sandbox and the approval. It needs no key and no GPU,",
    ))?;
    out.line(&style.strong("and what it makes is removed when it ends."))?;
    out.line("")
}

/// Starts everything, plays the run, and says what came of it.
fn perform(
    stage: &mut Stage,
    out: &mut Output,
    interrupts: &Interrupts,
    play: &Play,
) -> Result<Exit, Failure> {
    stage.start_launcher()?;
    let status = stage.wait_until_ready(out, interrupts)?;
    // Not before: a starting launcher ends whatever has one of its uids.
    let port = stage.start_provider(&play.text, interrupts)?;
    let place = &stage.place;
    let mut session = Session::open(place)?;
    let script = ModelRecord {
        name: MODEL.to_owned(),
        provider: Provider::Openai,
        base_url: format!("http://127.0.0.1:{port}"),
        model: play.model.clone(),
        owner: String::new(),
    };
    model::expect_done(&mut session, &Request::ModelAdd { model: script })?;
    let run = submit(&mut session, &play.task)?;
    drop(session);
    let asks = !out.json && input::can_ask(false);
    out.set_gutter(LABEL);
    let mut tally = Tally::default();
    let end = Follower {
        place,
        out,
        interrupts,
        run: &run,
        answers: if asks { Answers::Person } else { Answers::Rehearsal },
        shown: &[],
        entries: false,
        witness: &mut |item| tally.take(item),
    }
    .follow()?;
    out.set_gutter("");
    match end {
        End::Over { .. } => {
            let view = show(&mut Session::open(place)?, &run)?;
            let evidence = Evidence::gather(&tally, &view, &status.boundary, asks);
            conclude(out, &tally, &evidence, play.complete)
        }
        End::Detached => Ok(interrupted(out)?),
        End::Waiting(_) => {
            out.line("")?;
            out.line("You left the question open, so the rehearsal ends here.")?;
            Ok(Exit::Waiting)
        }
        End::Broken(failure) => Err(failure),
    }
}

fn submit(session: &mut Session, task: &str) -> Result<RunId, Failure> {
    let submit = Submit {
        task: task.to_owned(),
        model: Some(MODEL.to_owned()),
        title: Some(format!("rehearsal: {}", block::row(task, 60))),
        ..Submit::default()
    };
    let Response::Submitted { run, .. } = session.ask(&Request::Submit(submit))? else {
        return Err(Failure::other_version());
    };
    Ok(run)
}

fn show(session: &mut Session, run: &RunId) -> Result<RunView, Failure> {
    let Response::Run(view) = session.ask(&Request::Show { run: run.clone() })? else {
        return Err(Failure::other_version());
    };
    Ok(*view)
}

fn interrupted(out: &mut Output) -> Result<Exit, Failure> {
    if !out.json {
        out.line("")?;
        out.line("Stopped.")?;
    }
    Ok(Exit::Interrupted)
}

fn conclude(
    out: &mut Output,
    tally: &Tally,
    evidence: &Evidence,
    complete: bool,
) -> Result<Exit, Failure> {
    let checks = summary::check(tally, evidence, complete);
    let passed = checks.iter().all(|check| check.holds);
    if out.json {
        out.json_line(&json!({"summary": checks, "passed": passed}))?;
    } else {
        out.line("")?;
        out.line(&out.style.strong("What happened"))?;
        out.lines(summary::lines(out.style, &checks))?;
    }
    if passed {
        return Ok(Exit::Ok);
    }
    let what = "the rehearsal did not show all it should";
    if !out.json {
        out.line(&out.style.paint(Tone::Bad, &format!("✘ {what}")))?;
    }
    Err(Failure::new(Exit::Failed, what, "see above, and `sentinel doctor`"))
}
