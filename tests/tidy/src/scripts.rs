//! A stage on which a script of this repository is run against programs that only pretend, so that its decisions can
//! be tested without installing or building anything.

use crate::facts;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The real programs the scripts are made of.
const REAL: [&str; 13] = [
    "awk", "bash", "cat", "dirname", "env", "grep", "head", "id", "mkdir", "rm", "sed", "sort",
    "tee",
];

/// A folder with a copy of some scripts, and a `bin` that is the whole of their PATH.
#[derive(Debug)]
pub struct Stage {
    folder: TempDir,
}

impl Stage {
    /// A stage with `tests/environment.sh` and the named scripts of `tests/`.
    pub fn new(scripts: &[&str]) -> io::Result<Stage> {
        let folder = tempfile::Builder::new().prefix("sentinel-stage-").tempdir()?;
        let stage = Stage { folder };
        for inside in ["bin", "tests"] {
            std::fs::create_dir(stage.path(inside))?;
        }
        // An ordinary user works here too.
        std::fs::set_permissions(stage.folder.path(), PermissionsExt::from_mode(0o777))?;
        for script in scripts.iter().chain(&["environment.sh"]) {
            let copy = Path::new("tests").join(script);
            std::fs::copy(facts::root().join(&copy), stage.folder.path().join(&copy))?;
        }
        for program in REAL {
            let real = ["/usr/bin", "/bin"]
                .iter()
                .map(|folder| Path::new(folder).join(program))
                .find(|real| real.exists());
            let real =
                real.ok_or_else(|| io::Error::other(format!("{program} is not on this machine")))?;
            symlink(real, stage.path(&format!("bin/{program}")))?;
        }
        Ok(stage)
    }

    /// A path on the stage.
    pub fn path(&self, inside: &str) -> std::path::PathBuf {
        self.folder.path().join(inside)
    }

    /// Puts a program on the stage that does what `body` says, in bash. `$stage` is the stage's folder.
    pub fn pretend(&self, program: &str, body: &str) -> io::Result<()> {
        let path = self.path(program);
        let text = format!("#!/usr/bin/env bash\nstage={}\n{body}\n", self.folder.path().display());
        #[expect(clippy::disallowed_methods, reason = "a test's own file, not product state")]
        std::fs::write(&path, text)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755))
    }

    /// Runs a script of the stage, as another uid if one is given.
    pub fn run(&self, script: &str, arguments: &[&str], uid: Option<u32>) -> io::Result<Output> {
        let mut command = Command::new(self.path(script));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.folder.path())
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        command.output()
    }
}
