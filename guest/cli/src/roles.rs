//! The hidden roles: what this binary is when the launcher, a tool host or the
//! demo starts it. Each belongs to another package; here is only who is called.

use std::process::ExitCode;

use crate::args::Role;
use crate::exit::{Exit, Failure};
use crate::output;

/// Runs a role.
pub(crate) fn run(role: &Role) -> ExitCode {
    let name = match role {
        Role::Serve => "serve",
        Role::Worker { .. } => "worker",
        Role::Muzzle { .. } => "muzzle",
        Role::Rehearsal(_) => "rehearsal",
        Role::Tool { .. } => "tool-role",
        Role::Kept => "kept",
    };
    let failure = not_in_this_build(name);
    output::report(&failure, false);
    ExitCode::from(failure.exit.code())
}

/// A command or role whose package is not linked in.
pub(crate) fn not_in_this_build(name: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("`sentinel {name}` is not in this build"),
        "use a build that has it",
    )
}
