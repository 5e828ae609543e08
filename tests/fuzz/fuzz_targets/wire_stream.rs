//! A streamed answer from a provider that may be anything, cut anywhere.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Dialect, Response, StreamEvent, StreamParser, StreamRenderer, WireError};

type Outcome = (Vec<StreamEvent>, Vec<u8>, Result<Response, WireError>);

fn read<'a>(dialect: Dialect, pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let mut parser = StreamParser::new(dialect);
    let (mut events, mut raw) = (Vec::new(), Vec::new());
    for piece in pieces {
        match parser.push_frames(piece) {
            Ok(frames) => {
                for frame in frames {
                    events.extend(frame.events);
                    raw.extend(frame.raw);
                }
            }
            Err(error) => return (events, raw, Err(error)),
        }
    }
    match parser.flush() {
        Ok(frame) => {
            if let Some(frame) = frame {
                events.extend(frame.events);
                raw.extend(frame.raw);
            }
        }
        Err(_) => return (events, raw, parser.finish()),
    }
    (events, raw, parser.finish())
}

fuzz_target!(|data: &[u8]| {
    let [first, size, body @ ..] = data else { return };
    let dialect = Dialect::ALL[usize::from(*first) % Dialect::ALL.len()];
    let (events, raw, response) = read(dialect, std::iter::once(body));
    let (cut_events, cut_raw, cut_response) = read(dialect, body.chunks(usize::from(*size).max(1)));
    assert_eq!(cut_response.is_ok(), response.is_ok());
    let Ok(response) = response else { return };
    assert_eq!((&cut_events, &cut_raw), (&events, &raw));
    assert_eq!(raw, body);
    assert_eq!(cut_response.as_ref(), Ok(&response));
    for to in Dialect::ALL {
        let mut renderer = StreamRenderer::new(to);
        let bytes: Vec<u8> = events.iter().flat_map(|event| renderer.render(event)).collect();
        let (_, _, again) = read(to, std::iter::once(&bytes[..]));
        let again = again.unwrap_or_else(|error| panic!("{dialect} to {to}: {error}"));
        if to == dialect {
            assert_eq!(again.text(), response.text());
        }
    }
});
