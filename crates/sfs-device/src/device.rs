//! The contract that every block device fulfils.

use crate::block::Block;
use crate::error::DeviceError;
use crate::geometry::Geometry;

/// Array of blocks that can be read, written, flushed and discarded.
///
/// Addresses and lengths are in blocks of [`BLOCK_SIZE`](crate::BLOCK_SIZE) bytes. All methods may be called from many
/// threads at once; each call is one request to the medium.
pub trait Device: Send + Sync {
    /// Returns the geometry of the medium, as it was when the device was opened.
    fn geometry(&self) -> &Geometry;

    /// Asks the medium for its present number of blocks; requests may reach all of them from now on. An image file or a
    /// device that has become larger is used beyond the blocks of its geometry in this way alone.
    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        Ok(self.geometry().block_count)
    }

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
