//! Block devices under SFS: the [`Device`] contract, its implementations, and aligned memory.
//!
//! [`FileDevice`] is the production device, on an image file or a block device. [`RamDevice`] holds
//! its blocks in memory. [`RecordingDevice`], [`FaultyDevice`] and [`GatedDevice`] wrap another device for
//! tests and the simulator. After a [`Device::flush`] succeeds, every write that was acknowledged before
//! the flush is durable. Nothing in this crate interprets the content of blocks.

#![deny(unsafe_code)]

mod block;
mod faulty;
mod file;
mod gated;
mod geometry;
#[expect(unsafe_code, reason = "memory mapped without the allocator")]
mod mmap_region;
mod pointer;
mod ram;
mod recording;
#[expect(unsafe_code, reason = "system calls that std does not offer")]
mod sys;
mod transfer;

use std::fmt;
use std::io;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use faulty::FaultyDevice;
pub use file::{Access, FileDevice, OpenError, OpenErrorKind};
pub use gated::GatedDevice;
pub use geometry::DeviceNumber;
pub use mmap_region::MmapRegion;
pub use ram::RamDevice;
pub use recording::{BlockRange, Event, Keep, RecordingDevice, RequestCounts, image_after};

/// Bytes in a block; every address in SFS counts blocks.
pub const BLOCK_SIZE: usize = 4096;

/// One block of memory, aligned for direct I/O.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_SIZE]);

/// Array of blocks that can be read, written, flushed and discarded.
///
/// Addresses and lengths are in blocks of [`BLOCK_SIZE`]. All methods may be called from many
/// threads at once; each call is one request to the medium.
pub trait Device: Send + Sync {
    /// Returns the geometry of the medium, which never changes while the device is open.
    fn geometry(&self) -> &Geometry;

    /// Fills `buffer` with the blocks from `address` on.
    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError>;

    /// Writes `parts`, one after the other without a gap, from `address` on, as one request.
    ///
    /// The data is durable only after the next [`Device::flush`]. `stream` names the group of blocks that
    /// the data belongs to; devices that separate streams may use it.
    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError>;

    /// Makes every write durable that was acknowledged before the call.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Discards `count` blocks from `address` on, whose content is undefined afterwards.
    ///
    /// A device that cannot discard does nothing.
    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError>;
}

/// Group of blocks that a write belongs to, as a hint to the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream(pub u8);

/// Properties that a device reports. Sizes are in bytes; zero means that the device does not report one.
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

/// Kind of a request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Open the device.
    Open,
    /// Read blocks.
    Read,
    /// Write blocks.
    Write,
    /// Make writes durable.
    Flush,
    /// Discard blocks.
    Discard,
}

/// Error of a request that the device did not complete.
#[derive(Debug)]
pub struct DeviceError {
    /// Kind of the request.
    pub operation: Operation,
    /// Offset of the request in bytes; zero for open and flush.
    pub offset: u64,
    /// Length of the request in bytes; zero for open and flush.
    pub length: u64,
    /// Error that the system returned.
    pub source: io::Error,
}

impl DeviceError {
    /// Makes the error of a request for `block_count` blocks from block `address` on.
    pub fn of_blocks(
        operation: Operation,
        address: u64,
        block_count: u64,
        source: io::Error,
    ) -> DeviceError {
        DeviceError {
            operation,
            offset: address.saturating_mul(BLOCK_SIZE as u64),
            length: block_count.saturating_mul(BLOCK_SIZE as u64),
            source,
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.operation {
            Operation::Open => return write!(f, "cannot open: {}", self.source),
            Operation::Flush => return write!(f, "flush failed: {}", self.source),
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Discard => "discard",
        };
        write!(
            f,
            "{verb} of {} bytes at offset {} failed: {}",
            self.length, self.offset, self.source
        )
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
