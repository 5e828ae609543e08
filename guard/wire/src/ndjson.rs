//! One JSON document a line, from bytes cut anywhere.

use crate::sse::TooLarge;
use crate::utf8;

/// One line with the bytes it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The line's bytes, its line feed included.
    pub raw: Vec<u8>,
    /// The line without its end; empty for a blank line.
    pub text: String,
    /// Invalid UTF-8 subparts replaced by U+FFFD.
    pub replaced: usize,
}

/// Splits a byte stream into lines.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    raw: Vec<u8>,
    seen: usize,
}

impl Decoder {
    /// A decoder that refuses lines of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, raw: Vec::new(), seen: 0 }
    }

    /// Takes the next bytes, in any cut, and returns the lines they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Line>, TooLarge> {
        let too_large = Err(TooLarge { limit: self.limit });
        let mut lines = Vec::new();
        let mut start = 0;
        self.raw.extend_from_slice(bytes);
        while let Some(found) = memchr::memchr(b'\n', self.raw.get(self.seen..).unwrap_or_default())
        {
            let end = self.seen + found + 1;
            if end - start > self.limit {
                return too_large;
            }
            lines.push(line(self.raw.get(start..end).unwrap_or_default().to_vec()));
            start = end;
            self.seen = end;
        }
        self.raw.drain(..start);
        self.seen = self.raw.len();
        if self.raw.len() > self.limit { too_large } else { Ok(lines) }
    }

    /// The stream is over: the last line, also when its line feed never came.
    pub fn finish(self) -> Option<Line> {
        (!self.raw.is_empty()).then(|| line(self.raw))
    }
}

fn line(raw: Vec<u8>) -> Line {
    let (text, replaced) = utf8::decode(raw.trim_ascii());
    Line { raw, text, replaced }
}

/// Writes one line.
pub fn encode(document: &serde_json::Value) -> Vec<u8> {
    let mut out = document.to_string().into_bytes();
    out.push(b'\n');
    out
}
