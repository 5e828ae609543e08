//! What stands between a call and its effect: reading the arguments, the
//! action policy, and the binding of an approval to present bytes. It decides;
//! the driver records and executes.

use domain::action::{Act, Action, Judgement, Policy, Verdict};
use domain::approval::{Binding, Facts, bind};
use domain::log::Call;
use domain::record::{ApprovalMode, RunRecord};
use serde_json::Value;

use crate::tools::{self, Tool};
use crate::workspace::Workspace;

/// A call whose arguments were understood.
pub(crate) struct Planned {
    pub(crate) tool: &'static Tool,
    pub(crate) arguments: Value,
    pub(crate) judgement: Judgement,
}

/// What the gate says of a call.
pub(crate) enum Gate {
    /// The call cannot be understood; tell the model how to put it right.
    Correct(String),
    /// Refused by the policy.
    Deny(Judgement),
    Run(Planned),
    /// A person decides.
    Ask(Planned),
}

/// Judges one call under the mode in force now.
pub(crate) fn judge(
    policy: &Policy,
    record: &RunRecord,
    workspace: &Workspace,
    call: &Call,
    mode: ApprovalMode,
) -> Gate {
    let Some(tool) = tools::find(&call.tool) else {
        let action = Action { tool: &call.tool, act: Act::Unknown, arguments: &Value::Null };
        return Gate::Deny(policy.decide(&action, &record.grants.tools));
    };
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let arguments: Value = match serde_json::from_str(text) {
        Ok(arguments) => arguments,
        Err(error) => return Gate::Correct(format!("the arguments are not valid JSON: {error}")),
    };
    let act = match (tool.act)(workspace, &arguments) {
        Ok(act) => act,
        Err(why) => return Gate::Correct(format!("{why}. The schema is {}", (tool.schema)())),
    };
    let question = act == Act::Question;
    let judgement = policy
        .decide(&Action { tool: tool.name, act, arguments: &arguments }, &record.grants.tools);
    let verdict = judgement.verdict;
    let planned = Planned { tool, arguments, judgement };
    match verdict {
        Verdict::Deny => Gate::Deny(planned.judgement),
        Verdict::Auto => Gate::Run(planned),
        // A question needs words; no standing approval can give them.
        Verdict::Ask if mode == ApprovalMode::Automatic && !question => Gate::Run(planned),
        Verdict::Ask => Gate::Ask(planned),
    }
}

/// What the call would act on if it ran now.
pub(crate) fn bind_now(
    record: &RunRecord,
    workspace: &Workspace,
    tool: &str,
    arguments: &Value,
    policy_generation: u64,
) -> Binding {
    let files = store::facts::named_files(workspace.fd(), workspace.path(), tool, arguments);
    bind(&Facts {
        tool,
        arguments,
        cwd: &record.workspace,
        environment: &record.tool_environment(),
        code: None,
        policy_generation,
        files: &files,
    })
}
