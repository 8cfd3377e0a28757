//! Decides whether the erase block size is measured.
//!
//! The size that a device reports takes precedence over a measurement. A device is measured only
//! after its old superblocks are wiped. An image file or loop device is measured only on request,
//! since its erase blocks are those of the device below.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use sfs_device::{Device, DeviceError, Geometry};

use crate::in_use::device_number;
use crate::measure::{Budget, DeviceProbe, Measurement, Region, measure};
use crate::plan::VolumePlan;
use crate::{MkfsOptions, SegmentSize, wipe};

/// Smallest discard granularity that counts as the erase block size, in bytes; a smaller
/// granularity is a flash page.
const ERASE_GRANULARITY_MIN: u64 = 128 << 10;

/// Measures `device` with `--segment-size measure`, or by default if it is flash that reports no
/// erase block size. `plan` is the plan without a measurement.
pub(crate) fn measurement(
    options: &MkfsOptions,
    device: &dyn Device,
    plan: &VolumePlan,
) -> Result<Option<Measurement>, DeviceError> {
    let wanted = match options.segment_size {
        SegmentSize::Bytes(_) => false,
        SegmentSize::Measure => true,
        SegmentSize::Auto => {
            !reports_erase_size(device.geometry()) && is_flash(Path::new("/sys"), &options.device)
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
        Budget { total_ns: options.measure_time * 1_000_000_000, ..Budget::DEFAULT },
        &mut |permille| bar.set_position(permille),
    );
    bar.finish_and_clear();
    measured.map(Some)
}

/// Returns whether a device reports its erase block size.
fn reports_erase_size(geometry: &Geometry) -> bool {
    geometry.preferred_erase_size > 0 || geometry.discard_granularity >= ERASE_GRANULARITY_MIN
}

/// Returns whether `path` is a disk, or a partition of one, that has hardware of its own and does
/// not rotate.
fn is_flash(sysfs_root: &Path, path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = device_number(metadata.rdev());
    has_flash(&sysfs_root.join(format!("dev/block/{major}:{minor}")))
}

/// Returns whether the sysfs directory `attributes` belongs to such a disk or partition.
fn has_flash(attributes: &Path) -> bool {
    let disk = match attributes.join("partition").exists() {
        true => attributes.join(".."),
        false => attributes.to_owned(),
    };
    let rotational = fs::read_to_string(disk.join("queue/rotational"));
    disk.join("device").exists() && rotational.is_ok_and(|text| text.trim() == "0")
}

fn bar(options: &MkfsOptions) -> ProgressBar {
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
    fn a_reported_erase_size_takes_precedence() {
        assert!(!reports_erase_size(&Geometry {
            discard_granularity: 4096,
            ..Geometry::default()
        }));
        assert!(reports_erase_size(&Geometry {
            preferred_erase_size: 4 << 20,
            ..Geometry::default()
        }));
        assert!(reports_erase_size(&Geometry {
            discard_granularity: 1 << 20,
            ..Geometry::default()
        }));
    }
}
