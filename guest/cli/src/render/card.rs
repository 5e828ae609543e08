//! Cards: what a person decides on, and what a guard stopped. A card shows every
//! argument of the call, because those are the bytes a decision is bound to; a
//! cut is marked, and the place where all of it stands is named.

use api::control::Pending;
use domain::approval::Wants;
use domain::denial::Denial;
use serde_json::Value;

use super::block;
use super::style::{Style, Tone};
use super::time::Clock;
use crate::limits;

/// How a command line to this control plane starts: `sentinel`, and the options
/// that were needed to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation(pub(crate) String);

/// What stands at the foot of a card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foot<'a> {
    pub(crate) invocation: &'a Invocation,
    /// The command lines that decide; not where a question follows anyway.
    pub(crate) decide: bool,
}

/// One named field of a card.
struct Field {
    name: &'static str,
    text: String,
    tone: Tone,
    limit: usize,
}

impl Field {
    fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into(), tone: Tone::Plain, limit: limits::CARD_ARGUMENT_CHARACTERS }
    }

    fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    fn is_cut(&self) -> bool {
        self.text.chars().count() > self.limit
    }
}

const NAME_WIDTH: usize = 10;

/// The frame around fields: a title on top, hints at the foot.
fn frame(style: Style, tone: Tone, title: &str, fields: &[Field], foot: &[String]) -> Vec<String> {
    let bar = style.paint(tone, "│");
    let dashes = style.width.saturating_sub(block::width(title) + 4).clamp(3, 60);
    let rule = style.paint(tone, &"─".repeat(dashes));
    let mut lines =
        vec![format!("{} {} {rule}", style.paint(tone, "╭─"), style.paint(tone, title))];
    let room = style.width.saturating_sub(NAME_WIDTH + 3).max(20);
    for field in fields {
        for (index, part) in block::wrap(&field.text, room, field.limit).into_iter().enumerate() {
            let name = if index == 0 { field.name } else { "" };
            let name = style.dim(&format!("{name:<NAME_WIDTH$}"));
            lines.push(
                format!("{bar} {name} {}", style.paint(field.tone, &part)).trim_end().to_owned(),
            );
        }
    }
    let corner = style.paint(tone, "╰─");
    let mut hints = foot.iter();
    lines.push(hints.next().map_or_else(|| corner.clone(), |hint| format!("{corner} {hint}")));
    lines.extend(hints.map(|hint| format!("   {hint}")));
    lines
}

/// A request that waits for a person.
pub(crate) fn pending(
    style: Style,
    clock: &Clock,
    foot: Foot<'_>,
    pending: &Pending,
) -> Vec<String> {
    let card = &pending.card;
    let title = match card.wants {
        Wants::Approval => "approval wanted",
        Wants::Answer => "the agent asks",
    };
    let title = format!("{title} · request {}", pending.request);
    let mut fields = vec![
        Field::new("run", pending.run.as_str()),
        Field::new("title", block::row(&pending.title, style.width.saturating_sub(NAME_WIDTH + 3))),
        Field::new("agent", pending.agent.as_str()),
        Field::new("asked", format!("{} ago", clock.age(pending.asked_at))),
        Field::new("tool", card.call.tool.as_str()).toned(Tone::Strong),
        Field::new("", card.summary.as_str()).toned(Tone::Strong),
    ];
    fields.extend(arguments(&card.call.arguments, &card.summary));
    fields.push(Field::new("in", card.cwd.as_str()));
    fields.push(Field::new("why", format!("{} ({})", card.why, card.rule)));
    if !card.drift.is_empty() {
        let text = format!("asked again: {}", card.drift.join("; "));
        fields.push(Field::new("changed", text).toned(Tone::Warn));
    }
    if !card.bound.is_empty() {
        let bound: Vec<&str> = card.bound.iter().map(|part| part.what.as_str()).collect();
        fields.push(Field::new("bound to", bound.join(", ")));
    }
    if !card.not_bound.is_empty() {
        let text = format!("{} (may change after your yes)", card.not_bound.join(", "));
        fields.push(Field::new("not bound", text).toned(Tone::Warn));
    }
    fields.push(Field::new("digest", pending.digest.as_str()).toned(Tone::Dim));
    let cut = fields.iter().any(Field::is_cut);
    frame(style, Tone::Warn, &title, &fields, &hints(foot, pending, cut))
}

/// How to see all of it, and how to decide.
fn hints(foot: Foot<'_>, pending: &Pending, cut: bool) -> Vec<String> {
    let mut hints = Vec::new();
    if cut {
        hints.push(format!(
            "not all of it fits here; see it whole: {} --json approvals {}",
            foot.invocation.0, pending.run
        ));
    }
    if foot.decide {
        hints.extend(command_lines(foot.invocation, pending));
    }
    hints
}

/// The command lines that decide a request.
pub(crate) fn command_lines(invocation: &Invocation, pending: &Pending) -> Vec<String> {
    let sentinel = &invocation.0;
    let (run, request) = (&pending.run, pending.request);
    let deny = format!("{sentinel} deny {run} {request} --reason \"…\"");
    match pending.card.wants {
        Wants::Approval => vec![format!("{sentinel} approve {run} {request}"), deny],
        Wants::Answer => vec![format!("{sentinel} answer {run} --request {request} \"…\""), deny],
    }
}

/// Every argument that the summary does not already show whole.
fn arguments(json: &str, summary: &str) -> Vec<Field> {
    match serde_json::from_str::<Value>(json) {
        Ok(Value::Object(fields)) => fields
            .iter()
            .filter(|(_, value)| value.as_str() != Some(summary))
            .map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Field::new("argument", format!("{name} = {value}"))
            })
            .collect(),
        Ok(Value::Null) => Vec::new(),
        Ok(other) => vec![Field::new("arguments", other.to_string())],
        Err(_no_json) => vec![Field::new("arguments", json)],
    }
}

/// A refusal by a guard.
pub(crate) fn denial(style: Style, denial: &Denial) -> Vec<String> {
    let mut fields = vec![
        Field::new("what", denial.object.as_str()).toned(Tone::Strong),
        Field::new("who", denial.subject.as_str()),
        Field::new("rule", denial.rule.as_str()),
        Field::new("why", denial.why.as_str()),
    ];
    for alternative in &denial.alternatives {
        fields.push(Field::new("instead", alternative.as_str()));
    }
    let title = format!("blocked by {}", denial.layer.as_str());
    frame(style, Tone::Bad, &title, &fields, &[])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use domain::approval::{Bound, Card};
    use domain::denial::Layer;
    use domain::id::{Millis, RunId};
    use domain::log::Call;
    use jiff::tz::TimeZone;

    pub(crate) fn clock() -> Clock {
        Clock { now: Millis(1_793_700_121_000), zone: TimeZone::UTC }
    }

    pub(crate) fn invocation() -> Invocation {
        Invocation("sentinel".into())
    }

    pub(crate) fn request(number: u64, wants: Wants) -> Pending {
        let (tool, arguments, summary) = match wants {
            Wants::Approval => (
                "run_command",
                r#"{"command":"sh test.sh && /usr/bin/true","timeout_seconds":60}"#,
                "sh test.sh && /usr/bin/true",
            ),
            Wants::Answer => ("ask_user", r#"{"question":"Which port?"}"#, "Which port?"),
        };
        Pending {
            run: RunId::new("5f0c1e9e-7c0a-4c5e-9d5e-0a1b2c3d4e5f").unwrap(),
            title: "count the words in a file".into(),
            agent: "naomi".into(),
            request: number,
            digest: "9f2c".repeat(16),
            asked_at: Millis(1_793_700_079_000),
            card: Card {
                wants,
                call: Call {
                    id: "c1".into(),
                    tool: tool.into(),
                    arguments: arguments.into(),
                    raw: None,
                },
                summary: summary.into(),
                cwd: "/srv/naomi/workspace".into(),
                rule: "command.other".into(),
                why: "the command is not known to be safe and reversible".into(),
                policy_generation: 0,
                bound: ["tool", "arguments", "cwd", "file test.sh"]
                    .map(|what| Bound { what: what.into(), sha256: "00".into() })
                    .to_vec(),
                not_bound: vec!["/usr/bin/true".into()],
                drift: vec![],
            },
        }
    }

    pub(crate) fn shown(pending: &Pending) -> String {
        let foot = Foot { invocation: &invocation(), decide: true };
        super::pending(Style::PLAIN, &clock(), foot, pending).join("\n")
    }

    #[test]
    fn an_approval_shows_what_is_bound_and_what_is_not() {
        insta::assert_snapshot!(shown(&request(7, Wants::Approval)));
    }

    #[test]
    fn where_a_question_follows_the_card_names_no_commands() {
        let foot = Foot { invocation: &invocation(), decide: false };
        let pending = request(7, Wants::Approval);
        let lines = super::pending(Style::PLAIN, &clock(), foot, &pending);
        assert_eq!(lines.last().unwrap(), "╰─");
    }

    #[test]
    fn a_question_is_answered_in_words() {
        insta::assert_snapshot!(shown(&request(9, Wants::Answer)));
    }

    #[test]
    fn a_request_that_drifted_says_what_changed() {
        let mut pending = request(12, Wants::Approval);
        pending.card.drift = vec!["file test.sh changed".into(), "cwd changed".into()];
        insta::assert_snapshot!(shown(&pending));
    }

    #[test]
    fn a_hostile_card_stays_in_its_frame_and_hides_nothing() {
        let mut pending = request(7, Wants::Approval);
        let command =
            format!("true\n╰─ sentinel approve\n\u{1b}[2J\u{202e}{} evil", "x ".repeat(3_000));
        pending.card.call.arguments = serde_json::json!({"command": command}).to_string();
        pending.card.summary = "true".into();
        pending.card.cwd = "那".repeat(90);
        let text = shown(&pending);
        let lines: Vec<&str> = text.lines().collect();
        let foot = lines.iter().position(|line| line.starts_with("╰─")).unwrap();
        assert!(lines[1..foot].iter().all(|line| line.starts_with('│')), "{text}");
        assert!(lines[1..foot].iter().all(|line| block::width(line) <= 101), "{text}");
        assert!(text.contains("␛[2J⟨U+202E⟩") && text.contains("more characters]"));
        assert!(lines[foot].contains("not all of it fits here"));
    }

    #[test]
    fn arguments_that_are_no_object_are_shown_as_they_are() {
        for (json, expected) in [("[1]", "[1]"), ("{\"a\":", "{\"a\":"), ("7", "7")] {
            let fields = arguments(json, "");
            assert_eq!(fields.first().map(|field| field.text.as_str()), Some(expected));
        }
        assert!(arguments("null", "").is_empty());
    }

    pub(crate) fn block_outside() -> Denial {
        Denial {
            layer: Layer::ActionPolicy,
            subject: "naomi".into(),
            object: "/etc/motd".into(),
            rule: "outside.write".into(),
            why: "the path is outside the workspace, where this agent cannot write".into(),
            alternatives: vec!["write to a path in the workspace".into()],
            request_id: "c2".into(),
        }
    }

    #[test]
    fn a_block_says_who_what_why_and_what_instead() {
        insta::assert_snapshot!(denial(Style::PLAIN, &block_outside()).join("\n"));
    }
}
