//! `tests/setup` and `tests/run` as root and in the hands of an ordinary user, against programs that only pretend.

use std::io;
use std::process::Output;
use tidy::scripts::Stage;

const NOBODY: u32 = 65_534;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A stage that has everything `make run` needs but git, and an apt-get that installs it and keeps a record.
fn without_git() -> io::Result<Stage> {
    let stage = Stage::new(&["setup"])?;
    stage.pretend("bin/cargo", "echo 'cargo 1.95.0 (abc 2026-01-01)'")?;
    for program in ["cc", "make"] {
        stage.pretend(&format!("bin/{program}"), "")?;
    }
    let apt = "echo \"$*\" >>\"$stage/installed\"\nfor name in \"$@\"; do case $name in git|mold) cp=\"$stage/bin/$name\"; echo '#!/bin/sh' >\"$cp\"; /bin/chmod +x \"$cp\";; esac; done";
    stage.pretend("bin/apt-get", apt)?;
    Ok(stage)
}

#[test]
fn an_ordinary_user_is_given_the_exact_line_and_nothing_is_installed() {
    let stage = without_git().unwrap();
    let output = stage.run("tests/setup", &["build"], Some(NOBODY)).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).ends_with("\n    sudo apt-get install git\n"), "{}", said(&output));
    assert!(!stage.path("installed").exists());

    stage.pretend("bin/git", "").unwrap();
    let output = stage.run("tests/setup", &["build"], Some(NOBODY)).unwrap();
    assert!(output.status.success(), "with git there it is satisfied: {}", said(&output));
}

#[test]
fn root_gets_what_is_missing_installed_and_the_linker_with_it() {
    let stage = without_git().unwrap();
    let output = stage.run("tests/setup", &["build"], None).unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let record = std::fs::read_to_string(stage.path("installed")).unwrap();
    assert!(record.lines().next().is_some_and(|line| line.ends_with("update")), "{record}");
    assert!(
        record
            .lines()
            .last()
            .is_some_and(|line| line.ends_with("--no-install-recommends git mold")),
        "{record}"
    );
}

#[test]
fn suites_that_need_root_are_not_selected_for_an_ordinary_user_and_one_line_says_so() {
    let stage = Stage::new(&["run"]).unwrap();
    stage.pretend("tests/lint", "").unwrap();
    stage.pretend("bin/cargo", "[[ $* != *'--profile root'* ]]").unwrap();
    let output = stage.run("tests/run", &[], Some(NOBODY)).unwrap();
    let about_root: Vec<String> = said(&output)
        .lines()
        .filter(|line| line.contains("needs root"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        about_root,
        ["suite root: needs root, not selected for an ordinary user"],
        "{}",
        said(&output)
    );
}
