//! Histories of writes, over all files: which files and which parts of them are written most.
//!
//! The tree remembers for each file how many blocks were written to it, and for each block its own count and the time of its
//! last write, on the write clock. One step reads the items of one leaf.

use super::Volume;
use crate::Error;
use crate::format::{FileKind, Inode, ItemKind, Key, MappingRun, Tolerance};
use crate::metadata::run_base;
use crate::request::{HistoryStep, WriteHistory, WriteTime};

impl Volume {
    /// Calls `visit` with the histories in the leaf of `from`, from that key on. [`Key::MIN`] begins. A file whose item cannot be
    /// decoded is left out.
    pub fn write_histories(&self, from: &Key, visit: &mut dyn FnMut(WriteHistory)) -> HistoryStep {
        let scanned = match self.metadata.scan_leaf(from) {
            Ok(scanned) => scanned,
            Err(unreadable) => {
                // The bounds of a damaged node may be wrong.
                let next = unreadable.node.keys.and_then(|keys| keys.end).filter(|end| end > from);
                return HistoryStep { next, is_damaged: true };
            }
        };
        let tolerance = self.superblock.tolerance();
        let mut is_damaged = false;
        for (key, value) in scanned.leaf.items().filter(|(key, _)| key >= from) {
            match history_of(&key, value, tolerance) {
                Ok(history) => history.into_iter().for_each(&mut *visit),
                Err(_) => is_damaged = true,
            }
        }
        HistoryStep { next: scanned.path.end(), is_damaged }
    }

    /// Returns the time on the write clock.
    pub fn write_time(&self) -> WriteTime {
        let ticks = self.metadata.read().usage.clock.now();
        WriteTime { ticks, tick_blocks: 1 << self.superblock.opened().tick_shift }
    }
}

/// Returns the history in an item, if it has one.
fn history_of(
    key: &Key,
    value: &[u8],
    tolerance: Tolerance,
) -> Result<Option<WriteHistory>, Error> {
    let ino = key.ino;
    match ItemKind::decode(key.kind) {
        Some(ItemKind::Inode) => {
            let inode = Inode::decode(value, ino, tolerance)?;
            let Inode { write_count, modified, size, .. } = inode;
            let file = WriteHistory::File { ino, write_count, modified, size };
            Ok((inode.kind() == FileKind::Regular && write_count > 0).then_some(file))
        }
        Some(ItemKind::Mapping) => {
            let (block, run) = (run_base(key)?, MappingRun::decode(value, key, tolerance)?);
            let (mut mapped, mut write_count_sum, mut modified_sum) = (0, 0, 0);
            for (_, mapping) in run.iter(block).filter(|(_, mapping)| mapping.checksum.is_some()) {
                mapped += 1;
                write_count_sum += u64::from(mapping.history.write_count());
                modified_sum += u64::from(mapping.history.modified);
            }
            let range = WriteHistory::Range { ino, block, mapped, write_count_sum, modified_sum };
            Ok((mapped > 0).then_some(range))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use sfs_device::RamDevice;

    use super::*;
    use crate::fixture::{BLOCKS, create, new_volume_of, put};
    use crate::request::VolumeOptions;

    /// Files and 32-block ranges with known numbers of writes.
    #[test]
    fn histories_agree_with_a_known_load() {
        let options = VolumeOptions { grouping: "sfs-fast12".into(), ..VolumeOptions::default() };
        let blocks = BLOCKS * 4;
        let volume = new_volume_of(Arc::new(RamDevice::new(blocks)), blocks, options);
        let files: Vec<u64> = (0..40).map(|n| create(&volume, &format!("file-{n}"))).collect();
        for round in 0..5_u64 {
            for (n, file) in (0..).zip(&files) {
                // File n is written whole n % 5 + 1 times; its block 33 in every round.
                if round <= n % 5 {
                    put(&volume, *file, 0, 40, 1).expect("there is room");
                } else {
                    put(&volume, *file, 33, 1, 1).expect("there is room");
                }
            }
            volume.sync_all().expect("a sync");
        }
        let (mut counts, mut ranges) = (BTreeMap::new(), BTreeMap::new());
        let (mut from, mut steps) = (Some(Key::MIN), 0);
        while let Some(key) = from {
            let step = volume.write_histories(&key, &mut |history| match history {
                WriteHistory::File { ino, write_count, .. } => {
                    assert!(counts.insert(ino, write_count).is_none());
                }
                WriteHistory::Range { ino, block, mapped, write_count_sum, .. } => {
                    assert!(ranges.insert((ino, block), (mapped, write_count_sum)).is_none());
                }
            });
            assert!(!step.is_damaged);
            (from, steps) = (step.next, steps + 1);
        }
        assert!(steps > 5, "several leaves");
        assert_eq!((counts.len(), ranges.len()), (40, 80));
        for (n, file) in (0..).zip(&files) {
            let whole = n % 5 + 1;
            assert_eq!(counts[file], whole * 40 + (5 - whole), "file {n}");
            assert_eq!(ranges[&(*file, 0)], (32, 32 * whole), "file {n}");
            assert_eq!(ranges[&(*file, 32)], (8, 7 * whole + 5), "file {n}");
        }
        let WriteTime { ticks, tick_blocks } = volume.write_time();
        let written: u64 = counts.values().sum();
        assert_eq!(u64::from(ticks), written / tick_blocks);
    }
}
