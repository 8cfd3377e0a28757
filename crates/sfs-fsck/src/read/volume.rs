//! Device with the superblock of its volume.

use sfs_core::format::{Layout, Superblock};
use sfs_device::{BLOCK_SIZE, Block, Device};

use crate::error::FsckError;
use crate::finding::{Finding, SuperblockCopy};
use crate::findings::Findings;
use crate::read::superblock;

/// Device with a volume on it.
pub(crate) struct VolumeReader<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) superblock: Superblock,
    /// The copy of the superblock that is damaged or older; the first copy if both are equal.
    pub(crate) worse: SuperblockCopy,
}

impl<'a> VolumeReader<'a> {
    /// Finds the superblock on `device`. Damage of one copy is a finding.
    ///
    /// # Errors
    ///
    /// Errors of [`superblock::find`].
    pub(crate) fn open(device: &'a dyn Device, findings: &mut Findings) -> Result<Self, FsckError> {
        let (superblock, worse) = superblock::find(device, findings)?;
        Ok(Self { device, superblock, worse })
    }

    /// Returns the volume's number, which all its structures carry.
    pub(crate) fn id(&self) -> u64 {
        self.superblock.volume()
    }

    /// Returns the layout of the volume, which lies within the device.
    pub(crate) fn layout(&self) -> &Layout {
        &self.superblock.layout
    }

    /// Returns whether block `address` is in a segment.
    pub(crate) fn in_segments(&self, address: u64) -> bool {
        self.layout().segment_of(address).is_some()
    }

    /// Reads block `address`. An unreadable block is a finding.
    pub(crate) fn read(&self, address: u64, findings: &mut Findings) -> Option<Box<Block>> {
        let mut block = Box::new(Block([0; BLOCK_SIZE]));
        if self.device.read(address, std::slice::from_mut(&mut *block)).is_err() {
            findings.push(Finding::Unreadable { address });
            return None;
        }
        Some(block)
    }
}
