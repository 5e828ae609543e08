//! Agent profiles (`agents/<name>.yaml` with `<name>.soul.md` beside it) and
//! model aliases (`models.json`). Both are snapshotted into `run.json` when a
//! run is created; a later edit never changes a run under way.

use serde::{Deserialize, Serialize};

use crate::config::{Problem, yaml_problem};
use crate::record::{Budgets, Provider};

/// Tools an agent has unless its profile says otherwise.
pub const DEFAULT_TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "list_dir",
    "glob",
    "search",
    "run_command",
    "ask_user",
    "todo",
];

/// Every built-in tool.
pub const TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "list_dir",
    "glob",
    "search",
    "run_command",
    "fetch_url",
    "ask_user",
    "todo",
];

/// A plain agent profile.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentProfile {
    /// The name as people write it.
    pub display_name: String,
    /// A model alias; empty means the first one configured.
    pub model: String,
    /// Granted tools; `None` means [`DEFAULT_TOOLS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// TCP ports tool children may connect to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tcp_ports: Vec<u16>,
    /// Extra directories readable and executable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Allow unix sockets to tools. Any one of them can leave the sandbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unix_sockets: bool,
    /// Absolute path of a workspace elsewhere; empty means the agent's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Budgets>,
}

impl AgentProfile {
    /// The granted tools by name.
    pub fn granted_tools(&self) -> Vec<String> {
        match &self.tools {
            Some(tools) => tools.clone(),
            None => DEFAULT_TOOLS.iter().map(|t| (*t).to_owned()).collect(),
        }
    }
}

/// Reads an agent profile.
pub fn parse_profile(text: &str) -> Result<AgentProfile, Vec<Problem>> {
    if text.trim().is_empty() {
        return Ok(AgentProfile::default());
    }
    let profile: AgentProfile = serde_yaml::from_str(text).map_err(|e| {
        vec![yaml_problem(&e, "known keys: display_name, model, tools, tcp_ports, read, unix_sockets, workspace, budgets")]
    })?;
    let line_of = |needle: &str| text.lines().position(|l| l.contains(needle)).map(|i| i + 1);
    let mut problems = Vec::new();
    for tool in profile.tools.iter().flatten() {
        if !TOOLS.contains(&tool.as_str()) {
            problems.push(Problem {
                line: line_of(tool),
                what: format!("there is no tool named {tool:?}"),
                remedy: format!("tools are {}", TOOLS.join(", ")),
            });
        }
    }
    let paths =
        profile.read.iter().chain(std::iter::once(&profile.workspace).filter(|w| !w.is_empty()));
    for path in paths {
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            problems.push(Problem {
                line: line_of(path),
                what: format!("{path:?} is no absolute path without `..`"),
                remedy: "write the whole path from /".to_owned(),
            });
        }
    }
    if problems.is_empty() { Ok(profile) } else { Err(problems) }
}

/// One model alias. Keys never stand here: they belong to Muzzle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// The alias people use.
    pub name: String,
    pub provider: Provider,
    /// Scheme, host and port, and a path prefix where the provider has one.
    pub base_url: String,
    /// The provider's own name for the model.
    pub model: String,
    /// Who set it up; empty means nobody's.
    #[serde(default)]
    pub owner: String,
}

/// `models.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Models {
    pub version: u32,
    pub models: Vec<ModelRecord>,
}

impl Default for Models {
    fn default() -> Self {
        Self { version: 1, models: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tool_names_line_and_the_known_ones() {
        let problems = parse_profile("model: small\ntools:\n  - read_file\n  - fly\n").unwrap_err();
        assert_eq!(problems[0].line, Some(4));
        assert!(problems[0].to_string().contains("\"fly\""));
        assert!(problems[0].remedy.contains("run_command"));
    }

    #[test]
    fn a_relative_grant_is_refused() {
        assert!(parse_profile("read: [../x]\n").is_err());
        assert!(parse_profile("workspace: /srv/../etc\n").is_err());
        assert!(parse_profile("workspace: /srv/agents\n").is_ok());
    }

    #[test]
    fn defaults_grant_no_network() {
        let profile = parse_profile("").unwrap();
        assert!(!profile.granted_tools().iter().any(|t| t == "fetch_url"));
        assert!(profile.tcp_ports.is_empty() && !profile.unix_sockets);
    }
}
