//! Setting ACL entries on directories through their descriptors. The encoding
//! is the broker's; here is only the read-modify-write of the attribute.

use std::io;
use std::os::fd::BorrowedFd;

use broker::acl::{ACCESS_ATTRIBUTE, Acl, DEFAULT_ATTRIBUTE, Permissions};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, fstat};
use rustix::io::Errno;

pub(crate) const SEARCH: u32 = 1;
pub(crate) const READ: u32 = 4;
pub(crate) const ALL: u32 = 7;

/// One account's permissions, as mode bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) uid: u32,
    pub(crate) bits: u32,
}

/// Adds `entry` to the access ACL of a directory, keeping what is there.
pub(crate) fn admit(dir: BorrowedFd<'_>, entry: Entry) -> io::Result<()> {
    let acl = match read(dir)? {
        Some(acl) => acl,
        None => Acl::from_mode(fstat(dir)?.st_mode),
    };
    if acl.users.get(&entry.uid) == Some(&Permissions::from_bits(entry.bits)) {
        return Ok(());
    }
    let acl = acl.with_user(entry.uid, Permissions::from_bits(entry.bits));
    Ok(fsetxattr(dir, ACCESS_ATTRIBUTE, &acl.encode(), XattrFlags::empty())?)
}

/// Sets what is created in a directory to be open to its owner and `entries`.
pub(crate) fn inherit(dir: BorrowedFd<'_>, entries: &[Entry]) -> io::Result<()> {
    let acl = entries.iter().fold(Acl::from_mode(0o700), |acl, entry| {
        acl.with_user(entry.uid, Permissions::from_bits(entry.bits))
    });
    Ok(fsetxattr(dir, DEFAULT_ATTRIBUTE, &acl.encode(), XattrFlags::empty())?)
}

fn read(dir: BorrowedFd<'_>) -> io::Result<Option<Acl>> {
    let mut buffer = vec![0u8; 64 * 1024];
    match fgetxattr(dir, ACCESS_ATTRIBUTE, &mut buffer) {
        Ok(length) => {
            buffer.truncate(length);
            Acl::decode(&buffer).map(Some).map_err(io::Error::other)
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
