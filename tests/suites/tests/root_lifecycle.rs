//! As root: what happens to a run when processes die, people decide, and
//! policies change under it.

use std::time::Duration;

use api::control::{Request, Submit};
use domain::log::{Control, Event, Outcome, Verdict};
use domain::record::{ApprovalMode, Budgets};
use domain::run::Status;
use rustix::process::Signal;
use suites::{Instance, events, processes, put, scenario, try_until, until};

fn start(turns: &[String]) -> Instance {
    let turns: Vec<&str> = turns.iter().map(String::as_str).collect();
    Instance::start(&scenario::of_turns(&turns))
}

fn lines_of(instance: &Instance, file: &str) -> usize {
    std::fs::read_to_string(instance.workspace().join(file)).unwrap_or_default().lines().count()
}

fn outcomes(view: &api::control::RunView) -> Vec<Outcome> {
    let outcome = |event: &&Event| {
        if let Event::Result { outcome, .. } = event { Some(*outcome) } else { None }
    };
    events(view).iter().filter_map(outcome).collect()
}

#[test]
fn a_worker_killed_while_a_tool_runs_is_recovered_and_the_outcome_is_said_to_be_unknown() {
    let instance = start(&[
        scenario::command("echo x >> begun.txt; sleep 60"),
        scenario::command("cat begun.txt && true; echo after >> after.txt"),
        scenario::answer("done"),
    ]);
    let run = instance.submit_with(Instance::automatic("go"));
    until("the tool runs", || (lines_of(&instance, "begun.txt") == 1).then_some(()));
    let worker = processes::worker(instance.launcher()).unwrap();
    let below = processes::below(worker.pid);
    assert!(below.len() >= 2, "{below:?}");
    processes::signal(worker.pid, Signal::KILL);
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(outcomes(&view), [Outcome::Unknown, Outcome::Ok]);
    assert_eq!(lines_of(&instance, "begun.txt"), 1, "the interrupted call was not run again");
    for process in below {
        let alive = processes::all()
            .into_iter()
            .any(|p| p.pid == process.pid && p.arguments == process.arguments);
        assert!(!alive, "{process:?} outlived its worker");
    }
}

#[test]
fn a_tool_host_killed_under_its_worker_ends_in_a_recovered_run() {
    let instance =
        start(&[scenario::command("echo x >> begun.txt; sleep 60"), scenario::answer("done")]);
    let run = instance.submit_with(Instance::automatic("go"));
    until("the tool runs", || (lines_of(&instance, "begun.txt") == 1).then_some(()));
    let worker = processes::worker(instance.launcher()).unwrap();
    let host = processes::tool_host(worker.pid).unwrap();
    processes::signal(host.pid, Signal::KILL);
    instance.wait_for(&run, Status::Done);
    assert_eq!(lines_of(&instance, "begun.txt"), 1);
}

#[test]
fn a_control_plane_killed_while_a_run_waits_still_knows_the_card_and_the_approval_happens_once() {
    let instance = start(&[
        scenario::command("echo x >> effect.txt"),
        scenario::answer("done"),
        scenario::answer("again"),
    ]);
    let run = instance.submit("go");
    let card = until("the card", || instance.approvals().pop());
    let control = processes::control_plane(instance.launcher()).unwrap();
    processes::signal(control.pid, Signal::KILL);
    let again = until("the card again", || instance.approvals().pop());
    assert_eq!(again.digest, card.digest);
    instance.decide(&again, Verdict::Approve, None).unwrap();
    instance.wait_for(&run, Status::Done);
    assert_eq!(lines_of(&instance, "effect.txt"), 1);
    // Unrelated messages, restarts and resumes apply nothing again.
    instance.ask(&Request::Say { run: run.clone(), text: "unrelated".into() });
    instance.wait_for(&run, Status::Done);
    let control = processes::control_plane(instance.launcher()).unwrap();
    processes::signal(control.pid, Signal::KILL);
    instance.ask(&Request::Resume { run: run.clone() });
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(lines_of(&instance, "effect.txt"), 1);
    let applied =
        events(&view).into_iter().filter(|e| matches!(e, Event::ApprovalApplied { .. })).count();
    assert_eq!(applied, 1);
    assert!(
        instance.decide(&again, Verdict::Approve, None).is_err(),
        "a decided card cannot be decided again"
    );
}

#[test]
fn a_denial_with_a_reason_reaches_the_model_and_nothing_runs() {
    let instance =
        start(&[scenario::command("echo x >> effect.txt"), scenario::answer("understood")]);
    let run = instance.submit("go");
    let card = until("the card", || instance.approvals().pop());
    instance.decide(&card, Verdict::Deny, Some("use the other file")).unwrap();
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(outcomes(&view), [Outcome::Denied]);
    assert_eq!(lines_of(&instance, "effect.txt"), 0);
    let last = instance.provider().requests().pop().unwrap();
    assert!(String::from_utf8_lossy(&last.body).contains("use the other file"));
}

#[test]
fn several_calls_of_one_turn_wait_together_and_run_in_order() {
    let batch = "calls:\n  - { name: run_command, arguments: { command: 'touch first.txt' } }\n  - { name: run_command, arguments: { command: 'ls -1 > listing.txt' } }";
    let instance = start(&[batch.to_owned(), scenario::answer("done")]);
    let run = instance.submit("go");
    let cards = until("both cards", || Some(instance.approvals()).filter(|cards| cards.len() == 2));
    instance.decide(&cards[1], Verdict::Approve, None).unwrap();
    assert_eq!(instance.status(&run), Status::WaitingApproval);
    instance.decide(&cards[0], Verdict::Approve, None).unwrap();
    instance.wait_for(&run, Status::Done);
    let text = std::fs::read_to_string(instance.workspace().join("listing.txt")).unwrap();
    assert!(text.contains("first.txt"), "{text}");
}

#[test]
fn a_file_that_changed_after_the_card_was_shown_asks_again_and_says_what_drifted() {
    let write = scenario::call(
        "write_file",
        &serde_json::json!({"path": "t.sh", "content": "echo good >> effect.txt\n"}),
    );
    let instance = start(&[write, scenario::command("sh t.sh"), scenario::answer("done")]);
    let run = instance.submit("go");
    let card = until("the card", || instance.approvals().pop());
    assert!(card.card.bound.iter().any(|part| part.what == "file t.sh"), "{:?}", card.card.bound);
    put(instance.workspace().join("t.sh"), "echo bad >> effect.txt\n");
    instance.decide(&card, Verdict::Approve, None).unwrap();
    let again = until("a second card", || {
        instance.approvals().into_iter().find(|c| c.request != card.request)
    });
    assert_eq!(again.card.drift, ["file t.sh changed"]);
    assert_eq!(lines_of(&instance, "effect.txt"), 0);
    instance.decide(&again, Verdict::Approve, None).unwrap();
    instance.wait_for(&run, Status::Done);
    assert_eq!(std::fs::read_to_string(instance.workspace().join("effect.txt")).unwrap(), "bad\n");
}

#[test]
fn a_question_waits_for_words() {
    let ask = scenario::call("ask_user", &serde_json::json!({"question": "which colour?"}));
    let instance = start(&[ask, scenario::answer("thanks")]);
    let run = instance.submit_with(Instance::automatic("go"));
    let card = until("the question", || instance.approvals().pop());
    assert_eq!(card.card.summary, "which colour?");
    assert!(instance.decide(&card, Verdict::Approve, None).is_err());
    instance.decide(&card, Verdict::Answer("blue".into()), None).unwrap();
    instance.wait_for(&run, Status::Done);
    let last = instance.provider().requests().pop().unwrap();
    assert!(String::from_utf8_lossy(&last.body).contains("blue"));
}

#[test]
fn a_cancelled_run_ends_with_everything_it_started() {
    let stubborn =
        "trap '' TERM; (trap '' TERM; setsid sleep 300) & echo x >> begun.txt; sleep 300";
    let instance = start(&[scenario::command(stubborn), scenario::answer("done")]);
    let run = instance.submit_with(Instance::automatic("go"));
    until("the tool runs", || (lines_of(&instance, "begun.txt") == 1).then_some(()));
    let worker = processes::worker(instance.launcher()).unwrap();
    let below: Vec<i32> = processes::below(worker.pid).iter().map(|p| p.pid).collect();
    instance.ask(&Request::Cancel { run: run.clone() });
    instance.wait_for(&run, Status::Cancelled);
    let alive =
        processes::all().into_iter().filter(|p| below.contains(&p.pid) && p.state != 'Z').count();
    assert_eq!(alive, 0);
    // It can be taken up again by a person only.
    instance.ask(&Request::Say { run: run.clone(), text: "go on".into() });
    instance.wait_for(&run, Status::Done);
}

#[test]
fn a_steer_reaches_the_model_and_calls_not_yet_begun_are_skipped() {
    let two = "calls:\n  - { name: run_command, arguments: { command: 'echo x >> begun.txt; while [ ! -e go ]; do sleep 0.05; done' } }\n  - { name: run_command, arguments: { command: 'echo x >> second.txt' } }";
    let instance = start(&[two.to_owned(), scenario::answer("changed course")]);
    let run = instance.submit_with(Instance::automatic("go"));
    until("the first call runs", || (lines_of(&instance, "begun.txt") == 1).then_some(()));
    instance.ask(&Request::Say { run: run.clone(), text: "stop after this one".into() });
    put(instance.workspace().join("go"), "");
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(outcomes(&view), [Outcome::Ok, Outcome::Skipped]);
    assert_eq!(lines_of(&instance, "second.txt"), 0);
    let last = instance.provider().requests().pop().unwrap();
    assert!(String::from_utf8_lossy(&last.body).contains("stop after this one"));
}

#[test]
fn a_tightening_takes_effect_on_the_next_tool_and_a_corrupt_record_means_queue() {
    let turns: Vec<String> = (0..10)
        .map(|n| {
            scenario::command(&format!(
                "echo {n} >> calls.txt; while [ ! -e go{n} ]; do sleep 0.02; done"
            ))
        })
        .chain([scenario::answer("done")])
        .collect();
    let instance = start(&turns);
    let run = instance.submit_with(Instance::automatic("go"));
    for n in 0..3 {
        until("a call runs", || (lines_of(&instance, "calls.txt") == n + 1).then_some(()));
        if n < 2 {
            put(instance.workspace().join(format!("go{n}")), "");
        }
    }
    instance.ask(&Request::SetApprovals { run: run.clone(), approvals: ApprovalMode::Queue });
    put(instance.workspace().join("go2"), "");
    instance.wait_for(&run, Status::WaitingApproval);
    assert_eq!(lines_of(&instance, "calls.txt"), 3, "the call in flight ended, the next one waits");
    // Loosened again, then damaged: the strictest holds.
    instance.ask(&Request::SetApprovals { run: run.clone(), approvals: ApprovalMode::Automatic });
    put(instance.run_dir(&run).join("control.json"), "{\"version\":1,");
    for name in ["go3", "go4"] {
        put(instance.workspace().join(name), "");
    }
    let first = until("the card", || instance.approvals().pop());
    instance.decide(&first, Verdict::Approve, None).unwrap();
    // The policy it was asked under is gone, so it asks again rather than run.
    let second = until("another card", || {
        instance.approvals().into_iter().find(|c| c.request != first.request)
    });
    instance.decide(&second, Verdict::Approve, None).unwrap();
    until("the approved call ran", || (lines_of(&instance, "calls.txt") == 4).then_some(()));
    instance.wait_for(&run, Status::WaitingApproval);
    assert_eq!(lines_of(&instance, "calls.txt"), 4);
}

#[test]
fn a_used_up_budget_ends_the_run_with_its_name() {
    let turns: Vec<String> =
        (0..6).map(|_| scenario::call("list_dir", &serde_json::json!({}))).collect();
    let instance = start(&turns);
    let budgets = Some(Budgets { steps: 3, ..Budgets::default() });
    let run = instance.submit_with(Submit { task: "go".into(), budgets, ..Submit::default() });
    let view = instance.wait_for(&run, Status::Failed);
    assert_eq!(view.failure.unwrap(), "budget: all 3 steps are used");
    let budgets = Some(Budgets { tool_calls: 2, ..Budgets::default() });
    let run = instance.submit_with(Submit { task: "go".into(), budgets, ..Submit::default() });
    let view = try_until(Duration::from_secs(20), || {
        Some(instance.view(&run)).filter(|v| v.status.is_over())
    })
    .unwrap();
    let denied = outcomes(&view).into_iter().filter(|o| *o == Outcome::Denied).count();
    assert!(denied >= 1, "{:#?}", view.items);
}

#[test]
fn submitting_the_same_id_again_attaches_to_the_run() {
    let instance = start(&[scenario::answer("done")]);
    let id = domain::id::RunId::new("same-id").unwrap();
    let submit = || Submit { task: "go".into(), id: Some(id.clone()), ..Submit::default() };
    instance.submit_with(submit());
    instance.wait_for(&id, Status::Done);
    let answer = instance.ask(&Request::Submit(submit()));
    assert_eq!(answer, api::control::Response::Submitted { run: id.clone(), existed: true });
    let turns = |view: &api::control::RunView| {
        view.items
            .iter()
            .filter(|i| matches!(&i.body, api::control::Body::Control(Control::Turn { .. })))
            .count()
    };
    assert_eq!(turns(&instance.view(&id)), 1);
}

#[test]
fn a_launcher_killed_outright_leaves_a_run_that_goes_on_with_the_next_one() {
    let mut instance =
        start(&[scenario::command("echo x >> begun.txt; sleep 60"), scenario::answer("done")]);
    let run = instance.submit_with(Instance::automatic("go"));
    until("the tool runs", || (lines_of(&instance, "begun.txt") == 1).then_some(()));
    let launcher = instance.launcher();
    let below: Vec<i32> = processes::below(launcher).iter().map(|p| p.pid).collect();
    processes::signal(launcher, Signal::KILL);
    until("everything is gone", || {
        let alive = processes::all().into_iter().any(|p| below.contains(&p.pid) && p.state != 'Z');
        (!alive).then_some(())
    });
    instance.launch();
    instance.wait_for(&run, Status::Done);
    assert_eq!(lines_of(&instance, "begun.txt"), 1);
}

#[test]
fn a_killed_muzzle_is_restarted_and_the_run_goes_on() {
    let instance = start(&[
        scenario::command("echo x >> begun.txt; while [ ! -e go ]; do sleep 0.05; done"),
        scenario::answer("done"),
    ]);
    let run = instance.submit_with(Instance::automatic("go"));
    until("the tool runs", || (lines_of(&instance, "begun.txt") == 1).then_some(()));
    let before = processes::muzzle(instance.launcher()).unwrap();
    processes::signal(before.pid, Signal::KILL);
    until("another Muzzle", || {
        processes::muzzle(instance.launcher()).filter(|now| now.pid != before.pid)
    });
    put(instance.workspace().join("go"), "");
    // Its port was any free one, so the run may first fail to reach it: a
    // person resumes it and it is launched with the new port.
    let view = try_until(Duration::from_secs(40), || {
        Some(instance.view(&run)).filter(|v| v.status.is_over())
    })
    .unwrap();
    if view.status == Status::Failed {
        instance.ask(&Request::Resume { run: run.clone() });
    }
    instance.wait_for(&run, Status::Done);
    assert_eq!(lines_of(&instance, "begun.txt"), 1);
}

#[test]
fn a_call_that_does_not_fit_its_schema_is_corrected_and_not_run() {
    let wrong = scenario::call("write_file", &serde_json::json!({"file": "a.txt", "content": "x"}));
    let broken =
        "calls: [{ name: run_command, arguments_text: '{\"command\": \"touch ran' }]".to_owned();
    let unknown = scenario::call("fly", &serde_json::json!({}));
    let instance = start(&[wrong, broken, unknown, scenario::answer("done")]);
    let run = instance.submit_with(Instance::automatic("go"));
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(outcomes(&view), [Outcome::Error, Outcome::Error, Outcome::Denied]);
    let text = serde_json::to_string(&view).unwrap();
    for says in ["unknown field", "not valid JSON", "there is no tool named"] {
        assert!(text.contains(says), "{says}");
    }
    assert!(
        !instance.workspace().join("a.txt").exists() && !instance.workspace().join("ran").exists()
    );
}

#[test]
fn search_and_glob_look_inside_the_workspace_only() {
    let write = scenario::call(
        "write_file",
        &serde_json::json!({"path": "src/a.rs", "content": "fn main() {}\n"}),
    );
    let search =
        scenario::call("search", &serde_json::json!({"pattern": "fn \\w+", "glob": "*.rs"}));
    let glob = scenario::call("glob", &serde_json::json!({"pattern": "src/**/*.rs"}));
    let outside = scenario::call("search", &serde_json::json!({"pattern": "root", "path": "/etc"}));
    let instance = start(&[write, search, glob, outside, scenario::answer("done")]);
    let run = instance.submit_with(Instance::automatic("go"));
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(outcomes(&view), [Outcome::Ok, Outcome::Ok, Outcome::Ok, Outcome::Error]);
    let text = serde_json::to_string(&view).unwrap();
    assert!(text.contains("src/a.rs:1:fn main() {}"), "{text}");
    assert!(!text.contains("root:x:0"));
}

#[test]
fn a_run_cancelled_while_it_waits_shows_its_card_again_when_it_is_resumed() {
    let instance = start(&[scenario::command("echo x >> effect.txt"), scenario::answer("done")]);
    let run = instance.submit("go");
    until("the card", || instance.approvals().pop());
    instance.ask(&Request::Cancel { run: run.clone() });
    instance.wait_for(&run, Status::Cancelled);
    assert!(instance.approvals().is_empty());
    instance.ask(&Request::Resume { run: run.clone() });
    instance.decide_next(&run, Verdict::Approve);
    instance.wait_for(&run, Status::Done);
    assert_eq!(lines_of(&instance, "effect.txt"), 1);
}
