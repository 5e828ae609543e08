//! Foreign text as lines of a bounded width. Each line is meant to stand behind
//! a gutter: what the text says can then never look like a line of ours, also
//! where the terminal would have wrapped it.

use domain::text::{self, Lines};

const TAB: &str = "    ";

/// Columns a character may take. Over-estimates on purpose: a line that the
/// terminal wraps would start without its gutter.
fn columns(c: char) -> usize {
    if c < '\u{1100}' || c == '…' { 1 } else { 2 }
}

/// Columns of a text that is already safe to show.
pub(crate) fn width(shown: &str) -> usize {
    shown.chars().map(columns).sum()
}

/// `text` made safe, cut after `limit` characters, wrapped at `width` columns.
pub(crate) fn wrap(text: &str, width: usize, limit: usize) -> Vec<String> {
    let shown = text::visible(text, Lines::Keep, limit.min(text.len())).replace('\t', TAB);
    shown.split('\n').flat_map(|line| wrap_line(line, width.max(8))).collect()
}

fn wrap_line(line: &str, limit: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line.trim_end();
    while width(rest) > limit {
        let (cut, next) = break_at(rest, limit);
        let (head, tail) = rest.split_at(cut);
        lines.push(head.trim_end().to_owned());
        rest = tail.split_at(next - cut).1;
    }
    lines.push(rest.to_owned());
    lines
}

/// Byte offsets where a line ends and where the following one starts: at the
/// last space that fits, else in the middle of a word.
fn break_at(line: &str, limit: usize) -> (usize, usize) {
    let mut used = 0;
    let mut space = None;
    for (at, c) in line.char_indices() {
        if used + columns(c) > limit {
            let fits_nothing = at == 0;
            let hard = if fits_nothing { c.len_utf8() } else { at };
            return space.filter(|(end, _)| *end > 0 && !fits_nothing).unwrap_or((hard, hard));
        }
        if c == ' ' {
            space = Some((at, at + 1));
        }
        used += columns(c);
    }
    (line.len(), line.len())
}

/// `text` made safe as one row of at most `limit` columns.
pub(crate) fn row(text: &str, limit: usize) -> String {
    let shown = text::row(text, text.len()).replace('\t', " ");
    if width(&shown) <= limit {
        return shown;
    }
    let mut out = String::new();
    let mut used = 1;
    for c in shown.chars() {
        used += columns(c);
        if used > limit {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_at_spaces_and_a_long_word_in_the_middle() {
        assert_eq!(wrap("one two three", 8, 100), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijkl mn", 8, 100), ["abcdefgh", "ijkl mn"]);
        assert_eq!(wrap("a\n\n  b", 8, 100), ["a", "", "  b"]);
        assert_eq!(wrap("", 8, 100), [""]);
    }

    #[test]
    fn no_line_is_wider_than_asked_for_whatever_the_script() {
        for text in
            ["那个那个那个那个那个", "🌍🌍🌍🌍🌍🌍🌍", "\u{202e}\u{202e}\u{202e}", "x\ty\tz\tw\tv"]
        {
            for line in wrap(text, 9, 100) {
                assert!(width(&line) <= 9, "{line:?}");
            }
        }
        assert_eq!(wrap("那", 1, 100), ["那"]);
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(wrap("abcdef", 40, 3), ["abc… [3 more characters]"]);
    }

    #[test]
    fn a_row_joins_lines_and_never_exceeds_its_columns() {
        assert_eq!(row("a\nb", 10), "a⏎b");
        for text in ["x".repeat(50), "那".repeat(50), "\u{1b}[2J".repeat(9)] {
            assert!(width(&row(&text, 12)) <= 12);
        }
    }
}
