//! Access lists of the reference.
//!
//! A list stays in the bytes of its extended attribute, which is parsed here independently of the volume: a version,
//! then entries of tag, permissions and number.

use std::collections::HashSet;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{AccessListKind, FileKind};
use sfs_core::request::Caller;

use super::random::SplitMix64;
use super::reference::{Reference, ReferenceNode};

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODY: u32 = u32::MAX;

/// Tag, permissions and number of an entry.
pub type Entry = (u16, u16, u32);

/// Returns the bytes of a list, which need not be sound.
pub fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Returns the bytes of a sound list with `shown` as its permission bits, that names `users` and `groups`.
pub fn list(shown: u32, users: &[(u32, u16)], groups: &[(u32, u16)]) -> Vec<u8> {
    let shown = |by: u32| (shown >> by & 7) as u16;
    let named = |tag, all: &[(u32, u16)]| {
        all.iter().map(|(id, permissions)| (tag, *permissions, *id)).collect::<Vec<_>>()
    };
    let mut entries = vec![(OWNER, shown(6), NOBODY)];
    entries.extend(named(USER, users));
    entries.push((OWNING_GROUP, 5, NOBODY));
    entries.extend(named(GROUP, groups));
    entries.push((MASK, shown(3), NOBODY));
    entries.push((OTHER, shown(0), NOBODY));
    encode(&entries)
}

/// Draws the bytes of a list, a third of which is not sound or says no more than a mode.
pub fn draw(random: &mut SplitMix64) -> Vec<u8> {
    let bits = random.draw();
    let count = random.pick(&[0, 1, 1, 2, 3, 150]);
    let named: Vec<(u32, u16)> =
        (0..count).map(|no| (no * 7 + bits as u32 % 7, (bits >> (no % 60)) as u16 & 7)).collect();
    let (users, groups) = named.split_at(random.below(named.len() as u64 + 1) as usize);
    let mut value = list(bits as u32 & 0o777, users, groups);
    match random.below(16) {
        // The list of a mode.
        0..=2 => {
            value = encode(&[(OWNER, 6, NOBODY), (OWNING_GROUP, 5, NOBODY), (OTHER, 4, NOBODY)])
        }
        3 => value.truncate(random.below(value.len() as u64) as usize),
        4 => value[random.below(4) as usize + 4] ^= 1 << random.below(8),
        5 => value.resize(5000, 0),
        _ => {}
    }
    value
}

fn decode(value: &[u8]) -> Vec<Entry> {
    let entry = |bytes: &[u8]| {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        (half(0), half(2), id)
    };
    value[4..].chunks_exact(8).map(entry).collect()
}

fn is_sound(value: &[u8]) -> bool {
    if value.len() % 8 != 4 || value[..4] != [2, 0, 0, 0] {
        return false;
    }
    let entries = decode(value);
    let count = |wanted| entries.iter().filter(|(tag, ..)| *tag == wanted).count();
    let mut tags = vec![OWNER];
    tags.extend(vec![USER; count(USER)]);
    tags.push(OWNING_GROUP);
    tags.extend(vec![GROUP; count(GROUP)]);
    // Whoever is named needs a mask.
    tags.extend(vec![MASK; count(MASK).min(1).max((count(USER) + count(GROUP)).min(1))]);
    tags.push(OTHER);
    let is_named = |tag| matches!(tag, USER | GROUP);
    let named: Vec<_> = entries.iter().filter(|(tag, ..)| is_named(*tag)).collect();
    let distinct: HashSet<_> = named.iter().map(|(tag, _, id)| (tag, id)).collect();
    entries.iter().map(|(tag, ..)| *tag).eq(tags)
        && entries.iter().all(|(tag, bits, id)| *bits < 8 && is_named(*tag) == (*id != NOBODY))
        && distinct.len() == named.len()
}

/// Returns the place in the permission bits of each tag that they repeat.
fn places(entries: &[Entry]) -> [(u16, u32); 3] {
    let has_mask = entries.iter().any(|(tag, ..)| *tag == MASK);
    [(OWNER, 6), (if has_mask { MASK } else { OWNING_GROUP }, 3), (OTHER, 0)]
}

fn shown(entries: &[Entry]) -> u32 {
    let bits = |(tag, by)| {
        let entry = entries.iter().find(|entry| entry.0 == tag);
        entry.map_or(0, |entry| u32::from(entry.1) << by)
    };
    places(entries).into_iter().map(bits).sum()
}

/// Applies `change` to the permissions of each entry that the mode repeats, and to those in `mode`.
fn change_shown(entries: &mut [Entry], mode: u32, change: impl Fn(u16, u16) -> u16) {
    for (tag, by) in places(entries) {
        for entry in entries.iter_mut().filter(|entry| entry.0 == tag) {
            entry.1 = change(entry.1, (mode >> by & 7) as u16);
        }
    }
}

fn name(kind: AccessListKind) -> Vec<u8> {
    match kind {
        AccessListKind::Access => b"system.posix_acl_access".to_vec(),
        AccessListKind::Default => b"system.posix_acl_default".to_vec(),
    }
}

impl ReferenceNode {
    /// Changes the access list to agree with the mode.
    pub(super) fn follow_mode(&mut self) {
        let mode = self.mode;
        if let Some(value) = self.xattrs.get_mut(&name(AccessListKind::Access)) {
            let mut entries = decode(value);
            change_shown(&mut entries, mode, |_, asked| asked);
            *value = Arc::new(encode(&entries));
        }
    }

    /// Gives a new file what it inherits from `directory`.
    pub(super) fn inherit_lists(&mut self, directory: &Self, caller: &Caller) {
        let Some(umask) = caller.umask.filter(|_| self.kind() != FileKind::Symlink) else { return };
        let Some(default) = directory.xattrs.get(&name(AccessListKind::Default)) else {
            self.mode &= !umask;
            return;
        };
        let mut entries = decode(default);
        change_shown(&mut entries, self.mode, |inherited, asked| inherited & asked);
        self.mode = self.mode & !0o777 | shown(&entries);
        if entries.len() > 3 {
            self.xattrs.insert(name(AccessListKind::Access), Arc::new(encode(&entries)));
        }
        if self.is_directory() {
            self.xattrs.insert(name(AccessListKind::Default), default.clone());
        }
    }
}

impl Reference {
    /// Sets an access list of `ino`.
    ///
    /// # Errors
    ///
    /// The error that the volume has to return.
    pub fn set_access_list(
        &mut self,
        ino: u64,
        kind: AccessListKind,
        value: &[u8],
        clear_sgid: bool,
        caller: &Caller,
    ) -> Result<(), Error> {
        if value.len() > 4096 {
            return Err(Error::ValueTooLong);
        }
        if !is_sound(value) {
            return Err(Error::Invalid);
        }
        let node = self.node(ino)?;
        node.may_remove()?;
        let is_possible = match kind {
            AccessListKind::Access => node.kind() != FileKind::Symlink,
            AccessListKind::Default => node.is_directory(),
        };
        if !is_possible {
            return Err(Error::NotSupported);
        }
        let (node, entries) = (self.edit(ino), decode(value));
        node.xattrs.insert(name(kind), Arc::new(value.to_vec()));
        if kind == AccessListKind::Access {
            node.mode = node.mode & !0o777 | shown(&entries);
            node.mode &= if clear_sgid { !0o2000 } else { !0 };
            if entries.len() == 3 {
                node.xattrs.remove(&name(kind));
            }
        }
        node.ctime = caller.now;
        Ok(())
    }
}
