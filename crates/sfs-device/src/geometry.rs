//! What a medium says of itself.
//!
//! Owns: the reader of the kernel's block device attributes, and the bounds of requests.
//! Promises: an attribute that is missing or not a number is zero, never an error.
//! Never: opens the device itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{BLOCK_SIZE, DeviceError, Geometry, Operation};

/// The kernel counts the start of a partition in these, whatever the device's own sector is.
const SYSFS_SECTOR_SIZE: u64 = 512;

/// The kernel's number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices or partitions.
    pub minor: u32,
}

impl Geometry {
    /// The geometry of block device `number` of `length` bytes, by the attributes below
    /// `sysfs_root` (`/sys`). Attributes: the kernel's `Documentation/ABI/stable/sysfs-block`.
    pub fn from_sysfs(sysfs_root: &Path, number: DeviceNumber, length: u64) -> Geometry {
        let DeviceNumber { major, minor } = number;
        let device = sysfs_root.join(format!("dev/block/{major}:{minor}"));
        let is_partition = device.join("partition").exists();
        let disk = Directory(match is_partition {
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
            partition_start: Directory(device).size("start").saturating_mul(SYSFS_SECTOR_SIZE),
            preferred_erase_size: disk.size("device/preferred_erase_size"),
        }
    }

    /// The geometry of an image file of `length` bytes: what is common to the disks that a
    /// filesystem may keep it on.
    pub(crate) fn of_image(length: u64) -> Geometry {
        Geometry {
            block_count: length / BLOCK_SIZE as u64,
            logical_block_size: 512,
            physical_block_size: 4096,
            discard_granularity: 4096,
            ..Geometry::default()
        }
    }

    /// Refuses a request that does not lie wholly on the device, with an error of kind
    /// [`io::ErrorKind::InvalidInput`].
    pub fn check_range(
        &self,
        operation: Operation,
        address: u64,
        block_count: u64,
    ) -> Result<(), DeviceError> {
        match address.checked_add(block_count) {
            Some(end) if end <= self.block_count => Ok(()),
            _ => Err(DeviceError::of_blocks(
                operation,
                address,
                block_count,
                io::Error::new(io::ErrorKind::InvalidInput, "past the end of the device"),
            )),
        }
    }
}

/// A directory of attributes, one number a file.
struct Directory(PathBuf);

impl Directory {
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
