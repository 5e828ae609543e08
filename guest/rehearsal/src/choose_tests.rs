//! Which turn of a scenario answers which request.

use super::*;

const TEXT: &str = r"
version: 1
name: t
conversations:
  - model: m
    turns:
      - say: zero
      - when: { result_contains: good }
        say: one-good
      - { step: 1, when: { user_contains: please }, say: one-please }
      - { step: 1, when: { result_contains: bad, user_contains: now }, say: one-bad-now }
      - { step: 1, say: one }
      - { when: { result_contains: never }, say: two }
    otherwise: { say: otherwise }
  - model: narrow
    task: Do the thing.
    turns: [{ say: done }]
";

fn request(model: &str, messages: Vec<Message>) -> Request {
    Request { model: model.to_owned(), messages, ..Request::default() }
}

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn assistant(text: &str) -> Message {
    Message::text(Role::Assistant, text)
}

fn said(model: &str, messages: Vec<Message>) -> Result<String, NoAnswer> {
    let scenario = Scenario::parse(TEXT).unwrap();
    choose(&scenario, &request(model, messages)).map(|chosen| chosen.turn.say.clone().unwrap())
}

fn at_step_one(user_text: &str, result: &str) -> String {
    said("m", vec![user(user_text), assistant("a"), Message::tool_result("c", "t", result)])
        .unwrap()
}

#[test]
fn the_step_is_the_number_of_assistant_turns() {
    assert_eq!(said("m", vec![user("hi")]).unwrap(), "zero");
    assert_eq!(said("m", vec![user("hi"), assistant("a")]).unwrap(), "one");
    assert_eq!(
        said("m", vec![user("hi"), assistant("a"), assistant("b")]).unwrap(),
        "one",
        "they are one turn"
    );
    assert_eq!(
        said("m", vec![user("hi"), assistant("a"), user("more"), assistant("b")]).unwrap(),
        "otherwise"
    );
    assert_eq!(said("m", vec![assistant("a"), user("more")]).unwrap(), "one");
    assert_eq!(said("m", Vec::new()).unwrap(), "zero");
}

#[test]
fn of_the_turns_of_a_step_the_first_that_matches_answers() {
    assert_eq!(at_step_one("hi", "all good"), "one-good");
    assert_eq!(at_step_one("please", "all good"), "one-good");
    assert_eq!(at_step_one("please", "bad"), "one-please");
    assert_eq!(at_step_one("now", "bad"), "one-bad-now");
    assert_eq!(at_step_one("hi", "bad"), "one");
}

#[test]
fn only_results_since_the_last_assistant_turn_match() {
    let old = vec![
        user("hi"),
        assistant("a"),
        Message::tool_result("c", "t", "never"),
        assistant("b"),
        user("x"),
    ];
    assert_eq!(said("m", old).unwrap(), "otherwise");
    let new = vec![
        user("hi"),
        assistant("a"),
        user("x"),
        assistant("b"),
        Message::tool_result("c", "t", "never"),
    ];
    assert_eq!(said("m", new).unwrap(), "two");
}

#[test]
fn the_same_request_gets_the_same_answer_every_time() {
    for _ in 0..3 {
        assert_eq!(at_step_one("now", "bad"), "one-bad-now");
        assert_eq!(said("m", vec![user("hi")]).unwrap(), "zero");
    }
}

#[test]
fn a_conversation_with_a_task_answers_no_other() {
    assert_eq!(said("narrow", vec![user("<context/>\nDo the thing.\n")]).unwrap(), "done");
    let error = said("narrow", vec![user("Fix my test"), user("Do the thing.")]).unwrap_err();
    assert_eq!(error, NoAnswer::Task { model: "narrow".to_owned() });
}

#[test]
fn says_what_it_knows_when_it_has_no_answer() {
    let error = said("other", vec![user("hi")]).unwrap_err();
    assert_eq!(error.to_string(), "this rehearsal has no model `other`; it has m, narrow");
    let error = said("narrow", vec![user("Do the thing."), assistant("a")]).unwrap_err();
    assert_eq!(error.to_string(), "the rehearsal of model `narrow` has no turn for step 1");
}

#[test]
fn placeholders_stand_for_the_last_of_each() {
    let messages = vec![
        Message::text(Role::System, "You are careful.\nWorkspace:  /ws/a b \nworkspace: /other"),
        user("first"),
        assistant("a"),
        Message::tool_result("c", "t", "old"),
        assistant("b"),
        Message::tool_result("c", "t", "new"),
        user("last"),
        assistant("c"),
    ];
    let request = request("m", messages);
    let found = values(&request, None);
    assert_eq!(
        (found.user.as_str(), found.last_tool_result.as_str(), found.workspace.as_str()),
        ("last", "new", "/ws/a b")
    );
    assert_eq!(values(&request, Some("/given")).workspace, "/given");
    let nothing = values(&Request::default(), None);
    assert_eq!(
        (nothing.user.as_str(), nothing.last_tool_result.as_str(), nothing.workspace.as_str()),
        ("", "", ".")
    );
}
