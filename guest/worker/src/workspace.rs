//! The agent's workspace as a directory descriptor. Every file tool goes
//! through it: paths are judged by component first, then opened beneath the
//! descriptor by the kernel, so that neither `..` nor a link leads out.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use domain::action::Place;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use store::beneath::{self, INSIDE};

use crate::limits;

/// An open workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    dir: OwnedFd,
    path: PathBuf,
}

/// Why a path could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    /// The kernel found that the path leads out, by `..` or by a link.
    #[error("{path} leads out of the workspace")]
    LeadsOut { path: String },
    #[error("{path}: {what}")]
    Unfit { path: String, what: String },
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

/// Where `path` points, judged by its components alone. Returns the path
/// relative to the workspace, or the absolute path when it lies outside.
///
/// A leading `~` is the agent's home, which is its workspace.
pub(crate) fn place(workspace: &Path, path: &str) -> (Place, PathBuf) {
    let path = match path.strip_prefix('~') {
        Some("") => Path::new("."),
        Some(rest) if rest.starts_with('/') => Path::new(rest.trim_start_matches('/')),
        Some(_) | None => Path::new(path),
    };
    let absolute = if path.is_absolute() { path.to_owned() } else { workspace.join(path) };
    let plain = normalized(&absolute);
    match plain.strip_prefix(workspace) {
        Ok(inside) if inside.as_os_str().is_empty() => (Place::Workspace, PathBuf::from(".")),
        Ok(inside) => (Place::Workspace, inside.to_owned()),
        Err(_) => (Place::Outside, plain),
    }
}

fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

impl Workspace {
    /// Opens the workspace directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { dir: beneath::open_dir(path)?, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// See [`place`].
    pub(crate) fn place(&self, path: &str) -> (Place, PathBuf) {
        place(&self.path, path)
    }

    /// Opens a regular file for reading.
    pub(crate) fn open_file(&self, relative: &Path) -> Result<File, PathError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = self.openat(relative, flags)?;
        let stat = fs::fstat(&file).map_err(|e| failed(relative, e))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::RegularFile {
            Ok(File::from(file))
        } else if kind == FileType::Directory {
            Err(unfit(relative, "is a directory; use list_dir"))
        } else {
            Err(unfit(relative, "is no regular file"))
        }
    }

    /// Reads a whole regular file under the ceiling.
    pub(crate) fn read(&self, relative: &Path) -> Result<Vec<u8>, PathError> {
        let file = self.open_file(relative)?;
        beneath::read_all(&file, limits::FILE_BYTES)
            .map_err(|source| PathError::Io { path: shown(relative), source })
    }

    /// Opens a directory.
    pub(crate) fn open_dir(&self, relative: &Path) -> Result<OwnedFd, PathError> {
        self.openat(relative, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC)
    }

    /// Replaces or creates a file: temporary file beside it, then rename, so
    /// that no reader sees half of it. Missing directories are created; the
    /// mode of a file that was there is kept.
    pub(crate) fn replace(&self, relative: &Path, bytes: &[u8]) -> Result<(), PathError> {
        let name = relative.file_name().ok_or_else(|| unfit(relative, "names no file"))?;
        let parent = self.create_dirs(relative.parent().unwrap_or(Path::new(".")))?;
        let mode = mode_to_keep(parent.as_fd(), relative, name)?;
        let temporary = format!(".sentinel-{}.new", std::process::id());
        let written = write_new(parent.as_fd(), &temporary, bytes, mode)
            .and_then(|()| Ok(fs::renameat(&parent, &temporary, &parent, name)?));
        if let Err(source) = written {
            // Best effort: the write itself is what failed and is reported.
            let _left = fs::unlinkat(&parent, &temporary, AtFlags::empty());
            return Err(PathError::Io { path: shown(relative), source });
        }
        Ok(())
    }

    fn create_dirs(&self, relative: &Path) -> Result<OwnedFd, PathError> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut walked = PathBuf::from(".");
        let mut dir = self.openat(Path::new("."), flags)?;
        for component in relative.components().filter(|c| matches!(c, Component::Normal(_))) {
            walked.push(component);
            match fs::mkdirat(&dir, component.as_os_str(), Mode::from_raw_mode(0o775)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(&walked, error)),
            }
            // From the workspace again, so that a link inside it is followed
            // and one that leads out is found.
            dir = self.openat(&walked, flags)?;
        }
        Ok(dir)
    }

    fn openat(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, PathError> {
        fs::openat2(&self.dir, path, flags, Mode::empty(), INSIDE).map_err(|errno| match errno {
            // What RESOLVE_BENEATH answers when a component would leave.
            Errno::XDEV => PathError::LeadsOut { path: shown(path) },
            other => failed(path, other),
        })
    }
}

/// The mode of a regular file that is there, or the one of a new file.
fn mode_to_keep(parent: BorrowedFd<'_>, path: &Path, name: &OsStr) -> Result<u32, PathError> {
    let stat = match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(0o664),
        Err(error) => return Err(failed(path, error)),
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::RegularFile {
        Ok(stat.st_mode & 0o777)
    } else if kind == FileType::Symlink {
        Err(unfit(path, "is a symbolic link; write to what it points to"))
    } else {
        Err(unfit(path, "is no regular file"))
    }
}

fn write_new(dir: BorrowedFd<'_>, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(dir, name, flags, Mode::from_raw_mode(mode))?);
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn unfit(path: &Path, what: &str) -> PathError {
    PathError::Unfit { path: shown(path), what: what.to_owned() }
}

fn failed(path: &Path, errno: Errno) -> PathError {
    PathError::Io { path: shown(path), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn places_are_judged_by_component() {
        let ws = Path::new("/srv/ws");
        for (path, wanted, relative) in [
            ("a", Place::Workspace, "a"),
            (".", Place::Workspace, "."),
            ("", Place::Workspace, "."),
            ("~", Place::Workspace, "."),
            ("~/a/b", Place::Workspace, "a/b"),
            ("a/../b", Place::Workspace, "b"),
            ("/srv/ws/a", Place::Workspace, "a"),
            ("/srv/ws2/a", Place::Outside, "/srv/ws2/a"),
            ("../ws2", Place::Outside, "/srv/ws2"),
            ("a/../../x", Place::Outside, "/srv/x"),
            ("/etc/passwd", Place::Outside, "/etc/passwd"),
            ("~root", Place::Workspace, "~root"),
        ] {
            assert_eq!(place(ws, path), (wanted, PathBuf::from(relative)), "{path}");
        }
    }

    #[test]
    fn links_that_lead_out_are_found_by_the_kernel_and_inner_ones_followed() {
        let temp = tempfile::tempdir().unwrap();
        let ws = Workspace::open(temp.path()).unwrap();
        ws.replace(Path::new("d/a"), b"one").unwrap();
        symlink("/etc", temp.path().join("out")).unwrap();
        symlink("d", temp.path().join("in")).unwrap();
        assert!(matches!(ws.read(Path::new("out/passwd")), Err(PathError::LeadsOut { .. })));
        assert!(matches!(ws.replace(Path::new("out/x"), b""), Err(PathError::LeadsOut { .. })));
        assert_eq!(ws.read(Path::new("in/a")).unwrap(), b"one");
        ws.replace(Path::new("in/a"), b"two").unwrap();
        assert_eq!(ws.read(Path::new("d/a")).unwrap(), b"two");
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_a_link_is_not_replaced() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let ws = Workspace::open(temp.path()).unwrap();
        ws.replace(Path::new("run.sh"), b"x").unwrap();
        std::fs::set_permissions(
            temp.path().join("run.sh"),
            std::fs::Permissions::from_mode(0o750),
        )
        .unwrap();
        ws.replace(Path::new("run.sh"), b"y").unwrap();
        let mode = std::fs::metadata(temp.path().join("run.sh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        symlink("run.sh", temp.path().join("l")).unwrap();
        assert!(matches!(ws.replace(Path::new("l"), b"z"), Err(PathError::Unfit { .. })));
        assert_eq!(ws.read(Path::new("run.sh")).unwrap(), b"y");
    }
}
