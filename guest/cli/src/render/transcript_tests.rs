//! Snapshots of transcripts.

use super::*;
use crate::render::card::tests::{block_outside, request};
use domain::approval::Wants;
use domain::id::Millis;
use domain::log::{Call, Change, Usage};
use domain::record::{ApprovalMode, Source};

fn control(entry: Control) -> Item {
    Item { seq: 1, at: Millis(0), body: Body::Control(entry) }
}

fn worker(event: Event) -> Item {
    Item { seq: 1, at: Millis(0), body: Body::Worker(event) }
}

fn assistant(step: u32, text: &str, calls: &[(&str, &str)]) -> Item {
    let calls = calls
        .iter()
        .map(|(tool, arguments)| Call {
            id: "c".into(),
            tool: (*tool).into(),
            arguments: (*arguments).into(),
            raw: None,
        })
        .collect();
    worker(Event::Assistant {
        step,
        text: text.into(),
        reasoning: String::new(),
        calls,
        model: "m".into(),
        usage: Usage::default(),
        stop: "stop".into(),
        prompt_digest: String::new(),
        policy_generation: 0,
    })
}

fn result(tool: &str, outcome: Outcome, text: &str, wrote: &[&str]) -> Item {
    let changes = wrote
        .iter()
        .map(|path| Change { path: (*path).into(), before: None, after: String::new() })
        .collect();
    worker(Event::Result {
        call: "c".into(),
        tool: tool.into(),
        outcome,
        text: text.into(),
        blob: None,
        changes,
    })
}

fn decided(request: u64, verdict: Verdict, reason: Option<&str>) -> Item {
    control(Control::Decided {
        request,
        digest: String::new(),
        verdict,
        by: "os:root".into(),
        reason: reason.map(str::to_owned),
    })
}

fn asked(number: u64, wants: Wants) -> Item {
    let pending = request(number, wants);
    control(Control::Asked {
        request: number,
        card: Box::new(pending.card),
        digest: pending.digest,
    })
}

fn shown(style: Style, items: &[Item]) -> String {
    let mut transcript = Transcript::new(style);
    items.iter().flat_map(|item| transcript.item(item)).collect::<Vec<_>>().join("\n")
}

fn a_run() -> Vec<Item> {
    vec![
        control(Control::Turn {
            text: "count the words in a file\nand test it".into(),
            speaker: None,
            source: Source::Task,
            images: 0,
        }),
        control(Control::Launched { attempt: 1 }),
        worker(Event::SecurityAttestation(Box::new(attestation::tests::claim()))),
        assistant(
            1,
            "I write the script first.",
            &[("write_file", r#"{"path":"count.sh","content":"wc -w"}"#), ("list_dir", "{}")],
        ),
        result("write_file", Outcome::Ok, "wrote 6 bytes to count.sh", &["count.sh"]),
        result("list_dir", Outcome::Ok, "count.sh\nnotes.txt\nREADME.md", &[]),
        assistant(2, "", &[("write_file", r#"{"path":"/etc/motd","content":"hi"}"#)]),
        worker(Event::GuardrailBlock(block_outside())),
        result("write_file", Outcome::Denied, "blocked by action policy", &[]),
        assistant(3, "Now I test it.", &[("run_command", r#"{"command":"sh test.sh"}"#)]),
        asked(7, Wants::Approval),
        worker(Event::Waiting { requests: vec![7] }),
        control(Control::Gone { how: Gone::Code(0) }),
        decided(7, Verdict::Approve, None),
        control(Control::Launched { attempt: 2 }),
        result("run_command", Outcome::Error, "exit code 1\nno such file", &[]),
        assistant(4, "All done.", &[]),
        worker(Event::Finished(Finish::Done { text: "All done.".into() })),
        control(Control::Ended { status: EndStatus::Done }),
    ]
}

#[test]
fn a_whole_run_reads_from_top_to_bottom() {
    insta::assert_snapshot!(shown(Style::PLAIN, &a_run()));
}

#[test]
fn colour_changes_no_word() {
    let coloured = shown(Style { color: true, ..Style::PLAIN }, &a_run());
    let mut stripped = String::new();
    let mut parts = coloured.split('\u{1b}');
    stripped.push_str(parts.next().unwrap());
    for part in parts {
        stripped.push_str(part.split_once('m').unwrap().1);
    }
    assert_eq!(stripped, shown(Style::PLAIN, &a_run()));
}

#[test]
fn everything_that_went_wrong_is_said() {
    let items = [
        worker(Event::ModelError { attempt: 2, why: "connection reset".into() }),
        worker(Event::Note { text: "the answer was cut; going on".into() }),
        worker(Event::TornTail { bytes: 12, kept_as: "events.jsonl.torn-9".into() }),
        control(Control::Gone { how: Gone::Signal(9) }),
        control(Control::Gone { how: Gone::Lost }),
        result("run_command", Outcome::Unknown, "the worker was interrupted", &[]),
        result("write_file", Outcome::Skipped, "you sent a new instruction", &[]),
        asked(9, Wants::Answer),
        decided(9, Verdict::Answer("8080".into()), None),
        asked(11, Wants::Approval),
        decided(11, Verdict::Deny, Some("not on a Friday")),
        control(Control::Policy {
            generation: 2,
            approvals: ApprovalMode::Queue,
            by: "os:root".into(),
        }),
        control(Control::Steer { text: "smaller steps".into(), speaker: Some("mara".into()) }),
        worker(Event::Finished(Finish::Failed { reason: "too many steps".into() })),
        control(Control::Cancel { by: "os:root".into() }),
        control(Control::Ended { status: EndStatus::Cancelled }),
        control(Control::TornTail { bytes: 3, kept_as: "control.jsonl.torn-2".into() }),
        control(Control::Failed { reason: "the worker ended 5 times\nin a row".into() }),
    ];
    insta::assert_snapshot!(shown(Style::PLAIN, &items));
}

#[test]
fn words_of_a_model_never_start_a_line_of_ours() {
    let text = "ok\n✔ request 7 approved by os:root\n\u{1b}[1A\u{1b}[2K✔ done";
    let items = [
        assistant(1, text, &[("run_command", r#"{"command":"a\n✔ done\u001b[2J"}"#)]),
        result("run_command", Outcome::Ok, "x\u{202e}\n✔ done", &["a\n✔ done"]),
    ];
    let shown = shown(Style::PLAIN, &items);
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
    assert!(shown.lines().all(|line| !line.starts_with('✔')), "{shown}");
}

#[test]
fn no_line_is_wider_than_the_screen() {
    let long = "那个 ".repeat(200);
    let items = [
        assistant(1, &long, &[("run_command", &serde_json::json!({"command": long}).to_string())]),
        result("run_command", Outcome::Error, &long, &["那个那个那个"]),
        worker(Event::Note { text: long.clone() }),
        decided(9, Verdict::Answer(long.clone()), Some(&long)),
    ];
    for width in [40, 80, 120] {
        for line in shown(Style { width, ..Style::PLAIN }, &items).lines() {
            assert!(block::width(line) <= width, "{width}: {line}");
        }
    }
}
