//! Extended attributes.
//!
//! Owns: how parts make a value.
//! Promises: looks at each part once, as it comes.
//! Never: knows what an attribute is for.

use std::collections::HashSet;

use sfs_core::format::{Key, NAME_LEN_MAX, XATTR_LEN_MAX};

use crate::namespace::name_hash;
use crate::{Finding, Findings};

/// Longest value of an item.
const PART_LEN_MAX: usize = 1024;

/// Bytes of the first part before the name: its length, a reserved byte, the value's length.
const PREFIX_LEN: usize = 6;

/// What is wrong with an attribute: where it is, and which of three it is.
enum Wrong {
    Parts(u64),
    Hash(u64),
    Twice(u64),
}

/// The attributes of one inode, as their parts come.
#[derive(Default)]
pub(crate) struct Xattrs {
    current: Option<Attribute>,
    /// Names of the attributes that share the hash of the current one.
    names: HashSet<Vec<u8>>,
    hash: u64,
    any: bool,
    wrong: Vec<Wrong>,
}

/// An attribute whose parts are coming.
struct Attribute {
    /// Of its first part.
    offset: u64,
    next_part: u64,
    /// Bytes of the value that are missing still.
    missing: usize,
    sound: bool,
}

impl Xattrs {
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
        match current.missing.checked_sub(value.len()) {
            Some(missing) => current.missing = missing,
            None => current.sound = false,
        }
    }

    fn begin(&mut self, offset: u64, part: &[u8], hash_key: [u64; 2]) {
        if offset >> 32 != self.hash {
            self.names.clear();
            self.hash = offset >> 32;
        }
        let sound = offset & 0xffff == 0 && part.len() <= PART_LEN_MAX;
        let decoded = decode(part).filter(|_| sound);
        if let Some((name, _)) = decoded {
            if name_hash(hash_key, name) >> 32 != offset >> 32 {
                self.wrong.push(Wrong::Hash(offset));
            }
            if !self.names.insert(name.to_vec()) {
                self.wrong.push(Wrong::Twice(offset));
            }
        }
        self.current = Some(Attribute {
            offset,
            next_part: 1,
            missing: decoded.map_or(0, |(_, missing)| missing),
            sound: decoded.is_some(),
        });
    }

    /// No more parts of the current attribute.
    pub(crate) fn finish(&mut self) {
        if let Some(Attribute { offset, missing, sound, .. }) = self.current.take()
            && (!sound || missing > 0)
        {
            self.wrong.push(Wrong::Parts(offset));
        }
    }

    /// Whether there is an attribute, sound or not.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Says what is wrong with those of `ino`.
    pub(crate) fn report(&mut self, ino: u64, findings: &mut Findings) {
        for wrong in self.wrong.drain(..) {
            findings.push(match wrong {
                Wrong::Parts(offset) => Finding::XattrParts { ino, offset },
                Wrong::Hash(offset) => Finding::XattrHash { ino, offset },
                Wrong::Twice(offset) => Finding::XattrTwice { ino, offset },
            });
        }
    }
}

/// The name in the first part of an attribute, and the bytes of its value that other parts have.
fn decode(first: &[u8]) -> Option<(&[u8], usize)> {
    let (prefix, rest) = first.split_at_checked(PREFIX_LEN)?;
    let name_len = usize::from(prefix[0]);
    let value_len = u32::from_le_bytes(prefix[2..].try_into().ok()?) as usize;
    let (name, value) = rest.split_at_checked(name_len)?;
    let sound = (1..=NAME_LEN_MAX).contains(&name_len) && value_len <= XATTR_LEN_MAX;
    Some((name, value_len.checked_sub(value.len())?)).filter(|_| sound)
}
