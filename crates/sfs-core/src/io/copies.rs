//! Copies of the device's blocks on a faster one, for readers that know the checksums of what they read.

use sfs_device::{Block, Moment, WantedBlock};

use super::VolumeDevice;
use crate::Result;

impl VolumeDevice {
    /// Fills the wanted blocks of which the device has copies. Returns the moment for [`VolumeDevice::offer_copy`]; `None` if the
    /// device keeps no copies.
    pub(crate) fn fetch_copies(&self, wanted: &mut [WantedBlock<'_>]) -> Option<Moment> {
        Some(self.device.copies()?.fetch(wanted))
    }

    /// Returns whether the device keeps copies.
    pub(crate) fn has_copies(&self) -> bool {
        self.device.copies().is_some()
    }

    /// Offers the verified content of adjacent blocks from `address` on, which were read after `moment`.
    pub(crate) fn offer_copy(&self, moment: Moment, address: u64, blocks: &[Block]) {
        if let Some(copies) = self.device.copies() {
            copies.offer(moment, address, blocks);
        }
    }

    /// Reads a block of which the bytes `head` are known, and the CRC-32C of the others: a copy, or the block on the device. Returns
    /// the moment for [`VolumeDevice::offer_copy`], unless the block is a copy.
    pub(crate) fn read_summed(
        &self,
        address: u64,
        (head, checksum): (&[u8], u32),
        block: &mut Block,
    ) -> Result<Option<Moment>> {
        let mut wanted = WantedBlock { address, checksum, head, memory: block, is_found: false };
        let moment = self.fetch_copies(std::slice::from_mut(&mut wanted));
        if wanted.is_found {
            return Ok(None);
        }
        self.read(address, std::slice::from_mut(block))?;
        Ok(moment)
    }
}
