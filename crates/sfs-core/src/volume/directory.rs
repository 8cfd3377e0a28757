//! Directory entries: names hashed to cookies.
//!
//! Owns: the form of an entry, and reading a directory in the order of the cookies.
//! Promises: the cookie of an entry never changes while it exists; names whose hashes collide are
//! told apart.
//! Never: changes an inode.

use std::hash::Hasher;
use std::ops::Bound;

use siphasher::sip::SipHasher13;

use super::Volume;
use super::txn::Txn;
use crate::format::{Corruption, CorruptionKind, FileKind, Inode, ItemKind, Key, NAME_LEN_MAX};
use crate::meta::MetadataError;
use crate::request::DirectoryEntry;
use crate::{Error, Result};

/// Names with one hash that a directory can hold.
const COLLISIONS_MAX: u64 = 256;

/// Cookie after ".".
const COOKIE_DOT: u64 = 1;

/// Cookie after "..".
const COOKIE_DOT_DOT: u64 = 2;

/// Bytes of an entry before its name.
const PREFIX_LEN: usize = 9;

/// Entries taken from the tree under one hold of the lock. The last ones of an answer are taken in
/// vain, as only who asks knows when it has enough.
const ENTRIES_PER_STEP: usize = 16;

/// Bytes that there is room for at first, for each name.
const NAME_LEN_USUAL: usize = 32;

/// Hashes names with the volume's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHasher([u64; 2]);

impl NameHasher {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        Self(key)
    }

    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0[0], self.0[1]);
        hasher.write(name);
        hasher.finish()
    }

    /// First cookie that an entry called `name` can have. Positive as a signed number, above 255.
    fn cookie(&self, name: &[u8]) -> u64 {
        (self.hash(name) >> 9).max(1) << 8
    }
}

/// An entry that was looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
    pub(crate) cookie: u64,
}

/// Whether `name` can be given to a file.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.len() > NAME_LEN_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

/// An entry's value.
pub(crate) fn encode(ino: u64, kind: FileKind, name: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(PREFIX_LEN + name.len());
    value.extend_from_slice(&ino.to_le_bytes());
    value.push(kind as u8);
    value.extend_from_slice(name);
    value
}

/// Inode number, kind and name of an entry.
pub(crate) fn decode<'a>(
    value: &'a [u8],
    key: &Key,
) -> std::result::Result<(u64, FileKind, &'a [u8]), Corruption> {
    let wrong = Corruption::in_item(key.ino, CorruptionKind::Value);
    let (ino, rest) = value.split_first_chunk().ok_or(wrong)?;
    let (kind, name) = rest.split_first().ok_or(wrong)?;
    let kind = FileKind::decode(*kind).ok_or(wrong)?;
    check_name(name).map_err(|_| wrong)?;
    Ok((u64::from_le_bytes(*ino), kind, name))
}

/// The entry called `name` in `directory`.
pub(crate) fn find(
    txn: &Txn<'_>,
    hasher: &NameHasher,
    directory: u64,
    name: &[u8],
) -> std::result::Result<Option<Found>, MetadataError> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong.into());
    }
    let first = hasher.cookie(name);
    let key = |cookie| Key::new(directory, ItemKind::Dirent, cookie);
    for item in txn.tree().range(key(first)..key(first + COLLISIONS_MAX)) {
        let (key, value) = item?;
        let (ino, kind, found) = decode(value, &key)?;
        if found == name {
            return Ok(Some(Found { ino, kind, cookie: key.offset }));
        }
    }
    Ok(None)
}

/// Adds an entry. The name must not be there.
pub(crate) fn insert(
    txn: &mut Txn<'_>,
    hasher: &NameHasher,
    directory: u64,
    name: &[u8],
    ino: u64,
    kind: FileKind,
) -> std::result::Result<(), MetadataError> {
    let first = hasher.cookie(name);
    for cookie in first..first + COLLISIONS_MAX {
        let key = Key::new(directory, ItemKind::Dirent, cookie);
        if txn.get(&key)?.is_none() {
            txn.put(key, encode(ino, kind, name));
            return Ok(());
        }
    }
    // 256 names with one 55-bit keyed hash do not happen.
    Err(Error::NoSpace.into())
}

/// Lets the entry at `cookie` refer to another file.
pub(crate) fn replace(
    txn: &mut Txn<'_>,
    directory: u64,
    name: &[u8],
    cookie: u64,
    ino: u64,
    kind: FileKind,
) {
    txn.put(Key::new(directory, ItemKind::Dirent, cookie), encode(ino, kind, name));
}

/// Entries that were copied out of the tree.
struct Copied {
    entries: Vec<CopiedEntry>,
    /// One after the other.
    names: Vec<u8>,
}

struct CopiedEntry {
    ino: u64,
    kind: FileKind,
    name_len: usize,
    cookie: u64,
    inode: Option<Inode>,
}

impl Volume {
    /// Gives the entries of directory `ino` after `cookie` (0: from the start, "." and ".." first)
    /// to `each`, until it says false; that entry then counts as not given.
    pub fn read_directory(
        &self,
        ino: u64,
        mut cookie: u64,
        with_attributes: bool,
        each: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let inode = self.attributes(ino)?;
        if inode.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        for (after, name, dot) in
            [(COOKIE_DOT, &b"."[..], ino), (COOKIE_DOT_DOT, &b".."[..], inode.parent)]
        {
            if cookie < after {
                let kind = FileKind::Directory;
                let entry = DirectoryEntry { ino: dot, kind, name, cookie: after, inode: None };
                if !each(&entry) {
                    return Ok(());
                }
                cookie = after;
            }
        }
        loop {
            let copied =
                self.consult(|txn| self.copy_entries(txn, ino, cookie, with_attributes))?;
            let mut names = &copied.names[..];
            for (no, entry) in copied.entries.iter().enumerate() {
                let name;
                (name, names) = names.split_at(entry.name_len);
                let shown = DirectoryEntry {
                    ino: entry.ino,
                    kind: entry.kind,
                    name,
                    cookie: entry.cookie,
                    inode: entry.inode,
                };
                if !each(&shown) {
                    let unseen = copied.entries[no..].iter().filter(|entry| entry.inode.is_some());
                    unseen.for_each(|entry| self.forget(entry.ino, 1));
                    return Ok(());
                }
                cookie = entry.cookie;
            }
            if copied.entries.len() < ENTRIES_PER_STEP {
                return Ok(());
            }
        }
    }

    /// The next entries of `directory` after `cookie`, a bounded number. With attributes a reference
    /// to each is taken.
    fn copy_entries(
        &self,
        txn: &Txn<'_>,
        directory: u64,
        cookie: u64,
        with_attributes: bool,
    ) -> std::result::Result<Copied, MetadataError> {
        let mut names = Vec::with_capacity(ENTRIES_PER_STEP * NAME_LEN_USUAL);
        let mut entries = Vec::with_capacity(ENTRIES_PER_STEP);
        let key = |cookie| Key::new(directory, ItemKind::Dirent, cookie);
        let after = (Bound::Excluded(key(cookie)), Bound::Included(key(u64::MAX)));
        for item in txn.tree().range(after).take(ENTRIES_PER_STEP) {
            let (key, value) = item?;
            let (ino, kind, name) = decode(value, &key)?;
            let inode = with_attributes.then(|| self.inode_of(txn, ino)).transpose()?;
            names.extend_from_slice(name);
            let (name_len, cookie) = (name.len(), key.offset);
            entries.push(CopiedEntry { ino, kind, name_len, cookie, inode });
        }
        // Before anybody can delete one of them.
        if with_attributes {
            entries.iter().for_each(|entry| self.handles.refer(entry.ino));
        }
        Ok(Copied { entries, names })
    }
}
