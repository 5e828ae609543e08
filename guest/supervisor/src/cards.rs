//! What a person is shown before deciding, built from bytes the control plane
//! read itself. The worker's request is a claim: tool and arguments come from
//! it, the binding never does.

use std::path::Path;

use api::control::Pending;
use domain::approval::{Card, Facts, Wants, bind};
use domain::drive::Drive;
use domain::log::Control;
use domain::record::RunRecord;
use domain::run::Request;
use os_fd::AsFd as _;
use serde_json::Value;
use std::os::fd as os_fd;
use store::{RunDir, beneath};

/// Why no card can be built; the run fails with it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CardError {
    #[error("worker half unreadable: request {request} is not in it")]
    NoRequest { request: u64 },
    #[error("worker half unreadable: {0}")]
    Store(#[from] store::StoreError),
    #[error("workspace_unwritable: {path}: {source}")]
    Workspace { path: String, source: std::io::Error },
}

/// The `asked` entry for one request of the worker.
pub(crate) fn build_card(
    dir: &RunDir,
    record: &RunRecord,
    drive: &Drive,
    request: u64,
) -> Result<Control, CardError> {
    let missing = || CardError::NoRequest { request };
    let asked = drive.requests.get(&request).ok_or_else(missing)?;
    let call = drive.calls.iter().find(|call| call.id == asked.call).ok_or_else(missing)?;
    // Where masking changed the arguments, the effect has the raw ones.
    let raw = match &call.raw {
        Some(blob) => String::from_utf8_lossy(&dir.worker()?.blob(blob)?).into_owned(),
        None => call.arguments.clone(),
    };
    let arguments: Value = serde_json::from_str(&raw).unwrap_or(Value::Null);
    let workspace = beneath::open_dir(Path::new(&record.workspace))
        .map_err(|source| CardError::Workspace { path: record.workspace.clone(), source })?;
    let generation = dir.policy().ok().flatten().map_or(0, |policy| policy.generation);
    let files = store::facts::named_files(
        workspace.as_fd(),
        Path::new(&record.workspace),
        &call.tool,
        &arguments,
    );
    let binding = bind(&Facts {
        tool: &call.tool,
        arguments: &arguments,
        cwd: &record.workspace,
        environment: &record.tool_environment(),
        code: None,
        policy_generation: generation,
        files: &files,
    });
    let shown: Value = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
    let card = Card {
        wants: if call.tool == "ask_user" { Wants::Answer } else { Wants::Approval },
        summary: summary(&call.tool, &shown),
        call: call.clone(),
        cwd: record.workspace.clone(),
        rule: asked.rule.clone(),
        why: asked.why.clone(),
        policy_generation: generation,
        bound: binding.parts,
        not_bound: binding.not_bound,
        drift: asked.drift.clone(),
    };
    Ok(Control::Asked { request, card: Box::new(card), digest: binding.digest })
}

/// The act in one line.
fn summary(tool: &str, arguments: &Value) -> String {
    let named = ["command", "path", "url", "question"]
        .iter()
        .find_map(|name| arguments.get(name).and_then(Value::as_str));
    match named {
        Some(text) => text.to_owned(),
        None => format!("{tool} {arguments}"),
    }
}

/// A request as the inbox shows it.
pub(crate) fn pending(record: &RunRecord, request: &Request) -> Pending {
    Pending {
        run: record.id.clone(),
        title: record.title.clone(),
        agent: record.agent.as_str().to_owned(),
        request: request.request,
        digest: request.digest.clone(),
        asked_at: request.asked_at,
        card: request.card.clone(),
    }
}
