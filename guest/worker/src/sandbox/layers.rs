//! The layers as data: which paths with which rights, which TCP ports, whether signals end here.
//!
//! Pure. Three layers exist. *Base* is carried by worker and tool host; it handles files only, so that the layers inside it may
//! differ about TCP and a worker can still signal its tool host. *Worker* goes inside it and allows TCP to one port. *Child* goes inside base too, one for each distinct set of grants.

use std::path::{Path, PathBuf};

use super::grants::{BaseLayer, ChildGrants};

/// Rights beneath a path. Every writable place has the same rights, or a rename between two of them would widen a file's rights and
/// be refused as a cross-device link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Read files and list directories.
    Read,
    /// That, and execute.
    ReadExecute,
    /// Read, execute, write, create, remove, rename and link; no device nodes and no sockets.
    Write,
    /// The same without execute, for the worker's half of the run directory.
    WriteData,
    /// Open for reading and writing, with ioctl.
    Device,
    /// Create, open and remove by name without listing.
    Unlisted,
}

/// Why a path is in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Part of every layer; systems differ in which of these exist, so an absent one is no news.
    System,
    /// Asked for by the caller; an absent one is reported.
    Granted,
}

/// Rights beneath one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathRule {
    pub(crate) path: PathBuf,
    pub(crate) rights: Rights,
    pub(crate) origin: Origin,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Files: only what the rules say; `None` leaves them to other layers.
    pub(crate) files: Option<Vec<PathRule>>,
    /// TCP ports to connect to; `None` leaves TCP to other layers. Where it is handled, listening is granted nowhere.
    pub(crate) tcp: Option<Vec<u16>>,
    /// Whether signals and abstract sockets end at this layer.
    pub(crate) scopes: bool,
}

/// A system path every layer contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SystemPath {
    pub(crate) path: &'static str,
    pub(crate) rights: Rights,
    pub(crate) reason: &'static str,
}

const fn system(path: &'static str, rights: Rights, reason: &'static str) -> SystemPath {
    SystemPath { path, rights, reason }
}

/// System paths of the base layer and of every child.
pub(crate) const SYSTEM: [SystemPath; 16] = [
    system("/usr", Rights::ReadExecute, "programs, libraries, headers"),
    system("/bin", Rights::ReadExecute, "programs, where it is no link to /usr"),
    system("/sbin", Rights::ReadExecute, "programs, where it is no link to /usr"),
    system("/lib", Rights::ReadExecute, "the dynamic loader, where it is no link to /usr"),
    system("/lib32", Rights::ReadExecute, "the same for 32-bit programs' files"),
    system("/lib64", Rights::ReadExecute, "the dynamic loader, where it is no link to /usr"),
    system("/libx32", Rights::ReadExecute, "the same"),
    system("/opt", Rights::ReadExecute, "add-on toolchains"),
    system(
        "/etc",
        Rights::ReadExecute,
        "ld.so.cache, passwd, certificates, alternatives; file modes still protect secrets",
    ),
    system(
        "/proc",
        Rights::Read,
        "self, cpuinfo, meminfo; other processes' secrets need ptrace rights that end at the sandbox",
    ),
    system("/sys/devices/system", Rights::Read, "how many processors there are"),
    system("/dev/null", Rights::Device, ""),
    system("/dev/zero", Rights::Device, ""),
    system("/dev/full", Rights::Device, ""),
    system("/dev/random", Rights::Device, ""),
    system("/dev/urandom", Rights::Device, ""),
];

/// Where `/etc/resolv.conf` leads on systems with a resolver service; granted with the network.
pub(crate) const RESOLVER: [SystemPath; 2] = [
    system(
        "/run/systemd/resolve",
        Rights::Read,
        "the resolver's configuration, with a network grant",
    ),
    system("/run/resolvconf", Rights::Read, "the same, by resolvconf"),
];

/// Named shared memory, granted apart.
pub(crate) const SHARED_MEMORY: SystemPath = system(
    "/dev/shm",
    Rights::Unlisted,
    "named semaphores and shared memory, by name only, with a shared-memory grant",
);

/// Temporary files of the worker, and the usual place of private temporary directories.
pub(crate) const TEMPORARY: SystemPath = system(
    "/tmp",
    Rights::Write,
    "base layer only: a tool child gets a private directory inside its place",
);

/// The part of the run directory that the worker writes.
pub(crate) const WORKER_HALF: &str = "worker";

fn of_system(path: SystemPath) -> PathRule {
    PathRule { path: PathBuf::from(path.path), rights: path.rights, origin: Origin::System }
}

fn granted(path: &Path, rights: Rights) -> PathRule {
    PathRule { path: path.to_owned(), rights, origin: Origin::Granted }
}

/// The base layer.
pub(crate) fn plan_base(base: &BaseLayer) -> Layer {
    let mut rules: Vec<PathRule> = SYSTEM.into_iter().chain(RESOLVER).map(of_system).collect();
    rules.extend([SHARED_MEMORY, TEMPORARY].map(of_system));
    rules.push(granted(&base.run_dir, Rights::Read));
    rules.push(granted(&base.run_dir.join(WORKER_HALF), Rights::WriteData));
    rules.push(granted(&base.workspace, Rights::Write));
    rules.extend(base.read.iter().map(|path| granted(path, Rights::ReadExecute)));
    rules.extend(base.write.iter().map(|path| granted(path, Rights::Write)));
    Layer { files: Some(rules), tcp: None, scopes: false }
}

/// The worker's own layer, inside the base.
pub(crate) fn plan_worker(muzzle_port: u16) -> Layer {
    Layer { files: None, tcp: Some(vec![muzzle_port]), scopes: false }
}

/// A tool child's layer, inside the base. Its private temporary directory and its own executable are added as descriptors when the
/// ruleset is built.
pub(crate) fn plan_child(grants: &ChildGrants) -> Layer {
    let mut rules: Vec<PathRule> = SYSTEM.into_iter().map(of_system).collect();
    if grants.network {
        rules.extend(RESOLVER.map(of_system));
    }
    if grants.shared_memory {
        rules.push(of_system(SHARED_MEMORY));
    }
    rules.push(granted(&grants.workspace, Rights::Write));
    rules.extend(grants.read.iter().map(|path| granted(path, Rights::ReadExecute)));
    let ports = if grants.network { grants.tcp_ports.clone() } else { Vec::new() };
    Layer { files: Some(rules), tcp: Some(ports), scopes: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(layer: &Layer) -> Vec<&Path> {
        layer.files.iter().flatten().map(|rule| rule.path.as_path()).collect()
    }

    fn grants() -> ChildGrants {
        ChildGrants::new(PathBuf::from("/work"), PathBuf::from("/tmp"))
    }

    #[test]
    fn a_child_is_granted_neither_the_run_directory_nor_the_place_of_temporary_directories() {
        let layer = plan_child(&grants());
        assert!(!paths(&layer).contains(&Path::new("/tmp")));
        assert!(!paths(&layer).contains(&Path::new("/dev/shm")));
        assert_eq!(paths(&layer).len(), SYSTEM.len() + 1);
    }

    #[test]
    fn ports_without_the_network_grant_nothing() {
        let layer = plan_child(&ChildGrants { tcp_ports: vec![443], ..grants() });
        assert_eq!(layer.tcp, Some(Vec::new()));
        let layer = plan_child(&ChildGrants { tcp_ports: vec![443], network: true, ..grants() });
        assert_eq!(layer.tcp, Some(vec![443]));
    }

    #[test]
    fn every_place_a_child_may_write_is_one_the_base_may_write_or_is_reported_there() {
        let base = plan_base(&BaseLayer {
            run_dir: PathBuf::from("/run-dir"),
            workspace: PathBuf::from("/work"),
            read: vec![PathBuf::from("/toolchain")],
            write: Vec::new(),
        });
        let child = plan_child(&ChildGrants {
            read: vec![PathBuf::from("/toolchain")],
            network: true,
            shared_memory: true,
            ..grants()
        });
        for path in paths(&child) {
            assert!(paths(&base).contains(&path), "{}", path.display());
        }
    }

    #[test]
    fn only_a_child_scopes_signals_and_the_base_leaves_tcp_alone() {
        let base = plan_base(&BaseLayer {
            run_dir: PathBuf::from("/run-dir"),
            workspace: PathBuf::from("/work"),
            read: Vec::new(),
            write: Vec::new(),
        });
        assert_eq!((base.tcp, base.scopes), (None, false));
        assert_eq!((plan_worker(8791).tcp, plan_worker(8791).scopes), (Some(vec![8791]), false));
        assert!(plan_child(&grants()).scopes);
    }
}
