//! Pure packages decide from facts they are handed: no files, sockets, clock, randomness, environment or threads, in
//! their own sources or by way of a crate they use. Their tests may.
//!
//! What it cannot see: a path reached through a macro of another crate, and a trait method that does input or output
//! under a name of its own.

use crate::facts::{Closure, File};
use crate::source::{self, NamedPath, Token};
use std::collections::BTreeSet;
use std::path::Path;

/// The packages that are pure, with the folder of each.
pub const PURE: [(&str, &str); 3] =
    [("wire", "guard/wire"), ("detect", "guard/detect"), ("domain", "guest/domain")];

/// What a pure package names nowhere, and what it would bring in.
const FORBIDDEN_PATHS: [(&str, &str); 24] = [
    ("std::fs", "files"),
    ("std::net", "sockets"),
    ("std::env", "the environment"),
    ("std::process", "processes"),
    ("std::thread", "threads"),
    ("std::os", "the operating system"),
    ("std::io::stdin", "standard input"),
    ("std::io::stdout", "standard output"),
    ("std::io::stderr", "standard error"),
    ("std::time::SystemTime", "the clock"),
    ("std::time::Instant", "the clock"),
    ("std::hash::RandomState", "randomness"),
    ("jiff::Timestamp::now", "the clock"),
    ("jiff::Zoned::now", "the clock"),
    ("Timestamp::now", "the clock"),
    ("Zoned::now", "the clock"),
    ("SystemTime::now", "the clock"),
    ("Instant::now", "the clock"),
    ("uuid::Uuid::new_v4", "randomness"),
    ("uuid::Uuid::now_v7", "the clock and randomness"),
    ("Uuid::new_v4", "randomness"),
    ("Uuid::now_v7", "the clock and randomness"),
    ("getrandom", "randomness"),
    ("tokio", "a runtime"),
];

/// Methods of `Path` that ask the disk, recognised by their name and empty argument list.
const FORBIDDEN_METHODS: [&str; 9] = [
    "exists",
    "try_exists",
    "is_file",
    "is_dir",
    "is_symlink",
    "canonicalize",
    "symlink_metadata",
    "read_link",
    "read_dir",
];

/// Crates that no pure package is built from, directly or not.
const FORBIDDEN_CRATES: [&str; 27] = [
    "async-std",
    "axum",
    "chrono-tz",
    "fastrand",
    "getrandom",
    "hyper",
    "ignore",
    "landlock",
    "mio",
    "nix",
    "rand",
    "rand_core",
    "reqwest",
    "rusqlite",
    "rustix",
    "rustls",
    "seccompiler",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "tracing",
    "ureq",
    "uuid",
    "walkdir",
    "wait-timeout",
    "which",
];

/// What in the sources of a pure package at `folder` is not pure.
pub fn problems_in_sources(folder: &Path, files: &[File]) -> Vec<String> {
    let sources = folder.join("src");
    let ours = files
        .iter()
        .filter(|file| file.is(&["rs"]) && file.path.starts_with(&sources) && !file.is_test_code());
    ours.flat_map(|file| {
        let tokens = source::without_tests(&source::tokens(&file.text));
        let found = impure_paths(&tokens).into_iter().chain(impure_methods(&tokens));
        found
            .map(|(line, what)| {
                format!("{}:{line}: {what}; facts are arguments here", file.path.display())
            })
            .collect::<Vec<_>>()
    })
    .collect()
}

fn impure_paths(tokens: &[Token]) -> Vec<(usize, String)> {
    source::paths(tokens)
        .iter()
        .filter_map(|named| Some((named.line, what_is_wrong(named)?)))
        .collect()
}

fn what_is_wrong(named: &NamedPath) -> Option<String> {
    let path = named.path.as_str();
    if named.renamed && matches!(path, "std" | "std::time" | "std::io") {
        return Some(format!("{path} is renamed, so what is reached through it cannot be checked"));
    }
    let open = path.strip_suffix("::*").unwrap_or(path);
    let (forbidden, brings) = FORBIDDEN_PATHS.iter().find(|(forbidden, _)| {
        // A path into it, or an import of a module around it, through which it is reached unseen.
        is_beneath(path, forbidden)
            || (named.imported && is_beneath(forbidden, open) && open != "jiff" && open != "uuid")
    })?;
    Some(if is_beneath(path, forbidden) {
        format!("names {path}, which brings in {brings}")
    } else {
        format!("imports {path} whole, which reaches {forbidden} ({brings}); name what is used")
    })
}

/// Whether `path` is `whole` or lies beneath it, by segment.
fn is_beneath(path: &str, whole: &str) -> bool {
    path.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn impure_methods(tokens: &[Token]) -> Vec<(usize, String)> {
    tokens
        .windows(4)
        .filter_map(|window| match window {
            [dot, name, open, close]
                if dot.text == "." && open.text == "(" && close.text == ")" =>
            {
                let forbidden = FORBIDDEN_METHODS.contains(&name.text.as_str());
                forbidden
                    .then(|| (name.line, format!("calls .{}(), which asks the disk", name.text)))
            }
            _ => None,
        })
        .collect()
}

/// Which forbidden crates a pure package is built from, with the way to each.
pub fn problems_in_closure(package: &str, closure: &Closure) -> Vec<String> {
    ways_to(package, &FORBIDDEN_CRATES, closure)
        .into_iter()
        .map(|way| format!("{package} is pure and is built from {way}"))
        .collect()
}

/// For each of `unwanted` that `package` is built from, one way to it, as `a -> b -> c`.
pub fn ways_to(package: &str, unwanted: &[&str], closure: &Closure) -> Vec<String> {
    let mut seen = BTreeSet::from([package.to_owned()]);
    let mut waiting = vec![vec![package.to_owned()]];
    let mut found = Vec::new();
    while let Some(way) = waiting.pop() {
        let dependencies =
            way.last().and_then(|last| closure.get(last)).map_or(&[][..], Vec::as_slice);
        for dependency in dependencies {
            if !seen.insert(dependency.clone()) {
                continue;
            }
            let mut longer = way.clone();
            longer.push(dependency.clone());
            if unwanted.contains(&dependency.as_str()) {
                found.push(longer.join(" -> "));
            }
            waiting.push(longer);
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<String> {
        problems_in_sources(Path::new("guard/wire"), &[File::new("guard/wire/src/x.rs", text)])
    }

    #[test]
    fn every_forbidden_path_is_found_when_called_and_when_imported() {
        for (path, _) in FORBIDDEN_PATHS {
            assert_eq!(check(&format!("fn f() {{ {path}::g(); }}")).len(), 1, "{path} called");
            assert_eq!(check(&format!("use {path};")).len(), 1, "{path} imported");
        }
    }

    #[test]
    fn grouped_renamed_and_whole_imports_hide_nothing() {
        for text in [
            "use std::{fmt, fs::File};",
            "use std::time::{self, Duration};",
            "use std::time;",
            "use std::*;",
            "use std as s;",
        ] {
            assert_eq!(check(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn methods_that_ask_the_disk_are_found() {
        assert_eq!(check("fn f(p: &Path) -> bool { p.exists() }").len(), 1);
        assert!(check("fn f(set: &Set) -> bool { set.exists(&key) }").is_empty());
    }

    #[test]
    fn durations_paths_tests_comments_and_strings_are_no_problem() {
        let text = "use std::time::Duration; use std::path::Path; // std::fs\n const A: &str = \"std::fs\";\n\
                    #[cfg(test)] mod tests { use std::fs; }";
        assert_eq!(check(text), Vec::<String>::new());
    }

    #[test]
    fn only_the_package_itself_is_judged() {
        let files = [
            File::new("guard/muzzle/src/x.rs", "use std::fs;"),
            File::new("guard/wire/tests/x.rs", "use std::fs;"),
            File::new("guard/wire/src/sse_tests.rs", "use std::fs;"),
        ];
        assert!(problems_in_sources(Path::new("guard/wire"), &files).is_empty());
    }

    #[test]
    fn a_forbidden_crate_is_found_through_another() {
        let closure = Closure::from([
            ("wire".to_owned(), vec!["serde".to_owned(), "middle".to_owned()]),
            ("middle".to_owned(), vec!["tokio".to_owned(), "wire".to_owned()]),
        ]);
        assert_eq!(
            problems_in_closure("wire", &closure),
            ["wire is pure and is built from wire -> middle -> tokio"]
        );
    }
}
