//! What every test needs: a device with a volume on it, and a clock.
//!
//! Owns: the making of volumes, and the sizes that make trouble likely.
//! Promises: everything is deterministic.
//! Never: asks for the time.

use std::sync::Arc;
use std::time::Duration;

use sfs_core::format::{DataLayout, Label, Layout, Superblock, Timestamp};
use sfs_core::policy::GROUPING_POLICIES;
use sfs_core::request::{Caller, Remainder, VolumeOptions, Work};
use sfs_core::{Error, Volume, make, root_directory};
use sfs_device::{Device, RamDevice};

/// When everything begins.
pub const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// Regular file, `rw-r--r--`.
pub const FILE: u32 = 0o100_644;

/// Directory, `rwxr-xr-x`.
pub const DIRECTORY: u32 = 0o040_755;

/// Blocks of the smallest segment.
pub const SEGMENT_BLOCKS: u64 = 32;

/// Somebody, at the beginning.
pub fn caller() -> Caller {
    Caller { uid: 1000, gid: 100, now: NOW }
}

/// `NOW` and `millis` more.
pub fn after(millis: u64) -> Timestamp {
    let nanos = u64::from(NOW.nanos) + millis % 1000 * 1_000_000;
    Timestamp { secs: NOW.secs + (millis / 1000) as i64, nanos: nanos as u32 }
}

/// Small budgets: everything is written out, evicted and loaded all the time.
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

/// As [`tight`], with one policy after the other.
pub fn tight_with(policy: u64) -> VolumeOptions {
    let grouping = GROUPING_POLICIES[(policy % GROUPING_POLICIES.len() as u64) as usize].to_owned();
    let remainder = if policy.is_multiple_of(2) { Remainder::Pure } else { Remainder::Mixed };
    VolumeOptions { grouping, remainder, ..tight() }
}

/// What `SFS_LAYOUT` says, or the log.
///
/// # Panics
///
/// If it is none.
pub fn data_layout() -> DataLayout {
    let name = std::env::var("SFS_LAYOUT").unwrap_or_else(|_| "log".to_owned());
    DataLayout::by_name(&name).unwrap_or_else(|| panic!("SFS_LAYOUT: {name}"))
}

/// Makes a volume in segments of `segment_blocks` on the whole of `device`, with what
/// [`data_layout`] says.
pub fn format(device: Arc<dyn Device>, segment_blocks: u64) {
    format_as(device, segment_blocks, data_layout());
}

/// As [`format()`], with `data_layout`.
pub fn format_as(device: Arc<dyn Device>, segment_blocks: u64, data_layout: DataLayout) {
    let layout = Layout::new(device.geometry().block_count, segment_blocks, 0).expect("it fits");
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

/// A volume of `bytes` in memory.
pub fn ram(bytes: u64, segment_blocks: u64) -> RamDevice {
    ram_as(bytes, segment_blocks, data_layout())
}

/// As [`ram`], with `data_layout`.
pub fn ram_as(bytes: u64, segment_blocks: u64, data_layout: DataLayout) -> RamDevice {
    let device = Arc::new(RamDevice::new(bytes / 4096));
    format_as(device.clone(), segment_blocks, data_layout);
    Arc::into_inner(device).expect("making lets go of the device")
}

/// Opens a volume that must open.
pub fn open(device: Arc<dyn Device>, options: VolumeOptions) -> Volume {
    Volume::open(device, options, NOW).expect("the volume opens")
}

/// Does all background work that is due at `now`.
pub fn settle(volume: &Volume, now: Timestamp) -> sfs_core::Result<()> {
    for _ in 0..100_000 {
        if volume.work(now)? != Work::More {
            return Ok(());
        }
    }
    panic!("background work does not end");
}

/// Whether two errors are of one kind.
pub fn same_kind(a: &Error, b: &Error) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}
