//! Check of the extended attributes of one inode.
//!
//! The parts of attributes arrive one by one, in the order of their keys. Of the values, only those of access lists are
//! interpreted: a list must be sound, its file must be one that can have it, and the mode must agree with it.

use std::collections::HashSet;

use sfs_core::format::{
    AccessList, AccessListKind, FileKind, Inode, Key, NAME_LEN_MAX, XATTR_LEN_MAX,
};

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
    lists: Vec<FoundList>,
}

/// Access list of an inode.
struct FoundList {
    kind: AccessListKind,
    /// Key offset of the first part.
    offset: u64,
    /// `None` for a list that is not sound.
    list: Option<AccessList>,
}

/// Attribute whose parts are arriving.
struct PartialXattr {
    /// Key offset of the first part.
    offset: u64,
    next_part: u64,
    /// Number of bytes of the value that are still missing.
    missing_bytes: usize,
    sound: bool,
    /// Kind of the access list, and the bytes of its value so far.
    list: Option<(AccessListKind, Vec<u8>)>,
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
        if let Some((_, bytes)) = &mut current.list {
            bytes.extend_from_slice(value);
        }
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
        if let Some((name, ..)) = decoded {
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
            missing_bytes: decoded.map_or(0, |(.., missing)| missing),
            sound: decoded.is_some(),
            list: decoded.and_then(|(name, value, _)| {
                Some((AccessListKind::of_name(name)?, value.to_vec()))
            }),
        });
    }

    /// Ends the current attribute.
    pub(crate) fn finish(&mut self) {
        let Some(PartialXattr { offset, missing_bytes, sound, list, .. }) = self.current.take()
        else {
            return;
        };
        if !sound || missing_bytes > 0 {
            self.defects.push(XattrDefect::Parts(offset));
        } else if let Some((kind, value)) = list {
            self.lists.push(FoundList { kind, offset, list: AccessList::decode(&value) });
        }
    }

    /// Returns whether there is an access list, sound or not.
    pub(crate) fn any_list(&self) -> bool {
        !self.lists.is_empty()
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

    /// Reports access lists that are not sound, or do not fit `inode`.
    pub(crate) fn report_lists(&self, ino: u64, inode: &Inode, findings: &mut Findings) {
        for FoundList { kind, offset, list } in &self.lists {
            let is_possible = match kind {
                AccessListKind::Access => inode.kind() != FileKind::Symlink,
                AccessListKind::Default => inode.kind() == FileKind::Directory,
            };
            let mode = inode.mode & 0o777;
            match list.as_ref().filter(|_| is_possible).map(AccessList::shown) {
                None => findings.push(Finding::AccessListInvalid { ino, offset: *offset }),
                Some(shown) if *kind == AccessListKind::Access && shown != mode => {
                    findings.push(Finding::AccessListMode { ino, offset: *offset, mode, shown });
                }
                Some(_) => {}
            }
        }
    }
}

/// Returns the name in the first part of an attribute, the bytes of its value there, and the number of those in later
/// parts.
pub(crate) fn decode_first(first: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let (prefix, rest) = first.split_at_checked(PREFIX_LEN)?;
    let name_len = usize::from(prefix[0]);
    let value_len = u32::from_le_bytes(prefix[2..].try_into().ok()?) as usize;
    let (name, value) = rest.split_at_checked(name_len)?;
    let sound = (1..=NAME_LEN_MAX).contains(&name_len) && value_len <= XATTR_LEN_MAX;
    Some((name, value, value_len.checked_sub(value.len())?)).filter(|_| sound)
}
