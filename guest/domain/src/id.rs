//! Identifiers that become path components, account names or log fields.
//! Each is checked once, on construction; a value of these types is safe to
//! join to a directory. Nothing here draws random ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits;

/// Why a text is no identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{what} is empty")]
    Empty { what: &'static str },
    #[error("{what} {value:?} is longer than {limit} bytes")]
    TooLong { what: &'static str, value: String, limit: usize },
    #[error("{what} {value:?} may not hold {bad:?}; allowed are {allowed}")]
    BadCharacter { what: &'static str, value: String, bad: char, allowed: &'static str },
    #[error("{what} {value:?} may not start with {bad:?}")]
    BadStart { what: &'static str, value: String, bad: char },
}

fn checked(
    what: &'static str,
    value: &str,
    limit: usize,
    allowed: &'static str,
    accepts: impl Fn(char) -> bool,
) -> Result<(), IdError> {
    if value.is_empty() {
        return Err(IdError::Empty { what });
    }
    if value.len() > limit {
        let value: String = value.chars().take(limit).collect();
        return Err(IdError::TooLong { what, value, limit });
    }
    match value.chars().find(|c| !accepts(*c)) {
        Some(bad) => Err(IdError::BadCharacter { what, value: value.to_owned(), bad, allowed }),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl $name {
            /// The checked text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(value: &str) -> Result<Self, IdError> {
                Self::new(value)
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(value: String) -> Result<Self, IdError> {
                Self::new(&value)
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }
    };
}

/// A run: one safe path component. New ids are UUIDs; shorter ones written by
/// older versions stay valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    pub fn new(value: &str) -> Result<Self, IdError> {
        checked("run id", value, limits::RUN_ID_BYTES, "letters, digits, '-', '_' and '.'", |c| {
            c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
        })?;
        match value.chars().next() {
            Some(bad @ ('.' | '-')) => {
                Err(IdError::BadStart { what: "run id", value: value.to_owned(), bad })
            }
            _ => Ok(Self(value.to_owned())),
        }
    }
}
text_id!(RunId);

/// An agent's name in lower case: file name, half of its account name, `@name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentName(String);

impl AgentName {
    pub fn new(value: &str) -> Result<Self, IdError> {
        let what = "agent name";
        checked(what, value, limits::AGENT_SLUG_BYTES, "a-z, 0-9, '_' and '-'", |c| {
            c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-')
        })?;
        match value.chars().next() {
            Some(bad) if !bad.is_ascii_lowercase() && bad != '_' => {
                Err(IdError::BadStart { what, value: value.to_owned(), bad })
            }
            _ => Ok(Self(value.to_owned())),
        }
    }

    /// A slug of a display name: lower case, everything else becomes `_`.
    ///
    /// `Ms. Naomi` becomes `ms__naomi`; a name with no letter is refused.
    pub fn from_display(display: &str) -> Result<Self, IdError> {
        let slug: String = display
            .trim()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
            .collect();
        Self::new(slug.trim_matches('_'))
    }
}
text_id!(AgentName);

/// The Linux account a run belongs to: the head's own name, or `leash-<agent>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subject(String);

impl Subject {
    pub fn new(value: &str) -> Result<Self, IdError> {
        AgentName::new(value.strip_prefix("leash-").unwrap_or(value))?;
        Ok(Self(value.to_owned()))
    }

    /// The account of `agent`: the head agent's is its own name.
    pub fn of(agent: &AgentName, head: &AgentName) -> Self {
        if agent == head { Self(agent.0.clone()) } else { Self(format!("leash-{agent}")) }
    }

    /// The agent this account belongs to.
    pub fn agent(&self) -> &str {
        self.0.strip_prefix("leash-").unwrap_or(&self.0)
    }
}
text_id!(Subject);

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_that_are_paths_are_refused() {
        for bad in ["", ".", "..", "../x", "a/b", "/abs", "a\0b", "-rf", ".hidden", "a b", "é"] {
            assert!(RunId::new(bad).is_err(), "{bad:?} was accepted");
        }
        for good in ["a1b2", "5f0c1e9e-7c0a-4c5e-9d5e-0a1b2c3d4e5f", "run.1"] {
            assert_eq!(RunId::new(good).unwrap().as_str(), good);
        }
        assert!(RunId::new(&"x".repeat(65)).is_err());
    }

    #[test]
    fn serde_refuses_what_new_refuses() {
        assert!(serde_json::from_str::<RunId>("\"../x\"").is_err());
        assert!(serde_json::from_str::<Subject>("\"Root\"").is_err());
    }

    #[test]
    fn the_head_runs_under_its_own_name_and_others_under_leash() {
        let head = AgentName::new("naomi").unwrap();
        let other = AgentName::new("coder").unwrap();
        assert_eq!(Subject::of(&head, &head).as_str(), "naomi");
        assert_eq!(Subject::of(&other, &head).as_str(), "leash-coder");
        assert_eq!(Subject::new("leash-coder").unwrap().agent(), "coder");
    }

    #[test]
    fn display_names_become_slugs() {
        assert_eq!(AgentName::from_display("Naomi").unwrap().as_str(), "naomi");
        assert_eq!(AgentName::from_display(" Ms. Naomi ").unwrap().as_str(), "ms__naomi");
        assert!(AgentName::from_display("!!!").is_err());
        assert!(AgentName::new(&"a".repeat(27)).is_err());
    }
}
