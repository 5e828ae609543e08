//! Tables: a heading, aligned columns, and a last column that is cut to the
//! screen. A cell is foreign text unless its tone says otherwise.

use super::block;
use super::style::{Style, Tone};

/// One field of a row.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

/// Columns between two fields.
const GAP: usize = 2;
/// The widest a field may be, the last of a row excepted.
const WIDEST: usize = 40;

/// The lines of a table, heading first.
pub(crate) fn lines(style: Style, heading: &[&str], rows: &[Vec<Cell>]) -> Vec<String> {
    let mut widths: Vec<usize> = heading.iter().map(|title| block::width(title)).collect();
    let last = heading.len().saturating_sub(1);
    let shown: Vec<Vec<(String, Tone)>> = rows
        .iter()
        .map(|row| {
            let cell = |(index, cell): (usize, &Cell)| {
                let limit = if index < last { WIDEST } else { style.width };
                (block::row(&cell.text, limit), cell.tone)
            };
            row.iter().enumerate().map(cell).collect()
        })
        .collect();
    for row in &shown {
        for ((text, _), width) in row.iter().zip(&mut widths) {
            *width = block::width(text).max(*width);
        }
    }
    let before: usize = widths.iter().take(last).map(|width| width + GAP).sum();
    let room = style.width.saturating_sub(before).max(20);
    let heading: Vec<(String, Tone)> =
        heading.iter().map(|title| ((*title).to_owned(), Tone::Dim)).collect();
    std::iter::once(&heading).chain(&shown).map(|row| line(style, row, &widths, room)).collect()
}

fn line(style: Style, row: &[(String, Tone)], widths: &[usize], room: usize) -> String {
    let mut out = String::new();
    let last = widths.len().saturating_sub(1);
    for (index, ((text, tone), width)) in row.iter().zip(widths).enumerate() {
        if index == last {
            out.push_str(&style.paint(*tone, &block::row(text, room)));
        } else {
            out.push_str(&style.paint(*tone, text));
            out.push_str(&" ".repeat(width - block::width(text) + GAP));
        }
    }
    out.trim_end().to_owned()
}

/// Names and values below each other, the values aligned; a value may be long.
pub(crate) fn pairs(style: Style, pairs: &[(&str, String)]) -> Vec<String> {
    let name_width = pairs.iter().map(|(name, _)| block::width(name)).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (name, value) in pairs {
        let room = style.width.saturating_sub(name_width + GAP).max(20);
        for (index, part) in block::wrap(value, room, value.len()).into_iter().enumerate() {
            let name = if index == 0 { *name } else { "" };
            let pad = " ".repeat(name_width - block::width(name) + GAP);
            lines.push(format!("{}{pad}{part}", style.dim(name)).trim_end().to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_one_is_cut() {
        let rows = vec![
            vec![
                Cell::new("5f0c1e9e"),
                Cell::toned("running", Tone::Good),
                Cell::new("count words"),
            ],
            vec![Cell::new("a1"), Cell::new("waiting (2)"), Cell::new("x".repeat(80))],
        ];
        let style = Style { width: 50, ..Style::PLAIN };
        insta::assert_snapshot!(lines(style, &["RUN", "STATUS", "TITLE"], &rows).join("\n"), @r"
        RUN       STATUS       TITLE
        5f0c1e9e  running      count words
        a1        waiting (2)  xxxxxxxxxxxxxxxxxxxxxxxxxx…
        ");
    }

    #[test]
    fn a_title_cannot_leave_its_row() {
        let rows = vec![vec![Cell::new("a"), Cell::new("one\n✔ approved\u{1b}[2J")]];
        assert_eq!(
            lines(Style::PLAIN, &["RUN", "TITLE"], &rows),
            ["RUN  TITLE", "a    one⏎✔ approved␛[2J"]
        );
    }

    #[test]
    fn pairs_align_and_wrap_under_their_value() {
        let style = Style { width: 30, ..Style::PLAIN };
        let shown = pairs(
            style,
            &[("state", "/var/lib".into()), ("note", "one two three four five six".into())],
        );
        assert_eq!(shown, ["state  /var/lib", "note   one two three four", "       five six"]);
    }
}
