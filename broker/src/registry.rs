//! `dev-uids.json`: which uid belongs to which agent account, for ever.
//!
//! Root's file (0600) in the state directory, replaced atomically. A uid is never given out twice,
//! not even when its account is gone, because files of the old account may live on. A registry that
//! cannot be understood is refused and left as it is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::beneath;
use crate::limits::REGISTRY_BYTES;
use crate::protocol::Subject;

/// The file's name in the state directory.
pub(crate) const FILE_NAME: &str = "dev-uids.json";
const TEMPORARY_NAME: &str = ".dev-uids.json.new";
const FORMAT_VERSION: u32 = 1;

/// Why the registry cannot be used.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Its content or its file is not as a launcher left it.
    #[error(
        "{path}: {problem}; nothing was changed. Restore the file from a backup, or move the whole \
         state directory away to start anew: with a new registry alone, new agents would get the \
         uids of old ones and their files"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
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
    /// All uids were given out.
    #[error("all uids {first} to {last} were given out, and none is used twice", first = .range.start(), last = .range.end())]
    Exhausted {
        /// The range.
        range: RangeInclusive<u32>,
    },
    /// Two accounts would share one agent's directories.
    #[error("agent {agent:?} already has the account {existing}")]
    AgentTaken {
        /// The agent.
        agent: String,
        /// Its account.
        existing: Subject,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    next: u32,
    accounts: BTreeMap<Subject, u32>,
}

/// The accounts, in memory and on disk alike.
#[derive(Debug)]
pub(crate) struct Registry {
    path: PathBuf,
    range: RangeInclusive<u32>,
    content: Content,
}

impl Registry {
    /// Reads the registry beneath the state directory. A missing one is created only when `fresh`:
    /// otherwise uids were given out before, and nobody knows which.
    pub(crate) fn open(
        at: BorrowedFd<'_>,
        state: &Path,
        range: RangeInclusive<u32>,
        fresh: bool,
    ) -> Result<Self, RegistryError> {
        let path = state.join(FILE_NAME);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let content = match beneath::open_at(at, Path::new(FILE_NAME), flags, Mode::empty()) {
            Ok(file) => read(File::from(file), &path, &range)?,
            Err(Errno::NOENT) if fresh => {
                let content = Content {
                    version: FORMAT_VERSION,
                    next: *range.start(),
                    accounts: BTreeMap::new(),
                };
                write(at, &path, &content)?;
                content
            }
            Err(Errno::NOENT) => {
                let problem =
                    "it is missing, but this state directory was in use before".to_owned();
                return Err(RegistryError::Corrupt { path, problem });
            }
            Err(errno) => {
                return Err(RegistryError::Failed {
                    operation: "open",
                    path,
                    source: errno.into(),
                });
            }
        };
        Ok(Self { path, range, content })
    }

    /// The uid of an account.
    pub(crate) fn uid_of(&self, subject: &Subject) -> Option<u32> {
        self.content.accounts.get(subject).copied()
    }

    /// All accounts, sorted by name.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&Subject, u32)> {
        self.content.accounts.iter().map(|(subject, uid)| (subject, *uid))
    }

    /// The uid the subject has, or would get.
    pub(crate) fn uid_for(&self, subject: &Subject) -> Result<u32, RegistryError> {
        if let Some(uid) = self.uid_of(subject) {
            return Ok(uid);
        }
        self.refuse_taken_agent(subject)?;
        if self.range.contains(&self.content.next) {
            Ok(self.content.next)
        } else {
            Err(RegistryError::Exhausted { range: self.range.clone() })
        }
    }

    /// Gives the subject the next uid and makes that durable before it is used.
    pub(crate) fn add(
        &mut self,
        at: BorrowedFd<'_>,
        subject: &Subject,
    ) -> Result<u32, RegistryError> {
        let uid = self.uid_for(subject)?;
        if self.uid_of(subject).is_some() {
            return Ok(uid);
        }
        let mut content = self.content.clone();
        content.accounts.insert(subject.clone(), uid);
        content.next = uid + 1;
        write(at, &self.path, &content)?;
        self.content = content;
        Ok(uid)
    }

    fn refuse_taken_agent(&self, subject: &Subject) -> Result<(), RegistryError> {
        match self.content.accounts.keys().find(|known| known.agent() == subject.agent()) {
            None => Ok(()),
            Some(existing) => Err(RegistryError::AgentTaken {
                agent: subject.agent().to_owned(),
                existing: existing.clone(),
            }),
        }
    }
}

fn read(file: File, path: &Path, range: &RangeInclusive<u32>) -> Result<Content, RegistryError> {
    let failed = |operation| {
        move |source| RegistryError::Failed { operation, path: path.to_owned(), source }
    };
    let corrupt = |problem| RegistryError::Corrupt { path: path.to_owned(), problem };
    let uid = rustix::process::geteuid().as_raw();
    let shape =
        beneath::not_a_file_of(&file, uid).map_err(|errno| failed("examine")(errno.into()))?;
    if let Some(problem) = shape {
        return Err(corrupt(problem.to_owned()));
    }
    let mut text = String::new();
    let length = file.take(REGISTRY_BYTES + 1).read_to_string(&mut text).map_err(failed("read"))?;
    if length as u64 > REGISTRY_BYTES {
        return Err(corrupt(format!("it is larger than {REGISTRY_BYTES} bytes")));
    }
    parse(&text, range).map_err(corrupt)
}

/// Parses and checks the whole content; the message says what is wrong.
fn parse(text: &str, range: &RangeInclusive<u32>) -> Result<Content, String> {
    let content: Content = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if content.version != FORMAT_VERSION {
        return Err(format!(
            "format version {} is not {FORMAT_VERSION}; another Sentinel wrote it",
            content.version
        ));
    }
    let (first, last) = (*range.start(), *range.end());
    if content.next < first || content.next > last.saturating_add(1) {
        return Err(format!("next uid {} is outside {first} to {last}", content.next));
    }
    let mut owners = BTreeMap::new();
    let mut agents = BTreeMap::new();
    for (subject, uid) in &content.accounts {
        if !range.contains(uid) {
            return Err(format!("uid {uid} of {subject} is outside {first} to {last}"));
        }
        if *uid >= content.next {
            return Err(format!("uid {uid} of {subject} is not below next uid {}", content.next));
        }
        if let Some(other) = owners.insert(uid, subject) {
            return Err(format!("{other} and {subject} have the same uid {uid}"));
        }
        if let Some(other) = agents.insert(subject.agent(), subject) {
            return Err(format!("{other} and {subject} are accounts of one agent"));
        }
    }
    Ok(content)
}

/// Replaces the file: temporary in the same directory, its data, the name, the directory.
fn write(at: BorrowedFd<'_>, path: &Path, content: &Content) -> Result<(), RegistryError> {
    let failed = |operation| {
        move |source| RegistryError::Failed { operation, path: path.to_owned(), source }
    };
    let text = serde_json::to_vec_pretty(content)
        .map_err(|error| failed("encode")(std::io::Error::other(error)))?;
    match rustix::fs::unlinkat(at, TEMPORARY_NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed("clear the way for")(errno.into())),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = beneath::open_at(at, Path::new(TEMPORARY_NAME), flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| failed("write")(errno.into()))?;
    let mut file = File::from(file);
    file.write_all(&text).map_err(failed("write"))?;
    file.write_all(b"\n").map_err(failed("write"))?;
    file.sync_all().map_err(failed("sync"))?;
    rustix::fs::renameat(at, TEMPORARY_NAME, at, FILE_NAME)
        .map_err(|errno| failed("replace")(errno.into()))?;
    rustix::fs::fsync(at.as_fd()).map_err(|errno| failed("sync the directory of")(errno.into()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const RANGE: RangeInclusive<u32> = 58_001..=58_003;

    struct State {
        directory: tempfile::TempDir,
        fd: OwnedFd,
    }

    impl State {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
            Self { directory, fd }
        }

        fn open(&self) -> Result<Registry, RegistryError> {
            Registry::open(self.fd.as_fd(), self.directory.path(), RANGE, false)
        }

        fn create(&self) -> Registry {
            Registry::open(self.fd.as_fd(), self.directory.path(), RANGE, true).unwrap()
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join(FILE_NAME)
        }

        fn put(&self, text: &str) {
            let mut file = File::create(self.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    fn subject(name: &str) -> Subject {
        Subject::new(name).unwrap()
    }

    #[test]
    fn uids_are_given_in_order_and_survive_a_restart() {
        let state = State::new();
        let mut registry = state.create();
        let at = state.fd.as_fd();
        assert_eq!(registry.add(at, &subject("leash-a")).unwrap(), 58_001);
        assert_eq!(registry.add(at, &subject("naomi")).unwrap(), 58_002);
        assert_eq!(registry.add(at, &subject("leash-a")).unwrap(), 58_001);
        let mut registry = state.open().unwrap();
        assert_eq!(registry.uid_of(&subject("naomi")), Some(58_002));
        assert_eq!(registry.add(at, &subject("leash-b")).unwrap(), 58_003);
        assert!(matches!(
            registry.add(at, &subject("leash-c")),
            Err(RegistryError::Exhausted { .. })
        ));
        let mode = std::fs::metadata(state.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        insta::assert_snapshot!(std::fs::read_to_string(state.path()).unwrap(), @r#"
        {
          "version": 1,
          "next": 58004,
          "accounts": {
            "leash-a": 58001,
            "leash-b": 58003,
            "naomi": 58002
          }
        }
        "#);
    }

    #[test]
    fn two_accounts_never_share_an_agent() {
        let state = State::new();
        let mut registry = state.create();
        registry.add(state.fd.as_fd(), &subject("naomi")).unwrap();
        assert!(matches!(
            registry.add(state.fd.as_fd(), &subject("leash-naomi")),
            Err(RegistryError::AgentTaken { .. })
        ));
    }

    #[test]
    fn a_uid_is_not_used_again_after_its_account_is_gone() {
        let state = State::new();
        state.put(r#"{"version":1,"next":58003,"accounts":{"leash-a":58001}}"#);
        let mut registry = state.open().unwrap();
        assert_eq!(registry.add(state.fd.as_fd(), &subject("leash-b")).unwrap(), 58_003);
    }

    #[test]
    fn a_damaged_registry_is_refused_by_name_and_left_alone() {
        for (text, problem) in [
            ("", "EOF"),
            (r#"{"version":1,"next":58001,"acc"#, "EOF"),
            (r#"{"version":2,"next":58001,"accounts":{}}"#, "format version 2"),
            (r#"{"version":1,"next":58001}"#, "missing field"),
            (r#"{"version":1,"next":58001,"accounts":{},"x":1}"#, "unknown field"),
            (r#"{"version":1,"next":57000,"accounts":{}}"#, "next uid 57000"),
            (r#"{"version":1,"next":58005,"accounts":{}}"#, "next uid 58005"),
            (r#"{"version":1,"next":58002,"accounts":{"root":0}}"#, "uid 0 of root is outside"),
            (r#"{"version":1,"next":58001,"accounts":{"a":58001}}"#, "not below"),
            (r#"{"version":1,"next":58003,"accounts":{"a":58001,"b":58001}}"#, "same uid"),
            (r#"{"version":1,"next":58003,"accounts":{"a":58001,"leash-a":58002}}"#, "one agent"),
            (r#"{"version":1,"next":58003,"accounts":{"../a":58001}}"#, "may not contain"),
        ] {
            let state = State::new();
            state.put(text);
            let error = state.open().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
            assert!(error.contains(&state.path().display().to_string()), "{error}");
            assert_eq!(std::fs::read_to_string(state.path()).unwrap(), text);
        }
        let state = State::new();
        state.put(r#"{"version":1,"next":58004,"accounts":{"leash-a":58003}}"#);
        state.open().unwrap();
    }

    #[test]
    fn a_registry_that_vanished_or_that_others_may_write_is_refused() {
        let state = State::new();
        assert!(state.open().unwrap_err().to_string().contains("it is missing"));
        state.create();
        state.open().unwrap();
        let writable = std::fs::Permissions::from_mode(0o622);
        std::fs::set_permissions(state.path(), writable).unwrap();
        assert!(state.open().unwrap_err().to_string().contains("others may write"));
    }
}
