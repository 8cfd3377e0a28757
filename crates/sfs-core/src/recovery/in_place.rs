//! Blocks in place that are taken: a writable mount finds them by a walk over all mappings.
//!
//! The usage table is compared, not trusted. A volume is not written to if two of its mappings
//! share a block, or if a mapping leads outside the in-place segments.

use super::components::Components;
use crate::Result;
use crate::format::{
    Corruption, CorruptionKind, ItemKind, Key, MappingRun, SegmentState, Structure,
};
use crate::metadata::{MetadataError, Txn};
use crate::request::OpenProgress;
use crate::segments::InPlaceAllocator;

/// Number of items that are examined under one hold of the metadata lock.
const ITEMS_PER_STEP: usize = 256;

impl Components {
    /// Marks every mapped block as taken in the allocator of blocks in place.
    pub(super) fn find_in_place_blocks(
        &self,
        progress: &mut dyn FnMut(OpenProgress),
    ) -> Result<()> {
        let places = InPlaceAllocator::new(self.superblock.data_layout(), self.superblock.layout());
        let Some(mut places) = places else { return Ok(()) };
        let total_blocks = self.in_place_blocks();
        let (mut found_blocks, mut from) = (0, Some(Key::new(1, ItemKind::Inode, 0)));
        while let Some(key) = from {
            let (addresses, next) = self.metadata.read_txn(|txn| mapped_from(txn, key))?;
            self.mark_places(&mut places, &addresses)?;
            found_blocks += addresses.len() as u64;
            progress(OpenProgress { found_blocks, total_blocks });
            from = next;
        }
        let begun = self.metadata.write().usage.attach_allocator(places);
        begun.map_err(|segment| Corruption::in_usage_entry(segment, CorruptionKind::Count).into())
    }

    /// Returns the number of live blocks in place according to the usage table.
    fn in_place_blocks(&self) -> u64 {
        let metadata = self.metadata.read();
        let entries =
            (0..self.superblock.layout().segment_count).map(|at| metadata.usage.entry(at));
        let in_place = entries.filter(|entry| entry.state == SegmentState::InPlace);
        in_place.map(|entry| u64::from(entry.live_blocks)).sum()
    }

    /// Marks `addresses`, neighbours together.
    fn mark_places(&self, places: &mut InPlaceAllocator, addresses: &[u64]) -> Result<()> {
        let metadata = self.metadata.read();
        let segment_of = |address: &u64| metadata.usage.segment_of(*address);
        let follows = |a: &u64, b: &u64| a + 1 == *b && segment_of(a) == segment_of(b);
        for run in addresses.chunk_by(follows) {
            let wrong = |kind| Corruption::in_block(Structure::Data, run[0], kind).into();
            let state = segment_of(&run[0]).map(|segment| metadata.usage.entry(segment).state);
            if state != Some(SegmentState::InPlace) {
                return Err(wrong(CorruptionKind::Dangling));
            }
            if !places.mark(run[0], run.len() as u32) {
                return Err(wrong(CorruptionKind::Count));
            }
        }
        Ok(())
    }
}

/// Returns the addresses mapped by the next items from `from` on, and the key to continue with.
fn mapped_from(
    txn: &Txn<'_>,
    from: Key,
) -> std::result::Result<(Vec<u64>, Option<Key>), MetadataError> {
    let mut addresses = Vec::new();
    for (count, item) in txn.tree().range(from..).enumerate() {
        let (key, value) = item?;
        if count == ITEMS_PER_STEP {
            return Ok((addresses, Some(key)));
        }
        if key.kind == ItemKind::Mapping as u8 {
            for (_, mapping) in MappingRun::decode(value, &key, txn.tolerance())?.iter(0) {
                if mapping.checksum.is_some() {
                    let kind = CorruptionKind::Value;
                    return Err(Corruption::in_block(Structure::Data, mapping.address, kind).into());
                }
                addresses.push(mapping.address);
            }
        }
    }
    Ok((addresses, None))
}
