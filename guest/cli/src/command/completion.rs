//! `sentinel completion`: a script for a shell, on standard output.

use clap::CommandFactory as _;

use crate::args::{Cli, CompletionArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;

pub(crate) fn run(mut out: Output, args: &CompletionArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sentinel", &mut script);
    out.raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "sentinel", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["approvals", "completion", "doctor"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
