//! Each way to misbehave, as a client sees it. The first test is the positive control of all of them.

use crate::support::*;

fn after_one_event(fault: &str) -> Heard {
    ask(&playing(&format!("{{ say: hello, faults: [{{ {fault} }}] }}")))
}

#[test]
fn without_a_fault_the_answer_is_whole_and_ends_as_its_dialect_says() {
    let heard = ask(&playing("{ say: hello }"));
    assert_eq!(
        (heard.status(), heard.whole, heard.header("content-type")),
        (200, true, Some("text/event-stream"))
    );
    assert!(heard.text().ends_with("data: [DONE]\n\n"), "{}", heard.text());
}

#[test]
fn a_status_with_its_body_and_headers() {
    let heard = after_one_event(
        "status: 503, body: 'try {{user}} later', headers: { retry-after: '7', content-type: text/plain }",
    );
    assert_eq!((heard.status(), heard.text().as_str()), (503, "try hi later"));
    assert_eq!(
        (heard.header("retry-after"), heard.header("content-type")),
        (Some("7"), Some("text/plain"))
    );
}

#[test]
fn a_connection_that_closes_or_is_reset_before_the_head() {
    for (word, end) in [("close", End::Closed), ("reset", End::Reset)] {
        let server = playing(&format!("{{ faults: [{{ before_headers: {word} }}] }}"));
        let mut client = Client::dial(&server);
        client.send("POST", "/v1/chat/completions", &hello(true));
        assert_eq!(client.head(), Err(end), "{word}");
    }
}

#[test]
fn a_body_that_is_closed_or_reset_in_the_middle_is_visibly_cut() {
    let whole = ask(&playing("{ say: hello }")).body();
    for (name, end) in [("close", End::Closed), ("reset", End::Reset)] {
        for count in [0, 1, 200, whole.len() - 1] {
            let heard = after_one_event(&format!("{name}_after_bytes: {count}"));
            assert_eq!(
                (heard.body(), heard.whole, heard.end),
                (whole[..count].to_vec(), false, end),
                "{name} {count}"
            );
        }
    }
}

#[test]
fn a_body_that_is_whole_as_http_but_lacks_the_dialects_end() {
    let heard = after_one_event("truncate_after_events: 2");
    assert_eq!((heard.whole, heard.chunks.len()), (true, 2));
    assert!(!heard.text().contains("[DONE]"));
}

#[test]
fn a_body_that_stalls_sends_its_beginning_and_nothing_more() {
    let server = playing("{ say: hello, faults: [{ stall_after_events: 2 }] }, { say: next }");
    let mut stalled = Client::dial(&server);
    stalled.send("POST", "/v1/chat/completions", &hello(true));
    stalled.head().unwrap();
    assert!(stalled.chunk().unwrap().starts_with(b"data: "));
    assert!(stalled.chunk().unwrap().starts_with(b"data: "));
    // Others are served meanwhile, and nothing has come when they are done.
    let later = r#"{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a"}]}"#;
    assert_eq!(send(&server, "POST", "/v1/chat/completions", later).status(), 200);
    assert!(stalled.is_silent());
}

#[test]
fn a_content_length_that_is_too_large_or_too_small() {
    let heard = after_one_event("content_length: 100000");
    assert_eq!(
        (heard.header("content-length"), heard.whole, heard.end),
        (Some("100000"), false, End::Closed)
    );
    let heard = after_one_event("content_length: 20");
    assert_eq!((heard.whole, heard.body().len()), (true, 20));
}

#[test]
fn garbage_and_invalid_utf_8_between_the_events() {
    let heard = after_one_event(
        "inject: \"data: {\\\"half\\\": {{bytes:FFFE}}\\n\\n\", inject_after_events: 1",
    );
    assert_eq!(heard.chunks[1], b"data: {\"half\": \xff\xfe\n\n");
    assert!(heard.whole && heard.body().ends_with(b"data: [DONE]\n\n"));
    let heard = ask(&playing("{ say: 'a{{bytes:E982}}b' }"));
    assert!(heard.body().windows(4).any(|window| window == b"a\xe9\x82b"));
}

#[test]
fn faults_are_used_up_in_order_and_counted_for_each_turn() {
    let server = playing(
        "{ say: hello, faults: [{ status: 500, times: 2 }, { status: 429, times: 1 }] }, { say: b, faults: [{ status: 500, times: 1 }] }",
    );
    let statuses: Vec<u16> = (0..5).map(|_| ask(&server).status()).collect();
    assert_eq!(statuses, [500, 500, 429, 200, 200]);
    let later = r#"{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a"}]}"#;
    let statuses: Vec<u16> =
        (0..2).map(|_| send(&server, "POST", "/v1/chat/completions", later).status()).collect();
    assert_eq!(statuses, [500, 200]);
}

#[test]
fn events_come_one_by_one_with_time_between_them() {
    let start = std::time::Instant::now();
    let heard = ask(&playing(
        "{ say: abcd, stream: { delta_chars: 1, headers_after_ms: 10, event_every_ms: 10 } }",
    ));
    assert!(heard.chunks.len() >= 7, "{}", heard.chunks.len());
    assert!(start.elapsed().as_millis() >= 70, "it took at least its pauses");
}

#[test]
fn bytes_are_cut_where_the_scenario_says() {
    let whole = ask(&playing("{ say: 那个🌍 }")).body();
    let heard = ask(&playing("{ say: 那个🌍, stream: { chunk_bytes: 1 } }"));
    assert!(heard.chunks.iter().all(|chunk| chunk.len() == 1));
    assert_eq!(heard.body(), whole);
    let heard = ask(&playing("{ say: 那个🌍, stream: { chunk_at: [10, 30] } }"));
    assert_eq!(heard.chunks.iter().map(Vec::len).collect::<Vec<_>>(), [10, 20, whole.len() - 30]);
    assert_eq!(heard.body(), whole);
}
