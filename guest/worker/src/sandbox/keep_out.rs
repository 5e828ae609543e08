//! A grant that contains the run directory would hand a tool everything its layer is there to keep from it.
//!
//! Directories are compared by device and inode, so no link, bind mount or spelling hides one inside another.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// A directory and everything above it.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeepOut {
    directories: HashSet<(u64, u64)>,
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

impl KeepOut {
    /// Nothing to keep out of.
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    /// Walks from `directory` to the root.
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = File::options().read(true).custom_flags(libc::O_PATH).open(directory)?;
        let mut directories = HashSet::new();
        while directories.insert(identity(&at)?) {
            at = File::from(rustix::fs::openat(&at, "..", flags, Mode::empty())?);
        }
        Ok(Self { directories })
    }

    /// Whether a rule for `file` would open the directory, because it is that directory or above it.
    pub(crate) fn is_opened_by(&self, file: &File) -> io::Result<bool> {
        Ok(!self.directories.is_empty() && self.directories.contains(&identity(file)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_opened_by_itself_and_everything_above_under_any_name() {
        let top = tempfile::tempdir().unwrap();
        let (run, other, link) =
            (top.path().join("a/run"), top.path().join("other"), top.path().join("link"));
        std::fs::create_dir_all(run.join("worker")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(top.path().join("a"), &link).unwrap();
        let keep_out = KeepOut::of(&run).unwrap();
        let opened = |path: &Path| keep_out.is_opened_by(&File::open(path).unwrap()).unwrap();
        assert!(
            opened(&run) && opened(&run.join("..")) && opened(top.path()) && opened(Path::new("/"))
        );
        assert!(opened(&link), "another name of a directory above");
        assert!(!opened(&other) && !opened(&run.join("worker")));
        assert!(!KeepOut::nothing().is_opened_by(&File::open("/").unwrap()).unwrap());
    }
}
