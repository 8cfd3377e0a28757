//! Extended attributes.
//!
//! Owns: how parts make a value.
//! Promises: looks at each part once.
//! Never: knows what an attribute is for.

use std::collections::HashSet;

use sfs_core::format::{Inode, InodeFlags, ItemKind, Key, NAME_LEN_MAX, XATTR_LEN_MAX};

use crate::items::Items;
use crate::namespace::name_hash;
use crate::{Finding, Findings};

/// Longest value of an item.
const PART_LEN_MAX: usize = 1024;

/// Bytes of the first part before the name: its length, a reserved byte, the value's length.
const PREFIX_LEN: usize = 6;

/// Checks the attributes of `ino`.
pub(crate) fn check(
    items: &Items,
    ino: u64,
    inode: &Inode,
    hash_key: [u64; 2],
    findings: &mut Findings,
) {
    let parts: Vec<(&Key, &[u8])> = items.of(ino, ItemKind::Xattr).collect();
    if inode.flags.contains(InodeFlags::XATTRS) == parts.is_empty() {
        findings.push(Finding::XattrFlag { ino });
    }
    let mut names = HashSet::new();
    for attribute in parts.chunk_by(|a, b| a.0.offset >> 16 == b.0.offset >> 16) {
        let offset = attribute[0].0.offset;
        let Some(name) = name_of(attribute) else {
            findings.push(Finding::XattrParts { ino, offset });
            continue;
        };
        if name_hash(hash_key, name) >> 32 != offset >> 32 {
            findings.push(Finding::XattrHash { ino, offset });
        }
        if !names.insert(name) {
            findings.push(Finding::XattrTwice { ino, offset });
        }
    }
}

/// The name of the attribute whose parts these are, if they are all there.
fn name_of<'a>(parts: &[(&Key, &'a [u8])]) -> Option<&'a [u8]> {
    let (_, first) = parts[0];
    let (prefix, rest) = first.split_at_checked(PREFIX_LEN)?;
    let name_len = usize::from(prefix[0]);
    let value_len = u32::from_le_bytes(prefix[2..].try_into().ok()?) as usize;
    let (name, value) = rest.split_at_checked(name_len)?;
    let further: usize = parts[1..].iter().map(|(_, part)| part.len()).sum();
    let numbered = (0..).zip(parts).all(|(number, (key, _))| key.offset & 0xffff == number);
    let sound = numbered
        && parts.iter().all(|(_, part)| part.len() <= PART_LEN_MAX)
        && (1..=NAME_LEN_MAX).contains(&name_len)
        && value_len <= XATTR_LEN_MAX
        && value.len() + further == value_len;
    sound.then_some(name)
}
