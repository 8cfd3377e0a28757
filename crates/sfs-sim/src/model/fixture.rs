//! Fixtures of tests: devices with a volume, options with small budgets, and a virtual clock.
//!
//! All fixtures are deterministic.

use std::sync::Arc;
use std::time::Duration;

use sfs_core::format::{DataLayout, Label, Layout, Superblock, Timestamp};
use sfs_core::policy::GROUPING_POLICIES;
use sfs_core::request::{Caller, Remainder, VolumeOptions, Work};
use sfs_core::{Error, Volume, make, root_directory};
use sfs_device::{Device, RamDevice};

/// Start of the virtual time.
pub const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// Mode of a regular file, `rw-r--r--`.
pub const FILE: u32 = 0o100_644;

/// Mode of a directory, `rwxr-xr-x`.
pub const DIRECTORY: u32 = 0o040_755;

/// Number of blocks in the smallest segment.
pub const SEGMENT_BLOCKS: u64 = 32;

/// Returns an unprivileged caller at time [`NOW`].
pub fn caller() -> Caller {
    Caller { uid: 1000, gid: 100, now: NOW, umask: None }
}

/// Returns the time `millis` milliseconds after [`NOW`].
pub fn after(millis: u64) -> Timestamp {
    let nanos = u64::from(NOW.nanos) + millis % 1000 * 1_000_000;
    Timestamp { secs: NOW.secs + (millis / 1000) as i64, nanos: nanos as u32 }
}

/// Returns options with small budgets, so that blocks are written back, evicted and loaded all the time.
pub fn tight() -> VolumeOptions {
    VolumeOptions {
        write_buffer: 256 << 10,
        yield_cleaning: false,
        cache: 64 << 10,
        commit_interval: Duration::from_secs(5),
        checkpoint_interval: Duration::from_secs(30),
        ..VolumeOptions::default()
    }
}

/// Returns the options of [`tight`] with the grouping policy, and the use of remainders, of number `policy`.
pub fn tight_with(policy: u64) -> VolumeOptions {
    let grouping = GROUPING_POLICIES[(policy % GROUPING_POLICIES.len() as u64) as usize].to_owned();
    let remainder = if policy.is_multiple_of(2) { Remainder::Pure } else { Remainder::Mixed };
    VolumeOptions { grouping, remainder, ..tight() }
}

/// Returns the data layout that `SFS_LAYOUT` names; the log if the variable is not set.
///
/// # Panics
///
/// If the variable names no data layout.
pub fn data_layout() -> DataLayout {
    let name = std::env::var("SFS_LAYOUT").unwrap_or_else(|_| "log".to_owned());
    DataLayout::by_name(&name).unwrap_or_else(|| panic!("SFS_LAYOUT: no data layout {name}"))
}

/// Makes a volume on the whole of `device`, with segments of `segment_blocks` blocks and the layout of
/// [`data_layout`].
pub fn format(device: Arc<dyn Device>, segment_blocks: u64) {
    format_as(device, segment_blocks, data_layout());
}

/// Makes a volume like [`format()`], with the given data layout.
pub fn format_as(device: Arc<dyn Device>, segment_blocks: u64, data_layout: DataLayout) {
    let block_count = device.geometry().block_count;
    format_blocks(device, block_count, segment_blocks, data_layout);
}

/// Makes a volume on the first `block_count` blocks of `device`, with the given data layout.
pub fn format_blocks(
    device: Arc<dyn Device>,
    block_count: u64,
    segment_blocks: u64,
    data_layout: DataLayout,
) {
    let layout = Layout::new(block_count, segment_blocks, 0).expect("a layout");
    let superblock = Superblock {
        uuid: *b"the model volume",
        label: Label::NONE,
        layout,
        hash_key: [1, 2],
        data_layout,
        created: NOW,
        ..Superblock::new(layout)
    };
    make(device, &superblock, &root_directory(0, 0, NOW)).expect("a volume is made");
}

/// Makes a volume of `bytes` bytes in memory.
pub fn ram(bytes: u64, segment_blocks: u64) -> RamDevice {
    ram_as(bytes, segment_blocks, data_layout())
}

/// Makes a volume like [`ram`], with the given data layout.
pub fn ram_as(bytes: u64, segment_blocks: u64, data_layout: DataLayout) -> RamDevice {
    let device = Arc::new(RamDevice::new(bytes / 4096));
    format_as(device.clone(), segment_blocks, data_layout);
    Arc::into_inner(device).expect("formatting drops its reference to the device")
}

/// Opens a volume.
///
/// # Panics
///
/// If the volume does not open.
pub fn open(device: Arc<dyn Device>, options: VolumeOptions) -> Volume {
    Volume::open(device, options, NOW).expect("the volume opens")
}

/// Does all background work that is due at `now`.
///
/// # Panics
///
/// If the work does not end.
pub fn settle(volume: &Volume, now: Timestamp) -> sfs_core::Result<()> {
    for _ in 0..100_000 {
        if volume.work(now)? != Work::More {
            return Ok(());
        }
    }
    panic!("background work does not end");
}

/// Returns whether two errors are the same variant.
pub fn same_kind(a: &Error, b: &Error) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}
