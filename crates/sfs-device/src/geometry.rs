//! The geometry of a device, read from sysfs, and the bounds check of requests.
//!
//! An attribute that is missing, or is not a number, counts as zero; reading a geometry never fails.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::block::BLOCK_SIZE;
use crate::error::{DeviceError, Operation};

/// Unit in bytes of a partition's `start` attribute; the kernel uses this unit for every device.
const SYSFS_SECTOR_SIZE: u64 = 512;

/// Properties that a device reports. Sizes are in bytes; zero means that the device does not report
/// the property.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Number of whole blocks on the device.
    pub block_count: u64,
    /// Smallest addressable unit.
    pub logical_block_size: u32,
    /// Smallest unit that the device writes without read-modify-write.
    pub physical_block_size: u32,
    /// Unit of discard; zero if the device cannot discard.
    pub discard_granularity: u64,
    /// Preferred request size.
    pub optimal_io_size: u64,
    /// Offset of the partition on the whole disk; zero for a whole disk.
    pub partition_start: u64,
    /// Erase size that an MMC or SD card recommends.
    pub preferred_erase_size: u64,
}

/// Number of a block device in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the disk or partition within the driver.
    pub minor: u32,
}

impl Geometry {
    /// Reads the geometry of block device `number`, of `length` bytes, from the attributes below
    /// `sysfs_root` (`/sys`). The kernel's `Documentation/ABI/stable/sysfs-block` defines the attributes.
    pub fn from_sysfs(sysfs_root: &Path, number: BlockDeviceNumber, length: u64) -> Geometry {
        let BlockDeviceNumber { major, minor } = number;
        let device = sysfs_root.join(format!("dev/block/{major}:{minor}"));
        let is_partition = device.join("partition").exists();
        let disk = AttributeDirectory(match is_partition {
            true => device.join(".."),
            false => device.clone(),
        });
        let cannot_discard = disk.number("queue/discard_max_bytes") == Some(0);
        Geometry {
            block_count: length / BLOCK_SIZE as u64,
            logical_block_size: disk.size_u32("queue/logical_block_size"),
            physical_block_size: disk.size_u32("queue/physical_block_size"),
            discard_granularity: match cannot_discard {
                true => 0,
                false => disk.size("queue/discard_granularity"),
            },
            optimal_io_size: disk.size("queue/optimal_io_size"),
            partition_start: AttributeDirectory(device)
                .size("start")
                .saturating_mul(SYSFS_SECTOR_SIZE),
            preferred_erase_size: disk.size("device/preferred_erase_size"),
        }
    }

    /// Returns the geometry of an image file of `length` bytes, with the units that most disks have.
    pub(crate) fn of_image(length: u64) -> Geometry {
        Geometry {
            block_count: length / BLOCK_SIZE as u64,
            logical_block_size: 512,
            physical_block_size: 4096,
            discard_granularity: 4096,
            ..Geometry::default()
        }
    }

    /// Checks that a request lies wholly on the device.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if any block of the request is past the end.
    pub fn check_range(
        &self,
        operation: Operation,
        address: u64,
        block_count: u64,
    ) -> Result<(), DeviceError> {
        Self::check_range_of(self.block_count, operation, address, block_count)
    }

    /// Checks that a request lies wholly on a device of `device_blocks` blocks, as [`Geometry::check_range`] does.
    pub(crate) fn check_range_of(
        device_blocks: u64,
        operation: Operation,
        address: u64,
        block_count: u64,
    ) -> Result<(), DeviceError> {
        match address.checked_add(block_count) {
            Some(end) if end <= device_blocks => Ok(()),
            _ => Err(DeviceError::of_blocks(
                operation,
                address,
                block_count,
                io::Error::new(io::ErrorKind::InvalidInput, "past the end of the device"),
            )),
        }
    }
}

/// Directory of sysfs attributes: files that hold one number each.
struct AttributeDirectory(PathBuf);

impl AttributeDirectory {
    fn number(&self, attribute: &str) -> Option<u64> {
        let text = fs::read_to_string(self.0.join(attribute)).ok()?;
        text.trim().parse().ok()
    }

    fn size(&self, attribute: &str) -> u64 {
        self.number(attribute).unwrap_or(0)
    }

    fn size_u32(&self, attribute: &str) -> u32 {
        self.size(attribute).try_into().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
