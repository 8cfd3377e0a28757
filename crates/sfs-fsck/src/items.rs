//! The items of a tree, in memory.
//!
//! Owns: the map, and the changes that roll-forward makes to mappings.
//! Promises: ascending iteration.
//! Never: checks values, except for those that it must change.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use sfs_core::format::{Corruption, ItemKind, Key, Mapping, MappingRun, RUN_BLOCKS, run_key};

/// Items by key.
#[derive(Default)]
pub(crate) struct Items(BTreeMap<Key, Box<[u8]>>);

impl Items {
    pub(crate) fn put(&mut self, key: Key, value: Box<[u8]>) {
        self.0.insert(key, value);
    }

    pub(crate) fn delete(&mut self, key: &Key) {
        self.0.remove(key);
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&[u8]> {
        self.0.get(key).map(|value| &**value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &[u8])> {
        self.0.iter().map(|(key, value)| (key, &**value))
    }

    /// The items of one kind of `ino`.
    pub(crate) fn of(&self, ino: u64, kind: ItemKind) -> impl Iterator<Item = (&Key, &[u8])> {
        let range = Key::new(ino, kind, 0)..=Key::new(ino, kind, u64::MAX);
        self.0.range(range).map(|(key, value)| (key, &**value))
    }

    /// Forgets the mappings of `blocks` of `ino`.
    pub(crate) fn unmap(
        &mut self,
        ino: u64,
        blocks: RangeInclusive<u32>,
    ) -> Result<(), Corruption> {
        if blocks.is_empty() {
            return Ok(());
        }
        let (first, last) = (run_key(ino, *blocks.start()), run_key(ino, *blocks.end()));
        let keys: Vec<Key> = self.0.range(first..=last).map(|(key, _)| *key).collect();
        for key in keys {
            let run_first = key.offset as u32 * RUN_BLOCKS;
            self.change_run(key, |run| {
                for block in run_first..=run_first + (RUN_BLOCKS - 1) {
                    if blocks.contains(&block) {
                        run.set(block, None);
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Maps `block` of `ino`.
    pub(crate) fn map(&mut self, ino: u64, block: u32, mapping: Mapping) -> Result<(), Corruption> {
        self.change_run(run_key(ino, block), |run| {
            run.set(block, Some(mapping));
        })
    }

    fn change_run(
        &mut self,
        key: Key,
        change: impl FnOnce(&mut MappingRun),
    ) -> Result<(), Corruption> {
        let mut run = match self.0.get(&key) {
            Some(value) => MappingRun::decode(value, &key)?,
            None => MappingRun::default(),
        };
        change(&mut run);
        if run.is_empty() {
            self.0.remove(&key);
        } else {
            let mut value = Vec::new();
            run.encode(&mut value);
            self.0.insert(key, value.into());
        }
        Ok(())
    }
}
