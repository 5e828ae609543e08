//! Numeric ceilings: a crate has them in one module named `limits`, and ARCHITECTURE.md shows them all in one table,
//! written from those modules.
//!
//! A ceiling is a constant whose name begins or ends with a word of [`CEILING_WORDS`]. A crate without a `limits`
//! module is not judged.

use crate::facts::File;
use crate::source::{self, Token};
use std::path::{Path, PathBuf};

/// Words at the edge of a constant's name that make it a ceiling.
const CEILING_WORDS: [&str; 7] = ["MAX", "LIMIT", "CEILING", "CAP", "DEADLINE", "TIMEOUT", "GRACE"];

/// Ceilings declared outside the `limits` module of a crate that has one, and crates with more than one such module.
pub fn problems(crate_folder: &Path, files: &[File]) -> Vec<String> {
    let sources: Vec<&File> = sources_of(crate_folder, files).collect();
    let (modules, others): (Vec<&File>, Vec<&File>) =
        sources.into_iter().partition(|file| is_limits(&file.path));
    let Some(module) = modules.first() else { return Vec::new() };
    let mut problems = Vec::new();
    if modules.len() > 1 {
        problems.push(format!(
            "{}: has {} modules named limits; one is enough",
            crate_folder.display(),
            modules.len()
        ));
    }
    for file in others {
        let tokens = source::without_tests(&source::tokens(&file.text));
        for (name, line) in constants(&tokens).into_iter().filter(|(name, _)| is_ceiling(name)) {
            problems.push(format!(
                "{}:{line}: the ceiling {name} belongs in {}",
                file.path.display(),
                module.path.display()
            ));
        }
    }
    problems
}

fn sources_of<'files>(
    crate_folder: &Path,
    files: &'files [File],
) -> impl Iterator<Item = &'files File> {
    let folder = crate_folder.join("src");
    files.iter().filter(move |file| {
        file.is(&["rs"]) && file.path.starts_with(&folder) && !file.is_test_code()
    })
}

fn is_limits(path: &Path) -> bool {
    path.ends_with("limits.rs") || path.ends_with("limits/mod.rs")
}

fn is_ceiling(name: &str) -> bool {
    let mut words = name.split('_');
    let first = words.next().unwrap_or(name);
    let last = words.next_back().unwrap_or(first);
    CEILING_WORDS.contains(&first) || CEILING_WORDS.contains(&last)
}

/// The names and lines of the constants declared in these tokens.
fn constants(tokens: &[Token]) -> Vec<(String, usize)> {
    let declared = tokens.windows(3).filter_map(|window| match window {
        [keyword, name, colon]
            if matches!(keyword.text.as_str(), "const" | "static") && colon.text == ":" =>
        {
            Some((name.text.clone(), name.line))
        }
        _ => None,
    });
    declared.collect()
}

/// One ceiling as the table shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    pub package: String,
    pub name: String,
    pub value: String,
    /// The first paragraph of its documentation.
    pub about: String,
}

/// The documented constants of one `limits` module, in the order they stand there.
pub fn read(package: &str, text: &str) -> Vec<Ceiling> {
    let mut about = Vec::new();
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("///") {
            about.push(comment.trim());
            continue;
        }
        if let Some((name, value)) = read_constant(line, &mut lines) {
            let first: Vec<&str> =
                about.iter().copied().take_while(|line| !line.is_empty()).collect();
            found.push(Ceiling {
                package: package.to_owned(),
                name,
                value,
                about: first.join(" "),
            });
        }
        if !line.starts_with("#[") {
            about.clear();
        }
    }
    found
}

fn read_constant<'text>(
    line: &'text str,
    following: &mut impl Iterator<Item = &'text str>,
) -> Option<(String, String)> {
    let declaration =
        line.strip_prefix("pub const ").or_else(|| line.strip_prefix("pub(crate) const "))?;
    let (name, rest) = declaration.split_once(':')?;
    let mut whole = rest.to_owned();
    while !whole.trim_end().ends_with(';') {
        whole.push(' ');
        whole.push_str(following.next()?);
    }
    let (_, value) = whole.split_once('=')?;
    Some((name.trim().to_owned(), value.trim().trim_end_matches(';').trim().to_owned()))
}

/// The table of every ceiling, for packages given as (name, folder).
pub fn table(packages: &[(String, PathBuf)], files: &[File]) -> String {
    let head = ["| crate | ceiling | value | of what |".to_owned(), "|---|---|---|---|".to_owned()];
    let rows = packages.iter().flat_map(|(package, folder)| ceilings(package, folder, files)).map(
        |ceiling| {
            let Ceiling { package, name, value, about } = ceiling;
            format!("| `{package}` | `{name}` | `{value}` | {} |", about.replace('|', "\\|"))
        },
    );
    head.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

fn ceilings(package: &str, folder: &Path, files: &[File]) -> Vec<Ceiling> {
    let modules = sources_of(folder, files).filter(|file| is_limits(&file.path));
    modules.flat_map(|file| read(package, &file.text)).collect()
}

/// Ceilings the table would show without a word on what they bound.
pub fn undocumented(packages: &[(String, PathBuf)], files: &[File]) -> Vec<String> {
    let all = packages.iter().flat_map(|(package, folder)| ceilings(package, folder, files));
    all.filter(|ceiling| ceiling.about.is_empty())
        .map(|ceiling| {
            format!("{}: the ceiling {} does not say what it bounds", ceiling.package, ceiling.name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "//! x\n\n/// Bytes of one frame.\n///\n/// More.\npub const FRAME_MAX: usize = 64 * 1024;\n\n/// Waited\n/// for an end.\npub const STOP_GRACE: Duration =\n    Duration::from_secs(5);\n";

    #[test]
    fn a_ceiling_outside_the_module_is_found() {
        let files = [
            File::new("a/src/limits.rs", LIMITS),
            File::new("a/src/b.rs", "const MAX_ROWS: usize = 3; const MAXIMAL: u8 = 1;"),
        ];
        assert_eq!(
            problems(Path::new("a"), &files),
            ["a/src/b.rs:1: the ceiling MAX_ROWS belongs in a/src/limits.rs"]
        );
    }

    #[test]
    fn a_crate_without_the_module_is_not_judged_and_two_modules_are_one_too_many() {
        assert!(
            problems(Path::new("a"), &[File::new("a/src/b.rs", "const MAX_ROWS: usize = 3;")])
                .is_empty()
        );
        let files = [File::new("a/src/limits.rs", LIMITS), File::new("a/src/b/limits.rs", LIMITS)];
        assert_eq!(problems(Path::new("a"), &files).len(), 1);
    }

    #[test]
    fn constants_are_read_with_their_value_and_first_paragraph() {
        let found = read("a", LIMITS);
        let row = |name: &str, value: &str, about: &str| Ceiling {
            package: "a".to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
            about: about.to_owned(),
        };
        assert_eq!(
            found,
            [
                row("FRAME_MAX", "64 * 1024", "Bytes of one frame."),
                row("STOP_GRACE", "Duration::from_secs(5)", "Waited for an end.")
            ]
        );
    }

    #[test]
    fn a_ceiling_that_says_nothing_is_found() {
        let files = [File::new("a/src/limits.rs", "//! x\npub const ROWS_MAX: u8 = 1;\n")];
        assert_eq!(undocumented(&[("a".to_owned(), "a".into())], &files).len(), 1);
    }
}
