//! What confines a run: the worker's own claim beside what the launcher
//! observed. A difference is critical, because one of the two is not true.

use domain::log::Attestation;
use serde_json::{Map, Value};

use super::block;
use super::style::{Style, Tone};
use super::table::{self, Cell};

/// The claim as it stands in a transcript: what holds in one line, then what is
/// missing.
pub(crate) fn in_transcript(style: Style, claim: &Attestation) -> Vec<String> {
    let landlock = match claim.landlock_abi {
        0 => "no Landlock".to_owned(),
        abi => format!("Landlock ABI {abi}"),
    };
    let seccomp = if claim.seccomp { "seccomp" } else { "no seccomp" };
    let line = format!(
        "· confined: {landlock}, {seccomp}, uid {}, boundary {}, egress {}",
        claim.uid, claim.boundary, claim.egress
    );
    let mut lines = vec![style.dim(&block::row(&line, style.width))];
    for missing in &claim.missing {
        let text = block::row(missing, style.width.saturating_sub(13));
        lines.push(format!("{} not enforced: {text}", style.paint(Tone::Warn, "!")));
    }
    lines
}

/// Claim and observation side by side, then what differs.
pub(crate) fn side_by_side(
    style: Style,
    claim: Option<&Attestation>,
    observed: Option<&Value>,
    differences: &[String],
) -> Vec<String> {
    if claim.is_none() && observed.is_none() {
        return vec![style.dim("not attested yet: no worker was started")];
    }
    let claim = facts(claim.and_then(|claim| serde_json::to_value(claim).ok()).as_ref());
    let observed = facts(observed);
    let mut names: Vec<&String> = claim.keys().collect();
    names.extend(observed.keys().filter(|name| !claim.contains_key(*name)));
    let side = |facts: &Map<String, Value>, name: &str| match facts.get(name) {
        None => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.is_empty() => "none".to_owned(),
        Some(Value::Array(items)) => {
            let words =
                items.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
            words.collect::<Vec<_>>().join("; ")
        }
        Some(other) => other.to_string(),
    };
    let rows: Vec<Vec<Cell>> = names
        .into_iter()
        .map(|name| {
            let (claimed, seen) = (side(&claim, name), side(&observed, name));
            let differs = differences.iter().any(|text| text.contains(name.as_str()));
            let tone = if differs { Tone::Bad } else { Tone::Plain };
            vec![Cell::new(name), Cell::toned(claimed, tone), Cell::toned(seen, tone)]
        })
        .collect();
    let mut lines = table::lines(style, &["", "CLAIMED BY WORKER", "OBSERVED FROM OUTSIDE"], &rows);
    for difference in differences {
        let text = block::row(difference, style.width.saturating_sub(12));
        lines.push(format!("{} {text}", style.paint(Tone::Bad, "✘ critical:")));
    }
    lines
}

/// The fields of a statement; what the launcher saw itself stands one level
/// deeper and is brought up.
fn facts(statement: Option<&Value>) -> Map<String, Value> {
    let mut facts = Map::new();
    for (name, value) in statement.and_then(Value::as_object).into_iter().flatten() {
        match value {
            Value::Object(nested) => facts.extend(nested.clone()),
            plain @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)) => {
                facts.insert(name.clone(), plain.clone());
            }
        }
    }
    facts
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn claim() -> Attestation {
        Attestation {
            profile: "development".into(),
            boundary: "separate".into(),
            subject: "naomi".into(),
            uid: 58_001,
            cap_eff: "0000000000000000".into(),
            cap_bnd: "0000000000000000".into(),
            no_new_privs: true,
            landlock_abi: 7,
            seccomp: true,
            missing: vec!["leash: no egress policy; tools that use the network ask first".into()],
            cgroup: "none".into(),
            egress: "unfiltered".into(),
            muzzle_routed: true,
            muzzle_inspected: false,
            cli_runtime: false,
        }
    }

    #[test]
    fn claim_and_observation_stand_side_by_side() {
        let seen = json!({"uid": 58_001, "groups": [], "cap_eff": "0000000000000000"});
        let observed = json!({"by": "launcher", "observed": seen, "leash": "not bound"});
        insta::assert_snapshot!(
            side_by_side(Style::PLAIN, Some(&claim()), Some(&observed), &[]).join("\n")
        );
    }

    #[test]
    fn a_difference_is_critical() {
        let observed = json!({"uid": 0});
        let differences = ["uid: claimed 58001, observed 0".to_owned()];
        let shown = side_by_side(Style::PLAIN, Some(&claim()), Some(&observed), &differences);
        assert_eq!(shown.last().unwrap(), "✘ critical: uid: claimed 58001, observed 0");
    }

    #[test]
    fn a_run_without_a_worker_says_so() {
        assert_eq!(
            side_by_side(Style::PLAIN, None, None, &[]),
            ["not attested yet: no worker was started"]
        );
    }
}
