//! A nearly full volume on a device that can be blocked.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_device::{GatedDevice, RamDevice};

use crate::fixture::{Random, blocks_for, caller, create, fill, format, open, write};

/// Nearly full volume and its files. A file "doomed" exists, too, unless [`nearly_full`] has
/// deleted it.
pub(crate) struct NearlyFull {
    pub(crate) device: Arc<GatedDevice<RamDevice>>,
    pub(crate) volume: Volume,
    /// Many small files.
    pub(crate) small: Vec<u64>,
    /// File of three blocks that a test can truncate.
    pub(crate) emptied: u64,
    /// File that fills the rest of the volume.
    pub(crate) large: u64,
}

/// Returns a volume of `segments` segments with `files` small files and a file "doomed" of `doomed`
/// blocks. The large file is overwritten until no more than `clean` segments are Clean. If `doomed`
/// is more than 300, that file is deleted before the overwrites.
pub(crate) fn nearly_full(segments: u64, files: usize, doomed: u64, clean: u32) -> NearlyFull {
    let device = Arc::new(GatedDevice::new(RamDevice::new(blocks_for(segments))));
    format(&device, 32);
    let volume = open(&device);
    let small: Vec<u64> = (0..files).map(|i| create(&volume, &format!("s{i}"))).collect();
    let doomed_file = create(&volume, "doomed");
    for at in 0..doomed {
        write(&volume, doomed_file, at, &[1; 4096]).unwrap();
    }
    volume.sync_all().unwrap();
    let emptied = create(&volume, "emptied");
    write(&volume, emptied, 0, &[1; 3 * 4096]).unwrap();
    let large = create(&volume, "large");
    let count = fill(&volume, large, 4, 64);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device);
    if doomed > 300 {
        volume.unlink(ROOT_INO, b"doomed", &caller()).unwrap();
        volume.forget(doomed_file, 1);
        volume.sync_all().unwrap();
    }
    let mut random = Random(7);
    for _ in 0..200_000 {
        write(&volume, large, random.below(count), &[2; 4096]).unwrap();
        volume.sync_file(large).unwrap();
        if volume.status().segments.clean <= clean {
            break;
        }
    }
    NearlyFull { device, volume, small, emptied, large }
}
