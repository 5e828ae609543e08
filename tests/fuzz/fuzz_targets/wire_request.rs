//! A request body from anyone who can reach a listener.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Dialect, parse_request, render_request, render_request_value};

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let dialect = Dialect::ALL[usize::from(*first) % Dialect::ALL.len()];
    let Ok(request) = parse_request(dialect, body) else { return };
    let value: serde_json::Value =
        serde_json::from_slice(body).expect("read strictly, so it reads loosely");
    assert_eq!(render_request_value(dialect, &request), value);
    for other in Dialect::ALL {
        let there = render_request(other, &request);
        assert!(parse_request(other, &there).is_ok(), "{}", String::from_utf8_lossy(&there));
    }
});
