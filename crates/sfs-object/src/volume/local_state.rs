//! The volume as a local cache last had it, as a device that cannot be written: for a cache that was left behind.
//!
//! When a machine dies, or loses its connection, and another one takes the volume over, the local cache may have content that was flushed
//! and never uploaded. It is not part of the volume any more, and [`ObjectDevice::open`](super::ObjectDevice::open) refuses such a
//! cache. A [`LocalState`] shows what the cache continues: regions that are *ahead* from its image, and all others from the
//! state that its epoch has left in the store. Nothing is written, to the store or to the cache.
//!
//! Others have deleted objects since, a grace time after they needed them no longer. A read of what is gone fails; no read returns older
//! content. *Proof.* Each epoch's newest manifest stays for ever. Bits of regions ahead are cleared by a manifest alone, so pieces and
//! data objects of the log behind it are in regions that are ahead, unless the manifest released the volume: then everything was
//! uploaded, and the cache is refused. Log objects that the manifest names have to be there.

use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use sfs_device::{Block, Device, DeviceError, Geometry, Operation, Stream};

use super::local::Local;
use super::opening::local_of;
use super::snapshot::{PageCache, Snapshot, read_only};
use super::state::VolumeState;
use super::{Failure, OpenError, read_state};
use crate::store::ObjectStore;

/// The state of a volume that a local cache continues.
///
/// Threads may call all methods at once.
pub struct LocalState<S> {
    local: Local,
    /// Regions that the image has whole, and the store perhaps not.
    ahead: FixedBitSet,
    snapshot: Snapshot<S>,
}

impl<S: ObjectStore + Clone> LocalState<S> {
    /// Opens the state that the cache on `device` continues. Pages of objects are kept in `pages`.
    ///
    /// # Errors
    ///
    /// [`OpenError::NothingLeft`] if the cache has nothing that was not uploaded; [`ObjectError::Missing`](crate::ObjectError::Missing) if a log
    /// object is deleted without which nobody knows what is old.
    pub fn open(
        store: S,
        device: Arc<dyn Device>,
        pages: Arc<PageCache>,
    ) -> Result<Self, OpenError> {
        let newest = read_state(&store)?;
        let local = local_of(device, newest.shape)?;
        let header = local.header()?.ok_or(OpenError::NothingLeft)?;
        if (header.id, header.shape) != (newest.id, newest.shape) {
            return Err(OpenError::ForeignCache);
        }
        let ahead = local.ahead()?;
        // The first manifest of the claimed epoch has the state of the epoch before.
        let epochs = [header.claimed_epoch, header.state_epoch];
        let snapshot = Snapshot::of_epochs(store, epochs, pages)?.ok_or(OpenError::NothingLeft)?;
        if ahead.is_clear() || snapshot.state().is_released {
            return Err(OpenError::NothingLeft);
        }
        Ok(Self { local, ahead, snapshot })
    }

    /// Returns what the last manifest of the cache's epoch says of the volume.
    pub fn state(&self) -> &VolumeState {
        self.snapshot.state()
    }

    /// Returns the number of regions that may have content which was never uploaded.
    pub fn regions_ahead(&self) -> usize {
        self.ahead.count_ones(..)
    }

    /// Reads blocks of one region.
    fn read_in_region(&self, blocks: Range<u64>, buffer: &mut [Block]) -> Result<(), Failure> {
        let region = blocks.start / self.local.shape.region_blocks;
        match self.ahead.contains(region as usize) {
            true => Ok(self.local.image.read(blocks.start, buffer)?),
            false => Ok(self.snapshot.fill(blocks.start, buffer)?),
        }
    }
}

impl<S: ObjectStore + Clone + Send + Sync> Device for LocalState<S> {
    fn geometry(&self) -> &Geometry {
        self.snapshot.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let count = buffer.len() as u64;
        self.geometry().check_range(Operation::Read, address, count)?;
        let (mut at, mut rest) = (address, buffer);
        while !rest.is_empty() {
            let shape = self.local.shape;
            let end = shape.blocks(at / shape.region_blocks).end.min(address + count);
            let (part, after) = rest.split_at_mut((end - at) as usize);
            self.read_in_region(at..end, part)
                .map_err(|failure| failure.of(Operation::Read, at, end - at))?;
            (at, rest) = (end, after);
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], _: Stream) -> Result<(), DeviceError> {
        let count = parts.iter().map(|part| part.len() as u64).sum();
        Err(read_only(Operation::Write, address, count))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        Err(read_only(Operation::Discard, address, count))
    }
}
