//! One shape for every refusal a run meets, whichever layer refused: what was
//! asked, which rule said no, and what is allowed instead. Built from evidence
//! only; an ordinary failure never becomes one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The layer that refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The action policy's own rule table.
    ActionPolicy,
    /// Landlock, seccomp or the workspace descriptor.
    Sandbox,
    /// Kernel enforcement per account.
    Leash,
    /// The inspecting proxy for model traffic.
    Muzzle,
    /// A budget of the run.
    Budget,
}

impl Layer {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ActionPolicy => "action policy",
            Self::Sandbox => "sandbox",
            Self::Leash => "leash",
            Self::Muzzle => "muzzle",
            Self::Budget => "budget",
        }
    }
}

/// A refusal a person and a model can both act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    pub layer: Layer,
    /// The account the act was refused to.
    pub subject: String,
    /// What was to be touched: a path, a command, `host:port`, a tool.
    pub object: String,
    /// Name of the rule that refused.
    pub rule: String,
    pub why: String,
    /// What is allowed instead, most useful first.
    pub alternatives: Vec<String>,
    /// The call this belongs to: the tool call's id.
    pub request_id: String,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "blocked by {} ({}): {}: {}",
            self.layer.as_str(),
            self.rule,
            self.object,
            self.why
        )?;
        for (index, alternative) in self.alternatives.iter().enumerate() {
            write!(f, "{}{alternative}", if index == 0 { ". Instead: " } else { "; or " })?;
        }
        Ok(())
    }
}
