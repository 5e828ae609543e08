//! As root: hostile and broken surroundings, each with what a person is told.

use std::process::Command;

use api::control::{Request, Response, Submit};
use domain::log::{Event, Outcome, Verdict};
use domain::run::Status;
use suites::{Instance, events, processes, put, scenario, until};

fn start(turns: &[String]) -> Instance {
    let turns: Vec<&str> = turns.iter().map(String::as_str).collect();
    Instance::start(&scenario::of_turns(&turns))
}

fn with_fault(fault: &str) -> Instance {
    let turn = format!("say: a whole answer of several words\nfaults: [{fault}]");
    start(&[turn])
}

/// The text of the last assistant turn.
fn answer(view: &api::control::RunView) -> String {
    let text = |event: &&Event| {
        if let Event::Assistant { text, .. } = event { Some(text.clone()) } else { None }
    };
    events(view).iter().rev().find_map(text).unwrap_or_default()
}

fn model_errors(view: &api::control::RunView) -> usize {
    events(view).into_iter().filter(|e| matches!(e, Event::ModelError { .. })).count()
}

#[test]
fn a_provider_that_misbehaves_once_is_asked_again_and_no_half_answer_counts() {
    for fault in [
        "{ times: 1, before_headers: reset }",
        "{ times: 1, before_headers: close }",
        "{ times: 1, close_after_bytes: 40 }",
        "{ times: 1, reset_after_bytes: 40 }",
        "{ times: 1, truncate_after_events: 2 }",
        "{ times: 1, status: 503 }",
        "{ times: 1, inject: 'data: {not json}', inject_after_events: 1 }",
    ] {
        let instance = with_fault(fault);
        let run = instance.submit("go");
        let view = instance.wait_for(&run, Status::Done);
        assert_eq!(answer(&view), "a whole answer of several words", "{fault}");
        assert_eq!(model_errors(&view), 1, "{fault}");
    }
}

#[test]
fn a_provider_that_stays_broken_fails_the_run_with_a_remedy_and_it_can_be_resumed() {
    let instance = with_fault("{ times: 5, truncate_after_events: 1 }");
    let run = instance.submit("go");
    let view = instance.wait_for(&run, Status::Failed);
    let why = view.failure.clone().unwrap();
    assert!(why.contains("5 attempts") && why.contains("sentinel resume"), "{why}");
    assert_eq!(model_errors(&view), 5);
    instance.ask(&Request::Resume { run: run.clone() });
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(answer(&view), "a whole answer of several words");
}

#[test]
fn a_refused_request_is_not_repeated() {
    let instance = with_fault("{ status: 400 }");
    let run = instance.submit("go");
    let view = instance.wait_for(&run, Status::Failed);
    assert_eq!(model_errors(&view), 1);
    assert!(view.failure.unwrap().contains("400"));
}

#[test]
fn multi_byte_text_cut_anywhere_arrives_exactly() {
    for size in [1, 2, 3, 5, 7] {
        let turn = format!("say: 那个🌍 done\nstream: {{ chunk_bytes: {size} }}");
        let instance = start(&[turn]);
        let run = instance.submit("go");
        let view = instance.wait_for(&run, Status::Done);
        assert_eq!(answer(&view), "那个🌍 done", "chunks of {size}");
    }
}

#[test]
fn a_tool_that_floods_double_forks_and_ignores_term_is_ended_and_said_to_be() {
    let flood = scenario::command("yes | head -c 1073741824");
    let daemon =
        scenario::command("trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 301\" &) ; echo left");
    let instance = start(&[flood, daemon, scenario::answer("done")]);
    let run = instance.submit_with(Instance::automatic("go"));
    let view = instance.wait_for(&run, Status::Done);
    let results: Vec<(Outcome, String)> = events(&view)
        .into_iter()
        .filter_map(|e| {
            if let Event::Result { outcome, text, .. } = e {
                Some((*outcome, text.clone()))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(results[0].0, Outcome::Error);
    assert!(results[0].1.contains("1048576 bytes of output"), "{}", &results[0].1[..200]);
    assert_eq!(results[1].0, Outcome::Ok);
    assert!(results[1].1.contains("background process"), "{}", results[1].1);
    let left =
        processes::all().into_iter().filter(|p| p.arguments.join(" ") == "sleep 301").count();
    assert_eq!(left, 0);
}

#[test]
fn an_environment_secret_reaches_no_tool() {
    let commands = [
        "env",
        "cat /proc/$PPID/environ; true",
        "tr '\\0' '\\n' < /proc/1/environ; true",
        "cat /proc/self/environ | tr '\\0' '\\n'",
    ];
    let mut turns: Vec<String> = commands.iter().map(|c| scenario::command(c)).collect();
    turns.push(scenario::answer("done"));
    let turns: Vec<&str> = turns.iter().map(String::as_str).collect();
    let instance =
        Instance::start_with(&scenario::of_turns(&turns), &[("DEMO_API_KEY", "zzz-demo")]);
    let run = instance.submit_with(Instance::automatic("go"));
    let view = instance.wait_for(&run, Status::Done);
    let text = serde_json::to_string(&view).unwrap();
    assert!(!text.contains("zzz-demo"), "{text}");
    assert!(
        text.contains("PATH=/usr/local/bin"),
        "the positive control: its own variables are there"
    );
}

#[test]
fn a_write_outside_the_workspace_is_blocked_by_name_and_an_ordinary_failure_is_not_a_block() {
    let outside = scenario::call(
        "write_file",
        &serde_json::json!({"path": "/etc/sentinel-was-here", "content": "x"}),
    );
    let missing = scenario::call("read_file", &serde_json::json!({"path": "nothing.txt"}));
    let instance = start(&[outside, missing, scenario::answer("done")]);
    let run = instance.submit("go");
    let view = instance.wait_for(&run, Status::Done);
    let blocks: Vec<_> = events(&view)
        .into_iter()
        .filter_map(
            |e| if let Event::GuardrailBlock(denial) = e { Some(denial.clone()) } else { None },
        )
        .collect();
    assert_eq!(blocks.len(), 1);
    assert_eq!(
        (blocks[0].rule.as_str(), blocks[0].object.as_str()),
        ("outside.write", "/etc/sentinel-was-here")
    );
    assert!(!blocks[0].alternatives.is_empty());
    assert!(!std::path::Path::new("/etc/sentinel-was-here").exists());
}

#[test]
fn production_records_a_failed_run_that_names_every_missing_control() {
    let instance = start(&[scenario::answer("done")]);
    put(instance.state().join("sentinel.yaml"), "profile: production\n");
    let run = instance.submit("go");
    let view = instance.wait_for(&run, Status::Failed);
    let why = view.failure.unwrap();
    assert!(why.starts_with("security_preflight_failed"), "{why}");
    for name in ["muzzle:", "leash:"] {
        assert!(why.contains(name), "{why}");
    }
    assert!(!why.contains("landlock"), "the kernel has it: {why}");
    assert!(instance.provider().requests().is_empty(), "nothing was sent to a model");
}

#[test]
fn a_bad_config_key_refuses_new_runs_with_its_line_and_changes_nothing() {
    let instance = start(&[scenario::answer("done")]);
    put(instance.state().join("sentinel.yaml"), "profile: development\nfs_sandbx: true\n");
    let submit = Request::Submit(Submit { task: "go".into(), ..Submit::default() });
    let error = instance.try_ask(&submit).unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("fs_sandbx"), "{error}");
    let Response::Runs(rows) = instance.ask(&Request::Runs { limit: 10 }) else { panic!() };
    assert!(rows.is_empty());
}

#[test]
fn a_second_worker_on_one_run_is_refused() {
    let instance = start(&[
        scenario::command("echo x >> begun.txt; while [ ! -e go ]; do sleep 0.05; done"),
        scenario::answer("done"),
    ]);
    let run = instance.submit_with(Instance::automatic("go"));
    until("the tool runs", || instance.workspace().join("begun.txt").exists().then_some(()));
    let output = Command::new(suites::program())
        .args(["worker", run.as_str()])
        .env_clear()
        .env("SENTINEL_RUN", instance.run_dir(&run))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("another worker holds this run"), "{text}");
    put(instance.workspace().join("go"), "");
    instance.wait_for(&run, Status::Done);
}

#[test]
fn a_planted_worker_log_fails_the_run_as_unreadable_and_hangs_nobody() {
    for plant in [
        "ln -sf ../../../../models.json events.jsonl",
        "mkfifo events.jsonl",
        "ln ../run.json events.jsonl",
    ] {
        let instance = start(&[scenario::command("touch x"), scenario::answer("done")]);
        let run = instance.submit("go");
        let card = until("the card", || instance.approvals().pop());
        let worker = instance.run_dir(&run).join("worker");
        let done = Command::new("sh")
            .args(["-c", &format!("rm events.jsonl && {plant}")])
            .current_dir(&worker)
            .status()
            .unwrap();
        assert!(done.success(), "{plant}");
        instance.decide(&card, Verdict::Approve, None).unwrap();
        let rows = until("the run failed", || {
            let Response::Runs(rows) = instance.ask(&Request::Runs { limit: 5 }) else {
                return None;
            };
            Some(rows).filter(|rows| rows[0].status == Status::Failed)
        });
        assert_eq!(rows[0].id, run, "{plant}");
    }
}

#[test]
fn a_full_disk_refuses_new_work_in_words_and_a_waiting_run_goes_on_once_there_is_room() {
    let mut instance = Instance::bare(&[]);
    let state = instance.state();
    std::fs::create_dir(&state).unwrap();
    let mount = |arguments: &[&str]| {
        Command::new("mount").args(arguments).arg(&state).status().unwrap().success()
    };
    assert!(mount(&["-t", "tmpfs", "-o", "size=400m,mode=711", "tmpfs"]));
    let _unmount = Unmount(state.clone());
    instance.launch();
    instance.play(&scenario::of_turns(&[&scenario::command("echo x >> effect.txt"), "say: done"]));
    let run = instance.submit("go");
    let card = until("the card", || instance.approvals().pop());
    let filler = state.join("filler");
    let filled = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "count=8000"])
        .arg(format!("of={}", filler.display()))
        .output();
    assert!(!filled.unwrap().status.success(), "dd ended by itself: the disk is not full");
    let submit = Request::Submit(Submit { task: "more".into(), ..Submit::default() });
    let error = instance.try_ask(&submit).unwrap_err().to_string();
    assert!(error.contains("no room") || error.contains("free some space"), "{error}");
    // The decision is recorded whole or refused; the act waits for room.
    let decided = instance.decide(&card, Verdict::Approve, None);
    std::fs::remove_file(&filler).unwrap();
    if decided.is_err() {
        instance.decide(&card, Verdict::Approve, None).unwrap();
    }
    instance.wait_for(&run, Status::Done);
    let effect = std::fs::read_to_string(instance.workspace().join("effect.txt")).unwrap();
    assert_eq!(effect.lines().count(), 1);
    instance.stop();
}

/// Unmounts when the test ends, however it ends.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _done = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
