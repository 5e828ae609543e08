//! What a turn is as an answer of a provider, whole and streamed.

use proptest::prelude::*;
use wire::{Message, Role, StreamParser};

use super::*;
use crate::choose::{choose, values};
use crate::scenario::Scenario;

/// Those that know tool calls; the fifth is tested apart.
const DIALECTS: [Dialect; 4] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::AnthropicMessages,
    Dialect::OllamaChat,
];

fn scenario(turn: &str) -> Scenario {
    let turn: String =
        turn.lines().map(|line| format!("        {line}\n")).collect::<Vec<_>>().concat();
    Scenario::parse(&format!(
        "version: 1\nname: t\nconversations:\n  - model: m\n    turns:\n      -\n{turn}"
    ))
    .unwrap()
}

fn request(stream: bool) -> Request {
    Request {
        model: "m".to_owned(),
        stream,
        messages: vec![Message::text(Role::User, "do it")],
        ..Request::default()
    }
}

fn plan(dialect: Dialect, turn: &str, stream: bool) -> Answer {
    let (scenario, request) = (scenario(turn), request(stream));
    let chosen = choose(&scenario, &request).unwrap();
    let fault = chosen.turn.faults.first().map(|limited| &limited.fault);
    plan_answer(dialect, &request, &chosen, &values(&request, Some("/ws")), fault)
}

fn bytes(answer: &Answer) -> Vec<u8> {
    chunks(answer).concat()
}

fn chunks(answer: &Answer) -> Vec<Vec<u8>> {
    let chunk =
        |step: &Step| if let Step::Bytes(bytes) = step { Some(bytes.clone()) } else { None };
    answer.body.iter().filter_map(chunk).collect()
}

fn heard(dialect: Dialect, turn: &str, stream: bool) -> Response {
    let answer = plan(dialect, turn, stream);
    assert_eq!((answer.status, &answer.before), (200, &Vec::new()));
    if !stream {
        return wire::parse_response(dialect, &bytes(&answer)).unwrap();
    }
    let mut parser = StreamParser::new(dialect);
    for chunk in chunks(&answer) {
        parser.push(&chunk).unwrap();
    }
    parser.finish().unwrap()
}

const RICH: &str = "think: Let me see.
say: 'I {{user}} in {{workspace}} 那个🌍'
calls:
  - { name: write_file, arguments: { path: '{{workspace}}/a', content: \"x\\n\", nested: [{ n: 1.5, t: true, z: null }] } }
  - { name: run_command, arguments: { command: ls }, id: own-id }
usage: { input: 10, output: 7 }";

#[test]
fn a_client_hears_what_the_turn_says_in_every_dialect_streamed_or_not() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            for cut in [
                "",
                "\nstream: { delta_chars: 1 }",
                "\nstream: { delta_chars: 3, chunk_bytes: 5 }",
                "\nstream: { chunk_at: [0, 1, 40, 999999] }",
            ] {
                let response = heard(dialect, &format!("{RICH}{cut}"), stream);
                let what = format!("{dialect} {stream} {cut}");
                assert_eq!(response.text(), "I do it in /ws 那个🌍", "{what}");
                let calls: Vec<_> = response
                    .tool_calls()
                    .map(|call| {
                        (call.id.as_str(), call.name.as_str(), call.arguments_value().unwrap())
                    })
                    .collect();
                let nested = serde_json::json!({"path": "/ws/a", "content": "x\n", "nested": [{"n": 1.5, "t": true, "z": null}]});
                let expected = [
                    ("call_0_0", "write_file", nested),
                    ("own-id", "run_command", serde_json::json!({"command": "ls"})),
                ];
                assert_eq!(calls, expected, "{what}");
                // Ollama has no word for it.
                let ollama = dialect == Dialect::OllamaChat;
                let stop =
                    if ollama { wire::StopReason::EndTurn } else { wire::StopReason::ToolUse };
                assert_eq!(response.stop(), Some(&stop), "{what}");
                let usage = response.usage.clone().unwrap();
                assert_eq!((usage.input, usage.output), (10, 7), "{what}");
                let thought = response.parts().find_map(|part| {
                    if let Part::Reasoning(reasoning) = part {
                        Some(reasoning.text.as_str())
                    } else {
                        None
                    }
                });
                assert_eq!(thought, Some("Let me see."), "{what}");
            }
        }
    }
}

#[test]
fn a_completion_without_a_conversation_has_only_words() {
    for stream in [false, true] {
        let response = heard(Dialect::OllamaGenerate, "say: 'It is {{user}}.'", stream);
        assert_eq!(response.text(), "It is do it.");
    }
}

#[test]
fn arguments_may_be_no_json_and_text_no_utf_8() {
    let answer = plan(
        Dialect::OpenAiChat,
        "say: 'a{{bytes:FF}}b'\ncalls: [{ name: t, arguments_text: '{\"path\": ' }]",
        true,
    );
    let bytes = bytes(&answer);
    assert!(bytes.windows(3).any(|window| window == b"a\xffb"));
    assert!(String::from_utf8_lossy(&bytes).contains(r#""arguments":"{\"path\": ""#));
}

#[test]
fn the_same_turn_is_the_same_bytes_every_time() {
    for stream in [false, true] {
        assert_eq!(
            plan(Dialect::OpenAiChat, RICH, stream),
            plan(Dialect::OpenAiChat, RICH, stream)
        );
    }
}

#[test]
fn pauses_stand_before_the_head_and_between_chunks() {
    let answer = plan(
        Dialect::OpenAiChat,
        "say: abc\nstream: { delta_chars: 1, headers_after_ms: 5, event_every_ms: 7 }",
        true,
    );
    assert_eq!(answer.before, [Step::Wait(Duration::from_millis(5))]);
    let waits: Vec<bool> =
        answer.body.iter().map(|step| *step == Step::Wait(Duration::from_millis(7))).collect();
    assert!(
        waits.len() > 10 && waits.iter().enumerate().all(|(index, wait)| *wait == (index % 2 == 1)),
        "{waits:?}"
    );
}

#[test]
fn faults_change_the_plan_as_they_say() {
    let with = |fault: &str| {
        plan(Dialect::OpenAiChat, &format!("say: hello\nfaults: [{{ {fault} }}]"), true)
    };
    let whole = plan(Dialect::OpenAiChat, "say: hello", true);
    let all = bytes(&whole);

    let answer = with("status: 429, headers: { retry-after: '1' }");
    assert_eq!(answer.status, 429);
    assert!(
        answer.headers.contains(&("retry-after".to_owned(), "1".to_owned())),
        "{:?}",
        answer.headers
    );
    assert!(String::from_utf8(bytes(&answer)).unwrap().contains("rate_limit_error"));
    assert_eq!(bytes(&with("status: 200, body: '{not json'")), b"{not json");

    for (word, step) in [("close", Step::Close), ("reset", Step::Reset), ("stall", Step::Stall)] {
        assert_eq!(with(&format!("before_headers: {word}")).before, [step]);
    }
    for count in [0, 1, 50, all.len() - 1] {
        for (name, step) in [("close", Step::Close), ("reset", Step::Reset)] {
            let answer = with(&format!("{name}_after_bytes: {count}"));
            assert_eq!((bytes(&answer), answer.body.last()), (all[..count].to_vec(), Some(&step)));
        }
    }
    let answer = with("truncate_after_events: 2");
    assert_eq!(chunks(&answer), chunks(&whole)[..2]);
    let answer = with("stall_after_events: 2");
    assert_eq!(
        (chunks(&answer), answer.body.last()),
        (chunks(&whole)[..2].to_vec(), Some(&Step::Stall))
    );
    let answer = with("content_length: 3");
    assert!(answer.headers.contains(&("content-length".to_owned(), "3".to_owned())));
    let answer = with("inject: \"data: {\\n\\n\", inject_after_events: 1");
    assert_eq!(chunks(&answer)[1], b"data: {\n\n");
    assert_eq!(chunks(&answer).len(), chunks(&whole).len() + 1);
}

proptest! {
    #[test]
    fn cutting_never_changes_a_byte(places in prop::collection::vec(0_usize..400, 0..10), size in 1_usize..50) {
        let whole = bytes(&plan(Dialect::OpenAiChat, RICH, true));
        let mut places = places;
        places.sort_unstable();
        let at = plan(Dialect::OpenAiChat, &format!("{RICH}\nstream: {{ chunk_at: {places:?} }}"), true);
        prop_assert_eq!(bytes(&at), whole.clone());
        let sized = plan(Dialect::OpenAiChat, &format!("{RICH}\nstream: {{ chunk_bytes: {size} }}"), true);
        prop_assert!(chunks(&sized).iter().rev().skip(1).all(|chunk| chunk.len() == size));
        prop_assert_eq!(bytes(&sized), whole);
    }
}
