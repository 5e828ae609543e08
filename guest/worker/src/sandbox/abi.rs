//! Which Landlock the running kernel has, and what each ABI guarantees.
//!
//! Probed by system call: securityfs, where the same is written, may be unmounted.

use serde::{Deserialize, Serialize};

use super::SandboxError;
use crate::sys::confine::landlock_abi;

/// A Landlock ABI. 0 stands for a kernel without Landlock; nothing above [`Abi::NEWEST_USED`] changes what this crate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Abi(pub u32);

impl Abi {
    /// No Landlock.
    pub const NONE: Self = Self(0);
    /// Rename and link between directories.
    pub const REFER: Self = Self(2);
    /// Truncation.
    pub const TRUNCATE: Self = Self(3);
    /// TCP ports.
    pub const TCP: Self = Self(4);
    /// ioctl on devices.
    pub const IOCTL_DEV: Self = Self(5);
    /// Signals and abstract unix sockets.
    pub const SCOPES: Self = Self(6);
    /// The newest ABI whose additions this crate uses.
    pub const NEWEST_USED: Self = Self::SCOPES;
    /// The oldest ABI a production deployment accepts.
    pub const PRODUCTION: Self = Self::REFER;
}

/// What the probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landlock {
    /// The kernel offers this ABI (1 or more).
    Available(Abi),
    /// `ENOSYS`: the kernel was built without Landlock, or is older than 5.13.
    NotBuilt,
    /// `EOPNOTSUPP`: built in, switched off at boot.
    Disabled,
}

impl Landlock {
    /// The ABI to build for; [`Abi::NONE`] without Landlock.
    pub fn abi(self) -> Abi {
        match self {
            Self::Available(abi) => abi,
            Self::NotBuilt | Self::Disabled => Abi::NONE,
        }
    }

    /// The same kernel as if it offered no more than `most`.
    #[must_use]
    pub fn at_most(self, most: Abi) -> Self {
        match self {
            Self::Available(_) if most == Abi::NONE => Self::NotBuilt,
            Self::Available(abi) => Self::Available(abi.min(most)),
            Self::NotBuilt | Self::Disabled => self,
        }
    }

    /// Reads the answer of `landlock_create_ruleset(NULL, 0, VERSION)`.
    ///
    /// # Errors
    /// [`SandboxError::Probe`] for any errno that does not say whether the kernel has Landlock, for instance the EPERM of a
    /// container's own filter.
    pub fn from_answer(answer: Result<u32, i32>) -> Result<Self, SandboxError> {
        match answer {
            Ok(0) | Err(libc::ENOSYS) => Ok(Self::NotBuilt),
            Ok(abi) => Ok(Self::Available(Abi(abi))),
            Err(libc::EOPNOTSUPP) => Ok(Self::Disabled),
            Err(errno) => Err(SandboxError::Probe { errno }),
        }
    }
}

/// Probes the running kernel and says why there is no Landlock when there is none.
///
/// # Errors
/// [`SandboxError::Probe`] when the answer says nothing about Landlock.
pub fn probe_landlock() -> Result<Landlock, SandboxError> {
    Landlock::from_answer(landlock_abi())
}

/// The ABI of the running kernel; `Ok(Abi(0))` is a kernel that says it has none, an error is a probe that could not tell. A caller
/// that requires Landlock refuses both.
///
/// # Errors
/// [`SandboxError::Probe`] when the answer says nothing about Landlock.
pub fn probe_abi() -> Result<Abi, SandboxError> {
    Ok(probe_landlock()?.abi())
}

/// One row of the table "ABI -> guarantee -> substitute".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guarantee {
    pub(crate) since: Abi,
    pub(crate) kernel: &'static str,
    pub(crate) seen_on: &'static str,
    pub(crate) what: &'static str,
    pub(crate) consequence: &'static str,
    pub(crate) substitute: &'static str,
    pub(crate) remedy: &'static str,
}

/// What each ABI adds, what its absence means, and what stands in for it.
pub(crate) const GUARANTEES: [Guarantee; 6] = [
    Guarantee {
        since: Abi(1),
        kernel: "5.13",
        seen_on: "Ubuntu 22.04 (5.15)",
        what: "file access beneath granted paths only",
        consequence: "a tool can read and write every file its account can, the run directory and other tools' files included",
        substitute: "none: a production deployment refuses to start a run",
        remedy: "boot a kernel with Landlock: CONFIG_SECURITY_LANDLOCK=y and `landlock` in the `lsm=` list",
    },
    Guarantee {
        since: Abi::REFER,
        kernel: "5.19",
        seen_on: "Debian 12 (6.1)",
        what: "rename and link between directories",
        consequence: "every rename or link from one directory to another fails with \"cross-device link\" inside the sandbox",
        substitute: "none: development only",
        remedy: "run Linux 5.19 or newer (Debian 12, Ubuntu 24.04)",
    },
    Guarantee {
        since: Abi::TRUNCATE,
        kernel: "6.2",
        seen_on: "Fedora 38",
        what: "truncation as a right of its own",
        consequence: "a file that may be read but not written could be emptied by truncate(2) or O_RDONLY|O_TRUNC",
        substitute: "the system call filter refuses truncate(2) and opening for reading with O_TRUNC; openat2(2) answers ENOSYS",
        remedy: "run Linux 6.2 or newer",
    },
    Guarantee {
        since: Abi::TCP,
        kernel: "6.7",
        seen_on: "Ubuntu 24.04 (6.8)",
        what: "TCP by port",
        consequence: "a tool with a network grant, and the worker, can dial any TCP port that the host's own rules leave open",
        substitute: "without a network grant a tool gets no internet socket at all; with one, Leash decides by account",
        remedy: "run Linux 6.7 or newer, or bind the account to Leash",
    },
    Guarantee {
        since: Abi::IOCTL_DEV,
        kernel: "6.10",
        seen_on: "Fedora 41",
        what: "ioctl on device files",
        consequence: "a device that may be opened takes every ioctl; only null, zero, full, random and urandom may be opened",
        substitute: "the list of devices",
        remedy: "run Linux 6.10 or newer",
    },
    Guarantee {
        since: Abi::SCOPES,
        kernel: "6.12",
        seen_on: "Debian 13 (6.12)",
        what: "signals and abstract unix sockets end at the sandbox",
        consequence: "a tool can signal, and so end, its own worker, tool host and every other process of its account",
        substitute: "abstract sockets: the filter refuses unix sockets. Signals: none; an account of its own per agent limits the reach, \
                     a killed worker resumes from its log",
        remedy: "run Linux 6.12 or newer (Debian 13)",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_absence_of_landlock_from_a_probe_that_could_not_tell() {
        assert_eq!(Landlock::from_answer(Ok(7)), Ok(Landlock::Available(Abi(7))));
        assert_eq!(Landlock::from_answer(Err(libc::ENOSYS)), Ok(Landlock::NotBuilt));
        assert_eq!(Landlock::from_answer(Err(libc::EOPNOTSUPP)), Ok(Landlock::Disabled));
        assert_eq!(
            Landlock::from_answer(Err(libc::EPERM)),
            Err(SandboxError::Probe { errno: libc::EPERM })
        );
    }

    #[test]
    fn every_abi_up_to_the_newest_used_has_its_row() {
        let rows: Vec<u32> = GUARANTEES.iter().map(|row| row.since.0).collect();
        let expected: Vec<u32> = (1..=Abi::NEWEST_USED.0).collect();
        assert_eq!(rows, expected);
    }
}
