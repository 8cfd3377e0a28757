//! A volume on a device in RAM, the same on every machine.

use std::sync::Arc;

use anyhow::Result;
use sfs_core::Volume;
use sfs_core::format::{DataLayout, Label, Timestamp};
use sfs_core::request::{Counters, VolumeOptions};
use sfs_device::{BLOCK_SIZE, Geometry, RamDevice};
use sfs_mkfs::{Identity, VolumePlan, make_on};

/// Virtual time at which every run begins, in seconds since 1970.
pub(crate) const START_SECS: i64 = 1_700_000_000;

/// The same time.
pub(crate) const START: Timestamp = Timestamp { secs: START_SECS, nanos: 0 };

/// Makes an empty volume on a device of `device_bytes`. Without `segment_bytes` the size of a segment is that of `sfs-mkfs`.
pub(crate) fn make(
    device_bytes: u64,
    segment_bytes: Option<u64>,
) -> Result<(Arc<RamDevice>, VolumePlan)> {
    let geometry = Geometry {
        block_count: device_bytes / BLOCK_SIZE as u64,
        logical_block_size: BLOCK_SIZE as u32,
        physical_block_size: BLOCK_SIZE as u32,
        discard_granularity: BLOCK_SIZE as u64,
        ..Geometry::default()
    };
    let identity = Identity {
        uuid: *b"a volume in RAM.",
        label: Label::NONE,
        hash_key: [1, 2],
        now: START,
        data_layout: DataLayout::Log,
        owner: (0, 0),
    };
    let plan = VolumePlan::new(&geometry, segment_bytes, &identity)?;
    let device = Arc::new(RamDevice::with_geometry(geometry));
    make_on(device.clone(), &plan, false)?;
    Ok((device, plan))
}

/// Makes a volume as [`make`] does, and opens it.
pub(crate) fn open(
    device_bytes: u64,
    segment_bytes: Option<u64>,
    options: &VolumeOptions,
) -> Result<Volume> {
    let (device, _) = make(device_bytes, segment_bytes)?;
    Ok(Volume::open(device, options.clone(), START)?)
}

/// Returns the increase of the counters of a volume.
pub(crate) fn increase(after: Counters, before: Counters) -> Counters {
    Counters {
        user_bytes_written: after.user_bytes_written - before.user_bytes_written,
        device_bytes_written: after.device_bytes_written - before.device_bytes_written,
        data_bytes: after.data_bytes - before.data_bytes,
        cleaning_bytes: after.cleaning_bytes - before.cleaning_bytes,
        defragmentation_bytes: after.defragmentation_bytes - before.defragmentation_bytes,
        metadata_bytes: after.metadata_bytes - before.metadata_bytes,
        summary_bytes: after.summary_bytes - before.summary_bytes,
        commits: after.commits - before.commits,
        syncs: after.syncs - before.syncs,
        checkpoints: after.checkpoints - before.checkpoints,
        segments_cleaned: after.segments_cleaned - before.segments_cleaned,
        stalls: after.stalls - before.stalls,
        nodes_read: after.nodes_read - before.nodes_read,
    }
}
