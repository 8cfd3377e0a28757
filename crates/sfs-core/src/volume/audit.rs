//! Audit: compares the usage table with a recount of the tree.
//!
//! The recount visits every node and every mapping under the locks of the log and of the metadata, so table and tree
//! are compared in one state of the volume. Nothing is changed. Tests call the audit after each scenario.

use super::Volume;
use crate::Result;
use crate::format::{Corruption, CorruptionKind, ItemKind, Key, MappingRun, Structure};
use crate::meta::{Meta, MetadataError};
use crate::request::{Discrepancy, SegmentSums};

impl Volume {
    /// Recounts the live blocks of every segment, and returns the segments for which the usage table has other sums.
    /// The whole tree is in memory meanwhile. `Corrupt` if the usage table contradicts itself.
    pub fn audit(&self) -> Result<Vec<Discrepancy>> {
        let _log = self.log.lock();
        let _keep = self.keep_nodes();
        self.load_tree()?;
        let mut failed = None;
        loop {
            let missing = {
                let meta = self.meta.read();
                if !meta.usage.is_coherent() {
                    return Err(Corruption::new(Structure::Usage, 0, CorruptionKind::Count).into());
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

    /// Loads every node of the tree.
    fn load_tree(&self) -> Result<()> {
        let mut from = Key::MIN;
        while let Some(key) =
            self.consult(|txn| Ok(txn.tree().first_from(&from)?.map(|(key, _)| key)))?
        {
            from = key.next();
        }
        Ok(())
    }

    /// Counts the blocks that the tree refers to, by segment: its nodes, and data blocks with their sums.
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

/// Returns the segments for which the usage table and `counted` differ.
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
