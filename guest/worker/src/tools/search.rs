//! `glob` and `search`: ripgrep's own crates, run as a tool child in a role of
//! this binary, so that a hostile tree is walked inside the smaller sandbox.

use domain::action::{Act, Place};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Context, Output, Tool, ToolError, arguments, parsed, roles};
use crate::host::Program;

pub(super) const GLOB: Tool = Tool {
    name: "glob",
    description: "List files of the workspace that match a pattern such as src/**/*.rs. Files that .gitignore names are left out.",
    schema: || {
        json!({"type": "object", "properties": {
            "pattern": {"type": "string"}, "path": {"type": "string"}
        }, "required": ["pattern"], "additionalProperties": false})
    },
    reads_only: true,
    act: |ws, v| arguments::<Glob>(v).map(|a| Act::Read(ws.place(&a.path).0)),
    run: |context, value| {
        let glob: Glob = parsed(value)?;
        run_role(context, roles::GLOB, &glob.path, &glob)
    },
};

pub(super) const SEARCH: Tool = Tool {
    name: "search",
    description: "Search file contents of the workspace for a regular expression. Gives path:line:text rows.",
    schema: || {
        json!({"type": "object", "properties": {
            "pattern": {"type": "string"}, "path": {"type": "string"},
            "glob": {"type": "string", "description": "only files that match, such as *.rs"},
            "ignore_case": {"type": "boolean"}
        }, "required": ["pattern"], "additionalProperties": false})
    },
    reads_only: true,
    act: |ws, v| arguments::<Search>(v).map(|a| Act::Read(ws.place(&a.path).0)),
    run: |context, value| {
        let search: Search = parsed(value)?;
        run_role(context, roles::SEARCH, &search.path, &search)
    },
};

/// Arguments of `glob`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Glob {
    pub(super) pattern: String,
    #[serde(default)]
    pub(super) path: String,
}

/// Arguments of `search`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    pub(super) pattern: String,
    #[serde(default)]
    pub(super) path: String,
    #[serde(default)]
    pub(super) glob: Option<String>,
    #[serde(default)]
    pub(super) ignore_case: bool,
}

fn run_role(
    context: &mut Context<'_>,
    role: &str,
    path: &str,
    request: &impl Serialize,
) -> Result<Output, ToolError> {
    if context.workspace.place(path).0 == Place::Outside {
        return Err(ToolError::Failed(format!(
            "{path} is outside the workspace; search only looks inside"
        )));
    }
    let stdin = serde_json::to_vec(request).map_err(|e| ToolError::Failed(e.to_string()))?;
    let outcome = context.child(Program::Role { role: role.to_owned() }, stdin, None, false)?;
    roles::answer(&outcome)
}
