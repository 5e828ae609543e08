//! Splits a shell command into words only where that is certain. Anything a
//! shell would interpret (operators, expansion, substitution, globs, redirects,
//! assignments before the command) makes the answer "not plain", so a caller
//! can fail closed. This is no shell parser and never tries to become one.

/// The words of a command with no shell syntax beyond quoting, or `None`.
///
/// `echo "a b" c` gives `["echo", "a b", "c"]`; `echo $x`, `a; b`, `a > f`,
/// `ls *`, `X=1 a` and an unclosed quote give `None`.
pub fn plain_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = command.trim().chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        other => text.push(other),
                    }
                }
            }
            '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '$' | '`' | '\\' | '!' => return None,
                        other => text.push(other),
                    }
                }
            }
            c if is_shell_syntax(c) => return None,
            '~' | '#' if word.is_none() => return None,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let first = words.first()?;
    // `a=b cmd` assigns; a first word with `=` is never a program name here.
    if first.contains('=') { None } else { Some(words) }
}

fn is_shell_syntax(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r'
            | '|'
            | '&'
            | ';'
            | '<'
            | '>'
            | '('
            | ')'
            | '{'
            | '}'
            | '$'
            | '`'
            | '\\'
            | '*'
            | '?'
            | '['
            | ']'
            | '!'
    ) || c.is_control()
}

/// Every maximal run of characters that could be a file name, for binding a
/// command's files by content even when it is not plain. Over-inclusive on
/// purpose: a word that names no file binds nothing.
pub fn candidate_words(command: &str) -> Vec<String> {
    if let Some(words) = plain_words(command) {
        return words;
    }
    let mut words: Vec<String> = command
        .split(|c: char| {
            c.is_whitespace() || (is_shell_syntax(c) && c != '\\') || matches!(c, '\'' | '"' | '=')
        })
        .filter(|w| !w.is_empty())
        .map(str::to_owned)
        .collect();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_is_understood() {
        assert_eq!(plain_words("echo \"a b\" 'c d'e").unwrap(), ["echo", "a b", "c de"]);
        assert_eq!(plain_words("git log --oneline").unwrap(), ["git", "log", "--oneline"]);
        assert_eq!(plain_words("printf ''").unwrap(), ["printf", ""]);
    }

    #[test]
    fn anything_a_shell_would_interpret_is_not_plain() {
        for command in [
            "",
            "git log; touch /tmp/pwn",
            "git log && x",
            "git log | sh",
            "git log & x",
            "git log\nx",
            "echo $(x)",
            "echo `x`",
            "( x )",
            "{ x; }",
            "if true; then x; fi",
            "f(){ x; }; f",
            "echo a > f",
            "ls *",
            "ls ?",
            "ls [a]",
            "X=1 ls",
            "echo $HOME",
            "echo ~",
            "echo \"$(x)\"",
            "echo 'open",
            "# rm",
            "a\\ b",
            "ls {a,b}",
        ] {
            assert_eq!(plain_words(command), None, "{command:?}");
        }
    }

    #[test]
    fn candidates_of_a_compound_command_hold_every_name_in_it() {
        let words = candidate_words("sh ./build.sh && cat \"notes.txt\" > out; X=cfg.ini y");
        for word in ["./build.sh", "notes.txt", "out", "cfg.ini"] {
            assert!(words.iter().any(|w| w == word), "{word} missing in {words:?}");
        }
    }
}
