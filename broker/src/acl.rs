//! POSIX access control lists as the kernel keeps them in extended attributes.
//!
//! Encodes and decodes `system.posix_acl_access` and `system.posix_acl_default`: a little-endian
//! `u32` version (2), then entries of tag `u16`, permissions `u16` and id `u32`, sorted by tag and
//! id (`include/uapi/linux/posix_acl_xattr.h`). Pure: reading and writing the attribute is done
//! elsewhere, on a descriptor.
//!
//! The mask is never stored here. It bounds every entry except owner and others, so [`Acl::decode`]
//! applies it to the entries it bounds and [`Acl::encode`] computes it as their union: a grant never
//! widens what anybody else could do.

use std::collections::BTreeMap;

use thiserror::Error;

/// Name of the attribute that decides access.
pub const ACCESS_ATTRIBUTE: &str = "system.posix_acl_access";

/// Name of the attribute a directory hands on to what is created in it.
pub const DEFAULT_ATTRIBUTE: &str = "system.posix_acl_default";

const VERSION: u32 = 2;
const UNDEFINED_ID: u32 = u32::MAX;

const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP: u16 = 0x04;
const TAG_NAMED_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// Read, write and execute (for a directory: search) in the three lowest bits, as in a mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// `---`
    pub const NONE: Self = Self(0);
    /// `--x`
    pub const EXECUTE: Self = Self(1);
    /// `r-x`
    pub const READ_EXECUTE: Self = Self(5);
    /// `rw-`
    pub const READ_WRITE: Self = Self(6);
    /// `rwx`
    pub const ALL: Self = Self(7);

    /// The three lowest bits of `bits`; the others are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self((bits & 0o7) as u8)
    }

    /// The bits as in a mode: 4 read, 2 write, 1 execute.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Allowed by either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Allowed by both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Why bytes are not a list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AclError {
    /// Not a header and whole entries.
    #[error("access control list of {length} bytes is not a header and whole entries")]
    Length {
        /// Bytes given.
        length: usize,
    },
    /// A version this module does not know.
    #[error("access control list has version {version}, known is {VERSION}")]
    Version {
        /// The version found.
        version: u32,
    },
    /// An entry that the format does not have, or has a second time.
    #[error("access control list entry {index} with tag {tag:#x} is unknown or repeated")]
    Entry {
        /// Position of the entry.
        index: usize,
        /// Its tag.
        tag: u16,
    },
    /// Owner, group or others are missing, or named entries have no mask.
    #[error("access control list lacks its {missing} entry")]
    Missing {
        /// Which entry.
        missing: &'static str,
    },
}

/// An access control list without its mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// The owner of the file.
    pub owner: Permissions,
    /// The file's group.
    pub group: Permissions,
    /// Everybody else.
    pub other: Permissions,
    /// Named users by uid.
    pub users: BTreeMap<u32, Permissions>,
    /// Named groups by gid.
    pub groups: BTreeMap<u32, Permissions>,
}

impl Acl {
    /// The list a file without one has: what its mode says.
    pub fn from_mode(mode: u32) -> Self {
        Self {
            owner: Permissions::from_bits(mode >> 6),
            group: Permissions::from_bits(mode >> 3),
            other: Permissions::from_bits(mode),
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Sets what the user `uid` may do, replacing an entry it had.
    #[must_use]
    pub fn with_user(mut self, uid: u32, permissions: Permissions) -> Self {
        self.users.insert(uid, permissions);
        self
    }

    /// Sets what the group `gid` may do, replacing an entry it had.
    #[must_use]
    pub fn with_group(mut self, gid: u32, permissions: Permissions) -> Self {
        self.groups.insert(gid, permissions);
        self
    }

    /// The mask: what any named user, the group or a named group may do. A list without named
    /// entries has none.
    pub fn mask(&self) -> Option<Permissions> {
        if self.users.is_empty() && self.groups.is_empty() {
            return None;
        }
        let named = self.users.values().chain(self.groups.values());
        Some(named.fold(self.group, |mask, permissions| mask.union(*permissions)))
    }

    /// The attribute's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        push_entry(&mut bytes, TAG_OWNER, self.owner, UNDEFINED_ID);
        for (uid, permissions) in &self.users {
            push_entry(&mut bytes, TAG_USER, *permissions, *uid);
        }
        push_entry(&mut bytes, TAG_GROUP, self.group, UNDEFINED_ID);
        for (gid, permissions) in &self.groups {
            push_entry(&mut bytes, TAG_NAMED_GROUP, *permissions, *gid);
        }
        if let Some(mask) = self.mask() {
            push_entry(&mut bytes, TAG_MASK, mask, UNDEFINED_ID);
        }
        push_entry(&mut bytes, TAG_OTHER, self.other, UNDEFINED_ID);
        bytes
    }

    /// Parses the attribute's bytes and applies the mask to the entries it bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, AclError> {
        let (version, entries) =
            bytes.split_first_chunk::<4>().ok_or(AclError::Length { length: bytes.len() })?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(AclError::Version { version });
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(AclError::Length { length: bytes.len() });
        }
        let mut parts = Parts::default();
        for (index, entry) in entries.iter().enumerate() {
            parts.take(index, *entry)?;
        }
        parts.finish()
    }
}

fn push_entry(bytes: &mut Vec<u8>, tag: u16, permissions: Permissions, id: u32) {
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&u16::from(permissions.bits()).to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
}

#[derive(Default)]
struct Parts {
    owner: Option<Permissions>,
    group: Option<Permissions>,
    mask: Option<Permissions>,
    other: Option<Permissions>,
    users: BTreeMap<u32, Permissions>,
    groups: BTreeMap<u32, Permissions>,
}

impl Parts {
    fn take(&mut self, index: usize, entry: [u8; 8]) -> Result<(), AclError> {
        let [tag_low, tag_high, low, high, id @ ..] = entry;
        let tag = u16::from_le_bytes([tag_low, tag_high]);
        let permissions = Permissions::from_bits(u32::from(u16::from_le_bytes([low, high])));
        let id = u32::from_le_bytes(id);
        let replaced = match tag {
            TAG_OWNER => self.owner.replace(permissions),
            TAG_USER => self.users.insert(id, permissions),
            TAG_GROUP => self.group.replace(permissions),
            TAG_NAMED_GROUP => self.groups.insert(id, permissions),
            TAG_MASK => self.mask.replace(permissions),
            TAG_OTHER => self.other.replace(permissions),
            _ => return Err(AclError::Entry { index, tag }),
        };
        if replaced.is_some() {
            return Err(AclError::Entry { index, tag });
        }
        Ok(())
    }

    fn finish(self) -> Result<Acl, AclError> {
        let named = !(self.users.is_empty() && self.groups.is_empty());
        if named && self.mask.is_none() {
            return Err(AclError::Missing { missing: "mask" });
        }
        let mask = self.mask.unwrap_or(Permissions::ALL);
        let bounded = |entries: BTreeMap<u32, Permissions>| {
            entries
                .into_iter()
                .map(|(id, permissions)| (id, permissions.intersection(mask)))
                .collect()
        };
        Ok(Acl {
            owner: self.owner.ok_or(AclError::Missing { missing: "owner" })?,
            group: self.group.ok_or(AclError::Missing { missing: "group" })?.intersection(mask),
            other: self.other.ok_or(AclError::Missing { missing: "other" })?,
            users: bounded(self.users),
            groups: bounded(self.groups),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `setfacl -m u:58000:rwx,u:58001:r-x` leaves on a directory of mode 0770, read with
    /// `getfattr -e hex -n system.posix_acl_access`.
    const RECORDED: &str = "0200000001000700ffffffff0200070090e20000020005\
                            0091e2000004000700ffffffff10000700ffffffff20000000ffffffff";

    fn recorded() -> Vec<u8> {
        let digits: Vec<u8> = RECORDED.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn example() -> Acl {
        Acl::from_mode(0o770)
            .with_user(58_001, Permissions::READ_EXECUTE)
            .with_user(58_000, Permissions::ALL)
    }

    #[test]
    fn encodes_what_setfacl_writes() {
        assert_eq!(example().encode(), recorded());
        assert_eq!(Acl::decode(&recorded()).unwrap(), example());
    }

    #[test]
    fn a_list_without_named_entries_has_no_mask() {
        assert_eq!(Acl::from_mode(0o640).mask(), None);
        assert_eq!(Acl::from_mode(0o640).encode().len(), 4 + 3 * 8);
    }

    #[test]
    fn a_narrow_mask_bounds_the_entries_so_that_a_grant_widens_nobody_else() {
        let mut bytes = example().encode();
        // chmod 0700 on a file with a list sets the mask to nothing.
        let mask_entry = 4 + 4 * 8;
        bytes[mask_entry + 2] = 0;
        let acl = Acl::decode(&bytes).unwrap().with_user(58_002, Permissions::READ_WRITE);
        assert_eq!(acl.group, Permissions::NONE);
        assert_eq!(acl.users[&58_000], Permissions::NONE);
        assert_eq!(acl.users[&58_001], Permissions::NONE);
        assert_eq!(acl.mask(), Some(Permissions::READ_WRITE));
    }

    #[test]
    fn refuses_bytes_that_are_no_list() {
        let good = example().encode();
        let mut version = good.clone();
        version[0] = 3;
        let mut tag = good.clone();
        tag[4] = 0x40;
        let repeated = [good.as_slice(), &good[4..12]].concat();
        let without_mask: Vec<u8> = [&good[..36], &good[44..]].concat();
        for bytes in
            [&[][..], &good[..3], &good[..good.len() - 1], &good[..4], &version, &tag, &repeated]
        {
            assert!(Acl::decode(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(Acl::decode(&without_mask), Err(AclError::Missing { missing: "mask" }));
    }

    fn permissions() -> impl Strategy<Value = Permissions> {
        (0_u32..8).prop_map(Permissions::from_bits)
    }

    fn named() -> impl Strategy<Value = BTreeMap<u32, Permissions>> {
        proptest::collection::btree_map(0..u32::MAX, permissions(), 0..6)
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(
            owner in permissions(), group in permissions(), other in permissions(),
            users in named(), groups in named(),
        ) {
            let acl = Acl { owner, group, other, users, groups };
            prop_assert_eq!(Acl::decode(&acl.encode()).unwrap(), acl);
        }

        #[test]
        fn any_bytes_are_a_list_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..80)
        ) {
            if let Ok(acl) = Acl::decode(&bytes) {
                prop_assert_eq!(Acl::decode(&acl.encode()).unwrap(), acl);
            }
        }
    }
}
