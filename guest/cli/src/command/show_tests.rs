//! A whole run as a person reads it.

use super::*;
use crate::render::attestation::tests::claim as a_claim;
use crate::render::card::tests::{clock, invocation, request};
use domain::approval::Wants;
use domain::config::DeploymentProfile;
use domain::id::{AgentName, Millis, Subject};
use domain::log::Control;
use domain::record::{
    ApprovalMode, Boundary, Budgets, Grants, Kind, ModelSnapshot, Provider, RunRecord, Scope,
    Source,
};
use domain::run::Status;

fn view() -> RunView {
    let pending = request(7, Wants::Approval);
    let record = RunRecord {
        version: 1,
        id: pending.run.clone(),
        kind: Kind::Task,
        scope: Scope::Head,
        agent: AgentName::new("naomi").unwrap(),
        subject: Subject::new("naomi").unwrap(),
        owner: "os:root".into(),
        shares: vec![],
        guests: vec![],
        agent_waivers: vec![],
        title: "count the words in a file".into(),
        pinned: false,
        created: Millis(1_793_700_000_000),
        last_activity: Millis(1_793_700_079_000),
        parent: None,
        cron_job: None,
        profile: DeploymentProfile::Development,
        boundary: Boundary::Separate,
        fs_sandbox: true,
        approvals: ApprovalMode::Queue,
        model: ModelSnapshot {
            name: "local".into(),
            provider: Provider::Ollama,
            model: "qwen3:8b".into(),
            port: 8_793,
        },
        grants: Grants {
            tools: vec!["read_file".into(), "run_command".into()],
            ..Grants::default()
        },
        budgets: Budgets::default(),
        soul: String::new(),
        rules: vec![],
        workspace: "/var/lib/sentinel-dev/agents/naomi/workspace".into(),
    };
    let turn = Control::Turn {
        text: "count the words".into(),
        speaker: None,
        source: Source::Task,
        images: 0,
    };
    let bodies =
        [Body::Control(turn), Body::Worker(Event::SecurityAttestation(Box::new(a_claim())))];
    RunView {
        record,
        status: Status::WaitingApproval,
        failure: None,
        pending: vec![pending],
        items: bodies
            .into_iter()
            .map(|body| Item { seq: 1, at: Millis(1_793_700_000_000), body })
            .collect(),
        attestation: Some(serde_json::json!({"uid": 0, "cap_eff": "0000000000000000"})),
        attestation_differences: vec!["uid: claimed 58001, observed 0".into()],
        path: "/var/lib/sentinel-dev/runs/naomi/5f0c1e9e".into(),
    }
}

#[test]
fn a_run_is_shown_from_its_header_to_what_it_waits_for() {
    insta::assert_snapshot!(whole(Style::PLAIN, &clock(), &invocation(), &view()).join("\n"));
}
