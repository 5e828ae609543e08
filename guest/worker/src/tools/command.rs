//! `run_command` and `fetch_url`: programs of the tool host.

use std::ffi::OsString;
use std::time::Duration;

use domain::action::Act;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, Output, Tool, ToolError, arguments, ended_early, parsed, roles};
use crate::host::{ChildOutcome, Exit, Program};
use crate::limits;

pub(super) const RUN_COMMAND: Tool = Tool {
    name: "run_command",
    description: "Run a shell command in the workspace. No network, no terminal; it ends with everything it started.",
    schema: || {
        json!({"type": "object", "properties": {
            "command": {"type": "string"},
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": limits::TOOL_DEADLINE_MAX.as_secs()}
        }, "required": ["command"], "additionalProperties": false})
    },
    reads_only: false,
    act: |_, v| arguments::<Command>(v).map(|a| Act::Command(a.command)),
    run: run_command,
};

pub(super) const FETCH_URL: Tool = Tool {
    name: "fetch_url",
    description: "Fetch a web page with GET and return its body as text.",
    schema: || {
        json!({"type": "object", "properties": {"url": {"type": "string"}},
            "required": ["url"], "additionalProperties": false})
    },
    reads_only: false,
    act: |_, v| arguments::<Fetch>(v).and_then(|a| roles::destination(&a.url)).map(Act::Network),
    run: fetch_url,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    command: String,
    #[serde(default)]
    timeout_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fetch {
    url: String,
}

fn run_command(context: &mut Context<'_>, value: &Value) -> Result<Output, ToolError> {
    let command: Command = parsed(value)?;
    let deadline = command
        .timeout_seconds
        .map_or(limits::TOOL_DEADLINE, Duration::from_secs)
        .min(limits::TOOL_DEADLINE_MAX);
    let argv = ["/bin/sh", "-c"]
        .iter()
        .map(OsString::from)
        .chain([OsString::from(command.command)])
        .collect();
    let outcome = context.child(Program::Argv(argv), Vec::new(), Some(deadline), true)?;
    let text = render(&outcome, deadline);
    if outcome.ended_by == crate::host::EndedBy::Itself {
        Ok(text.into())
    } else {
        Err(ToolError::Failed(text))
    }
}

/// What the model sees of a command: how it ended, then both outputs.
fn render(outcome: &ChildOutcome, deadline: Duration) -> String {
    let mut text = match outcome.exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("ended by signal {signal}"),
    };
    if let Some(why) = ended_early(outcome.ended_by, deadline) {
        text = format!("error: {why} ({text})");
    }
    if outcome.survivors_killed > 0 {
        text.push_str(&format!(
            "; {} background process(es) were ended with it",
            outcome.survivors_killed
        ));
    }
    for (name, bytes) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        if !bytes.is_empty() {
            text.push_str(&format!(
                "\n--- {name}\n{}",
                String::from_utf8_lossy(bytes).trim_end_matches('\n')
            ));
        }
    }
    text
}

fn fetch_url(context: &mut Context<'_>, value: &Value) -> Result<Output, ToolError> {
    let fetch: Fetch = parsed(value)?;
    let program = Program::Role { role: roles::FETCH.to_owned() };
    let outcome = context.child(program, fetch.url.into_bytes(), None, true)?;
    roles::answer(&outcome)
}
