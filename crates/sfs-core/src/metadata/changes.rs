//! Changes of the metadata since the last delta, and their encoding.
//!
//! The changes are net effects: an item that changed twice is encoded once, as the tree has it. Values stay in the tree,
//! whose changed leaves are dirty and therefore in memory.

use rustc_hash::FxHashMap;

use crate::format::{Change, Key};
use crate::mutant::{Mutant, mutated};
use crate::tree::Tree;

/// Length of an encoded [`Change::Unmap`] in bytes.
const UNMAP_LEN: usize = Change::HEADER_LEN + 16;

/// Blocks of a file that were unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmap {
    pub(crate) ino: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// Changes that the next delta will encode.
pub(super) struct PendingChanges {
    /// Items that changed; `true` if the item still exists.
    items: FxHashMap<Key, bool>,
    /// Blocks that were unmapped, in order.
    unmaps: Vec<Unmap>,
    /// Next inode number in the last delta.
    encoded_next_ino: u64,
    /// `true` if a change concerns more than times of files.
    has_more_than_times: bool,
}

impl PendingChanges {
    /// Returns an empty set of changes, after a delta with the next inode number `next_ino`.
    pub(super) fn new(next_ino: u64) -> Self {
        Self {
            items: FxHashMap::default(),
            unmaps: Vec::new(),
            encoded_next_ino: next_ino,
            has_more_than_times: false,
        }
    }

    /// Notes that an item was set if `exists`, or removed.
    pub(super) fn note_item(&mut self, key: Key, exists: bool) {
        self.items.insert(key, exists);
    }

    /// Notes that blocks were unmapped. A range right before the last one is joined with it.
    pub(super) fn note_unmap(&mut self, unmap: Unmap) {
        if mutated(Mutant::UnmapForgotten) {
            return;
        }
        match self.unmaps.last_mut() {
            Some(last)
                if last.ino == unmap.ino && unmap.last.checked_add(1) == Some(last.first) =>
            {
                last.first = unmap.first;
            }
            _ => self.unmaps.push(unmap),
        }
    }

    /// Notes that a change concerns more than times of files.
    pub(super) fn note_more_than_times(&mut self) {
        self.has_more_than_times = true;
    }

    /// Returns whether a change concerns more than times of files.
    pub(super) fn has_more_than_times(&self) -> bool {
        self.has_more_than_times
    }

    /// Returns the number of changed items and unmapped ranges.
    pub(super) fn count(&self) -> usize {
        self.items.len() + self.unmaps.len()
    }

    /// Returns whether `next_ino` differs from the next inode number in the last delta.
    pub(super) fn has_next_ino(&self, next_ino: u64) -> bool {
        next_ino != self.encoded_next_ino
    }

    /// Returns the length of [`PendingChanges::encode`] in bytes, without encoding.
    pub(super) fn encoded_len(&self, tree: &Tree, next_ino: u64) -> usize {
        let item_len = |(key, exists): (&Key, &bool)| {
            if !exists {
                return Change::HEADER_LEN + Key::LEN;
            }
            let value = tree.get(key).expect("a changed item is in memory");
            Change::HEADER_LEN + Key::LEN + size_of::<u64>() + value.map_or(0, <[u8]>::len)
        };
        let next_ino =
            usize::from(self.has_next_ino(next_ino)) * (Change::HEADER_LEN + size_of::<u64>());
        next_ino + self.unmaps.len() * UNMAP_LEN + self.items.iter().map(item_len).sum::<usize>()
    }

    /// Encodes the changes, with the values of `tree`. Items are in the order of their keys.
    pub(super) fn encode(&self, tree: &Tree, next_ino: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.has_next_ino(next_ino) && !mutated(Mutant::NextInoUnsaid) {
            Change::NextIno(next_ino).append(&mut bytes);
        }
        for unmap in &self.unmaps {
            let Unmap { ino, first, last } = *unmap;
            Change::Unmap { ino, first, last }.append(&mut bytes);
        }
        let mut items: Vec<(&Key, &bool)> = self.items.iter().collect();
        items.sort_unstable();
        for (key, exists) in items {
            let change = if *exists {
                // The leaf has been dirty since the item was put there, and dirty nodes stay in memory.
                let value = tree.get(key).expect("a changed item is in memory");
                let value = value.expect("a changed item is in the tree").to_vec();
                Change::Put { key: key.encode(), value }
            } else {
                Change::Delete { key: key.encode() }
            };
            change.append(&mut bytes);
        }
        bytes
    }

    /// Notes that a delta has encoded the next inode number `next_ino`.
    pub(super) fn set_encoded(&mut self, next_ino: u64) {
        self.encoded_next_ino = next_ino;
    }

    /// Forgets the changes that a delta or a checkpoint has encoded, with the next inode number `next_ino`.
    pub(super) fn clear(&mut self, next_ino: u64) {
        self.items.clear();
        self.has_more_than_times = false;
        if !mutated(Mutant::UnmapRepeated) {
            self.unmaps.clear();
        }
        self.set_encoded(next_ino);
    }
}
