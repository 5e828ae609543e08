//! Scenarios played to the end, the way a client does it.

use rehearsal::{LABEL, Scenario, Server};
use serde_json::{Value, json};
use wire::{Dialect, Message, Part, Request, Response, Role};

use crate::support::*;

fn ask_for(server: &Server, dialect: Dialect, path: &str, request: &Request) -> Response {
    let body = wire::render_request(dialect, request);
    let heard = send(server, "POST", path, std::str::from_utf8(&body).unwrap());
    assert_eq!(heard.status(), 200, "{}", heard.text());
    if !request.stream {
        return wire::parse_response(dialect, &heard.body()).unwrap();
    }
    let mut parser = wire::StreamParser::new(dialect);
    for chunk in &heard.chunks {
        parser.push(chunk).unwrap();
    }
    parser.finish().unwrap()
}

fn first_request(model: &str, task: &str) -> Request {
    let messages =
        vec![Message::text(Role::System, "Be careful."), Message::text(Role::User, task)];
    Request { model: model.to_owned(), messages, max_tokens: Some(100), ..Request::default() }
}

/// Plays a whole run in which every tool answers `result`, and returns the calls of each turn.
fn play(
    server: &Server,
    dialect: Dialect,
    path: &str,
    mut request: Request,
    result: &str,
) -> (Vec<Vec<(String, Value)>>, String) {
    let mut turns = Vec::new();
    for step in 0..50 {
        request.stream = step % 2 == 0;
        let response = ask_for(server, dialect, path, &request);
        let again = ask_for(server, dialect, path, &request);
        assert_eq!(again, response, "asked again, it says the same");
        let calls: Vec<_> = response
            .tool_calls()
            .map(|call| (call.name.clone(), call.arguments_value().unwrap()))
            .collect();
        if calls.is_empty() {
            return (turns, response.text());
        }
        let parts: Vec<Part> = response.parts().cloned().collect();
        request.messages.push(Message::new(Role::Assistant, parts));
        for call in response.tool_calls() {
            request.messages.push(Message::tool_result(&call.id, &call.name, result));
        }
        turns.push(calls);
    }
    panic!("the run does not end: {turns:?}");
}

fn names(turns: &[Vec<(String, Value)>]) -> Vec<Vec<&str>> {
    turns.iter().map(|calls| calls.iter().map(|(name, _)| name.as_str()).collect()).collect()
}

const CONVERSATIONS: [(Dialect, &str); 4] = [
    (Dialect::OpenAiChat, "/v1/chat/completions"),
    (Dialect::OpenAiResponses, "/v1/responses"),
    (Dialect::AnthropicMessages, "/v1/messages"),
    (Dialect::OllamaChat, "/api/chat"),
];

const TOOLS: [(&str, &[&str]); 7] = [
    ("list_dir", &["path"]),
    ("read_file", &["path"]),
    ("write_file", &["path", "content"]),
    ("edit_file", &["path", "old", "new"]),
    ("run_command", &["command"]),
    ("search", &["pattern", "path"]),
    ("glob", &["pattern"]),
];

#[test]
fn the_built_in_scenarios_call_tools_as_these_are_and_come_to_an_end() {
    for (name, text) in rehearsal::EMBEDDED {
        let scenario = Scenario::parse(text).unwrap();
        let model = scenario.models().next().unwrap().to_owned();
        let task = scenario.task(&model).unwrap_or("go").to_owned();
        let server = start(scenario);
        for (dialect, path) in CONVERSATIONS {
            let (turns, last) = play(&server, dialect, path, first_request(&model, &task), "ok");
            for (tool, arguments) in turns.iter().flatten() {
                let known = TOOLS
                    .iter()
                    .find(|(known, _)| known == tool)
                    .unwrap_or_else(|| panic!("{name}: {tool}"));
                let given: Vec<&str> =
                    arguments.as_object().unwrap().keys().map(String::as_str).collect();
                assert_eq!(given, known.1, "{name}: {tool}");
            }
            assert!(!last.is_empty(), "{name}");
        }
    }
}

#[test]
fn the_demo_shows_tools_an_approval_an_edit_and_a_block() {
    let scenario = rehearsal::embedded("demo").unwrap().unwrap();
    let task = scenario.task("rehearsal").unwrap().to_owned();
    let server = start(scenario);
    let run = |result| {
        play(
            &server,
            Dialect::OpenAiChat,
            "/v1/chat/completions",
            first_request("rehearsal", &task),
            result,
        )
    };
    let expected = [
        vec!["list_dir"],
        vec!["write_file", "write_file"],
        vec!["run_command"],
        vec!["edit_file"],
        vec!["write_file"],
    ];
    let (approved, last) = run("greet_test: ok");
    assert_eq!(names(&approved), expected);
    assert!(last.contains("rehearsal"), "{last}");
    let outside = approved[4][0].1["path"].as_str().unwrap();
    assert!(outside.starts_with("/etc/"), "{outside}");
    let (denied, _) = run("the person said no");
    assert_eq!(names(&denied), expected);
    assert_ne!(denied[3][0].1["new"], approved[3][0].1["new"]);
}

#[test]
fn the_demo_answers_its_own_task_only() {
    let server = start(rehearsal::embedded("demo").unwrap().unwrap());
    let body =
        r#"{"model":"rehearsal","messages":[{"role":"user","content":"Fix my failing test"}]}"#;
    let heard = send(&server, "POST", "/v1/chat/completions", body);
    assert_eq!(heard.status(), 400);
    assert!(heard.text().contains("this is a rehearsal"), "{}", heard.text());
}

#[test]
fn ten_steps_have_two_effects_each_in_a_file_of_its_own() {
    let server = start(rehearsal::embedded("ten-steps").unwrap().unwrap());
    let (turns, _) = play(
        &server,
        Dialect::OpenAiChat,
        "/v1/chat/completions",
        first_request("ten-steps", "go"),
        "ok",
    );
    assert_eq!(turns.len(), 9, "and the final answer is the tenth");
    let effects: Vec<_> = turns
        .iter()
        .flatten()
        .filter(|(name, _)| name == "run_command")
        .map(|(_, arguments)| arguments["command"].clone())
        .collect();
    assert_eq!(effects, [json!("echo one >> effect-1.txt"), json!("echo two >> effect-2.txt")]);
}

#[test]
fn another_process_gives_the_same_answer() {
    let request = hello(true);
    let answer = || {
        let server = playing("{ say: hello, calls: [{ name: t, arguments: { a: '{{user}}' } }] }");
        send(&server, "POST", "/v1/chat/completions", &request).body()
    };
    assert_eq!(answer(), answer());
}

#[test]
fn models_are_listed_in_both_ways_and_chosen_by_name() {
    let text = "version: 1\nname: two\nconversations:\n  - { model: a, turns: [{ say: from a }] }\n  - { model: 'b:latest', turns: [{ say: from b }] }\n";
    let server = start(Scenario::parse(text).unwrap());
    let listed: Value =
        serde_json::from_str(&send(&server, "GET", "/v1/models", "").text()).unwrap();
    assert_eq!(
        (&listed["data"][0]["id"], &listed["data"][1]["id"]),
        (&json!("a"), &json!("b:latest"))
    );
    let listed: Value =
        serde_json::from_str(&send(&server, "GET", "/api/tags", "").text()).unwrap();
    assert_eq!(listed["models"][1]["name"], "b:latest");
    for model in ["a", "b:latest"] {
        let response = ask_for(
            &server,
            Dialect::OpenAiChat,
            "/v1/chat/completions",
            &first_request(model, "x"),
        );
        assert_eq!(
            (response.text(), response.model.as_str()),
            (format!("from {}", &model[..1]), model)
        );
    }
    let heard = send(&server, "POST", "/v1/chat/completions", &hello(false));
    assert_eq!(heard.status(), 404);
    assert!(heard.text().contains("no model `m`; it has a, b:latest"), "{}", heard.text());
}

#[test]
fn every_answer_is_labelled_and_every_request_remembered() {
    let server = playing("{ say: hello }");
    let (good, bad) = (ask(&server), send(&server, "POST", "/v1/chat/completions", "{"));
    let other = send(&server, "GET", "/nothing?a=b", "");
    assert_eq!((good.status(), bad.status(), other.status()), (200, 400, 404));
    for heard in [good, bad, other] {
        assert_eq!(heard.header(LABEL), Some("test"), "{}", heard.head);
    }
    let requests = server.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (request.method.as_str(), request.target.as_str(), request.step))
        .collect();
    assert_eq!(
        seen,
        [
            ("POST", "/v1/chat/completions", Some(0)),
            ("POST", "/v1/chat/completions", None),
            ("GET", "/nothing?a=b", None)
        ]
    );
    assert_eq!(
        (&requests[0].body[..], requests[0].header("host")),
        (hello(true).as_bytes(), Some("x"))
    );
}

#[test]
fn one_connection_serves_many_requests() {
    let server = playing("{ say: hello }");
    let mut client = Client::dial(&server);
    for stream in [true, false, true] {
        client.send("POST", "/v1/chat/completions", &hello(stream));
        assert!(client.read().whole);
    }
}

#[test]
fn it_serves_inside_a_callers_runtime_until_it_is_dropped() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = runtime
        .block_on(rehearsal::serve(listener, rehearsal::embedded("smoke").unwrap().unwrap(), None))
        .unwrap();
    assert!(server.base_url().starts_with("http://127.0.0.1:"));
    assert_eq!(send(&server, "GET", "/v1/models", "").status(), 200);
    let address = server.address();
    drop(server);
    let start = std::time::Instant::now();
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(start.elapsed() < DEADLINE, "it still listens");
        std::thread::yield_now();
    }
}
