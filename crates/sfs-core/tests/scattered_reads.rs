//! Reads of scattered content: exact, whatever lies between the blocks, and with fewer requests.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use sfs_core::format::{DataLayout, ErrorKind, ROOT_INO};
use sfs_core::request::{
    AllocateMode, Allocation, AttributeChanges, BlockRun, VolumeOptions, WriteMode,
};
use sfs_core::{AheadRead, ContentAhead, Error, Volume};
use sfs_device::{
    BLOCK_SIZE, Block, FaultyDevice, Keep, MmapRegion, Operation, RamDevice, RecordingDevice,
};
use sfs_testkit::SeededRng;
use sfs_testkit::ram_volume::{FILE_MODE, caller, device_blocks, format, open};

/// Number of blocks of the file.
const FILE_BLOCKS: u64 = 700;

type Recorder = RecordingDevice<FaultyDevice<RamDevice>>;

/// A volume with one file, and the content that the file must have.
struct Fixture {
    device: Arc<Recorder>,
    volume: Volume,
    ino: u64,
    expected: Vec<u8>,
}

impl Fixture {
    fn new(data_layout: DataLayout) -> Self {
        let ram = RamDevice::new(device_blocks(128));
        let device = Arc::new(RecordingDevice::new(FaultyDevice::new(ram), Keep::Counts));
        format(device.clone(), 32, data_layout);
        let volume = open(device.clone(), VolumeOptions::default());
        let file = volume.make_node(ROOT_INO, b"file", FILE_MODE, 0, &caller()).expect("a file");
        Self { device, volume, ino: file.ino, expected: Vec::new() }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.expected.resize(self.expected.len().max(end), 0);
        self.expected[offset..end].copy_from_slice(bytes);
        let mode = WriteMode::default();
        self.volume.write(self.ino, offset as u64, bytes, mode, &caller()).expect("a write");
    }

    fn punch(&mut self, range: Range<usize>) {
        let end = range.end.min(self.expected.len());
        self.expected[range.start.min(end)..end].fill(0);
        let allocation = Allocation {
            mode: AllocateMode::PunchHole,
            keep_size: true,
            keep_times: false,
            kill_privileges: false,
        };
        let at = (range.start as u64, range.len() as u64);
        self.volume.allocate(self.ino, at, &allocation, &caller()).expect("a hole");
    }

    fn truncate(&mut self, len: usize) {
        self.expected.resize(len, 0);
        let changes = AttributeChanges { size: Some(len as u64), ..AttributeChanges::default() };
        self.volume.set_attributes(self.ino, &changes, &caller()).expect("a truncation");
    }

    fn sync(&self) {
        self.volume.sync_all().expect("a sync");
    }

    /// Compares a read with the model.
    fn check(&self, offset: usize, len: usize) {
        let read = self.volume.read(self.ino, offset as u64, len).expect("a read");
        let end = (offset + len).min(self.expected.len());
        assert!(read.as_bytes() == &self.expected[offset.min(end)..end], "{len} bytes at {offset}");
    }

    fn read_ahead(&self, offset: usize, blocks: usize) -> Option<ContentAhead> {
        let memory = MmapRegion::new(blocks).expect("memory");
        match self.volume.read_ahead(self.ino, offset as u64, memory, &|| true) {
            Ok(AheadRead::Content(content)) => Some(content),
            Ok(AheadRead::Nothing) => None,
            other => panic!("the tree is sound, and nobody writes: {other:?}"),
        }
    }

    /// Compares all that was read ahead with the model.
    fn check_ahead(&self, offset: usize, blocks: usize) {
        let Some(ahead) = self.read_ahead(offset, blocks) else {
            assert!(offset >= self.expected.len());
            return;
        };
        assert!(ahead.is_current());
        let end = (offset + blocks * BLOCK_SIZE).min(self.expected.len());
        assert!(ahead.bytes() == &self.expected[offset..end], "{blocks} blocks at {offset}");
        assert_eq!(ahead.is_end(), end == self.expected.len());
    }

    /// Writes the file in order, and half of its blocks once more, in batches of a few.
    fn scatter(&mut self, random: &mut SeededRng) {
        self.write(0, &random.bytes(FILE_BLOCKS as usize * BLOCK_SIZE));
        self.sync();
        for no in 0..FILE_BLOCKS / 2 {
            let block = random.below(FILE_BLOCKS) as usize;
            self.write(block * BLOCK_SIZE, &random.bytes(BLOCK_SIZE));
            if no % 16 == 0 {
                self.sync();
            }
        }
        self.sync();
    }

    /// Returns the number of requests and of blocks to read the whole file.
    fn cost(&self) -> (u64, u64) {
        self.check(0, self.expected.len());
        self.device.reset();
        self.check(0, self.expected.len());
        (self.device.counts().reads, self.device.counts().read_blocks)
    }

    fn runs(&self) -> Vec<BlockRun> {
        let (mut runs, mut from) = (Vec::new(), Some(0));
        while let Some(first) = from {
            let part = self.volume.file_blocks(self.ino, first, 0).expect("a map");
            runs.extend(part.runs);
            from = part.next;
        }
        runs
    }

    fn address(&self, block: u32) -> u64 {
        let runs = self.runs();
        let holds = |run: &&BlockRun| (run.block..run.block + run.count).contains(&block);
        let run = runs.iter().find(holds).expect("a mapped block");
        run.address + u64::from(block - run.block)
    }
}

#[test]
fn reads_equal_a_model_with_holes_dirty_and_partial_blocks() {
    for (seed, data_layout) in (1..).zip(DataLayout::ALL) {
        let mut random = SeededRng::new(seed);
        let mut fixture = Fixture::new(data_layout);
        for round in 0..200 {
            fixture.volume.set_read_gap(random.pick(&[0, 1, 8, 100]));
            let offset = random.below(FILE_BLOCKS * BLOCK_SIZE as u64) as usize;
            let len = 1 + random.below(40_000) as usize;
            match random.below(10) {
                // Short files are inline.
                0 if round < 40 => fixture.truncate(random.below(1500) as usize),
                0 => fixture.punch(offset..offset + len),
                1 if round % 5 == 0 => fixture.truncate(offset),
                1..4 => fixture.sync(),
                4..7 => {
                    let block = offset / BLOCK_SIZE * BLOCK_SIZE;
                    fixture.write(block, &random.bytes(BLOCK_SIZE));
                }
                _ => fixture.write(offset, &random.bytes(len)),
            }
            let offset = random.below(fixture.expected.len() as u64 + 10_000) as usize;
            fixture.check(offset, 1 + random.below(400_000) as usize);
            fixture.check_ahead(offset / BLOCK_SIZE * BLOCK_SIZE, 1 + random.below(300) as usize);
        }
        fixture.check(0, fixture.expected.len());
    }
}

#[test]
fn near_blocks_are_read_by_one_request() {
    let mut fixture = Fixture::new(DataLayout::Log);
    fixture.scatter(&mut SeededRng::new(7));
    fixture.volume.set_read_gap(0);
    let (alone, blocks) = fixture.cost();
    assert_eq!(blocks, FILE_BLOCKS, "each block once");
    assert!(alone <= fixture.runs().len() as u64, "{alone} requests");
    fixture.volume.set_read_gap(8);
    let (merged, blocks) = fixture.cost();
    assert!(merged < alone / 2, "{merged} requests instead of {alone}");
    assert!(blocks <= FILE_BLOCKS * 5 / 4, "{blocks} blocks");
}

#[test]
fn only_reads_with_the_damaged_block_fail() {
    for is_unreadable in [false, true] {
        let mut fixture = Fixture::new(DataLayout::Log);
        fixture.scatter(&mut SeededRng::new(8));
        fixture.volume.set_read_gap(64);
        let address = fixture.address(300);
        let range = address..address + 1;
        let faulty = fixture.device.inner();
        if is_unreadable {
            faulty.fail_reads(range)
        } else {
            faulty.corrupt_reads(range)
        }
        fixture.check(0, 300 * BLOCK_SIZE);
        fixture.check(301 * BLOCK_SIZE, 399 * BLOCK_SIZE);
        let error = fixture.volume.read(fixture.ino, 0, 301 * BLOCK_SIZE).expect_err("damage");
        match error {
            Error::Device(error) => {
                assert!(is_unreadable && error.operation == Operation::Read);
            }
            Error::Corrupt(damage) => {
                assert!(!is_unreadable && damage.location.number() == address, "{damage}");
            }
            other => panic!("{other}"),
        }
        let ahead = fixture.read_ahead(0, FILE_BLOCKS as usize).expect("most of the content");
        let found = |block: u64| ahead.find(block * BLOCK_SIZE as u64, BLOCK_SIZE).is_some();
        let missing: Vec<u64> = (0..FILE_BLOCKS).filter(|block| !found(*block)).collect();
        assert!(missing.contains(&300));
        // The device reads the blocks of one piece together.
        let piece = fixture
            .runs()
            .into_iter()
            .find(|run| run.address <= address && address < run.address + u64::from(run.count));
        let piece = piece.expect("a run");
        let of_piece = |block: &u64| (*block as u32).wrapping_sub(piece.block) < piece.count;
        assert!(
            missing.iter().all(of_piece) && (is_unreadable || missing.len() == 1),
            "{missing:?}"
        );
        assert!(ahead.find(299 * BLOCK_SIZE as u64, 2 * BLOCK_SIZE).is_none());
    }
}

#[test]
fn a_damaged_block_in_a_gap_harms_nobody() {
    let mut fixture = Fixture::new(DataLayout::Log);
    fixture.scatter(&mut SeededRng::new(9));
    fixture.volume.set_read_gap(64);
    let mut live: Vec<u64> = fixture
        .runs()
        .iter()
        .flat_map(|run| run.address..run.address + u64::from(run.count))
        .collect();
    live.sort_unstable();
    let gaps = live.windows(2).filter(|pair| pair[1] - pair[0] > 1);
    let gaps: Vec<Range<u64>> = gaps.map(|pair| pair[0] + 1..pair[1]).collect();
    assert!(gaps.len() > 20);
    for gap in gaps {
        fixture.device.inner().fail_reads(gap);
    }
    fixture.check(0, fixture.expected.len());
    fixture.check_ahead(0, FILE_BLOCKS as usize);
    let kinds: Vec<ErrorKind> =
        fixture.volume.remembered().errors.iter().map(|count| count.kind).collect();
    assert_eq!(kinds, [ErrorKind::Retry], "merged runs were read again; no wanted block is bad");
}

#[test]
fn content_that_nobody_wants_any_more_is_not_read_to_its_end() {
    let mut fixture = Fixture::new(DataLayout::Log);
    fixture.scatter(&mut SeededRng::new(11));
    fixture.volume.set_read_turn(8);
    let read = |go_on: &dyn Fn() -> bool| {
        let memory = MmapRegion::new(FILE_BLOCKS as usize).expect("memory");
        fixture.device.reset();
        let read = fixture.volume.read_ahead(fixture.ino, 0, memory, go_on).expect("no error");
        (matches!(read, AheadRead::GivenUp), fixture.device.counts().read_blocks)
    };
    let asked = Cell::new(0);
    let twice = || asked.replace(asked.get() + 1) < 2;
    read(&|| true);
    let (is_given_up, blocks) = read(&twice);
    assert!(is_given_up && (16..100).contains(&blocks), "{blocks} blocks");
    let (is_given_up, blocks) = read(&|| true);
    assert!(!is_given_up && blocks >= FILE_BLOCKS, "{blocks} blocks");
    // A write makes what is being read old.
    let asked = Cell::new(false);
    let write = || {
        if !asked.replace(true) {
            let mode = WriteMode::default();
            fixture.volume.write(fixture.ino, 0, b"x", mode, &caller()).expect("a write");
        }
        true
    };
    let (is_given_up, blocks) = read(&write);
    assert!(is_given_up && blocks < 100, "{blocks} blocks");
}

#[test]
fn what_was_read_ahead_is_old_after_any_change_and_after_nothing_else() {
    let mut fixture = Fixture::new(DataLayout::Log);
    fixture.scatter(&mut SeededRng::new(10));
    let other = fixture.volume.make_node(ROOT_INO, b"other", FILE_MODE, 0, &caller()).unwrap().ino;
    fixture.volume.write(other, 0, &[5; 9000], WriteMode::default(), &caller()).unwrap();
    let changes: [fn(&mut Fixture, u64); 6] = [
        |fixture, _| fixture.write(5000, b"x"),
        |fixture, _| fixture.write(fixture.expected.len(), b"appended"),
        |fixture, _| fixture.truncate(fixture.expected.len() - 1),
        |fixture, _| fixture.truncate(fixture.expected.len() + 10_000),
        |fixture, _| fixture.punch(8192..20_000),
        |fixture, other| {
            let (from, to) = ((other, 0), (fixture.ino, 4096));
            let copied = fixture.volume.copy_range(from, to, 8192, WriteMode::default(), &caller());
            assert_eq!(copied.unwrap(), 8192);
            fixture.expected[4096..4096 + 8192].fill(5);
        },
    ];
    for change in changes {
        let ahead = fixture.read_ahead(0, FILE_BLOCKS as usize).expect("content");
        fixture.volume.write(other, 0, &[6; 4096], WriteMode::default(), &caller()).unwrap();
        fixture.volume.write(other, 0, &[5; 4096], WriteMode::default(), &caller()).unwrap();
        fixture.sync();
        fixture.volume.checkpoint().unwrap();
        fixture.check(0, fixture.expected.len());
        assert!(ahead.is_current(), "only another file has changed");
        change(&mut fixture, other);
        assert!(!ahead.is_current());
        fixture.check_ahead(0, FILE_BLOCKS as usize + 10);
    }
}

#[test]
fn content_ahead_is_found_where_it_is_whole() {
    let mut fixture = Fixture::new(DataLayout::Log);
    fixture.write(0, &[3; 10_000]);
    let ahead = fixture.read_ahead(4096, 1).expect("content");
    assert_eq!((ahead.start(), ahead.bytes().len(), ahead.is_end()), (4096, 4096, false));
    assert_eq!(ahead.find(4096, 4096), Some(0..4096));
    assert_eq!(ahead.find(5000, 100), Some(904..1004));
    assert_eq!(ahead.find(4096, 4097), None, "the file goes on");
    assert_eq!(ahead.find(4095, 1), None);
    assert_eq!(ahead.find(u64::MAX, usize::MAX), None);
    let last = fixture.read_ahead(8192, 10).expect("content");
    assert!(last.is_end());
    assert_eq!(last.find(8192, 1 << 20), Some(0..1808), "to the end of the file");
    assert_eq!(last.find(10_000, 5), Some(1808..1808));
    assert_eq!(last.find(10_001, 5), None);
    assert!(fixture.read_ahead(12_288, 1).is_none(), "behind the end");
}

#[test]
fn a_read_of_a_block_takes_no_memory() {
    let mut fixture = Fixture::new(DataLayout::Log);
    fixture.write(0, &[7; 64 * BLOCK_SIZE]);
    fixture.sync();
    let mut memory = Block::zeroed(2);
    let mut allocations = |offset: u64, blocks: usize| {
        let room = &mut memory[..blocks];
        let len = blocks * BLOCK_SIZE;
        let mut read = None;
        let taken = allocation_counter::measure(|| {
            read = Some(fixture.volume.read_into(fixture.ino, offset, len, room, None));
        });
        assert_eq!(read.expect("a call").expect("a read"), len);
        assert!(room.iter().all(|block| block.0 == [7; BLOCK_SIZE]));
        taken.count_total
    };
    allocations(0, 1);
    assert_eq!(allocations(5 * BLOCK_SIZE as u64, 1), 0);
    assert!(allocations(40 * BLOCK_SIZE as u64, 2) > 0, "a read that takes memory is noticed");
}
