//! `sentinel.yaml`: the deployment's own settings. A person writes it, so an
//! unknown key or a wrong value is an error that names line, key and remedy,
//! and an insecure production configuration is refused at load.

use serde::{Deserialize, Serialize};

use crate::id::AgentName;

/// The security level the deployment declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentProfile {
    /// Missing controls are shown, not refused.
    #[default]
    Development,
    /// Every control must be active or no run starts.
    Production,
    /// Production, and no network remotes.
    Airgapped,
}

impl DeploymentProfile {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::Production => "production",
            Self::Airgapped => "airgapped",
        }
    }

    /// Whether a run may only start with every control active.
    pub fn is_strict(self) -> bool {
        self != Self::Development
    }
}

impl std::str::FromStr for DeploymentProfile {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Development, Self::Production, Self::Airgapped]
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no profile: development, production or airgapped"))
    }
}

/// What happens to an action that cannot be recorded in the audit trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnWriteFailure {
    #[default]
    Refuse,
    Allow,
}

/// The whole of `sentinel.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub profile: DeploymentProfile,
    /// The head agent.
    pub default_agent: AgentName,
    /// Landlock and seccomp around every tool.
    pub fs_sandbox: bool,
    pub allow_cli_runtime: bool,
    pub context: Context,
    pub on_write_failure: OnWriteFailure,
}

/// `context:` in `sentinel.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Context {
    /// Estimated tokens of a transcript above which older turns are summarised.
    pub compact_threshold_tokens: u64,
}

impl Default for Context {
    fn default() -> Self {
        Self { compact_threshold_tokens: 24_000 }
    }
}

/// Name of the head agent until somebody chose one.
pub const FIRST_AGENT: &str = "naomi";

impl Default for Config {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "a constant, checked by a test")]
        let default_agent = AgentName::new(FIRST_AGENT).expect("a valid constant");
        Self {
            profile: DeploymentProfile::default(),
            default_agent,
            fs_sandbox: true,
            allow_cli_runtime: false,
            context: Context::default(),
            on_write_failure: OnWriteFailure::default(),
        }
    }
}

/// Something wrong with a file a person wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// 1-based; `None` where the parser could not tell.
    pub line: Option<usize>,
    pub what: String,
    pub remedy: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// Turns a parser's complaint into a [`Problem`].
pub(crate) fn yaml_problem(error: &serde_yaml::Error, remedy: &str) -> Problem {
    let line = error.location().map(|place| place.line());
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
    Problem { line, what, remedy: remedy.to_owned() }
}

/// The 1-based line on which the top-level `key` stands.
fn line_of(text: &str, key: &str) -> Option<usize> {
    text.lines()
        .position(|line| {
            line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
        .map(|index| index + 1)
}

/// Reads `sentinel.yaml`. Empty text gives the defaults.
///
/// # Errors
/// Every problem found, with its line.
pub fn parse_config(text: &str) -> Result<Config, Vec<Problem>> {
    let keys = "known keys: profile, default_agent, fs_sandbox, allow_cli_runtime, context.compact_threshold_tokens, on_write_failure";
    let config: Config = if text.trim().is_empty() {
        Config::default()
    } else {
        serde_yaml::from_str(text).map_err(|e| vec![yaml_problem(&e, keys)])?
    };
    let mut problems = Vec::new();
    if config.profile.is_strict() && !config.fs_sandbox {
        problems.push(Problem {
            line: line_of(text, "fs_sandbox"),
            what: format!(
                "fs_sandbox: false is not allowed with profile: {}",
                config.profile.as_str()
            ),
            remedy: "remove the line, or use profile: development".to_owned(),
        });
    }
    if config.context.compact_threshold_tokens == 0 {
        problems.push(Problem {
            line: line_of(text, "context"),
            what: "context.compact_threshold_tokens is 0".to_owned(),
            remedy: "give the number of tokens the model can hold, such as 24000".to_owned(),
        });
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_gives_the_defaults() {
        let config = parse_config("").unwrap();
        assert_eq!(config.profile, DeploymentProfile::Development);
        assert_eq!(config.default_agent.as_str(), "naomi");
        assert!(config.fs_sandbox);
        assert_eq!(parse_config("# only a comment\n").unwrap(), config);
    }

    #[test]
    fn the_reference_key_names_are_read() {
        let text = "profile: production\ndefault_agent: coder\nfs_sandbox: true\nallow_cli_runtime: true\ncontext:\n  compact_threshold_tokens: 9000\non_write_failure: allow\n";
        let config = parse_config(text).unwrap();
        assert_eq!(config.context.compact_threshold_tokens, 9_000);
        assert_eq!(config.on_write_failure, OnWriteFailure::Allow);
    }

    #[test]
    fn problems_name_their_line() {
        for (text, line, says) in [
            ("profile: development\nfs_sandbx: true\n", 2, "fs_sandbx"),
            ("profile: prod\n", 1, "prod"),
            ("\n\nfs_sandbox: maybe\n", 3, "fs_sandbox"),
            ("profile: production\nfs_sandbox: false\n", 2, "not allowed"),
            ("default_agent: Naomi Smith\n", 1, "agent name"),
            ("context:\n  compact_threshold_tokens: 0\n", 1, "is 0"),
        ] {
            let problems = parse_config(text).unwrap_err();
            assert_eq!(problems[0].line, Some(line), "{text:?}: {problems:?}");
            assert!(problems[0].to_string().contains(says), "{}", problems[0]);
        }
    }
}
