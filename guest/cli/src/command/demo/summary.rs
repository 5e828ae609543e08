//! What a rehearsal showed: counted from the run's own items, and then looked up
//! where it left traces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use api::control::{Body, Item, RunView};
use domain::log::{Control, Event, Outcome};
use domain::run::Status;
use serde::Serialize;

use crate::render::block;
use crate::render::style::{Style, Tone};

/// What the items of the run said.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Calls that worked, by tool, in the order of first use.
    tools: Vec<(String, usize)>,
    asked: usize,
    decided: usize,
    /// What a guard refused.
    blocked: Vec<String>,
    /// Files of the workspace that were changed.
    written: BTreeSet<String>,
}

impl Tally {
    pub(super) fn take(&mut self, item: &Item) {
        match &item.body {
            Body::Control(Control::Asked { .. }) => self.asked += 1,
            Body::Control(Control::Decided { .. }) => self.decided += 1,
            Body::Worker(Event::GuardrailBlock(denial)) => self.blocked.push(denial.object.clone()),
            Body::Worker(Event::Result { tool, outcome: Outcome::Ok, changes, .. }) => {
                match self.tools.iter_mut().find(|(name, _)| name == tool) {
                    Some((_, count)) => *count += 1,
                    None => self.tools.push((tool.clone(), 1)),
                }
                self.written.extend(changes.iter().map(|change| change.path.clone()));
            }
            Body::Control(_) | Body::Worker(_) => {}
        }
    }
}

/// What was found afterwards.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) status: Status,
    pub(super) failure: Option<String>,
    pub(super) boundary: String,
    /// A person at the terminal answered.
    pub(super) person: bool,
    /// For each written file, whether it is there.
    pub(super) files: BTreeMap<String, bool>,
    /// Paths a guard refused to write that are there all the same.
    pub(super) got_through: Vec<String>,
    /// Differences between what the worker claimed and the launcher saw.
    pub(super) differences: Vec<String>,
}

impl Evidence {
    /// Looks at the files that the run names. Links are not followed.
    pub(super) fn gather(tally: &Tally, view: &RunView, boundary: &str, person: bool) -> Self {
        let workspace = Path::new(&view.record.workspace);
        let there = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_file());
        let files =
            tally.written.iter().map(|path| (path.clone(), there(&workspace.join(path)))).collect();
        let absolute = tally.blocked.iter().filter(|object| object.starts_with('/'));
        Self {
            status: view.status,
            failure: view.failure.clone(),
            boundary: boundary.to_owned(),
            person,
            files,
            got_through: absolute.filter(|path| there(Path::new(path))).cloned().collect(),
            differences: view.attestation_differences.clone(),
        }
    }
}

/// One line of the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) holds: bool,
    pub(super) what: &'static str,
    pub(super) detail: String,
}

/// What has to hold. A script of the person's own only has to come to its end:
/// what it means to show is not known.
pub(super) fn check(tally: &Tally, evidence: &Evidence, complete: bool) -> Vec<Check> {
    let check = |holds: bool, what, detail: String| Check { holds, what, detail };
    let status = match &evidence.failure {
        Some(failure) => format!("{}: {failure}", evidence.status.as_str()),
        None => evidence.status.as_str().to_owned(),
    };
    let tools: Vec<String> =
        tally.tools.iter().map(|(tool, count)| format!("{tool} ×{count}")).collect();
    let by = if evidence.person { "you answered" } else { "the rehearsal answered" };
    let missing: Vec<&str> = evidence
        .files
        .iter()
        .filter(|(_, there)| !**there)
        .map(|(path, _)| path.as_str())
        .collect();
    let written = tally.written.iter().cloned().collect::<Vec<_>>().join(", ");
    let written = if missing.is_empty() {
        written
    } else {
        format!("{written}; not there: {}", missing.join(", "))
    };
    let blocked = if evidence.got_through.is_empty() {
        format!("{} ({})", tally.blocked.len(), tally.blocked.join(", "))
    } else {
        format!("written all the same: {}", evidence.got_through.join(", "))
    };
    let agrees = match evidence.differences.as_slice() {
        [] => format!("{}; claim and observation agree", evidence.boundary),
        differences => differences.join("; "),
    };
    vec![
        check(evidence.status == Status::Done, "finished", status),
        check(!complete || !tools.is_empty(), "tools used", tools.join(", ")),
        check(
            tally.decided == tally.asked && (!complete || tally.asked > 0),
            "approvals waited for",
            format!("{} ({by})", tally.asked),
        ),
        check(
            evidence.got_through.is_empty() && (!complete || !tally.blocked.is_empty()),
            "blocks shown",
            blocked,
        ),
        check(
            missing.is_empty() && (!complete || !tally.written.is_empty()),
            "files written",
            written,
        ),
        check(evidence.differences.is_empty(), "boundary", agrees),
    ]
}

/// The summary for a person.
pub(super) fn lines(style: Style, checks: &[Check]) -> Vec<String> {
    let width = checks.iter().map(|check| block::width(check.what)).max().unwrap_or(0);
    checks
        .iter()
        .map(|check| {
            let (mark, tone) = if check.holds { ("✔", Tone::Good) } else { ("✘", Tone::Bad) };
            let detail = block::row(&check.detail, style.width.saturating_sub(width + 6));
            format!("  {} {:width$}  {detail}", style.paint(tone, mark), check.what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::card::tests::{block_outside, request};
    use domain::approval::Wants;
    use domain::id::Millis;
    use domain::log::{Change, Verdict};

    fn tally() -> Tally {
        let pending = request(7, Wants::Approval);
        let result = |tool: &str, outcome, path: Option<&str>| {
            let changes = path
                .map(|path| Change { path: path.into(), before: None, after: String::new() })
                .into_iter()
                .collect();
            let (call, text) = ("c".to_owned(), String::new());
            Body::Worker(Event::Result {
                call,
                tool: tool.into(),
                outcome,
                text,
                blob: None,
                changes,
            })
        };
        let bodies = [
            result("write_file", Outcome::Ok, Some("greet.sh")),
            result("write_file", Outcome::Ok, Some("greet_test.sh")),
            Body::Control(Control::Asked {
                request: 7,
                card: Box::new(pending.card),
                digest: pending.digest.clone(),
            }),
            Body::Control(Control::Decided {
                request: 7,
                digest: pending.digest,
                verdict: Verdict::Approve,
                by: "os:root".into(),
                reason: None,
            }),
            result("run_command", Outcome::Ok, None),
            Body::Worker(Event::GuardrailBlock(block_outside())),
            result("write_file", Outcome::Denied, None),
        ];
        let mut tally = Tally::default();
        for body in bodies {
            tally.take(&Item { seq: 1, at: Millis(0), body });
        }
        tally
    }

    fn evidence() -> Evidence {
        Evidence {
            status: Status::Done,
            failure: None,
            boundary: "separate".into(),
            person: false,
            files: [("greet.sh".to_owned(), true), ("greet_test.sh".to_owned(), true)].into(),
            got_through: vec![],
            differences: vec![],
        }
    }

    fn failed(tally: &Tally, evidence: &Evidence) -> Vec<&'static str> {
        check(tally, evidence, true).into_iter().filter(|c| !c.holds).map(|c| c.what).collect()
    }

    #[test]
    fn a_whole_rehearsal_passes_and_says_what_it_showed() {
        let checks = check(&tally(), &evidence(), true);
        assert!(checks.iter().all(|check| check.holds));
        insta::assert_snapshot!(lines(Style::PLAIN, &checks).join("\n"));
    }

    #[test]
    fn whatever_is_missing_fails() {
        let all = ["tools used", "approvals waited for", "blocks shown", "files written"];
        assert_eq!(failed(&Tally::default(), &evidence()), all);
        let status = Evidence { status: Status::Failed, ..evidence() };
        assert_eq!(failed(&tally(), &status), ["finished"]);
        let gone = [("greet.sh".to_owned(), false)].into();
        assert_eq!(failed(&tally(), &Evidence { files: gone, ..evidence() }), ["files written"]);
        let written = Evidence { got_through: vec!["/etc/motd".into()], ..evidence() };
        assert_eq!(failed(&tally(), &written), ["blocks shown"]);
        let lied = Evidence { differences: vec!["uid".into()], ..evidence() };
        assert_eq!(failed(&tally(), &lied), ["boundary"]);
    }

    #[test]
    fn a_script_of_ones_own_only_has_to_come_to_its_end() {
        let nothing = Evidence { files: BTreeMap::new(), ..evidence() };
        assert!(check(&Tally::default(), &nothing, false).iter().all(|check| check.holds));
        let failed = Evidence { status: Status::Failed, ..nothing };
        assert!(!check(&Tally::default(), &failed, false).iter().all(|check| check.holds));
    }
}
