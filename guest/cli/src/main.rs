//! `sentinel`: every command a person types, and the hidden roles of one
//! binary, so that the processes of one version never talk to another's.
//!
//! The story: [`args`] says what can be asked, [`connect`] where this machine's
//! Sentinel is, `command` has one module for each command, [`follow`] watches a
//! run, `render` makes lines, [`exit`] says how it ended. No tool runs here,
//! and no state is written: a command asks the control plane.

mod args;
mod catalog_args;
mod command;
mod connect;
mod exit;
mod follow;
mod interrupt;
mod limits;
mod output;
mod render;
mod roles;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command, Options};
use connect::{Facts, Place};
use exit::{Exit, Failure};
use output::Output;

/// What every command works with.
struct Context {
    place: Place,
    out: Output,
}

impl Context {
    fn new(options: &Options) -> Result<Self, Failure> {
        let place = Place::choose(options, &Facts::of_process())?;
        Ok(Self { place, out: Output::new(options) })
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let json = cli.options.json;
    match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => {
            output::report(&failure, json);
            ExitCode::from(failure.exit.code())
        }
    }
}

/// Help, version, or what is wrong with the command line.
fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe loses the help and nothing else.
    error.print().ok();
    let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
    ExitCode::from(exit.code())
}

fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let context = || Context::new(&cli.options);
    let exit = match cli.command {
        Command::Role(role) => return Ok(roles::run(role)),
        Command::Completion(args) => command::completion::run(Output::new(&cli.options), &args),
        Command::Up(args) => command::up::run(&mut context()?, &args),
        Command::Demo(args) => command::demo::run(&mut context()?, &args),
        Command::Run(args) => command::run::run(&mut context()?, &args),
        Command::Runs(args) => command::runs::run(&mut context()?, &args),
        Command::Show(args) => command::show::run(&mut context()?, &args),
        Command::Approvals(args) => command::approvals::run(&mut context()?, &args),
        Command::Approve(args) => command::decide::approve(&mut context()?, &args),
        Command::Deny(args) => command::decide::deny(&mut context()?, &args),
        Command::Answer(args) => command::decide::answer(&mut context()?, &args),
        Command::Resume(args) => command::steering::resume(&mut context()?, &args),
        Command::Cancel(args) => command::steering::cancel(&mut context()?, &args),
        Command::Steer(args) => command::steering::steer(&mut context()?, &args),
        Command::Say(args) => command::steering::say(&mut context()?, &args),
        Command::Logs(args) => command::logs::run(&mut context()?, &args),
        Command::Status => command::status::run(&mut context()?),
        Command::Doctor => command::doctor::run(&mut context()?),
        Command::Model(sub) => command::model::run(&mut context()?, &sub),
        Command::Agent(sub) => command::agent::run(&mut context()?, &sub),
    };
    Ok(ExitCode::from(exit?.code()))
}
