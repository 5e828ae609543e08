//! Lossy decoding that counts what it replaced.

/// Decodes `bytes`, one U+FFFD for each maximal invalid subpart (Unicode 16, section 3.9, the same
/// practice as WHATWG Encoding), and says how many there were.
pub(crate) fn decode(bytes: &[u8]) -> (String, usize) {
    let mut text = String::with_capacity(bytes.len());
    let mut replaced = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            replaced += 1;
        }
    }
    (text, replaced)
}
