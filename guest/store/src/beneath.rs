//! Opening what somebody else may have arranged. Paths are resolved by the
//! kernel beneath a directory descriptor, without symbolic links, magic links
//! or mount crossings, and the descriptor found is what is used: there is no
//! resolve-then-open.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};

/// Nothing on the way may be a link or another mount.
pub const HOSTILE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Links are followed as long as they stay beneath: a person's own workspace.
pub const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Opens a directory by an absolute path that only root and the owner arrange.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(fs::open(path, flags, Mode::empty())?)
}

/// Opens directory `name` beneath `dir`.
pub fn open_dir_at(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(dir, name, flags, Mode::empty(), HOSTILE)?)
}

/// What a file must be before its bytes are believed.
#[derive(Debug, Clone, Copy)]
pub struct Expect {
    /// Owner; `None` where every process has one uid.
    pub uid: Option<u32>,
    /// Largest size in bytes.
    pub limit: u64,
}

/// Opens `name` beneath `dir` for reading and requires a regular file with one
/// link, the expected owner and a size under the ceiling. A FIFO does not hang
/// it, a link is not followed, a hard link to another file is refused.
pub fn open_regular(dir: BorrowedFd<'_>, name: &str, expect: Expect) -> io::Result<File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = fs::openat2(dir, name, flags, Mode::empty(), HOSTILE)?;
    check_regular(file.as_fd(), expect).map_err(io::Error::other)?;
    Ok(File::from(file))
}

/// The checks of [`open_regular`] on an open descriptor.
pub fn check_regular(file: BorrowedFd<'_>, expect: Expect) -> Result<(), Unfit> {
    let Ok(stat) = fs::fstat(file) else { return Err(Unfit::NotRegular) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Unfit::NotRegular);
    }
    if stat.st_nlink != 1 {
        return Err(Unfit::Links);
    }
    if let Some(uid) = expect.uid.filter(|uid| *uid != stat.st_uid) {
        return Err(Unfit::Owner { found: stat.st_uid, wanted: uid });
    }
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > expect.limit {
        return Err(Unfit::Size { bytes: size, limit: expect.limit });
    }
    Ok(())
}

/// Why a file's bytes are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it is no regular file")]
    NotRegular,
    #[error("it has further links, so it may be another file")]
    Links,
    #[error("it belongs to uid {found}, not {wanted}")]
    Owner { found: u32, wanted: u32 },
    #[error("it has {bytes} bytes; the ceiling is {limit}")]
    Size { bytes: u64, limit: u64 },
}

/// Reads a whole file opened by [`open_regular`], never more than `limit`.
pub fn read_all(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(Unfit::Size { bytes: bytes.len() as u64, limit }));
    }
    Ok(bytes)
}

/// SHA-256 of a regular file named by `relative` beneath a workspace, or `None`
/// where it names anything else. Links inside the workspace are followed.
pub fn workspace_digest(workspace: BorrowedFd<'_>, relative: &Path, limit: u64) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = fs::openat2(workspace, relative, flags, Mode::empty(), INSIDE).ok()?;
    let stat = fs::fstat(&file).ok()?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !regular || u64::try_from(stat.st_size).unwrap_or(u64::MAX) > limit {
        return None;
    }
    let bytes = read_all(&File::from(file), limit).ok()?;
    Some(domain::approval::sha256_hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn expect() -> Expect {
        Expect { uid: None, limit: 100 }
    }

    #[test]
    fn planted_files_are_refused_and_a_plain_one_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        let path = |name: &str| temp.path().join(name);
        File::create(path("plain")).unwrap();
        symlink(outside.path(), path("link")).unwrap();
        std::fs::hard_link(path("plain"), path("second")).unwrap();
        fs::mknodat(fs::CWD, path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        File::create(path("large")).unwrap().set_len(101).unwrap();
        File::create(path("good")).unwrap();
        std::fs::create_dir(path("dir")).unwrap();
        let dir = open_dir(temp.path()).unwrap();
        for name in
            ["link", "plain", "second", "fifo", "large", "dir", "../x", "/etc/passwd", "none"]
        {
            assert!(open_regular(dir.as_fd(), name, expect()).is_err(), "{name} was opened");
        }
        open_regular(dir.as_fd(), "good", expect()).unwrap();
        let foreign = Expect { uid: Some(12_345), limit: 100 };
        assert!(open_regular(dir.as_fd(), "good", foreign).is_err());
    }

    #[test]
    fn only_regular_files_beneath_the_workspace_have_a_digest() {
        let temp = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            io::Write::write_all(&mut File::create(temp.path().join(name)).unwrap(), b"x")
        };
        write("a").unwrap();
        symlink("a", temp.path().join("inside")).unwrap();
        symlink("/etc/passwd", temp.path().join("outside")).unwrap();
        let dir = open_dir(temp.path()).unwrap();
        let digest = |name: &str| workspace_digest(dir.as_fd(), Path::new(name), 10);
        assert_eq!(digest("a"), digest("inside"));
        assert!(digest("a").is_some());
        for name in ["outside", "/etc/passwd", "../x", ".", "none"] {
            assert_eq!(digest(name), None, "{name}");
        }
    }
}
