//! Halves of surrogate pairs in a stream's JSON.
//!
//! Servers that cut text between UTF-16 units escape the halves of one character as `\uD83C` in one
//! event and `\uDF0D` in the next. Neither is a character, so strict reading refuses both events.

use std::fmt::Write as _;

/// Joins halves across events.
#[derive(Debug, Default)]
pub(crate) struct Surrogates {
    /// A high half that ended a string of an earlier event.
    high: Option<u16>,
}

impl Surrogates {
    /// An event without lone halves went by: a high half that still waits has lost its other.
    /// Returns how many characters were lost.
    pub(crate) fn skip(&mut self) -> usize {
        usize::from(self.high.take().is_some())
    }

    /// Mends the JSON text of one event: a high half at the end of a string waits for the low half that
    /// begins a later one, any other lone half becomes U+FFFD. Returns the text and how many were lost,
    /// or `None` when there is nothing to mend.
    pub(crate) fn mend(&mut self, json: &str) -> Option<(String, usize)> {
        let mut out = String::with_capacity(json.len());
        let mut rest = json;
        let mut lost = 0;
        let mut mended = false;
        // Outside strings valid JSON has no backslash, so every one begins an escape.
        while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
            let (before, escape) = rest.split_at_checked(at)?;
            out.push_str(before);
            let unit = unit_of(escape);
            let pair =
                unit.is_some_and(is_high) && escape.get(6..).and_then(unit_of).is_some_and(is_low);
            let length = match (unit, pair) {
                (_, true) => 12,
                (Some(_), false) => 6,
                (None, _) => 2,
            };
            let (escape, after) = escape.split_at_checked(length)?;
            match unit {
                Some(unit) if !pair && is_high(unit) => {
                    mended = true;
                    lost += self.skip();
                    if after.starts_with('"') {
                        self.high = Some(unit);
                    } else {
                        lost += 1;
                        out.push_str("\\ufffd");
                    }
                }
                Some(unit) if !pair && is_low(unit) => {
                    mended = true;
                    if let Some(high) = self.high.take() {
                        // Writing to a string cannot fail.
                        write!(out, "\\u{high:04x}\\u{unit:04x}").ok()?;
                    } else {
                        lost += 1;
                        out.push_str("\\ufffd");
                    }
                }
                _ => out.push_str(escape),
            }
            rest = after;
        }
        out.push_str(rest);
        mended.then_some((out, lost))
    }
}

/// The UTF-16 unit of a `\uHHHH` escape at the start of `text`.
fn unit_of(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits
        .bytes()
        .all(|digit| digit.is_ascii_hexdigit())
        .then(|| u16::from_str_radix(digits, 16).ok())?
}

fn is_high(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xDC00..0xE000).contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_in_two_events_become_one_character() {
        let mut surrogates = Surrogates::default();
        let (left, lost) = surrogates.mend(r#"{"t":"a\\\uD83C","u":1}"#).unwrap();
        assert_eq!((left.as_str(), lost), (r#"{"t":"a\\","u":1}"#, 0));
        let (right, lost) = surrogates.mend(r#"{"t":"\uDF0Db"}"#).unwrap();
        assert_eq!((right.as_str(), lost), (r#"{"t":"\ud83c\udf0db"}"#, 0));
    }

    #[test]
    fn a_half_without_its_other_is_replaced_and_counted() {
        let mut surrogates = Surrogates::default();
        assert_eq!(
            surrogates.mend(r#""\uDF0D \uD83C x""#),
            Some((r#""\ufffd \ufffd x""#.to_owned(), 2))
        );
        assert_eq!(surrogates.mend(r#""\uD83C""#), Some((r#""""#.to_owned(), 0)));
        assert_eq!(surrogates.skip(), 1);
    }

    #[test]
    fn whole_pairs_and_other_escapes_are_left_alone() {
        let mut surrogates = Surrogates::default();
        assert_eq!(surrogates.mend(r#""\uD83C\uDF0D \n \\uD83C \u00e9""#), None);
    }
}
