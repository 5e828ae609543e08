//! Requests and answers: reading and writing give the same JSON value, whatever stands in it.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wire::{
    Dialect, Received, parse_request, parse_response, render_request_value, render_response_value,
};

/// Field names of all dialects, so that generated objects keep running into known fields.
const NAMES: &[&str] = &[
    "role",
    "content",
    "type",
    "text",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "tool_call_id",
    "image_url",
    "url",
    "refusal",
    "reasoning_content",
    "reasoning",
    "function_call",
    "custom",
    "input",
    "source",
    "data",
    "media_type",
    "thinking",
    "signature",
    "tool_use_id",
    "is_error",
    "call_id",
    "output",
    "summary",
    "images",
    "tool_name",
    "status",
    "tool_choice",
    "tools",
    "parameters",
    "input_schema",
    "description",
    "stop",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "stop_sequences",
    "system",
    "instructions",
    "options",
    "num_predict",
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "disable_parallel_tool_use",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "finish_reason",
    "stop_reason",
    "done_reason",
    "done",
    "index",
    "incomplete_details",
    "reason",
    "prompt_eval_count",
    "eval_count",
    "prompt",
    "messages",
    "model",
    "odd",
];

/// Words that mean something somewhere.
const WORDS: &[&str] = &[
    "",
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "function",
    "text",
    "image_url",
    "refusal",
    "custom",
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "image",
    "base64",
    "input_text",
    "output_text",
    "input_image",
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "summary_text",
    "reasoning_text",
    "auto",
    "none",
    "any",
    "required",
    "stop",
    "length",
    "end_turn",
    "completed",
    "incomplete",
    "max_output_tokens",
    "data:image/png;base64,AAAA",
    "{\"a\":1}",
    "{",
    "那个🌍",
    "\u{0}\n\"",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => proptest::sample::select(WORDS).prop_map(str::to_owned),
        1 => ".{0,6}",
    ]
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => word().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => (0_u64..40).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_filter_map("JSON has no infinity", |number| serde_json::Number::from_f64(number).map(Value::Number)),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => object(inner),
        ]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let field = (proptest::sample::select(NAMES), inner);
    proptest::collection::vec(field, 0..6).prop_map(|fields| {
        Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    })
}

/// An object with these fields, others beside them, and now and then one of them gone or changed.
fn shaped(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let values: Vec<_> = values
        .into_iter()
        .map(|value| {
            prop_oneof![8 => value.prop_map(Some), 1 => anything().prop_map(Some), 1 => Just(None)]
                .boxed()
        })
        .collect();
    let extra = proptest::collection::vec((proptest::sample::select(NAMES), anything()), 0..2);
    (values, extra)
        .prop_map(move |(values, extra)| {
            let mut map = Map::new();
            map.extend(extra.into_iter().map(|(name, value)| (name.to_owned(), value)));
            let given = names
                .iter()
                .zip(values)
                .filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            map.extend(given);
            Value::Object(map)
        })
        .boxed()
}

fn text() -> BoxedStrategy<Value> {
    word().prop_map(Value::from).boxed()
}

fn one_of(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    proptest::sample::select(words).prop_map(Value::from).boxed()
}

fn list(item: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    proptest::collection::vec(item, 0..4).prop_map(Value::from).boxed()
}

fn count() -> BoxedStrategy<Value> {
    prop_oneof![(0_u64..100).prop_map(Value::from), any::<u64>().prop_map(Value::from)].boxed()
}

/// A content part, block or item of any dialect.
fn part() -> BoxedStrategy<Value> {
    let plain = prop_oneof![
        shaped(vec![("type", one_of(&["text", "input_text", "output_text"])), ("text", text())]),
        shaped(vec![("type", one_of(&["refusal"])), ("refusal", text())]),
        shaped(vec![
            ("type", one_of(&["image_url"])),
            ("image_url", shaped(vec![("url", text())]))
        ]),
        shaped(vec![("type", one_of(&["input_image"])), ("image_url", text())]),
        shaped(vec![
            ("type", one_of(&["image"])),
            (
                "source",
                shaped(vec![
                    ("type", one_of(&["base64", "url"])),
                    ("media_type", text()),
                    ("data", text()),
                    ("url", text())
                ])
            ),
        ]),
        shaped(vec![("type", one_of(&["thinking"])), ("thinking", text()), ("signature", text())]),
        shaped(vec![("type", one_of(&["redacted_thinking"])), ("data", text())]),
        shaped(vec![
            ("type", one_of(&["tool_use"])),
            ("id", text()),
            ("name", text()),
            ("input", object(leaf()).boxed())
        ]),
        shaped(vec![
            ("type", one_of(&["function_call", "custom_tool_call"])),
            ("call_id", text()),
            ("name", text()),
            ("arguments", text()),
            ("input", text()),
        ]),
        shaped(vec![
            ("type", one_of(&["reasoning"])),
            ("summary", list(shaped(vec![("type", one_of(&["summary_text"])), ("text", text())]))),
            (
                "content",
                list(shaped(vec![("type", one_of(&["reasoning_text"])), ("text", text())]))
            ),
        ]),
        anything(),
    ]
    .boxed();
    let content = prop_oneof![text(), list(plain.clone())].boxed();
    prop_oneof![
        4 => plain,
        1 => shaped(vec![("type", one_of(&["tool_result"])), ("tool_use_id", text()), ("content", content.clone()), ("is_error", any::<bool>().prop_map(Value::from).boxed())]),
        1 => shaped(vec![("type", one_of(&["function_call_output", "custom_tool_call_output"])), ("call_id", text()), ("output", content)]),
    ]
    .boxed()
}

fn call() -> BoxedStrategy<Value> {
    let arguments = prop_oneof![text(), object(leaf())].boxed();
    let function = shaped(vec![("name", text()), ("arguments", arguments), ("input", text())]);
    shaped(vec![
        ("id", text()),
        ("type", one_of(&["function", "custom"])),
        ("function", function.clone()),
        ("custom", function),
    ])
}

fn message(roles: &'static [&'static str]) -> BoxedStrategy<Value> {
    let content = prop_oneof![text(), list(part()), Just(Value::Null)].boxed();
    // The role decides whether a message can be read at all, so it is always a known one.
    let base = shaped(vec![
        ("content", content),
        ("tool_calls", list(call())),
        ("tool_call_id", text()),
        ("images", list(text())),
    ]);
    (proptest::sample::select(roles), base)
        .prop_map(|(role, mut message)| {
            message["role"] = json!(role);
            message
        })
        .boxed()
}

fn tool() -> BoxedStrategy<Value> {
    let function = shaped(vec![
        ("name", text()),
        ("description", text()),
        ("parameters", object(leaf()).boxed()),
    ]);
    let kind = one_of(&["function", "custom", "web_search"]);
    shaped(vec![
        ("type", kind),
        ("function", function),
        ("name", text()),
        ("input_schema", object(leaf()).boxed()),
        ("parameters", object(leaf()).boxed()),
    ])
}

fn choice() -> BoxedStrategy<Value> {
    let named = shaped(vec![
        ("type", one_of(&["function", "tool", "auto", "any", "none"])),
        ("name", text()),
        ("disable_parallel_tool_use", any::<bool>().prop_map(Value::from).boxed()),
    ]);
    prop_oneof![text(), named, Just(json!({"type": "function", "function": {"name": "f"}}))].boxed()
}

fn options() -> BoxedStrategy<Value> {
    shaped(vec![
        ("num_predict", count()),
        ("temperature", leaf().boxed()),
        ("stop", prop_oneof![text(), list(text())].boxed()),
    ])
}

fn request(dialect: Dialect) -> BoxedStrategy<Value> {
    let stops = prop_oneof![text(), list(text())].boxed();
    let common = shaped(vec![
        ("tools", list(tool())),
        ("tool_choice", choice()),
        ("stream", any::<bool>().prop_map(Value::from).boxed()),
        ("temperature", leaf().boxed()),
        ("top_p", leaf().boxed()),
        ("max_tokens", count()),
        ("options", options()),
        ("max_completion_tokens", count()),
        ("max_output_tokens", count()),
        ("stop", stops.clone()),
        ("stop_sequences", stops),
        ("system", prop_oneof![text(), list(part())].boxed()),
        ("instructions", text()),
        ("prompt", text()),
        ("images", list(text())),
        ("parallel_tool_calls", any::<bool>().prop_map(Value::from).boxed()),
    ]);
    let item = prop_oneof![message(&["user", "assistant", "system", "developer", "queen"]), part()]
        .boxed();
    let conversation = match dialect {
        Dialect::OpenAiChat => {
            list(message(&["user", "assistant", "system", "developer", "tool", "function"]))
        }
        Dialect::AnthropicMessages => list(message(&["user", "assistant", "system"])),
        Dialect::OllamaChat | Dialect::OllamaGenerate => {
            list(message(&["user", "assistant", "system", "tool"]))
        }
        Dialect::OpenAiResponses => prop_oneof![text(), list(item)].boxed(),
    };
    let field = if dialect == Dialect::OpenAiResponses { "input" } else { "messages" };
    (common, conversation)
        .prop_map(move |(mut body, conversation)| {
            body["model"] = json!("m");
            body[field] = conversation;
            body
        })
        .boxed()
}

fn usage() -> BoxedStrategy<Value> {
    let details = shaped(vec![("cached_tokens", count()), ("reasoning_tokens", count())]);
    shaped(vec![
        ("prompt_tokens", count()),
        ("completion_tokens", count()),
        ("input_tokens", count()),
        ("output_tokens", count()),
        ("cache_read_input_tokens", count()),
        ("cache_creation_input_tokens", count()),
        ("prompt_tokens_details", details.clone()),
        ("completion_tokens_details", details),
    ])
}

fn response(dialect: Dialect) -> BoxedStrategy<Value> {
    let fields = vec![
        ("id", text()),
        ("model", text()),
        ("usage", usage()),
        ("stop_reason", text()),
        ("done_reason", text()),
        ("status", one_of(&["completed", "incomplete", "in_progress"])),
        ("prompt_eval_count", count()),
        ("eval_count", count()),
        (
            "incomplete_details",
            shaped(vec![("reason", one_of(&["max_output_tokens", "content_filter", "odd"]))]),
        ),
        ("thinking", text()),
    ];
    let assistant = message(&["assistant"]);
    let answer = match dialect {
        Dialect::OpenAiChat => {
            let choice = shaped(vec![
                ("index", (0_u64..3).prop_map(Value::from).boxed()),
                ("finish_reason", text()),
            ]);
            let choice = (choice, assistant).prop_map(|(mut choice, message)| {
                choice["message"] = message;
                choice
            });
            ("choices", list(choice.boxed()))
        }
        Dialect::AnthropicMessages => ("content", list(part())),
        Dialect::OpenAiResponses => ("output", list(prop_oneof![part(), assistant].boxed())),
        Dialect::OllamaChat => ("message", assistant),
        Dialect::OllamaGenerate => ("response", text()),
    };
    let (field, answer) = answer;
    (shaped(fields), answer)
        .prop_map(move |(mut body, answer)| {
            body[field] = answer;
            if let Some(map) = body.as_object_mut() {
                map.remove("error");
                map.remove("done");
            }
            body
        })
        .boxed()
}

fn dialect() -> impl Strategy<Value = Dialect> {
    proptest::sample::select(&Dialect::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_written_as_it_was_read((dialect, body) in dialect().prop_flat_map(|dialect| (Just(dialect), request(dialect)))) {
        let bytes = body.to_string().into_bytes();
        let request = parse_request(dialect, &bytes).unwrap();
        prop_assert_eq!(render_request_value(dialect, &request), body, "{:#?}", request);
        for other in Dialect::ALL {
            // Whatever it becomes elsewhere, it becomes something that can be read there.
            let there = render_request_value(other, &request).to_string();
            prop_assert!(parse_request(other, there.as_bytes()).is_ok(), "{} -> {}: {}", dialect, other, there);
        }
    }

    #[test]
    fn an_answer_is_written_as_it_was_read((dialect, body) in dialect().prop_flat_map(|dialect| (Just(dialect), response(dialect)))) {
        let response = parse_response(dialect, body.to_string().as_bytes()).unwrap();
        prop_assert_eq!(render_response_value(dialect, &response), body, "{:#?}", response);
        for other in Dialect::ALL {
            let there = render_response_value(other, &response).to_string();
            prop_assert!(parse_response(other, there.as_bytes()).is_ok(), "{} -> {}: {}", dialect, other, there);
        }
    }

    #[test]
    fn an_unchanged_body_leaves_as_the_bytes_it_came_as((dialect, body) in dialect().prop_flat_map(|dialect| (Just(dialect), request(dialect)))) {
        // Spaces the writer does not produce.
        let bytes = serde_json::to_vec_pretty(&body).unwrap();
        let mut received = Received::request(dialect, bytes.clone()).unwrap();
        prop_assert!(*received.bytes() == bytes[..]);
        let same = received.get().model.clone();
        received.get_mut().model = same;
        prop_assert!(*received.bytes() == bytes[..]);
        received.get_mut().model.push('x');
        prop_assert!(received.is_changed());
        prop_assert!(*received.bytes() != bytes[..]);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(dialect in dialect(), bytes in proptest::collection::vec(any::<u8>(), 0..200), body in anything()) {
        let text = body.to_string();
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            drop(parse_request(dialect, bytes));
            drop(parse_response(dialect, bytes));
        }
    }
}
