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
    /// List runs, latest first
    #[command(after_help = "Example: sentinel runs --limit 10")]
    Runs(RunsArgs),
    /// Show what a run did, what confined it, and what it waits for
    #[command(after_help = "Example: sentinel show 5f0c1e9e")]
    Show(ShowArgs),
    /// List what waits for a person, oldest first
    #[command(after_help = "Example: sentinel approvals --cards")]
    Approvals(ApprovalsArgs),
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
    #[command(hide = true)]
    Kept,
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

#[cfg(test)]
#[path = "args_tests.rs"]
pub(crate) mod tests;
