//! The rings by which a daemon makes several reads at the same time, and the speed of reading.

use sfs_core::Volume;
use sfs_device::{BLOCK_SIZE, FileDevice};

use crate::device_speed::{self, DeviceSpeed};
use crate::volume_cache::VolumeCache;

/// Number of threads that make several requests to the device at the same time: those that serve reads, and two that read ahead.
const READ_RINGS: usize = 6;

/// Makes the device's rings, before the sandbox and after the monitor was forked, which inherits none. Returns the speed of
/// reading. The kernel gives a thread that reads by a ring threads of its own, without limits: they end with the thread here.
pub(super) fn measure_with_rings(
    device: &FileDevice,
    cache: Option<&VolumeCache>,
    volume: &Volume,
) -> Option<DeviceSpeed> {
    let measure = || {
        device.make_read_rings(READ_RINGS);
        if let Some(cache) = cache {
            cache.make_read_rings(READ_RINGS);
        }
        device_speed::measure(device, &volume.superblock().layout)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sfs-measure".into());
        thread.spawn_scoped(scope, measure).ok()?.join().ok().flatten()
    })
}

/// Makes the device's rings as [`measure_with_rings`] does, and measures nothing.
pub(super) fn make_rings(device: &FileDevice, speed: Option<DeviceSpeed>) -> Option<DeviceSpeed> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sfs-rings".into());
        let make = || device.make_read_rings(READ_RINGS);
        thread.spawn_scoped(scope, make).ok()?.join().ok()
    });
    speed
}

/// Has the device and the volume read as suits this speed.
pub(super) fn adjust(device: &FileDevice, volume: &Volume, speed: Option<DeviceSpeed>) {
    volume.set_read_gap(speed.map_or(0, DeviceSpeed::gap_blocks));
    let turn_bytes = speed.map_or(usize::MAX, DeviceSpeed::turn_bytes);
    device.set_turn(turn_bytes, speed.map_or(0, DeviceSpeed::request_bytes));
    volume.set_read_turn(turn_bytes / BLOCK_SIZE);
}
