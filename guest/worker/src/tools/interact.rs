//! `ask_user` and `todo`: talking to the person, and the run's own task list.

use domain::action::Act;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, Output, Tool, ToolError, arguments, parsed};

pub(super) const ASK_USER: Tool = Tool {
    name: "ask_user",
    description: "Ask the person a question and wait for the answer. Use it only when you cannot go on without it.",
    schema: || {
        json!({"type": "object", "properties": {"question": {"type": "string"}},
            "required": ["question"], "additionalProperties": false})
    },
    reads_only: true,
    act: |_, v| arguments::<Ask>(v).map(|_| Act::Question),
    // Reached only when a rule lets questions pass without a person.
    run: |_, _| {
        Err(ToolError::Failed("nobody is there to answer; decide yourself and say so".to_owned()))
    },
};

pub(super) const TASK_LIST: Tool = Tool {
    name: "todo",
    description: "Write down the list of steps of this task with their state. Replaces the earlier list.",
    schema: || {
        json!({"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object", "properties": {
            "text": {"type": "string"}, "state": {"enum": ["open", "doing", "done"]}
        }, "required": ["text", "state"], "additionalProperties": false}}},
            "required": ["items"], "additionalProperties": false})
    },
    reads_only: true,
    act: |_, v| arguments::<Todo>(v).map(|_| Act::Bookkeeping),
    run: todo,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    #[expect(dead_code, reason = "shown on the card from the call's own arguments")]
    question: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Todo {
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    text: String,
    state: State,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Open,
    Doing,
    Done,
}

fn todo(_: &mut Context<'_>, value: &Value) -> Result<Output, ToolError> {
    let todo: Todo = parsed(value)?;
    let rows: Vec<String> = todo
        .items
        .iter()
        .map(|item| {
            let mark = match item.state {
                State::Open => "[ ]",
                State::Doing => "[~]",
                State::Done => "[x]",
            };
            format!("{mark} {}", item.text)
        })
        .collect();
    Ok(rows.join("\n").into())
}
