//! Opening and creating beneath a directory descriptor, following nothing.
//!
//! Everything the launcher touches in a tree that another uid may write goes through here: names
//! are resolved by the kernel in one step from a descriptor, and what was opened is judged by its
//! own descriptor. Only [`ensure_private_path`] takes an absolute path, which the operator chose.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;
use thiserror::Error;

/// Why a directory is not as it has to be.
#[derive(Debug, Error)]
pub enum TreeError {
    /// The kernel refused an operation.
    #[error("could not {operation} {path}{hint}", hint = hint(*.source))]
    Failed {
        /// What was attempted.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: Errno,
    },
    /// Somebody else owns it.
    #[error("{path} belongs to uid {owner}, not to {expected}; change its owner or remove it")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who should own it.
        expected: u32,
    },
    /// Others may write it.
    #[error("{path} may be written by others (mode {mode:04o}); chmod it to 0755 or less")]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A directory above cannot be passed by the accounts that work below it.
    #[error(
        "{path} cannot be passed by uid {uid} (mode {mode:04o}), so nothing below it is reachable; \
         choose another --state directory"
    )]
    Impassable {
        /// The directory above.
        path: PathBuf,
        /// Who has to pass it.
        uid: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// What was created is not what was found under its name.
    #[error("{path} was exchanged while it was being prepared; nothing was changed, try again")]
    Exchanged {
        /// The directory.
        path: PathBuf,
    },
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::LOOP => ": it is or passes a symbolic link; name the target itself",
        Errno::NOTDIR => ": it is no directory, or a symbolic link; name the target itself",
        Errno::XDEV => ": it leads to another file system",
        Errno::ROFS => ": the file system is read-only",
        Errno::NOSPC => ": the disk is full",
        _ => "",
    }
}

impl TreeError {
    /// Names operation and path for an errno.
    pub(crate) fn failed(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> Self {
        move |source| Self::Failed { operation, path: path.to_owned(), source }
    }
}

const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens `name` beneath `at`: no symbolic link, no other file system, close-on-exec.
pub(crate) fn open_at(
    at: BorrowedFd<'_>,
    name: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // EAGAIN: a rename elsewhere raced with the resolution (openat2(2)).
    loop {
        match rustix::fs::openat2(at, name, flags, mode, CONFINED) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Opens the directory `name` beneath `at` for reading.
pub(crate) fn open_directory_at(at: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    open_at(at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// The permission bits.
pub(crate) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// What keeps an open file from being a plain one that only `uid` can write, or `None`.
pub(crate) fn not_a_file_of<Fd: AsFd>(file: Fd, uid: u32) -> Result<Option<&'static str>, Errno> {
    let stat = rustix::fs::fstat(file)?;
    Ok(if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        Some("not a regular file")
    } else if stat.st_nlink != 1 {
        Some("it has other names (hard links)")
    } else if stat.st_uid != uid {
        Some("another uid owns it")
    } else if mode_of(&stat) & 0o022 != 0 {
        Some("others may write it")
    } else {
        None
    })
}

/// What a directory has to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ownership {
    /// Owner and group; `None` leaves what creating it gives.
    pub owner: Option<(u32, u32)>,
    /// Permission bits when it is created.
    pub mode: Mode,
}

/// Opens the directory `name` beneath `at`, creating it when missing. An existing one is returned
/// as it is; who owns it is for the caller to judge. `path` is for messages.
pub(crate) fn ensure_directory_at(
    at: BorrowedFd<'_>,
    name: &Path,
    path: &Path,
    ownership: Ownership,
) -> Result<OwnedFd, TreeError> {
    match open_directory_at(at, name) {
        Err(Errno::NOENT) => {}
        Err(source) => return Err(TreeError::failed("open", path)(source)),
        Ok(found) => return Ok(found),
    }
    match rustix::fs::mkdirat(at, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(source) => return Err(TreeError::failed("create", path)(source)),
    }
    let created = open_directory_at(at, name).map_err(TreeError::failed("open", path))?;
    refuse_exchanged(created.as_fd(), path)?;
    give(created.as_fd(), path, ownership)?;
    Ok(created)
}

/// Sets mode, then owner: a process of the new owner never sees the directory half prepared.
fn give(directory: BorrowedFd<'_>, path: &Path, ownership: Ownership) -> Result<(), TreeError> {
    rustix::fs::fchmod(directory, ownership.mode)
        .map_err(TreeError::failed("change the mode of", path))?;
    if let Some((uid, gid)) = ownership.owner {
        change_owner(directory, path, uid, gid)?;
    }
    Ok(())
}

/// Gives an open file or directory to `uid` and `gid`.
pub(crate) fn change_owner(
    file: BorrowedFd<'_>,
    path: &Path,
    uid: u32,
    gid: u32,
) -> Result<(), TreeError> {
    rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        .map_err(TreeError::failed("change the owner of", path))
}

/// A directory just created is empty and ours. Where another uid owns the parent it may have put
/// something else under the name.
fn refuse_exchanged(directory: BorrowedFd<'_>, path: &Path) -> Result<(), TreeError> {
    let stat = rustix::fs::fstat(directory).map_err(TreeError::failed("examine", path))?;
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if ours && is_empty(directory).map_err(TreeError::failed("list", path))? {
        return Ok(());
    }
    Err(TreeError::Exchanged { path: path.to_owned() })
}

/// Whether a directory has no entries.
pub(crate) fn is_empty(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(names_in(directory)?.is_empty())
}

/// The names in a directory, sorted.
pub(crate) fn names_in(directory: BorrowedFd<'_>) -> Result<Vec<std::ffi::OsString>, Errno> {
    use std::os::unix::ffi::OsStringExt;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(std::ffi::OsString::from_vec(name));
        }
    }
    names.sort();
    Ok(names)
}

/// Opens the directory at an absolute path the operator chose, creating it with its parents when
/// missing. It must belong to this process's user and be writable by nobody else. Symbolic links
/// are followed above it, not at it.
pub(crate) fn ensure_private_path(path: &Path, mode: Mode) -> Result<OwnedFd, TreeError> {
    let directory = ensure_path(path, Ownership { owner: None, mode }, mode)?;
    let stat = rustix::fs::fstat(&directory).map_err(TreeError::failed("examine", path))?;
    let expected = rustix::process::geteuid().as_raw();
    if stat.st_uid != expected {
        return Err(TreeError::Foreign { path: path.to_owned(), owner: stat.st_uid, expected });
    }
    let mode = mode_of(&stat);
    if mode & 0o022 != 0 {
        return Err(TreeError::Writable { path: path.to_owned(), mode });
    }
    Ok(directory)
}

/// Opens the directory at an absolute path, creating it and its parents when missing. Parents get
/// `parent_mode` and this process's user.
pub(crate) fn ensure_path(
    path: &Path,
    ownership: Ownership,
    parent_mode: Mode,
) -> Result<OwnedFd, TreeError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOENT) => {}
        Err(source) => return Err(TreeError::failed("open", path)(source)),
        Ok(found) => return Ok(found),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(TreeError::failed("create", path)(Errno::INVAL));
    };
    let at = match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT) => {
            ensure_path(parent, Ownership { owner: None, mode: parent_mode }, parent_mode)?
        }
        Err(source) => return Err(TreeError::failed("open", parent)(source)),
    };
    ensure_directory_at(at.as_fd(), Path::new(name), path, ownership)
}

/// Refuses a path with a directory above it that `uid` cannot pass. A directory with an access list
/// is taken to let it pass: what the list says is decided by the kernel, not guessed here.
pub(crate) fn refuse_impassable(path: &Path, uid: u32) -> Result<(), TreeError> {
    for above in path.ancestors().skip(1) {
        let stat = rustix::fs::statat(rustix::fs::CWD, above, AtFlags::empty())
            .map_err(TreeError::failed("examine", above))?;
        let mode = mode_of(&stat);
        let passes = mode & 0o001 != 0 || (stat.st_uid == uid && mode & 0o100 != 0);
        if !passes && !has_access_list(above) {
            return Err(TreeError::Impassable { path: above.to_owned(), uid, mode });
        }
    }
    Ok(())
}

fn has_access_list(path: &Path) -> bool {
    let mut buffer = [0_u8; 0];
    rustix::fs::getxattr(path, crate::acl::ACCESS_ATTRIBUTE, &mut buffer)
        .is_ok_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    const OURS: Ownership = Ownership { owner: None, mode: Mode::RWXU };

    #[test]
    fn follows_neither_links_nor_dots_out_of_the_directory() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path().join("base");
        std::fs::create_dir_all(base.join("real/inner")).unwrap();
        std::fs::create_dir(temporary.path().join("outside")).unwrap();
        symlink("real", base.join("link")).unwrap();
        symlink("/tmp", base.join("absolute")).unwrap();
        let at = open(&base);
        assert!(open_directory_at(at.as_fd(), Path::new("real/inner")).is_ok());
        for name in ["link", "link/inner", "absolute", "../outside", "/tmp", "real/../../outside"] {
            assert!(open_directory_at(at.as_fd(), Path::new(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn creates_what_is_missing_and_keeps_what_is_there() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b/c");
        let wide = Mode::from_raw_mode(0o755);
        let created = ensure_private_path(&path, wide).unwrap();
        assert_eq!(mode_of(&rustix::fs::fstat(&created).unwrap()), 0o755);
        rustix::fs::fchmod(&created, Mode::RWXU).unwrap();
        let again = ensure_private_path(&path, wide).unwrap();
        assert_eq!(mode_of(&rustix::fs::fstat(&again).unwrap()), 0o700);
        let child =
            ensure_directory_at(created.as_fd(), Path::new("d"), &path.join("d"), OURS).unwrap();
        assert!(is_empty(child.as_fd()).unwrap());
        assert_eq!(names_in(created.as_fd()).unwrap(), ["d"]);
    }

    #[test]
    fn a_directory_that_others_may_write_is_not_private() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("shared");
        let created = ensure_private_path(&path, Mode::RWXU).unwrap();
        rustix::fs::fchmod(&created, Mode::from_raw_mode(0o777)).unwrap();
        let refused = ensure_private_path(&path, Mode::RWXU);
        assert!(matches!(refused, Err(TreeError::Writable { mode: 0o777, .. })));
        symlink(temporary.path(), temporary.path().join("link")).unwrap();
        let refused = ensure_private_path(&temporary.path().join("link"), Mode::RWXU);
        assert!(matches!(refused, Err(TreeError::Failed { .. })));
    }

    #[test]
    fn a_closed_directory_above_is_named() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("state");
        let closed = temporary.path();
        std::fs::create_dir(&path).unwrap();
        rustix::fs::chmod(closed, Mode::RWXU).unwrap();
        let refused = refuse_impassable(&path, 58_000);
        assert!(
            matches!(&refused, Err(TreeError::Impassable { path, .. }) if path == closed),
            "{refused:?}"
        );
        rustix::fs::chmod(closed, Mode::from_raw_mode(0o711)).unwrap();
        refuse_impassable(&path, 58_000).unwrap();
    }

    #[test]
    fn a_file_with_a_second_name_or_a_foreign_owner_is_not_plain() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(not_a_file_of(&file, uid).unwrap(), None);
        assert!(not_a_file_of(&file, uid + 1).unwrap().is_some());
        std::fs::hard_link(&path, temporary.path().join("second")).unwrap();
        assert!(not_a_file_of(&file, uid).unwrap().is_some());
        assert!(not_a_file_of(open(temporary.path()), uid).unwrap().is_some());
    }
}
