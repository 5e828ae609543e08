//! The program that every role executes, held open and known by its digest.
//!
//! As root, agent uids cannot reach a checkout under `/root`, so roles start from a copy at
//! `<state>/bin/<sha256>/sentinel` that root owns. The state directory belongs to the control plane,
//! which could put something else under that path; therefore the copy is opened once, its bytes are
//! digested through that descriptor, and every launch executes the descriptor.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::beneath::{self, Ownership, TreeError};

const BIN: &str = "bin";
const NAME: &str = "sentinel";
const TEMPORARY_NAME: &str = ".sentinel.new";
const BUFFER: usize = 256 * 1024;

/// Anyone may read and run it, root alone may write it.
const PROGRAM_MODE: Mode = Mode::from_raw_mode(0o755);
/// Anyone may pass, nobody but root may list or write.
const BIN_MODE: Mode = Mode::from_raw_mode(0o711);

/// Why there is no program to start.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The kernel refused an operation.
    #[error("could not {operation} {path}")]
    Failed {
        /// What was attempted.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The copy is not what was copied.
    #[error(
        "{path} has digest {found} after it was copied; the disk or another process altered it"
    )]
    Altered {
        /// The copy.
        path: PathBuf,
        /// Its digest.
        found: String,
    },
    /// The copy's file or directory is not root's alone.
    #[error("{path}: {problem}; remove it, it is made again")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A directory is not as it has to be.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

fn failed(operation: &'static str, path: &Path) -> impl Fn(std::io::Error) -> ProgramError {
    move |source| ProgramError::Failed { operation, path: path.to_owned(), source }
}

/// The open program.
#[derive(Debug)]
pub(crate) struct Program {
    file: File,
    /// SHA-256 in lower-case hex.
    pub(crate) sha256: String,
    /// Device and inode, to recognise it in `/proc/<pid>/exe`.
    pub(crate) identity: (u64, u64),
}

impl Program {
    /// Opens the program where it is. For one uid, which could alter any copy too.
    pub(crate) fn open(path: &Path) -> Result<Self, ProgramError> {
        let mut file = File::open(path).map_err(failed("open", path))?;
        let sha256 = digest(&mut file).map_err(failed("read", path))?;
        Self::of(file, sha256, path)
    }

    /// Opens root's copy beneath the state directory, making it when it is missing or altered, and
    /// removes the copies of other versions.
    pub(crate) fn open_copy(
        source: &Path,
        at: BorrowedFd<'_>,
        state: &Path,
    ) -> Result<Self, ProgramError> {
        let mut original = File::open(source).map_err(failed("open", source))?;
        let sha256 = digest(&mut original).map_err(failed("read", source))?;
        let bin = private_directory(at, Path::new(BIN), &state.join(BIN), BIN_MODE)?;
        let directory_path = state.join(BIN).join(&sha256);
        let directory =
            private_directory(bin.as_fd(), Path::new(&sha256), &directory_path, PROGRAM_MODE)?;
        let path = directory_path.join(NAME);
        let existing = open_verified(directory.as_fd(), &path)?;
        let (file, found) = match existing {
            Some((file, found)) if found == sha256 => (file, found),
            _ => {
                copy(&mut original, directory.as_fd(), &path)?;
                open_verified(directory.as_fd(), &path)?
                    .ok_or_else(|| failed("open", &path)(Errno::NOENT.into()))?
            }
        };
        if found != sha256 {
            return Err(ProgramError::Altered { path, found });
        }
        remove_others(bin.as_fd(), &state.join(BIN), &sha256)?;
        Self::of(file, sha256, &path)
    }

    fn of(file: File, sha256: String, path: &Path) -> Result<Self, ProgramError> {
        let stat =
            rustix::fs::fstat(&file).map_err(|errno| failed("examine", path)(errno.into()))?;
        Ok(Self { file, sha256, identity: (stat.st_dev, stat.st_ino) })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn private_directory(
    at: BorrowedFd<'_>,
    name: &Path,
    path: &Path,
    mode: Mode,
) -> Result<File, ProgramError> {
    let directory = beneath::ensure_directory_at(at, name, path, Ownership { owner: None, mode })?;
    let stat = rustix::fs::fstat(&directory).map_err(TreeError::failed("examine", path))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(ProgramError::NotOurs {
            path: path.to_owned(),
            problem: "another uid owns it",
        });
    }
    if beneath::mode_of(&stat) & 0o022 != 0 {
        return Err(ProgramError::NotOurs {
            path: path.to_owned(),
            problem: "others may write it",
        });
    }
    Ok(File::from(directory))
}

/// Opens an existing copy and digests it through the descriptor that will be executed.
fn open_verified(
    directory: BorrowedFd<'_>,
    path: &Path,
) -> Result<Option<(File, String)>, ProgramError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let file = match beneath::open_at(directory, Path::new(NAME), flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("open", path)(errno.into())),
    };
    let uid = rustix::process::geteuid().as_raw();
    let shape = beneath::not_a_file_of(&file, uid)
        .map_err(|errno| failed("examine", path)(errno.into()))?;
    if let Some(problem) = shape {
        return Err(ProgramError::NotOurs { path: path.to_owned(), problem });
    }
    let mut file = File::from(file);
    let found = digest(&mut file).map_err(failed("read", path))?;
    Ok(Some((file, found)))
}

fn copy(original: &mut File, directory: BorrowedFd<'_>, path: &Path) -> Result<(), ProgramError> {
    let errno = |operation| move |errno: Errno| failed(operation, path)(errno.into());
    match rustix::fs::unlinkat(directory, TEMPORARY_NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(other) => return Err(errno("clear the way for")(other)),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = beneath::open_at(directory, Path::new(TEMPORARY_NAME), flags, Mode::RWXU)
        .map_err(errno("create"))?;
    let mut file = File::from(file);
    original.seek(SeekFrom::Start(0)).map_err(failed("read", path))?;
    std::io::copy(original, &mut file).map_err(failed("write", path))?;
    rustix::fs::fchmod(&file, PROGRAM_MODE).map_err(errno("change the mode of"))?;
    file.sync_all().map_err(failed("sync", path))?;
    drop(file);
    rustix::fs::renameat(directory, TEMPORARY_NAME, directory, NAME).map_err(errno("replace"))?;
    rustix::fs::fsync(directory).map_err(errno("sync the directory of"))
}

/// Copies of earlier versions: nothing runs from them while the caller holds the state's lock.
fn remove_others(bin: BorrowedFd<'_>, path: &Path, keep: &str) -> Result<(), ProgramError> {
    for name in beneath::names_in(bin).map_err(TreeError::failed("list", path))? {
        let is_digest = name
            .to_str()
            .is_some_and(|name| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit()));
        if !is_digest || name == keep {
            continue;
        }
        let old = path.join(&name);
        let directory = beneath::open_directory_at(bin, Path::new(&name))
            .map_err(TreeError::failed("open", &old))?;
        for file in [NAME, TEMPORARY_NAME] {
            match rustix::fs::unlinkat(&directory, file, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(source) => return Err(TreeError::failed("remove", &old)(source).into()),
            }
        }
        rustix::fs::unlinkat(bin, Path::new(&name), AtFlags::REMOVEDIR)
            .map_err(TreeError::failed("remove", &old))?;
    }
    Ok(())
}

fn digest(file: &mut File) -> std::io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; BUFFER];
    loop {
        let length = file.read(&mut buffer)?;
        match buffer.get(..length) {
            None | Some([]) => break,
            Some(read) => hasher.update(read),
        }
    }
    Ok(hex(&hasher.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    struct Fixture {
        directory: tempfile::TempDir,
        fd: OwnedFd,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
            Self { directory, fd }
        }

        fn source(&self, text: &str) -> PathBuf {
            let path = self.directory.path().join("source");
            File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
            path
        }

        fn open(&self, source: &Path) -> Result<Program, ProgramError> {
            Program::open_copy(source, self.fd.as_fd(), self.directory.path())
        }

        fn copy_of(&self, program: &Program) -> PathBuf {
            self.directory.path().join(BIN).join(&program.sha256).join(NAME)
        }
    }

    #[test]
    fn the_copy_is_made_once_and_carries_the_digest() {
        let fixture = Fixture::new();
        let source = fixture.source("");
        let program = fixture.open(&source).unwrap();
        assert_eq!(program.sha256, EMPTY);
        let stat = rustix::fs::fstat(&program).unwrap();
        assert_eq!(beneath::mode_of(&stat), 0o755);
        let again = fixture.open(&source).unwrap();
        assert_eq!(program.identity, again.identity);
        assert_ne!(Program::open(&source).unwrap().identity, program.identity);
        assert_eq!(Program::open(&source).unwrap().sha256, EMPTY);
    }

    #[test]
    fn an_altered_copy_is_replaced_and_an_old_version_removed() {
        let fixture = Fixture::new();
        let first = fixture.open(&fixture.source("first")).unwrap();
        let path = fixture.copy_of(&first);
        File::options().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        let repaired = fixture.open(&fixture.source("first")).unwrap();
        assert_ne!(repaired.identity, first.identity);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
        let second = fixture.open(&fixture.source("second")).unwrap();
        assert!(fixture.copy_of(&second).exists());
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_copy_that_is_linked_or_writable_by_others_is_refused() {
        let fixture = Fixture::new();
        let source = fixture.source("first");
        let path = fixture.copy_of(&fixture.open(&source).unwrap());
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o777)).unwrap();
        assert!(matches!(fixture.open(&source), Err(ProgramError::NotOurs { .. })));
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o755)).unwrap();
        fixture.open(&source).unwrap();
        std::fs::hard_link(&path, fixture.directory.path().join("link")).unwrap();
        assert!(matches!(fixture.open(&source), Err(ProgramError::NotOurs { .. })));
    }
}
