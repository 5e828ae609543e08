//! As root: an ordinary user's instance, run under a bare uid. One uid for everything, and a control token.

use api::ClientError;
use api::control::{RefusalCode, Request, Response};
use domain::log::Verdict;
use domain::record::Boundary;
use domain::run::Status;
use suites::{Instance, processes, scenario, until};

fn start() -> Instance {
    let turns =
        [scenario::command("id -u > uid.txt; echo x >> effect.txt"), scenario::answer("done")];
    Instance::start_single_uid(&scenario::of_turns(&turns.each_ref().map(String::as_str)))
}

#[test]
fn an_ordinary_user_gets_a_run_a_card_and_an_end_all_under_one_uid() {
    let instance = start();
    let run = instance.submit("go");
    let card = until("the card", || instance.approvals().pop());
    let mut uids: Vec<String> = processes::below(instance.launcher())
        .iter()
        .map(|process| process.status("Uid").split_whitespace().next().unwrap_or("").to_owned())
        .collect();
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 1, "{uids:?}");
    instance.decide(&card, Verdict::Approve, None).unwrap();
    let view = instance.wait_for(&run, Status::Done);
    assert_eq!(view.record.boundary, Boundary::SingleUid);
    assert_eq!(view.attestation_differences, Vec::<String>::new());
    let uid = std::fs::read_to_string(instance.workspace().join("uid.txt")).unwrap();
    assert_eq!(uid.trim(), uids[0]);
    let (code, text, error) = instance.cli(&["runs"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("done"), "{text}");
}

#[test]
fn a_wrong_or_missing_control_token_is_refused_and_so_is_another_uid() {
    let instance = start();
    let code = |result: Result<api::Client, ClientError>| match result {
        Err(ClientError::Refused(refusal)) => Some(refusal.code),
        Ok(_) | Err(_) => None,
    };
    assert_eq!(code(instance.client_with(None)), Some(RefusalCode::Forbidden));
    assert_eq!(code(instance.client_with(Some("wrong".into()))), Some(RefusalCode::Forbidden));
    let answer = instance.client().unwrap().ask(&Request::Status).unwrap();
    assert!(matches!(answer, Response::System(_)), "the positive control: {answer:?}");
    // Root as well, when it is not root's instance.
    if instance.single_uid().is_some() {
        let as_root = api::Client::connect(&instance.socket(), instance.token());
        assert_eq!(code(as_root), Some(RefusalCode::Forbidden));
    }
}
