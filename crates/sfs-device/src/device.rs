//! The contract that every block device fulfils.

use crate::block::Block;
use crate::copies::Copies;
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

    /// Reads every run of `runs`, and returns the outcome of each, in their order. The runs are sorted by address. A
    /// device that can serve several requests at a time gets them together. The memory of a run that fails is undefined.
    ///
    /// Here the runs are read one by one, each as one request of [`Device::read`].
    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        runs.iter_mut()
            .map(|run| run.read_by(|address, buffer| self.read(address, buffer)))
            .collect()
    }

    /// Writes `parts`, one after the other without a gap, from `address` on, as one request.
    ///
    /// The data is durable only after the next [`Device::flush`]. `stream` names the group of blocks that
    /// the data belongs to; devices that separate streams may use it.
    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError>;

    /// Makes every write durable that was acknowledged before the call.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Makes sure that no later write is kept by a crash that loses a write which was acknowledged before the call. Returns whether all of these are
    /// durable, as after a [`Device::flush`].
    ///
    /// Here it is a flush.
    fn order(&self) -> Result<bool, DeviceError> {
        self.flush().map(|()| true)
    }

    /// Discards `count` blocks from `address` on, whose content is undefined afterwards.
    ///
    /// A device that cannot discard does nothing.
    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError>;

    /// Returns the keeper of copies of the medium's blocks, if there is one.
    fn copies(&self) -> Option<&dyn Copies> {
        None
    }
}

/// Adjacent blocks of the medium, which one request reads into parts of memory.
#[derive(Debug)]
pub struct ReadRun<'a> {
    /// Address of the first block.
    pub address: u64,
    /// Where the blocks go, without a gap between the parts.
    pub parts: Vec<ReadPart<'a>>,
}

/// Some blocks of a [`ReadRun`].
#[derive(Debug)]
pub enum ReadPart<'a> {
    /// Blocks that fill this memory.
    Into(&'a mut [Block]),
    /// A number of blocks between two others that nobody wants.
    Skip(usize),
}

impl ReadPart<'_> {
    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        match self {
            ReadPart::Into(blocks) => blocks.len(),
            ReadPart::Skip(count) => *count,
        }
    }
}

impl ReadRun<'_> {
    /// Returns the number of blocks, including those that nobody wants.
    pub fn block_count(&self) -> u64 {
        self.parts.iter().map(|part| part.block_count() as u64).sum()
    }

    /// Returns the number of blocks that nobody wants.
    pub(crate) fn skipped_blocks(&self) -> usize {
        let skipped = |part: &ReadPart<'_>| match part {
            ReadPart::Into(_) => 0,
            ReadPart::Skip(count) => *count,
        };
        self.parts.iter().map(skipped).sum()
    }

    /// Reads the run by one call of `read`, with an address and a buffer.
    pub fn read_by(
        &mut self,
        read: impl FnOnce(u64, &mut [Block]) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if let [ReadPart::Into(blocks)] = &mut self.parts[..] {
            return read(self.address, blocks);
        }
        let mut buffer = Block::zeroed(self.block_count() as usize);
        read(self.address, &mut buffer)?;
        let mut rest = &buffer[..];
        for part in &mut self.parts {
            let (blocks, after) = rest.split_at(part.block_count());
            if let ReadPart::Into(memory) = part {
                memory.clone_from_slice(blocks);
            }
            rest = after;
        }
        Ok(())
    }
}

/// Group of blocks that a write belongs to, as a hint to the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream(pub u8);
