//! Audit: compares the usage table with a recount of the tree.
//!
//! The recount visits every node and every mapping under the locks of the log and of the metadata, so table and tree
//! are compared in one state of the volume. The audit changes nothing. Tests call the audit after each
//! scenario.

use super::Volume;
use crate::Result;
use crate::format::{
    Corruption, CorruptionKind, FileCount, ItemKind, Key, MappingRun, ROOT_INO, Reservation,
    ReservationTotals,
};
use crate::metadata::{Metadata, MetadataError};
use crate::request::{Discrepancy, SegmentSums};

impl Volume {
    /// Recounts the live blocks of every segment, and returns the segments for which the usage
    /// table has other sums. The whole tree is in memory during the recount. Fails with `Corrupt`
    /// if the usage table contradicts itself, or if the known number of files or the totals of the reservations are wrong.
    pub fn audit(&self) -> Result<Vec<Discrepancy>> {
        let _log = self.log.lock();
        let _pin = self.metadata.pin_nodes();
        self.load_tree()?;
        self.metadata.inspect(|metadata| {
            metadata.usage.check_coherence()?;
            let (sums, files, reserved) = self.count(metadata)?;
            let are_known = metadata.known_file_count().is_none_or(|known| known == files);
            if !are_known || metadata.reserved() != reserved {
                let kind = CorruptionKind::Count;
                return Err(Corruption::in_item(ROOT_INO, kind).into());
            }
            Ok(compare(metadata, sums))
        })
    }

    /// Loads every node of the tree.
    fn load_tree(&self) -> Result<()> {
        let mut from = Key::MIN;
        while let Some(key) =
            self.metadata.read_txn(|txn| Ok(txn.tree().first_from(&from)?.map(|(key, _)| key)))?
        {
            from = key.next();
        }
        Ok(())
    }

    /// Counts the blocks that the tree refers to, by segment: its nodes, and data blocks with their sums. Counts the
    /// inodes and the reservations as well.
    fn count(
        &self,
        metadata: &Metadata,
    ) -> std::result::Result<(Vec<SegmentSums>, FileCount, ReservationTotals), MetadataError> {
        let (mut files, mut reserved) = (0, ReservationTotals::default());
        let layout = &self.superblock.layout();
        let mut sums = vec![SegmentSums::default(); layout.segment_count as usize];
        for address in metadata.tree.addresses()? {
            if let Some(segment) = layout.segment_of(address) {
                sums[segment as usize].live_blocks += 1;
            }
        }
        for item in metadata.tree.range(..) {
            let (key, value) = item?;
            files += u64::from(key.kind == ItemKind::Inode as u8);
            if key.kind == ItemKind::Reservation as u8 {
                reserved.add(Reservation::decode(&key, value)?);
            }
            if key.kind == ItemKind::Mapping as u8 {
                for (_, mapping) in MappingRun::decode(value, &key, metadata.tolerance)?.iter(0) {
                    let Some(segment) = layout.segment_of(mapping.address) else { continue };
                    let sums = &mut sums[segment as usize];
                    sums.live_blocks += 1;
                    sums.write_count_sum += u64::from(mapping.history.write_count());
                    sums.modified_sum += u64::from(mapping.history.modified);
                }
            }
        }
        Ok((sums, FileCount(files), reserved))
    }
}

/// Returns the segments for which the usage table and `counted` differ.
fn compare(metadata: &Metadata, counted: Vec<SegmentSums>) -> Vec<Discrepancy> {
    let table = metadata.usage.entries().iter().map(|entry| SegmentSums {
        live_blocks: entry.live_blocks.into(),
        write_count_sum: entry.write_count_sum,
        modified_sum: entry.modified_sum,
    });
    let compared = (0u32..).zip(table.zip(counted));
    let differing = compared.filter(|(_, (table, counted))| table != counted);
    differing.map(|(segment, (table, counted))| Discrepancy { segment, table, counted }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use sfs_device::RamDevice;

    use crate::Error;
    use crate::fixture::{BLOCKS, create, new_volume};
    use crate::format::{Corruption, CorruptionKind};

    #[test]
    fn an_audit_names_the_segment_that_contradicts_the_table() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let mut metadata = volume.metadata.write();
        let segment = metadata.usage.clean().next().expect("a Clean segment");
        metadata.usage.forge(segment, |entry| entry.stamp += 1 << 20);
        drop(metadata);
        let expected = Corruption::in_usage_entry(segment + 1, CorruptionKind::Count);
        let outcome = volume.audit();
        assert!(matches!(outcome, Err(Error::Corrupt(found)) if found == expected), "{outcome:?}");
    }

    /// The recount of a large tree takes long, so readers must not wait for it.
    #[test]
    fn an_audit_does_not_exclude_readers() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        create(&volume, "file");
        assert_eq!(volume.audit().expect("the audit counts"), []);
        let (ended, end) = channel();
        std::thread::scope(|scope| {
            let reader = volume.metadata.read();
            scope.spawn(|| ended.send(volume.audit()));
            let outcome = end.recv_timeout(Duration::from_secs(10));
            drop(reader);
            assert_eq!(outcome.expect("the audit ends").expect("the audit counts"), []);
        });
    }
}
