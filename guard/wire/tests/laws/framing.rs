//! Framing: the cut never matters, no byte is lost.

use proptest::prelude::*;
use wire::{ndjson, sse};

/// Bytes in which line ends, colons and field names are frequent.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::sample::select(
            &[
                "\n", "\r", "\r\n", "\n\n", ":", " ", "data", "data: x", "event: y", "\u{FEFF}",
                "那🌍"
            ][..]
        )
        .prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// The bytes in pieces of these sizes, again and again.
pub(crate) fn pieces<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() || sizes.iter().all(|size| *size == 0) {
            break;
        }
        let (piece, rest) = bytes.split_at((*size).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    if !bytes.is_empty() {
        pieces.push(bytes);
    }
    pieces
}

fn sse_events(pieces: &[&[u8]]) -> Vec<sse::Event> {
    let mut decoder = sse::Decoder::new(10_000);
    let mut events: Vec<_> = pieces.iter().flat_map(|piece| decoder.push(piece).unwrap()).collect();
    events.extend(decoder.finish());
    events
}

fn lines(pieces: &[&[u8]]) -> Vec<ndjson::Line> {
    let mut decoder = ndjson::Decoder::new(10_000);
    let mut lines: Vec<_> = pieces.iter().flat_map(|piece| decoder.push(piece).unwrap()).collect();
    lines.extend(decoder.finish());
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cut_never_matters(bytes in stream(), sizes in proptest::collection::vec(0_usize..9, 1..6)) {
        let cut = pieces(&bytes, &sizes);
        prop_assert_eq!(sse_events(&cut), sse_events(&[&bytes]));
        prop_assert_eq!(lines(&cut), lines(&[&bytes]));
    }

    #[test]
    fn the_raw_bytes_joined_are_the_input(bytes in stream()) {
        let raw: Vec<u8> = sse_events(&[&bytes]).into_iter().flat_map(|event| event.raw).collect();
        prop_assert_eq!(&raw, &bytes);
        let raw: Vec<u8> = lines(&[&bytes]).into_iter().flat_map(|line| line.raw).collect();
        prop_assert_eq!(&raw, &bytes);
    }

    #[test]
    fn what_is_written_is_read(name in proptest::option::of("[a-z.]{1,8}"), data in "[^\r\u{FEFF}]{0,30}") {
        let bytes = sse::encode(name.as_deref(), &data);
        let events = sse_events(&[&bytes]);
        prop_assert_eq!(events.len(), 1);
        prop_assert_eq!(&events[0].name, &name);
        prop_assert_eq!(events[0].data.as_deref(), Some(data.as_str()));
    }
}

#[test]
fn an_event_that_never_ends_is_refused_at_the_limit() {
    let mut decoder = sse::Decoder::new(100);
    assert!(decoder.push(&[b'a'; 100]).is_ok());
    assert_eq!(
        decoder.push(b"a").unwrap_err().to_string(),
        "frame a stream: an event is larger than 100 bytes"
    );
    let whole = [&[b'a'; 101][..], b"\n\n"].concat();
    assert!(sse::Decoder::new(100).push(&whole).is_err());
    assert!(ndjson::Decoder::new(100).push(&whole).is_err());
}

#[test]
fn each_maximal_invalid_subpart_is_one_replacement() {
    // Unicode 16, table 3-8 and its neighbours.
    for (bytes, text, replaced) in [
        (&b"a\xF1\x80\x80\xE1\x80\xC2b\x80c"[..], "a\u{FFFD}\u{FFFD}\u{FFFD}b\u{FFFD}c", 4),
        (b"\xC0\xAF", "\u{FFFD}\u{FFFD}", 2),
        (b"\xED\xA0\x80", "\u{FFFD}\u{FFFD}\u{FFFD}", 3),
        (b"\xF0\x9F\x8C", "\u{FFFD}", 1),
    ] {
        let line = [b"data: ", bytes, b"\n\n"].concat();
        let events = sse_events(&[&line]);
        assert_eq!((events[0].data.as_deref(), events[0].replaced), (Some(text), replaced));
    }
}
