//! Server-sent events from bytes cut anywhere, and back.
//!
//! Source: WHATWG HTML, "9.2.6 Interpreting an event stream". Lines end with LF, CR LF or CR; a blank
//! line ends an event; lines of one event join with LF; a leading byte order mark is skipped. Beyond
//! the standard every event keeps its raw bytes, so that joined they are the input.

use crate::utf8;

/// One event with the bytes it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// All bytes from the end of the previous event to the blank line, that line included.
    pub raw: Vec<u8>,
    /// The `event:` field.
    pub name: Option<String>,
    /// The `data:` lines joined; `None` when there was none (comments, keep-alives).
    pub data: Option<String>,
    /// Invalid UTF-8 subparts replaced by U+FFFD in this event.
    pub replaced: usize,
}

/// An event grew past the limit given to [`Decoder::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame a stream: an event is larger than {limit} bytes")]
pub struct TooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

/// Splits a byte stream into events.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    started: bool,
    buffer: Vec<u8>,
    /// Where the current event begins in `buffer`.
    event: usize,
    /// Where the current line begins.
    line: usize,
    /// Up to where a line end was looked for.
    seen: usize,
    pending: Fields,
}

#[derive(Debug, Default)]
struct Fields {
    name: Option<String>,
    data: Option<String>,
    replaced: usize,
}

impl Decoder {
    /// A decoder that refuses events of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            started: false,
            buffer: Vec::new(),
            event: 0,
            line: 0,
            seen: 0,
            pending: Fields::default(),
        }
    }

    /// Takes the next bytes, in any cut, and returns the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        self.buffer.extend_from_slice(bytes);
        while let Some((end, next)) = self.line_end(false) {
            if self.take_line(end, next) {
                self.check(next)?;
                events.push(self.take_event(next));
            }
        }
        self.check(self.buffer.len())?;
        self.buffer.drain(..self.event);
        self.line -= self.event;
        self.seen -= self.event;
        self.event = 0;
        Ok(events)
    }

    /// The stream is over: what was still open, also when its blank line never came.
    ///
    /// The standard drops such an event. Servers that close right behind `data: [DONE]` exist, and a
    /// cut event fails later because its JSON is cut, so nothing is hidden by keeping it.
    pub fn finish(mut self) -> Option<Event> {
        while let Some((end, next)) = self.line_end(true) {
            if self.take_line(end, next) {
                return Some(self.take_event(next));
            }
        }
        let rest = self.buffer.len();
        self.take_line(rest, rest);
        (self.event < rest).then(|| self.take_event(rest))
    }

    fn check(&self, end: usize) -> Result<(), TooLarge> {
        if end - self.event > self.limit { Err(TooLarge { limit: self.limit }) } else { Ok(()) }
    }

    /// End of the current line and start of the next. A CR that is the last byte waits for what
    /// follows unless the stream is `over`: it may be half of a CR LF.
    fn line_end(&mut self, over: bool) -> Option<(usize, usize)> {
        let unseen = self.buffer.get(self.seen..)?;
        let Some(found) = memchr::memchr2(b'\n', b'\r', unseen) else {
            self.seen = self.buffer.len();
            return None;
        };
        let end = self.seen + found;
        let next = match (self.buffer.get(end), self.buffer.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => end + 2,
            (Some(b'\r'), None) if !over => {
                self.seen = end;
                return None;
            }
            _ => end + 1,
        };
        Some((end, next))
    }

    /// Reads the line into the pending event; whether it was the blank one that ends it.
    fn take_line(&mut self, end: usize, next: usize) -> bool {
        let line = self.buffer.get(self.line..end).unwrap_or_default();
        self.pending.read(line, &mut self.started);
        let blank = line.is_empty();
        self.line = next;
        self.seen = next;
        blank
    }

    fn take_event(&mut self, end: usize) -> Event {
        let raw = self.buffer.get(self.event..end).unwrap_or_default().to_vec();
        let Fields { name, data, replaced } = std::mem::take(&mut self.pending);
        self.event = end;
        Event { raw, name, data, replaced }
    }
}

impl Fields {
    fn read(&mut self, line: &[u8], started: &mut bool) {
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if !*started => rest,
            _ => line,
        };
        *started = true;
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => line.split_at_checked(colon).unwrap_or((line, b"")),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if field != b"data" && field != b"event" {
            return;
        }
        let (text, replaced) = utf8::decode(value);
        self.replaced += replaced;
        if field == b"event" {
            self.name = Some(text);
            return;
        }
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&text);
            }
            None => self.data = Some(text),
        }
    }
}

/// Writes one event; line breaks in `data` become several `data:` lines.
pub fn encode(name: Option<&str>, data: &str) -> Vec<u8> {
    let mut out = String::with_capacity(data.len() + 32);
    if let Some(name) = name {
        out.push_str("event: ");
        out.push_str(name);
        out.push('\n');
    }
    for line in data.split('\n') {
        out.push_str("data: ");
        out.push_str(line);
        out.push('\n');
    }
    out.push('\n');
    out.into_bytes()
}
