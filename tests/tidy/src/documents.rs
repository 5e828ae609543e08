//! Links in Markdown lead somewhere: to a file of the repository, and to a heading it has.
//!
//! Addresses on the network are left alone; a test does not dial out.

use crate::facts::File;
use std::path::{Component, Path, PathBuf};

/// Links whose file, folder or heading does not exist.
pub fn problems_in_links(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is(&["md"])) {
        for (line, target) in links(&file.text) {
            if let Some(wrong) = what_is_wrong(file, &target, files) {
                problems
                    .push(format!("{}:{line}: the link to {target} {wrong}", file.path.display()));
            }
        }
    }
    problems
}

fn what_is_wrong(from: &File, target: &str, files: &[File]) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) =
        target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let Some(wanted) = resolve(&from.path, path) else {
        return Some("leaves the repository".to_owned());
    };
    let found = files.iter().find(|file| file.path == wanted);
    let is_folder = files.iter().any(|file| file.path.starts_with(&wanted));
    match (found, heading) {
        (None, _) if !is_folder => Some("leads to no file".to_owned()),
        (Some(file), Some(heading))
            if !anchors(&file.text).iter().any(|anchor| anchor == heading) =>
        {
            Some("names a heading that is not there".to_owned())
        }
        _ => None,
    }
}

/// The file a link means, relative to the root; nothing when it climbs above it.
fn resolve(from: &Path, link: &str) -> Option<PathBuf> {
    if link.is_empty() {
        return Some(from.to_path_buf());
    }
    let mut resolved = from.parent().map(Path::to_path_buf).unwrap_or_default();
    for component in Path::new(link).components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !resolved.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved)
}

/// The targets of `[text](target)` with their lines, code left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose_lines(text) {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let target = after
                .split(')')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .next()
                .unwrap_or_default();
            found.push((number, target.to_owned()));
            rest = after;
        }
    }
    found
}

/// The lines outside code blocks, numbered from 1, with code spans emptied.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let mut kept = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            kept.push((at + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("``")));
        }
    }
    kept
}

/// The anchors of a document's headings, as GitHub forms them.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let title = line.trim_start_matches('#');
        if in_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title
            .trim()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let anchor = anchor.to_lowercase();
        let times = found.iter().filter(|earlier| **earlier == anchor).count();
        found.push(if times == 0 { anchor } else { format!("{anchor}-{times}") });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<String> {
        problems_in_links(&[
            File::new("docs/a.md", text),
            File::new("docs/b.md", "# One `thing`, two\n"),
            File::new("README.md", ""),
            File::new("src/lib.rs", ""),
        ])
    }

    #[test]
    fn links_to_files_folders_and_headings_that_exist_are_fine() {
        let text = "# Here\n[a](b.md) [b](../README.md) [c](../src/) [d](b.md#one-thing-two) [e](#here) [f](https://x.example/y)";
        assert_eq!(check(text), Vec::<String>::new());
    }

    #[test]
    fn a_missing_file_heading_or_a_way_out_is_found() {
        for text in [
            "[a](c.md)",
            "[a](b.md#three)",
            "[a](#three)",
            "[a](../../x)",
            "[a](/etc/passwd)",
            "x\n\n[a](b.md) [b](c.md)",
        ] {
            assert_eq!(check(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn code_is_not_prose() {
        assert!(check("`[a](c.md)`\n```\n[a](c.md)\n```\n").is_empty());
    }
}
