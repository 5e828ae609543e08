//! The files an action names, and what they hold now. Worker and control plane
//! look with the same eyes, so that an approval's binding can be compared.

use std::os::fd::BorrowedFd;
use std::path::Path;

use domain::approval::{FileFact, FileState};
use domain::words::candidate_words;
use serde_json::Value;

use crate::{beneath, limits};

/// Names in `arguments` that could be files, each with the digest of the
/// regular workspace file it names, or as not bound where it points elsewhere.
///
/// `workspace` is open, `path` is its absolute path. A word of a command that
/// names nothing at all is left out; the program of a command and every
/// absolute or escaping path is listed as not bound.
pub fn named_files(
    workspace: BorrowedFd<'_>,
    path: &Path,
    tool: &str,
    arguments: &Value,
) -> Vec<FileFact> {
    let mut facts: Vec<FileFact> = Vec::new();
    for (index, name) in names(tool, arguments).into_iter().enumerate() {
        if facts.iter().any(|fact| fact.name == name) {
            continue;
        }
        let inside = Path::new(&name).strip_prefix(path).unwrap_or(Path::new(&name));
        let digest = beneath::workspace_digest(workspace, inside, limits::BOUND_FILE_BYTES);
        let elsewhere = inside.is_absolute() || name.split('/').any(|part| part == "..");
        match digest {
            Some(sha256) => facts.push(FileFact { name, state: FileState::Workspace(sha256) }),
            None if elsewhere || (index == 0 && tool == "run_command") => {
                facts.push(FileFact { name, state: FileState::NotBound });
            }
            None => {}
        }
    }
    facts
}

fn names(tool: &str, arguments: &Value) -> Vec<String> {
    if tool == "run_command" {
        return arguments
            .get("command")
            .and_then(Value::as_str)
            .map(candidate_words)
            .unwrap_or_default();
    }
    let path = arguments.get("path").and_then(Value::as_str);
    path.map(str::to_owned).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::fd::AsFd as _;

    #[test]
    fn workspace_files_of_a_command_are_bound_and_programs_are_shown_as_not_bound() {
        let temp = tempfile::tempdir().unwrap();
        let mut file = std::fs::File::create(temp.path().join("t.sh")).unwrap();
        std::io::Write::write_all(&mut file, b"echo").unwrap();
        let dir = beneath::open_dir(temp.path()).unwrap();
        let facts = |command: &str| {
            named_files(dir.as_fd(), temp.path(), "run_command", &json!({"command": command}))
                .into_iter()
                .map(|fact| (fact.name, fact.state != FileState::NotBound))
                .collect::<Vec<_>>()
        };
        assert_eq!(facts("sh t.sh nothing"), [("sh".to_owned(), false), ("t.sh".to_owned(), true)]);
        assert_eq!(
            facts("./t.sh && cat ../x"),
            [("./t.sh".to_owned(), true), ("../x".to_owned(), false)]
        );
        let absolute = format!("{}/t.sh", temp.path().display());
        assert_eq!(facts(&absolute), [(absolute.clone(), true)]);
    }
}
