//! Defragmentation: putting the blocks of a file in order on the device, while the volume is used.

use super::Volume;
use crate::format::{DataLayout, FileKind};
use crate::request::DefragmentedPart;
use crate::{Error, Result};

impl Volume {
    /// Puts the blocks of file `ino` from block `from` on in order, within their groups: looks at the next windows of
    /// 4 MiB, and moves the first one that reading finds out of order, in batches within [`Volume::bound_batches`]. A block
    /// keeps its history, and one that is overwritten meanwhile stays as it was written. From block 0 on, dirty data of the
    /// file is committed first.
    ///
    /// `goes_on` is asked before each step of reading up to 1 MiB, and may pause; if it returns `false`, the part ends before
    /// the window that was begun.
    ///
    /// # Errors
    ///
    /// `NotSupported` on a volume that overwrites data in place, where blocks stay where they were first written;
    /// `NotFound`; `Invalid` if `ino` is no regular file; `NoSpace` if the volume has no room to move a window;
    /// `ReadOnly` or `Stopped` if nothing may be written; otherwise the errors of reading and of a commit.
    pub fn defragment(
        &self,
        ino: u64,
        from: u32,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<DefragmentedPart> {
        self.health.check_writable()?;
        if self.superblock.data_layout() != DataLayout::Log {
            return Err(Error::NotSupported);
        }
        if self.attributes(ino)?.kind() != FileKind::Regular {
            return Err(Error::Invalid);
        }
        self.superblocks.after(self.space.defragment(ino, from, goes_on, &mut 0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::RamDevice;

    use super::*;
    use crate::fixture::{BLOCKS, NOW, create, new_placed, new_volume, new_volume_of, put};
    use crate::format::{Mapping, ROOT_INO};
    use crate::request::VolumeOptions;

    const COUNT: u32 = 600;

    /// Puts the whole file in order, and returns the sum of its parts.
    fn defragment(volume: &Volume, ino: u64) -> DefragmentedPart {
        let (mut sum, mut next) = (DefragmentedPart::default(), Some(0));
        while let Some(from) = next {
            let part = volume.defragment(ino, from, &mut || true).expect("a part");
            sum.blocks += part.blocks;
            sum.moved_blocks += part.moved_blocks;
            sum.requests_before += part.requests_before;
            sum.requests_after += part.requests_after;
            next = part.next;
            assert!(next.is_none_or(|next| next > from));
        }
        sum
    }

    /// Makes a file whose blocks were overwritten one by one, in no order.
    fn scattered(volume: &Volume, count: u32) -> u64 {
        let file = create(volume, "file");
        put(volume, file, 0, count as usize, 1).expect("there is room");
        for no in 0..count {
            let block = u64::from(no * 37 % count);
            put(volume, file, block, 1, block as u8).expect("there is room");
            if no % 8 == 7 {
                volume.sync_all().expect("a sync");
                while volume.work(NOW).expect("work") == crate::request::Work::More {}
            }
        }
        file
    }

    fn mappings(volume: &Volume, ino: u64) -> Vec<Mapping> {
        let mapping = |block| {
            let found = volume.metadata.read_txn(|txn| txn.mapping(ino, block));
            found.expect("a sound tree").expect("a mapped block")
        };
        (0..COUNT).map(mapping).collect()
    }

    #[test]
    fn a_file_that_was_overwritten_at_random_is_put_in_order_within_its_groups() {
        for grouping in ["none", "sfs", "dac"] {
            let blocks = BLOCKS * 2;
            let options = VolumeOptions { grouping: grouping.into(), ..VolumeOptions::default() };
            let volume = new_volume_of(Arc::new(RamDevice::new(blocks)), blocks, options);
            let file = scattered(&volume, COUNT);
            let (counters, before) = (volume.counters(), mappings(&volume, file));
            let group =
                |mapping: &Mapping| volume.metadata.read().group_of(mapping).expect("a group");
            let groups: Vec<_> = before.iter().map(group).collect();
            let sum = defragment(&volume, file);
            assert_eq!(volume.counters().cleaning_bytes, counters.cleaning_bytes, "there is room");
            assert_eq!(sum.blocks, u64::from(COUNT));
            assert!(sum.moved_blocks >= 500, "{grouping}: {sum:?}");
            assert!(sum.requests_after < sum.requests_before, "{grouping}: {sum:?}");
            let after = mappings(&volume, file);
            for (block, (old, new)) in before.iter().zip(&after).enumerate() {
                assert_eq!(
                    (old.history, old.checksum),
                    (new.history, new.checksum),
                    "{grouping}: {block}"
                );
                let is_in_use = volume.metadata.read().grouping.is_in_use(groups[block]);
                assert!(groups[block] == group(new) || !is_in_use, "{grouping}: block {block}");
            }
            let moved = volume.counters().defragmentation_bytes - counters.defragmentation_bytes;
            assert_eq!(moved, sum.moved_blocks * 4096);
            // Blocks of groups that went out of use were joined with others: fewer requests are possible now.
            let again = defragment(&volume, file);
            assert!(again.moved_blocks * 4 < sum.moved_blocks, "{grouping}: {again:?}");
            let last = defragment(&volume, file);
            assert_eq!((last.moved_blocks, last.requests_before), (0, again.requests_after));
            for block in 0..u64::from(COUNT) {
                let content = volume.read(file, block * 4096, 4096).expect("the file reads");
                assert!(content.as_bytes().iter().all(|byte| *byte == block as u8));
            }
            assert_eq!(volume.audit().expect("the audit counts"), []);
        }
    }

    /// A user's block wins over its move, whether it is dirty or written by the time of the commit.
    #[test]
    fn a_block_that_is_overwritten_meanwhile_stays_overwritten() {
        for syncs in [false, true] {
            let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
            let file = scattered(&volume, COUNT);
            let (mut from, mut step) = (Some(0), 0);
            let mut overwritten = std::collections::BTreeSet::new();
            while let Some(at) = from {
                let mut goes_on = || {
                    step += 1;
                    let block = u64::from(at) + step % 7;
                    overwritten.insert(block);
                    put(&volume, file, block, 1, 99).expect("there is room");
                    if syncs {
                        volume.sync_all().expect("a sync");
                    }
                    true
                };
                from = volume.defragment(file, at, &mut goes_on).expect("a part").next;
            }
            assert!(step > 3);
            volume.sync_all().expect("a sync");
            for block in 0..u64::from(COUNT) {
                let content = volume.read(file, block * 4096, 4096).expect("the file reads");
                let expected = if overwritten.contains(&block) { 99 } else { block as u8 };
                assert!(content.as_bytes().iter().all(|byte| *byte == expected), "block {block}");
            }
            assert_eq!(volume.audit().expect("the audit counts"), []);
        }
    }

    #[test]
    fn the_last_block_of_the_largest_file_ends_the_file() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let file = create(&volume, "file");
        for block in [0, u64::from(u32::MAX) - 1, u32::MAX.into()] {
            put(&volume, file, block, 1, 7).expect("there is room");
        }
        assert_eq!(defragment(&volume, file).blocks, 3);
    }

    #[test]
    fn a_part_that_is_ended_moves_nothing() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let file = scattered(&volume, COUNT);
        let before = volume.counters().defragmentation_bytes;
        let mut steps = 0;
        let part = volume.defragment(file, 0, &mut || {
            steps += 1;
            steps < 2
        });
        assert_eq!(part.expect("a part").next, Some(0));
        assert_eq!((steps, volume.counters().defragmentation_bytes), (2, before));
    }

    /// An idle volume puts a file in order that was read in order and is no longer written, within its budget.
    #[test]
    fn an_idle_volume_moves_within_what_users_have_written() {
        const BLOCKS_READ: u32 = 1500;
        let blocks = BLOCKS * 4;
        let moved = |percent: u8, secs: i64, reads: bool| {
            let options =
                VolumeOptions { idle_defragmentation: percent, ..VolumeOptions::default() };
            let volume = new_volume_of(Arc::new(RamDevice::new(blocks)), blocks, options);
            let file = scattered(&volume, BLOCKS_READ);
            volume.sync_all().expect("a sync");
            let work = |secs: i64| {
                let now = crate::format::Timestamp { secs: NOW.secs + secs, ..NOW };
                (0..100).for_each(|_| _ = volume.work(now).expect("RAM does not fail"));
            };
            work(secs);
            let settled = volume.counters();
            for part in 0..if reads { u64::from(BLOCKS_READ) / 20 } else { 0 } {
                volume.read(file, part * 81_920, 81_920).expect("the file reads");
            }
            work(secs);
            let after = volume.counters();
            let spent = after.device_bytes_written - settled.device_bytes_written;
            let earned = settled.data_bytes / 100 * u64::from(percent);
            assert!(spent <= earned, "{spent} of {earned} bytes");
            // Nobody writes, so nothing is earned.
            work(secs + 1000);
            let idle = volume.counters();
            assert_eq!(idle.defragmentation_bytes, after.defragmentation_bytes);
            assert_eq!(volume.audit().expect("the audit counts"), []);
            after.defragmentation_bytes / 4096
        };
        let whole = moved(100, 120, true);
        assert!(whole >= 1000, "{whole} blocks");
        assert_eq!(moved(100, 30, true), 0, "the file may still be written");
        assert_eq!(moved(100, 120, false), 0, "nobody reads the file");
        assert_eq!(moved(5, 120, true), 0, "12 MiB do not earn a window");
        assert_eq!(moved(0, 120, true), 0);
    }

    #[test]
    fn what_has_no_order_is_refused() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let refused = |volume: &Volume, ino| volume.defragment(ino, 0, &mut || true);
        assert!(matches!(refused(&volume, ROOT_INO), Err(Error::Invalid)));
        assert!(matches!(refused(&volume, 999), Err(Error::NotFound)));
        for data_layout in DataLayout::ALL.into_iter().filter(|data| *data != DataLayout::Log) {
            let (_, volume) = new_placed(data_layout);
            let file = create(&volume, "file");
            put(&volume, file, 0, 3, 1).expect("there is room");
            assert!(matches!(refused(&volume, file), Err(Error::NotSupported)), "{data_layout:?}");
        }
    }
}
