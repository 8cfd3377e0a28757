//! Finding what is free in Placed segments, and waiting for it.
//!
//! Owns: the walk over all mappings with which a mount for writing begins.
//! Promises: a volume of which two mappings share a block, or lead to where no data is placed, is not
//! written to.
//! Never: believes the usage table: it is compared.

use super::Volume;
use super::commit::Request;
use super::space::unless_full;
use super::txn::Txn;
use crate::Result;
use crate::format::{
    Corruption, CorruptionKind, ItemKind, Key, MappingRun, SegmentState, Structure,
};
use crate::log::Log;
use crate::segments::InPlaceAllocator;

/// Items that are looked at before others may have the metadata.
const ITEMS_PER_STEP: usize = 256;

impl Volume {
    /// Marks every block that is mapped as taken.
    pub(super) fn find_places(&self) -> Result<()> {
        let places = InPlaceAllocator::new(self.superblock.data_layout, self.superblock.layout);
        let Some(mut places) = places.filter(|_| !self.options.read_only) else { return Ok(()) };
        let mut from = Some(Key::new(1, ItemKind::Inode, 0));
        while let Some(key) = from {
            let (addresses, next) = self.consult(|txn| mapped_from(txn, key))?;
            self.mark_places(&mut places, &addresses)?;
            from = next;
        }
        let begun = self.meta.write().usage.attach_allocator(places);
        begun.map_err(|segment| Corruption::in_usage_entry(segment, CorruptionKind::Count).into())
    }

    /// Marks `addresses`, neighbours together.
    fn mark_places(&self, places: &mut InPlaceAllocator, addresses: &[u64]) -> Result<()> {
        let meta = self.meta.read();
        let segment_of = |address: &u64| meta.usage.segment_of(*address);
        let follows = |a: &u64, b: &u64| a + 1 == *b && segment_of(a) == segment_of(b);
        for run in addresses.chunk_by(follows) {
            let wrong = |kind| Corruption::in_block(Structure::Data, run[0], kind).into();
            let state = segment_of(&run[0]).map(|segment| meta.usage.entry(segment).state);
            if state != Some(SegmentState::InPlace) {
                return Err(wrong(CorruptionKind::Dangling));
            }
            if !places.mark(run[0], run.len() as u32) {
                return Err(wrong(CorruptionKind::Count));
            }
        }
        Ok(())
    }

    /// Makes durable what was freed, so that it can be used again; says whether there was any.
    pub(super) fn free_durably(&self, log: &mut Log) -> Result<bool> {
        if !self.meta.read().usage.has_pending_frees() {
            return Ok(false);
        }
        unless_full(self.commit_some(log, &Request::release()).map(drop))?;
        self.flush(log)?;
        self.meta.write().usage.apply_durable_frees(log.flushed);
        Ok(!self.meta.read().usage.has_pending_frees())
    }
}

/// Addresses in the next items from `from` on, and where it goes on.
fn mapped_from(
    txn: &Txn<'_>,
    from: Key,
) -> std::result::Result<(Vec<u64>, Option<Key>), crate::meta::MetadataError> {
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
