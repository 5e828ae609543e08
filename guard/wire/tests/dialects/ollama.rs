//! Ollama's two endpoints, both directions.

use serde_json::{Value, json};
use wire::{
    Dialect, Message, Part, Request, Role, StopReason, StreamEvent, StreamParser, WireError,
    parse_request, parse_response, render_request_value,
};

use crate::check;

const CHAT: Dialect = Dialect::OllamaChat;

#[test]
fn a_chat_request_with_everything_comes_back_equal() {
    let request = check::request(
        CHAT,
        &json!({
            "model": "qwen3", "stream": false, "format": "json", "keep_alive": "5m", "think": true,
            "options": {"temperature": 0.1, "top_p": 1, "num_predict": 42, "stop": ["END"], "num_ctx": 4096},
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "look", "images": ["iVBORw0KGgo=", "/9j/"], "odd": 1},
                {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
                    {"function": {"name": "f", "arguments": {"z": 1, "a": 2.50}, "index": 0}},
                    {"id": "c1", "function": {"name": "g", "arguments": {}}, "type": "function"},
                    {"function": {"name": "h", "arguments": "{\"text\":1}"}},
                    {"function": {"name": "i"}},
                    {"function": {}},
                ]},
                {"role": "tool", "content": "1", "tool_name": "f"},
                {"role": "tool", "content": "2", "tool_name": "g", "tool_call_id": "c1", "odd": 2},
                {"role": "user", "content": ""},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}, "odd": 3}],
        }),
    );
    assert!(!request.stream);
    assert_eq!(request.max_tokens, Some(42));
    let Part::Image(image) = &request.messages[1].parts[1] else { panic!("not an image") };
    assert_eq!(image.source.media_type(), "image/png");
    let calls: Vec<_> = request.messages[2].parts.iter().filter_map(Part::as_tool_call).collect();
    assert_eq!(calls[0].arguments, r#"{"z":1,"a":2.5}"#);
    assert_eq!(calls.len(), 4);
}

#[test]
fn a_chat_request_streams_unless_it_says_otherwise_and_odd_shapes_are_kept() {
    assert!(check::request(CHAT, &json!({"model": "m"})).stream);
    assert!(
        check::request(CHAT, &json!({"model": "m", "messages": [], "stream": true, "options": {}}))
            .stream
    );
    check::request(
        CHAT,
        &json!({"model": "m", "messages": null, "options": {"num_predict": -1, "stop": "X"}, "tools": null}),
    );
    check::request(
        CHAT,
        &json!({"model": "m", "messages": [{"role": "user", "content": null, "images": null, "tool_calls": []}]}),
    );
}

#[test]
fn faults_name_the_place() {
    let fault = |body: &str| parse_request(CHAT, body.as_bytes()).unwrap_err().to_string();
    assert_eq!(fault(r#"{"model":"m","messages":{}}"#), "read Ollama chat: messages: not an array");
    assert_eq!(
        fault(r#"{"model":"m","messages":[{"role":"king"}]}"#),
        r#"read Ollama chat: messages[0].role: unknown role "king""#
    );
}

#[test]
fn a_chat_answer_with_everything_comes_back_equal() {
    let response = check::response(
        CHAT,
        &json!({
            "model": "qwen3", "created_at": "2025-01-01T00:00:00Z", "done": true, "done_reason": "stop",
            "message": {"role": "assistant", "content": "hi", "thinking": "hm", "tool_calls": [
                {"function": {"name": "f", "arguments": {"a": 1}}}]},
            "total_duration": 5, "prompt_eval_count": 26, "eval_count": 7,
        }),
    );
    assert_eq!(response.text(), "hi");
    assert_eq!(response.stop(), Some(&StopReason::EndTurn));
    assert_eq!(response.usage.unwrap().input, 26);
    check::response(
        CHAT,
        &json!({"model": "m", "message": {"content": ""}, "done": true, "done_reason": "load"}),
    );
}

#[test]
fn an_answer_that_is_not_done_or_an_error_is_none() {
    let half =
        parse_response(CHAT, br#"{"message":{"role":"assistant","content":"ha"},"done":false}"#);
    assert!(matches!(half, Err(WireError::Truncated { .. })));
    let error = parse_response(CHAT, br#"{"error":"model \"x\" not found"}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"get an answer from the Ollama chat provider: model "x" not found"#
    );
}

fn lines(documents: &[Value]) -> String {
    documents.iter().flat_map(|document| [document.to_string(), "\n".to_owned()]).collect()
}

#[test]
fn a_chat_stream_cut_at_every_byte_gives_the_same_answer() {
    let said = |message: Value| json!({"model": "qwen3", "created_at": "t", "message": message, "done": false});
    let (events, response) = check::stream(
        CHAT,
        &lines(&[
            said(json!({"role": "assistant", "content": "", "thinking": "hm"})),
            said(json!({"role": "assistant", "content": "那个"})),
            said(json!({"role": "assistant", "content": "🌍"})),
            said(json!({"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": {"p": 1}}},
            {"id": "c", "function": {"index": 1, "name": "g", "arguments": {}}}]})),
            json!({"model": "qwen3", "created_at": "t", "message": {"role": "assistant", "content": ""}, "done": true,
            "done_reason": "stop", "total_duration": 9, "prompt_eval_count": 3, "eval_count": 4}),
        ]),
    );
    assert_eq!(response.text(), "那个🌍");
    let calls: Vec<_> = response.tool_calls().map(|call| (&*call.id, &*call.arguments)).collect();
    assert_eq!(calls, [("", "{\"p\":1}"), ("c", "{}")]);
    assert_eq!(response.usage.unwrap().output, 4);
    assert_eq!(events.last(), Some(&StreamEvent::Ended));
}

#[test]
fn an_error_line_ends_the_stream_without_an_answer() {
    let mut parser = StreamParser::new(CHAT);
    let events = parser.push(b"{\"error\":\"out of memory\"}\n").unwrap();
    assert!(matches!(&events[..], [StreamEvent::Error(error)] if error.message == "out of memory"));
    assert!(matches!(parser.finish(), Err(WireError::Provider { .. })));
}

#[test]
fn results_from_another_dialect_are_named_after_their_call() {
    let request = Request {
        model: "m".into(),
        stream: true,
        max_tokens: Some(5),
        messages: vec![
            Message::text(Role::User, "go"),
            Message::new(
                Role::Assistant,
                vec![Part::tool_call("a", "f", "{\"k\":1}"), Part::tool_call("b", "g", "oops")],
            ),
            Message::tool_result("a", "f", "1"),
            Message::tool_result("b", "g", "2"),
        ],
        ..Request::default()
    };
    // By way of a dialect that does not name the tool of a result.
    let body = wire::render_request(Dialect::OpenAiChat, &request);
    let request = parse_request(Dialect::OpenAiChat, &body).unwrap();
    assert_eq!(
        render_request_value(CHAT, &request),
        json!({
            "model": "m", "stream": true, "options": {"num_predict": 5}, "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "a", "function": {"name": "f", "arguments": {"k": 1}}},
                    {"id": "b", "function": {"name": "g", "arguments": {"unparsed_arguments": "oops"}}}]},
                {"role": "tool", "content": "1", "tool_name": "f", "tool_call_id": "a"},
                {"role": "tool", "content": "2", "tool_name": "g", "tool_call_id": "b"},
            ],
        })
    );
}

const GENERATE: Dialect = Dialect::OllamaGenerate;

#[test]
fn a_generate_request_with_everything_comes_back_equal() {
    let request = check::request(
        GENERATE,
        &json!({
            "model": "llava", "prompt": "look", "system": "be brief", "images": ["iVBORw0KGgo="], "suffix": "end",
            "template": "t", "context": [1, 2], "raw": false, "stream": false, "options": {"temperature": 0, "stop": "X"},
            "format": {"type": "object"}, "keep_alive": 0, "think": "low",
        }),
    );
    assert_eq!(request.messages.len(), 2);
    assert_eq!(request.messages[1].parts.len(), 2);
    check::request(GENERATE, &json!({"model": "m"}));
    check::request(
        GENERATE,
        &json!({"model": "m", "prompt": "", "system": "", "images": ["AAAA"]}),
    );
}

#[test]
fn a_generate_answer_with_everything_comes_back_equal() {
    let response = check::response(
        GENERATE,
        &json!({
            "model": "m", "created_at": "t", "response": "hi", "thinking": "hm", "done": true, "done_reason": "length",
            "context": [1], "total_duration": 1, "prompt_eval_count": 2, "eval_count": 3,
        }),
    );
    assert_eq!(response.text(), "hi");
    assert_eq!(response.stop(), Some(&StopReason::MaxTokens));
    check::response(
        GENERATE,
        &json!({"model": "m", "response": "", "done": true, "done_reason": "load"}),
    );
}

#[test]
fn a_generate_stream_cut_at_every_byte_gives_the_same_answer() {
    let said =
        |text: &str| json!({"model": "m", "created_at": "t", "response": text, "done": false});
    let (_, response) = check::stream(
        GENERATE,
        &lines(&[
            json!({"model": "m", "created_at": "t", "response": "", "thinking": "hm", "done": false}),
            said("那个"),
            said("🌍"),
            json!({"model": "m", "created_at": "t", "response": "", "done": true, "done_reason": "stop", "context": [1, 2],
            "total_duration": 9, "prompt_eval_count": 3, "eval_count": 4}),
        ]),
    );
    assert_eq!(response.text(), "那个🌍");
    assert_eq!(response.parts().filter_map(Part::as_reasoning).collect::<String>(), "hm");
}

#[test]
fn a_conversation_becomes_one_prompt() {
    let request = Request {
        model: "m".into(),
        stream: true,
        messages: vec![
            Message::text(Role::System, "rules"),
            Message::text(Role::User, "hi"),
            Message::text(Role::Assistant, "ho"),
            Message::text(Role::User, "and?"),
        ],
        ..Request::default()
    };
    assert_eq!(
        render_request_value(GENERATE, &request),
        json!({
            "model": "m", "stream": true, "system": "rules", "prompt": "User: hi\n\nAssistant: ho\n\nUser: and?",
        })
    );
}
