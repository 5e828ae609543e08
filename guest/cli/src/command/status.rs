//! `sentinel status`: what runs, how it is kept apart, what is missing.

use api::control::{Level, MuzzleStatus, Request, Response, SystemStatus};

use crate::Context;
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::render::style::Style;
use crate::render::{finding, table};

pub(crate) fn run(context: &mut Context) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.place)?;
    let who = session.who().to_owned();
    let status = system(&mut session)?;
    context.out.either(&status, |style| lines(style, &who, &status))?;
    Ok(match finding::worst(&status.findings) {
        Level::Critical => Exit::Preflight,
        Level::Ok | Level::Warning => Exit::Ok,
    })
}

/// The control plane's view of itself.
pub(crate) fn system(session: &mut Session) -> Result<SystemStatus, Failure> {
    let Response::System(status) = session.ask(&Request::Status)? else {
        return Err(Failure::other_version());
    };
    Ok(*status)
}

fn lines(style: Style, who: &str, status: &SystemStatus) -> Vec<String> {
    let landlock = match status.landlock_abi {
        0 => "none".to_owned(),
        abi => format!("ABI {abi}"),
    };
    let control = format!(
        "pid {}, uid {}, capabilities {} (bounding {})",
        status.control_pid, status.control_uid, status.control_cap_eff, status.control_cap_bnd
    );
    let runs = format!("{} running, {} waiting for you", status.running, status.waiting);
    let pairs = [
        ("version", status.version.clone()),
        ("profile", status.profile.clone()),
        ("boundary", status.boundary.clone()),
        ("you", who.to_owned()),
        ("state", status.state.clone()),
        ("control plane", control),
        ("muzzle", muzzle(&status.muzzle)),
        ("leash", status.leash.clone()),
        ("landlock", landlock),
        ("models", status.models.to_string()),
        ("runs", runs),
    ];
    let mut lines = table::pairs(style, &pairs);
    if !status.findings.is_empty() {
        lines.push(String::new());
        lines.extend(finding::lines(style, &status.findings));
    }
    lines
}

fn muzzle(status: &MuzzleStatus) -> String {
    let state = match (status.running, status.inspecting) {
        (false, _) => "not running",
        (true, false) => "running, forwards without inspecting",
        (true, true) => "running, inspects",
    };
    std::iter::once(state.to_owned())
        .chain(status.listeners.iter().cloned())
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_every_part_and_what_is_missing() {
        let status = SystemStatus {
            version: "0.1.0".into(),
            profile: "development".into(),
            boundary: "separate".into(),
            state: "/var/lib/sentinel-dev".into(),
            control_pid: 4_242,
            control_uid: 58_000,
            control_cap_eff: "0".repeat(16),
            control_cap_bnd: "0".repeat(16),
            muzzle: MuzzleStatus {
                running: true,
                inspecting: false,
                listeners: vec!["local -> http://127.0.0.1:11434 on 8793".into()],
            },
            leash: "not in this build".into(),
            landlock_abi: 7,
            running: 1,
            waiting: 2,
            models: 1,
            findings: vec![finding::warning("egress is unfiltered", "network by tool asks first")],
        };
        insta::assert_snapshot!(lines(Style::PLAIN, "os:root", &status).join("\n"));
    }
}
