//! The command line: every command with what it does and one example. What is
//! checked here is the shape of words; what they mean is decided elsewhere.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use domain::id::RunId;

use crate::catalog_args::{AgentCommand, ModelCommand};
use crate::exit;

/// Runs AI agents on this machine under guards that they cannot talk their way past.
#[derive(Debug, Parser)]
#[command(
    name = "sentinel",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = exit::table(),
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Options {
    /// Directory of the state [default: by account, see `sentinel status`]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub(crate) state: Option<PathBuf>,
    /// Control socket to talk to
    #[arg(long, global = true, value_name = "PATH", help_heading = "Everywhere")]
    pub(crate) socket: Option<PathBuf>,
    /// Directory of the sockets.
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub(crate) sockets: Option<PathBuf>,
    /// Print JSON: one document, or a line for each event where output streams
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
    /// When to use colour
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        help_heading = "Everywhere"
    )]
    pub(crate) color: ColorWhen,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorWhen {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start Sentinel and keep it running in this terminal
    #[command(after_help = "Example: sentinel up")]
    Up(UpArgs),
    /// Play one supervised run with a scripted model, in throw-away state
    ///
    /// Tools are used, an approval is waited for and a block is shown, behind
    /// the real guards. With a terminal you answer; without one the rehearsal
    /// answers after showing the card. Everything is removed at the end.
    #[command(after_help = "Example: sentinel demo")]
    Demo(DemoArgs),
    /// Give an agent a task and watch it work
    ///
    /// With a terminal you are asked when something waits for your yes. Without
    /// one, or with --json, the command ends with code 3 then and prints how to
    /// decide. Ctrl-C leaves the run going.
    #[command(
        after_help = "Example: sentinel run \"write a script that counts words, and test it\""
    )]
    Run(RunArgs),
    /// List runs, latest first
    #[command(after_help = "Example: sentinel runs --limit 10")]
    Runs(RunsArgs),
    /// Show what a run did, what confined it, and what it waits for
    #[command(after_help = "Example: sentinel show 5f0c1e9e --follow")]
    Show(ShowArgs),
    /// List what waits for a person, oldest first
    #[command(after_help = "Example: sentinel approvals --cards")]
    Approvals(ApprovalsArgs),
    /// Say yes to what a run wants to do
    ///
    /// The yes is bound to the bytes on the card that is printed: when they
    /// change, the agent has to ask again.
    #[command(after_help = "Example: sentinel approve 5f0c1e9e 7")]
    Approve(DecideArgs),
    /// Say no to what a run wants to do
    #[command(after_help = "Example: sentinel deny 5f0c1e9e --reason \"not on a Friday\"")]
    Deny(DecideArgs),
    /// Answer an agent's question in words
    #[command(after_help = "Example: sentinel answer 5f0c1e9e \"port 8080\"")]
    Answer(AnswerArgs),
    /// Launch a run again that failed, was cancelled or lost its worker
    #[command(after_help = "Example: sentinel resume 5f0c1e9e --follow")]
    Resume(FollowArgs),
    /// Stop a run
    #[command(after_help = "Example: sentinel cancel 5f0c1e9e")]
    Cancel(RunOnly),
    /// Tell a run something while it works
    #[command(after_help = "Example: sentinel steer 5f0c1e9e \"smaller steps\"")]
    Steer(SteerArgs),
    /// Add a turn to a run's conversation; a finished run goes on
    #[command(after_help = "Example: sentinel say 5f0c1e9e \"now in Rust\" --follow")]
    Say(SayArgs),
    /// Print a run's log as it is, or what workers wrote to their output
    #[command(after_help = "Example: sentinel logs 5f0c1e9e --follow")]
    Logs(LogsArgs),
    /// Show what runs, how it is confined, and what is missing
    #[command(after_help = "Example: sentinel status")]
    Status,
    /// Check what this machine can enforce, and say what to do about the rest
    ///
    /// Works without a control plane. Ends with code 7 when a finding is critical.
    #[command(after_help = "Example: sentinel doctor")]
    Doctor,
    /// Models by name
    #[command(subcommand)]
    Model(ModelCommand),
    /// Agents by name
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Print a completion script for a shell
    #[command(after_help = "Example: sentinel completion bash > /etc/bash_completion.d/sentinel")]
    Completion(CompletionArgs),

    #[command(flatten)]
    Role(Role),
}

/// What this binary is when another of its processes starts it. Nobody types these.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    #[command(hide = true)]
    Serve,
    #[command(hide = true)]
    Worker { run_id: String },
    #[command(hide = true)]
    Muzzle {
        #[arg(long)]
        admin_fd: i32,
    },
    #[command(hide = true)]
    Rehearsal(RehearsalArgs),
    #[command(name = "tool-role", hide = true)]
    Tool { role: String },
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Print what workers and Muzzle write to their output, instead of keeping it in a log
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Beside another one, for demonstrations and tests: uids of this slice as
    /// root, and any free ports.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) slice: Option<u32>,
    /// The same with the first slice that is free.
    #[arg(long, hide = true, conflicts_with = "slice")]
    pub(crate) any_slice: bool,
    /// End when the process that started this one does.
    #[arg(long, hide = true)]
    pub(crate) end_with_parent: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Play this script instead of the built-in one
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Keep the state and say where it is
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to do; `-` reads it from standard input
    pub(crate) task: String,
    /// Agent to give it to [default: the head agent]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Model to use [default: the agent's own]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Title in listings [default: from the task]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Print the run's id and do not wait for it
    #[arg(long, short)]
    pub(crate) detach: bool,
    /// Ceiling of model calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) steps: Option<u32>,
    /// Ceiling of working minutes; waiting for you does not count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) minutes: Option<u32>,
    /// Id of the new run; with one that exists, attach to that run
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    pub(crate) id: Option<RunId>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Runs to list
    #[arg(long, short = 'n', value_name = "N", default_value_t = crate::limits::RUNS_SHOWN)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Run: its id, or the beginning of it
    pub(crate) run: RunId,
    /// Go on with what happens next, and ask when it needs you
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    /// Only this run's: its id, or the beginning of it
    pub(crate) run: Option<RunId>,
    /// Print whole cards
    #[arg(long, short)]
    pub(crate) cards: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// Run, by its id or the beginning of it, and the number of its request
    /// where it has several; more than one run may follow
    #[arg(value_name = "RUN [REQUEST]", required_unless_present = "all")]
    pub(crate) targets: Vec<String>,
    /// Everything that waits, or everything of the runs that are named
    #[arg(long)]
    pub(crate) all: bool,
    /// Why; the agent is told
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Run: its id, or the beginning of it
    pub(crate) run: RunId,
    /// The answer; `-` reads it from standard input
    pub(crate) text: String,
    /// Number of the request, where the run asks several things
    #[arg(long, value_name = "N")]
    pub(crate) request: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// Run: its id, or the beginning of it
    pub(crate) run: RunId,
    /// Watch it work
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunOnly {
    /// Run: its id, or the beginning of it
    pub(crate) run: RunId,
}

#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    /// Run: its id, or the beginning of it
    pub(crate) run: RunId,
    /// What to tell it; `-` reads it from standard input
    pub(crate) text: String,
}

#[derive(Debug, Args)]
pub(crate) struct SayArgs {
    /// Run: its id, or the beginning of it
    pub(crate) run: RunId,
    /// What to say; `-` reads it from standard input
    pub(crate) text: String,
    /// Watch it work
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Run: its id, or the beginning of it
    #[arg(required_unless_present = "workers")]
    pub(crate) run: Option<RunId>,
    /// Print what workers of all runs wrote to their output
    #[arg(long, conflicts_with = "run")]
    pub(crate) workers: bool,
    /// Go on with what is added
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct RehearsalArgs {
    /// End when the process that started this one does.
    #[arg(long)]
    pub(crate) end_with_parent: bool,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) rest: Vec<OsString>,
}

fn parse_uuid(text: &str) -> Result<RunId, String> {
    let uuid = uuid::Uuid::parse_str(text).map_err(|error| error.to_string())?;
    RunId::new(&uuid.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "args_tests.rs"]
pub(crate) mod tests;
