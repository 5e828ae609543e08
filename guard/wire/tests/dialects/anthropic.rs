//! Anthropic messages, both directions.

use serde_json::json;
use wire::{
    Dialect, ImageSource, Message, Part, Request, Role, StopReason, StreamEvent, StreamParser,
    ToolChoice, WireError, parse_request, parse_response, render_request_value,
    render_response_value,
};

use crate::check;

const ANTHROPIC: Dialect = Dialect::AnthropicMessages;

#[test]
fn a_request_with_everything_comes_back_equal() {
    let request = check::request(
        ANTHROPIC,
        &json!({
            "model": "claude-sonnet-4-5", "max_tokens": 1024, "stream": true, "temperature": 0.7, "top_k": 5,
            "stop_sequences": ["END", "STOP"], "metadata": {"user_id": "u"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "hi", "odd": 1},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "ZW5j"},
                    {"type": "text", "text": "let me look", "citations": null},
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a", "n": 1.50}},
                    {"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}, "cache_control": {"type": "ephemeral"}},
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true, "content": [
                        {"type": "text", "text": "two"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                    ]},
                    {"type": "tool_result", "tool_use_id": "toolu_3", "is_error": false},
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                    {"type": "image", "source": {"type": "file", "file_id": "f"}},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                    {"type": "text", "text": "and?"},
                ]},
                {"role": "assistant", "content": []},
            ],
            "tools": [
                {"name": "read", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
                {"type": "custom", "name": "list", "input_schema": {"type": "object"}},
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
            ],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        }),
    );
    let roles: Vec<_> = request.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::User, Role::Assistant]);
    assert_eq!(request.tool_choice, Some(ToolChoice::Required));
    assert_eq!(request.parallel_tool_calls, Some(false));
    let results: Vec<_> = request.messages[3]
        .parts
        .iter()
        .filter(|part| matches!(part, Part::ToolResult(_)))
        .collect();
    assert_eq!(results.len(), 3);
}

#[test]
fn a_known_field_of_an_unexpected_shape_is_kept() {
    check::request(
        ANTHROPIC,
        &json!({
            "model": "m", "messages": [{"role": "user"}, {"role": "system", "content": "inline"}], "system": [],
            "max_tokens": "many", "tools": [], "stop_sequences": [], "tool_choice": {"type": "auto", "new": 1},
            "stream": false, "temperature": null,
        }),
    );
}

#[test]
fn faults_name_the_place() {
    let fault = |body: &str| parse_request(ANTHROPIC, body.as_bytes()).unwrap_err().to_string();
    assert_eq!(fault(r#"{"messages":[]}"#), "read Anthropic: model: missing or not a string");
    assert_eq!(
        fault(r#"{"model":"m","messages":[1]}"#),
        "read Anthropic: messages[0]: expected an object, found a number"
    );
    assert_eq!(
        fault(r#"{"model":"m","messages":[{"role":"user"},{"content":""}]}"#),
        "read Anthropic: messages[1].role: missing or not a string"
    );
}

#[test]
fn an_answer_with_everything_comes_back_equal() {
    let response = check::response(
        ANTHROPIC,
        &json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "hi", "citations": [{"type": "char_location", "cited_text": "x"}]},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"z": 1, "a": [2]}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            ],
            "stop_reason": "tool_use", "stop_sequence": null, "container": {"id": "c"},
            "usage": {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3,
                "server_tool_use": {"web_search_requests": 1}, "service_tier": "standard"},
        }),
    );
    assert_eq!(response.tool_calls().next().unwrap().arguments, r#"{"z":1,"a":[2]}"#);
    assert_eq!(response.stop(), Some(&StopReason::ToolUse));
    let usage = response.usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.cached), (22, 3, Some(7)));
}

#[test]
fn an_error_body_is_the_providers_error() {
    let body = br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#;
    let error = parse_response(ANTHROPIC, body).unwrap_err();
    assert_eq!(
        error.to_string(),
        "get an answer from the Anthropic provider: overloaded_error: Overloaded"
    );
}

fn stream() -> String {
    let start = json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude", "stop_reason": null,
        "stop_sequence": null, "usage": {"input_tokens": 25, "cache_read_input_tokens": 5, "output_tokens": 1}}});
    let block = |index: u8, block| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u8, delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u8| json!({"type": "content_block_stop", "index": index});
    check::named_sse(&[
        start,
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        stop(0),
        block(1, json!({"type": "redacted_thinking", "data": "ZW5j"})),
        stop(1),
        block(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "那个"})),
        delta(2, json!({"type": "citations_delta", "citation": {"cited_text": "x"}})),
        delta(2, json!({"type": "text_delta", "text": "🌍"})),
        stop(2),
        block(
            3,
            json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}, "caller": {"type": "direct"}}),
        ),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"p\": "})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "1}"})),
        stop(3),
        block(4, json!({"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}})),
        stop(4),
        block(
            5,
            json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]}),
        ),
        stop(5),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 15}}),
        json!({"type": "message_stop"}),
    ])
}

#[test]
fn a_stream_cut_at_every_byte_gives_the_same_answer() {
    let (_, response) = check::stream(ANTHROPIC, &stream());
    assert_eq!(response.text(), "那个🌍");
    let calls: Vec<_> = response.tool_calls().map(|call| (&*call.id, &*call.arguments)).collect();
    assert_eq!(calls, [("toolu_1", "{\"p\": 1}"), ("toolu_2", "")]);
    let usage = response.usage.clone().unwrap();
    assert_eq!((usage.input, usage.output), (30, 15));
    // What was streamed goes back as history like what was sent whole.
    let content = render_response_value(ANTHROPIC, &response)["content"].clone();
    assert_eq!(
        content,
        json!([
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZW5j"},
            {"type": "text", "text": "那个🌍", "citations": [{"cited_text": "x"}]},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"p": 1}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]},
        ])
    );
}

#[test]
fn an_error_event_ends_the_stream_without_an_answer() {
    let mut parser = StreamParser::new(ANTHROPIC);
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let events = parser.push(check::named_sse(&[error]).as_bytes()).unwrap();
    assert!(matches!(&events[..], [StreamEvent::Error(error)] if error.kind == "overloaded_error"));
    assert!(matches!(parser.finish(), Err(WireError::Provider { .. })));
}

#[test]
fn parallel_calls_and_results_from_another_dialect_become_one_turn_each() {
    let request = Request {
        model: "m".into(),
        messages: vec![
            Message::text(Role::System, "one"),
            Message::text(Role::User, "go"),
            Message::new(Role::Assistant, vec![Part::tool_call("a", "f", "{}")]),
            Message::new(Role::Assistant, vec![Part::tool_call("b", "g", "not json")]),
            Message::tool_result("a", "f", "1"),
            Message::tool_result("b", "g", "2"),
            Message::text(Role::User, "and?"),
            Message::text(Role::System, "two"),
        ],
        ..Request::default()
    };
    assert_eq!(
        render_request_value(ANTHROPIC, &request),
        json!({
            "model": "m", "max_tokens": 4096,
            "system": "one",
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "g", "input": {"unparsed_arguments": "not json"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                    {"type": "text", "text": "and?"},
                ]},
                {"role": "system", "content": "two"},
            ],
        })
    );
}

#[test]
fn an_openai_conversation_with_images_goes_out_as_anthropic() {
    let body = json!({"model": "m", "max_completion_tokens": 9, "seed": 1, "stop": "X", "messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}]},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"k\":1}"}}]},
    ]});
    let request = parse_request(Dialect::OpenAiChat, body.to_string().as_bytes()).unwrap();
    assert!(
        matches!(&request.messages[0].parts[0], Part::Image(image) if matches!(image.source, ImageSource::Base64 { .. }))
    );
    assert_eq!(
        render_request_value(ANTHROPIC, &request),
        json!({
            "model": "m", "max_tokens": 9, "stop_sequences": ["X"], "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"k": 1}}]},
            ],
        })
    );
}

#[test]
fn interleaved_calls_of_an_openai_stream_become_blocks_one_after_another() {
    let call = |index: u8, id: &str, name: &str, arguments: &str| {
        let call =
            json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
        format!(
            "data: {}\n\n",
            json!({"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
        )
    };
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let body = [
        call(0, "a", "f", "{\"p\""),
        call(1, "b", "g", "{"),
        call(0, "a", "", ":1}"),
        call(1, "b", "", "}"),
        end.into(),
    ];
    let (events, response) = check::read_all(Dialect::OpenAiChat, body.concat().as_bytes());
    let (_, again) = check::read_all(ANTHROPIC, &check::written(ANTHROPIC, &events));
    let calls = |response: &wire::Response| {
        response
            .tool_calls()
            .map(|call| (call.id.clone(), call.arguments.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(calls(&again), calls(&response));
    assert_eq!(calls(&again), [("a".into(), "{\"p\":1}".into()), ("b".into(), "{}".into())]);
    assert_eq!(again.stop(), response.stop());
}

#[test]
fn a_delta_nobody_knows_is_an_event_and_stays_out_of_a_rewritten_stream() {
    let body = stream().replace("input_json_delta", "quantum_delta");
    let (events, response) = check::read_all(ANTHROPIC, body.as_bytes());
    assert_eq!(events.iter().filter(|event| matches!(event, StreamEvent::Unknown(_))).count(), 3);
    let (again, same) = check::read_all(ANTHROPIC, &check::written(ANTHROPIC, &events));
    assert!(!again.iter().any(|event| matches!(event, StreamEvent::Unknown(_))));
    assert_eq!(same, response);
}
