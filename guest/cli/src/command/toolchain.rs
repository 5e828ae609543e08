//! Programs that agents are likely to need and that no account but root's can
//! reach: a toolchain under `/root` works for root and fails for every agent.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use api::control::Finding;
use rustix::fs::{Mode, OFlags};

use crate::render::finding::warning;

/// What agents are asked for most.
const PROGRAMS: [&str; 16] = [
    "git", "cargo", "rustc", "rustup", "gcc", "cc", "make", "cmake", "node", "npm", "python3",
    "uv", "go", "java", "ruby", "php",
];

/// One program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    /// The first directory or file on the way that keeps others out.
    pub(crate) blocked_by: Option<PathBuf>,
}

/// Looks along `path`, a `PATH`.
pub(crate) fn gather(path: &OsStr) -> Vec<Found> {
    let mut found = Vec::new();
    for directory in std::env::split_paths(path).filter(|directory| directory.is_absolute()) {
        for name in PROGRAMS {
            let program = directory.join(name);
            if program.is_file() {
                let blocked_by = blocked_by(&program);
                found.push(Found { name, path: program, blocked_by });
            }
        }
    }
    found
}

/// What keeps another account from executing `program`, on the way as it is
/// written and on the way to where links lead.
fn blocked_by(program: &Path) -> Option<PathBuf> {
    first_closed(program).or_else(|| first_closed(&target(program)?))
}

fn first_closed(path: &Path) -> Option<PathBuf> {
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    let closed = |part: &&Path| part.metadata().is_ok_and(|found| found.mode() & 0o001 == 0);
    way.into_iter().find(closed).map(Path::to_owned)
}

/// The file that all links of `path` lead to.
fn target(path: &Path) -> Option<PathBuf> {
    use std::os::fd::AsRawFd as _;
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// A warning for each place that keeps programs from agents, unless the program
/// is also somewhere they can reach.
pub(crate) fn decide(found: &[Found]) -> Vec<Finding> {
    let reachable = |name: &str| found.iter().any(|f| f.name == name && f.blocked_by.is_none());
    let mut places: Vec<(&Path, Vec<&'static str>)> = Vec::new();
    for program in found.iter().filter(|program| !reachable(program.name)) {
        let Some(place) = program.blocked_by.as_deref() else { continue };
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, names)) if names.contains(&program.name) => {}
            Some((_, names)) => names.push(program.name),
            None => places.push((place, vec![program.name])),
        }
    }
    places
        .into_iter()
        .map(|(place, names)| {
            let names = names.join(", ");
            let place = place.display();
            warning(
                format!("agents cannot use {names}: {place} keeps other accounts out"),
                "install them for all accounts, by the system's packages or under /usr/local",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn found(name: &'static str, path: &str, blocked_by: Option<&str>) -> Found {
        Found { name, path: path.into(), blocked_by: blocked_by.map(PathBuf::from) }
    }

    #[test]
    fn only_programs_that_are_nowhere_else_are_named_once_for_each_place() {
        let findings = decide(&[
            found("cargo", "/root/.cargo/bin/cargo", Some("/root")),
            found("rustc", "/root/.cargo/bin/rustc", Some("/root")),
            found("rustc", "/root/bin/rustc", Some("/root")),
            found("git", "/root/bin/git", Some("/root")),
            found("git", "/usr/bin/git", None),
            found("node", "/opt/node/bin/node", Some("/opt/node")),
        ]);
        let what: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "agents cannot use cargo, rustc: /root keeps other accounts out",
                "agents cannot use node: /opt/node keeps other accounts out"
            ]
        );
        assert!(decide(&[found("git", "/usr/bin/git", None)]).is_empty());
    }

    #[test]
    fn a_closed_directory_is_found_also_behind_a_link() {
        let base = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in("/var/tmp")
            .unwrap();
        let make = |name: &str, mode: u32| {
            let directory = base.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let program = directory.join("git");
            File::create(&program).unwrap();
            std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
            std::fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            directory
        };
        let (open, closed) = (make("open", 0o755), make("closed", 0o700));
        let links = base.path().join("links");
        std::fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(closed.join("git"), links.join("git")).unwrap();
        let blocked = |directory: &Path| gather(directory.as_os_str()).pop().unwrap().blocked_by;
        assert_eq!(blocked(&open), None);
        assert_eq!(blocked(&closed), Some(closed.clone()));
        assert_eq!(blocked(&links), Some(closed));
    }
}
