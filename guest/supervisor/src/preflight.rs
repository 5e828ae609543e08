//! Whether the deployment's profile allows a run to start. Each control is
//! named when it is missing; a strict profile refuses, development shows.

use api::control::{Finding, Level};
use domain::config::Config;
use domain::record::Boundary;
use worker::sandbox::{Landlock, probe_landlock};

/// The ABI of the kernel's Landlock, 0 where there is none.
pub(crate) fn landlock_abi() -> u32 {
    probe_landlock().map_or(0, |landlock: Landlock| landlock.abi().0)
}

/// Every control that is not active, with what that means and what to do.
pub(crate) fn missing_controls(
    config: &Config,
    boundary: Boundary,
    abi: u32,
    muzzle_running: bool,
) -> Vec<Finding> {
    let level = if config.profile.is_strict() { Level::Critical } else { Level::Warning };
    let mut missing = Vec::new();
    let mut say = |what: &str, remedy: &str| {
        missing.push(Finding { level, what: what.to_owned(), remedy: remedy.to_owned() });
    };
    if !muzzle_running {
        say(
            "muzzle: it is not running, so no model can be reached",
            "see `sentinel logs --workers` and restart `sentinel up`",
        );
    }
    say(
        "muzzle: this build forwards model traffic and does not inspect it",
        "use models on this machine only; inspection comes with a later version",
    );
    say(
        "leash: no egress or file policy is bound to agent accounts",
        "agents have no network unless their profile grants ports",
    );
    if abi == 0 {
        say(
            "landlock: the kernel has none, so tools are not kept in their workspace",
            "use a kernel of 5.19 or later with lsm=landlock",
        );
    } else if abi < 2 {
        say(
            "landlock: ABI 1 cannot move files between directories safely",
            "use a kernel of 5.19 or later",
        );
    }
    if !config.fs_sandbox {
        say(
            "fs_sandbox: sentinel.yaml switches it off, which this build does not do: tools stay sandboxed",
            "remove `fs_sandbox: false`",
        );
    }
    if boundary == Boundary::SingleUid {
        say(
            "separate uids: everything runs as one account, so chmod, ACLs and limits between its processes are not covered",
            "start `sentinel up` as root",
        );
    }
    missing
}

/// The reason a strict profile refuses a run, or `None` when it may start.
pub(crate) fn refusal(config: &Config, missing: &[Finding]) -> Option<String> {
    if !config.profile.is_strict() || missing.is_empty() {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(|finding| finding.what.as_str()).collect();
    Some(format!(
        "security_preflight_failed: profile {} requires controls that are not active: {}",
        config.profile.as_str(),
        names.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::config::{DeploymentProfile, parse_config};

    #[test]
    fn production_names_every_missing_control_and_landlock_only_without_it() {
        let config = parse_config("profile: production").unwrap();
        let reason = |abi| {
            refusal(&config, &missing_controls(&config, Boundary::SingleUid, abi, false)).unwrap()
        };
        for name in ["muzzle: it is not running", "muzzle: this build", "leash:", "separate uids:"]
        {
            assert!(reason(7).contains(name), "{}", reason(7));
        }
        assert!(!reason(7).contains("landlock"));
        assert!(reason(0).contains("landlock"));
        assert_eq!(config.profile, DeploymentProfile::Production);
    }

    #[test]
    fn development_shows_and_does_not_refuse() {
        let config = Config::default();
        let missing = missing_controls(&config, Boundary::SingleUid, 0, true);
        assert!(missing.iter().all(|finding| finding.level == Level::Warning));
        assert_eq!(refusal(&config, &missing), None);
    }
}
