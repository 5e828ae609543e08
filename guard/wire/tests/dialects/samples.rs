//! Requests the official clients really sent (`tests/clients/record`).

use std::path::PathBuf;

use serde_json::Value;
use wire::{Dialect, ImageSource, Part, Received, Request, Role, parse_request, render_request};

use crate::check;

struct Sample {
    name: String,
    dialect: Dialect,
    body: Value,
}

fn samples() -> Vec<Sample> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/samples");
    let mut samples: Vec<Sample> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let sample: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let dialect = Dialect::of_path(sample["path"].as_str().unwrap()).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            Sample { name, dialect, body: sample["body"].clone() }
        })
        .collect();
    samples.sort_by(|left, right| left.name.cmp(&right.name));
    samples
}

/// Parts of all messages, those inside tool results too.
fn parts(request: &Request) -> impl Iterator<Item = &Part> {
    request.messages.iter().flat_map(|message| &message.parts)
}

fn count(request: &Request, which: impl Fn(&Part) -> bool) -> usize {
    parts(request).filter(|part| which(part)).count()
}

#[test]
fn every_client_and_every_dialect_is_there() {
    let samples = samples();
    for client in [
        "openai-node-chat",
        "openai-python-chat",
        "openai-node-responses",
        "openai-python-responses",
        "anthropic-node",
        "anthropic-python",
        "ollama-node",
        "ollama-python",
    ] {
        for scenario in ["plain", "stream", "tools", "tools-2", "image"] {
            let name = format!("{client}-{scenario}");
            assert!(samples.iter().any(|sample| sample.name == name), "{name} is missing");
        }
    }
    for dialect in Dialect::ALL {
        assert!(samples.iter().any(|sample| sample.dialect == dialect), "{dialect} is missing");
    }
}

#[test]
fn every_request_is_written_as_it_was_read() {
    for Sample { name, dialect, body } in samples() {
        let request = check::request(dialect, &body);
        let known = parts(&request).all(|part| !matches!(part, Part::Unknown(_)));
        assert!(known && !request.messages.is_empty(), "{name}: {request:#?}");
        let bytes = body.to_string().into_bytes();
        assert_eq!(*Received::request(dialect, bytes.clone()).unwrap().bytes(), bytes, "{name}");
    }
}

#[test]
fn every_request_means_what_its_scenario_says() {
    for Sample { name, dialect, body } in samples() {
        let request = check::request(dialect, &body);
        assert_eq!(request.stream, name.contains("stream"), "{name}");
        let calls = count(&request, |part| matches!(part, Part::ToolCall(_)));
        let results = count(&request, |part| matches!(part, Part::ToolResult(_)));
        let second = usize::from(name.ends_with("-2"));
        assert_eq!((calls, results), (2 * second, 2 * second), "{name}");
        if name.contains("tools") || name.contains("runner") {
            assert_eq!(request.tools.len(), 2, "{name}");
        }
        if name.ends_with("image") {
            let inline = |part: &Part| matches!(part, Part::Image(image) if matches!(image.source, ImageSource::Base64 { .. }));
            assert_eq!(count(&request, inline), 1, "{name}");
        }
    }
}

#[test]
fn a_tool_conversation_of_any_client_goes_out_in_any_chat_dialect() {
    let chat = [
        Dialect::OpenAiChat,
        Dialect::OpenAiResponses,
        Dialect::AnthropicMessages,
        Dialect::OllamaChat,
    ];
    for Sample { name, dialect, body } in
        samples().into_iter().filter(|sample| sample.name.ends_with("tools-2"))
    {
        let request = check::request(dialect, &body);
        for other in chat {
            let there = parse_request(other, &render_request(other, &request)).unwrap();
            let calls = |request: &Request| -> Vec<(String, Value)> {
                let calls = parts(request).filter_map(Part::as_tool_call);
                calls.map(|call| (call.name.clone(), call.arguments_value().unwrap())).collect()
            };
            assert_eq!(calls(&there), calls(&request), "{name} -> {other}");
            let results = |request: &Request| -> Vec<String> {
                let results = parts(request).filter_map(|part| {
                    let Part::ToolResult(result) = part else { return None };
                    Some(result.text())
                });
                results.collect()
            };
            assert_eq!(results(&there), results(&request), "{name} -> {other}");
            let said = |request: &Request| -> Vec<(Role, String)> {
                let of_people = request
                    .messages
                    .iter()
                    .filter(|message| matches!(message.role, Role::System | Role::User));
                let said = of_people.map(|message| {
                    (message.role, message.parts.iter().filter_map(Part::as_text).collect())
                });
                said.filter(|(_, text): &(Role, String)| !text.is_empty()).collect()
            };
            assert_eq!(said(&there), said(&request), "{name} -> {other}");
            assert_eq!(there.tools.len(), request.tools.len(), "{name} -> {other}");
        }
    }
}
