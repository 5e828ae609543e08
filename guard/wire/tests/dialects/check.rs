//! One check for each law, so that a test is its data.

use serde_json::Value;
use wire::{
    Dialect, Request, Response, StreamEvent, StreamParser, StreamRenderer, WireError,
    parse_request, parse_response, render_request_value, render_response_value,
};

/// Reads a request and demands that it is written as the same JSON value.
pub(crate) fn request(dialect: Dialect, body: &Value) -> Request {
    let request = parse_request(dialect, body.to_string().as_bytes()).unwrap();
    assert_eq!(&render_request_value(dialect, &request), body);
    request
}

/// Reads an answer and demands that it is written as the same JSON value.
pub(crate) fn response(dialect: Dialect, body: &Value) -> Response {
    let response = parse_response(dialect, body.to_string().as_bytes()).unwrap();
    assert_eq!(&render_response_value(dialect, &response), body);
    response
}

/// Reads a stream whole and in pieces, down to single bytes, demands the same events, the same raw bytes and the same
/// answer each time, no answer from any shorter stream, and the same events when written and read again.
pub(crate) fn stream(dialect: Dialect, body: &str) -> (Vec<StreamEvent>, Response) {
    let bytes = body.as_bytes();
    let mut parser = StreamParser::new(dialect);
    let mut frames = parser.push_frames(bytes).unwrap();
    frames.extend(parser.flush().unwrap());
    let raw: Vec<u8> = frames.iter().flat_map(|frame| frame.raw.clone()).collect();
    assert_eq!(raw, bytes);
    assert_eq!(parser.replaced(), 0);
    let events: Vec<_> = frames.into_iter().flat_map(|frame| frame.events).collect();
    let response = parser.finish().unwrap();
    for size in [1, 2, 3, 5, 64, 1021] {
        let mut parser = StreamParser::new(dialect);
        let mut seen = Vec::new();
        for chunk in bytes.chunks(size) {
            seen.extend(parser.push(chunk).unwrap());
        }
        seen.extend(parser.flush().unwrap().into_iter().flat_map(|frame| frame.events));
        assert_eq!(seen, events, "cut every {size} bytes");
        assert_eq!(parser.finish().unwrap(), response, "cut every {size} bytes");
    }
    let whole = body.trim_end().len();
    // Every prefix of a short stream, some hundred of a long one and all of its last bytes.
    for end in (0..whole).step_by(whole / 400 + 1).chain(whole - 40..whole) {
        let mut parser = StreamParser::new(dialect);
        parser.push(&bytes[..end]).unwrap();
        let outcome = parser.finish();
        assert!(matches!(outcome, Err(WireError::Truncated { .. })), "ended at {end}: {outcome:?}");
    }
    assert_eq!(read_all(dialect, &written(dialect, &events)), (events.clone(), response.clone()));
    (events, response)
}

/// The events as bytes.
pub(crate) fn written(dialect: Dialect, events: &[StreamEvent]) -> Vec<u8> {
    let mut renderer = StreamRenderer::new(dialect);
    events.iter().flat_map(|event| renderer.render(event)).collect()
}

/// A whole stream's events and answer.
pub(crate) fn read_all(dialect: Dialect, bytes: &[u8]) -> (Vec<StreamEvent>, Response) {
    let mut parser = StreamParser::new(dialect);
    let events = parser.push(bytes).unwrap();
    (events, parser.finish().unwrap())
}

/// Server-sent events with the name each document gives itself.
pub(crate) fn named_sse(documents: &[Value]) -> String {
    let event = |document: &Value| {
        format!("event: {}\ndata: {document}\n\n", document["type"].as_str().unwrap())
    };
    documents.iter().map(event).collect()
}
