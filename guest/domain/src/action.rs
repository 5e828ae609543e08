//! The action policy: may this call run now, does a person decide, or never?
//!
//! Three layers, applied in this order:
//! 1. *Floors* that no rule lifts: a tool that is not granted, a write the
//!    sandbox cannot perform anyway.
//! 2. The operator's own rules. Where several match, the strictest wins.
//! 3. The built-in table, only where no operator rule matched. Again the
//!    strictest of its matching rows wins.
//!
//! Rules carry examples that must and must not match; they are checked when
//! the rules are loaded, so a pattern that does not mean what its author
//! thinks is refused with its index. The policy looks at what a call *says*;
//! what it can really do is bounded by the sandbox and by Leash.

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::config::{Problem, yaml_problem};
use crate::limits;
use crate::words;

/// What to do with a call. Ordered: the strictest is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Auto,
    Ask,
    Deny,
}

/// Whether a path argument lies in the agent's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Workspace,
    Outside,
}

/// What a tool call does, as far as its arguments tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Read(Place),
    Write(Place),
    /// A shell command line.
    Command(String),
    /// A network destination, `host:port`.
    Network(String),
    /// A question to the person.
    Question,
    /// Touches nothing but the run's own notes.
    Bookkeeping,
    /// No tool of that name.
    Unknown,
}

/// One call to be judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<'a> {
    pub tool: &'a str,
    pub act: Act,
    pub arguments: &'a serde_json::Value,
}

/// An operator's rule. All conditions given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    /// A tool's name, or `*`.
    pub tool: String,
    /// First words of a plain command; never matches a compound one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// A pattern one string argument must match as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<ArgumentPattern>,
    pub verdict: Verdict,
    pub why: String,
    /// Values (a command line, or the argument's text) that must match.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Values that must not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_match: Vec<String>,
}

/// A condition on one named string argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentPattern {
    pub name: String,
    /// Matched against the whole value.
    pub regex: String,
}

/// A rule that cannot be used, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {index} ({id}): {what}")]
pub struct RuleProblem {
    pub index: usize,
    pub id: String,
    pub what: String,
}

/// Checked rules, ready to judge.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<(Rule, Option<Regex>)>,
}

/// The judgement on one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    pub rule: String,
    pub why: String,
    pub alternatives: Vec<String>,
}

impl Policy {
    /// Compiles `rules` and runs their examples.
    pub fn load(rules: &[Rule]) -> Result<Self, Vec<RuleProblem>> {
        let mut problems = Vec::new();
        let mut checked = Vec::new();
        if rules.len() > limits::POLICY_RULES {
            problems.push(RuleProblem {
                index: limits::POLICY_RULES,
                id: String::new(),
                what: format!(
                    "there are {} rules; the ceiling is {}",
                    rules.len(),
                    limits::POLICY_RULES
                ),
            });
        }
        for (index, rule) in rules.iter().enumerate().take(limits::POLICY_RULES) {
            match check_rule(rule) {
                Ok(pattern) => checked.push((rule.clone(), pattern)),
                Err(what) => problems.push(RuleProblem { index, id: rule.id.clone(), what }),
            }
        }
        if problems.is_empty() { Ok(Self { rules: checked }) } else { Err(problems) }
    }

    /// Judges one call of an agent that holds the tools in `granted`.
    pub fn decide(&self, action: &Action<'_>, granted: &[String]) -> Judgement {
        if let Some(floor) = decide_floor(action, granted) {
            return floor;
        }
        let own = self
            .rules
            .iter()
            .filter(|(rule, pattern)| rule_matches(rule, pattern.as_ref(), action))
            .max_by_key(|(rule, _)| rule.verdict)
            .map(|(rule, _)| Judgement {
                verdict: rule.verdict,
                rule: rule.id.clone(),
                why: rule.why.clone(),
                alternatives: Vec::new(),
            });
        own.unwrap_or_else(|| decide_builtin(&action.act))
    }
}

/// Reads an operator's rule file: a YAML list of [`Rule`]s, each checked
/// against its examples.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, Vec<Problem>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let keys = "a rule has: id, tool, command or argument, verdict, why, match, not_match";
    let rules: Vec<Rule> = serde_yaml::from_str(text).map_err(|e| vec![yaml_problem(&e, keys)])?;
    match Policy::load(&rules) {
        Ok(_) => Ok(rules),
        Err(problems) => Err(problems
            .into_iter()
            .map(|problem| Problem {
                line: text
                    .lines()
                    .position(|line| line.contains(&problem.id))
                    .map(|index| index + 1),
                what: problem.to_string(),
                remedy: "correct the rule or its examples".to_owned(),
            })
            .collect()),
    }
}

fn check_rule(rule: &Rule) -> Result<Option<Regex>, String> {
    if rule.id.trim().is_empty() {
        return Err("has no id".to_owned());
    }
    if rule.command.as_ref().is_some_and(Vec::is_empty) {
        return Err("`command` names no word; leave it out to match every command".to_owned());
    }
    let pattern = match &rule.argument {
        None => None,
        Some(argument) => Some(
            Regex::new(&format!("^(?s:{})$", argument.regex))
                .map_err(|e| format!("`argument.regex` is no pattern: {e}"))?,
        ),
    };
    if rule.command.is_some() && rule.argument.is_some() {
        return Err("has both `command` and `argument`; write two rules".to_owned());
    }
    let conditional = rule.command.is_some() || rule.argument.is_some();
    if conditional && rule.matches.is_empty() {
        return Err("has a condition but no `match` example that shows what it catches".to_owned());
    }
    let holds = |text: &String| condition_holds(rule, pattern.as_ref(), text);
    if let Some(example) = rule.matches.iter().find(|e| conditional && !holds(e)) {
        return Err(format!("does not match its own example {example:?}"));
    }
    if let Some(example) = rule.not_match.iter().find(|e| holds(e)) {
        return Err(format!("matches {example:?}, listed under `not_match`"));
    }
    Ok(pattern)
}

fn condition_holds(rule: &Rule, pattern: Option<&Regex>, text: &str) -> bool {
    match (&rule.command, pattern) {
        (Some(prefix), _) => words::plain_words(text).is_some_and(|all| {
            all.len() >= prefix.len() && all.iter().zip(prefix).all(|(a, b)| a == b)
        }),
        (None, Some(pattern)) => pattern.is_match(text),
        (None, None) => true,
    }
}

fn rule_matches(rule: &Rule, pattern: Option<&Regex>, action: &Action<'_>) -> bool {
    if rule.tool != "*" && rule.tool != action.tool {
        return false;
    }
    let text = match (&rule.command, &rule.argument) {
        (Some(_), _) => {
            if let Act::Command(command) = &action.act {
                Some(command.as_str())
            } else {
                None
            }
        }
        (None, Some(argument)) => action.arguments.get(&argument.name).and_then(|v| v.as_str()),
        (None, None) => Some(""),
    };
    text.is_some_and(|text| condition_holds(rule, pattern, text))
}

fn decide_floor(action: &Action<'_>, granted: &[String]) -> Option<Judgement> {
    let judged = |rule: &str, why: String, alternatives: Vec<String>| {
        Some(Judgement { verdict: Verdict::Deny, rule: rule.to_owned(), why, alternatives })
    };
    if action.act == Act::Unknown {
        return judged(
            "tool.unknown",
            format!("there is no tool named {:?}", action.tool),
            vec![format!("one of the granted tools: {}", granted.join(", "))],
        );
    }
    if !granted.iter().any(|name| name == action.tool) {
        return judged(
            "tool.not_granted",
            format!("the tool {:?} is not granted to this agent", action.tool),
            vec![format!("one of the granted tools: {}", granted.join(", "))],
        );
    }
    if action.act == Act::Write(Place::Outside) {
        return judged(
            "outside.write",
            "the path is outside the workspace, where this agent cannot write".to_owned(),
            vec![
                "write to a path in the workspace".to_owned(),
                "use $TMPDIR in a command".to_owned(),
            ],
        );
    }
    None
}

/// A row of the built-in table.
pub struct BuiltIn {
    pub id: &'static str,
    pub what: &'static str,
    pub verdict: Verdict,
    pub why: &'static str,
    matches: fn(&Act) -> bool,
}

/// The built-in table, printed in the documentation as it stands here.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        id: "workspace.read",
        what: "read, list or search in the workspace",
        verdict: Verdict::Auto,
        why: "it changes nothing",
        matches: |act| *act == Act::Read(Place::Workspace),
    },
    BuiltIn {
        id: "workspace.write",
        what: "write or edit in the workspace",
        verdict: Verdict::Auto,
        why: "the bytes before are kept and can be put back",
        matches: |act| *act == Act::Write(Place::Workspace),
    },
    BuiltIn {
        id: "outside.read",
        what: "read outside the workspace",
        verdict: Verdict::Ask,
        why: "the path is outside the workspace",
        matches: |act| *act == Act::Read(Place::Outside),
    },
    BuiltIn {
        id: "command.safe",
        what: "one plain command that only reads the workspace",
        verdict: Verdict::Auto,
        why: "the command only reads",
        matches: |act| matches!(act, Act::Command(command) if only_reads(command)),
    },
    BuiltIn {
        id: "command.other",
        what: "any other command",
        verdict: Verdict::Ask,
        why: "the command is not known to be safe and reversible",
        matches: |act| matches!(act, Act::Command(command) if !only_reads(command)),
    },
    BuiltIn {
        id: "network.tool",
        what: "a network request by a tool",
        verdict: Verdict::Ask,
        why: "no egress policy is bound to this run",
        matches: |act| matches!(act, Act::Network(_)),
    },
    BuiltIn {
        id: "question",
        what: "a question to the person",
        verdict: Verdict::Ask,
        why: "the agent asks for your answer",
        matches: |act| *act == Act::Question,
    },
    BuiltIn {
        id: "bookkeeping",
        what: "the run's own task list",
        verdict: Verdict::Auto,
        why: "it touches nothing else",
        matches: |act| *act == Act::Bookkeeping,
    },
];

fn decide_builtin(act: &Act) -> Judgement {
    let strictest = BUILT_IN.iter().filter(|row| (row.matches)(act)).max_by_key(|row| row.verdict);
    match strictest {
        Some(row) => Judgement {
            verdict: row.verdict,
            rule: row.id.to_owned(),
            why: row.why.to_owned(),
            alternatives: Vec::new(),
        },
        // Fail closed: an act no row describes waits for a person.
        None => Judgement {
            verdict: Verdict::Ask,
            rule: "no.rule".to_owned(),
            why: "no rule describes this act".to_owned(),
            alternatives: Vec::new(),
        },
    }
}

/// Programs that read files or print facts and have no option that writes a
/// file or starts another program.
const READERS: &[&str] = &[
    "basename",
    "cat",
    "cksum",
    "cmp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "false",
    "grep",
    "head",
    "id",
    "ls",
    "md5sum",
    "nl",
    "od",
    "printf",
    "pwd",
    "seq",
    "sha256sum",
    "stat",
    "tail",
    "tr",
    "true",
    "uname",
    "wc",
    "whoami",
];

fn only_reads(command: &str) -> bool {
    let Some(words) = words::plain_words(command) else { return false };
    let Some((program, arguments)) = words.split_first() else { return false };
    READERS.contains(&program.as_str()) && arguments.iter().all(|word| stays_inside(word))
}

/// The word can name nothing outside the working directory.
fn stays_inside(word: &str) -> bool {
    let option_with_path = word.starts_with('-') && word.contains('/');
    !option_with_path && !word.starts_with('/') && !word.split(['/', '=']).any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(text: &str) -> Act {
        Act::Command(text.to_owned())
    }

    fn judge(policy: &Policy, tool: &str, act: Act) -> Judgement {
        let arguments = if let Act::Command(text) = &act {
            json!({"command": text})
        } else {
            json!({"path": "x"})
        };
        policy.decide(&Action { tool, act, arguments: &arguments }, &[tool.to_owned()])
    }

    fn rule(yaml: &str) -> Rule {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn the_built_in_table() {
        let policy = Policy::default();
        let rows = [
            ("read_file", Act::Read(Place::Workspace), "workspace.read"),
            ("read_file", Act::Read(Place::Outside), "outside.read"),
            ("write_file", Act::Write(Place::Workspace), "workspace.write"),
            ("write_file", Act::Write(Place::Outside), "outside.write"),
            ("run_command", command("ls -l src"), "command.safe"),
            ("run_command", command("rm -rf src"), "command.other"),
            ("fetch_url", Act::Network("a.test:443".into()), "network.tool"),
            ("ask_user", Act::Question, "question"),
            ("todo", Act::Bookkeeping, "bookkeeping"),
            ("nope", Act::Unknown, "tool.unknown"),
        ];
        for (tool, act, id) in rows {
            assert_eq!(judge(&policy, tool, act.clone()).rule, id, "{tool} {act:?}");
        }
    }

    #[test]
    fn commands_that_could_write_run_or_leave_the_workspace_ask() {
        for text in [
            "cat /etc/passwd",
            "cat ../x",
            "cat a/../../x",
            "grep -f/etc/passwd x",
            "ls; rm x",
            "cat x > y",
            "grep --file=/etc/passwd x",
            "sort -o x y",
            "find . -delete",
            "env ls",
            "./ls",
            "/bin/ls",
            "git log",
            "xargs cat",
            "timeout 5 cat x",
            "head --lines=../x",
            "sh -c ls",
        ] {
            assert_eq!(
                judge(&Policy::default(), "run_command", command(text)).verdict,
                Verdict::Ask,
                "{text}"
            );
        }
        for text in
            ["pwd", "ls", "cat notes.txt", "grep -rn \"rm -rf\" docs", "wc -l a b", "echo hi there"]
        {
            assert_eq!(
                judge(&Policy::default(), "run_command", command(text)).verdict,
                Verdict::Auto,
                "{text}"
            );
        }
    }

    #[test]
    fn an_allowed_prefix_never_covers_a_compound_command() {
        let policy = Policy::load(&[rule(
            "{id: log, tool: run_command, command: [git, log], verdict: auto, why: reads, match: [git log -3]}",
        )])
        .unwrap();
        assert_eq!(judge(&policy, "run_command", command("git log")).verdict, Verdict::Auto);
        for text in [
            "git log; touch /tmp/pwn",
            "git log && x",
            "git log | sh",
            "git log & x",
            "git log\nx",
            "git log $(x)",
            "git log `x`",
            "( git log )",
            "{ git log; }",
            "if true; then git log; fi",
            "f(){ git log; }; f",
        ] {
            assert_eq!(
                judge(&policy, "run_command", command(text)).verdict,
                Verdict::Ask,
                "{text}"
            );
        }
    }

    #[test]
    fn the_strictest_matching_rule_wins_and_floors_stay() {
        let policy = Policy::load(&[
            rule("{id: all, tool: '*', verdict: auto, why: trust}"),
            rule(
                "{id: env, tool: '*', argument: {name: path, regex: '(.*/)?\\.env'}, verdict: deny, why: secrets, \
                 match: [a/.env, .env], not_match: [a.env]}",
            ),
        ])
        .unwrap();
        let arguments = json!({"path": "a/.env"});
        let action =
            Action { tool: "read_file", act: Act::Read(Place::Workspace), arguments: &arguments };
        assert_eq!(policy.decide(&action, &["read_file".into()]).rule, "env");
        assert_eq!(policy.decide(&action, &[]).rule, "tool.not_granted");
        assert_eq!(judge(&policy, "write_file", Act::Write(Place::Outside)).rule, "outside.write");
        assert_eq!(judge(&policy, "run_command", command("make")).rule, "all");
    }

    #[test]
    fn a_rule_that_breaks_its_own_examples_is_refused_with_its_index() {
        let good = rule("{id: a, tool: x, verdict: ask, why: w}");
        for (yaml, says) in [
            ("{id: b, tool: x, command: [git], verdict: ask, why: w}", "no `match` example"),
            (
                "{id: b, tool: x, command: [git], verdict: ask, why: w, match: [ls]}",
                "its own example \"ls\"",
            ),
            ("{id: b, tool: x, command: [], verdict: ask, why: w}", "names no word"),
            (
                "{id: b, tool: x, argument: {name: p, regex: 'a.*'}, verdict: ask, why: w, match: [ab], not_match: [ac]}",
                "listed under `not_match`",
            ),
            (
                "{id: b, tool: x, argument: {name: p, regex: '('}, verdict: ask, why: w, match: [a]}",
                "no pattern",
            ),
        ] {
            let problems = Policy::load(&[good.clone(), rule(yaml)]).unwrap_err();
            assert_eq!(problems.len(), 1);
            assert_eq!((problems[0].index, problems[0].id.as_str()), (1, "b"));
            assert!(problems[0].what.contains(says), "{}", problems[0]);
        }
    }
}
