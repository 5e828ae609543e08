//! Parts of documents that a program writes: what stands between `<!-- generated: NAME -->` and
//! `<!-- end generated: NAME -->` equals what the code says, or a test fails.
//!
//! A crate with such a table adds a test of one line whose name holds `generated_table`,
//! `tidy::generated::check("SECURITY.md", "seccomp", &table)`, and a row to [`PARTS`]. `make docs` runs those tests with
//! `UPDATE_DOCS=1`, and then they write the part instead of comparing it.

use crate::facts::{self, File};

/// Every generated part: its document, its name, and the package whose test keeps it.
pub const PARTS: [(&str, &str, &str); 5] = [
    ("ARCHITECTURE.md", "limits", "tidy"),
    ("SECURITY.md", "abi", "worker"),
    ("SECURITY.md", "grants", "worker"),
    ("SECURITY.md", "seccomp", "worker"),
    ("SECURITY.md", "attacks", "suites"),
];

/// Compares the part of the document with `expected`, or writes it when `UPDATE_DOCS=1`. The error says what to do.
pub fn check(document: &str, name: &str, expected: &str) -> Result<(), String> {
    let path = facts::root().join(document);
    // Tests of one document run at the same time, and each would undo what another just wrote.
    let _until_the_end = std::fs::File::open(&path)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("failed to lock {document}: {error}"))?;
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("failed to read {document}: {error}"))?;
    let updated = replace(document, &text, name, expected)?;
    if updated == text {
        return Ok(());
    }
    if std::env::var_os("UPDATE_DOCS").is_none_or(|value| value != "1") {
        return Err(format!(
            "the part {name} of {document} is not what the code says; `make docs` writes it"
        ));
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a document of the source tree, not product state"
    )]
    std::fs::write(&path, updated).map_err(|error| format!("failed to write {document}: {error}"))
}

/// The document's text with its part replaced.
pub fn replace(document: &str, text: &str, name: &str, expected: &str) -> Result<String, String> {
    let (open, close) =
        (format!("<!-- generated: {name} -->"), format!("<!-- end generated: {name} -->"));
    let parts = text
        .split_once(&open)
        .and_then(|(before, rest)| Some((before, rest.split_once(&close)?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("{document} has no part between `{open}` and `{close}`"))?;
    Ok(format!("{before}{open}\n\n{}\n\n{close}{after}", expected.trim()))
}

/// Marked parts that no row of `parts` keeps, and rows without their part.
pub fn problems(files: &[File], parts: &[(&str, &str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is(&["md"])) {
        let document = file.path.display().to_string();
        let marked = file
            .text
            .split("<!-- generated: ")
            .skip(1)
            .filter_map(|rest| rest.split(" -->").next());
        let unkept = marked
            .filter(|name| !parts.iter().any(|(of, part, _)| *of == document && part == name));
        problems.extend(unkept.map(|name| {
            format!(
                "{document}: nothing keeps the generated part {name}; add it to generated::PARTS"
            )
        }));
    }
    for (document, name, package) in parts {
        let file = files.iter().find(|file| file.path.as_os_str() == *document);
        if file.is_none_or(|file| replace(document, &file.text, name, "").is_err()) {
            problems.push(format!(
                "{document}: the generated part {name} is missing, which {package} keeps"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "a\n<!-- generated: t -->\nold\n<!-- end generated: t -->\nb\n";

    #[test]
    fn only_the_part_is_replaced_and_replacing_again_changes_nothing() {
        let once = replace("d.md", DOCUMENT, "t", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- generated: t -->\n\nnew\n\n<!-- end generated: t -->\nb\n");
        assert_eq!(replace("d.md", &once, "t", "new").unwrap(), once);
    }

    #[test]
    fn a_document_without_the_part_is_an_error_that_names_it() {
        assert!(replace("d.md", DOCUMENT, "u", "").unwrap_err().contains("generated: u"));
    }

    #[test]
    fn parts_nobody_keeps_and_rows_without_a_part_are_found() {
        let files = [File::new("d.md", DOCUMENT)];
        assert!(problems(&files, &[("d.md", "t", "tidy")]).is_empty());
        assert_eq!(problems(&files, &[]).len(), 1);
        assert_eq!(problems(&files, &[("d.md", "t", "tidy"), ("d.md", "u", "tidy")]).len(), 1);
    }
}
