//! The map of a file: where its blocks are on the device.
//!
//! The map is read in parts, each under one short hold of the metadata lock. A file that is written meanwhile may have
//! blocks at new places in later parts.

use super::Volume;
use crate::format::{
    FileKind, ItemKind, Key, Mapping, MappingRun, RUN_BLOCKS, Reservation, run_key,
};
use crate::metadata::{MetadataError, Txn, overlapping, run_base};
use crate::request::{BlockRun, FileBlocks, RunSegment};
use crate::{Error, Result};

/// Maximum number of mapping items, of 32 blocks each, and of reserved ranges that one part covers.
const ITEMS_MAX: usize = 64;

impl Volume {
    /// Returns the map of file `ino` from block `from` on, with up to `reserved_max` reserved ranges if `from` is 0.
    /// Blocks that are neither in a run nor reserved are holes, or inline. Data that is dirty in memory has
    /// the place of its last write, or none.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Invalid` if `ino` is no regular file; errors of the image and the device.
    pub fn file_blocks(&self, ino: u64, from: u32, reserved_max: usize) -> Result<FileBlocks> {
        let inode = self.attributes(ino)?;
        if inode.kind() != FileKind::Regular {
            return Err(Error::Invalid);
        }
        let dirty_blocks = self.inodes.find(ino).map_or(0, |file| file.data().dirty.len() as u64);
        let (mapped, next) = self.metadata.read_txn(|txn| mappings(txn, ino, from))?;
        let reserved = match from {
            0 => self.reserved_ranges(ino, reserved_max)?,
            _ => Vec::new(),
        };
        Ok(FileBlocks { inode, runs: self.runs_of(&mapped), reserved, dirty_blocks, next })
    }

    /// Returns the first `count_max` reserved ranges of `ino`.
    fn reserved_ranges(&self, ino: u64, count_max: usize) -> Result<Vec<Reservation>> {
        let mut ranges: Vec<Reservation> = Vec::new();
        while ranges.len() < count_max {
            let first = match ranges.last() {
                None => 0,
                Some(Reservation { last: u32::MAX, .. }) => break,
                Some(range) => range.last + 1,
            };
            let count = ITEMS_MAX.min(count_max - ranges.len());
            let part: Vec<Reservation> = self.metadata.read_txn(|txn| {
                overlapping(txn.tree(), ino, first..=u32::MAX).take(count).collect()
            })?;
            let is_last = part.len() < count;
            // In a damaged tree ranges may overlap; the search must end there, too.
            ranges.extend(part.into_iter().filter(|range| range.first >= first));
            if is_last || ranges.last().is_none_or(|range| range.last < first) {
                break;
            }
        }
        Ok(ranges)
    }

    /// Joins mappings, ascending by block, to runs within segments.
    fn runs_of(&self, mapped: &[(u32, Mapping)]) -> Vec<BlockRun> {
        let layout = self.superblock.layout();
        let follows = |a: &(u32, Mapping), b: &(u32, Mapping)| {
            a.0.checked_add(1) == Some(b.0)
                && a.1.address + 1 == b.1.address
                && layout.segment_of(a.1.address) == layout.segment_of(b.1.address)
        };
        let metadata = self.metadata.read();
        let segment = |address| {
            let number = layout.segment_of(address)?;
            let entry = metadata.usage.entries().get(number as usize)?;
            Some(RunSegment { number, head: entry.head, state: entry.state })
        };
        let run = |run: &[(u32, Mapping)]| {
            let (block, Mapping { address, .. }) = run[0];
            BlockRun { block, count: run.len() as u32, address, segment: segment(address) }
        };
        mapped.chunk_by(follows).map(run).collect()
    }
}

/// Mapped blocks of a file, ascending, and the first block after them; `None` at the end.
type MappedPart = (Vec<(u32, Mapping)>, Option<u32>);

/// Returns the mappings of `ino` in the first items from block `from` on.
fn mappings(txn: &Txn<'_>, ino: u64, from: u32) -> std::result::Result<MappedPart, MetadataError> {
    let last = Key::new(ino, ItemKind::Mapping, u64::MAX);
    let mut mapped = Vec::new();
    for (count, item) in txn.tree().range(run_key(ino, from)..=last).enumerate() {
        let (key, value) = item?;
        let base = run_base(&key)?;
        if count == ITEMS_MAX {
            return Ok((mapped, Some(base)));
        }
        let run = MappingRun::decode(value, &key, txn.tolerance())?;
        mapped.extend(run.iter(base).filter(|(block, _)| *block >= from));
    }
    Ok((mapped, None))
}

const _: () = assert!(ITEMS_MAX * RUN_BLOCKS as usize <= 2048, "a short hold of the lock");

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice};

    use super::*;
    use crate::fixture::{BLOCKS, CALLER, create, new_volume, put, write};
    use crate::request::{AllocateMode, Allocation};

    /// Returns the whole map of a file, as blocks with addresses.
    fn whole(volume: &Volume, ino: u64) -> Vec<(u32, u64)> {
        let (mut blocks, mut from) = (Vec::new(), Some(0));
        while let Some(first) = from {
            let part = volume.file_blocks(ino, first, 0).expect("a part");
            for run in &part.runs {
                blocks.extend((run.block..).zip(run.address..).take(run.count as usize));
            }
            from = part.next;
        }
        blocks
    }

    #[test]
    fn a_map_leads_to_the_content_on_the_device() {
        let device = Arc::new(RamDevice::new(BLOCKS * 4));
        let volume = crate::fixture::new_volume_of(
            device.clone(),
            BLOCKS * 4,
            crate::request::VolumeOptions::default(),
        );
        let file = create(&volume, "file");
        // Two holes, and more mapping items than a part has.
        for block in (0..3000).filter(|block| !(10..50).contains(block) && *block != 2222) {
            put(&volume, file, block, 1, block as u8).expect("there is room");
        }
        volume.sync_all().expect("a sync");
        put(&volume, file, 3, 2, 99).expect("there is room");
        volume.sync_all().expect("a sync");
        let blocks = whole(&volume, file);
        assert_eq!(blocks.len(), 3000 - 41);
        let mut memory = [Block([0; BLOCK_SIZE])];
        for (block, address) in blocks {
            device.read(address, &mut memory).expect("RAM");
            let expected = if (3..5).contains(&block) { 99 } else { block as u8 };
            assert!(memory[0].0.iter().all(|byte| *byte == expected), "block {block}");
        }
        let part = volume.file_blocks(file, 0, 0).expect("a part");
        let ends = |run: &BlockRun| (run.block, run.block + run.count);
        assert_eq!(part.runs[..3].iter().map(ends).collect::<Vec<_>>(), [(0, 3), (3, 5), (5, 10)]);
        assert!(part.runs.iter().all(|run| run.segment.is_some()));
    }

    #[test]
    fn reserved_ranges_inline_and_dirty_content_are_told_apart() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let (small, large) = (create(&volume, "small"), create(&volume, "large"));
        write(&volume, small, b"inline");
        volume.sync_all().expect("a sync");
        let map = volume.file_blocks(small, 0, 10).expect("a map");
        assert!(map.runs.is_empty() && map.dirty_blocks == 0);
        assert!(map.inode.flags.contains(crate::format::InodeFlags::INLINE));
        let allocation = Allocation {
            mode: AllocateMode::Reserve,
            keep_size: false,
            keep_times: false,
            kill_privileges: false,
        };
        for range in 0..3_u64 {
            let allocated = volume.allocate(large, (range * 40_960, 8192), &allocation, &CALLER);
            allocated.expect("there is room");
        }
        put(&volume, large, 0, 1, 1).expect("there is room");
        let map = volume.file_blocks(large, 0, 2).expect("a map");
        assert_eq!((map.dirty_blocks, map.runs.len()), (1, 0));
        let first = Reservation { first: 0, last: 1 };
        assert_eq!(map.reserved, [first, Reservation { first: 10, last: 11 }]);
        volume.sync_all().expect("a sync");
        let map = volume.file_blocks(large, 0, 9).expect("a map");
        assert_eq!((map.dirty_blocks, map.runs.len()), (0, 1));
        let firsts: Vec<u32> = map.reserved.iter().map(|range| range.first).collect();
        assert_eq!(firsts, [1, 10, 20]);
        let directory = volume.file_blocks(crate::format::ROOT_INO, 0, 0);
        assert!(matches!(directory, Err(Error::Invalid)));
        assert!(matches!(volume.file_blocks(999, 0, 0), Err(Error::NotFound)));
    }
}
