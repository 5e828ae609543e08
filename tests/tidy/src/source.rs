//! Just enough of Rust's grammar for the rules: tokens with comments and literals set aside, test modules cut out, and
//! the paths a file names, with `use` trees spelled out.
//!
//! It does not resolve names. The rules that need certainty about a renamed import refuse the renaming instead.

/// A word or one punctuation mark (`::` is one), and the line it stands on, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// The code of a file as tokens. Comments vanish; a string, byte string or character literal becomes one `""` token.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut reader = Reader { rest: text, line: 1, tokens: Vec::new() };
    while reader.step() {}
    reader.tokens
}

struct Reader<'text> {
    rest: &'text str,
    line: usize,
    tokens: Vec<Token>,
}

impl Reader<'_> {
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if self.rest.starts_with("//") {
            self.rest.find('\n').unwrap_or(self.rest.len())
        } else if self.rest.starts_with("/*") {
            block_comment(self.rest)
        } else if let Some(length) = literal(self.rest) {
            self.push("\"\"");
            length
        } else if is_word(first) {
            let length = self.rest.find(|next| !is_word(next)).unwrap_or(self.rest.len());
            let word = self.rest.split_at(length).0.to_owned();
            self.push(&word);
            length
        } else if self.rest.starts_with("::") {
            self.push("::");
            2
        } else {
            self.push(&first.to_string());
            first.len_utf8()
        };
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        true
    }

    fn push(&mut self, text: &str) {
        self.tokens.push(Token { text: text.to_owned(), line: self.line });
    }
}

fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

/// The length of a block comment, which may hold others.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        if rest.is_empty() {
            break;
        } else if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the string or character literal that starts here, if one does.
fn literal(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        text.strip_prefix(prefix).is_some_and(|rest| {
            let hashes = rest.trim_start_matches('#');
            rest.starts_with(['"', '\'']) || (prefix.ends_with('r') && hashes.starts_with('"'))
        })
    })?;
    let body = text.strip_prefix(prefix)?;
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(hashes));
        let inner = body.get(hashes + 1..)?;
        let end = inner.find(&close).map_or(inner.len(), |at| at + close.len());
        return Some(prefix.len() + hashes + 1 + end);
    }
    let quote = body.chars().next()?;
    if quote == '\'' && is_lifetime(body) {
        return None;
    }
    let mut escaped = false;
    for (at, letter) in body.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return Some(prefix.len() + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// `'a` not followed by a closing quote names a lifetime or a loop.
fn is_lifetime(text: &str) -> bool {
    let mut letters = text.chars().skip(1);
    let first = letters.next();
    first.is_some_and(is_word) && letters.next() != Some('\'')
}

/// The tokens without the items that only tests see: those under `#[cfg(test)]` or `#[test]`.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        let test_attribute =
            [&["#", "[", "cfg", "(", "test", ")", "]"][..], &["#", "[", "test", "]"][..]]
                .into_iter()
                .find(|wanted| {
                    rest.len() >= wanted.len()
                        && rest.iter().zip(wanted.iter()).all(|(token, want)| token.text == *want)
                });
        if let Some(attribute) = test_attribute {
            rest = after_item(rest.get(attribute.len()..).unwrap_or_default());
        } else {
            kept.push(first.clone());
            rest = after;
        }
    }
    kept
}

/// What follows the item that starts here: past its `;` or its outermost braces.
fn after_item(tokens: &[Token]) -> &[Token] {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && token.text == "}" {
                    return tokens.get(at + 1..).unwrap_or_default();
                }
            }
            ";" if depth == 0 => return tokens.get(at + 1..).unwrap_or_default(),
            _ => {}
        }
    }
    &[]
}

/// A path the code names, as `a::b::C`; a glob ends in `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    pub path: String,
    pub line: usize,
    /// It is brought into scope by `use`, so what is reached through it later cannot be seen.
    pub imported: bool,
    /// The other name given by `use … as`.
    pub renamed: bool,
}

/// Every path of two or more segments, and everything a `use` names.
pub fn paths(tokens: &[Token]) -> Vec<NamedPath> {
    let mut found = Vec::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        if first.text == "use" {
            rest = read_use_tree(after, "", &mut found);
        } else if first.text.starts_with(is_word) {
            let (path, remaining) = read_segments(rest);
            if path.contains("::") {
                found.push(NamedPath { path, line: first.line, imported: false, renamed: false });
            }
            rest = remaining;
        } else {
            rest = after;
        }
    }
    found
}

fn text_at(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

/// Reads `a::b::c`; stops before a `::` that no word follows.
fn read_segments(tokens: &[Token]) -> (String, &[Token]) {
    let mut path = text_at(tokens, 0).to_owned();
    let mut at = 1;
    while text_at(tokens, at) == "::" && text_at(tokens, at + 1).starts_with(is_word) {
        path.push_str("::");
        path.push_str(text_at(tokens, at + 1));
        at += 2;
    }
    (path, tokens.get(at..).unwrap_or_default())
}

/// Reads one tree of a `use` and answers with what follows it.
fn read_use_tree<'tokens>(
    tokens: &'tokens [Token],
    prefix: &str,
    found: &mut Vec<NamedPath>,
) -> &'tokens [Token] {
    let line = tokens.first().map_or(0, |token| token.line);
    let joined =
        |tail: &str| if prefix.is_empty() { tail.to_owned() } else { format!("{prefix}::{tail}") };
    let (start, tokens) = match text_at(tokens, 0) {
        "::" => (text_at(tokens, 1), tokens.get(1..).unwrap_or_default()),
        start => (start, tokens),
    };
    if start == "{" {
        return read_use_group(tokens.get(1..).unwrap_or_default(), prefix, found);
    }
    if start == "*" {
        found.push(NamedPath { path: joined("*"), line, imported: true, renamed: false });
        return tokens.get(1..).unwrap_or_default();
    }
    if !start.starts_with(is_word) {
        return tokens;
    }
    let (segments, rest) = read_segments(tokens);
    let path = if segments == "self" && !prefix.is_empty() {
        prefix.to_owned()
    } else {
        joined(&segments)
    };
    if text_at(rest, 0) == "::" {
        return read_use_tree(rest.get(1..).unwrap_or_default(), &path, found);
    }
    let renamed = text_at(rest, 0) == "as";
    found.push(NamedPath { path, line, imported: true, renamed });
    if renamed { rest.get(2..).unwrap_or_default() } else { rest }
}

fn read_use_group<'tokens>(
    mut tokens: &'tokens [Token],
    prefix: &str,
    found: &mut Vec<NamedPath>,
) -> &'tokens [Token] {
    loop {
        match text_at(tokens, 0) {
            "}" => return tokens.get(1..).unwrap_or_default(),
            "" => return &[],
            "," => tokens = tokens.get(1..).unwrap_or_default(),
            _ => {
                let before = tokens.len();
                tokens = read_use_tree(tokens, prefix, found);
                if tokens.len() == before {
                    tokens = tokens.get(1..).unwrap_or_default();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    fn named(text: &str) -> Vec<String> {
        paths(&tokens(text)).into_iter().map(|found| found.path).collect()
    }

    #[test]
    fn comments_and_literals_hide_what_they_hold() {
        let text = "a /* unsafe /* nested */ still */ b // unsafe\n\"unsafe \\\" x\" r#\"unsafe \" y\"# b'\\'' 'u' c";
        assert_eq!(words(text), ["a", "b", "\"\"", "\"\"", "\"\"", "\"\"", "c"]);
    }

    #[test]
    fn a_lifetime_is_not_an_open_character_literal() {
        assert_eq!(words("&'a str 'x'"), ["&", "'", "a", "str", "\"\""]);
    }

    #[test]
    fn a_raw_word_or_a_word_that_starts_like_a_prefix_is_a_word() {
        assert_eq!(words("r#type bar crate"), ["r", "#", "type", "bar", "crate"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let found = tokens("/*\n*/ \"\n\" last");
        assert_eq!(found.last().map(|token| token.line), Some(3));
    }

    #[test]
    fn use_trees_are_spelled_out() {
        let text =
            "use std::{fs, time::{self, Duration}, io::*}; use a::b as c; let x = d::e::<f::g>();";
        assert_eq!(
            named(text),
            ["std::fs", "std::time", "std::time::Duration", "std::io::*", "a::b", "d::e", "f::g"]
        );
    }

    #[test]
    fn a_leading_double_colon_names_the_same_crate() {
        assert_eq!(named("use ::std::fs; ::std::env::args()"), ["std::fs", "std::env::args"]);
    }

    #[test]
    fn test_modules_and_test_functions_are_cut_out() {
        let text = "fn a() { x::y(); } #[cfg(test)] mod tests { use std::fs; fn b() {} } #[cfg(test)] mod other; fn c() {}";
        let kept: Vec<String> =
            without_tests(&tokens(text)).into_iter().map(|token| token.text).collect();
        assert!(!kept.contains(&"fs".to_owned()) && !kept.contains(&"other".to_owned()));
        assert!(kept.contains(&"a".to_owned()) && kept.contains(&"c".to_owned()));
    }
}
