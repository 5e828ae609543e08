//! Text that a person gives as an argument, on standard input or in a file.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::Path;

use crate::exit::{Exit, Failure};

/// The argument itself, or standard input for `-`.
pub(crate) fn text(given: &str, what: &str) -> Result<String, Failure> {
    let ceiling = u64::try_from(domain::limits::TURN_BYTES).unwrap_or(u64::MAX);
    let text = if given == "-" {
        read(std::io::stdin().lock(), ceiling, "standard input")?
    } else {
        given.to_owned()
    };
    checked(text, ceiling, what)
}

/// A file's text, or standard input for `-`.
pub(crate) fn file(path: &str, ceiling: u64) -> Result<String, Failure> {
    if path == "-" {
        return read(std::io::stdin().lock(), ceiling, "standard input");
    }
    let file = File::open(path).map_err(|error| {
        let absent = error.kind() == std::io::ErrorKind::NotFound;
        let exit = if absent { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("could not open {path}: {error}"), "name a file you can read")
    })?;
    read(file, ceiling, &Path::new(path).display().to_string())
}

fn read(from: impl Read, ceiling: u64, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(ceiling.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| {
        Failure::new(Exit::Failed, format!("could not read {name}: {error}"), "try again")
    })?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > ceiling {
        return Err(too_long(name, ceiling));
    }
    String::from_utf8(bytes).map_err(|error| {
        Failure::usage(
            format!("{name} is not UTF-8 after byte {}", error.utf8_error().valid_up_to()),
            "convert it first, for example with iconv",
        )
    })
}

fn checked(text: String, ceiling: u64, what: &str) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::usage(
            format!("{what} is empty"),
            "say it in words, or `-` to read it",
        ));
    }
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > ceiling {
        return Err(too_long(what, ceiling));
    }
    Ok(text)
}

fn too_long(what: &str, ceiling: u64) -> Failure {
    Failure::usage(
        format!("{what} is longer than {ceiling} bytes"),
        "shorten it, or put it into a file of the workspace and name the file",
    )
}

/// Whether a person can be asked: both ends are a terminal, and standard input
/// was not used up for `-`.
pub(crate) fn can_ask(used_up: bool) -> bool {
    !used_up && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_up_to_its_ceiling() {
        assert_eq!(read(&b"abc"[..], 3, "x").unwrap(), "abc");
        let failure = read(&b"abcd"[..], 3, "x").unwrap_err();
        assert_eq!(
            (failure.exit, failure.what.as_str()),
            (Exit::Usage, "x is longer than 3 bytes")
        );
        assert!(read(&b"ab\xff"[..], 9, "x").unwrap_err().what.contains("after byte 2"));
    }

    #[test]
    fn an_empty_or_overlong_argument_is_refused() {
        assert_eq!(checked("a".into(), 1, "the task").unwrap(), "a");
        assert!(checked(" \n".into(), 9, "the task").unwrap_err().what.contains("is empty"));
        assert!(checked("ab".into(), 1, "the task").is_err());
    }
}
