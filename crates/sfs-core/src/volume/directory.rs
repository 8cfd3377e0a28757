//! Directory entries: encoding, search, changes and listing.
//!
//! An entry is an item of the tree whose key is a cookie: the keyed hash of the name, plus a number below
//! [`COLLISIONS_MAX`] that distinguishes names of one hash. A listing returns the entries in the order of their
//! cookies. The cookie of an entry never changes while the entry exists, so a listing can continue from a cookie at any
//! time. `namespace` changes the inodes that go with an entry.

use std::hash::Hasher;
use std::ops::Bound;

use siphasher::sip::SipHasher13;

use super::Volume;
use crate::format::{Corruption, CorruptionKind, FileKind, Inode, ItemKind, Key, NAME_LEN_MAX};
use crate::metadata::MetadataError;
use crate::metadata::Txn;
use crate::request::DirectoryEntry;
use crate::{Error, Result};

/// Number of names with one hash that a directory can hold.
const COLLISIONS_MAX: u64 = 256;

/// Cookie of the entry ".".
const COOKIE_DOT: u64 = 1;

/// Cookie of the entry "..".
const COOKIE_DOT_DOT: u64 = 2;

/// Bytes of an entry's value before the name: inode number and kind.
const PREFIX_LEN: usize = 9;

/// Number of entries that a listing copies from the tree under one hold of the lock. Only the
/// caller knows when its buffer is full, so some of the last copied entries may not be used.
const ENTRIES_PER_STEP: usize = 16;

/// Initial capacity for each name of a copy, in bytes.
const NAME_LEN_USUAL: usize = 32;

/// Hashes names with the volume's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHasher([u64; 2]);

impl NameHasher {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        Self(key)
    }

    /// Returns the keyed hash of `name`.
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0[0], self.0[1]);
        hasher.write(name);
        hasher.finish()
    }

    /// Returns the first cookie that an entry called `name` can have: above 255, and positive as a signed number.
    fn cookie(&self, name: &[u8]) -> u64 {
        (self.hash(name) >> 9).max(1) << 8
    }
}

/// Entry that a search has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundEntry {
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
    pub(crate) cookie: u64,
}

/// Checks that a new entry may be called `name`. Fails with `Exists` for "." and "..", which every
/// directory has.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.len() > NAME_LEN_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

/// Encodes the value of an entry's item.
pub(crate) fn encode(ino: u64, kind: FileKind, name: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(PREFIX_LEN + name.len());
    value.extend_from_slice(&ino.to_le_bytes());
    value.push(kind as u8);
    value.extend_from_slice(name);
    value
}

/// Decodes inode number, kind and name from the value of the item at `key`.
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

/// Returns the entry called `name` in `directory`, without this transaction's changes.
pub(crate) fn find(
    txn: &Txn<'_>,
    hasher: &NameHasher,
    directory: u64,
    name: &[u8],
) -> std::result::Result<Option<FoundEntry>, MetadataError> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong.into());
    }
    let first = hasher.cookie(name);
    let key = |cookie| Key::new(directory, ItemKind::Dirent, cookie);
    for item in txn.tree().range(key(first)..key(first + COLLISIONS_MAX)) {
        let (key, value) = item?;
        let (ino, kind, found) = decode(value, &key)?;
        if found == name {
            return Ok(Some(FoundEntry { ino, kind, cookie: key.offset }));
        }
    }
    Ok(None)
}

/// Adds an entry, whose name the directory must not have yet, at the first free cookie of its hash.
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
    // Not reached in practice: 256 names would share a keyed hash of 55 bits.
    Err(Error::NoSpace.into())
}

/// Makes the entry at `cookie` refer to another file.
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

/// Entries copied from the tree, for a listing that calls its caller without a lock.
struct Copied {
    entries: Vec<CopiedEntry>,
    /// Names of `entries`, concatenated.
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
    /// Calls `each` for the entries of directory `ino` after `cookie` until `each` returns `false`.
    /// At 0 the listing starts with "." and "..". An entry for which `each` returns `false` counts
    /// as not listed. `with_attributes` adds the attributes of each file, and takes a reference to
    /// each listed file; "." and ".." have neither. After a reference was taken, an error only ends
    /// the listing early, so that the caller learns of every reference; the next call, which
    /// continues after the last listed entry, returns the error.
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
        let mut has_references = false;
        loop {
            let copied =
                self.metadata.read_txn(|txn| self.copy_entries(txn, ino, cookie, with_attributes));
            let copied = match copied {
                Err(_) if has_references => return Ok(()),
                other => other?,
            };
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
                    let unused = copied.entries[no..].iter().filter(|entry| entry.inode.is_some());
                    unused.for_each(|entry| self.forget(entry.ino, 1));
                    return Ok(());
                }
                cookie = entry.cookie;
                has_references |= entry.inode.is_some();
            }
            if copied.entries.len() < ENTRIES_PER_STEP {
                return Ok(());
            }
        }
    }

    /// Copies up to [`ENTRIES_PER_STEP`] entries of `directory` after `cookie`. With attributes, takes a reference to
    /// each file.
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
        // The metadata lock is held: no thread can delete one of the files before the references
        // are taken.
        if with_attributes {
            entries.iter().for_each(|entry| self.inodes.refer(entry.ino));
        }
        Ok(Copied { entries, names })
    }
}
