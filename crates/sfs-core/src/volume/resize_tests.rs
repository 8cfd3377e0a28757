//! Growth of volumes: every data layout, every crash between two requests, and layouts of all sizes.

use std::sync::Arc;

use sfs_device::{
    Block, Device, Event, FaultyDevice, Keep, Operation, RamDevice, RecordingDevice, Stream,
    image_after,
};
use zerocopy::{FromZeros, IntoBytes};

use super::{ResizeError, Resized, Volume};
use crate::fixture::{NOW, create, new_volume_of, put, write};
use crate::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, DataLayout, Layout, ROOT_INO, Superblock,
    TableSegments, Timestamp,
};
use crate::request::{VolumeOptions, Work};

/// Number of blocks of a volume of 64 segments.
const SMALL: u64 = 32 + 64 * 32 + 17;

const NONCE: u64 = 7;

fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open(device, VolumeOptions::default(), NOW).expect("the volume opens")
}

fn make_as(device: &Arc<dyn Device>, blocks: u64, data_layout: DataLayout) {
    let layout = Layout::new(blocks, 32, 0).expect("a layout");
    let uuid = *b"0123456789abcdef";
    let superblock = Superblock { uuid, data_layout, ..Superblock::new(layout) };
    crate::make(device.clone(), &superblock, &crate::root_directory(0, 0, NOW)).expect("made");
}

fn content(volume: &Volume, name: &str) -> Vec<u8> {
    let entry = volume.lookup(ROOT_INO, name.as_bytes()).expect("the file is found");
    let len = entry.inode.size as usize;
    volume.read(entry.ino, 0, len).expect("the file reads").as_bytes().to_vec()
}

#[test]
fn areas_of_a_resized_layout_avoid_those_of_the_old_one() {
    let areas =
        |layout: &Layout| [layout.slots[1]..layout.slots[1] + 16, layout.backup..layout.backup + 1];
    for old in (32 + 32 * 32 + 17)..(32 + 35 * 32 + 17) {
        let from = Layout::new(old, 32, 0).expect("a layout");
        for blocks in old - 40..old + 140 {
            let Some(to) = from.resized(blocks) else {
                let same = Layout::new(blocks, 32, 0)
                    .is_ok_and(|new| new.segment_count.abs_diff(from.segment_count) > 1);
                assert!(!same, "{old} to {blocks} is possible");
                continue;
            };
            assert_eq!(to.block_count, blocks);
            assert_ne!(to.segment_count, from.segment_count);
            for new in areas(&to) {
                for old in areas(&from) {
                    assert!(new.end <= old.start || old.end <= new.start, "{new:?} {old:?}");
                }
                let kept = from.segment_count.min(to.segment_count);
                assert!(new.start >= from.segment_address(kept), "segments of both are kept");
            }
        }
    }
    let from = Layout::new(SMALL, 32, 0).expect("a layout");
    for count in [32, 63, 65, 66, 200] {
        let blocks = from.blocks_for(count);
        assert_eq!(from.resized(blocks).expect("a layout").segment_count, count);
        assert!(from.resized(blocks - 1).is_none_or(|less| less.segment_count != count));
    }
}

#[test]
fn a_volume_of_every_data_layout_grows_while_it_is_used() {
    for data_layout in DataLayout::ALL {
        let device: Arc<dyn Device> = Arc::new(RamDevice::new(5000));
        make_as(&device, SMALL, data_layout);
        let volume = open(device.clone());
        let file = create(&volume, "before");
        put(&volume, file, 0, 700, 1).expect("there is room");
        let before = volume.space();
        let resized = volume.grow_volume(None, NONCE).expect("the volume grows");
        assert_eq!(resized.from.segment_count, 64);
        assert_eq!(u64::from(resized.to.segment_count), (5000 - 32 - 17) / 32);
        let after = volume.space();
        assert!(after.total_blocks > 2 * before.total_blocks, "{data_layout:?}");
        assert!(after.available_blocks > before.available_blocks + 2000);
        let large = create(&volume, "after");
        put(&volume, large, 0, 3000, 2).expect("the new segments are used");
        volume.sync_all().expect("a sync");
        assert_eq!(volume.audit().expect("an audit"), []);
        // After a crash, and after an unmount.
        drop(volume);
        for _ in 0..2 {
            let volume = open(device.clone());
            assert_eq!(volume.layout(), resized.to);
            assert_eq!(volume.audit().expect("an audit"), []);
            assert_eq!(content(&volume, "before"), vec![1; 700 * 4096], "{data_layout:?}");
            assert_eq!(content(&volume, "after"), vec![2; 3000 * 4096], "{data_layout:?}");
            let again = volume.grow_volume(None, NONCE).expect("nothing to do");
            assert_eq!(again.from, again.to);
            volume.close().expect("the volume closes");
        }
    }
}

#[test]
fn a_full_volume_grows() {
    let device: Arc<dyn Device> = Arc::new(RamDevice::new(5000));
    let volume = new_volume_of(device, SMALL, VolumeOptions::default());
    let file = create(&volume, "full");
    let mut block = 0;
    while put(&volume, file, block, 8, 3).is_ok() {
        block += 8;
    }
    volume.sync_all().expect("a sync");
    volume.grow_volume(Some(4000), NONCE).expect("the volume grows");
    put(&volume, file, block, 1000, 3).expect("there is room");
    volume.sync_all().expect("a sync");
    assert_eq!(volume.audit().expect("an audit"), []);
}

/// Whatever the last request was that arrived, a mount finds all synced data, in the old size or the new one, and can
/// grow the volume again.
#[test]
fn a_crash_at_every_request_of_a_growth_leaves_the_data() {
    // Either slot may have the last checkpoint before the growth.
    let layouts = [DataLayout::Log, DataLayout::GreedySpace];
    for (data_layout, is_other_slot) in layouts.into_iter().flat_map(|l| [(l, false), (l, true)]) {
        let ram = RamDevice::new(5000);
        // The place of the new areas holds something else.
        for at in SMALL..5000 {
            ram.write(at, &[&[Block([0xa5; 4096])]], Stream::default()).expect("RAM");
        }
        let device = Arc::new(RecordingDevice::new(ram, Keep::Contents));
        let shared: Arc<dyn Device> = device.clone();
        make_as(&shared, SMALL, data_layout);
        let volume = open(shared);
        let file = create(&volume, "file");
        put(&volume, file, 0, 300, 9).expect("there is room");
        volume.sync_all().expect("a sync");
        if is_other_slot {
            let later = Timestamp { secs: NOW.secs + 310, ..NOW };
            while volume.work(later).expect("RAM does not fail") == Work::More {}
        }
        let base = device.inner().snapshot();
        device.take_events();
        volume.grow_volume(None, NONCE).expect("the volume grows");
        put(&volume, file, 300, 1000, 9).expect("there is room");
        volume.sync_all().expect("a sync");
        let events = device.take_events();
        let mut sizes = std::collections::BTreeSet::new();
        let writes = events.iter().filter(|event| matches!(event, Event::Write { .. })).count();
        assert!(writes > 6);
        for (end, is_torn) in (0..=events.len()).flat_map(|end| [(end, false), (end, true)]) {
            let at = format!("after {end}, torn: {is_torn}");
            let image = image_after(&base, &events[..end]);
            if is_torn && let Some(Event::Write { range, content, .. }) = events.get(end) {
                // The first block of the next request is written, and torn.
                let mut torn = content.as_ref().expect("the contents are kept")[0].clone();
                torn.0[100] ^= 0x55;
                image.write(range.address, &[&[torn]], Stream::default()).expect("RAM");
            }
            let volume = open(Arc::new(image));
            sizes.insert(volume.layout().segment_count);
            assert!(content(&volume, "file").starts_with(&[9; 300 * 4096]), "{at}");
            assert!(volume.remembered().is_empty(), "{at}: {:?}", volume.remembered());
            volume.grow_volume(None, NONCE).expect("the volume grows");
            assert_eq!(volume.audit().expect("an audit"), [], "{at}");
        }
        assert_eq!(sizes.len(), 2, "both sizes occur");
    }
}

/// The image was copied to a card on which an earlier copy of it had grown and been written to.
#[test]
fn chunks_of_an_earlier_life_behind_the_image_are_erased() {
    let device = Arc::new(RamDevice::new(5000));
    let volume = new_volume_of(device.clone(), SMALL, VolumeOptions::default());
    volume.close().expect("the volume closes");
    let image = device.snapshot();
    let volume = open(device.clone());
    volume.grow_volume(None, NONCE).expect("the volume grows");
    let file = create(&volume, "earlier");
    put(&volume, file, 0, 2500, 1).expect("there is room");
    volume.close().expect("the volume closes");
    let mut block = [Block::ZERO];
    for at in 0..SMALL {
        image.read(at, &mut block).expect("RAM");
        device.write(at, &[&block], Stream::default()).expect("RAM");
    }
    let volume = open(device.clone());
    let layout = volume.grow_volume(None, NONCE + 1).expect("the volume grows").to;
    let mut chunks = 0;
    for segment in 64..layout.segment_count {
        device.read(layout.segment_address(segment), &mut block).expect("RAM");
        chunks += u64::from(block[0].0.starts_with(b"SFSc"));
    }
    assert!(chunks <= 1, "only the checkpoint of the resize can be there: {chunks}");
    let file = create(&volume, "new");
    write(&volume, file, &[5; 9000]);
    volume.sync_all().expect("a sync");
    drop(volume);
    let volume = open(device);
    assert_eq!(content(&volume, "new"), [5; 9000]);
    assert!(volume.lookup(ROOT_INO, b"earlier").is_err());
}

#[test]
fn sizes_that_are_impossible_are_refused() {
    let device: Arc<dyn Device> = Arc::new(RamDevice::new(5000));
    let volume = new_volume_of(device.clone(), SMALL, VolumeOptions::default());
    let refused = volume.grow_volume(Some(5001), NONCE);
    assert!(matches!(refused, Err(ResizeError::DeviceTooSmall { device_blocks: 5000 })));
    let refused = volume.grow_volume(Some(SMALL - 64), NONCE);
    assert!(matches!(refused, Err(ResizeError::ShrinksMounted)), "{refused:?}");
    let same = volume.grow_volume(Some(SMALL + 31), NONCE).expect("nothing to do");
    assert_eq!(same.from, same.to);
    drop(volume);
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let volume = Volume::open(device, options, NOW).expect("the volume opens");
    let refused = volume.grow_volume(None, NONCE);
    assert!(matches!(refused, Err(ResizeError::Failed(crate::Error::ReadOnly))), "{refused:?}");
}

/// Fills a volume of 156 segments to a third, with the data at both ends.
fn spread_out(device: &Arc<dyn Device>) -> Volume {
    make_as(device, 5000, DataLayout::Log);
    let volume = open(device.clone());
    for no in 0..30 {
        let file = create(&volume, &format!("file {no}"));
        put(&volume, file, 0, 130, no).expect("there is room");
        volume.sync_all().expect("a sync");
        volume.forget(file, 1);
    }
    let caller = &crate::fixture::CALLER;
    for no in (0..30).filter(|no| no % 3 > 0) {
        volume.unlink(ROOT_INO, format!("file {no}").as_bytes(), caller).expect("a file");
    }
    volume
}

fn expect_spread_out(volume: &Volume) {
    for no in (0..30).step_by(3) {
        assert!(content(volume, &format!("file {no}")) == vec![no; 130 * 4096], "{no}");
    }
}

#[test]
fn a_volume_shrinks_to_what_its_content_needs_and_no_further() {
    let device: Arc<dyn Device> = Arc::new(RamDevice::new(5000));
    let volume = spread_out(&device);
    let refused = volume.shrink_volume(1700, NONCE).expect_err("the content does not fit");
    let ResizeError::Occupied { least_blocks } = refused else { panic!("{refused:?}") };
    assert!((1700..2600).contains(&least_blocks), "{least_blocks}");
    expect_spread_out(&volume);
    let resized = volume.shrink_volume(least_blocks, NONCE).expect("the volume shrinks");
    assert_eq!(resized.to.block_count, least_blocks);
    assert_eq!(volume.audit().expect("an audit"), []);
    drop(volume);
    for _ in 0..2 {
        let volume = open(device.clone());
        assert_eq!(volume.layout(), resized.to);
        expect_spread_out(&volume);
        assert_eq!(volume.audit().expect("an audit"), []);
        volume.close().expect("the volume closes");
    }
    let volume = open(device.clone());
    volume.grow_volume(None, NONCE).expect("the volume grows again");
    assert_eq!(volume.layout().segment_count, resized.from.segment_count);
    expect_spread_out(&volume);
    let same = volume.shrink_volume(5000, NONCE).expect("nothing to do");
    assert_eq!(same.from, same.to);
    let device: Arc<dyn Device> = Arc::new(RamDevice::new(5000));
    make_as(&device, 5000, DataLayout::BlockGroup);
    let refused = open(device).shrink_volume(4000, NONCE);
    assert!(matches!(refused, Err(ResizeError::InPlace)), "{refused:?}");
}

#[test]
fn a_crash_at_every_request_of_a_shrinking_leaves_the_data() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(5000), Keep::Contents));
    let shared: Arc<dyn Device> = device.clone();
    let volume = spread_out(&shared);
    volume.sync_all().expect("a sync");
    let base = device.inner().snapshot();
    device.take_events();
    volume.shrink_volume(3000, NONCE).expect("the volume shrinks");
    let events = device.take_events();
    let mut sizes = std::collections::BTreeSet::new();
    for end in 0..=events.len() {
        let volume = open(Arc::new(image_after(&base, &events[..end])));
        sizes.insert(volume.layout().segment_count);
        expect_spread_out(&volume);
        assert!(volume.remembered().is_empty(), "after {end}: {:?}", volume.remembered());
        assert_eq!(volume.audit().expect("an audit"), [], "after {end}");
    }
    assert_eq!(sizes.len(), 2, "both sizes occur");
}

/// A mount that finds the old size has the erase cycles of the segments that were to go, and says again how often each was
/// taken into use.
#[test]
fn a_crash_at_every_request_of_a_shrinking_leaves_the_erase_cycles() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(5000), Keep::Contents));
    let shared: Arc<dyn Device> = device.clone();
    let volume = spread_out(&shared);
    // Every segment is used.
    let file = create(&volume, "to the end");
    put(&volume, file, 0, 2400, 1).expect("there is room");
    volume.sync_all().expect("a sync");
    volume.forget(file, 1);
    volume.unlink(ROOT_INO, b"to the end", &crate::fixture::CALLER).expect("a file");
    while volume.work(NOW).expect("RAM does not fail") == (Work::More {}) {}
    volume.close().expect("the volume closes");
    let volume = open(shared);
    let before = volume.segment_erases();
    let base = device.inner().snapshot();
    device.take_events();
    let Resized { to, .. } = volume.shrink_volume(3000, NONCE).expect("the volume shrinks");
    assert!(before[to.segment_count as usize..].iter().any(|erases| *erases > 0));
    let events = device.take_events();
    let (mut sizes, mut interrupted) = (std::collections::BTreeSet::new(), 0);
    for end in 0..=events.len() {
        let image = image_after(&base, &events[..end]);
        interrupted += usize::from(is_interrupted_shrink(&image));
        let image: Arc<dyn Device> = Arc::new(image);
        // The first mount writes the checkpoint that the second one finds.
        for mount in 1..=2 {
            let volume = open(image.clone());
            let after = volume.segment_erases();
            sizes.insert(after.len());
            let less = before.iter().zip(&after).position(|(before, after)| after < before);
            assert_eq!(less, None, "after {end}, mount {mount}: a segment with fewer erase cycles");
            expect_spread_out(&volume);
            assert_eq!(volume.audit().expect("an audit"), [], "after {end}, mount {mount}");
        }
    }
    assert_eq!(sizes.len(), 2, "both sizes occur");
    assert!(interrupted > 0, "the checkpoint of the shrinking meets the old size");
}

/// Regression: after a read that failed, the unmount wrote a checkpoint with the table of the new size, which no mount accepts with the
/// old superblock; or it panicked.
#[test]
fn a_shrinking_that_cannot_read_leaves_the_volume_as_it_was() {
    let image = Arc::new(RamDevice::new(5000));
    let shared: Arc<dyn Device> = image.clone();
    spread_out(&shared).close().expect("the volume closes");
    let to = Layout::new(5000, 32, 0).expect("a layout").resized(3000).expect("a layout");
    let mut failed = 0;
    for no in 1.. {
        let device = Arc::new(FaultyDevice::new(image.snapshot()));
        let volume = open(device.clone());
        let (from, before) = (volume.layout(), volume.segment_erases());
        {
            let mut log = volume.log.lock();
            let emptied = volume.space.empty_from(&mut log, to.segment_count);
            emptied.and_then(|()| volume.space.make_next_even(&mut log)).expect("there is room");
            volume.metadata.write().tree.evict(0);
            // Those after it as well, or a node that was not read with others would be read alone.
            device.fail_from(Operation::Read, no);
            if volume.drop_segments(&mut log, (&from, to), NONCE).is_ok() {
                break;
            }
        }
        failed += 1;
        device.heal();
        drop(volume.close().expect_err("writing has ended"));
        drop(volume);
        let volume = open(device);
        assert_eq!(volume.layout(), from);
        expect_spread_out(&volume);
        assert_eq!(volume.audit().expect("an audit"), [], "read {no}");
        let after = volume.segment_erases();
        assert!(before.iter().zip(&after).all(|(before, after)| after >= before), "read {no}");
    }
    assert!(failed > 0, "no read can fail");
}

/// Regression: the segments that a shrink was to drop were opened by nobody any more, or by the next mounts only once no other segment
/// was Clean.
#[test]
fn a_shrinking_that_is_refused_or_interrupted_gives_its_segments_back() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(5000), Keep::Contents));
    let shared: Arc<dyn Device> = device.clone();
    let volume = spread_out(&shared);
    volume.sync_all().expect("a sync");
    let base = device.inner().snapshot();
    device.take_events();
    let are_at_the_end = |volume: &Volume| {
        let metadata = volume.metadata.read();
        metadata.usage.entries().iter().any(|entry| entry.stamp == crate::format::COUNT_MAX)
    };
    let clean = |volume: &Volume| volume.metadata.read().usage.clean_count();
    let mut least = volume.least_block_count();
    // The estimate of the least size is too low for cleaning, at first.
    while let Err(ResizeError::Occupied { least_blocks }) = volume.shrink_volume(least, NONCE) {
        let bound = volume.layout().segment_count as usize / 2;
        assert!(!are_at_the_end(&volume) && clean(&volume) > bound);
        least = least_blocks;
    }
    let events = device.take_events();
    let mut interrupted = 0;
    for end in 0..=events.len() {
        let image: Arc<dyn Device> = Arc::new(image_after(&base, &events[..end]));
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let as_found = Volume::open(image.clone(), options, NOW).expect("the volume opens");
        interrupted += usize::from(are_at_the_end(&as_found));
        drop(as_found);
        assert!(!are_at_the_end(&open(image.clone())), "after {end}");
        let volume = open(image);
        assert!(!are_at_the_end(&volume), "after {end}");
        expect_spread_out(&volume);
    }
    assert!(interrupted > 0, "segments are withheld");
}

/// Returns whether the newest checkpoint on `image` has fewer segments in its table than the superblock says.
fn is_interrupted_shrink(image: &dyn Device) -> bool {
    let superblock = crate::health::SuperblockCopies::read(image).expect("a superblock");
    let (volume, layout) = (superblock.current().volume(), superblock.current().layout);
    let mut blocks = Block::new_vec_zeroed(CHECKPOINT_SLOT_BLOCKS as usize).expect("memory");
    let records = layout.slots.into_iter().filter_map(|at| {
        image.read(at, &mut blocks).expect("RAM");
        CheckpointRecord::decode(blocks.as_bytes(), volume, at).ok()
    });
    let newest = records.max_by_key(|record| record.number).expect("a checkpoint");
    TableSegments::of(&newest.extensions, layout.segment_count)
        .is_some_and(|table| table.0 < layout.segment_count)
}
