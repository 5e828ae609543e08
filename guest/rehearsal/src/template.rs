//! Placeholders in a scenario's texts.
//!
//! `{{user}}` is the last text of the person, `{{last_tool_result}}` the last answer of a tool, `{{workspace}}` the
//! workspace, and `{{bytes:FF80}}` these bytes, whatever they are: the way to say invalid UTF-8 in a text file. What is
//! put in is not looked at again.
//!
//! Raw bytes have to survive being rendered as JSON text, so until then each is one character of a block for private
//! use ([`MARKER`]); [`raw_bytes`] turns them into the bytes at the very end.

use crate::limits;

/// The character that stands for raw byte 0; those for the other bytes follow.
const MARKER: u32 = 0xF_F700;

/// What placeholders stand for in one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    pub(crate) user: String,
    pub(crate) last_tool_result: String,
    pub(crate) workspace: String,
}

/// A piece of a template.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    User,
    LastToolResult,
    Workspace,
    Bytes(Vec<u8>),
}

/// Checks a template once, when the scenario is read.
pub(crate) fn check(template: &str) -> Result<(), String> {
    pieces(template).map(drop)
}

/// Fills a template in. One that does not read, which [`check`] has ruled out, stays as it is.
pub(crate) fn fill(template: &str, values: &Values) -> String {
    let Ok(pieces) = pieces(template) else { return template.to_owned() };
    let mut filled = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::User => filled.push_str(bounded(&values.user)),
            Piece::LastToolResult => filled.push_str(bounded(&values.last_tool_result)),
            Piece::Workspace => filled.push_str(bounded(&values.workspace)),
            Piece::Bytes(bytes) => filled.extend(bytes.into_iter().filter_map(marker)),
        }
    }
    filled
}

fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(limits::SUBSTITUTED_BYTES)).unwrap_or(text)
}

fn marker(byte: u8) -> Option<char> {
    char::from_u32(MARKER + u32::from(byte))
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some((text, behind)) = rest.split_once("{{") {
        found.push(Piece::Text(text));
        let (name, behind) = behind.split_once("}}").ok_or("a `{{` has no `}}`")?;
        found.push(match name.trim() {
            "user" => Piece::User,
            "last_tool_result" => Piece::LastToolResult,
            "workspace" => Piece::Workspace,
            other => match other.strip_prefix("bytes:") {
                Some(digits) => Piece::Bytes(read_bytes(digits)?),
                None => return Err(format!("`{{{{{other}}}}}` is no placeholder: there are user, last_tool_result, workspace and bytes:HEX")),
            },
        });
        rest = behind;
    }
    found.push(Piece::Text(rest));
    Ok(found)
}

fn read_bytes(digits: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("`{digits}` is not an even number of hexadecimal digits");
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return Err(wrong()) };
    let digit =
        |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    pairs.iter().map(|digits| pair(digits).ok_or_else(wrong)).collect()
}

/// Rendered bytes with every marker turned into the byte it stands for.
pub(crate) fn raw_bytes(rendered: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(rendered) else { return rendered.to_vec() };
    let mut bytes = Vec::with_capacity(rendered.len());
    let mut buffer = [0; 4];
    for character in text.chars() {
        match u32::from(character).checked_sub(MARKER).and_then(|byte| u8::try_from(byte).ok()) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values {
            user: "fix {{workspace}}".to_owned(),
            last_tool_result: "ok".to_owned(),
            workspace: "/ws".to_owned(),
        }
    }

    #[test]
    fn fills_in_each_placeholder_once() {
        assert_eq!(
            fill("a {{user}} b {{ last_tool_result }}{{workspace}}", &values()),
            "a fix {{workspace}} b ok/ws"
        );
        assert_eq!(fill("{ \"json\": {} } }}", &values()), "{ \"json\": {} } }}");
        assert_eq!(fill("", &values()), "");
    }

    #[test]
    fn bytes_come_out_as_they_were_written() {
        let text = serde_json::Value::String(fill("那{{bytes:FF00e982}}x", &values())).to_string();
        assert_eq!(raw_bytes(text.as_bytes()), b"\"\xe9\x82\xa3\xff\x00\xe9\x82x\"");
        for byte in 0..=u8::MAX {
            let text = fill(&format!("{{{{bytes:{byte:02x}}}}}"), &values());
            assert_eq!(
                raw_bytes(serde_json::Value::String(text).to_string().as_bytes()),
                [b'"', byte, b'"']
            );
        }
    }

    #[test]
    fn refuses_what_is_no_placeholder() {
        for template in
            ["{{", "{{user", "{{nobody}}", "{{bytes:F}}", "{{bytes:FG}}", "{{bytes:+1}}", "{{}}"]
        {
            assert!(check(template).is_err(), "{template}");
        }
        check("{{bytes:}}").unwrap();
    }

    #[test]
    fn a_long_value_is_cut_at_a_whole_character() {
        let long = Values { user: "é".repeat(limits::SUBSTITUTED_BYTES), ..Values::default() };
        assert_eq!(fill("{{user}}", &long), "é".repeat(limits::SUBSTITUTED_BYTES / 2));
    }
}
