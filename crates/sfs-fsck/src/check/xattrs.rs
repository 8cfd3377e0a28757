//! Check of the extended attributes of one inode.
//!
//! The parts of attributes arrive one by one, in the order of their keys. Names and values are not
//! interpreted.

use std::collections::HashSet;

use sfs_core::format::{Key, NAME_LEN_MAX, XATTR_LEN_MAX};

use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::dirent::name_hash;

/// Longest value of an item, in bytes.
const PART_LEN_MAX: usize = 1024;

/// Length in bytes of the prefix of the first part: length of the name, a reserved byte, length of
/// the value.
const PREFIX_LEN: usize = 6;

/// Defect of the attribute whose first part has this key offset.
enum XattrDefect {
    /// Parts are missing or wrong.
    Parts(u64),
    /// The key does not match the hash of the name.
    Hash(u64),
    /// An earlier attribute has the same name.
    Twice(u64),
}

/// Extended attributes of one inode.
#[derive(Default)]
pub(crate) struct XattrCheck {
    current: Option<PartialXattr>,
    /// Names of the attributes with the hash of the current one.
    names: HashSet<Vec<u8>>,
    hash: u64,
    any: bool,
    defects: Vec<XattrDefect>,
}

/// Attribute whose parts are arriving.
struct PartialXattr {
    /// Key offset of the first part.
    offset: u64,
    next_part: u64,
    /// Number of bytes of the value that are still missing.
    missing_bytes: usize,
    sound: bool,
}

impl XattrCheck {
    /// Adds the next part.
    pub(crate) fn add(&mut self, key: &Key, value: &[u8], hash_key: [u64; 2]) {
        self.any = true;
        let offset = key.offset;
        let continues =
            self.current.as_ref().is_some_and(|current| current.offset >> 16 == offset >> 16);
        if !continues {
            self.finish();
            self.begin(offset, value, hash_key);
            return;
        }
        let Some(current) = &mut self.current else { return };
        current.sound &= offset & 0xffff == current.next_part && value.len() <= PART_LEN_MAX;
        current.next_part += 1;
        match current.missing_bytes.checked_sub(value.len()) {
            Some(missing) => current.missing_bytes = missing,
            None => current.sound = false,
        }
    }

    fn begin(&mut self, offset: u64, part: &[u8], hash_key: [u64; 2]) {
        if offset >> 32 != self.hash {
            self.names.clear();
            self.hash = offset >> 32;
        }
        let sound = offset & 0xffff == 0 && part.len() <= PART_LEN_MAX;
        let decoded = decode_first(part).filter(|_| sound);
        if let Some((name, _)) = decoded {
            if name_hash(hash_key, name) >> 32 != offset >> 32 {
                self.defects.push(XattrDefect::Hash(offset));
            }
            if !self.names.insert(name.to_vec()) {
                self.defects.push(XattrDefect::Twice(offset));
            }
        }
        self.current = Some(PartialXattr {
            offset,
            next_part: 1,
            missing_bytes: decoded.map_or(0, |(_, missing)| missing),
            sound: decoded.is_some(),
        });
    }

    /// Ends the current attribute.
    pub(crate) fn finish(&mut self) {
        if let Some(PartialXattr { offset, missing_bytes, sound, .. }) = self.current.take()
            && (!sound || missing_bytes > 0)
        {
            self.defects.push(XattrDefect::Parts(offset));
        }
    }

    /// Returns whether there is an attribute, sound or not.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Reports the defects as findings of inode `ino`.
    pub(crate) fn report(&mut self, ino: u64, findings: &mut Findings) {
        for defect in self.defects.drain(..) {
            findings.push(match defect {
                XattrDefect::Parts(offset) => Finding::XattrParts { ino, offset },
                XattrDefect::Hash(offset) => Finding::XattrHash { ino, offset },
                XattrDefect::Twice(offset) => Finding::XattrTwice { ino, offset },
            });
        }
    }
}

/// Returns the name in the first part of an attribute, and the number of bytes of its value in later parts.
fn decode_first(first: &[u8]) -> Option<(&[u8], usize)> {
    let (prefix, rest) = first.split_at_checked(PREFIX_LEN)?;
    let name_len = usize::from(prefix[0]);
    let value_len = u32::from_le_bytes(prefix[2..].try_into().ok()?) as usize;
    let (name, value) = rest.split_at_checked(name_len)?;
    let sound = (1..=NAME_LEN_MAX).contains(&name_len) && value_len <= XATTR_LEN_MAX;
    Some((name, value_len.checked_sub(value.len())?)).filter(|_| sound)
}
