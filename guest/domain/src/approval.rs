//! What an approval is bound to. A person approves *these* bytes: tool,
//! arguments, working directory, environment, the files a command names, the
//! policy generation. Each is digested on its own, so that a later difference
//! can be named; the digest of the list is what a decision carries.
//!
//! Reading the files is the caller's work: this module gets their digests as
//! facts and never opens anything.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::log::Call;

/// Lower-case hexadecimal SHA-256 of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|nibble| char::from_digit(u32::from(nibble), 16))
        .collect()
}

/// What one file an action names held when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFact {
    /// As written in the arguments.
    pub name: String,
    pub state: FileState,
}

/// The state of a named file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// A regular file beneath the workspace, with the SHA-256 of its bytes.
    Workspace(String),
    /// Names something outside the workspace or no regular file: not bound.
    NotBound,
}

/// Everything a decision on one call depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts<'a> {
    pub tool: &'a str,
    pub arguments: &'a serde_json::Value,
    pub cwd: &'a str,
    /// The environment a child of this tool gets, sorted by name.
    pub environment: &'a [(String, String)],
    /// Digest of authored code, where the tool is such.
    pub code: Option<&'a str>,
    pub policy_generation: u64,
    pub files: &'a [FileFact],
}

/// One thing an approval is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// `tool`, `arguments`, `cwd`, `environment`, `code`, `policy` or `file <name>`.
    pub what: String,
    pub sha256: String,
}

/// The parts of a binding and the digest over all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub parts: Vec<Bound>,
    pub not_bound: Vec<String>,
    pub digest: String,
}

/// Digests each fact and the list of them.
pub fn bind(facts: &Facts<'_>) -> Binding {
    let mut parts = Vec::new();
    let mut part = |what: &str, bytes: &[u8]| {
        parts.push(Bound { what: what.to_owned(), sha256: sha256_hex(bytes) });
    };
    part("tool", facts.tool.as_bytes());
    part("arguments", canonical_json(facts.arguments).as_bytes());
    part("cwd", facts.cwd.as_bytes());
    let environment: Vec<String> =
        facts.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    part("environment", environment.join("\0").as_bytes());
    part("code", facts.code.unwrap_or_default().as_bytes());
    part("policy", facts.policy_generation.to_string().as_bytes());
    let mut not_bound = Vec::new();
    for file in facts.files {
        match &file.state {
            FileState::Workspace(sha256) => {
                parts.push(Bound { what: format!("file {}", file.name), sha256: sha256.clone() });
            }
            FileState::NotBound => not_bound.push(file.name.clone()),
        }
    }
    let digest = digest_of(&parts);
    Binding { parts, not_bound, digest }
}

fn digest_of(parts: &[Bound]) -> String {
    // Length-prefixed, so that no two lists share an encoding.
    let mut bytes = Vec::new();
    for part in parts {
        for field in [&part.what, &part.sha256] {
            bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
            bytes.extend_from_slice(field.as_bytes());
        }
    }
    sha256_hex(&bytes)
}

/// What differs between an approved binding and the present one, in words a
/// person can act on. Empty exactly when both digests agree.
pub fn drift(approved: &[Bound], now: &Binding) -> Vec<String> {
    if digest_of(approved) == now.digest {
        return Vec::new();
    }
    let mut changes = Vec::new();
    for part in &now.parts {
        match approved.iter().find(|old| old.what == part.what) {
            Some(old) if old.sha256 == part.sha256 => {}
            Some(_) => changes.push(format!("{} changed", part.what)),
            None => changes.push(format!("{} appeared", part.what)),
        }
    }
    for old in approved {
        if !now.parts.iter().any(|part| part.what == old.what) {
            changes.push(format!("{} disappeared", old.what));
        }
    }
    if changes.is_empty() {
        changes.push("the order of bound parts changed".to_owned());
    }
    changes
}

/// JSON with object keys sorted: equal values have equal text.
pub fn canonical_json(value: &serde_json::Value) -> String {
    fn sorted(value: &serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(fields) => {
                let mut keys: Vec<&String> = fields.keys().collect();
                keys.sort();
                keys.into_iter()
                    .filter_map(|k| fields.get(k).map(|v| (k.clone(), sorted(v))))
                    .collect()
            }
            serde_json::Value::Array(items) => items.iter().map(sorted).collect(),
            scalar @ (serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_)) => scalar.clone(),
        }
    }
    sorted(value).to_string()
}

/// What kind of answer a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wants {
    /// Yes or no to an act.
    Approval,
    /// A text: the agent asked a question.
    Answer,
}

/// What a person sees before deciding. Built by the control plane alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    pub wants: Wants,
    pub call: Call,
    /// The act in one line: the command, the path, the question.
    pub summary: String,
    pub cwd: String,
    pub rule: String,
    pub why: String,
    pub policy_generation: u64,
    pub bound: Vec<Bound>,
    /// Named files whose content is not bound.
    pub not_bound: Vec<String>,
    #[serde(default)]
    pub drift: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn facts<'a>(arguments: &'a serde_json::Value, files: &'a [FileFact]) -> Facts<'a> {
        Facts {
            tool: "run_command",
            arguments,
            cwd: "/ws",
            environment: &[],
            code: None,
            policy_generation: 1,
            files,
        }
    }

    fn file(name: &str, digest: &str) -> FileFact {
        FileFact { name: name.to_owned(), state: FileState::Workspace(digest.to_owned()) }
    }

    #[test]
    fn each_field_that_drifts_is_named() {
        let arguments = json!({"command": "sh t.sh"});
        let files = [file("t.sh", "aa")];
        let approved = bind(&facts(&arguments, &files));
        let environment = [("A".to_owned(), "1".to_owned())];
        let other_arguments = json!({"command": "sh u.sh"});
        let other_files = [file("t.sh", "bb")];
        let base = facts(&arguments, &files);
        for (changed, says) in [
            (Facts { tool: "other", ..base.clone() }, "tool changed"),
            (Facts { arguments: &other_arguments, ..base.clone() }, "arguments changed"),
            (Facts { cwd: "/x", ..base.clone() }, "cwd changed"),
            (Facts { environment: &environment, ..base.clone() }, "environment changed"),
            (Facts { code: Some("c"), ..base.clone() }, "code changed"),
            (Facts { policy_generation: 2, ..base.clone() }, "policy changed"),
            (Facts { files: &other_files, ..base.clone() }, "file t.sh changed"),
            (Facts { files: &[], ..base.clone() }, "file t.sh disappeared"),
        ] {
            assert_eq!(drift(&approved.parts, &bind(&changed)), [says]);
        }
        assert!(drift(&approved.parts, &bind(&base)).is_empty());
    }

    #[test]
    fn key_order_of_arguments_does_not_matter() {
        let one = json!({"a": 1, "b": {"c": 2, "d": 3}});
        let two = json!({"b": {"d": 3, "c": 2}, "a": 1});
        assert_eq!(bind(&facts(&one, &[])).digest, bind(&facts(&two, &[])).digest);
    }

    proptest! {
        #[test]
        fn different_file_lists_never_share_a_digest(
            a in proptest::collection::vec(("[a-z ]{0,4}", "[0-9a-f]{0,4}"), 0..4),
            b in proptest::collection::vec(("[a-z ]{0,4}", "[0-9a-f]{0,4}"), 0..4),
        ) {
            let list = |v: &[(String, String)]| v.iter().map(|(n, d)| file(n, d)).collect::<Vec<_>>();
            let arguments = json!({});
            let (fa, fb) = (list(&a), list(&b));
            let (da, db) = (bind(&facts(&arguments, &fa)).digest, bind(&facts(&arguments, &fb)).digest);
            prop_assert_eq!(a == b, da == db);
        }
    }
}
