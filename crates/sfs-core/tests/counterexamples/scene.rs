//! A volume that is nearly full, on a device that can be held up.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_device::{GatedDevice, RamDevice};

use crate::fixture::{Random, blocks_for, caller, create, fill, format, open, write};

/// Many small files, one that can be emptied, and one that fills the rest and has been overwritten
/// until few segments are Clean. A file "doomed" can be deleted.
pub(crate) struct Scene {
    pub(crate) device: Arc<GatedDevice<RamDevice>>,
    pub(crate) volume: Volume,
    pub(crate) small: Vec<u64>,
    pub(crate) emptied: u64,
    pub(crate) large: u64,
}

/// A volume of `segments` segments with so many small `files`, and `doomed` blocks of the file that
/// can be deleted; no more than `clean` segments are Clean.
pub(crate) fn scene(segments: u64, files: usize, doomed: u64, clean: u32) -> Scene {
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
    Scene { device, volume, small, emptied, large }
}
