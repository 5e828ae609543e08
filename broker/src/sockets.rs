//! The two listening sockets. The launcher binds them and keeps them open, so that a restart of
//! their owner loses no connection attempt.
//!
//! The directory belongs to the launcher's user and nobody else may write it; a lock in it says
//! that no other launcher uses it, which is what makes removing a stale socket safe.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::beneath;
use crate::config::LauncherError;
use crate::limits::SOCKET_PATH_BYTES;
use crate::lock::Lock;
use crate::plan::Identity;

/// The socket people's clients connect to.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The socket through which the control plane configures Muzzle.
pub const MUZZLE_SOCKET: &str = "muzzle.sock";

const LOCK: &str = "launcher.lock";
const BACKLOG: i32 = 128;

/// Both sockets, removed when dropped.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) control: OwnedFd,
    pub(crate) muzzle: OwnedFd,
    directory: OwnedFd,
    _lock: Lock,
}

impl Sockets {
    /// Binds both. With an identity for the control plane the launcher is root: the control socket
    /// is root's, the admin socket the control plane's.
    pub(crate) fn bind(path: &Path, control: Option<Identity>) -> Result<Self, LauncherError> {
        let mode = if control.is_some() { 0o755 } else { 0o700 };
        let directory = beneath::ensure_private_path(path, Mode::from_raw_mode(mode))?;
        let lock = Lock::acquire(directory.as_fd(), LOCK, &path.join(LOCK))
            .map_err(LauncherError::of_lock(path))?;
        let control_mode = if control.is_some() { 0o660 } else { 0o600 };
        let place = Place { directory: directory.as_fd(), path };
        Ok(Self {
            control: place.listen(CONTROL_SOCKET, control_mode, None)?,
            muzzle: place.listen(MUZZLE_SOCKET, 0o600, control)?,
            directory,
            _lock: lock,
        })
    }

    /// Removes the control socket: nobody new gets in, who is connected stays.
    pub(crate) fn stop_accepting(&self) {
        remove(self.directory.as_fd(), CONTROL_SOCKET);
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        remove(self.directory.as_fd(), CONTROL_SOCKET);
        remove(self.directory.as_fd(), MUZZLE_SOCKET);
    }
}

/// A socket that cannot be removed is removed by the next launcher, or named in its error.
fn remove(directory: BorrowedFd<'_>, name: &str) {
    rustix::fs::unlinkat(directory, name, AtFlags::empty()).unwrap_or_default();
}

struct Place<'a> {
    directory: BorrowedFd<'a>,
    path: &'a Path,
}

impl Place<'_> {
    fn listen(
        &self,
        name: &str,
        mode: u32,
        owner: Option<Identity>,
    ) -> Result<OwnedFd, LauncherError> {
        let path = self.path.join(name);
        let failed = |operation| {
            let path = path.clone();
            move |source| LauncherError::Socket { operation, path, source }
        };
        if path.as_os_str().len() > SOCKET_PATH_BYTES {
            return Err(LauncherError::SocketPath { path, limit: SOCKET_PATH_BYTES });
        }
        self.remove_stale(name).map_err(failed("replace"))?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(failed("create"))?;
        // Through the descriptor: the directory that was examined is the one that is bound in.
        let through = PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        let address = SocketAddrUnix::new(through.join(name)).map_err(failed("name"))?;
        // Nobody connects before owner and mode are right.
        let umask = rustix::process::umask(Mode::from_raw_mode(0o777));
        let bound = rustix::net::bind(&socket, &address);
        rustix::process::umask(umask);
        bound.map_err(failed("bind"))?;
        if let Some(Identity { uid, gid }) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(self.directory, name, Some(uid), Some(gid), flags)
                .map_err(failed("change the owner of"))?;
        }
        rustix::fs::chmodat(self.directory, name, Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(failed("change the mode of"))?;
        rustix::net::listen(&socket, BACKLOG).map_err(failed("listen on"))?;
        Ok(socket)
    }

    fn remove_stale(&self, name: &str) -> Result<(), Errno> {
        match rustix::fs::statat(self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Socket => {
                rustix::fs::unlinkat(self.directory, name, AtFlags::empty())
            }
            Ok(_) => Err(Errno::NOTSOCK),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_sockets_listen_for_their_owner_and_go_with_the_launcher() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("sockets");
        let sockets = Sockets::bind(&path, None).unwrap();
        for name in [CONTROL_SOCKET, MUZZLE_SOCKET] {
            let metadata = std::fs::symlink_metadata(path.join(name)).unwrap();
            assert!(metadata.file_type().is_socket());
            assert_eq!(metadata.mode() & 0o7777, 0o600);
            UnixStream::connect(path.join(name)).unwrap();
        }
        sockets.stop_accepting();
        assert!(!path.join(CONTROL_SOCKET).exists());
        assert!(path.join(MUZZLE_SOCKET).exists());
        drop(sockets);
        assert!(!path.join(MUZZLE_SOCKET).exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_but_never_a_live_one_nor_a_file() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("sockets");
        let first = Sockets::bind(&path, None).unwrap();
        let second = Sockets::bind(&path, None);
        assert!(matches!(second, Err(LauncherError::AlreadyRunning { .. })));
        UnixStream::connect(path.join(CONTROL_SOCKET)).unwrap();
        drop(first);
        // As a killed launcher leaves it.
        drop(std::os::unix::net::UnixListener::bind(path.join(CONTROL_SOCKET)).unwrap());
        assert!(UnixStream::connect(path.join(CONTROL_SOCKET)).is_err());
        let third = Sockets::bind(&path, None).unwrap();
        UnixStream::connect(path.join(CONTROL_SOCKET)).unwrap();
        drop(third);
        std::fs::File::create(path.join(CONTROL_SOCKET)).unwrap();
        let refused = Sockets::bind(&path, None);
        assert!(matches!(refused, Err(LauncherError::Socket { source: Errno::NOTSOCK, .. })));
    }

    #[test]
    fn a_path_that_fits_no_address_is_refused_by_name() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("x".repeat(120));
        let refused = Sockets::bind(&path, None).unwrap_err().to_string();
        assert!(refused.contains("choose a shorter directory"), "{refused}");
    }
}
