//! An agent's own directories: `agents/<agent>/workspace` and `memory/<agent>`.
//!
//! As root, each is made in the control plane's tree, gets access lists that keep the control plane
//! in, grants the agent what was inside already, and is given to the agent last: an agent never
//! owns a directory that is half prepared, and a failure leaves it with the control plane. All of it
//! happens on descriptors; links, hard-linked files, devices, sockets and FIFOs inside are skipped.
//!
//! What an agent makes later inherits the default lists, so a directory that the agent owns already
//! is not walked again: only its own lists are put right.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::acl::{self, Acl, AclError, Permissions};
use crate::beneath::{self, Ownership, TreeError};
use crate::limits;
use crate::plan::Identity;
use crate::protocol::Subject;
use crate::state::{self, StateTree};

/// Why an agent's directory could not be prepared.
#[derive(Debug, Error)]
pub(crate) enum GrantError {
    #[error("{0}")]
    Tree(#[from] TreeError),
    #[error("could not {operation} the access list of {path}: {source}{hint}", hint = hint(*.source))]
    List { operation: &'static str, path: PathBuf, source: Errno },
    #[error("the access list of {path} is not one: {source}")]
    Format { path: PathBuf, source: AclError },
    #[error("{path} lies more than {limit} levels deep", limit = limits::GRANT_DEPTH)]
    TooDeep { path: PathBuf },
    #[error("{path} has more than {limit} entries", limit = limits::GRANT_ENTRIES)]
    TooMany { path: PathBuf },
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::OPNOTSUPP => " (keep the state on a file system with POSIX access lists)",
        _ => "",
    }
}

/// Prepares both directories. With a single uid they are only made.
pub(crate) fn prepare_agent(
    tree: &StateTree,
    subject: &Subject,
    account: Option<Identity>,
) -> Result<(), GrantError> {
    for names in [["agents", subject.agent(), "workspace"].as_slice(), &["memory", subject.agent()]]
    {
        let (directory, path) = ensure_chain(tree, names)?;
        if let (Some(control), Some(agent)) = (tree.control, account) {
            hand_over(directory.as_fd(), &path, control, agent)?;
        }
    }
    Ok(())
}

/// Opens the directory at the end of `names`, making what is missing. Those above the last must be
/// the control plane's.
fn ensure_chain(tree: &StateTree, names: &[&str]) -> Result<(OwnedFd, PathBuf), TreeError> {
    let ownership = Ownership {
        owner: tree.control.map(|control| (control.uid, control.gid)),
        mode: Mode::from_raw_mode(if tree.control.is_some() { 0o710 } else { 0o700 }),
    };
    let mut path = tree.path.clone();
    let mut opened: Option<OwnedFd> = None;
    for (index, name) in names.iter().enumerate() {
        path.push(name);
        let at = opened.as_ref().map_or(tree.as_fd(), AsFd::as_fd);
        let next = beneath::ensure_directory_at(at, Path::new(name), &path, ownership)?;
        let above_the_last = index + 1 < names.len();
        if let (true, Some(control)) = (above_the_last, tree.control) {
            state::refuse_foreign(next.as_fd(), &path, control.uid)?;
        }
        opened = Some(next);
    }
    match opened {
        Some(directory) => Ok((directory, path)),
        None => Err(TreeError::failed("open", &path)(Errno::INVAL)),
    }
}

fn hand_over(
    directory: BorrowedFd<'_>,
    path: &Path,
    control: Identity,
    agent: Identity,
) -> Result<(), GrantError> {
    let stat = rustix::fs::fstat(directory).map_err(TreeError::failed("examine", path))?;
    if stat.st_uid != agent.uid {
        state::refuse_foreign(directory, path, control.uid)?;
    }
    let walk = Walk { control: control.uid, agent: agent.uid };
    let own = Acl {
        owner: Permissions::ALL,
        group: Permissions::ALL,
        other: Permissions::NONE,
        ..read_list(directory, path, acl::ACCESS_ATTRIBUTE, stat.st_mode)?
    };
    let own = own.with_user(control.uid, Permissions::ALL);
    write_list(directory, path, acl::ACCESS_ATTRIBUTE, &own)?;
    walk.set_default(directory, path)?;
    if stat.st_uid == agent.uid {
        return Ok(());
    }
    let mut entries = 0;
    walk.grant_inside(directory, path, 0, &mut entries)?;
    beneath::change_owner(directory, path, agent.uid, agent.gid)?;
    Ok(())
}

struct Walk {
    control: u32,
    agent: u32,
}

impl Walk {
    /// What is created inside stays open to control plane and agent, and to nobody else.
    fn set_default(&self, directory: BorrowedFd<'_>, path: &Path) -> Result<(), GrantError> {
        let default = Acl {
            owner: Permissions::ALL,
            group: Permissions::ALL,
            other: Permissions::NONE,
            ..read_list(directory, path, acl::DEFAULT_ATTRIBUTE, 0)?
        };
        let default = default
            .with_user(self.control, Permissions::ALL)
            .with_user(self.agent, Permissions::ALL);
        write_list(directory, path, acl::DEFAULT_ATTRIBUTE, &default)
    }

    fn grant_inside(
        &self,
        directory: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
        entries: &mut usize,
    ) -> Result<(), GrantError> {
        if depth > limits::GRANT_DEPTH {
            return Err(GrantError::TooDeep { path: path.to_owned() });
        }
        for name in beneath::names_in(directory).map_err(TreeError::failed("list", path))? {
            *entries += 1;
            if *entries > limits::GRANT_ENTRIES {
                return Err(GrantError::TooMany { path: path.to_owned() });
            }
            let path = path.join(&name);
            let Some((file, stat)) = open_grantable(directory, Path::new(&name), &path)? else {
                continue;
            };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let executable = is_directory || stat.st_mode & 0o111 != 0;
            let granted = if executable { Permissions::ALL } else { Permissions::READ_WRITE };
            let list = read_list(file.as_fd(), &path, acl::ACCESS_ATTRIBUTE, stat.st_mode)?
                .with_user(self.agent, granted);
            write_list(file.as_fd(), &path, acl::ACCESS_ATTRIBUTE, &list)?;
            if is_directory {
                self.set_default(file.as_fd(), &path)?;
                self.grant_inside(file.as_fd(), &path, depth + 1, entries)?;
            }
        }
        Ok(())
    }
}

/// Opens an entry if it is a directory or a file with one name. It is looked at before it is
/// opened, since opening a FIFO or a device does something, and judged again once it is open.
fn open_grantable(
    at: BorrowedFd<'_>,
    name: &Path,
    path: &Path,
) -> Result<Option<(OwnedFd, Stat)>, TreeError> {
    let seen = match beneath::open_at(at, name, OFlags::PATH, Mode::empty()) {
        Ok(seen) => seen,
        // Gone, a link, or a mount point: not ours to grant.
        Err(Errno::NOENT | Errno::LOOP | Errno::XDEV) => return Ok(None),
        Err(errno) => return Err(TreeError::failed("open", path)(errno)),
    };
    let examine = |fd: &OwnedFd| rustix::fs::fstat(fd).map_err(TreeError::failed("examine", path));
    let before = examine(&seen)?;
    if !is_grantable(&before) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let file = beneath::open_at(at, name, flags, Mode::empty())
        .map_err(TreeError::failed("open", path))?;
    let after = examine(&file)?;
    let same = (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino);
    if !same || !is_grantable(&after) {
        return Err(TreeError::Exchanged { path: path.to_owned() });
    }
    Ok(Some((file, after)))
}

fn is_grantable(stat: &Stat) -> bool {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => true,
        FileType::RegularFile => stat.st_nlink == 1,
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => false,
    }
}

/// The list in an attribute; without one, what the mode says.
fn read_list(
    file: BorrowedFd<'_>,
    path: &Path,
    attribute: &str,
    mode: u32,
) -> Result<Acl, GrantError> {
    let mut buffer = [0_u8; limits::ACCESS_LIST_BYTES];
    match rustix::fs::fgetxattr(file, attribute, &mut buffer) {
        Ok(length) => Acl::decode(buffer.get(..length).unwrap_or_default())
            .map_err(|source| GrantError::Format { path: path.to_owned(), source }),
        Err(Errno::NODATA) => Ok(Acl::from_mode(mode)),
        Err(source) => Err(GrantError::List { operation: "read", path: path.to_owned(), source }),
    }
}

fn write_list(
    file: BorrowedFd<'_>,
    path: &Path,
    attribute: &str,
    list: &Acl,
) -> Result<(), GrantError> {
    rustix::fs::fsetxattr(file, attribute, &list.encode(), XattrFlags::empty())
        .map_err(|source| GrantError::List { operation: "write", path: path.to_owned(), source })
}
