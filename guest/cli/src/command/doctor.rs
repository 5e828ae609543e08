//! `sentinel doctor`: what this machine can enforce, and what to do about the
//! rest. It looks for itself, so it works without a control plane, and adds what
//! a running one found. The facts are gathered here; findings follow from them.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use api::control::{Finding, Level};
use serde_json::json;
use worker::sandbox::{Abi, Landlock, SandboxError, probe_landlock};

use super::{status, toolchain};
use crate::Context;
use crate::connect::{Place, Session};
use crate::exit::{Exit, Failure};
use crate::limits;
use crate::render::finding::{self, critical, ok, warning};

/// Uids of the development ranges: the control plane's own, and those of
/// demonstrations and tests.
const DEVELOPMENT_UIDS: std::ops::RangeInclusive<u32> = 57_000..=58_999;

pub(crate) fn run(context: &mut Context) -> Result<Exit, Failure> {
    let place = &context.place;
    let mut findings = vec![kernel(), decide_landlock(&probe_landlock())];
    findings.push(decide_disk(free_bytes(&place.state), &place.state));
    findings.push(decide_state(&state_facts(&place.state), &place.state));
    if place.root {
        let path = std::env::var_os("PATH").unwrap_or_default();
        findings.extend(toolchain::decide(&toolchain::gather(&path)));
    }
    findings.extend(control_plane(place));
    context.out.either(&json!({"findings": findings}), |style| finding::lines(style, &findings))?;
    Ok(match finding::worst(&findings) {
        Level::Critical => Exit::Preflight,
        Level::Ok | Level::Warning => Exit::Ok,
    })
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    ok(format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()))
}

fn decide_landlock(probed: &Result<Landlock, SandboxError>) -> Finding {
    let remedy = "boot a kernel with Landlock: CONFIG_SECURITY_LANDLOCK=y, and `landlock` in its `lsm=` list";
    match probed {
        Ok(Landlock::Available(abi)) if *abi >= Abi::NEWEST_USED => {
            ok(format!("Landlock ABI {}", abi.0))
        }
        Ok(Landlock::Available(abi)) => warning(
            format!(
                "Landlock ABI {}; tools are confined with less from ABI {} down, see SECURITY.md",
                abi.0,
                Abi::NEWEST_USED.0 - 1
            ),
            "use a newer kernel",
        ),
        Ok(Landlock::NotBuilt) => critical("this kernel has no Landlock", remedy),
        Ok(Landlock::Disabled) => critical("Landlock is switched off at boot", remedy),
        Err(error) => critical(
            error.to_string(),
            "run it outside of the container whose filter stands in the way",
        ),
    }
}

/// What a running control plane found, or that there is none.
fn control_plane(place: &Place) -> Vec<Finding> {
    let mut session = match Session::open(place) {
        Ok(session) => session,
        Err(failure) if failure.exit == Exit::Unreachable => {
            let what = match socket_kind(&place.socket) {
                Some(false) => format!("{} is no socket", place.socket.display()),
                _ => failure.what,
            };
            return vec![warning(what, failure.next)];
        }
        Err(failure) => return vec![critical(failure.what, failure.next)],
    };
    let answers = ok(format!("the control plane answers at {}", place.socket.display()));
    match status::system(&mut session) {
        Ok(status) => std::iter::once(answers).chain(status.findings).collect(),
        Err(failure) => vec![answers, critical(failure.what, failure.next)],
    }
}

/// Whether what lies at the path is a socket; `None` when nothing does.
fn socket_kind(path: &Path) -> Option<bool> {
    std::fs::symlink_metadata(path).ok().map(|found| found.file_type().is_socket())
}

/// Bytes an ordinary account may still write where the state is or will be.
fn free_bytes(state: &Path) -> Option<u64> {
    let existing = state.ancestors().find(|path| path.exists())?;
    let found = rustix::fs::statvfs(existing).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn decide_disk(free: Option<u64>, state: &Path) -> Finding {
    let shown = state.display();
    let Some(free) = free else {
        return warning(
            format!("the free space under {shown} could not be found out"),
            "look with `df`",
        );
    };
    let mebibytes = free / (1024 * 1024);
    let what = format!("{mebibytes} MiB are free under {shown}");
    let remedy = "make room, or move the state with --state";
    match free {
        0..limits::DISK_OUT => critical(what, remedy),
        limits::DISK_OUT..limits::DISK_LOW => warning(what, remedy),
        _ => ok(what),
    }
}

/// What stands where the state belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateFacts {
    Absent,
    NotADirectory,
    Unknown,
    Directory { owner: u32, mode: u32, me: u32 },
}

fn state_facts(state: &Path) -> StateFacts {
    match std::fs::symlink_metadata(state) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => StateFacts::Absent,
        Err(_) => StateFacts::Unknown,
        Ok(found) if !found.is_dir() => StateFacts::NotADirectory,
        Ok(found) => StateFacts::Directory {
            owner: found.uid(),
            mode: found.mode() & 0o7777,
            me: rustix::process::geteuid().as_raw(),
        },
    }
}

fn decide_state(facts: &StateFacts, state: &Path) -> Finding {
    let shown = state.display();
    match *facts {
        StateFacts::Absent => ok(format!("no state at {shown} yet; `sentinel up` makes it")),
        StateFacts::Unknown => warning(
            format!("{shown} may not be looked at by this account"),
            "run the command as root, or as the user who runs `sentinel up`",
        ),
        StateFacts::NotADirectory => critical(
            format!("{shown} is no directory"),
            "move it away, or name another place with --state",
        ),
        StateFacts::Directory { mode, .. } if mode & 0o022 != 0 => critical(
            format!("{shown} may be written by other accounts (mode {mode:o})"),
            format!("find out why, then: chmod go-w {shown}"),
        ),
        StateFacts::Directory { owner, me, .. }
            if owner != me && !(me == 0 && DEVELOPMENT_UIDS.contains(&owner)) =>
        {
            critical(
                format!("{shown} belongs to uid {owner}, and you are uid {me}"),
                "name a state of your own with --state",
            )
        }
        StateFacts::Directory { owner, mode, .. } => {
            ok(format!("state at {shown} (uid {owner}, mode {mode:o})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(owner: u32, mode: u32, me: u32) -> Level {
        decide_state(&StateFacts::Directory { owner, mode, me }, Path::new("/s")).level
    }

    #[test]
    fn a_state_that_others_may_write_or_own_is_critical() {
        assert_eq!(state(1_000, 0o700, 1_000), Level::Ok);
        assert_eq!(state(58_000, 0o710, 0), Level::Ok);
        assert_eq!(state(0, 0o710, 0), Level::Ok);
        for (owner, mode, me) in
            [(1_000, 0o770, 1_000), (1_000, 0o702, 1_000), (0, 0o700, 1_000), (1_000, 0o700, 0)]
        {
            assert_eq!(state(owner, mode, me), Level::Critical, "{owner} {mode:o} {me}");
        }
        assert_eq!(decide_state(&StateFacts::Absent, Path::new("/s")).level, Level::Ok);
        assert_eq!(
            decide_state(&StateFacts::NotADirectory, Path::new("/s")).level,
            Level::Critical
        );
    }

    #[test]
    fn a_kernel_without_landlock_is_critical_and_an_old_one_a_warning() {
        let level = |probed| decide_landlock(&probed).level;
        assert_eq!(level(Ok(Landlock::Available(Abi::NEWEST_USED))), Level::Ok);
        assert_eq!(level(Ok(Landlock::Available(Abi(1)))), Level::Warning);
        assert_eq!(level(Ok(Landlock::NotBuilt)), Level::Critical);
        assert_eq!(level(Ok(Landlock::Disabled)), Level::Critical);
        assert_eq!(level(Err(SandboxError::Probe { errno: 1 })), Level::Critical);
    }

    #[test]
    fn little_room_is_a_warning_and_none_is_critical() {
        let level = |free| decide_disk(free, Path::new("/s")).level;
        assert_eq!(level(Some(limits::DISK_LOW)), Level::Ok);
        assert_eq!(level(Some(limits::DISK_LOW - 1)), Level::Warning);
        assert_eq!(level(Some(limits::DISK_OUT - 1)), Level::Critical);
        assert_eq!(level(None), Level::Warning);
    }

    #[test]
    fn free_space_is_found_also_where_the_state_is_not_made_yet() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_bytes(&directory.path().join("not/yet")).is_some());
    }
}
