//! Directory entries: decoding, the hash of a name, and lookup by name.

use std::hash::Hasher;

use sfs_core::format::{FileKind, ItemKind, Key, NAME_LEN_MAX};
use siphasher::sip::SipHasher13;

use crate::read::key_range::KeyRange;
use crate::read::overlay_tree::OverlayTree;

/// Maximum number of entries of a directory whose names have the same hash.
pub(crate) const COLLISIONS_MAX: u64 = 256;

/// Length in bytes of the prefix of an entry's value: inode number, kind.
const PREFIX_LEN: usize = 9;

/// Directory entry.
pub(crate) struct Dirent<'a> {
    /// Inode number of the entry.
    pub(crate) target: u64,
    pub(crate) kind: FileKind,
    pub(crate) name: &'a [u8],
}

impl<'a> Dirent<'a> {
    /// Decodes the value of an item.
    pub(crate) fn decode(value: &'a [u8]) -> Option<Self> {
        let (prefix, name) = value.split_at_checked(PREFIX_LEN)?;
        let (target, kind) = prefix.split_first_chunk::<8>()?;
        let kind = FileKind::decode(*kind.first()?)?;
        Some(Self { target: u64::from_le_bytes(*target), kind, name })
    }

    /// Returns the value of the entry's item.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.target.to_le_bytes(), &[self.kind as u8][..], self.name].concat()
    }
}

/// Returns SipHash-1-3 of `name`.
pub(crate) fn name_hash(hash_key: [u64; 2], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(hash_key[0], hash_key[1]);
    hasher.write(name);
    hasher.finish()
}

/// Returns the lowest cookie of an entry called `name`.
pub(crate) fn cookie(hash_key: [u64; 2], name: &[u8]) -> u64 {
    (name_hash(hash_key, name) >> 9).max(1) << 8
}

/// Returns whether a directory entry can be called `name`.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}

/// Returns inode number and kind of the entry called `name` in directory `parent`.
pub(crate) fn find_entry(
    tree: &OverlayTree<'_>,
    parent: u64,
    name: &[u8],
) -> Option<(u64, FileKind)> {
    let hash_key = tree.volume.superblock.hash_key;
    let low = Key::new(parent, ItemKind::Dirent, cookie(hash_key, name));
    let high = Key { offset: low.offset + COLLISIONS_MAX, ..low };
    let mut found = None;
    tree.each(KeyRange { low, high: Some(high) }, |_, value| {
        let entry = Dirent::decode(value).filter(|entry| entry.name == name);
        found = entry.map(|entry| (entry.target, entry.kind)).or(found);
    });
    found
}
