//! Transactions: the reads and the changes of one operation, before anything takes effect.
//!
//! Reads see the changes of the same transaction, except where a method says otherwise. No change takes
//! effect until [`Metadata::apply`].

use super::access_times::AccessTimes;
use super::changes::Unmap;
use super::metadata_error::MetadataError;
use super::owners::{Owner, find_mapping, owners};
use super::state::{Effects, Metadata};
use crate::Error;
use crate::format::{Corruption, CorruptionKind};
use crate::format::{
    Inode, ItemKind, Key, Mapping, MappingRun, Tolerance, USAGE_PER_ITEM, VALUE_LEN_MAX,
};
use crate::tree::Tree;

/// Maximum number of mapping runs that one transaction changes, so that it holds the lock for a bounded time.
const UNMAP_RUNS_MAX: usize = 128;

/// Reads and changes of one operation.
pub(crate) struct Txn<'a> {
    tree: &'a Tree,
    tolerance: Tolerance,
    access_times: &'a AccessTimes,
    effects: Effects,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(metadata: &'a Metadata) -> Self {
        let effects = Effects { next_ino: metadata.next_ino, ..Effects::default() };
        let Metadata { tree, tolerance, access_times, .. } = metadata;
        Self { tree, tolerance: *tolerance, access_times, effects }
    }

    /// Returns the number that the next new inode gets.
    pub(crate) fn next_ino(&self) -> u64 {
        self.effects.next_ino
    }

    /// Declares that the transaction changes nothing but times of files.
    pub(crate) fn change_only_times(&mut self) {
        self.effects.are_only_times = true;
    }

    pub(crate) fn finish(self) -> Effects {
        self.effects
    }

    /// Returns the effects so far, to add to them.
    pub(super) fn effects_mut(&mut self) -> &mut Effects {
        &mut self.effects
    }

    /// Returns the tree without this transaction's changes.
    pub(crate) fn tree(&self) -> &'a Tree {
        self.tree
    }

    /// Returns the tolerance of structures of a newer program in the tree.
    pub(crate) fn tolerance(&self) -> Tolerance {
        self.tolerance
    }

    /// Returns the mapping of block `block` of `ino`, without this transaction's changes.
    pub(crate) fn mapping(&self, ino: u64, block: u32) -> Result<Option<Mapping>, MetadataError> {
        find_mapping(self.tree, self.tolerance, ino, block)
    }

    /// Returns the owners of a block, without this transaction's changes; see [`owners`].
    pub(crate) fn owners(
        &self,
        address: u64,
        named: (u64, u32),
    ) -> Result<Vec<Owner>, MetadataError> {
        owners(self.tree, self.tolerance, address, named)
    }

    /// Returns the run of mappings at `key`, without this transaction's changes.
    pub(crate) fn run(&self, key: &Key) -> Result<Option<MappingRun>, MetadataError> {
        let value = self.tree.get(key)?;
        Ok(value.map(|value| MappingRun::decode(value, key, self.tolerance)).transpose()?)
    }

    /// Returns the value of an item that is not a mapping.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<&[u8]>, MetadataError> {
        match self.effects.items.iter().rev().find(|(changed, _)| changed == key) {
            Some((_, value)) => Ok(value.as_deref()),
            None => Ok(self.tree.get(key)?),
        }
    }

    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        assert!(value.len() <= VALUE_LEN_MAX);
        self.effects.items.push((key, Some(value)));
    }

    pub(crate) fn delete(&mut self, key: Key) {
        self.effects.items.push((key, None));
    }

    /// Returns the attributes of `ino`, with a time of access that waits in memory.
    pub(crate) fn inode(&self, ino: u64) -> Result<Inode, MetadataError> {
        let value = self.get(&Key::inode(ino))?.ok_or(Error::NotFound)?;
        let mut inode = Inode::decode(value, ino, self.tolerance)?;
        let is_changed = || self.effects.items.iter().any(|(key, _)| *key == Key::inode(ino));
        if let Some(atime) = self.access_times.get(ino)
            && !is_changed()
        {
            inode.atime = atime;
        }
        Ok(inode)
    }

    pub(crate) fn put_inode(&mut self, ino: u64, inode: &Inode) {
        self.put(Key::inode(ino), inode.encode().to_vec());
    }

    /// Returns an inode number that no file ever had.
    pub(crate) fn new_ino(&mut self) -> u64 {
        let ino = self.effects.next_ino;
        self.effects.next_ino += 1;
        ino
    }

    /// Unmaps a bounded number of blocks of `ino` from `first` on, the last ones first. Returns the number of mappings
    /// removed, and whether none is left.
    pub(crate) fn unmap_from(
        &mut self,
        ino: u64,
        first: u32,
    ) -> Result<(u64, bool), MetadataError> {
        let mut end = Key::new(ino, ItemKind::Mapping, u64::MAX);
        let mut count = 0;
        let freed_before = self.effects.freed.len();
        while count < UNMAP_RUNS_MAX {
            let Some(base) = self.unmap_last_run(ino, first, &end)? else { break };
            end = Key::new(ino, ItemKind::Mapping, base);
            count += 1;
        }
        let freed = (self.effects.freed.len() - freed_before) as u64;
        Ok((freed, count < UNMAP_RUNS_MAX))
    }

    /// Returns whether block `first` of `ino`, or a later one, is mapped.
    pub(crate) fn is_mapped_from(&self, ino: u64, first: u32) -> Result<bool, MetadataError> {
        let end = Key::new(ino, ItemKind::Mapping, u64::MAX);
        let last = self.last_run(ino, first, &end)?;
        Ok(last.is_some_and(|(_, base, run)| run.iter(base).any(|(block, _)| block >= first)))
    }

    /// Returns the last run of `ino` before `end` that may map block `first` or a later one, and the first block of
    /// the run.
    fn last_run(
        &self,
        ino: u64,
        first: u32,
        end: &Key,
    ) -> Result<Option<(Key, u32, MappingRun)>, MetadataError> {
        let least = Key::new(ino, ItemKind::Mapping, u64::from(first / crate::format::RUN_BLOCKS));
        let last = self.tree.last_before(end)?.filter(|(key, _)| *key >= least);
        let Some((key, value)) = last else { return Ok(None) };
        let run = MappingRun::decode(value, &key, self.tolerance)?;
        Ok(Some((key, run_base(&key)?, run)))
    }

    /// Unmaps the blocks from `first` on in the last run of `ino` before `end`, and returns the offset of the run.
    fn unmap_last_run(
        &mut self,
        ino: u64,
        first: u32,
        end: &Key,
    ) -> Result<Option<u64>, MetadataError> {
        let Some((key, base, mut run)) = self.last_run(ino, first, end)? else { return Ok(None) };
        let gone: Vec<(u32, Mapping)> =
            run.iter(base).filter(|(block, _)| *block >= first).collect();
        let Some(((low, _), (high, _))) = gone.first().copied().zip(gone.last().copied()) else {
            return Ok(None);
        };
        for (block, mapping) in &gone {
            run.set(*block, None);
            self.effects.freed.push(*mapping);
        }
        let value = (!run.is_empty()).then(|| {
            let mut value = Vec::new();
            run.encode(&mut value);
            value
        });
        self.effects.runs.push((key, value));
        self.effects.unmaps.push(Unmap { ino, first: low, last: high });
        Ok(Some(key.offset))
    }
}

/// Returns the first block of the run at `key`.
pub(crate) fn run_base(key: &Key) -> Result<u32, Corruption> {
    u32::try_from(key.offset)
        .ok()
        .and_then(|offset| offset.checked_mul(crate::format::RUN_BLOCKS))
        .ok_or(Corruption::in_item(key.ino, CorruptionKind::Value))
}

const _: () = assert!(USAGE_PER_ITEM as usize * 40 <= VALUE_LEN_MAX);
