//! The built-in tools. One row of [`TOOLS`] per tool: name, what the model is
//! told, its argument schema, how the action policy sees it, and the function
//! that runs it. File tools run in the worker beneath the workspace
//! descriptor; everything that starts a program or opens a socket runs as a
//! tool child of the tool host.
//!
//! To add one: a file here, a row below, and its name in
//! `domain::profile::TOOLS`.

mod command;
mod fetch;
mod files;
mod interact;
mod roles;
mod search;

use std::path::PathBuf;

use domain::action::Act;
use domain::denial::{Denial, Layer};
use domain::log::Change;
use domain::record::RunRecord;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::WorkerHalf;

use crate::host::{ChildOutcome, ChildSpec, EndedBy, HostError, Limits, Program, ToolHost};
use crate::limits;
use crate::sandbox::ChildGrants;
use crate::workspace::{PathError, Workspace};

pub use roles::run_tool_role;

/// What a tool needs to run.
pub(crate) struct Context<'a> {
    pub(crate) record: &'a RunRecord,
    pub(crate) workspace: &'a Workspace,
    pub(crate) half: &'a WorkerHalf,
    pub(crate) host: &'a mut ToolHost,
    /// The id of the call, for denials.
    pub(crate) call: &'a str,
}

/// What a tool gives back.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) text: String,
    pub(crate) changes: Vec<Change>,
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self { text, changes: Vec::new() }
    }
}

/// Why a tool gave nothing.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// An ordinary failure, in words for the model.
    Failed(String),
    /// A guard refused, proven by the tool's own errno.
    Denied(Box<Denial>),
    /// The store failed: the run cannot go on.
    Store(store::StoreError),
}

impl From<store::StoreError> for ToolError {
    fn from(error: store::StoreError) -> Self {
        Self::Store(error)
    }
}

/// A row of the table.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) schema: fn() -> Value,
    /// Changes nothing: run again after a crash without asking.
    pub(crate) reads_only: bool,
    /// What the call would do; fails when the arguments do not fit.
    pub(crate) act: fn(&Workspace, &Value) -> Result<Act, String>,
    pub(crate) run: fn(&mut Context<'_>, &Value) -> Result<Output, ToolError>,
}

/// Every built-in tool.
pub(crate) const TOOLS: &[Tool] = &[
    files::READ_FILE,
    files::WRITE_FILE,
    files::EDIT_FILE,
    files::LIST_DIR,
    search::GLOB,
    search::SEARCH,
    command::RUN_COMMAND,
    command::FETCH_URL,
    interact::ASK_USER,
    interact::TASK_LIST,
];

/// The row of that name.
pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Arguments as a tool's own type, or a correction the model can act on.
pub(crate) fn arguments<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|e| format!("the arguments do not fit: {e}"))
}

pub(crate) fn parsed<T: DeserializeOwned>(value: &Value) -> Result<T, ToolError> {
    arguments(value).map_err(ToolError::Failed)
}

impl Context<'_> {
    /// A failure of the workspace: a denial where the kernel proved that the
    /// path leads out, an ordinary failure otherwise.
    pub(crate) fn path_error(&self, error: PathError) -> ToolError {
        match error {
            PathError::LeadsOut { path } => ToolError::Denied(Box::new(Denial {
                layer: Layer::Sandbox,
                subject: self.record.subject.as_str().to_owned(),
                object: path,
                rule: "workspace.beneath".to_owned(),
                why: "the path leads out of the workspace through a link or `..`".to_owned(),
                alternatives: vec!["use a path in the workspace".to_owned()],
                request_id: self.call.to_owned(),
            })),
            error @ (PathError::Unfit { .. } | PathError::Io { .. }) => {
                ToolError::Failed(error.to_string())
            }
        }
    }

    /// Runs a program as a tool child in the workspace.
    pub(crate) fn child(
        &mut self,
        program: Program,
        stdin: Vec<u8>,
        deadline: Option<std::time::Duration>,
        network: bool,
    ) -> Result<ChildOutcome, ToolError> {
        let grants = &self.record.grants;
        let spec = ChildSpec {
            program,
            cwd: self.workspace.path().to_owned(),
            env: self.record.tool_environment(),
            stdin,
            grants: ChildGrants {
                read: grants.read.iter().map(PathBuf::from).collect(),
                tcp_ports: grants.tcp_ports.clone(),
                network: network && !grants.tcp_ports.is_empty(),
                unix_sockets: grants.unix_sockets,
                ..ChildGrants::new(self.workspace.path().to_owned(), PathBuf::from("/tmp"))
            },
            limits: Limits {
                deadline: deadline.unwrap_or(limits::TOOL_DEADLINE),
                grace: limits::TOOL_GRACE,
                output: limits::TOOL_OUTPUT_BYTES,
                cpu_seconds: limits::TOOL_CPU_SECONDS,
                processes: limits::TOOL_PROCESSES,
                open_files: limits::TOOL_OPEN_FILES,
                file_size: limits::TOOL_FILE_BYTES,
            },
        };
        self.host.run(&spec).map_err(|error| {
            let lost = matches!(
                error,
                HostError::Gone
                    | HostError::Unresponsive
                    | HostError::Protocol { .. }
                    | HostError::StillAlive { .. }
            );
            if lost {
                // What the child did is not known: the worker ends, is launched
                // again, and records the call's outcome as unknown.
                ToolError::Store(tool_host_gone(self.workspace, &error.to_string()))
            } else {
                ToolError::Failed(error.to_string())
            }
        })
    }
}

/// The tool host cannot be used any more; the worker cannot go on.
pub(crate) fn tool_host_gone(workspace: &Workspace, why: &str) -> store::StoreError {
    store::StoreError::Foreign {
        path: workspace.path().to_owned(),
        what: format!("the tool host is unusable: {why}"),
    }
}

/// Why a child's end is an error for the model, whatever it printed; `None`
/// when it ended by itself.
pub(crate) fn ended_early(ended_by: EndedBy, deadline: std::time::Duration) -> Option<String> {
    match ended_by {
        EndedBy::Itself => None,
        EndedBy::Deadline => Some(format!("it was stopped after {} seconds", deadline.as_secs())),
        EndedBy::OutputCap => Some(format!(
            "it was stopped after {} bytes of output; what follows is not all of it",
            limits::TOOL_OUTPUT_BYTES
        )),
        EndedBy::CpuCeiling => {
            Some(format!("it was stopped after {} CPU seconds", limits::TOOL_CPU_SECONDS))
        }
        EndedBy::ProcessCeiling => {
            Some(format!("it was stopped at {} processes", limits::TOOL_PROCESSES))
        }
        EndedBy::Cancelled => Some("it was stopped because the run was cancelled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_can_grant_each_tool_and_no_other() {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names, domain::profile::TOOLS);
    }
}
