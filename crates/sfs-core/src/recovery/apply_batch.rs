//! Application of a whole batch that roll-forward has found: unmaps, items, mappings, releases.
//!
//! The steps follow the order of a commit. A step that meets a node which is not cached changes nothing and is done
//! again once the node is loaded.

use sfs_device::BLOCK_SIZE;

use super::components::Components;
use crate::Result;
use crate::format::{
    Change, ChunkSummary, Corruption, CorruptionKind, Inode, ItemKind, Key, Mapping, MappingRun,
    RUN_BLOCKS, Reservation, Structure, SummaryEntry, run_key,
};
use crate::metadata::{Metadata, MetadataError, run_base};
use crate::mutant::{Mutant, mutated};

impl Components {
    /// Applies the changes of a batch whose first chunk has number `sequence`.
    pub(super) fn apply_batch(&self, batch: &[ChunkSummary], sequence: u64) -> Result<()> {
        let at = batch.first().map_or(0, |chunk| chunk.header.address);
        let changes = Change::decode_batch(batch)?;
        if !Change::are_sound(&changes, self.superblock.opened()) {
            return Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Value).into());
        }
        for change in &changes {
            if let Change::Unmap { ino, first, last } = *change {
                self.unmap(ino, first, last, sequence)?;
            }
        }
        let (mut released, mut maps) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Map { .. } => maps.push(change),
                Change::Release { segment, stamp } => released.push((segment, stamp)),
                change => self.apply_change(change)?,
            }
        }
        for chunk in batch {
            self.metadata.write().usage.clock.catch_up(chunk.header.time);
            self.apply_mappings(chunk, sequence)?;
        }
        for map in maps {
            self.apply_map(&map, at, sequence)?;
        }
        let usage = &mut self.metadata.write().usage;
        usage.settle_sealed(sequence);
        match released.iter().all(|(segment, stamp)| usage.replay_release(*segment, *stamp)) {
            true => Ok(()),
            false => Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Value).into()),
        }
    }

    fn apply_change(&self, change: Change) -> Result<()> {
        let (key, value) = match change {
            Change::Unmap { .. } | Change::Release { .. } | Change::Map { .. } => return Ok(()),
            Change::NextIno(next) => {
                let mut metadata = self.metadata.write();
                metadata.restore_next_ino(next);
                return Ok(());
            }
            Change::Put { key, value } => (Key::decode(&key), Some(value)),
            Change::Delete { key } => (Key::decode(&key), None),
        };
        if mutated(Mutant::ReservationExposed)
            && let Some(range) =
                value.as_deref().and_then(|value| Reservation::decode(&key, value).ok())
            && key.kind == ItemKind::Reservation as u8
        {
            self.expose(&key, range)?;
        }
        self.recover(|metadata| Ok(metadata.replay_item(&key, value.as_deref())?))
    }

    /// Makes a file as long as `range`: a deliberate bug.
    fn expose(&self, key: &Key, range: Reservation) -> Result<()> {
        self.recover(|metadata| {
            let key = Key::inode(key.ino);
            let Some(value) = metadata.tree.get(&key)? else { return Ok(()) };
            let mut inode = Inode::decode(value, key.ino, metadata.tolerance)?;
            inode.size = inode.size.max((u64::from(range.last) + 1) * BLOCK_SIZE as u64);
            Ok(metadata.replay_item(&key, Some(&inode.encode()))?)
        })
    }

    fn apply_mappings(&self, chunk: &ChunkSummary, sequence: u64) -> Result<()> {
        let first = chunk.header.address + chunk.summary_blocks() as u64;
        let data: Vec<(u64, u32, Mapping)> = (first..)
            .zip(&chunk.entries)
            .filter_map(|(address, entry)| match *entry {
                SummaryEntry::Data { ino, block, checksum, history } => {
                    Some((ino, block, Mapping { address, checksum: Some(checksum), history }))
                }
                SummaryEntry::Node { .. } => None,
            })
            .collect();
        self.map_found(&data, sequence)
    }

    /// Maps blocks in place.
    fn apply_map(&self, map: &Change, at: u64, sequence: u64) -> Result<()> {
        let Change::Map { ino, block, count, address } = *map else { return Ok(()) };
        let segment = map.mapped_segment(&self.superblock.layout());
        if !segment.is_some_and(|at| self.metadata.write().usage.replay_in_place(at, sequence)) {
            return Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Value).into());
        }
        let placed =
            (0..count).map(|n| (ino, block + n, Mapping::in_place(address + u64::from(n))));
        self.map_found(&placed.collect::<Vec<_>>(), sequence)?;
        self.wear.add_recovered_in_place(count.into());
        // Other deltas may have mapped blocks of the same segment.
        let live = segment.map_or(0, |at| self.metadata.read().usage.entry(at).live_blocks);
        match live <= self.superblock.layout().segment_blocks {
            true => Ok(()),
            false => Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Count).into()),
        }
    }

    /// Maps blocks, each with its inode number and block number.
    fn map_found(&self, data: &[(u64, u32, Mapping)], sequence: u64) -> Result<()> {
        for run in data.chunk_by(|a, b| run_key(a.0, a.1) == run_key(b.0, b.1)) {
            let ino = run[0].0;
            let blocks: Vec<(u32, Mapping)> = run.iter().map(|(_, b, m)| (*b, *m)).collect();
            self.recover(|metadata| {
                metadata.tree.prepare(&run_key(ino, blocks[0].0))?;
                Ok(metadata.map_run(ino, &blocks, sequence)?)
            })?;
        }
        Ok(())
    }

    /// Unmaps `first..=last` of `ino`.
    fn unmap(&self, ino: u64, first: u32, last: u32, sequence: u64) -> Result<()> {
        let mut end = Key::new(ino, ItemKind::Mapping, u64::from(last / RUN_BLOCKS) + 1);
        loop {
            let next = self.recover(|metadata| {
                let Some((key, value)) = metadata.tree.last_before(&end)? else { return Ok(None) };
                if key < run_key(ino, first) {
                    return Ok(None);
                }
                let mut run = MappingRun::decode(value, &key, metadata.tolerance)?;
                let base = run_base(&key)?;
                let gone: Vec<(u32, Mapping)> =
                    run.iter(base).filter(|(block, _)| (first..=last).contains(block)).collect();
                for (block, _) in &gone {
                    run.set(*block, None);
                }
                if run.is_empty() {
                    metadata.tree.remove(&key)?;
                } else {
                    let mut value = Vec::new();
                    run.encode(&mut value);
                    metadata.tree.put(&key, &value)?;
                }
                gone.iter().for_each(|(_, mapping)| metadata.unmap_block(mapping, sequence));
                Ok(Some(key))
            })?;
            match next {
                Some(key) => end = key,
                None => return Ok(()),
            }
        }
    }

    /// Does one step of roll-forward, which changes nothing when a node is not cached.
    fn recover<T>(
        &self,
        mut step: impl FnMut(&mut Metadata) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        self.metadata.update(|metadata| {
            let outcome = step(metadata);
            metadata.tree.prune();
            outcome
        })
    }
}
