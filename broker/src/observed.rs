//! What the kernel says about a process that was just started: `/proc/<pid>/status` and `exe`.
//!
//! A launch counts only when this agrees with the plan.

use std::path::Path;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::plan::Identity;
use crate::program::Program;
use crate::protocol::Observed;

/// The fields of `/proc/<pid>/status` (proc_pid_status(5)) that say who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// One letter; `Z` for a process that has ended.
    pub(crate) state: char,
    /// Real, effective, saved and file system uid.
    pub(crate) uids: [u32; 4],
    /// Likewise for the gid.
    pub(crate) gids: [u32; 4],
    groups: Vec<u32>,
    inheritable: u64,
    permitted: u64,
    effective: u64,
    bounding: u64,
    ambient: u64,
    no_new_privs: bool,
}

/// Parses `/proc/<pid>/status`; the error names the field.
pub(crate) fn parse_status(text: &str) -> Result<Status, &'static str> {
    let field = |name: &'static str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .ok_or(name)
    };
    let numbers = |name| -> Result<Vec<u32>, &'static str> {
        field(name)?.split_whitespace().map(|word| word.parse().or(Err(name))).collect()
    };
    let four = |name| numbers(name)?.try_into().or(Err(name));
    let set = |name| u64::from_str_radix(field(name)?, 16).or(Err(name));
    Ok(Status {
        state: field("State")?.chars().next().ok_or("State")?,
        uids: four("Uid")?,
        gids: four("Gid")?,
        groups: numbers("Groups")?,
        inheritable: set("CapInh")?,
        permitted: set("CapPrm")?,
        effective: set("CapEff")?,
        bounding: set("CapBnd")?,
        ambient: set("CapAmb")?,
        no_new_privs: field("NoNewPrivs")? == "1",
    })
}

/// Reads and parses the status of a process.
pub(crate) fn read_status(pid: u32) -> Result<Status, String> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    parse_status(&text).map_err(|field| format!("{path} has no readable {field}"))
}

/// Compares a process with its plan. With an identity all ids, groups and capability sets must be
/// exactly that; without one the process may have no capability it could use.
pub(crate) fn check(status: &Status, identity: Option<Identity>) -> Result<(), String> {
    if !status.no_new_privs {
        return Err("no_new_privs is not set".to_owned());
    }
    for (name, set) in [
        ("effective", status.effective),
        ("permitted", status.permitted),
        ("inheritable", status.inheritable),
        ("ambient", status.ambient),
    ] {
        if set != 0 {
            return Err(format!("{name} capabilities are {set:#x}, not empty"));
        }
    }
    let Some(Identity { uid, gid }) = identity else { return Ok(()) };
    if status.bounding != 0 {
        return Err(format!("the bounding set is {:#x}, not empty", status.bounding));
    }
    if status.uids != [uid; 4] {
        return Err(format!("uids are {:?}, not {uid}", status.uids));
    }
    if status.gids != [gid; 4] {
        return Err(format!("gids are {:?}, not {gid}", status.gids));
    }
    if !status.groups.is_empty() {
        return Err(format!("supplementary groups are {:?}, not empty", status.groups));
    }
    Ok(())
}

/// Observes a process that has executed `program` and compares it with its plan.
pub(crate) fn observe(
    pid: u32,
    program: &Program,
    identity: Option<Identity>,
) -> Result<Observed, String> {
    let status = read_status(pid)?;
    check(&status, identity)?;
    check_program(pid, program)?;
    let [_, uid, ..] = status.uids;
    let [_, gid, ..] = status.gids;
    Ok(Observed {
        uid,
        gid,
        groups: status.groups,
        cap_eff: status.effective,
        cap_bnd: status.bounding,
        cap_prm: status.permitted,
        cap_inh: status.inheritable,
        cap_amb: status.ambient,
        no_new_privs: status.no_new_privs,
        exe_sha256: program.sha256.clone(),
    })
}

/// The running file must be the one whose digest is known. A process that is ending has no `exe` any
/// more, before it counts as ended, and one that has closed itself to inspection shows it to nobody
/// without privileges; both did execute the descriptor.
fn check_program(pid: u32, program: &Program) -> Result<(), String> {
    let path = format!("/proc/{pid}/exe");
    match rustix::fs::statat(rustix::fs::CWD, Path::new(&path), AtFlags::empty()) {
        Ok(stat) if (stat.st_dev, stat.st_ino) == program.identity => Ok(()),
        Ok(_) => Err(format!("{path} is another program")),
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::ACCESS | Errno::PERM) if !rustix::process::geteuid().is_root() => Ok(()),
        Err(errno) => Err(format!("{path}: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: &str = "Name:\tsentinel\nUmask:\t0007\nState:\tS (sleeping)\nTgid:\t7\n\
        Uid:\t58001\t58001\t58001\t58001\nGid:\t58001\t58001\t58001\t58001\nFDSize:\t64\n\
        Groups:\t \nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n\
        CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n\
        NoNewPrivs:\t1\nSeccomp:\t0\n";

    const PLANNED: Identity = Identity { uid: 58_001, gid: 58_001 };

    #[test]
    fn reads_the_fields_that_say_who_a_process_is() {
        let status = parse_status(WORKER).unwrap();
        assert_eq!(status.uids, [58_001; 4]);
        assert_eq!(status.state, 'S');
        assert!(status.groups.is_empty());
        assert!(status.no_new_privs);
        let own = read_status(std::process::id()).unwrap();
        assert_eq!(own.uids[1], rustix::process::geteuid().as_raw());
    }

    #[test]
    fn accepts_exactly_the_planned_process() {
        check(&parse_status(WORKER).unwrap(), Some(PLANNED)).unwrap();
        for (from, to) in [
            ("Uid:\t58001\t58001\t58001\t58001", "Uid:\t58001\t58001\t0\t58001"),
            ("Uid:\t58001\t58001\t58001\t58001", "Uid:\t58002\t58002\t58002\t58002"),
            ("Gid:\t58001\t58001\t58001\t58001", "Gid:\t58001\t0\t58001\t58001"),
            ("Groups:\t \n", "Groups:\t27 \n"),
            ("CapInh:\t0000000000000000", "CapInh:\t0000000000000001"),
            ("CapPrm:\t0000000000000000", "CapPrm:\t0000000000000001"),
            ("CapEff:\t0000000000000000", "CapEff:\t000001ffffffffff"),
            ("CapBnd:\t0000000000000000", "CapBnd:\t0000000000000080"),
            ("CapAmb:\t0000000000000000", "CapAmb:\t0000000000000001"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
        ] {
            let text = WORKER.replace(from, to);
            assert_ne!(text, WORKER);
            assert!(check(&parse_status(&text).unwrap(), Some(PLANNED)).is_err(), "{to}");
        }
    }

    #[test]
    fn without_an_identity_only_usable_capabilities_matter() {
        let text = WORKER.replace("CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff");
        check(&parse_status(&text).unwrap(), None).unwrap();
        let text = WORKER.replace("CapEff:\t0000000000000000", "CapEff:\t0000000000000001");
        assert!(check(&parse_status(&text).unwrap(), None).is_err());
    }

    #[test]
    fn a_missing_or_damaged_field_is_named() {
        for field in ["State", "Uid", "Gid", "Groups", "CapInh", "CapBnd", "CapAmb", "NoNewPrivs"] {
            let without: String = WORKER
                .lines()
                .filter(|line| !line.starts_with(field))
                .flat_map(|line| [line, "\n"])
                .collect();
            assert_eq!(parse_status(&without), Err(field));
        }
        assert_eq!(parse_status(&WORKER.replace("58001\nFD", "x\nFD")), Err("Gid"));
    }
}
