//! The one renderer for text of model, agent or repository origin, used
//! wherever a person reads it: terminal, console, log. What could move the
//! cursor, hide or reorder characters becomes visible; a cut is marked. It
//! makes text safe to *look at*; it does not redact secrets.

use std::fmt::Write as _;

use crate::limits::SHOWN_CHARACTERS;

/// Whether to keep line breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// Keep `\n` and tabs: a paragraph.
    Keep,
    /// Show `\n` as `⏎`: one row of a table.
    Join,
}

/// `text` with control, bidi and zero-width characters shown as `␛`-style
/// pictures or `⟨U+202E⟩`, cut after `limit` characters with the cut marked.
pub fn visible(text: &str, lines: Lines, limit: usize) -> String {
    let mut out = String::with_capacity(text.len().min(limit * 4));
    for (shown, c) in text.chars().enumerate() {
        if shown == limit {
            let rest = text.chars().count() - limit;
            let _infallible = write!(out, "… [{rest} more characters]");
            break;
        }
        push_visible(&mut out, c, lines);
    }
    out
}

/// [`visible`] for a paragraph with the default ceiling.
pub fn paragraph(text: &str) -> String {
    visible(text, Lines::Keep, SHOWN_CHARACTERS)
}

/// [`visible`] for one row of at most `limit` characters.
pub fn row(text: &str, limit: usize) -> String {
    visible(text, Lines::Join, limit)
}

fn push_visible(out: &mut String, c: char, lines: Lines) {
    match c {
        '\n' if lines == Lines::Join => out.push('⏎'),
        '\n' | '\t' => out.push(c),
        '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
        '\u{7f}' => out.push('␡'),
        c if is_deceptive(c) => {
            let _infallible = write!(out, "⟨U+{:04X}⟩", c as u32);
        }
        c => out.push(c),
    }
}

/// C1 controls, bidi controls, zero-width and other invisible characters,
/// tags and variation selectors beyond the emoji one.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_bidi_and_zero_width_become_visible() {
        assert_eq!(paragraph("a\u{1b}[2Jb"), "a␛[2Jb");
        assert_eq!(paragraph("x\u{202e}y\u{200b}"), "x⟨U+202E⟩y⟨U+200B⟩");
        assert_eq!(paragraph("\u{9b}31m"), "⟨U+009B⟩31m");
        assert_eq!(row("a\nb\r", 10), "a⏎b␍");
    }

    #[test]
    fn ordinary_text_of_any_script_is_untouched() {
        for text in ["héllo", "那个🌍", "tab\there\nline", "👩\u{fe0f}"] {
            assert_eq!(paragraph(text), text);
        }
    }

    #[test]
    fn a_cut_is_marked_with_what_is_missing() {
        assert_eq!(row("abcdef", 4), "abcd… [2 more characters]");
        assert_eq!(row("abcd", 4), "abcd");
    }
}
