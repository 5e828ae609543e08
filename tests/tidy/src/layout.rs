//! How files look: each opens with what it is for, is named for what it is, leaves nothing to do later, and holds no
//! unsafe code outside a `sys` folder.

use crate::facts::File;
use crate::source;
use std::path::Path;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] =
    ["manager", "managers", "helper", "helpers", "util", "utils", "common", "misc"];

/// Marks of work put off. In two halves, so that this file does not carry them.
const POSTPONED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Rust files that do not open with `//!`.
pub fn problems_in_openings(files: &[File]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.is(&["rs"]));
    rust.filter(|file| !file.text.starts_with("//!"))
        .map(|file| {
            format!(
                "{}: does not open with `//!`, what it is for and what it does not do",
                file.path.display()
            )
        })
        .collect()
}

/// Files and folders whose name, or a word of it, says nothing.
pub fn problems_in_names(files: &[File]) -> Vec<String> {
    let empty = |path: &Path| {
        path.iter().filter_map(|component| component.to_str()).find_map(|component| {
            let stem = component.split('.').next().unwrap_or(component);
            let mut words = stem.split(['_', '-']);
            words
                .find(|word| EMPTY_NAMES.contains(&word.to_lowercase().as_str()))
                .map(str::to_owned)
        })
    };
    files
        .iter()
        .filter_map(|file| {
            Some(format!(
                "{}: `{}` does not say what a thing is",
                file.path.display(),
                empty(&file.path)?
            ))
        })
        .collect()
}

/// Lines that put work off. An issue is where that goes.
pub fn problems_in_marks(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| !file.is(&["lock", "json", "jsonl"])) {
        for (number, line) in file.text.lines().enumerate() {
            let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            if let Some(mark) = words.find(|word| POSTPONED.contains(word)) {
                problems.push(format!(
                    "{}:{}: {mark}; file an issue instead",
                    file.path.display(),
                    number + 1
                ));
            }
        }
    }
    problems
}

/// Unsafe code, or leave for it, outside a `sys` folder.
pub fn problems_in_unsafe_code(files: &[File]) -> Vec<String> {
    let in_sys = |path: &Path| {
        path.parent().is_some_and(|folder| folder.iter().any(|component| component == "sys"))
    };
    let outside = files.iter().filter(|file| file.is(&["rs"]) && !in_sys(&file.path));
    outside
        .flat_map(|file| {
            let tokens = source::tokens(&file.text);
            let found = tokens
                .into_iter()
                .filter(|token| matches!(token.text.as_str(), "unsafe" | "unsafe_code"));
            found
                .map(|token| {
                    format!(
                        "{}:{}: `{}` outside a sys folder",
                        file.path.display(),
                        token.line,
                        token.text
                    )
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rust_file_that_opens_with_anything_else_is_found() {
        let files = [
            File::new("a.rs", "use b;\n//! late"),
            File::new("b.rs", "//! first\n"),
            File::new("c.sh", "#!/bin/sh"),
        ];
        assert_eq!(problems_in_openings(&files).len(), 1);
    }

    #[test]
    fn empty_names_are_found_as_files_folders_and_words() {
        for path in [
            "src/util.rs",
            "src/helpers/mod.rs",
            "src/run_manager.rs",
            "tests/common/mod.rs",
            "web/utils.ts",
        ] {
            assert_eq!(problems_in_names(&[File::new(path, "")]).len(), 1, "{path}");
        }
        for path in ["src/utility_bill.rs", "src/commons.rs", "src/management.rs"] {
            assert!(problems_in_names(&[File::new(path, "")]).is_empty(), "{path}");
        }
    }

    #[test]
    fn marks_of_postponed_work_are_found_as_whole_words() {
        for mark in POSTPONED {
            let text = format!("fn a() {{}}\n// {mark}(me): later\n");
            assert_eq!(problems_in_marks(&[File::new("a.rs", &text)]).len(), 1);
            assert!(problems_in_marks(&[File::new("a.rs", &format!("MY{mark}S"))]).is_empty());
        }
        assert!(problems_in_marks(&[File::new("a.rs", "the todo tool")]).is_empty());
    }

    #[test]
    fn unsafe_code_is_found_anywhere_but_in_sys() {
        let text = "//! x\nfn a() { unsafe { b() } }";
        assert_eq!(
            problems_in_unsafe_code(&[File::new("worker/src/run.rs", text)]),
            ["worker/src/run.rs:2: `unsafe` outside a sys folder"]
        );
        assert_eq!(problems_in_unsafe_code(&[File::new("worker/src/sys.rs", text)]).len(), 1);
        assert!(problems_in_unsafe_code(&[File::new("worker/src/sys/clone.rs", text)]).is_empty());
        assert!(
            problems_in_unsafe_code(&[File::new(
                "worker/src/run.rs",
                "// unsafe\nlet a = \"unsafe\";"
            )])
            .is_empty()
        );
    }

    #[test]
    fn leave_for_unsafe_code_outside_sys_is_found() {
        let text = "#![expect(unsafe_code, reason = \"x\")]";
        assert_eq!(problems_in_unsafe_code(&[File::new("worker/src/lib.rs", text)]).len(), 1);
    }
}
