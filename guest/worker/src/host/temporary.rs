//! A private temporary directory: made once per place, emptied after each call, removed at the end.
//!
//! What a tool leaves in it is hostile: directories without permissions, trees deeper than any stack, names that look like ours.
//! Emptying therefore never recurses: a directory found inside another is first moved to the top.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use uuid::Uuid;

/// A directory that only this tool host's children use, mode 0700.
#[derive(Debug)]
pub(crate) struct Temporary {
    place: OwnedFd,
    name: String,
    directory: File,
    path: PathBuf,
}

/// How far emptying came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emptied {
    Wholly,
    /// The time was up.
    Partly,
}

const PRIVATE: Mode = Mode::RWXU;

impl Temporary {
    /// Makes one inside `place`, which must be a directory and not a link to one.
    pub(crate) fn make(place: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = rustix::fs::open(place, flags | OFlags::PATH, Mode::empty())?;
        let name = format!("sentinel-{}", Uuid::new_v4());
        rustix::fs::mkdirat(&parent, &name, PRIVATE)?;
        let directory = File::from(rustix::fs::openat(&parent, &name, flags, Mode::empty())?);
        Ok(Self { path: place.join(&name), place: parent, name, directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself, for a rule that holds for it whatever its name comes to mean.
    pub(crate) fn directory(&self) -> &File {
        &self.directory
    }

    /// Removes everything in it, as long as there is time. Nothing may be running in it any more.
    pub(crate) fn empty(&self, until: Instant) -> io::Result<Emptied> {
        let top = self.directory.as_fd();
        loop {
            let entries = list(top)?;
            if entries.is_empty() {
                return Ok(Emptied::Wholly);
            }
            for entry in entries {
                if Instant::now() > until {
                    return Ok(Emptied::Partly);
                }
                if entry.is_directory {
                    flatten(top, &entry.name)?;
                } else {
                    unlink(top, &entry.name)?;
                }
            }
        }
    }

    /// Empties and removes it.
    pub(crate) fn remove(self, until: Instant) -> io::Result<()> {
        self.empty(until)?;
        Ok(rustix::fs::unlinkat(&self.place, &self.name, AtFlags::REMOVEDIR)?)
    }
}

struct Entry {
    name: Box<CStr>,
    is_directory: bool,
}

fn list(directory: BorrowedFd<'_>) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        let is_directory = kind == FileType::Directory;
        entries.push(Entry { name: name.into(), is_directory });
    }
    Ok(entries)
}

fn unlink(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
}

/// Removes one directory of `top` after moving its directories up beside it and removing its files.
fn flatten(top: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let inner = open_whatever_its_mode(top, name)?;
    for entry in list(inner.as_fd())? {
        if !entry.is_directory {
            unlink(inner.as_fd(), &entry.name)?;
            continue;
        }
        // Moving a directory rewrites its `..`, which takes write permission on it.
        drop(open_whatever_its_mode(inner.as_fd(), &entry.name)?);
        loop {
            let fresh = format!(".{}", Uuid::new_v4().simple());
            match rustix::fs::renameat_with(
                &inner,
                &*entry.name,
                top,
                fresh,
                RenameFlags::NOREPLACE,
            ) {
                Err(Errno::EXIST) => {}
                answer => break answer?,
            }
        }
    }
    Ok(rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)?)
}

fn open_whatever_its_mode(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if Mode::from_raw_mode(stat.st_mode) & PRIVATE != PRIVATE {
        rustix::fs::chmodat(parent, name, PRIVATE, AtFlags::empty())?;
    }
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_mins(1)
    }

    #[test]
    fn is_private_and_its_own() {
        let place = tempfile::tempdir().unwrap();
        let one = Temporary::make(place.path()).unwrap();
        let two = Temporary::make(place.path()).unwrap();
        assert_ne!(one.path(), two.path());
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o700);
        one.remove(soon()).unwrap();
        two.remove(soon()).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn empties_what_a_tool_left_behind_on_purpose() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        File::create(outside.join("kept")).unwrap();
        let private = Temporary::make(place.path()).unwrap();
        let inside = private.path();
        let locked = inside.join("locked/inner");
        fs::create_dir_all(locked.join("leaf")).unwrap();
        File::create(locked.join("file")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink("/", locked.join("root")).unwrap();
        for directory in [locked.join("leaf"), locked.clone(), inside.join("locked")] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o000)).unwrap();
        }
        private.empty(soon()).unwrap();
        assert_eq!(fs::read_dir(private.path()).unwrap().count(), 0);
        assert!(outside.join("kept").exists(), "a link is removed, not followed");
        private.remove(soon()).unwrap();
    }

    #[test]
    fn empties_a_tree_deeper_than_descriptors_and_stacks_allow() {
        let place = tempfile::tempdir().unwrap();
        let private = Temporary::make(place.path()).unwrap();
        let mut at: OwnedFd = private.directory().try_clone().unwrap().into();
        for _level in 0..1_500 {
            rustix::fs::mkdirat(&at, "d", PRIVATE).unwrap();
            at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
        }
        private.remove(soon()).unwrap();
    }

    #[test]
    fn refuses_a_place_that_is_a_link() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert!(Temporary::make(&link).is_err());
    }
}
