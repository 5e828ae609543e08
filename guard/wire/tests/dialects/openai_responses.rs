//! OpenAI responses, both directions.

use serde_json::{Value, json};
use wire::{
    Dialect, Message, Part, Request, Role, StopReason, StreamEvent, StreamParser, ToolChoice,
    WireError, parse_request, parse_response, render_request_value, render_response_value,
};

use crate::check;

const RESPONSES: Dialect = Dialect::OpenAiResponses;

#[test]
fn a_request_with_everything_comes_back_equal() {
    let request = check::request(
        RESPONSES,
        &json!({
            "model": "gpt-5", "stream": true, "instructions": "be brief", "max_output_tokens": 50, "temperature": 1.0,
            "parallel_tool_calls": true, "store": false, "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}}, "metadata": {"a": "b"},
            "input": [
                {"role": "developer", "content": "rules"},
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"},
                    {"type": "input_image", "file_id": "file-1"},
                    {"type": "input_file", "file_id": "file-2"},
                ]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "ZW5j"},
                {"type": "reasoning", "id": "rs_2", "summary": []},
                {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]},
                {"type": "reasoning", "id": "rs_4", "summary": [], "content": [{"type": "reasoning_text", "text": "deep"}]},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                    {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "mystery", "x": 1},
                ]},
                {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{\"k\": 1}", "status": "completed"},
                {"type": "function_call", "call_id": "b", "name": "g", "arguments": ""},
                {"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": "ls"},
                {"type": "function_call_output", "call_id": "a", "output": "one"},
                {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}], "status": "completed"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": "three"},
                {"type": "item_reference", "id": "msg_0"},
                {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
                {"role": "assistant", "content": "plain"},
                {"role": "user", "content": []},
            ],
            "tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true},
                {"type": "custom", "name": "sh"},
                {"type": "web_search"},
            ],
            "tool_choice": {"type": "function", "name": "f"},
        }),
    );
    assert_eq!(request.messages.len(), 18);
    assert_eq!(request.tool_choice, Some(ToolChoice::Named("f".into())));
    assert!(
        matches!(&request.messages[5].parts[0], Part::Reasoning(reasoning) if reasoning.text == "a\n\nb")
    );
    assert!(
        matches!(&request.messages[6].parts[0], Part::Reasoning(reasoning) if reasoning.text == "deep")
    );
}

#[test]
fn changed_thinking_replaces_every_copy_of_it() {
    let body = json!({"model": "m", "input": [{"type": "reasoning", "id": "r", "content": [{"type": "reasoning_text", "text": "s2"}],
        "summary": [{"type": "summary_text", "text": "s0"}, {"type": "summary_text", "text": "s1"}]}]});
    let mut request = parse_request(RESPONSES, body.to_string().as_bytes()).unwrap();
    let Part::Reasoning(reasoning) = &mut request.messages[0].parts[0] else {
        panic!("not thinking")
    };
    assert_eq!(reasoning.text, "s0\n\ns1\n\ns2");
    reasoning.text = "gone".into();
    assert_eq!(
        render_request_value(RESPONSES, &request)["input"][0],
        json!({
        "type": "reasoning", "id": "r", "content": [], "summary": [{"type": "summary_text", "text": "gone"}]})
    );
}

#[test]
fn a_bare_string_and_odd_shapes_are_kept() {
    check::request(
        RESPONSES,
        &json!({"model": "m", "input": "hi", "instructions": null, "stream": false}),
    );
    check::request(
        RESPONSES,
        &json!({"model": "m", "input": [], "tools": [], "tool_choice": {"type": "web_search"}}),
    );
    check::request(RESPONSES, &json!({"prompt": {"id": "pmpt_1"}}));
    let odd = json!({"model": "m", "input": [7, {"role": "queen"}, {"type": "function_call", "name": "x"}, {"role": "user", "content": 4}]});
    check::request(RESPONSES, &odd);
    let fault = parse_request(RESPONSES, br#"{"model":"m","input":7}"#).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "read OpenAI responses: input: expected a string or an array, found a number"
    );
}

fn whole() -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 7, "status": "completed", "error": null,
        "incomplete_details": null, "model": "gpt-5", "parallel_tool_calls": true, "tools": [], "tool_choice": "auto",
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "ZW5j"},
            {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [
                {"type": "output_text", "text": "那个🌍", "annotations": [{"type": "url_citation", "url": "u"}], "logprobs": []}]},
            {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "a", "name": "f", "arguments": "{\"p\": 1}"},
            {"id": "fc_2", "type": "function_call", "status": "completed", "call_id": "b", "name": "g", "arguments": "{}"},
            {"id": "ws_1", "type": "web_search_call", "status": "completed"},
        ],
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 8,
            "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 17},
    })
}

#[test]
fn an_answer_with_everything_comes_back_equal() {
    let response = check::response(RESPONSES, &whole());
    assert_eq!(response.text(), "那个🌍");
    assert_eq!(response.tool_calls().count(), 2);
    assert_eq!(response.stop(), Some(&StopReason::ToolUse));
    assert_eq!(response.usage.unwrap().reasoning, Some(3));
    let mut cut = whole();
    cut["status"] = json!("incomplete");
    cut["incomplete_details"] = json!({"reason": "max_output_tokens"});
    assert_eq!(check::response(RESPONSES, &cut).stop(), Some(&StopReason::MaxTokens));
}

#[test]
fn a_failed_answer_is_the_providers_error() {
    let body = json!({"id": "r", "status": "failed", "error": {"code": "server_error", "message": "boom"}, "output": []});
    let error = parse_response(RESPONSES, body.to_string().as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "get an answer from the OpenAI responses provider: server_error: boom"
    );
}

fn events() -> Vec<Value> {
    let whole = whole();
    let item = |index: usize| whole["output"][index].clone();
    let mut begun = whole.clone();
    begun["status"] = json!("in_progress");
    begun["output"] = json!([]);
    begun["usage"] = json!(null);
    let added = |index: usize, item: Value| json!({"type": "response.output_item.added", "output_index": index, "item": item});
    let done = |index: usize| json!({"type": "response.output_item.done", "output_index": index, "item": item(index)});
    vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
        added(0, json!({"id": "rs_1", "type": "reasoning", "summary": []})),
        json!({"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "hm"}),
        json!({"type": "response.reasoning_summary_text.done", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "text": "hm"}),
        done(0),
        added(
            1,
            json!({"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}),
        ),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 1, "content_index": 0, "delta": "那个"}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 1, "content_index": 0, "delta": "🌍"}),
        json!({"type": "response.output_text.done", "item_id": "msg_1", "output_index": 1, "content_index": 0, "text": "那个🌍"}),
        json!({"type": "response.content_part.done", "item_id": "msg_1", "output_index": 1, "content_index": 0, "part": item(1)["content"][0]}),
        done(1),
        added(
            2,
            json!({"id": "fc_1", "type": "function_call", "status": "in_progress", "call_id": "a", "name": "f", "arguments": ""}),
        ),
        added(
            3,
            json!({"id": "fc_2", "type": "function_call", "status": "in_progress", "call_id": "b", "name": "g", "arguments": ""}),
        ),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 2, "delta": "{\"p\""}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_2", "output_index": 3, "delta": "{}"}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 2, "delta": ": 1}"}),
        json!({"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 2, "arguments": "{\"p\": 1}"}),
        done(2),
        json!({"type": "response.function_call_arguments.done", "item_id": "fc_2", "output_index": 3, "arguments": "{}"}),
        done(3),
        added(4, json!({"id": "ws_1", "type": "web_search_call", "status": "in_progress"})),
        done(4),
        json!({"type": "response.completed", "response": whole}),
    ]
}

#[test]
fn a_stream_cut_at_every_byte_gives_the_same_answer() {
    let (_, response) = check::stream(RESPONSES, &check::named_sse(&events()));
    // The streamed answer is the whole one, down to every unknown field.
    assert_eq!(render_response_value(RESPONSES, &response), whole());
}

#[test]
fn a_server_that_only_sends_the_last_event_is_read_whole() {
    let last = events().pop().unwrap();
    let (seen, response) = check::read_all(RESPONSES, check::named_sse(&[last]).as_bytes());
    assert_eq!(render_response_value(RESPONSES, &response), whole());
    let ended =
        seen.iter().filter(|event| matches!(event, StreamEvent::ToolCallEnded { .. })).count();
    assert_eq!(ended, 2);
    assert!(
        seen.iter()
            .any(|event| matches!(event, StreamEvent::TextDelta { text, .. } if text == "那个🌍"))
    );
}

#[test]
fn an_end_that_says_something_else_than_the_stream_is_refused() {
    let changes: [(&str, &str, Value); 5] = [
        ("response.output_text.done", "/text", json!("other")),
        ("response.function_call_arguments.done", "/arguments", json!("{\"p\": 2}")),
        ("response.output_item.done", "/item/arguments", json!("{\"p\": 2}")),
        ("response.completed", "/response/output/1/content/0/text", json!("other")),
        ("response.completed", "/response/output/2/name", json!("rm")),
    ];
    for (kind, pointer, value) in changes {
        let mut events = events();
        let matching = events
            .iter_mut()
            .find(|event| event["type"] == kind && event.pointer(pointer).is_some());
        *matching.unwrap().pointer_mut(pointer).unwrap() = value;
        let mut parser = StreamParser::new(RESPONSES);
        let outcome = parser.push(check::named_sse(&events).as_bytes());
        assert!(matches!(outcome, Err(WireError::Shape { .. })), "{kind}: {outcome:?}");
    }
}

#[test]
fn errors_in_a_stream_end_it_without_an_answer() {
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "boom"}}});
    let error = json!({"type": "error", "code": "server_error", "message": "boom", "param": null});
    for event in [failed, error] {
        let mut parser = StreamParser::new(RESPONSES);
        let events = parser.push(check::named_sse(&[event]).as_bytes()).unwrap();
        assert!(matches!(&events[..], [StreamEvent::Error(error)] if error.message == "boom"));
        assert!(matches!(parser.finish(), Err(WireError::Provider { .. })));
    }
}

#[test]
fn a_conversation_from_another_dialect_goes_out_as_items() {
    let request = Request {
        model: "m".into(),
        messages: vec![
            Message::text(Role::System, "one"),
            Message::text(Role::User, "go"),
            Message::new(
                Role::Assistant,
                vec![
                    Part::text("ok"),
                    Part::tool_call("a", "f", "{}"),
                    Part::tool_call("b", "g", ""),
                ],
            ),
            Message::tool_result("a", "f", "1"),
            Message::tool_result("b", "g", "2"),
        ],
        ..Request::default()
    };
    assert_eq!(
        render_request_value(RESPONSES, &request),
        json!({
            "model": "m", "instructions": "one", "input": [
                {"type": "message", "role": "user", "content": "go"},
                {"type": "message", "role": "assistant", "content": "ok"},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                {"type": "function_call_output", "call_id": "b", "output": "2"},
            ],
        })
    );
}
