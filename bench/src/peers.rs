//! Where peers are, and whether they are there at all. A peer that is missing
//! loses its row and nothing else.

use std::path::{Path, PathBuf};

/// What `bench/run` prepared.
#[derive(Debug)]
pub(crate) struct Places {
    /// Peers that were built or installed for this alone.
    pub(crate) cache: PathBuf,
    /// The product, built for release.
    pub(crate) sentinel: PathBuf,
}

impl Places {
    pub(crate) fn hello(&self) -> PathBuf {
        self.cache.join("hello")
    }

    /// The interpreter that has `dbos`, where it could be installed.
    pub(crate) fn dbos_python(&self) -> Option<PathBuf> {
        let installed = self.cache.join("dbos.installed").exists();
        installed.then(|| self.cache.join("venv/bin/python"))
    }
}

/// A program in the system's own directories.
pub(crate) fn system_program(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
}

/// A directory on a disk and not in memory, where a sync costs what it costs.
pub(crate) fn scratch() -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("sentinel-bench-").tempdir_in("/var/tmp")
}
