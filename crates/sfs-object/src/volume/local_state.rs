//! The volume as a local cache last had it, as a device that cannot be written: for a cache that was left behind.
//!
//! When a machine dies, or loses its connection, and another one takes the volume over, the local cache may have content that was flushed
//! and never uploaded. It is not part of the volume any more, and [`ObjectDevice::open`](super::ObjectDevice::open) refuses such a
//! cache. A [`LocalState`] shows what the cache continues: regions that are *ahead* from its image, and all others from the
//! state that its epoch has left in the store. Nothing is written, to the store or to the cache.
//!
//! Others have deleted objects since, a grace time after they needed them no longer. A read of what is gone fails; no read returns older
//! content. *Proof.* Each epoch's newest manifest stays for ever. Bits of regions ahead are cleared by a manifest alone, so pieces and
//! data objects of the log behind it are in regions that are ahead (a discard may not be, and its content is undefined), unless the manifest released the volume: then everything was
//! uploaded, and the cache is refused. Log objects that the manifest names have to be there. A
//! store that was rolled back is refused, as always.

use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use sfs_device::{Block, Device, DeviceError, Geometry, Operation, Stream};

use super::local::{Local, LocalHeader};
use super::opening::local_of;
use super::snapshot::{PageCache, Snapshot};
use super::state::VolumeState;
use super::{Failure, OpenError};
use crate::error::ObjectError;
use crate::reader::newest;
use crate::store::ObjectStore;
use crate::thinning::Thinning;

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
    /// [`OpenError::NothingLeft`] if the cache has nothing that was not uploaded; [`OpenError::StateDeleted`] if a log object is deleted
    /// without which nobody knows what is old; [`OpenError::RolledBack`] if the store has an older state than the cache has seen.
    pub fn open(
        store: S,
        device: Arc<dyn Device>,
        pages: Arc<PageCache>,
    ) -> Result<Self, OpenError> {
        let header = LocalHeader::read(&*device)?.ok_or(OpenError::UnusedCache)?;
        let local = local_of(device, header.shape)?;
        let (_, newest) = newest(&store, Thinning::OF_VOLUMES)?;
        let newest = VolumeState::decode(&newest.state).ok_or(OpenError::State)?;
        if newest.id != header.id {
            return Err(OpenError::ForeignCache);
        }
        let ahead = local.ahead()?;
        if ahead.is_clear() {
            return Err(OpenError::NothingLeft);
        }
        // The first manifest of the claimed epoch has the state of the epoch before.
        let epochs = [header.claimed_epoch, header.state_epoch];
        let snapshot = match Snapshot::of_epochs(store, epochs, pages) {
            Err(OpenError::Failure(Failure::Object(ObjectError::Missing(_)))) => {
                return Err(OpenError::StateDeleted { regions: ahead.count_ones(..) });
            }
            snapshot => snapshot?.ok_or(OpenError::RolledBack)?,
        };
        if snapshot.manifest() < (header.state_epoch, header.manifest) {
            return Err(OpenError::RolledBack);
        }
        // Whoever can write to the bucket can put any state there.
        if (snapshot.state().id, snapshot.state().shape) != (header.id, header.shape) {
            return Err(OpenError::State);
        }
        match snapshot.state().is_released {
            true => Err(OpenError::NothingLeft),
            false => Ok(Self { local, ahead, snapshot }),
        }
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

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.snapshot.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.snapshot.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.snapshot.discard(address, count)
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::RamDevice;

    use super::*;
    use crate::frame::{Content, Frame, Manifest, Nonce};
    use crate::memory_store::MemoryStore;
    use crate::name::{Epoch, ObjectName};
    use crate::store::Object;
    use crate::volume::{Durability, Limits, ObjectDevice, OpenRequest, Shape, create};

    const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

    fn request(number: u8) -> OpenRequest {
        OpenRequest {
            nonce: Nonce([number; 16]),
            host: format!("machine {number}"),
            now: 1_000,
            takes_over: true,
            durability: Durability::Local,
            limits: Limits::of_mount(1 << 30),
        }
    }

    fn cache() -> Arc<RamDevice> {
        Arc::new(RamDevice::new(SHAPE.cache_blocks()))
    }

    /// An attacker who can write to the bucket puts a manifest of another size behind the cache: one device would be made of two.
    #[test]
    fn a_state_of_another_size_is_refused() {
        let (store, left) = (Arc::new(MemoryStore::default()), cache());
        let first = create(store.clone(), left.clone(), ([7; 16], SHAPE), &request(1));
        let first = first.expect("a volume");
        first.write(0, &[&[Block([1; 4096])]], Stream::default()).expect("a write");
        first.flush().expect("the cache has it");
        drop(first);
        ObjectDevice::open(store.clone(), cache(), &request(2)).expect("a takeover");
        let show = || {
            let pages = Arc::new(PageCache::new(1 << 20));
            LocalState::open(store.clone(), left.clone(), pages)
        };
        let shown = show().expect("a cache that was left behind");
        let mut block = Block::zeroed(1);
        shown.read(0, &mut block).expect("a region of the cache");
        assert_eq!(block[0].0[0], 1);
        let name = ObjectName::Manifest(Epoch(1), 1);
        for shape in [
            Shape { volume_blocks: 640, ..SHAPE },
            Shape { volume_blocks: 160, ..SHAPE },
            Shape { region_blocks: 64, ..SHAPE },
        ] {
            let state = VolumeState::empty([7; 16], shape).encode();
            let content = Content::Manifest(Manifest { log_start: 1, state });
            let bytes = Frame { nonce: Nonce([9; 16]), content }.encode(name);
            store.delete(name).expect("memory");
            store.put_all(&[Object { name, bytes }]).expect("memory");
            let refused = show().map(|_| ());
            assert!(matches!(refused, Err(OpenError::State)), "{refused:?}");
        }
    }

    #[test]
    fn a_cache_that_was_never_used_is_refused() {
        let store = Arc::new(MemoryStore::default());
        create(store.clone(), cache(), ([7; 16], SHAPE), &request(1)).expect("a volume");
        let pages = Arc::new(PageCache::new(1 << 20));
        let refused = LocalState::open(store, cache(), pages).map(|_| ());
        assert!(matches!(refused, Err(OpenError::UnusedCache)), "{refused:?}");
    }
}
