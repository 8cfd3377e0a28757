//! Forged images, with arbitrary content under sound checksums up to the checkpoint. Mount, use, check and
//! repair end without a panic, in bounded time and memory, and without a write beyond the device.
//!
//! The long run: `SFS_RUNS=100000 cargo test --release -p sfs-fsck --test hostile`.

#[expect(dead_code, reason = "shared with damage.rs")]
mod used;

use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sfs_core::Volume;
use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, NodePointer, ROOT_INO, Superblock,
};
use sfs_core::request::{VolumeOptions, Work};
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Geometry, RamDevice, Stream};
use sfs_fsck::{RepairOptions, check, repair};

use used::{NOW, SplitMix64, number, used, write_more};

/// Bound on the requests of one mount, check or repair; far more than any of these volumes needs.
const REQUESTS_MAX: u64 = 2_000_000;

/// Bound on the time for one image, on any machine.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Bound on the memory of the process. The images take 100 MiB each; a forged length must not cause a large
/// allocation.
const MEMORY_MAX_KIB: u64 = 2 << 20;

const HEADER_LEN: usize = 64;
const ENTRY_LEN: usize = 29;
const SLOT_LEN: usize = 21;

/// Device that counts requests, and panics at a write beyond its end.
struct CountingDevice {
    inside: RamDevice,
    requests: AtomicU64,
}

impl CountingDevice {
    fn new(inside: RamDevice) -> Self {
        Self { inside, requests: AtomicU64::new(0) }
    }

    fn count(&self) {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed);
        assert!(requests < REQUESTS_MAX, "more than {REQUESTS_MAX} requests");
    }

    fn count_inside(&self, what: &str, address: u64, count: u64) {
        self.count();
        let end = address.checked_add(count);
        let block_count = self.inside.geometry().block_count;
        assert!(end.is_some_and(|end| end <= block_count), "{what} of {count} at {address}");
    }
}

impl Device for CountingDevice {
    fn geometry(&self) -> &Geometry {
        self.inside.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        // A read of a forged address is allowed, and fails.
        self.count();
        self.inside.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.count_inside("write", address, parts.iter().map(|part| part.len() as u64).sum());
        self.inside.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inside.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.count_inside("discard", address, count);
        self.inside.discard(address, count)
    }
}

fn read(device: &RamDevice, at: u64, count: usize) -> Box<[Block]> {
    let mut blocks = Block::zeroed(count);
    device.read(at, &mut blocks).expect("RAM");
    blocks
}

fn write(device: &RamDevice, at: u64, blocks: &[Block]) {
    device.write(at, &[blocks], Stream::default()).expect("RAM");
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn seal(bytes: &mut [u8], field: usize, from: usize) -> u32 {
    let checksum = crc32c::crc32c(&bytes[from..]);
    bytes[field..field + 4].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// Sets a few bytes of `range` to extreme or random values, or changes them by one.
fn mutate(bytes: &mut [u8], range: std::ops::Range<usize>, random: &mut SplitMix64) {
    if range.is_empty() {
        return;
    }
    for _ in 0..1 + random.below(4) {
        let at = range.start + random.below((range.end - range.start) as u64) as usize;
        let width = (1usize << random.below(4)).min(range.end - at);
        let target = &mut bytes[at..at + width];
        match random.below(6) {
            0 => target.fill(0),
            1 => target.fill(0xff),
            2 => target[width - 1] ^= 0x80,
            3 => target[0] = target[0].wrapping_add(1),
            4 => target[0] = target[0].wrapping_sub(1),
            _ => target.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
        }
    }
}

/// Forger of one image.
struct Forger<'a> {
    device: &'a RamDevice,
    superblock: Superblock,
    random: &'a mut SplitMix64,
}

impl Forger<'_> {
    /// Returns the newest checkpoint.
    fn record(&self) -> Option<CheckpointRecord> {
        let records = self.superblock.layout.slots.map(|at| {
            let blocks = read(self.device, at, CHECKPOINT_SLOT_BLOCKS as usize);
            CheckpointRecord::decode(Block::bytes_of(&blocks), self.superblock.volume(), at).ok()
        });
        records.into_iter().flatten().max_by_key(|record| record.number)
    }

    fn write_record(&self, record: &CheckpointRecord) {
        let at = self.superblock.layout.slots[(record.number % 2) as usize];
        let bytes = record.encode(self.superblock.volume(), at);
        let mut blocks = Block::zeroed(bytes.len() / BLOCK_SIZE);
        Block::bytes_of_mut(&mut blocks).copy_from_slice(&bytes);
        write(self.device, at, &blocks);
    }

    fn forge(&mut self) {
        match self.random.below(10) {
            0 => self.forge_superblock(),
            1 | 2 => self.forge_record(),
            3 | 4 => self.forge_summary(),
            _ => self.forge_node(),
        }
    }

    fn forge_superblock(&mut self) {
        let mut block = read(self.device, 4, 1);
        let bytes = &mut block[0].0;
        mutate(bytes, 12..184, self.random);
        seal(bytes, 8, 12);
        write(self.device, 4, &block);
        if self.random.below(2) == 0 {
            write(self.device, self.superblock.layout.backup, &block);
        }
    }

    fn forge_record(&mut self) {
        let Some(record) = self.record() else { return };
        let at = self.superblock.layout.slots[(record.number % 2) as usize];
        let mut blocks = read(self.device, at, CHECKPOINT_SLOT_BLOCKS as usize);
        let bytes = Block::bytes_of_mut(&mut blocks);
        let end = 32 + u32_at(bytes, 24) as usize;
        mutate(bytes, 32..end, self.random);
        let checksum = crc32c::crc32c(&bytes[8..end]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        write(self.device, at, &blocks);
    }

    /// Forges a summary at the start of a random segment, or after a head.
    fn forge_summary(&mut self) {
        let layout = self.superblock.layout;
        let Some(record) = self.record() else { return };
        let Some(head) = record.heads.get(self.random.below(3) as usize) else { return };
        let at = match self.random.below(3) {
            0 if head.segment < layout.segment_count && head.next_block < layout.segment_blocks => {
                layout.segment_address(head.segment) + u64::from(head.next_block)
            }
            _ => {
                let segment = self.random.below(layout.segment_count.into()) as u32;
                layout.segment_address(segment)
            }
        };
        let first = read(self.device, at, 1);
        let Ok(count) = sfs_core::format::ChunkSummary::peek(&first[0].0, at, 64) else { return };
        let mut blocks = read(self.device, at, count);
        let bytes = Block::bytes_of_mut(&mut blocks);
        let entries = HEADER_LEN + 24 * u32_at(bytes, 36) as usize;
        let end = (entries + u32_at(bytes, 40) as usize).min(bytes.len());
        let range = match self.random.below(3) {
            0 => 16..50,
            1 if entries > HEADER_LEN => HEADER_LEN..entries,
            _ if end > entries => entries..end,
            _ => 16..50,
        };
        mutate(bytes, range, self.random);
        seal(bytes, 4, 8);
        write(self.device, at, &blocks);
    }

    /// Forges a node on a random path from the root, and corrects the checksums above it.
    fn forge_node(&mut self) {
        let Some(mut record) = self.record() else { return };
        let mut path: Vec<(u64, usize)> = Vec::new();
        let (mut address, mut level) = (record.root_address, record.root_level);
        if self.superblock.layout.segment_of(address).is_none() {
            return;
        }
        while level > 0 && self.random.below(8) > 0 {
            let block = read(self.device, address, 1);
            let count = usize::from(u16::from_le_bytes([block[0].0[32], block[0].0[33]]));
            let child = self.random.below(count.max(1) as u64) as usize;
            let place = HEADER_LEN + child * ENTRY_LEN + 17;
            // An earlier forgery may have changed the number of entries.
            let Some(pointer) = block[0].0.get(place..place + 12) else { return };
            path.push((address, place));
            address = NodePointer::decode(pointer.try_into().expect("twelve bytes")).address;
            if self.superblock.layout.segment_of(address).is_none() {
                return;
            }
            level -= 1;
        }
        let mut block = read(self.device, address, 1);
        let bytes = &mut block[0].0;
        let count = usize::from(u16::from_le_bytes([bytes[32], bytes[33]]));
        let table = HEADER_LEN + count * if level == 0 { SLOT_LEN } else { ENTRY_LEN };
        let range = match self.random.below(8) {
            0 => 32..35,
            1..=3 => HEADER_LEN..table.min(BLOCK_SIZE),
            _ => table.min(BLOCK_SIZE - 1)..BLOCK_SIZE,
        };
        mutate(bytes, range, self.random);
        let mut checksum = seal(bytes, 4, 8);
        write(self.device, address, &block);
        for (address, place) in path.into_iter().rev() {
            let mut block = read(self.device, address, 1);
            block[0].0[place + 8..place + 12].copy_from_slice(&checksum.to_le_bytes());
            checksum = seal(&mut block[0].0, 4, 8);
            write(self.device, address, &block);
        }
        record.root_checksum = checksum;
        self.write_record(&record);
    }
}

/// Mounts the image and uses all of it. Errors are ignored.
fn use_image(image: &RamDevice) {
    let device = Arc::new(CountingDevice::new(image.snapshot()));
    let Ok(volume) = Volume::open(device, VolumeOptions::default(), NOW) else { return };
    let mut pending = vec![ROOT_INO];
    let mut seen = 0;
    while let Some(ino) = pending.pop() {
        let Ok(inode) = volume.attributes(ino) else { continue };
        let mut below = Vec::new();
        let _ = volume.read_directory(ino, 0, false, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                below.push(entry.ino);
            }
            below.len() < 10_000
        });
        seen += below.len();
        // A walk around a ring of directories would not end.
        if seen < 20_000 {
            pending.extend(below);
        }
        let _ = volume.read(ino, 0, 1 << 20);
        let _ = volume.read(ino, inode.size.saturating_sub(4096), 8192);
        let _ = volume.read_link(ino);
        if let Ok(names) = volume.xattr_names(ino) {
            for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                let _ = volume.xattr(ino, name);
            }
        }
    }
    let _ = write_more(&volume);
    for _ in 0..200 {
        if !matches!(volume.work(NOW), Ok(Work::More)) {
            break;
        }
    }
    let _ = volume.audit();
    let _ = volume.close();
}

/// Checks and repairs the image. After a successful repair nothing may be wrong.
fn repair_image(image: &RamDevice) {
    let never_cancel = &mut |_| ControlFlow::Continue(());
    let guard = CountingDevice::new(image.snapshot());
    let _ = check(&guard, &sfs_fsck::CheckOptions { data: true }, never_cancel);
    assert_eq!(guard.inside.allocated_bytes(), image.allocated_bytes(), "a check writes nothing");
    let device: Arc<dyn Device> = Arc::new(guard);
    let options = RepairOptions { data: true, preen: false, now: NOW };
    let Ok(repaired) = repair(&device, &options, never_cancel) else { return };
    let left = repaired.after.as_ref().unwrap_or(&repaired.before);
    assert_eq!(left.errors(), 0, "left: {:?}", left.findings.kept());
    let again = repair(&device, &options, never_cancel).expect("a second repair");
    assert_eq!(again.before.errors(), 0, "again: {:?}", again.before.findings.kept());
    let volume = Volume::open(device, VolumeOptions::default(), NOW).expect("a mount");
    assert_eq!(volume.audit().expect("an audit"), []);
}

/// Returns the peak memory of this process, in KiB.
fn memory_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn forged_images_cause_no_panic_and_no_unbounded_work() {
    let first = number("SFS_SEED", 1);
    let runs = if std::env::var_os("SFS_SEED").is_some() { 1 } else { number("SFS_RUNS", 40) };
    let bases = [used(true).0, used(false).0];
    for seed in (first..).take(runs as usize) {
        let mut random = SplitMix64(seed);
        let base = &bases[(seed % 2) as usize];
        let image = base.snapshot();
        let block = read(&image, 4, 1);
        let superblock = Superblock::decode(&block[0].0, 4).expect("a superblock");
        let mut forger = Forger { device: &image, superblock, random: &mut random };
        for _ in 0..1 + seed % 3 {
            forger.forge();
        }
        println!("SFS_SEED={seed} cargo test -p sfs-fsck --test hostile");
        let begun = Instant::now();
        use_image(&image);
        repair_image(&image);
        assert!(begun.elapsed() < TIME_MAX, "{:?}", begun.elapsed());
        assert!(memory_peak() < MEMORY_MAX_KIB, "{} KiB", memory_peak());
    }
}
