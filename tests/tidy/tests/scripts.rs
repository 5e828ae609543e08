//! What `tests/setup` asks for and what `tests/run` counts, against a cargo that only pretends.

use std::io;
use std::process::Output;
use tidy::scripts::Stage;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn last_line(output: &Output) -> String {
    said(output).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn setup_without_rust_prints_the_line_that_installs_it() {
    let output = Stage::new(&["setup"]).unwrap().run("tests/setup", &["build"], None).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("https://sh.rustup.rs | sh\n"), "{}", said(&output));
}

#[test]
fn setup_with_old_rust_prints_the_line_that_updates_it() {
    for (version, refused) in
        [("1.94.1", true), ("1.9.0", true), ("0.99.0", true), ("1.95.0", false), ("1.100.0", false)]
    {
        let stage = Stage::new(&["setup"]).unwrap();
        stage.pretend("bin/cargo", &format!("echo 'cargo {version} (abc 2026-01-01)'")).unwrap();
        for program in ["apt-get", "cc", "git", "make", "mold"] {
            stage.pretend(&format!("bin/{program}"), "").unwrap();
        }
        let output = stage.run("tests/setup", &["build"], None).unwrap();
        assert_eq!(
            said(&output).contains("rustup update stable"),
            refused,
            "{version}: {}",
            said(&output)
        );
        assert_eq!(output.status.success(), !refused, "{version}: {}", said(&output));
    }
}

/// A stage where lint passes and cargo answers each suite as told: shell commands for build, nextest and doc tests.
fn suites(build: &str, nextest: &str, doc: &str) -> io::Result<Stage> {
    let stage = Stage::new(&["run"])?;
    stage.pretend("tests/lint", "")?;
    let cargo = format!(
        "junit() {{ mkdir -p \"$stage/target/nextest/default\"\n\
         echo \"<testsuites name=\\\"x\\\" tests=\\\"$1\\\" failures=\\\"$2\\\" errors=\\\"$3\\\" time=\\\"1\\\">\" >\"$stage/target/nextest/default/junit.xml\"; }}\n\
         case $1 in build) {build} ;; nextest) {nextest} ;; test) {doc} ;; esac"
    );
    stage.pretend("bin/cargo", &cargo)?;
    Ok(stage)
}

fn run(stage: &Stage) -> io::Result<Output> {
    stage.run("tests/run", &["lint", "build", "tests", "doc"], None)
}

const GOOD_DOC: &str = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; echo 'test result: ok. 1 passed; 0 failed'";

#[test]
fn the_closing_line_sums_every_suite() {
    let output = run(&suites("true", "junit 10 0 0", GOOD_DOC).unwrap()).unwrap();
    assert_eq!(last_line(&output), "14 passed, 0 failed", "{}", said(&output));
    assert!(output.status.success());
}

#[test]
fn failed_tests_are_counted_and_end_with_a_bad_status() {
    let output = run(&suites("true", "junit 10 2 1; exit 100", GOOD_DOC).unwrap()).unwrap();
    assert_eq!(last_line(&output), "11 passed, 3 failed", "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_failed_documentation_test_is_shown_and_counted() {
    let doc = "echo 'test result: FAILED. 2 passed; 1 failed'; exit 101";
    let output = run(&suites("true", "junit 1 0 0", doc).unwrap()).unwrap();
    assert_eq!(last_line(&output), "4 passed, 1 failed", "{}", said(&output));
    assert!(said(&output).contains("test result: FAILED"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_runner_that_dies_without_a_report_is_a_failure_also_beside_an_old_report() {
    let stage = suites("true", "exit 104", GOOD_DOC).unwrap();
    std::fs::create_dir_all(stage.path("target/nextest/default")).unwrap();
    stage
        .pretend(
            "target/nextest/default/junit.xml",
            "<testsuites name=\"x\" tests=\"9\" failures=\"0\" errors=\"0\">",
        )
        .unwrap();
    let output = run(&stage).unwrap();
    assert_eq!(last_line(&output), "4 passed, 1 failed", "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn after_a_failed_build_nothing_else_runs_and_the_run_has_failed() {
    let output = run(&suites("exit 101", "junit 10 0 0", GOOD_DOC).unwrap()).unwrap();
    assert_eq!(last_line(&output), "1 passed, 1 failed", "{}", said(&output));
    assert!(said(&output).contains("not run, because build failed"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_name_that_is_no_suite_is_refused() {
    let output = suites("true", "true", "true").unwrap().run("tests/run", &["tset"], None).unwrap();
    assert!(said(&output).contains("no suite is named tset"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}
