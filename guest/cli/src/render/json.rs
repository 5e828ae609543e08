//! JSON for programs that is still safe to look at: a character that could move
//! the cursor, hide or reorder text is written as `\uHHHH`. Nothing is lost.

use std::io::{self, Write};

use domain::text::{self, Lines};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// One document over several lines.
pub(crate) fn document<T: Serialize>(value: &T) -> serde_json::Result<String> {
    write(value, PrettyFormatter::new())
}

/// One line.
pub(crate) fn line<T: Serialize>(value: &T) -> serde_json::Result<String> {
    write(value, CompactFormatter)
}

fn write<T: Serialize, F: Formatter>(value: &T, layout: F) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Visible(layout)))?;
    String::from_utf8(bytes)
        .map_err(|error| serde_json::Error::io(io::Error::new(io::ErrorKind::InvalidData, error)))
}

fn is_plain(c: char) -> bool {
    if c.is_ascii() {
        return c != '\u{7f}';
    }
    let mut buffer = [0u8; 4];
    let text: &str = c.encode_utf8(&mut buffer);
    text::visible(text, Lines::Keep, 1) == text
}

/// Passes everything on to a layout and escapes in strings.
struct Visible<F>(F);

impl<F: Formatter> Formatter for Visible<F> {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|c| !is_plain(c)) {
            let (plain, tail) = rest.split_at(at);
            self.0.write_string_fragment(writer, plain)?;
            let Some(c) = tail.chars().next() else { break };
            for unit in c.encode_utf16(&mut [0u16; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = tail.split_at(c.len_utf8()).1;
        }
        self.0.write_string_fragment(writer, rest)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }
    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }
    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }
    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }
    fn end_object_key<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_key(writer)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn deceptive_characters_are_escaped_and_come_back_the_same() {
        let value = json!({"a\u{202e}": ["\u{9b}31m\u{7f}", "那🌍é", "\u{e0041}"], "n": 1});
        for text in [line(&value).unwrap(), document(&value).unwrap()] {
            assert!(text.contains("\\u202e") && text.contains("\\u009b31m\\u007f"), "{text}");
            assert!(text.contains("那🌍é") && text.contains("\\udb40\\udc41"), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn a_line_is_one_line_and_a_document_is_indented() {
        let value = json!({"a": [1, "x\ny"], "b": {}});
        assert_eq!(line(&value).unwrap(), r#"{"a":[1,"x\ny"],"b":{}}"#);
        assert_eq!(document(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap());
    }
}
