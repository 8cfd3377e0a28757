//! Extended attributes: encoding, reading, setting and removal.
//!
//! An attribute is a run of items (parts) in the tree. The key of the first part has half of the hash of the name;
//! the part holds the name, the length of the value and its beginning. Setting or removing an attribute is one
//! transaction, whatever the length of its value. No name has a meaning here but those of access lists
//! (`access_lists`): the kernel enforces the rules of the namespaces.

use super::Volume;
use super::directory::NameHasher;
use super::file_flags::check_file;
use crate::format::{
    AccessListKind, Corruption, CorruptionKind, Inode, InodeFlags, ItemKind, Key, NAME_LEN_MAX,
    XATTR_LEN_MAX,
};
use crate::metadata::MetadataError;
use crate::metadata::Txn;
use crate::request::{Caller, XattrMode};
use crate::{Error, Result};

/// Maximum number of bytes of one part.
const PART_LEN: usize = 1024;

/// Bytes before the name in the first part: length of the name, a reserved byte, length of the value.
const PREFIX_LEN: usize = 6;

/// Number of attributes that a listing visits under one hold of the lock.
const NAMES_PER_STEP: usize = 64;

/// Limit of the bytes that the names of a file's attributes take together, each with its NUL (the kernel's limit).
const NAMES_LEN_MAX: usize = 65_536;

type TxnResult<T> = std::result::Result<T, MetadataError>;

/// First part of an attribute.
struct FirstPart<'a> {
    name: &'a [u8],
    value_len: usize,
    value: &'a [u8],
}

/// Decodes the first part of an attribute from the value of the item at `key`.
fn decode<'a>(bytes: &'a [u8], key: &Key) -> std::result::Result<FirstPart<'a>, Corruption> {
    let wrong = Corruption::in_item(key.ino, CorruptionKind::Value);
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX_LEN>().ok_or(wrong)?;
    let [name_len, _, a, b, c, d] = *prefix;
    let value_len = u32::from_le_bytes([a, b, c, d]) as usize;
    let (name, value) = rest.split_at_checked(usize::from(name_len)).ok_or(wrong)?;
    if value_len > XATTR_LEN_MAX || value.len() > value_len || name.is_empty() {
        return Err(wrong);
    }
    Ok(FirstPart { name, value_len, value })
}

/// Returns the first key that the attribute called `name` can have.
fn first_key(hasher: &NameHasher, ino: u64, name: &[u8]) -> Key {
    Key::new(ino, ItemKind::Xattr, hasher.hash(name) >> 32 << 32)
}

/// Returns the key of the first part of attribute `name`, if the attribute exists.
fn find(txn: &Txn<'_>, hasher: &NameHasher, ino: u64, name: &[u8]) -> TxnResult<Option<Key>> {
    let mut from = first_key(hasher, ino, name);
    let last = Key { offset: from.offset | u64::from(u32::MAX), ..from };
    while let Some((key, bytes)) = txn.tree().range(from..=last).next().transpose()? {
        if key.begins_xattr() && decode(bytes, &key)?.name == name {
            return Ok(Some(key));
        }
        // One step skips all parts of an attribute: a forged image may have very many.
        let Some(offset) = (key.offset | u64::from(u16::MAX)).checked_add(1) else { break };
        from.offset = offset;
        if from > last {
            break;
        }
    }
    Ok(None)
}

/// Returns the value of attribute `name`.
pub(super) fn read(
    txn: &Txn<'_>,
    hasher: &NameHasher,
    ino: u64,
    name: &[u8],
) -> TxnResult<Option<Vec<u8>>> {
    let Some(mut key) = find(txn, hasher, ino, name)? else { return Ok(None) };
    let wrong = Corruption::in_item(ino, CorruptionKind::Length);
    let first = decode(txn.get(&key)?.ok_or(wrong)?, &key)?;
    let (value_len, mut value) = (first.value_len, first.value.to_vec());
    while value.len() < value_len {
        key.offset += 1;
        let part = txn.get(&key)?.filter(|part| !part.is_empty()).ok_or(wrong)?;
        value.extend_from_slice(part);
    }
    if value.len() == value_len { Ok(Some(value)) } else { Err(wrong.into()) }
}

/// Removes attribute `name` if it exists, and updates the flag in `inode`. Returns whether the attribute existed.
pub(super) fn delete(
    txn: &mut Txn<'_>,
    hasher: &NameHasher,
    ino: u64,
    inode: &mut Inode,
    name: &[u8],
) -> TxnResult<bool> {
    let Some(key) = find(txn, hasher, ino, name)? else { return Ok(false) };
    let last = Key { offset: key.offset | u64::from(u16::MAX), ..key };
    for part in txn.tree().range(key..=last) {
        txn.delete(part?.0);
    }
    let any_left = has_others(txn, ino, &key)?;
    inode.flags.set(InodeFlags::XATTRS, any_left);
    Ok(true)
}

/// Removes attribute `name` if it exists, without a search if `inode` has no attributes.
pub(super) fn delete_if_any(
    txn: &mut Txn<'_>,
    hasher: &NameHasher,
    ino: u64,
    inode: &mut Inode,
    name: &[u8],
) -> TxnResult<()> {
    if inode.flags.contains(InodeFlags::XATTRS) {
        delete(txn, hasher, ino, inode, name)?;
    }
    Ok(())
}

/// Removes attribute `name` before it is set, as [`delete`] does. Fails with `Exists` or `NoAttribute` if `mode`
/// forbids to set it.
pub(super) fn delete_for(
    txn: &mut Txn<'_>,
    hasher: &NameHasher,
    ino: u64,
    inode: &mut Inode,
    name: &[u8],
    mode: XattrMode,
) -> TxnResult<()> {
    match (delete(txn, hasher, ino, inode, name)?, mode) {
        (true, XattrMode::Create) => Err(Error::Exists.into()),
        (false, XattrMode::Replace) => Err(Error::NoAttribute.into()),
        _ => Ok(()),
    }
}

/// Returns whether `ino` has attributes beside the one at `gone`.
fn has_others(txn: &Txn<'_>, ino: u64, gone: &Key) -> TxnResult<bool> {
    for item in txn.tree().range(Key::all_of(ino, ItemKind::Xattr)) {
        if item?.0.offset >> 16 != gone.offset >> 16 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the names of a bounded number of attributes from the key `from` on, and the key to
/// continue from. The values are skipped: all values of a file together may not fit into memory.
fn names_from(txn: &Txn<'_>, from: &Key) -> TxnResult<(Vec<u8>, Option<Key>)> {
    let mut names = Vec::new();
    if !txn.inode(from.ino)?.flags.contains(InodeFlags::XATTRS) {
        return Ok((names, None));
    }
    let last = *Key::all_of(from.ino, ItemKind::Xattr).end();
    let mut from = *from;
    for _ in 0..NAMES_PER_STEP {
        let Some((key, bytes)) = txn.tree().range(from..=last).next().transpose()? else {
            return Ok((names, None));
        };
        if key.begins_xattr() {
            names.extend_from_slice(decode(bytes, &key)?.name);
            names.push(0);
        }
        let Some(offset) = (key.offset | u64::from(u16::MAX)).checked_add(1) else {
            return Ok((names, None));
        };
        from.offset = offset;
    }
    Ok((names, Some(from)))
}

/// Adds an attribute, whose name the file must not have yet, and sets the flag in `inode`.
pub(super) fn insert(
    txn: &mut Txn<'_>,
    hasher: &NameHasher,
    ino: u64,
    inode: &mut Inode,
    name: &[u8],
    value: &[u8],
) -> TxnResult<()> {
    let mut key = first_key(hasher, ino, name);
    while txn.get(&key)?.is_some() {
        key.offset += 1 << 16;
    }
    let mut bytes = vec![name.len() as u8, 0];
    bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(name);
    let (head, rest) = value.split_at(value.len().min(PART_LEN - bytes.len()));
    bytes.extend_from_slice(head);
    txn.put(key, bytes);
    for part in rest.chunks(PART_LEN) {
        key.offset += 1;
        txn.put(key, part.to_vec());
    }
    inode.flags.set(InodeFlags::XATTRS, true);
    Ok(())
}

impl Volume {
    /// Returns the value of extended attribute `name`. Fails with `NoAttribute` if the attribute
    /// does not exist.
    pub fn xattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.metadata.read_txn(|txn| {
            if !txn.inode(ino)?.flags.contains(InodeFlags::XATTRS) {
                return Err(Error::NoAttribute.into());
            }
            Ok(read(txn, &self.hasher(), ino, name)?.ok_or(Error::NoAttribute)?)
        })
    }

    /// Returns the names of the extended attributes, each ended by a NUL.
    pub fn xattr_names(&self, ino: u64) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        let mut next = Some(Key::new(ino, ItemKind::Xattr, 0));
        while let Some(from) = next {
            let found;
            (found, next) = self.metadata.read_txn(|txn| names_from(txn, &from))?;
            names.extend(found);
        }
        Ok(names)
    }

    /// Sets an extended attribute. Fails with `Exists` or `NoAttribute` if `mode` forbids the
    /// change, `OutOfRange` if the name is empty or too long, `ValueTooLong` if the value is too
    /// long, and `NoSpace` also if all names together would exceed the kernel's limit. An access list is set as
    /// [`Volume::set_access_list`] does.
    pub fn set_xattr(
        &self,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        caller: &Caller,
    ) -> Result<()> {
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            return Err(Error::OutOfRange);
        }
        if let Some(kind) = AccessListKind::of_name(name) {
            return self.put_access_list(ino, kind, value, mode, false, caller);
        }
        if value.len() > XATTR_LEN_MAX {
            return Err(Error::ValueTooLong);
        }
        self.space.admit(0)?;
        // The lock keeps two setters from counting on the same room for their names.
        let file = self.inodes.get(ino);
        let _io = file.io_write();
        self.check_room_for_name(ino, name)?;
        self.change(|txn| {
            let mut inode = txn.inode(ino)?;
            check_file(&inode)?;
            delete_for(txn, &self.hasher(), ino, &mut inode, name, mode)?;
            insert(txn, &self.hasher(), ino, &mut inode, name, value)?;
            inode.ctime = caller.now;
            txn.put_inode(ino, &inode);
            Ok(())
        })
    }

    /// Fails with `NoSpace` if the names of all attributes of `ino` would be too long with `name`. The caller holds the
    /// file's lock for a change.
    pub(super) fn check_room_for_name(&self, ino: u64, name: &[u8]) -> Result<()> {
        let names = self.xattr_names(ino)?;
        let is_new = !names.split(|byte| *byte == 0).any(|other| other == name);
        if is_new && names.len() + name.len() >= NAMES_LEN_MAX {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Removes an extended attribute. Fails with `NoAttribute` if the attribute does not exist.
    pub fn remove_xattr(&self, ino: u64, name: &[u8], caller: &Caller) -> Result<()> {
        self.change(|txn| {
            let mut inode = txn.inode(ino)?;
            check_file(&inode)?;
            if !delete(txn, &self.hasher(), ino, &mut inode, name)? {
                return Err(Error::NoAttribute.into());
            }
            inode.ctime = caller.now;
            txn.put_inode(ino, &inode);
            Ok(())
        })
    }
}
