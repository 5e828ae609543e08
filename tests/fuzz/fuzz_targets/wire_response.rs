//! An answer from a provider that may be anything.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Dialect, parse_response, render_response, render_response_value};

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let dialect = Dialect::ALL[usize::from(*first) % Dialect::ALL.len()];
    let Ok(response) = parse_response(dialect, body) else { return };
    let value: serde_json::Value =
        serde_json::from_slice(body).expect("read strictly, so it reads loosely");
    assert_eq!(render_response_value(dialect, &response), value);
    for other in Dialect::ALL {
        let there = render_response(other, &response);
        assert!(parse_response(other, &there).is_ok(), "{}", String::from_utf8_lossy(&there));
    }
});
