//! Block devices under SFS.
//!
//! Owns: the [`Device`] contract, aligned memory ([`Block`], [`Piece`]), and the devices behind it.
//! Promises: an acknowledged [`Device::flush`] means that every earlier write is durable.
//! Never: knows what the blocks mean.

#![deny(unsafe_code)]

mod block;
mod faulty;
mod file;
mod gated;
mod geometry;
#[expect(unsafe_code, reason = "memory that the allocator does not know")]
mod piece;
mod pointer;
mod ram;
mod recording;
#[expect(unsafe_code, reason = "calls to the system")]
mod sys;
mod transfer;

use std::fmt;
use std::io;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use faulty::FaultyDevice;
pub use file::{Access, FileDevice, OpenError, OpenErrorKind};
pub use gated::GatedDevice;
pub use geometry::DeviceNumber;
pub use piece::Piece;
pub use ram::RamDevice;
pub use recording::{Counts, Event, Extent, Keep, RecordingDevice, image_after};

/// Bytes in a block, the unit of every address in SFS.
pub const BLOCK_SIZE: usize = 4096;

/// One block of memory, aligned for direct I/O.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_SIZE]);

/// A device: an array of blocks that can be read, written, made durable and let go.
///
/// Addresses and lengths are in blocks of [`BLOCK_SIZE`]. All methods may be called from many
/// threads at once; each call is one request to the medium.
pub trait Device: Send + Sync {
    /// What is known of the medium. Constant for the life of the value.
    fn geometry(&self) -> &Geometry;

    /// Fills `buffer` from `address` on.
    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError>;

    /// Writes `parts`, one after the other without a gap, from `address` on, as one request.
    /// Durable only after the next [`Device::flush`]. `stream` says which group of blocks the
    /// data belongs to; devices that separate streams may use it.
    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError>;

    /// Returns when every write that was acknowledged before the call is durable.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Lets go of `count` blocks from `address` on: their content is undefined afterwards.
    /// A device that cannot discard does nothing.
    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError>;
}

/// The group of blocks a write belongs to, as a hint to the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream(pub u8);

/// What a device says of itself. Sizes are in bytes; zero where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Whole blocks on the device.
    pub block_count: u64,
    /// Smallest addressable unit.
    pub logical_block_size: u32,
    /// Smallest unit that is written without read-modify-write.
    pub physical_block_size: u32,
    /// Unit of discard; zero if the device cannot discard.
    pub discard_granularity: u64,
    /// Preferred request size.
    pub optimal_io_size: u64,
    /// Where the partition starts on the whole device.
    pub partition_start: u64,
    /// Erase size that an MMC or SD card prefers.
    pub preferred_erase_size: u64,
}

/// What a device was asked to do.
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
    /// Let go of blocks.
    Discard,
}

/// A request that the device did not carry out.
#[derive(Debug)]
pub struct DeviceError {
    /// What was asked.
    pub operation: Operation,
    /// First byte of the request (zero for open and flush).
    pub offset: u64,
    /// Bytes of the request.
    pub length: u64,
    /// What the system said.
    pub source: io::Error,
}

impl DeviceError {
    /// The error of a request for `block_count` blocks from block `address` on.
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
