//! Findings of `status` and `doctor`: a mark, what was found, what to do.

use api::control::{Finding, Level};

use super::block;
use super::style::{Style, Tone};

/// A finding that is fine.
pub(crate) fn ok(what: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, what: what.into(), remedy: String::new() }
}

/// A finding that limits what can be done or promised.
pub(crate) fn warning(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Warning, what: what.into(), remedy: remedy.into() }
}

/// A finding without whose remedy nothing should run.
pub(crate) fn critical(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Critical, what: what.into(), remedy: remedy.into() }
}

/// The lines of all findings, in their order.
pub(crate) fn lines(style: Style, findings: &[Finding]) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in findings {
        let (mark, tone) = match finding.level {
            Level::Ok => ("✔ ok      ", Tone::Good),
            Level::Warning => ("! warning ", Tone::Warn),
            Level::Critical => ("✘ critical", Tone::Bad),
        };
        let room = style.width.saturating_sub(12);
        let mut what = block::wrap(&finding.what, room, finding.what.len()).into_iter();
        lines.push(format!("{}  {}", style.paint(tone, mark), what.next().unwrap_or_default()));
        lines.extend(what.map(|line| format!("{:12}{line}", "")));
        if !finding.remedy.is_empty() {
            let remedy = block::wrap(&finding.remedy, room.saturating_sub(2), finding.remedy.len());
            lines.extend(remedy.into_iter().enumerate().map(|(index, line)| {
                let arrow = if index == 0 { "→ " } else { "  " };
                format!("{:12}{}", "", style.dim(&format!("{arrow}{line}")))
            }));
        }
    }
    lines
}

/// The worst of them.
pub(crate) fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_has_a_mark_and_its_remedy() {
        let findings = [
            ok("Landlock ABI 7"),
            warning(
                "cargo lies under /root, which no agent account can enter",
                "apt-get install cargo",
            ),
            critical("12 MiB are free under /var/lib/sentinel-dev", "make room"),
        ];
        insta::assert_snapshot!(lines(Style::PLAIN, &findings).join("\n"));
        assert_eq!(worst(&findings), Level::Critical);
        assert_eq!(worst(&[]), Level::Ok);
    }
}
