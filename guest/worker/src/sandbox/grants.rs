//! What callers grant, and what they are told was applied.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::abi::{Abi, Landlock};

/// Paths in the base layer, which the worker and the tool host both carry: everything that either may ever need. A tool child can
/// reach nothing outside it, whatever it is granted.
///
/// System directories (`/usr`, `/etc`, `/proc`, ...) and `/tmp` are always in it; see
/// [`tables::render_grants_markdown`](super::tables::render_grants_markdown).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseLayer {
    /// The run directory. Its control half is readable, its `worker/` writable.
    pub run_dir: PathBuf,
    /// The agent's workspace: everything, executing included.
    pub workspace: PathBuf,
    /// Further places to read and execute from: toolchains outside the system directories.
    pub read: Vec<PathBuf>,
    /// Further places to write: the memory bank, the place of private temporary directories when it is not below `/tmp`.
    pub write: Vec<PathBuf>,
}

/// What one tool child may touch. Its layer is always inside the base layer and the system directories always belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChildGrants {
    /// Read, write and execute.
    #[serde(with = "lossless")]
    pub workspace: PathBuf,
    /// The place in which the tool host keeps a private temporary directory: one per tool host, mode 0700, emptied after each call,
    /// removed at the end. The child gets that directory, not the place.
    #[serde(with = "lossless")]
    pub tmp: PathBuf,
    /// Read and execute: toolchains outside the system directories.
    #[serde(with = "lossless_list")]
    pub read: Vec<PathBuf>,
    /// TCP ports the child may connect to, at any address. Without `network` they grant nothing. Listening is never granted.
    pub tcp_ports: Vec<u16>,
    /// Whether the child may make internet sockets at all. With it UDP goes wherever Leash lets it.
    pub network: bool,
    /// Whether the child may make unix sockets. Loud: one connection to a session manager, tmux or a container daemon leaves any
    /// file sandbox.
    pub unix_sockets: bool,
    /// Whether the child may keep named objects in `/dev/shm` (Python's `multiprocessing`). It cannot list the directory.
    pub shared_memory: bool,
}

impl ChildGrants {
    /// A workspace and a private temporary directory; no network, no sockets, no shared memory.
    pub fn new(workspace: PathBuf, tmp: PathBuf) -> Self {
        Self {
            workspace,
            tmp,
            read: Vec::new(),
            tcp_ports: Vec::new(),
            network: false,
            unix_sockets: false,
            shared_memory: false,
        }
    }
}

/// Something that was asked for and is not in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The guarantee or the path.
    pub what: String,
    /// What that means for this run.
    pub consequence: String,
    /// What a person can do about it.
    pub remedy: String,
}

/// What was put in place. A field is true only when the kernel took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The ABI the layer was built for; 0 when there is no Landlock.
    pub abi: Abi,
    /// Files are limited to the granted paths.
    pub fs: bool,
    /// Truncation is limited with them, by Landlock or below ABI 3 by the system call filter.
    pub truncate: bool,
    /// TCP is limited to the granted ports.
    pub tcp: bool,
    /// Signals and abstract unix sockets end at the sandbox.
    pub scopes: bool,
    /// Entries of the system call table in force.
    pub syscall_rules: usize,
    /// What is not in place, each said once.
    pub missing: Vec<Missing>,
}

impl Applied {
    /// Nothing but the reason why: for a kernel without Landlock.
    pub(crate) fn nothing(landlock: Landlock) -> Self {
        Self {
            abi: landlock.abi(),
            fs: false,
            truncate: false,
            tcp: false,
            scopes: false,
            syscall_rules: 0,
            missing: Vec::new(),
        }
    }
}

/// Paths as bytes: a path need not be UTF-8.
pub(crate) mod lossless {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        Ok(PathBuf::from(OsString::deserialize(deserializer)?))
    }
}

/// A list of paths as bytes.
pub(crate) mod lossless_list {
    use std::ffi::{OsStr, OsString};
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        paths: &[PathBuf],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| -> &OsStr { path.as_os_str() }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<OsString>::deserialize(deserializer)?.into_iter().map(PathBuf::from).collect())
    }
}
