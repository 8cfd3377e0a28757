//! Rebuilding a volume from items: all items are found afterwards, and the old volume is intact until the commit.

use std::sync::Arc;

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, FIRST_INO, FileKind, History, Inode, Key, Label,
    Layout, MappingRun, ROOT_INO, SegmentState, Superblock, Timestamp, UsageEntry, run_key,
};
use sfs_core::request::VolumeOptions;
use sfs_core::{Basis, Error, Moved, Rebuild, Volume};
use sfs_device::{BLOCK_SIZE, Block, Device, Event, Keep, RamDevice, RecordingDevice, image_after};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const BLOCKS: u64 = 8192;

fn superblock() -> Superblock {
    Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(BLOCKS, 64, 0).expect("the layout fits"),
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: NOW,
        ..Superblock::new(Layout::new(BLOCKS, 64, 0).expect("the layout fits"))
    }
}

fn volume() -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let root = sfs_core::root_directory(0, 0, NOW);
    sfs_core::make(device.clone(), &superblock(), &root).expect("the volume is made");
    device
}

/// Returns the state that mkfs leaves: its checkpoint, and one segment in use.
fn basis(device: &dyn Device) -> Basis {
    let superblock = superblock();
    let mut slot = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
    let at = superblock.layout.slots[0];
    device.read(at, &mut slot).expect("a RAM device does not fail");
    let record = CheckpointRecord::decode(Block::bytes_of(&slot), superblock.volume(), at);
    let mut usage = vec![UsageEntry::NEW; superblock.layout.segment_count as usize];
    usage[0].state = SegmentState::Open;
    Basis { record: record.expect("a checkpoint"), usage, time: 0 }
}

/// Returns the attributes of a file of `blocks` blocks.
fn file(blocks: u64) -> Inode {
    let root = sfs_core::root_directory(0, 0, NOW);
    let mode = FileKind::Regular.mode_bits() | 0o600;
    Inode { mode, links: 1, parent: 0, blocks, size: blocks * BLOCK_SIZE as u64, ..root }
}

/// Puts many files, the first with a block of data, and commits.
fn rebuild(device: Arc<dyn Device>, files: u64) -> sfs_core::Result<()> {
    let rebuild = Rebuild::begin(device.clone(), &superblock(), &basis(&*device))?;
    let history = History::plain(3, 7);
    let content = Block([9; BLOCK_SIZE]);
    let moved = Moved { ino: FIRST_INO, block: 5, history, content };
    let mappings = rebuild.move_blocks(vec![moved])?;
    rebuild.put(&Key::inode(ROOT_INO), &sfs_core::root_directory(0, 0, NOW).encode())?;
    for ino in FIRST_INO..FIRST_INO + files {
        let blocks = if ino == FIRST_INO { 6 } else { 0 };
        rebuild.put(&Key::inode(ino), &file(blocks).encode())?;
        if ino == FIRST_INO {
            let mut run = MappingRun::default();
            run.set(5, Some(mappings[0]));
            let mut value = Vec::new();
            run.encode(&mut value);
            rebuild.put(&run_key(ino, 5), &value)?;
        }
    }
    rebuild.commit(FIRST_INO + files)
}

#[test]
fn items_that_were_put_are_found_and_counted() {
    let device = volume();
    rebuild(device.clone(), 40_000).expect("there is space");
    let volume = Volume::open(device, VolumeOptions::default(), NOW).expect("the volume opens");
    assert_eq!(volume.audit().expect("the audit succeeds"), []);
    for ino in [FIRST_INO, FIRST_INO + 17_777, FIRST_INO + 39_999] {
        assert_eq!(volume.attributes(ino).expect("the file exists").mode, file(0).mode);
    }
    assert!(volume.attributes(FIRST_INO + 40_000).is_err());
    let data =
        volume.read(FIRST_INO, 5 * BLOCK_SIZE as u64, BLOCK_SIZE).expect("the data verifies");
    assert!(data.as_bytes().iter().all(|byte| *byte == 9));
}

#[test]
fn the_old_volume_is_intact_until_the_commit() {
    let old = volume();
    let device = Arc::new(RecordingDevice::new(old.snapshot(), Keep::Contents));
    rebuild(device.clone(), 8000).expect("there is space");
    let events = device.events();
    let writes = events.iter().filter(|event| matches!(event, Event::Write { .. })).count();
    assert!(writes > 3, "the rebuild takes several writes: {writes}");
    for len in 0..events.len() {
        let image = Arc::new(image_after(&old, &events[..len]));
        let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("the volume opens");
        // The record is the last write; a flush follows it.
        let committed = len == events.len() - 1;
        assert_eq!(volume.attributes(FIRST_INO).is_ok(), committed, "{len} of {}", events.len());
        assert!(volume.attributes(ROOT_INO).is_ok());
    }
}

#[test]
fn invalid_input_is_refused() {
    let device = volume();
    let mut basis = basis(&*device);
    basis.usage.pop();
    assert!(matches!(
        Rebuild::begin(device.clone(), &superblock(), &basis),
        Err(Error::Corrupt(_))
    ));
    basis.usage.push(UsageEntry::NEW);
    basis.usage.iter_mut().for_each(|entry| entry.state = SegmentState::Sealed);
    let rebuild = Rebuild::begin(device.clone(), &superblock(), &basis).expect("a table");
    assert!(matches!(rebuild.commit(FIRST_INO), Err(Error::NoSpace)));
    let rebuild = Rebuild::begin(device.clone(), &superblock(), &self::basis(&*device));
    let rebuild = rebuild.expect("a table");
    let usage = sfs_core::format::usage_key(0);
    assert!(matches!(rebuild.put(&usage, &[]), Err(Error::Corrupt(_))));
    let long = vec![0; sfs_core::format::VALUE_LEN_MAX + 1];
    assert!(matches!(rebuild.put(&Key::inode(20), &long), Err(Error::Corrupt(_))));
}
