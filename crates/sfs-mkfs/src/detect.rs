//! The segment size of a device that does not say what its erase blocks are.
//!
//! Owns: whether to measure, and what follows from it.
//! Promises: what the device says goes before what is measured; a device is measured only after
//! its old superblocks are gone; an answer that no volume fits is none.
//! Never: measures an image file or a loop device, unless told to: their erase blocks are those of
//! whatever is below.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use sfs_device::{Device, DeviceError, Geometry};

use crate::in_use::device_number;
use crate::measure::{Budget, DeviceProbe, Measurement, Region, measure};
use crate::plan::Plan;
use crate::{Options, SegmentSize, wipe};

/// A discard granularity from this on, in bytes, tells of erase blocks; less is a flash page.
const GRANULARITY_TOLD: u64 = 128 << 10;

/// Measures `device` if it is to be: with `--segment-size measure`, or by default if it is flash that says
/// nothing of itself. `plan` is what would be made without.
pub(crate) fn measurement(
    options: &Options,
    device: &dyn Device,
    plan: &Plan,
) -> Result<Option<Measurement>, DeviceError> {
    let wanted = match options.segment_size {
        SegmentSize::Bytes(_) => false,
        SegmentSize::Measure => true,
        SegmentSize::Auto => {
            !tells(device.geometry()) && is_flash(Path::new("/sys"), &options.device)
        }
    };
    if !wanted {
        return Ok(None);
    }
    wipe::wipe(device, &plan.superblock.layout)?;
    let Geometry { block_count, partition_start, .. } = *device.geometry();
    let bar = bar(options);
    let measured = measure(
        &mut DeviceProbe::new(device),
        Region { block_count, partition_start },
        Budget::DEFAULT,
        &mut |permille| bar.set_position(permille),
    );
    bar.finish_and_clear();
    measured.map(Some)
}

/// Whether a device says what its erase blocks are.
fn tells(geometry: &Geometry) -> bool {
    geometry.preferred_erase_size > 0 || geometry.discard_granularity >= GRANULARITY_TOLD
}

/// Whether this is a disk, or a partition of one, that has hardware of its own and does not rotate.
fn is_flash(sysfs_root: &Path, path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = device_number(metadata.rdev());
    has_flash(&sysfs_root.join(format!("dev/block/{major}:{minor}")))
}

/// The same of a device's directory of attributes.
fn has_flash(attributes: &Path) -> bool {
    let disk = match attributes.join("partition").exists() {
        true => attributes.join(".."),
        false => attributes.to_owned(),
    };
    let rotational = fs::read_to_string(disk.join("queue/rotational"));
    disk.join("device").exists() && rotational.is_ok_and(|text| text.trim() == "0")
}

fn bar(options: &Options) -> ProgressBar {
    if options.quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("finding the erase block size {bar:30} {elapsed}");
    ProgressBar::new(1000).with_style(style.expect("a template"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flash_with_hardware_of_its_own_is_measured() {
        let root = tempfile::tempdir().expect("a directory");
        let disk = root.path().join("disk");
        fs::create_dir_all(disk.join("queue")).expect("a directory");
        fs::write(disk.join("queue/rotational"), "0\n").expect("an attribute");
        assert!(!has_flash(&disk), "a loop device has no hardware");
        fs::create_dir(disk.join("device")).expect("a directory");
        assert!(has_flash(&disk));
        fs::create_dir(disk.join("part")).expect("a directory");
        fs::write(disk.join("part/partition"), "1\n").expect("an attribute");
        assert!(has_flash(&disk.join("part")));
        fs::write(disk.join("queue/rotational"), "1\n").expect("an attribute");
        assert!(!has_flash(&disk) && !has_flash(&disk.join("part")));
    }

    #[test]
    fn a_device_that_tells_is_believed() {
        assert!(!tells(&Geometry { discard_granularity: 4096, ..Geometry::default() }));
        assert!(tells(&Geometry { preferred_erase_size: 4 << 20, ..Geometry::default() }));
        assert!(tells(&Geometry { discard_granularity: 1 << 20, ..Geometry::default() }));
    }
}
