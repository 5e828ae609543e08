//! Colours and the width of the screen. Colour only repeats what a word or a
//! mark already says.

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Strong,
    Good,
    Bad,
    Warn,
    Accent,
}

/// How lines are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) color: bool,
    /// Columns of a line, gutter included.
    pub(crate) width: usize,
}

impl Style {
    /// No colour and a fixed width: for files, pipes and tests.
    pub(crate) const PLAIN: Self = Self { color: false, width: 100 };

    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Dim => "2",
            Tone::Strong => "1",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Warn => "33",
            Tone::Accent => "36",
        };
        if self.color && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(Tone::Dim, text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.paint(Tone::Strong, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_there_only_when_asked_for() {
        assert_eq!(Style::PLAIN.paint(Tone::Bad, "no"), "no");
        let coloured = Style { color: true, ..Style::PLAIN };
        assert_eq!(coloured.paint(Tone::Bad, "no"), "\u{1b}[31mno\u{1b}[0m");
        assert_eq!(coloured.paint(Tone::Bad, ""), "");
    }
}
