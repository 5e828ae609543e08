//! The hidden roles: what this binary is when the launcher, a tool host or the
//! demo starts it. Each belongs to another package; here is only who is called,
//! with the descriptors the launcher passes.

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use broker::client::{CHANNEL_FD, CONTROL_LISTENER_FD};

use crate::args::{RehearsalArgs, Role};
use crate::interrupt;

/// Runs a role to its end. Nothing has been started or opened before.
pub(crate) fn run(role: Role) -> ExitCode {
    match role {
        Role::Serve => ended("serve", serve()),
        Role::Worker { run_id } => worker::run_role(&run_id),
        Role::Tool { role } => worker::run_tool_role(&role),
        Role::Muzzle { admin_fd } => ended("muzzle", muzzle(admin_fd)),
        Role::Rehearsal(args) => ended("rehearsal", rehearse(args)),
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let channel = broker::take_inherited_fd(CHANNEL_FD)?;
    let listener = broker::take_inherited_fd(CONTROL_LISTENER_FD)?;
    muzzle::log_to_stderr();
    Ok(supervisor::run_role(channel, listener)?)
}

fn muzzle(admin_fd: i32) -> Result<(), Box<dyn Error>> {
    Ok(muzzle::run_role(broker::take_inherited_fd(admin_fd)?)?)
}

fn rehearse(args: RehearsalArgs) -> Result<(), Box<dyn Error>> {
    interrupt::begin_as_child(args.end_with_parent)?;
    Ok(rehearsal::run_role(&rehearsal::RoleArguments::parse(args.rest)?)?)
}

/// Says on standard error, which the launcher keeps, why a role ended.
fn ended(name: &str, result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = writeln!(std::io::stderr(), "sentinel {name}: {}", chain(&*error));
            // There is no other place to say it.
            line.ok();
            ExitCode::FAILURE
        }
    }
}

/// An error with all that caused it.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
