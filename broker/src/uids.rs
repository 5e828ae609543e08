//! Which bare uids a launcher may use, and proof that nobody else does.
//!
//! The uids have no passwd entry, so nothing but these checks keeps them apart from the machine's
//! accounts: the name service must not know them, no line of `/etc/subuid` or `/etc/subgid` may hand
//! them to a container, and one launcher at a time holds the lock of a range.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User};
use thiserror::Error;

use crate::lock::{Lock, LockError};

/// Where slices and ranges are locked: root's, so that no other account can hold one.
const RUNTIME: &str = "/run/sentinel-dev";

/// First uid of slice 0.
const SLICE_BASE: u32 = 57_000;

/// Uids per slice.
const SLICE_SIZE: u32 = 10;

/// How many slices there are.
pub const SLICES: u32 = 99;

/// The uids of one launcher. Every gid equals its uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UidRange {
    /// The control plane's.
    pub control: u32,
    /// Muzzle's.
    pub muzzle: u32,
    /// The agents', given out in ascending order and never again.
    pub agents: RangeInclusive<u32>,
}

impl UidRange {
    /// The range of `sentinel up` as root.
    pub fn development() -> Self {
        Self { control: 58_000, muzzle: 57_999, agents: 58_001..=58_999 }
    }

    /// Slice `index` of 0 to 98, for demonstrations and tests that must not meet another launcher.
    /// `None` beyond that.
    pub fn slice(index: u32) -> Option<Self> {
        if index >= SLICES {
            return None;
        }
        let base = SLICE_BASE + index * SLICE_SIZE;
        Some(Self { control: base, muzzle: base + 1, agents: base + 2..=base + SLICE_SIZE - 1 })
    }

    /// Whether `id` belongs to this range in any role.
    pub fn contains(&self, id: u32) -> bool {
        id == self.control || id == self.muzzle || self.agents.contains(&id)
    }

    /// Every id of the range.
    pub fn all(&self) -> impl Iterator<Item = u32> + '_ {
        [self.control, self.muzzle].into_iter().chain(self.agents.clone())
    }
}

/// Why uids cannot be used.
#[derive(Debug, Error)]
pub enum UidError {
    /// An account or group of the machine has this id.
    #[error(
        "{kind} {id} belongs to {name:?} on this machine; Sentinel keeps its processes apart by ids \
         that nobody has, so give {name:?} another id or remove it"
    )]
    Known {
        /// `uid` or `gid`.
        kind: &'static str,
        /// The id.
        id: u32,
        /// The account or group.
        name: String,
    },
    /// The name service could not say.
    #[error("could not ask the name service about {kind} {id}: {errno}")]
    Lookup {
        /// `uid` or `gid`.
        kind: &'static str,
        /// The id.
        id: u32,
        /// What it said.
        errno: Errno,
    },
    /// Another account may become these ids in a user namespace.
    #[error(
        "{path}: line {line} gives ids {first} to {last} to {owner:?}, which include Sentinel's {id}; \
         change that line"
    )]
    Delegated {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Who holds the ids.
        owner: String,
        /// First id of the line.
        first: u32,
        /// Last id of the line.
        last: u32,
        /// The id of ours.
        id: u32,
    },
    /// A file that delegates ids could not be read.
    #[error("could not read {path}")]
    Delegations {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another launcher works with them.
    #[error(
        "another launcher ({holder}) works with the uids from {control}; stop it, for two would give \
         one uid to two agents"
    )]
    InUse {
        /// The control plane's uid.
        control: u32,
        /// The other launcher.
        holder: String,
    },
    /// A lock could not be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Every slice is taken.
    #[error(
        "all {SLICES} slices of uids are in use; end a demonstration or test run (locks are in \
         {RUNTIME}/slices)"
    )]
    NoFreeSlice,
}

/// A slice of uids held by this process until the value is dropped.
#[derive(Debug)]
pub struct SliceLease {
    /// Which one.
    pub index: u32,
    /// Its uids.
    pub uids: UidRange,
    _lock: Lock,
}

/// Takes the first slice that nobody holds and whose ids the name service does not know. As root.
pub fn lease_slice() -> Result<SliceLease, UidError> {
    let directory = Path::new(RUNTIME).join("slices");
    for index in 0..SLICES {
        let Some(uids) = UidRange::slice(index) else { break };
        let lock = match Lock::acquire_in(&directory, &index.to_string()) {
            Ok(lock) => lock,
            Err(LockError::Held { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        if uids.all().all(|id| refuse_known(id).is_ok()) {
            return Ok(SliceLease { index, uids, _lock: lock });
        }
    }
    Err(UidError::NoFreeSlice)
}

/// Refuses a range in which control plane or Muzzle would have an id of the machine's, or of which
/// another account may become a part.
pub(crate) fn check(uids: &UidRange) -> Result<(), UidError> {
    for id in [uids.control, uids.muzzle] {
        refuse_known(id)?;
    }
    for path in ["/etc/subuid", "/etc/subgid"] {
        refuse_delegated(uids, Path::new(path))?;
    }
    Ok(())
}

/// Takes a range for the life of a launcher. Two launchers with different state directories would
/// otherwise give one uid to two agents.
pub(crate) fn claim(uids: &UidRange) -> Result<Lock, UidError> {
    let directory = Path::new(RUNTIME).join("uids");
    Lock::acquire_in(&directory, &uids.control.to_string()).map_err(|error| match error {
        LockError::Held { holder, .. } => {
            UidError::InUse { control: uids.control, holder: crate::lock::describe(holder) }
        }
        other @ (LockError::NotOurs { .. }
        | LockError::Failed { .. }
        | LockError::Write { .. }
        | LockError::Directory(_)) => UidError::Lock(other),
    })
}

/// Refuses an id that the name service knows as a user or as a group.
pub(crate) fn refuse_known(id: u32) -> Result<(), UidError> {
    let user = known("uid", id, User::from_uid(Uid::from_raw(id)))?.map(|user| user.name);
    let group = known("gid", id, Group::from_gid(Gid::from_raw(id)))?.map(|group| group.name);
    match (user, group) {
        (Some(name), _) => Err(UidError::Known { kind: "uid", id, name }),
        (None, Some(name)) => Err(UidError::Known { kind: "gid", id, name }),
        (None, None) => Ok(()),
    }
}

/// getpwuid_r(3) says that an entry which does not exist may also be reported by these.
fn known<Entry>(
    kind: &'static str,
    id: u32,
    answer: Result<Option<Entry>, Errno>,
) -> Result<Option<Entry>, UidError> {
    match answer {
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        Err(errno) => Err(UidError::Lookup { kind, id, errno }),
        Ok(entry) => Ok(entry),
    }
}

fn refuse_delegated(uids: &UidRange, path: &Path) -> Result<(), UidError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(UidError::Delegations { path: path.to_owned(), source }),
    };
    match find_delegation(uids, &text) {
        None => Ok(()),
        Some(Delegation { line, owner, first, last, id }) => {
            Err(UidError::Delegated { path: path.to_owned(), line, owner, first, last, id })
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Delegation {
    line: usize,
    owner: String,
    first: u32,
    last: u32,
    id: u32,
}

/// Finds the first line `owner:first:count` (subuid(5)) that covers one of our ids. Lines that are
/// not of that form delegate nothing.
fn find_delegation(uids: &UidRange, text: &str) -> Option<Delegation> {
    text.lines().enumerate().find_map(|(index, line)| {
        let mut fields = line.trim().splitn(3, ':');
        let owner = fields.next()?;
        let first: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        let last = first.saturating_add(count.checked_sub(1)?);
        let id = uids.all().find(|id| (first..=last).contains(id))?;
        Some(Delegation { line: index + 1, owner: owner.to_owned(), first, last, id })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranges_never_overlap() {
        let mut seen = BTreeSet::new();
        let ranges = (0..SLICES).map(|index| UidRange::slice(index).unwrap());
        for range in ranges.chain([UidRange::development()]) {
            for id in range.all() {
                assert!(range.contains(id));
                assert!(seen.insert(id), "{id} twice");
            }
        }
        assert_eq!(UidRange::slice(SLICES), None);
    }

    #[test]
    fn an_id_of_the_machine_is_refused_with_its_name() {
        let error = refuse_known(0).unwrap_err().to_string();
        assert!(error.starts_with("uid 0 belongs to \"root\""), "{error}");
        assert!(refuse_known(57_995).is_ok());
    }

    #[test]
    fn a_delegation_that_touches_the_range_is_found() {
        let uids = UidRange::development();
        for (text, expected) in [
            ("alice:100000:65536\n", None),
            ("alice:57998:1\n", None),
            ("alice:59000:65536\n", None),
            ("alice:58000:0\n", None),
            ("", None),
            ("garbage\n:::\nalice:x:y\n", None),
            ("bob:100000:65536\nalice:50000:10000", Some((2, "alice", 57_999))),
            ("1000:58500:1", Some((1, "1000", 58_500))),
            ("alice:0:4294967295", Some((1, "alice", 58_000))),
        ] {
            let found = find_delegation(&uids, text);
            assert_eq!(
                found.as_ref().map(|found| (found.line, found.owner.as_str())),
                expected.map(|(line, owner, _)| (line, owner)),
                "{text:?}"
            );
            assert_eq!(found.is_some(), expected.is_some());
            if let (Some(found), Some((_, _, id))) = (found, expected) {
                assert!(uids.contains(found.id));
                assert!((found.first..=found.last).contains(&id));
            }
        }
    }
}
