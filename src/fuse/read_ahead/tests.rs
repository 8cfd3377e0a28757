//! Read-ahead beside writers: every byte that a reader gets was in the file at some time between the request and the reply.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sfs_core::format::{DataLayout, ROOT_INO, Timestamp};
use sfs_core::request::{AllocateMode, Allocation, AttributeChanges, VolumeOptions, WriteMode};
use sfs_device::{BLOCK_SIZE, RamDevice};
use sfs_testkit::SeededRng;
use sfs_testkit::ram_volume::{FILE_MODE, caller, format, open};

use super::*;

/// Number of blocks of the file: several windows.
const FILE_BLOCKS: u64 = 3000;

/// Number of passes of each reader.
const PASSES: u64 = 6;

/// Time that a fast device takes for a request.
const SPEED: DeviceSpeed =
    DeviceSpeed { bytes_per_second: 1 << 30, request: Duration::from_micros(5) };

fn volume() -> (Arc<Volume>, u64) {
    volume_with(VolumeOptions::default())
}

fn volume_with(options: VolumeOptions) -> (Arc<Volume>, u64) {
    let device = Arc::new(RamDevice::new(1 << 14));
    format(device.clone(), 256, DataLayout::Log);
    let volume = Arc::new(open(device, options));
    let file = volume.make_node(ROOT_INO, b"file", FILE_MODE, 0, &caller()).expect("a file");
    (volume, file.ino)
}

fn args(handle: u64, offset: u64, size: u32) -> ReadArgs {
    ReadArgs { handle, offset, size, open_flags: 0 }
}

/// Reads as the shell does: from a window, or from the volume.
fn read(ahead: &ReadAhead, volume: &Volume, ino: u64, args: &ReadArgs) -> Vec<u8> {
    let mut room = vec![0; args.size as usize];
    match ahead.answer(ino, args, &mut room) {
        Some(AnswerAhead::InPlace(len)) => room[..len].to_vec(),
        Some(AnswerAhead::Window(ahead, range)) => ahead.content().bytes()[range].to_vec(),
        None => {
            let read = volume.read(ino, args.offset, args.size as usize).expect("a read");
            read.as_bytes().to_vec()
        }
    }
}

/// Numbers of the writes to each block of a file: block `no` holds the number of a write, repeated.
struct Model {
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
}

impl Model {
    fn new() -> Self {
        let zeros = || (0..FILE_BLOCKS).map(|_| AtomicU64::new(0)).collect();
        Self { begun: zeros(), done: zeros() }
    }

    /// Does `write` to blocks with the number `number`; 0 is a hole.
    fn change(&self, blocks: std::ops::Range<u64>, number: u64, write: impl FnOnce()) {
        let of = |list: &[AtomicU64]| {
            for at in &list[blocks.start as usize..blocks.end as usize] {
                at.store(number, Ordering::SeqCst);
            }
        };
        of(&self.begun);
        write();
        of(&self.done);
    }
}

/// Returns the number that fills a block.
fn number_of(block: &[u8]) -> u64 {
    let (number, rest) = block.split_first_chunk().expect("a block");
    let number = u64::from_le_bytes(*number);
    assert!(rest.chunks_exact(8).all(|chunk| chunk == number.to_le_bytes()), "a torn block");
    number
}

/// One writer, whose writes have ascending numbers, overwrites, punches holes and copies, and has the background clean.
fn write_at_random(volume: &Volume, ino: u64, other: u64, model: &Model, is_over: &AtomicBool) {
    let mut random = SeededRng::new(3);
    let filled =
        |number: u64, blocks: u64| number.to_le_bytes().repeat((blocks as usize * BLOCK_SIZE) / 8);
    for number in 1.. {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let first = random.below(FILE_BLOCKS - 8);
        let blocks = first..first + 1 + random.below(8);
        let (at, len) = (first * BLOCK_SIZE as u64, (blocks.end - first) * BLOCK_SIZE as u64);
        let bytes = filled(number, blocks.end - first);
        let mode = WriteMode::default();
        let write = |ino, at| volume.write(ino, at, &bytes, mode, &caller()).expect("a write");
        match random.below(4) {
            0 => {
                write(other, 0);
                model.change(blocks, number, || {
                    let copied = volume.copy_range((other, 0), (ino, at), len, mode, &caller());
                    assert_eq!(copied.expect("a copy"), len);
                });
            }
            1 => model.change(blocks, number, || {
                // The hole is an intermediate state, which no reader may keep.
                let allocation = Allocation {
                    mode: AllocateMode::PunchHole,
                    keep_size: true,
                    keep_times: false,
                    kill_privileges: false,
                };
                volume.allocate(ino, (at, len), &allocation, &caller()).expect("a hole");
                write(ino, at);
            }),
            _ => model.change(blocks, number, || write(ino, at)),
        }
        if random.one_in(16) {
            volume.sync_all().expect("a sync");
            let now = Timestamp { secs: 1_700_000_000 + number as i64, nanos: 0 };
            volume.work(now).expect("background work");
        }
        if random.one_in(4) {
            std::thread::sleep(Duration::from_millis(random.below(4)));
        }
    }
}

#[test]
fn readers_beside_a_writer_get_no_old_byte() {
    let (volume, ino) = volume();
    let other = volume.make_node(ROOT_INO, b"other", FILE_MODE, 0, &caller()).expect("a file").ino;
    let zeros = vec![0; (FILE_BLOCKS as usize) * BLOCK_SIZE];
    volume.write(ino, 0, &zeros, WriteMode::default(), &caller()).expect("a write");
    let ahead = ReadAhead::new(volume.clone(), 128 << 20, Some(SPEED));
    let (model, is_over) = (Model::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (volume, ahead, model, is_over) = (&volume, &ahead, &model, &is_over);
        let writer = scope.spawn(|| write_at_random(volume, ino, other, model, is_over));
        let pass = |handle: u64, size: u32| {
            for pass in 0..PASSES {
                for offset in (0..FILE_BLOCKS * BLOCK_SIZE as u64).step_by(size as usize) {
                    let first = offset as usize / BLOCK_SIZE;
                    let blocks = first..(first + size as usize / BLOCK_SIZE).min(model.done.len());
                    let done = |at: &AtomicU64| at.load(Ordering::SeqCst);
                    let before: Vec<u64> = model.done[blocks.clone()].iter().map(done).collect();
                    let bytes = read(ahead, volume, ino, &args(handle, offset, size));
                    assert_eq!(bytes.len(), blocks.len() * BLOCK_SIZE, "no byte is missing");
                    for ((no, block), before) in blocks.zip(bytes.chunks(BLOCK_SIZE)).zip(before) {
                        let number = number_of(block);
                        let begun = model.begun[no].load(Ordering::SeqCst);
                        // 0: the hole before a write that has begun.
                        let is_hole = number == 0 && begun > before;
                        assert!(
                            is_hole || (before..=begun).contains(&number),
                            "pass {pass}, block {no}: {number} is not in {before}..={begun}"
                        );
                    }
                }
                // Windows that nothing has made old.
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let readers = [(1, 128 << 10), (2, 1 << 20), (3, 4096 * 24)];
        let readers = readers.map(|(handle, size)| scope.spawn(move || pass(handle, size)));
        let outcomes = readers.map(|reader| reader.join());
        is_over.store(true, Ordering::SeqCst);
        assert!(outcomes.iter().all(Result::is_ok) && writer.join().is_ok());
        println!("{} bytes beside the writer", ahead.answered_bytes.load(Ordering::Relaxed));
        // Nobody writes any more.
        let readers = [(4, 128 << 10), (5, 1 << 20), (6, 4096 * 24)];
        let readers = readers.map(|(handle, size)| scope.spawn(move || pass(handle, size)));
        assert!(readers.map(|reader| reader.join()).iter().all(Result::is_ok));
    });
    assert!(ahead.answered_bytes.load(Ordering::Relaxed) > 0, "windows were used");
}

/// A write between the waits for two windows makes the first old, and the second is read after it.
#[test]
fn a_read_of_two_windows_has_the_bytes_of_one_moment() {
    const LEN: usize = 1 << 20;
    let (volume, ino) = volume();
    volume.write(ino, 0, &vec![1; 2 * LEN], WriteMode::default(), &caller()).expect("a write");
    let budget = Arc::new(WindowBudget::new(volume.clone(), 8 << 20));
    let fill = |slot: &Slot, start| {
        let memory = budget.take(LEN as u64).expect("memory");
        slot.fill(memory, &volume, (ino, start), &|| true);
    };
    let slots = [Arc::new(Slot::default()), Arc::new(Slot::default())];
    fill(&slots[0], 0);
    let may_go_on = AtomicBool::new(false);
    assert!(slots[1].begin());
    std::thread::scope(|scope| {
        let second = slots[1].clone();
        let (may_go_on, volume, budget) = (&may_go_on, &volume, &budget);
        scope.spawn(move || {
            let memory = budget.take(LEN as u64).expect("memory");
            sfs_testkit::wait_until("the write", || may_go_on.load(Ordering::SeqCst));
            second.read(memory, volume, (ino, LEN as u64), &|| true);
        });
        let found = slots.clone();
        let reader = scope.spawn(move || {
            let mut room = vec![0; LEN];
            take(&found, LEN as u64 / 2, LEN, &mut room).is_some()
        });
        let first = slots[0].wait().expect("content");
        // The slot, this thread, and the reader, which waits for the second window.
        sfs_testkit::wait_until("the reader", || Arc::strong_count(&first) == 3);
        let at = (LEN / 2) as u64;
        volume.write(ino, at, &vec![2; LEN], WriteMode::default(), &caller()).expect("a write");
        may_go_on.store(true, Ordering::SeqCst);
        assert!(!reader.join().expect("no panic"), "half of a write is no answer");
        assert!(slots[1].wait().is_some(), "the second window is current");
    });
}

#[test]
fn a_reader_does_not_wait_for_a_thread_that_has_not_begun() {
    let (volume, ino) = volume();
    volume.write(ino, 0, &vec![1; 1 << 20], WriteMode::default(), &caller()).expect("a write");
    let budget = Arc::new(WindowBudget::new(volume.clone(), 8 << 20));
    let slot = Slot::default();
    assert!(slot.wait().is_none(), "no thread has begun");
    slot.fill(budget.take(1 << 20).expect("memory"), &volume, (ino, 0), &|| panic!("is read"));
    assert!(slot.wait().is_none() && !slot.is_old() && budget.is_unused());
}

/// Regression: readers of good blocks waited while the device tried a damaged block of their window, more than once.
#[test]
fn a_reader_does_not_wait_for_a_device_that_is_stuck() {
    let slot = Slot::default();
    assert!(slot.begin());
    let begun = Instant::now();
    assert!(slot.wait().is_none() && begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_file_read_in_order_comes_from_windows() {
    let (volume, ino) = volume();
    let content = SeededRng::new(1).bytes(FILE_BLOCKS as usize * BLOCK_SIZE + 100);
    volume.write(ino, 0, &content, WriteMode::default(), &caller()).expect("a write");
    for size in [4096, 96 << 10, 1 << 20] {
        let ahead = ReadAhead::new(volume.clone(), 16 << 20, Some(SPEED));
        let mut whole = Vec::new();
        while whole.len() < content.len() {
            let bytes = read(&ahead, &volume, ino, &args(1, whole.len() as u64, size));
            assert!(!bytes.is_empty(), "the file goes on");
            whole.extend(bytes);
        }
        assert!(whole == content, "in reads of {size}");
        assert!(read(&ahead, &volume, ino, &args(1, whole.len() as u64, size)).is_empty());
        let answered = ahead.answered_bytes.load(Ordering::Relaxed);
        // A busy machine starts the threads late, and readers do not wait for that.
        assert!(answered > content.len() as u64 / 4, "{answered} bytes in reads of {size}");
        ahead.released(ino, 1);
        assert!(ahead.budget.is_unused());
    }
}

#[test]
fn a_file_that_has_become_shorter_ends_there() {
    let (volume, ino) = volume();
    let content = vec![7; FILE_BLOCKS as usize * BLOCK_SIZE];
    volume.write(ino, 0, &content, WriteMode::default(), &caller()).expect("a write");
    let ahead = ReadAhead::new(volume.clone(), 128 << 20, Some(SPEED));
    for no in 0..3 {
        assert_eq!(read(&ahead, &volume, ino, &args(1, no << 20, 1 << 20)).len(), 1 << 20);
    }
    let changes = AttributeChanges { size: Some((3 << 20) + 5), ..AttributeChanges::default() };
    volume.set_attributes(ino, &changes, &caller()).expect("a truncation");
    assert_eq!(read(&ahead, &volume, ino, &args(1, 3 << 20, 1 << 20)), [7; 5]);
    drop(ahead);
    assert_eq!(Arc::strong_count(&volume), 1, "the threads have ended");
}

#[test]
fn windows_stay_within_the_budget() {
    let (volume, ino) = volume();
    let content = vec![7; FILE_BLOCKS as usize * BLOCK_SIZE];
    volume.write(ino, 0, &content, WriteMode::default(), &caller()).expect("a write");
    let ahead = ReadAhead::new(volume.clone(), 32 << 20, Some(SPEED));
    for no in 0..8 {
        for handle in 1..20 {
            let bytes = read(&ahead, &volume, ino, &args(handle, no << 20, 1 << 20));
            assert!(bytes.len() == 1 << 20 && bytes.iter().all(|byte| *byte == 7));
            assert!(ahead.budget.used_bytes() <= 8 << 20);
        }
    }
    (1..20).for_each(|handle| ahead.released(ino, handle));
    assert!(ahead.budget.is_unused());
}

/// Regression: only reads that no window answered made a file a candidate for idle defragmentation.
#[test]
fn a_file_that_windows_answer_is_put_in_order() {
    let options = VolumeOptions { idle_defragmentation: 100, ..VolumeOptions::default() };
    let (volume, ino) = volume_with(options);
    let mode = WriteMode::default();
    let content = vec![7; FILE_BLOCKS as usize * BLOCK_SIZE];
    volume.write(ino, 0, &content, mode, &caller()).expect("a write");
    for no in 0..FILE_BLOCKS {
        let at = no * 2_654_435_761 % FILE_BLOCKS * BLOCK_SIZE as u64;
        volume.write(ino, at, &[8; BLOCK_SIZE], mode, &caller()).expect("a write");
        if no % 64 == 63 {
            volume.sync_file(ino).expect("a sync");
        }
    }
    volume.sync_all().expect("a sync");
    let ahead = ReadAhead::new(volume.clone(), 128 << 20, Some(SPEED));
    for no in 0..(content.len() >> 20) as u64 {
        read(&ahead, &volume, ino, &args(1, no << 20, 1 << 20));
        // Time to read the next window before it is needed.
        std::thread::sleep(Duration::from_millis(5));
    }
    let answered = ahead.answered_bytes.load(Ordering::Relaxed);
    assert!(answered > 8 << 20, "{answered} bytes came from windows");
    let moved = || volume.counters().defragmentation_bytes;
    let now = |no: i64| Timestamp { secs: 1_800_000_000 + no, nanos: 0 };
    let found = (0..1000).any(|no| {
        volume.work(now(no)).expect("background work");
        moved() > 0
    });
    assert!(found, "no block was moved");
}
