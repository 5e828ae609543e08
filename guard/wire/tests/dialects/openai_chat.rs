//! OpenAI chat completions, both directions.

use serde_json::json;
use wire::{
    Dialect, Part, PartAt, Role, StopReason, StreamEvent, StreamParser, ToolChoice, WireError,
    parse_request, parse_response,
};

use crate::check;

const CHAT: Dialect = Dialect::OpenAiChat;

#[test]
fn a_request_with_everything_comes_back_equal() {
    let request = check::request(
        CHAT,
        &json!({
            "model": "gpt-4.1", "stream": false, "temperature": 1, "top_p": 0.1, "max_completion_tokens": 50,
            "stop": "END", "seed": 3, "stream_options": {"include_usage": true}, "parallel_tool_calls": true,
            "messages": [
                {"role": "developer", "content": "be brief", "name": "boss"},
                {"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
                {"role": "user", "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}, "x": 1},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                ]},
                {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{\"a\": 1}", "q": 1}, "extra_content": {"g": 1}},
                    {"id": "c2", "function": {"name": "list"}},
                    {"id": "c3", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
                    {"id": "c4", "type": "mystery"},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}], "z": true},
                {"role": "assistant", "content": "", "refusal": "no", "function_call": {"name": "old", "arguments": "{}"}},
                {"role": "function", "name": "old", "content": "r"},
                {"role": "assistant", "content": [], "tool_calls": []},
            ],
            "tools": [
                {"type": "function", "function": {"name": "read", "description": "d", "parameters": {"type": "object"}, "strict": true}, "k": 1},
                {"type": "function", "function": {"name": "bare"}},
                {"type": "custom", "custom": {"name": "sh"}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "read"}},
            "metadata": {"a": null},
        }),
    );
    assert_eq!(request.messages.len(), 9);
    assert_eq!(request.messages[0].role, Role::System);
    assert_eq!(request.tool_choice, Some(ToolChoice::Named("read".into())));
    assert_eq!(request.max_tokens, Some(50));
    let calls: Vec<_> = request.messages[3].parts.iter().filter_map(Part::as_tool_call).collect();
    assert_eq!(calls.len(), 3);
    assert!(calls[2].free_form);
}

#[test]
fn a_known_field_of_an_unexpected_shape_is_kept() {
    let request = check::request(
        CHAT,
        &json!({
            "model": "m", "temperature": "hot", "tools": [], "tool_choice": {"type": "allowed_tools"}, "stop": [],
            "stream": null, "max_tokens": -1, "messages": [{"role": "user", "content": 5}],
        }),
    );
    assert_eq!(request.temperature, None);
    assert!(request.messages[0].parts.is_empty());
}

#[test]
fn faults_name_the_place() {
    let fault = |body: &str| parse_request(CHAT, body.as_bytes()).unwrap_err().to_string();
    assert_eq!(fault("{}"), "read OpenAI chat: model: missing or not a string");
    assert_eq!(
        fault(r#"{"model":"m","messages":[{"role":"user"},{"role":"queen"}]}"#),
        r#"read OpenAI chat: messages[1].role: unknown role "queen""#
    );
    assert_eq!(
        fault(r#"{"model":"m","messages":[{"role":"user","content":"a","content":"b"}]}"#),
        "read OpenAI chat JSON: duplicate key messages[0].content at line 1 column 63"
    );
    assert!(
        fault(r#"{"model":"m","temperature":NaN}"#).contains("expected value at line 1 column 28")
    );
    assert!(fault("[1]").contains("body: expected an object, found an array"));
    let deep = format!("{{\"a\":{}", "[".repeat(4000));
    assert!(fault(&deep).contains("recursion limit"));
    let invalid = [b"{\"model\":\"" as &[u8], b"\xff\"}"].concat();
    assert!(matches!(parse_request(CHAT, &invalid), Err(WireError::NotJson { .. })));
}

#[test]
fn an_answer_with_everything_comes_back_equal() {
    let response = check::response(
        CHAT,
        &json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1_741_570_283, "model": "gpt-4.1",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "hi", "refusal": null, "annotations": [],
                    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                 "logprobs": null, "finish_reason": "tool_calls"},
                {"index": 1, "message": {"role": "assistant", "content": null, "refusal": "no"}, "finish_reason": "weird"},
            ],
            "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
                "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 2}},
            "service_tier": "default", "system_fingerprint": null,
        }),
    );
    assert_eq!(response.text(), "hi");
    assert_eq!(response.tool_calls().count(), 1);
    assert_eq!(response.stop(), Some(&StopReason::ToolUse));
    let usage = response.usage.unwrap();
    assert_eq!(
        (usage.input, usage.output, usage.cached, usage.reasoning),
        (19, 10, Some(4), Some(2))
    );
}

#[test]
fn an_error_body_is_the_providers_error() {
    let body = br#"{"error":{"message":"slow down","type":"rate_limit","code":null}}"#;
    let error = parse_response(CHAT, body).unwrap_err();
    assert_eq!(
        error.to_string(),
        "get an answer from the OpenAI chat provider: rate_limit: slow down"
    );
}

const STREAM: &str = concat!(
    ": keep-alive\n\n",
    "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\r\n\r\n",
    "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"那个🌍 \\uD83C\\uDF0D\"}}]}\n\n",
    "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n",
    "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{\"}}]}}]}\n\n",
    "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"p\\\":1}\"}},{\"index\":1,\"function\":{\"arguments\":\"}\"}}]}}]}\n\n",
    "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n",
    "data: [DONE]\n\n",
);

#[test]
fn a_stream_cut_at_every_byte_gives_the_same_answer() {
    let (_, response) = check::stream(CHAT, STREAM);
    assert_eq!(response.text(), "那个🌍 🌍");
    let calls: Vec<_> =
        response.tool_calls().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("a", "f", "{\"p\":1}"), ("b", "g", "{}")]);
}

#[test]
fn a_done_without_a_finish_reason_is_truncated() {
    let mut parser = StreamParser::new(CHAT);
    let body =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"}}]}\n\ndata: [DONE]\n\n";
    assert!(matches!(parser.push(body.as_bytes()), Err(WireError::Truncated { .. })));
    assert!(matches!(parser.finish(), Err(WireError::Truncated { .. })));
}

#[test]
fn an_error_event_ends_the_stream_without_an_answer() {
    let mut parser = StreamParser::new(CHAT);
    let events =
        parser.push(b"data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n").unwrap();
    assert!(matches!(&events[..], [StreamEvent::Error(error)] if error.message == "overloaded"));
    assert!(matches!(parser.finish(), Err(WireError::Provider { .. })));
}

#[test]
fn invalid_bytes_become_one_replacement_each_and_are_counted() {
    let mut parser = StreamParser::new(CHAT);
    let body = [
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a" as &[u8],
        b"\xE9\x82b\xFFc",
        b"\"}}]}\n\n",
    ]
    .concat();
    let events: Vec<_> = body.iter().flat_map(|byte| parser.push(&[*byte]).unwrap()).collect();
    assert!(events.iter().any(|event| matches!(event, StreamEvent::TextDelta { text, .. } if text == "a\u{FFFD}b\u{FFFD}c")));
    assert_eq!(parser.replaced(), 2);
}

#[test]
fn calls_without_an_index_or_all_at_index_zero_stay_apart() {
    for index in ["", "\"index\":0,"] {
        let call = |id: &str| {
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{{index}\"id\":\"{id}\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{}}\"}}}}]}}}}]}}\n\n"
            )
        };
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]";
        let mut parser = StreamParser::new(CHAT);
        parser.push([call("a"), call("b"), end.into()].concat().as_bytes()).unwrap();
        let response = parser.finish().unwrap();
        let calls: Vec<_> =
            response.tool_calls().map(|call| (&*call.id, &*call.arguments)).collect();
        assert_eq!(calls, [("a", "{}"), ("b", "{}")], "index {index:?}");
    }
}

#[test]
fn a_half_tool_call_is_never_ended() {
    let upto = STREAM.find("\"finish_reason\":\"tool_calls\"").unwrap();
    let mut parser = StreamParser::new(CHAT);
    let events = parser.push(&STREAM.as_bytes()[..upto]).unwrap();
    assert!(events.iter().any(|event| matches!(
        event,
        StreamEvent::ToolCallArguments { at: PartAt { part: 2, .. }, .. }
    )));
    assert!(!events.iter().any(|event| matches!(event, StreamEvent::ToolCallEnded { .. })));
}

#[test]
fn a_character_whose_halves_came_in_two_events_is_exact() {
    let chunk = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let mut parser = StreamParser::new(CHAT);
    let mut text = String::new();
    for body in [chunk("a\\uD83C"), chunk("\\uDF0Db"), chunk("\\uD83Cc")] {
        for event in parser.push(body.as_bytes()).unwrap() {
            if let StreamEvent::TextDelta { text: more, .. } = event {
                text.push_str(&more);
            }
        }
    }
    assert_eq!(text, "a🌍b\u{FFFD}c");
    assert_eq!(parser.replaced(), 1);
}

fn stream_of(deltas: &[serde_json::Value]) -> String {
    let chunk = |delta: &serde_json::Value| {
        format!("data: {}\n\n", json!({"id": "x", "choices": [{"index": 0, "delta": delta}]}))
    };
    let mut body: String = deltas.iter().map(chunk).collect::<Vec<_>>().concat();
    body.push_str("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n");
    body
}

#[test]
fn calls_of_custom_tools_and_the_old_function_call_are_calls() {
    let body = stream_of(&[
        json!({"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "l"}}]}),
        json!({"tool_calls": [{"index": 0, "custom": {"input": "s"}}]}),
        json!({"function_call": {"name": "f", "arguments": "{"}}),
        json!({"function_call": {"arguments": "}"}}),
    ]);
    let (events, response) = check::read_all(CHAT, body.as_bytes());
    let calls: Vec<_> =
        response.tool_calls().map(|call| (&*call.name, &*call.arguments, call.free_form)).collect();
    assert_eq!(calls, [("sh", "ls", true), ("f", "{}", false)]);
    assert_eq!(
        events.iter().filter(|event| matches!(event, StreamEvent::ToolCallEnded { .. })).count(),
        2
    );
    // As history the old call keeps its old field.
    let message = wire::render_response_value(CHAT, &response)["choices"][0]["message"].clone();
    assert_eq!(message["function_call"], json!({"name": "f", "arguments": "{}"}));
}

#[test]
fn a_call_that_changes_its_name_is_refused() {
    let named = |name: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": name, "arguments": "{}"}}]});
    let mut parser = StreamParser::new(CHAT);
    let error =
        parser.push(stream_of(&[named("read_file"), named("run_command")]).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("changes its name"), "{error}");
}

#[test]
fn a_fault_inside_a_stream_is_named_and_not_taken_for_its_end() {
    let mut parser = StreamParser::new(CHAT);
    assert!(matches!(parser.push(b"data: {nonsense}\n\n"), Err(WireError::NotJson { .. })));
    assert!(matches!(parser.push(b"data: {}\n\n"), Err(WireError::NotJson { .. })));
    assert!(matches!(parser.finish(), Err(WireError::NotJson { .. })));
}

#[test]
fn a_stream_that_assembles_to_more_than_a_message_is_refused() {
    let text = "x".repeat(1 << 20);
    let chunk = stream_of(&[json!({"content": text})]);
    let event = chunk.split_inclusive("\n\n").next().unwrap();
    let mut parser = StreamParser::new(CHAT);
    let refused = (0..17).find_map(|_| parser.push(event.as_bytes()).err()).unwrap();
    let expected =
        "read OpenAI chat: a streamed answer in bytes is larger than the limit of 16777216";
    assert_eq!(refused.to_string(), expected);
}
