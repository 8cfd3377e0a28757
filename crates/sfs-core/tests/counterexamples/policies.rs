//! Writing of segments under the grouping policies that a user can choose.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::request::VolumeOptions;
use sfs_device::RamDevice;

use crate::fixture::{NOW, blocks_for, create, format, write};

/// The last block of a file and the blocks appended to it belong to different groups.
#[test]
fn appending_keeps_the_write_buffer_within_its_budget() {
    for grouping in ["dac", "sfs", "sepbit"] {
        let device = Arc::new(RamDevice::new(blocks_for(4000)));
        format(&device, 32);
        let options = VolumeOptions {
            grouping: grouping.into(),
            write_buffer: 4 << 20,
            ..VolumeOptions::default()
        };
        let volume = Volume::open(device.clone(), options, NOW).unwrap();
        let file = create(&volume, "f");
        write(&volume, file, 0, &[1; 5 * 4096 + 100]).unwrap();
        volume.sync_all().unwrap();
        let mut at = 5 * 4096 + 100;
        for _ in 0..4000 {
            volume
                .write(file, at, &[2; 4096], Default::default(), &crate::fixture::caller())
                .unwrap();
            at += 4096;
        }
        let waiting = 4000 - volume.counters().data_bytes / 4096;
        assert!(waiting < 2048, "{grouping}: {waiting} blocks wait in a buffer of 1024");
    }
}
