//! What a follower does in each situation.

use super::*;
use crate::render::card::tests::request;
use domain::id::Millis;
use domain::log::{Control, Event};

fn status(status: Status, pending: Vec<Pending>) -> Heard {
    Heard::Frame(Response::Status { status, failure: None, pending })
}

fn waits(requests: &[u64]) -> Heard {
    let pending = requests.iter().map(|n| request(*n, Wants::Approval)).collect();
    status(Status::WaitingApproval, pending)
}

fn item(seq: u64, body: Body) -> Heard {
    Heard::Frame(Response::Item(Box::new(Item { seq, at: Millis(0), body })))
}

/// Effects in a word each.
fn words(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .map(|effect| match effect {
            Effect::Item(item) => format!("item {}", item.seq),
            Effect::Card(pending) => format!("card {}", pending.request),
            Effect::Ask(wants) => format!("ask {wants:?}"),
            Effect::Unask => "unask".to_owned(),
            Effect::Moment => "moment".to_owned(),
            Effect::Note(text) => format!("note {text}"),
            Effect::Decide { pending, verdict, reason } => format!(
                "decide {} {verdict:?} {} by {}…",
                pending.request,
                reason.as_deref().unwrap_or("-"),
                &pending.digest[..4]
            ),
            Effect::Status(status) => status.as_str().to_owned(),
            Effect::End(end) => format!("end {}", end.exit().name()),
        })
        .collect()
}

fn hear(following: &mut Following, heard: Heard) -> Vec<String> {
    words(&following.hear(heard))
}

fn line(text: &str) -> Heard {
    Heard::Line(text.to_owned())
}

fn decided(request: u64) -> Heard {
    Heard::Decided { request, result: Ok(()) }
}

fn refused(request: u64, exit: Exit) -> Heard {
    Heard::Decided { request, result: Err(Failure::new(exit, "no", "n")) }
}

#[test]
fn a_person_is_asked_one_request_at_a_time_oldest_first() {
    let mut f = Following::new(Answers::Person);
    assert_eq!(hear(&mut f, waits(&[7, 9])), ["waiting_approval", "card 7", "ask Approval"]);
    assert_eq!(hear(&mut f, line("y")), ["decide 7 Approve - by 9f2c…"]);
    assert_eq!(hear(&mut f, decided(7)), ["card 9", "ask Approval"]);
    assert_eq!(hear(&mut f, line("rm is too much")), ["decide 9 Deny rm is too much by 9f2c…"]);
    assert!(hear(&mut f, decided(9)).is_empty());
    assert_eq!(hear(&mut f, status(Status::Running, vec![])), ["running"]);
    assert_eq!(hear(&mut f, status(Status::Done, vec![])), ["done", "end ok"]);
}

#[test]
fn a_late_status_does_not_bring_an_answered_request_back() {
    let mut f = Following::new(Answers::Person);
    hear(&mut f, waits(&[7]));
    hear(&mut f, line("y"));
    assert!(hear(&mut f, waits(&[7])).is_empty());
    assert_eq!(hear(&mut f, waits(&[12])), ["card 12", "ask Approval"]);
}

#[test]
fn what_is_typed_while_nothing_is_asked_answers_nothing() {
    let mut f = Following::new(Answers::Person);
    assert!(hear(&mut f, line("y")).is_empty());
    hear(&mut f, waits(&[7]));
    hear(&mut f, line("y"));
    assert!(hear(&mut f, line("y")).is_empty());
}

#[test]
fn a_question_decided_elsewhere_is_taken_back() {
    let mut f = Following::new(Answers::Person);
    hear(&mut f, waits(&[7, 9]));
    assert_eq!(hear(&mut f, waits(&[9])), ["unask", "card 9", "ask Approval"]);
    assert_eq!(hear(&mut f, status(Status::Running, vec![])), ["running", "unask"]);
    assert!(hear(&mut f, line("y")).is_empty());
}

#[test]
fn a_conflict_is_said_and_the_present_state_asked_again() {
    let mut f = Following::new(Answers::Person);
    hear(&mut f, waits(&[7]));
    hear(&mut f, line("y"));
    assert_eq!(hear(&mut f, refused(7, Exit::Conflict)), ["note no"]);
    assert_eq!(hear(&mut f, waits(&[7])), ["card 7", "ask Approval"]);
    hear(&mut f, line("y"));
    assert_eq!(hear(&mut f, refused(7, Exit::Refused)), ["end refused"]);
}

#[test]
fn without_anybody_to_ask_all_cards_are_shown_and_it_ends_with_code_3() {
    let mut f = Following::new(Answers::Nobody);
    assert_eq!(
        hear(&mut f, waits(&[7, 9])),
        ["waiting_approval", "card 7", "card 9", "end waiting"]
    );
}

#[test]
fn what_is_decided_elsewhere_is_only_watched() {
    let mut f = Following::new(Answers::Elsewhere);
    assert_eq!(hear(&mut f, waits(&[7])), ["waiting_approval"]);
    assert_eq!(hear(&mut f, status(Status::Running, vec![])), ["running"]);
}

#[test]
fn the_rehearsal_answers_after_a_moment_and_says_so() {
    let mut f = Following::new(Answers::Rehearsal);
    assert_eq!(hear(&mut f, waits(&[7])), ["waiting_approval", "card 7", "moment"]);
    let said = hear(&mut f, Heard::MomentOver);
    assert_eq!(said[0], "note yes   (no terminal: the rehearsal answers)");
    assert_eq!(said[1], "decide 7 Approve - by 9f2c…");
    assert!(hear(&mut f, Heard::MomentOver).is_empty());
}

#[test]
fn an_item_is_shown_once_also_after_the_connection_was_made_again() {
    let mut f = Following::new(Answers::Person);
    let control = || Body::Control(Control::Launched { attempt: 1 });
    let worker = || Body::Worker(Event::Waiting { requests: vec![] });
    assert_eq!(hear(&mut f, item(1, control())), ["item 1"]);
    assert_eq!(hear(&mut f, item(1, worker())), ["item 1"]);
    assert_eq!(hear(&mut f, Heard::Lost), ["note connection lost; trying again"]);
    assert!(hear(&mut f, item(1, control())).is_empty());
    assert!(hear(&mut f, item(1, worker())).is_empty());
    assert_eq!(hear(&mut f, item(2, worker())), ["item 2"]);
}

#[test]
fn every_way_to_end_has_its_exit_code() {
    let over = |status| End::Over { status, failure: None }.exit();
    assert_eq!(over(Status::Done), Exit::Ok);
    assert_eq!(over(Status::Failed), Exit::Failed);
    assert_eq!(over(Status::Cancelled), Exit::Cancelled);
    let mut f = Following::new(Answers::Person);
    assert_eq!(hear(&mut f, Heard::Interrupt), ["end interrupted"]);
    let broken = Failure::new(Exit::Unreachable, "w", "n");
    assert_eq!(hear(&mut f, Heard::Broken(broken)), ["end unreachable"]);
    assert_eq!(hear(&mut f, Heard::Frame(Response::Done)), ["end failed"]);
    hear(&mut f, waits(&[7]));
    assert_eq!(hear(&mut f, Heard::EndOfInput), ["end waiting"]);
}

#[test]
fn answers_are_read_as_they_are_meant() {
    let verdict =
        |verdict, reason: Option<&str>| Answer::Verdict(verdict, reason.map(str::to_owned));
    for (typed, expected) in [
        ("y", verdict(Verdict::Approve, None)),
        (" YES ", verdict(Verdict::Approve, None)),
        ("", verdict(Verdict::Deny, None)),
        ("N", verdict(Verdict::Deny, None)),
        ("yes but smaller", verdict(Verdict::Deny, Some("yes but smaller"))),
        ("later", Answer::Later),
        ("u", Answer::Again),
    ] {
        assert_eq!(parse_answer(Wants::Approval, typed), expected, "{typed:?}");
    }
    let answer = |text: &str| verdict(Verdict::Answer(text.to_owned()), None);
    assert_eq!(parse_answer(Wants::Answer, "y"), answer("y"));
    assert_eq!(parse_answer(Wants::Answer, " 8080 "), answer("8080"));
    assert_eq!(parse_answer(Wants::Answer, ""), Answer::Later);
}
