//! Volumes whose data is overwritten in place: a check and a mount find damage, and a repair removes it.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, ChunkHeader, ChunkSummary, CorruptionKind,
    DataLayout, DeltaForm, Head, History, Label, Layout, Mapping, MappingRun, NodeHeader, ROOT_INO,
    SegmentState, Structure, SummaryEntry, Superblock, Timestamp, UsageEntry,
};
use sfs_core::request::{Caller, VolumeOptions, WriteMode};
use sfs_core::{Error, Volume, make, root_directory};
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice, Stream};
use sfs_fsck::{Finding, Loss, RepairOptions, repair};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const SEGMENT_BLOCKS: u64 = 32;

/// Number of blocks of each of the two files.
const FILE_BLOCKS: u32 = 4;

/// Inode numbers of the files.
const A: u64 = 16;
const B: u64 = 17;

/// Unmounted volume with two files. Its tree is one leaf.
struct PlacedVolume {
    device: Arc<RamDevice>,
    superblock: Superblock,
}

impl PlacedVolume {
    fn new() -> Self {
        let superblock = Superblock {
            uuid: *b"0123456789abcdef",
            label: Label::NONE,
            layout: Layout::new(40 * SEGMENT_BLOCKS, SEGMENT_BLOCKS, 0).expect("a layout"),
            hash_key: [1, 2],
            data_layout: DataLayout::GreedySpace,
            created: NOW,
            ..Superblock::new(
                Layout::new(40 * SEGMENT_BLOCKS, SEGMENT_BLOCKS, 0).expect("a layout"),
            )
        };
        let device = Arc::new(RamDevice::new(40 * SEGMENT_BLOCKS));
        make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("a volume is made");
        let forge = Self { device, superblock };
        let volume = forge.open().expect("a mount");
        let caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };
        for (ino, name) in [(A, b"a"), (B, b"b")] {
            let made = volume.make_node(ROOT_INO, name, 0o100_644, 0, &caller).expect("a file");
            assert_eq!(made.ino, ino);
            let bytes = vec![ino as u8; FILE_BLOCKS as usize * BLOCK_SIZE];
            volume.write(ino, 0, &bytes, WriteMode::default(), &caller).expect("a write");
        }
        volume.close().expect("an unmount");
        forge
    }

    fn open(&self) -> sfs_core::Result<Volume> {
        Volume::open(self.device.clone(), VolumeOptions::default(), NOW)
    }

    /// Returns address and content of the newest checkpoint.
    fn record(&self) -> (u64, CheckpointRecord) {
        let read = |at: u64| {
            let mut slot = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
            self.device.read(at, &mut slot).expect("RAM");
            let bytes = Block::bytes_of(&slot);
            (at, CheckpointRecord::decode(bytes, self.superblock.volume(), at).expect("a record"))
        };
        let slots = self.superblock.layout.slots.map(read);
        slots.into_iter().max_by_key(|(_, record)| record.number).expect("two slots")
    }

    fn leaf(&self) -> Block {
        let (_, record) = self.record();
        assert_eq!(record.root_level, 0, "the tree is one leaf");
        let mut leaf = Block::zeroed(1);
        self.device.read(record.root_address, &mut leaf).expect("RAM");
        leaf[0].clone()
    }

    /// Replaces the bytes `old` of the leaf by `new`, with sound checksums up to the checkpoint.
    fn replace(&self, old: &[u8], new: &[u8]) {
        let (slot, mut record) = self.record();
        let mut leaf = self.leaf();
        let places: Vec<usize> =
            (0..=BLOCK_SIZE - old.len()).filter(|at| leaf.0[*at..].starts_with(old)).collect();
        assert_eq!(places.len(), 1, "the old bytes occur once");
        leaf.0[places[0]..][..new.len()].copy_from_slice(new);
        let volume = self.superblock.volume();
        let pointer = record.root();
        let header = NodeHeader::verify(&self.leaf().0, volume, pointer).expect("a sound leaf");
        let checkpoint = NodeHeader::checkpoint_of(&leaf.0);
        record.root_checksum = header.seal(&mut leaf.0, volume, pointer.address, checkpoint);
        let stream = Stream::default();
        self.device.write(pointer.address, &[&[leaf]], stream).expect("RAM");
        record.previous = self.reseal(pointer.address - 1, record.root_checksum);
        let bytes = record.encode(volume, slot);
        let blocks: Vec<Block> =
            bytes.chunks(BLOCK_SIZE).map(|b| Block(b.try_into().expect("a block"))).collect();
        self.device.write(slot, &[&blocks], stream).expect("RAM");
    }

    /// Sets the checksum of the only node of the chunk at `address`. Returns the checksum of the chunk.
    fn reseal(&self, address: u64, checksum: u32) -> u32 {
        let mut block = Block::zeroed(1);
        self.device.read(address, &mut block).expect("RAM");
        let bytes = Block::bytes_of(&block);
        let chunk =
            ChunkSummary::decode(bytes, self.superblock.volume(), address).expect("a chunk");
        let entries = [SummaryEntry::Node { checksum }];
        let mut sealed = Block::ZERO;
        let checksum = ChunkSummary::encode(&chunk.header, &entries, &chunk.delta, &mut sealed.0);
        self.device.write(address, &[&[sealed]], Stream::default()).expect("RAM");
        checksum
    }

    /// Returns the mapping run of `ino`. The file has only one.
    fn run(&self, ino: u64) -> MappingRun {
        let mut run = MappingRun::default();
        let first = self.address(ino);
        for block in 0..FILE_BLOCKS {
            run.set(block, Some(Mapping::in_place(first + u64::from(block))));
        }
        run
    }

    /// Returns the address of the first block of `ino`, searched by its content.
    fn address(&self, ino: u64) -> u64 {
        let mut block = Block::zeroed(1);
        let holds = |at: &u64| {
            self.device.read(*at, &mut block).expect("RAM");
            block[0].0 == [ino as u8; BLOCK_SIZE]
        };
        (self.superblock.layout.segment_first..40 * SEGMENT_BLOCKS).find(holds).expect("an item")
    }

    /// Changes the mapping of `block` of `ino` to `address`.
    fn remap(&self, ino: u64, block: u32, address: u64) {
        self.map(ino, block, Mapping::in_place(address));
    }

    fn map(&self, ino: u64, block: u32, mapping: Mapping) {
        let encode = |run: &MappingRun| {
            let mut bytes = Vec::new();
            run.encode(&mut bytes);
            bytes
        };
        let mut run = self.run(ino);
        let old = encode(&run);
        run.set(block, Some(mapping));
        self.replace(&old, &encode(&run));
    }

    /// Changes the usage entry of the segment of data.
    fn change_usage(&self, change: impl FnOnce(&mut UsageEntry)) -> u32 {
        let layout = self.superblock.layout;
        let segment = layout.segment_of(self.address(A)).expect("a segment");
        let (live_blocks, head) = (2 * FILE_BLOCKS, Head(1));
        let state = SegmentState::InPlace;
        // The stamp and the erase cycles of the entry are not known, so all stamps below 1000 are tried, and up to 3 cycles.
        let found = (0..4000).find_map(|number| {
            let (stamp, erases) = (number / 4, (number % 4) as u16);
            let entry = UsageEntry { live_blocks, state, head, stamp, erases, ..UsageEntry::NEW };
            let bytes = UsageEntry::encode_item(&[entry]);
            self.leaf().0.windows(bytes.len()).any(|window| window == bytes).then_some(entry)
        });
        let mut entry = found.expect("the entry");
        let old = UsageEntry::encode_item(&[entry]);
        change(&mut entry);
        self.replace(&old, &UsageEntry::encode_item(&[entry]));
        segment
    }

    fn findings(&self) -> Vec<Finding> {
        let options = sfs_fsck::CheckOptions { data: true };
        let mut never_cancel = |_| ControlFlow::Continue(());
        let report = sfs_fsck::check(&*self.device, &options, &mut never_cancel).expect("a volume");
        report.findings.kept().to_vec()
    }

    /// Repairs the volume. Returns the losses and a mount.
    fn repair_and_mount(&self) -> (Vec<Loss>, Volume) {
        let shared: Arc<dyn Device> = self.device.clone();
        let options = RepairOptions { data: true, preen: false, now: NOW };
        let mut never_cancel = |_| ControlFlow::Continue(());
        let repaired = repair(&shared, &options, &mut never_cancel).expect("a repair");
        let after = repaired.after.as_ref().expect("something was written");
        assert_eq!(after.errors(), 0, "{:?}", after.findings.kept());
        let volume = self.open().expect("a mount");
        assert_eq!(volume.audit().expect("an audit"), []);
        (repaired.losses, volume)
    }
}

fn expect_file(volume: &Volume, ino: u64, block: u32, byte: u8) {
    let read = volume.read(ino, u64::from(block) * BLOCK_SIZE as u64, BLOCK_SIZE).expect("a read");
    assert!(read.as_bytes() == [byte; BLOCK_SIZE], "block {block} of {ino}");
}

#[track_caller]
fn expect_refused(forge: &PlacedVolume, structure: Structure, kind: CorruptionKind) {
    match forge.open() {
        Err(Error::Corrupt(damage)) => {
            assert_eq!((damage.structure, damage.kind), (structure, kind))
        }
        other => panic!("the volume opens: {:?}", other.err()),
    }
}

#[test]
fn a_written_volume_has_no_findings() {
    let forge = PlacedVolume::new();
    assert_eq!(forge.findings(), []);
    forge.remap(A, 1, forge.address(A) + 1);
    assert_eq!(forge.findings(), [], "the forge does not damage other structures");
}

/// A mount refuses the volume, and a repair gives a copy to each file.
#[test]
fn a_block_with_two_owners_is_found_and_copied() {
    let forge = PlacedVolume::new();
    let shared = forge.address(A);
    forge.remap(B, 2, shared);
    let found = forge.findings();
    let expected = Finding::MappingShared { ino: B, block: 2, address: shared, other: A };
    assert_eq!(found, [expected]);
    expect_refused(&forge, Structure::Data, CorruptionKind::Count);
    let (losses, volume) = forge.repair_and_mount();
    let loss = |ino| Loss::Shared { ino, address: shared };
    assert_eq!(losses, [loss(A), loss(B)]);
    for (ino, block, byte) in [(A, 0, A), (A, 1, A), (B, 1, B), (B, 2, A), (B, 3, B)] {
        expect_file(&volume, ino, block, byte as u8);
    }
    // A write to one file no longer changes the other.
    let caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };
    let offset = 2 * BLOCK_SIZE as u64;
    volume.write(B, offset, &[7; BLOCK_SIZE], WriteMode::default(), &caller).expect("a write");
    volume.sync_all().expect("a sync");
    expect_file(&volume, A, 0, A as u8);
    expect_file(&volume, B, 2, 7);
}

/// The usage table counts one live block more, or one live block fewer, than the tree refers to.
#[test]
fn wrong_live_counts_are_found_and_corrected() {
    for counted in [2 * FILE_BLOCKS - 1, 2 * FILE_BLOCKS + 1] {
        let forge = PlacedVolume::new();
        let segment = forge.change_usage(|entry| entry.live_blocks = counted);
        let found = forge.findings();
        let expected =
            Finding::UsageLive { segment, recorded: counted, counted: u64::from(2 * FILE_BLOCKS) };
        assert_eq!(found, [expected]);
        expect_refused(&forge, Structure::Usage, CorruptionKind::Count);
        let (losses, volume) = forge.repair_and_mount();
        assert_eq!(losses, []);
        (0..FILE_BLOCKS).for_each(|block| expect_file(&volume, B, block, B as u8));
    }
}

/// The usage table has a wrong state for a segment to which the tree maps placed blocks.
#[test]
fn a_placed_segment_with_a_wrong_state_keeps_its_data() {
    for state in [SegmentState::Sealed, SegmentState::Clean] {
        let forge = PlacedVolume::new();
        let segment = forge.change_usage(|entry| entry.state = state);
        let found = forge.findings();
        assert_eq!(found, [Finding::UsageState { segment, state }]);
        let (losses, volume) = forge.repair_and_mount();
        assert_eq!(losses, []);
        for block in 0..FILE_BLOCKS {
            expect_file(&volume, A, block, A as u8);
            expect_file(&volume, B, block, B as u8);
        }
    }
}

/// A segment with nodes has no placed blocks, so the mapping is wrong.
#[test]
fn a_placed_mapping_into_a_log_segment_is_dropped() {
    let forge = PlacedVolume::new();
    // The summary is in the block before the root.
    let address = forge.record().1.root_address - 1;
    forge.remap(A, 3, address);
    let found = forge.findings();
    assert!(found.contains(&Finding::MappingUnknown { ino: A, block: 3, address }), "{found:?}");
    expect_refused(&forge, Structure::Data, CorruptionKind::Dangling);
    let (_, volume) = forge.repair_and_mount();
    (0..3).for_each(|block| expect_file(&volume, A, block, A as u8));
    (0..FILE_BLOCKS).for_each(|block| expect_file(&volume, B, block, B as u8));
}

/// Users may know the UUID, the addresses of their blocks and the format of a chunk, but not the volume's
/// number.
#[test]
fn user_data_is_not_taken_for_a_newer_checkpoint() {
    let forge = PlacedVolume::new();
    let (slot, record) = forge.record();
    let leaf = forge.leaf();
    let older = forge.superblock.layout.slots.into_iter().find(|at| *at != slot).expect("slots");
    forge.device.write(older, &[&[Block::ZERO]], Stream::default()).expect("RAM");
    let before = forge.findings();
    let public = u64::from_le_bytes(forge.superblock.uuid[..8].try_into().expect("eight bytes"));
    let address = forge.address(A);
    let layout = forge.superblock.layout;
    let segment = layout.segment_of(address).expect("a segment");
    assert_eq!(layout.segment_address(segment), address, "the mapping begins the segment");
    let forge_chunk = |volume: u64| {
        let mut node = leaf.clone();
        let header = NodeHeader::verify(&node.0, forge.superblock.volume(), record.root());
        let header = header.expect("a sound leaf");
        let checksum = header.seal(&mut node.0, volume, address + 1, record.number + 7);
        let header = ChunkHeader {
            volume,
            sequence: 1 << 40,
            address,
            previous: 0,
            time: 1,
            head: Head::METADATA,
            end: true,
            form: DeltaForm::Tagged,
        };
        let mut chunk = Block::ZERO;
        ChunkSummary::encode(&header, &[SummaryEntry::Node { checksum }], &[], &mut chunk.0);
        // A user's write to the file would cause the same write in place.
        forge.device.write(address, &[&[chunk, node]], Stream::default()).expect("RAM");
        forge.findings()
    };
    assert_eq!(forge_chunk(public), before);
    let number = record.number + 7;
    let misled = forge_chunk(forge.superblock.volume());
    assert!(
        misled.contains(&Finding::CheckpointLost { number }),
        "the volume's number makes the difference: {misled:?}"
    );
}

/// A mapping with a checksum belongs to the log, and is wrong in a segment of placed data.
#[test]
fn a_wrong_log_mapping_does_not_affect_its_neighbours() {
    let forge = PlacedVolume::new();
    let address = forge.address(A) + 1;
    let history = History::default();
    forge.map(A, 1, Mapping { address, checksum: Some(7), history });
    let found = forge.findings();
    assert!(found.contains(&Finding::MappingUnknown { ino: A, block: 1, address }), "{found:?}");
    let (_, volume) = forge.repair_and_mount();
    [0, 2, 3].into_iter().for_each(|block| expect_file(&volume, A, block, A as u8));
    (0..FILE_BLOCKS).for_each(|block| expect_file(&volume, B, block, B as u8));
}
