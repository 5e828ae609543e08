//! The command line as it is typed and as it explains itself.

use super::*;
use clap::CommandFactory as _;

/// The command that `words`, without the program's name, mean.
pub(crate) fn command(words: &[&str]) -> Command {
    parse(words).unwrap().command
}

/// Options alone, with a command that has none of its own.
pub(crate) fn options(words: &[&str]) -> Options {
    let mut all = words.to_vec();
    all.push("status");
    parse(&all).unwrap().options
}

fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once(&"sentinel").chain(words))
}

/// What `--help` behind `words` prints.
fn help(words: &[&str]) -> String {
    let all = std::iter::once(&"sentinel").chain(words).chain(&["--help"]);
    let printed = Cli::command().term_width(100).try_get_matches_from(all).unwrap_err().to_string();
    let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

fn snapshot_each<'a>(command: &'a clap::Command, words: &mut Vec<&'a str>) {
    let name = words.iter().fold("help".to_owned(), |name, word| format!("{name}_{word}"));
    insta::assert_snapshot!(name, help(words));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        words.push(sub.get_name());
        snapshot_each(sub, words);
        words.pop();
    }
}

#[test]
fn every_command_explains_itself() {
    snapshot_each(&Cli::command(), &mut Vec::new());
}

#[test]
fn every_command_has_an_example_that_parses() {
    fn examples(command: &clap::Command, found: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            if sub.has_subcommands() {
                examples(sub, found);
                continue;
            }
            let text = sub.get_after_help().unwrap_or_else(|| panic!("{}", sub.get_name()));
            found.push(text.to_string());
        }
    }
    let mut found = Vec::new();
    examples(&Cli::command(), &mut found);
    assert!(found.len() >= 20);
    for example in found {
        let line = example.strip_prefix("Example: ").unwrap();
        let line = line.split(" > ").next().unwrap();
        let words = domain::words::plain_words(line.trim_start_matches("EDITOR=nano ")).unwrap();
        assert!(Cli::try_parse_from(&words).is_ok(), "{line}");
    }
}

#[test]
fn options_may_stand_before_and_after_the_command() {
    for words in [&["--json", "runs"][..], &["runs", "--json"]] {
        assert!(parse(words).unwrap().options.json);
    }
    assert_eq!(options(&["--color", "never"]).color, ColorWhen::Never);
}

#[test]
fn ids_that_are_paths_and_ids_that_are_no_uuids_are_refused() {
    for words in [
        &["show", "../x"][..],
        &["show", "a/b"],
        &["cancel", ""],
        &["run", "x", "--id", "short"],
        &["agent", "show", "../x"],
        &["agent", "create", "Naomi"],
    ] {
        let error = parse(words).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{words:?}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for words in [
        &["approve"][..],
        &["logs"],
        &["logs", "5f", "--workers"],
        &["run", "x", "--steps", "0"],
        &["model", "add", "x", "--provider", "magic"],
        &["runs", "--limit", "many"],
    ] {
        assert!(parse(words).is_err(), "{words:?}");
    }
    assert!(parse(&["approve", "--all"]).is_ok());
    assert!(parse(&["logs", "--workers", "-f"]).is_ok());
}

#[test]
fn a_role_takes_its_arguments_as_they_are() {
    let words = ["rehearsal", "--end-with-parent", "--scenario", "demo", "--port-file", "/p"];
    let Command::Role(Role::Rehearsal(args)) = command(&words) else { panic!() };
    assert!(args.end_with_parent);
    assert_eq!(args.rest, ["--scenario", "demo", "--port-file", "/p"]);
    assert!(matches!(
        command(&["muzzle", "--admin-fd", "3"]),
        Command::Role(Role::Muzzle { admin_fd: 3 })
    ));
    assert!(matches!(command(&["worker", "5f0c"]), Command::Role(Role::Worker { .. })));
}
