//! The audit: the usage table, counted again from the tree.
//!
//! Owns: the recount.
//! Promises: table and tree are compared in one state of the volume; nothing changes.
//! Never: believes the table.

use super::Volume;
use crate::Result;
use crate::format::{Corruption, CorruptionKind, ItemKind, Key, MappingRun};
use crate::meta::{Meta, MetadataError};
use crate::request::{Discrepancy, SegmentSums};

impl Volume {
    /// Recounts what lives in every segment; gives the segments of which the usage table says
    /// something else. The whole tree is in memory meanwhile. `Corrupt` if the table disagrees with
    /// itself.
    pub fn audit(&self) -> Result<Vec<Discrepancy>> {
        let _log = self.log.lock();
        let _keep = self.keep_nodes();
        self.load_tree()?;
        let mut failed = None;
        loop {
            let missing = {
                let meta = self.meta.read();
                if !meta.usage.is_coherent() {
                    return Err(Corruption::in_usage_entry(0, CorruptionKind::Count).into());
                }
                match self.count(&meta) {
                    Ok(counted) => return Ok(compare(&meta, counted)),
                    Err(MetadataError::NodeNotCached(missing)) => missing,
                    Err(MetadataError::Error(error)) => return Err(error),
                }
            };
            self.load(&missing, &mut failed)?;
        }
    }

    /// Brings every node into memory.
    fn load_tree(&self) -> Result<()> {
        let mut from = Key::MIN;
        while let Some(key) =
            self.consult(|txn| Ok(txn.tree().first_from(&from)?.map(|(key, _)| key)))?
        {
            from = key.next();
        }
        Ok(())
    }

    /// What the tree refers to, by segment.
    fn count(&self, meta: &Meta) -> std::result::Result<Vec<SegmentSums>, MetadataError> {
        let layout = &self.superblock.layout;
        let mut sums = vec![SegmentSums::default(); layout.segment_count as usize];
        for address in meta.tree.addresses()? {
            if let Some(segment) = layout.segment_of(address) {
                sums[segment as usize].live_blocks += 1;
            }
        }
        for item in meta.tree.range(..) {
            let (key, value) = item?;
            if key.kind == ItemKind::Mapping as u8 {
                for (_, mapping) in MappingRun::decode(value, &key, meta.tolerance)?.iter(0) {
                    let Some(segment) = layout.segment_of(mapping.address) else { continue };
                    let sums = &mut sums[segment as usize];
                    sums.live_blocks += 1;
                    sums.write_count_sum += u64::from(mapping.history.write_count());
                    sums.modified_sum += u64::from(mapping.history.modified);
                }
            }
        }
        Ok(sums)
    }
}

fn compare(meta: &Meta, counted: Vec<SegmentSums>) -> Vec<Discrepancy> {
    let table = meta.usage.entries().iter().map(|entry| SegmentSums {
        live_blocks: entry.live_blocks.into(),
        write_count_sum: entry.write_count_sum,
        modified_sum: entry.modified_sum,
    });
    let compared = (0u32..).zip(table.zip(counted));
    let differing = compared.filter(|(_, (table, counted))| table != counted);
    differing.map(|(segment, (table, counted))| Discrepancy { segment, table, counted }).collect()
}
