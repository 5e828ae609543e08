//! What a scenario file may say, and what each mistake in one is called.

use super::*;

const GOOD: &str = "version: 1
name: good
conversations:
  - model: m
    turns:
      - say: hello
";

fn error(text: &str) -> String {
    Scenario::parse(text).map_or_else(|error| error.to_string(), |_| String::new())
}

/// The good scenario with more lines in its one turn.
fn turn(lines: &str) -> String {
    format!(
        "{GOOD}{}",
        lines.lines().map(|line| format!("        {line}\n")).collect::<Vec<_>>().concat()
    )
}

#[test]
fn reads_a_small_scenario() {
    let scenario = Scenario::parse(GOOD).unwrap();
    assert_eq!((scenario.name(), scenario.models().collect::<Vec<_>>()), ("good", vec!["m"]));
    assert_eq!(scenario.task("m"), None);
}

#[test]
fn says_where_and_why_for_each_mistake() {
    let mistakes = [
        ("an unknown field", turn("sya: x")),
        ("a missing field", GOOD.replace("name: good\n", "")),
        ("a wrong type", turn("step: one")),
        ("not YAML", turn("calls: [")),
        ("another version", GOOD.replace("version: 1", "version: 2")),
        ("no conversation", "version: 1\nname: x\nconversations: []\n".to_owned()),
        ("no turn", "version: 1\nname: x\nconversations: [{ model: m }]\n".to_owned()),
        ("a turn that says nothing", GOOD.replace("say: hello", "step: 0")),
        (
            "two conversations of one model",
            format!("{GOOD}  - model: m\n    turns: [{{ say: x }}]\n"),
        ),
        ("an unknown placeholder", GOOD.replace("hello", "'{{nobody}}'")),
        (
            "an unknown placeholder in an argument",
            turn("calls: [{ name: t, arguments: { a: { b: ['{{user'] } } }]"),
        ),
        ("two kinds of arguments", turn("calls: [{ name: t, arguments: {}, arguments_text: x }]")),
        ("two ways to cut", turn("stream: { chunk_bytes: 1, chunk_at: [1] }")),
        ("cuts in no order", turn("stream: { chunk_at: [2, 1] }")),
        ("an empty cut", turn("stream: { delta_chars: 0 }")),
        ("a delay of hours", turn("stream: { headers_after_ms: 36000000 }")),
        ("a fault without a kind", turn("faults: [{ times: 1 }]")),
        ("two faults in one", turn("faults: [{ status: 500, content_length: 3 }]")),
        ("a body without a status", turn("faults: [{ body: x, content_length: 3 }]")),
        ("a status that is none", turn("faults: [{ status: 99 }]")),
        ("a header that is none", turn("faults: [{ status: 500, headers: { 'a b': c } }]")),
        ("an unknown break", turn("faults: [{ before_headers: explode }]")),
        (
            "a place without what to put there",
            turn("faults: [{ inject_after_events: 1, stall_after_events: 1 }]"),
        ),
        ("a step for otherwise", format!("{GOOD}    otherwise: {{ step: 1, say: x }}\n")),
        ("a step beyond the ceiling", turn("step: 100000")),
    ];
    let said: Vec<String> =
        mistakes.iter().map(|(what, text)| format!("{what}:\n    {}", error(text))).collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn steps_count_on_from_the_last_one_unless_said_otherwise() {
    let text = format!(
        "{GOOD}      - say: b\n      - {{ step: 1, say: c }}\n      - say: d\n      - {{ step: 9, say: e }}\n      - say: f\n"
    );
    let scenario = Scenario::parse(&text).unwrap();
    let steps: Vec<usize> = scenario.conversations[0].turns.iter().map(|turn| turn.step).collect();
    assert_eq!(steps, [0, 1, 1, 2, 9, 10]);
}

#[test]
fn a_turn_with_calls_stops_for_tools_unless_said_otherwise() {
    let stop = |text: &str| Scenario::parse(text).unwrap().conversations[0].turns[0].stop.clone();
    assert_eq!(stop(GOOD), StopReason::EndTurn);
    assert_eq!(stop(&turn("calls: [{ name: t }]")), StopReason::ToolUse);
    assert_eq!(stop(&turn("stop: max_tokens")), StopReason::MaxTokens);
    assert_eq!(stop(&turn("stop: tired")), StopReason::Other("tired".to_owned()));
}

#[test]
fn the_built_in_scenarios_read() {
    for (name, _) in crate::EMBEDDED {
        assert_eq!(crate::embedded(name).unwrap().unwrap().name(), name);
    }
    assert!(crate::embedded("other").is_none());
}
