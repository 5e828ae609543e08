//! Small scripts for the provider, written where they are used.

/// A scenario of one model `m` whose turns are the given YAML list items.
pub fn of_turns(turns: &[&str]) -> String {
    of_models(&[("m", turns)])
}

/// A scenario of several models, each with its turns.
pub fn of_models(models: &[(&str, &[&str])]) -> String {
    let mut text =
        "version: 1\nname: suite\nabout: written by a suite\nconversations:\n".to_owned();
    for (model, turns) in models {
        text.push_str(&format!("  - model: {model}\n    turns:\n"));
        for turn in *turns {
            for (index, line) in turn.trim().lines().enumerate() {
                text.push_str(if index == 0 { "      - " } else { "        " });
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// A turn that calls one tool with JSON arguments.
pub fn call(tool: &str, arguments: &serde_json::Value) -> String {
    format!("calls: [{{ name: {tool}, arguments: {arguments} }}]")
}

/// A turn that runs one shell command.
pub fn command(command: &str) -> String {
    call("run_command", &serde_json::json!({ "command": command }))
}

/// The last turn: an answer in words.
pub fn answer(text: &str) -> String {
    format!("say: {}", serde_json::Value::from(text))
}
