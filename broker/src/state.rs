//! The state directory: opened once, used through its descriptor.
//!
//! As root it belongs to the control plane, so nothing below it is trusted for standing under a
//! name: logs and the registry are checked to be root's, runs to be the control plane's. Access
//! lists other than those of agents' own directories are the control plane's business.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::{self, Ownership, TreeError};
use crate::plan::{Entry, Identity};
use crate::protocol::{RunId, Subject};

const LOG: &str = "log";
const RUNS: &str = "runs";
const BIN: &str = "bin";

/// The open state directory.
#[derive(Debug)]
pub(crate) struct StateTree {
    pub(crate) path: PathBuf,
    /// The control plane's identity; `None` with a single uid.
    pub(crate) control: Option<Identity>,
    root: OwnedFd,
}

impl AsFd for StateTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl StateTree {
    /// Opens or creates the directory. As root (with an identity for the control plane) it is given
    /// to the control plane: when it is created, or when it is root's and still empty.
    pub(crate) fn open(path: &Path, control: Option<Identity>) -> Result<Self, TreeError> {
        let root = match control {
            Some(control) => open_for_control(path, control)?,
            None => beneath::ensure_private_path(path, Mode::RWXU)?,
        };
        Ok(Self { path: path.to_owned(), control, root })
    }

    /// Whether no launcher has worked here: the programs' directory is made after the registry.
    pub(crate) fn is_fresh(&self) -> Result<bool, TreeError> {
        match beneath::open_directory_at(self.as_fd(), Path::new(BIN)) {
            Ok(_) => Ok(false),
            Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(TreeError::failed("open", &self.path.join(BIN))(errno)),
        }
    }

    /// Opens a log for appending. As root the directory and its files are root's and the control
    /// plane's group may read them.
    pub(crate) fn open_log(&self, name: &str) -> Result<OwnedFd, TreeError> {
        let directory_path = self.path.join(LOG);
        let own = rustix::process::geteuid().as_raw();
        let group = self.control.map(|control| control.gid);
        let ownership = Ownership {
            owner: group.map(|gid| (own, gid)),
            mode: Mode::from_raw_mode(if group.is_some() { 0o750 } else { 0o700 }),
        };
        let directory =
            beneath::ensure_directory_at(self.as_fd(), Path::new(LOG), &directory_path, ownership)?;
        refuse_foreign(directory.as_fd(), &directory_path, own)?;
        let path = directory_path.join(name);
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(if group.is_some() { 0o640 } else { 0o600 });
        let file = beneath::open_at(directory.as_fd(), Path::new(name), flags, mode)
            .map_err(TreeError::failed("open", &path))?;
        if beneath::not_a_file_of(&file, own)
            .map_err(TreeError::failed("examine", &path))?
            .is_some()
        {
            return Err(TreeError::failed("append to", &path)(Errno::PERM));
        }
        if let Some(gid) = group {
            beneath::change_owner(file.as_fd(), &path, own, gid)?;
            rustix::fs::fchmod(&file, mode)
                .map_err(TreeError::failed("change the mode of", &path))?;
        }
        Ok(file)
    }

    /// The accounts that have a directory under `runs`. With a single uid these are all there are.
    pub(crate) fn subjects_with_runs(&self) -> Result<Vec<Subject>, TreeError> {
        let path = self.path.join(RUNS);
        let runs = match beneath::open_directory_at(self.as_fd(), Path::new(RUNS)) {
            Ok(runs) => runs,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(TreeError::failed("open", &path)(errno)),
        };
        let names = beneath::names_in(runs.as_fd()).map_err(TreeError::failed("list", &path))?;
        Ok(names
            .into_iter()
            .filter_map(|name| Subject::new(name.into_string().ok()?).ok())
            .collect())
    }

    /// What stands at `runs/<subject>/<run id>`, if anything does. Nothing is followed: an account
    /// directory that is a link holds no run.
    pub(crate) fn examine_run(&self, subject: &Subject, run: &RunId) -> Option<Entry> {
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        let segment = Path::new(RUNS).join(subject.as_str());
        let segment = match beneath::open_at(self.as_fd(), &segment, directory, Mode::empty()) {
            Ok(segment) => segment,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return None,
            Err(errno) => return Some(Entry::Unreadable { why: errno.to_string() }),
        };
        let name = Path::new(run.as_str());
        match beneath::open_at(segment.as_fd(), name, directory, Mode::empty()) {
            Ok(found) => Some(match rustix::fs::fstat(&found) {
                Ok(stat) => Entry::Directory { owner: stat.st_uid },
                Err(errno) => Entry::Unreadable { why: errno.to_string() },
            }),
            Err(Errno::NOENT) => None,
            Err(Errno::LOOP) => Some(Entry::SymbolicLink),
            Err(Errno::NOTDIR) => Some(not_a_directory(segment.as_fd(), name)),
            Err(errno) => Some(Entry::Unreadable { why: errno.to_string() }),
        }
    }
}

/// `O_DIRECTORY` with `O_NOFOLLOW` reports a link as "not a directory" too.
fn not_a_directory(segment: BorrowedFd<'_>, name: &Path) -> Entry {
    let is_link = rustix::fs::statat(segment, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
    if is_link { Entry::SymbolicLink } else { Entry::NotADirectory }
}

fn open_for_control(path: &Path, control: Identity) -> Result<OwnedFd, TreeError> {
    let ours =
        Ownership { owner: Some((control.uid, control.gid)), mode: Mode::from_raw_mode(0o710) };
    let root = beneath::ensure_path(path, ours, Mode::from_raw_mode(0o755))?;
    let stat = rustix::fs::fstat(&root).map_err(TreeError::failed("examine", path))?;
    if stat.st_uid != control.uid {
        let empty = beneath::is_empty(root.as_fd()).map_err(TreeError::failed("list", path))?;
        if stat.st_uid != 0 || !empty {
            return Err(TreeError::Foreign {
                path: path.to_owned(),
                owner: stat.st_uid,
                expected: control.uid,
            });
        }
        rustix::fs::fchmod(&root, ours.mode)
            .map_err(TreeError::failed("change the mode of", path))?;
        beneath::change_owner(root.as_fd(), path, control.uid, control.gid)?;
    }
    beneath::refuse_impassable(path, control.uid)?;
    Ok(root)
}

/// Refuses an open directory that another uid owns.
pub(crate) fn refuse_foreign(
    directory: BorrowedFd<'_>,
    path: &Path,
    expected: u32,
) -> Result<(), TreeError> {
    let stat = rustix::fs::fstat(directory).map_err(TreeError::failed("examine", path))?;
    if stat.st_uid == expected {
        return Ok(());
    }
    Err(TreeError::Foreign { path: path.to_owned(), owner: stat.st_uid, expected })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn state() -> (tempfile::TempDir, StateTree) {
        let temporary = tempfile::tempdir().unwrap();
        let tree = StateTree::open(&temporary.path().join("state"), None).unwrap();
        (temporary, tree)
    }

    #[test]
    fn a_run_is_a_real_directory_under_its_account() {
        let (_temporary, tree) = state();
        let runs = tree.path.join("runs");
        let run = RunId::new("r-1").unwrap();
        let scout = Subject::new("leash-scout").unwrap();
        assert_eq!(tree.examine_run(&scout, &run), None);
        assert!(tree.subjects_with_runs().unwrap().is_empty());
        std::fs::create_dir_all(runs.join("leash-scout/r-1")).unwrap();
        let owner = rustix::process::geteuid().as_raw();
        assert_eq!(tree.examine_run(&scout, &run), Some(Entry::Directory { owner }));
        std::fs::create_dir_all(runs.join("leash-other")).unwrap();
        std::fs::create_dir_all(runs.join("0190b3c2-flat-legacy-run")).unwrap();
        symlink("../leash-scout/r-1", runs.join("leash-other/r-1")).unwrap();
        std::fs::File::create(runs.join("leash-other/r-2")).unwrap();
        let other = Subject::new("leash-other").unwrap();
        assert_eq!(tree.examine_run(&other, &run), Some(Entry::SymbolicLink));
        let file = RunId::new("r-2").unwrap();
        assert_eq!(tree.examine_run(&other, &file), Some(Entry::NotADirectory));
        assert_eq!(tree.subjects_with_runs().unwrap(), [other, scout]);
        symlink("leash-scout", runs.join("leash-link")).unwrap();
        assert_eq!(tree.examine_run(&Subject::new("leash-link").unwrap(), &run), None);
    }

    #[test]
    fn a_log_is_appended_to_and_never_followed() {
        let (temporary, tree) = state();
        for line in ["one\n", "two\n"] {
            let mut log = std::fs::File::from(tree.open_log("workers.log").unwrap());
            log.write_all(line.as_bytes()).unwrap();
        }
        let path = tree.path.join("log/workers.log");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        std::fs::remove_file(&path).unwrap();
        symlink(temporary.path().join("target"), &path).unwrap();
        assert!(tree.open_log("workers.log").is_err());
        std::fs::remove_file(&path).unwrap();
        tree.open_log("workers.log").unwrap();
    }

    #[test]
    fn a_state_directory_is_fresh_until_programs_are_in_it() {
        let (_temporary, tree) = state();
        assert!(tree.is_fresh().unwrap());
        std::fs::create_dir(tree.path.join("bin")).unwrap();
        assert!(!tree.is_fresh().unwrap());
    }
}
