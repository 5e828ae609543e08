//! Streamed answers: the cut never matters, what is written is read, nothing cut passes for whole.

use proptest::prelude::*;
use wire::{
    Dialect, Extra, Frame, Part, PartAt, Response, StopReason, StreamEvent, StreamParser,
    StreamRenderer, Usage, WireError,
};

use crate::framing::pieces;

#[derive(Debug, Clone)]
enum Said {
    Text(Vec<String>),
    Thinking(Vec<String>),
    Call(String, Vec<String>),
}

fn words() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[a-z那🌍\u{0}\"\\\\\n\r ]{1,5}", 1..4)
}

/// What an answer says: at most one text and one thinking, as every dialect can say it.
fn said() -> impl Strategy<Value = Vec<Said>> {
    let calls = proptest::collection::vec(
        ("[a-z]{1,5}", words()).prop_map(|(name, words)| Said::Call(name, words)),
        0..4,
    );
    (
        proptest::option::of(words().prop_map(Said::Thinking)),
        proptest::option::of(words().prop_map(Said::Text)),
        calls,
    )
        .prop_map(|(thinking, text, calls)| thinking.into_iter().chain(text).chain(calls).collect())
}

/// The events of an answer, the arguments of its calls interleaved.
fn events(said: &[Said], stop: &StopReason) -> Vec<StreamEvent> {
    let mut events =
        vec![StreamEvent::Started { id: "id1".into(), model: "m".into(), extra: Extra::default() }];
    let mut fragments: Vec<Vec<StreamEvent>> = Vec::new();
    for (part, said) in (0..).zip(said) {
        let at = PartAt { choice: 0, part };
        match said {
            Said::Text(words) => events
                .extend(words.iter().map(|text| StreamEvent::TextDelta { at, text: text.clone() })),
            Said::Thinking(words) => events.extend(
                words.iter().map(|text| StreamEvent::ReasoningDelta { at, text: text.clone() }),
            ),
            Said::Call(name, words) => {
                events.push(StreamEvent::ToolCallStarted {
                    at,
                    id: format!("c{part}"),
                    name: name.clone(),
                    free_form: false,
                });
                let text = serde_json::json!({"k": words}).to_string();
                let (left, right) = text.split_at(3);
                let fragment =
                    |text: &str| StreamEvent::ToolCallArguments { at, fragment: text.to_owned() };
                fragments.push(vec![
                    fragment(left),
                    fragment(right),
                    StreamEvent::ToolCallEnded { at },
                ]);
            }
        }
    }
    for round in 0..3 {
        events.extend(fragments.iter().filter_map(|events| events.get(round).cloned()));
    }
    events.push(StreamEvent::Finished { choice: 0, stop: stop.clone() });
    events.push(StreamEvent::Usage(Usage { input: 7, output: 5, ..Usage::default() }));
    events.push(StreamEvent::Ended);
    events
}

fn rendered(dialect: Dialect, events: &[StreamEvent]) -> Vec<u8> {
    let mut renderer = StreamRenderer::new(dialect);
    events.iter().flat_map(|event| renderer.render(event)).collect()
}

/// Everything a stream gives, errors included.
fn outcome(dialect: Dialect, pieces: &[&[u8]]) -> (Vec<StreamEvent>, Result<Response, WireError>) {
    let mut parser = StreamParser::new(dialect);
    let mut events = Vec::new();
    for piece in pieces {
        match parser.push(piece) {
            Ok(more) => events.extend(more),
            Err(error) => return (events, Err(error)),
        }
    }
    (events, parser.finish())
}

/// What an answer says, without how it was spelled.
fn meaning(response: &Response) -> (String, String, Vec<(String, String)>) {
    let thinking = response.parts().filter_map(Part::as_reasoning).collect();
    let calls = response.tool_calls().map(|call| (call.name.clone(), call.arguments.clone()));
    (response.text(), thinking, calls.collect())
}

fn dialect() -> impl Strategy<Value = Dialect> {
    proptest::sample::select(&Dialect::ALL[..])
}

fn stop() -> impl Strategy<Value = StopReason> {
    proptest::sample::select(&[StopReason::EndTurn, StopReason::MaxTokens][..])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_in_any_cut(
        dialect in dialect(),
        said in said(),
        stop in stop(),
        sizes in proptest::collection::vec(0_usize..40, 1..6),
    ) {
        let bytes = rendered(dialect, &events(&said, &stop));
        let (seen, response) = outcome(dialect, &[&bytes]);
        let (cut, again) = outcome(dialect, &pieces(&bytes, &sizes));
        prop_assert_eq!(&cut, &seen);
        prop_assert_eq!(&again, &response);
        let response = response.unwrap();
        let mut expected = (String::new(), String::new(), Vec::new());
        for said in &said {
            match said {
                Said::Text(words) => expected.0 = words.concat(),
                Said::Thinking(words) => expected.1 = words.concat(),
                Said::Call(..) if dialect == Dialect::OllamaGenerate => {}
                Said::Call(name, words) => expected.2.push((name.clone(), serde_json::json!({"k": words}).to_string())),
            }
        }
        prop_assert_eq!(meaning(&response), expected);
        let usage = response.usage.clone().unwrap();
        prop_assert_eq!((usage.input, usage.output), (7, 5));
        if stop == StopReason::MaxTokens {
            prop_assert_eq!(response.stop(), Some(&stop));
        }
        // Written a second time it says the same: reading lost nothing the dialect can say.
        prop_assert_eq!(outcome(dialect, &[&rendered(dialect, &seen)]), (seen, Ok(response)));
    }

    #[test]
    fn an_answer_crosses_every_pair_of_dialects(from in dialect(), to in dialect(), said in said()) {
        let events = events(&said, &StopReason::EndTurn);
        let (seen, response) = outcome(from, &[&rendered(from, &events)]);
        let (_, there) = outcome(to, &[&rendered(to, &seen)]);
        let (mut left, mut right) = (meaning(&response.unwrap()), meaning(&there.unwrap()));
        if from == Dialect::OllamaGenerate || to == Dialect::OllamaGenerate {
            left.2.clear();
            right.2.clear();
        }
        prop_assert_eq!(left, right);
    }

    #[test]
    fn nothing_cut_off_passes_for_whole(dialect in dialect(), said in said(), cut in any::<proptest::sample::Index>()) {
        let bytes = rendered(dialect, &events(&said, &StopReason::EndTurn));
        let whole = bytes.trim_ascii_end().len();
        let (_, response) = outcome(dialect, &[&bytes[..cut.index(whole)]]);
        prop_assert!(matches!(response, Err(WireError::Truncated { .. })), "{:?}", response);
    }

    #[test]
    fn damage_never_depends_on_the_cut(
        dialect in dialect(),
        said in said(),
        at in any::<proptest::sample::Index>(),
        damage in proptest::collection::vec(any::<u8>(), 0..4),
        sizes in proptest::collection::vec(0_usize..40, 1..6),
    ) {
        let mut bytes = rendered(dialect, &events(&said, &StopReason::EndTurn));
        let at = at.index(bytes.len());
        bytes.splice(at..(at + 2).min(bytes.len()), damage);
        let (seen, response) = outcome(dialect, &[&bytes]);
        let (cut, again) = outcome(dialect, &pieces(&bytes, &sizes));
        prop_assert_eq!(again.is_ok(), response.is_ok());
        if let (Ok(again), Ok(response)) = (again, response) {
            prop_assert_eq!(again, response);
            prop_assert_eq!(cut, seen);
        }
    }

    #[test]
    fn the_raw_bytes_of_the_frames_are_the_stream(
        dialect in dialect(),
        said in said(),
        sizes in proptest::collection::vec(0_usize..40, 1..6),
    ) {
        let bytes = rendered(dialect, &events(&said, &StopReason::EndTurn));
        let mut parser = StreamParser::new(dialect);
        let mut frames: Vec<Frame> = Vec::new();
        for piece in pieces(&bytes, &sizes) {
            frames.extend(parser.push_frames(piece).unwrap());
        }
        frames.extend(parser.flush().unwrap());
        let raw: Vec<u8> = frames.into_iter().flat_map(|frame| frame.raw).collect();
        prop_assert_eq!(raw, bytes);
    }
}
