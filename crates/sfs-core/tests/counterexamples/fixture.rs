//! Small volumes in memory, and the operations that most tests need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{AttributeChanges, Caller, VolumeOptions, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{Device, RamDevice};

pub(crate) const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

pub(crate) fn caller() -> Caller {
    Caller { uid: 0, gid: 0, now: NOW, umask: None }
}

/// Makes a volume in segments of `segment_blocks` on the whole of `device`.
pub(crate) fn format(device: &Arc<impl Device + 'static>, segment_blocks: u64) {
    let block_count = device.geometry().block_count;
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(block_count, segment_blocks, 0).expect("the layout fits"),
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: NOW,
        ..Superblock::new(Layout::new(block_count, segment_blocks, 0).expect("the layout fits"))
    };
    make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("the volume is made");
}

/// Returns the number of blocks of a device that has space for `segments` segments of 32 blocks.
pub(crate) fn blocks_for(segments: u64) -> u64 {
    32 + segments * 32 + 17
}

/// Returns a device in memory with a new volume of `segments` segments of 32 blocks.
pub(crate) fn ram(segments: u64) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new(blocks_for(segments)));
    format(&device, 32);
    device
}

pub(crate) fn open(device: &Arc<impl Device + 'static>) -> Volume {
    Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("the volume opens")
}

pub(crate) fn create(volume: &Volume, name: &str) -> u64 {
    volume
        .make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller())
        .expect("the file is created")
        .ino
}

/// Writes `bytes` to a file from block `block` on.
pub(crate) fn write(volume: &Volume, ino: u64, block: u64, bytes: &[u8]) -> sfs_core::Result<()> {
    volume.write(ino, block * 4096, bytes, WriteMode::default(), &caller())
}

/// Appends to an empty file, `step` blocks at a time and with a sync after every `each` blocks,
/// until a write is refused. Returns the number of blocks of the file.
pub(crate) fn fill(volume: &Volume, ino: u64, step: u64, each: u64) -> u64 {
    let bytes = vec![1; step as usize * 4096];
    let mut count = 0;
    while write(volume, ino, count, &bytes).is_ok() {
        count += step;
        if count.is_multiple_of(each) {
            volume.sync_all().unwrap();
        }
    }
    count
}

/// Returns the result of `work`, during which another thread syncs all the time.
pub(crate) fn beside_syncs<T>(volume: &Volume, work: impl FnOnce() -> T) -> T {
    beside(|| volume.sync_all().expect("the sync succeeds"), work)
}

/// Returns the result of `work`, during which another thread repeats `other`.
pub(crate) fn beside<T>(other: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    /// Ends the other thread when dropped, so also when `work` panics.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                other();
                std::thread::yield_now();
            }
        });
        let _end = End(&is_over);
        work()
    })
}

pub(crate) fn set_size(volume: &Volume, ino: u64, size: u64) -> sfs_core::Result<()> {
    let changes = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
    volume.set_attributes(ino, &changes, &caller()).map(drop)
}

pub(crate) fn read(volume: &Volume, ino: u64, offset: u64, len: usize) -> Vec<u8> {
    volume.read(ino, offset, len).expect("the read succeeds").as_bytes().to_vec()
}

/// Seeded generator of random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}
