//! Where a command's words go: lines for a person, or JSON for a program, on
//! standard output. On a terminal one passing line may stand below them.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use crate::args::{ColorWhen, Options};
use crate::exit::{Exit, Failure};
use crate::render::json;
use crate::render::style::Style;

/// Columns where standard output is no terminal.
const WIDTH: usize = Style::PLAIN.width;
/// Columns beyond which lines are hard to read.
const WIDEST: usize = 140;
/// Columns below which cards make no sense.
const NARROWEST: usize = 40;
/// Back to the first column, and erase what stands in the line.
const ERASE: &str = "\r\u{1b}[K";

/// Standard output.
pub(crate) struct Output {
    to: Box<dyn Write>,
    pub(crate) json: bool,
    pub(crate) style: Style,
    /// Put before every line for a person.
    gutter: String,
    /// Standard output is a terminal that can erase a line.
    live: bool,
    passing: bool,
}

impl Output {
    pub(crate) fn new(options: &Options) -> Self {
        let terminal = io::stdout().is_terminal();
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = variable("TERM").is_none_or(|term| term == "dumb");
        let color = match options.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => terminal && !dumb && variable("NO_COLOR").is_none(),
        };
        let columns = rustix::termios::tcgetwinsize(io::stdout()).map(|size| size.ws_col);
        let width = match columns {
            Ok(columns) if terminal && columns > 0 => usize::from(columns).clamp(NARROWEST, WIDEST),
            _ => WIDTH,
        };
        Self {
            to: Box::new(io::stdout()),
            json: options.json,
            style: Style { color, width },
            gutter: String::new(),
            live: terminal && !dumb && !options.json,
            passing: false,
        }
    }

    /// From here on, `gutter` stands before every line for a person.
    pub(crate) fn set_gutter(&mut self, gutter: &str) {
        gutter.clone_into(&mut self.gutter);
    }

    /// The style of lines that stand behind the gutter.
    pub(crate) fn inner_style(&self) -> Style {
        let taken = self.gutter.chars().count();
        Style { width: self.style.width.saturating_sub(taken), ..self.style }
    }

    /// A line for a person; its text is already safe to show.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.erase()?;
        let gutter = self.style.dim(&self.gutter);
        self.write(&format!("{gutter}{line}\n"))
    }

    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
        lines.into_iter().try_for_each(|line| self.line(&line))
    }

    /// Text as it is, for what another program made (a completion script).
    pub(crate) fn raw(&mut self, text: &str) -> Result<(), Failure> {
        self.write(text)
    }

    /// The one document of a command.
    pub(crate) fn document<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let text = json::document(value).map_err(|error| not_json(&error))?;
        self.write(&format!("{text}\n"))
    }

    /// One line of a stream of JSON.
    pub(crate) fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let text = json::line(value).map_err(|error| not_json(&error))?;
        self.write(&format!("{text}\n"))
    }

    /// The document with `--json`, else the lines.
    pub(crate) fn either<T: Serialize>(
        &mut self,
        value: &T,
        lines: impl FnOnce(Style) -> Vec<String>,
    ) -> Result<(), Failure> {
        if self.json { self.document(value) } else { self.lines(lines(self.style)) }
    }

    /// A line that the next one replaces; nothing where that cannot be.
    pub(crate) fn passing(&mut self, line: &str) -> Result<(), Failure> {
        if !self.live {
            return Ok(());
        }
        self.passing = true;
        let gutter = self.style.dim(&self.gutter);
        self.write(&format!("{ERASE}{gutter}{line}"))
    }

    /// A question, with the cursor left behind it.
    pub(crate) fn prompt(&mut self, text: &str) -> Result<(), Failure> {
        self.erase()?;
        self.write(&format!("{}{text}", self.style.dim(&self.gutter)))
    }

    /// Ends the line a prompt left open.
    pub(crate) fn end_prompt(&mut self) -> Result<(), Failure> {
        self.write("\n")
    }

    fn erase(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.passing) { self.write(ERASE) } else { Ok(()) }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
        written.map_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                return Failure::nobody_reads();
            }
            let what = format!("could not write to standard output: {error}");
            Failure::new(Exit::Failed, what, "see where it is redirected to")
        })
    }
}

fn not_json(error: &serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the answer has no JSON form: {error}"), "leave out --json")
}

/// Says why a command failed: the JSON document on standard output, or lines on
/// standard error.
pub(crate) fn report(failure: &Failure, json: bool) {
    let said = if json && !failure.what.is_empty() {
        json::document(&failure.json())
            .map_err(io::Error::from)
            .and_then(|text| writeln!(io::stdout(), "{text}"))
    } else {
        failure.lines().iter().try_for_each(|line| writeln!(io::stderr(), "{line}"))
    };
    // There is nobody left to tell; the exit code still says it.
    said.ok();
}
