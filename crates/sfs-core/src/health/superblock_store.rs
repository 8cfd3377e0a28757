//! Superblock of an open volume: changes of it while the volume is used, and the record of a failure.

use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::Device;

use super::Health;
use super::superblocks::{SuperblockCopies, read_copy};
use crate::format::{
    Corruption, CorruptionKind, FORMAT_VERSION, LOCATOR_ADDRESS, Label, Layout, SUPERBLOCK_ADDRESS,
    Structure, Superblock,
};
use crate::{Error, Result};

/// Store of the superblock of an open volume.
pub(crate) struct SuperblockStore {
    device: Arc<dyn Device>,
    health: Arc<Health>,
    copies: Mutex<SuperblockCopies>,
}

impl SuperblockStore {
    /// Takes over the `copies` that are on `device`.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        health: Arc<Health>,
        copies: SuperblockCopies,
    ) -> Self {
        Self { device, health, copies: Mutex::new(copies) }
    }

    /// Does [`SuperblockCopies::settle_for_writing`].
    pub(crate) fn settle_for_writing(&self, epoch: [u8; 16]) -> Result<()> {
        self.copies.lock().settle_for_writing(&*self.device, epoch)
    }

    /// Gives a volume with a cache, to which nothing more is written, the epoch that its cache will have, durably.
    pub(crate) fn end_epoch(&self, epoch: [u8; 16]) -> Result<()> {
        let has_cache = self.copies.lock().current().features.has_cache();
        if has_cache { self.change(|superblock| superblock.epoch = epoch) } else { Ok(()) }
    }

    /// Makes the volume one with the cache `uuid`, or with `None` one without a cache, durably.
    ///
    /// # Errors
    ///
    /// Those of [`SuperblockStore::set_label`].
    pub(crate) fn set_cache(&self, uuid: Option<[u8; 16]>, epoch: [u8; 16]) -> Result<()> {
        self.change_by_user(|superblock| {
            superblock.set_cache(uuid);
            superblock.epoch = epoch;
        })
    }

    /// Verifies the copies of the superblock and the locator. Returns their number, and the place and error of each damaged
    /// one, which is counted. A copy that is older is no damage: a crash during a change leaves one.
    pub(crate) fn verify(&self) -> (u64, Vec<(u64, Error)>) {
        let copies = self.copies.lock();
        let Superblock { uuid, version, layout, .. } = *copies.current();
        let has_locator = version >= FORMAT_VERSION;
        let places = [SUPERBLOCK_ADDRESS, layout.backup].into_iter();
        let places: Vec<u64> = places.chain(has_locator.then_some(LOCATOR_ADDRESS)).collect();
        let mut damaged = Vec::new();
        for at in &places {
            let error = match read_copy(&*self.device, *at) {
                Ok(copy) if copy.uuid == uuid && copy.layout.backup == layout.backup => continue,
                Ok(_) => {
                    Corruption::in_block(Structure::Superblock, *at, CorruptionKind::Volume).into()
                }
                Err(error) => error,
            };
            damaged.push((*at, self.health.counted(error)));
        }
        (places.len() as u64, damaged)
    }

    /// Returns the name of the volume.
    pub(crate) fn label(&self) -> Label {
        self.copies.lock().current().label
    }

    /// Names the volume, durably.
    ///
    /// # Errors
    ///
    /// Those of [`Health::check_writable`] and [`SuperblockCopies::change`]. After a device error,
    /// the next mount finds the new name or the old one. A device error ends writing: a failed
    /// flush may have lost other writes.
    pub(crate) fn set_label(&self, label: Label) -> Result<()> {
        self.change_by_user(|superblock| superblock.label = label)
    }

    /// Adds `features` to those that a program has to know to write to the volume, durably. Called before the
    /// first structure of such a feature goes to the log, so that a program without the feature never writes
    /// beside it. Costs nothing once the volume has the features. No lock may be held.
    ///
    /// # Errors
    ///
    /// Those of [`SuperblockStore::set_label`].
    pub(crate) fn require_to_write(&self, features: u64) -> Result<()> {
        let known = self.copies.lock().current().features.read_only_compatible;
        if known & features == features {
            return Ok(());
        }
        self.change_by_user(|superblock| superblock.features.read_only_compatible |= features)
    }

    /// Makes `layout` the layout of the volume, durably. The caller holds the log, and calls
    /// [`SuperblockStore::after`] without it. A device error ends writing.
    ///
    /// # Errors
    ///
    /// Those of [`SuperblockCopies::resize`]: the next mount finds the new layout or the old one.
    pub(crate) fn resize(&self, layout: Layout) -> Result<()> {
        let resized = self.copies.lock().resize(&*self.device, layout);
        resized.map_err(|error| match error {
            Error::Device(error) => self.health.fail(error),
            other => {
                // The last checkpoints are where only the new layout finds them.
                self.health.shut_down();
                other
            }
        })
    }

    /// Returns the device, as the rest of the volume does not use it: without the bounds of the layout.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Makes a change that a user asked for; a device error ends writing.
    fn change_by_user(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        self.health.check_writable()?;
        let changed = self.change(change);
        self.after(changed.map_err(|error| match error {
            Error::Device(error) => self.health.fail(error),
            other => other,
        }))
    }

    fn change(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        self.copies.lock().change(&*self.device, change)
    }

    /// Records a pending failure in the superblock, if the device stores it, and returns `outcome`.
    /// Must not be called with a lock held.
    pub(crate) fn after<T>(&self, outcome: T) -> T {
        if let Some(failure) = self.health.take_pending_failure() {
            let recorded = self.change(|superblock| superblock.failure = Some(failure));
            if let Err(Error::Device(error)) = recorded {
                self.health.fail(error);
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::RamDevice;

    use super::*;
    use crate::Volume;
    use crate::fixture::{BLOCKS, NOW, new_volume};
    use crate::request::VolumeOptions;

    #[test]
    fn a_program_without_a_feature_of_the_volume_only_reads() {
        const NEWER: u64 = 1 << 63;
        let device = Arc::new(RamDevice::new(BLOCKS));
        new_volume(device.clone()).close().expect("the volume closes");
        let options = VolumeOptions::default();
        let health = Arc::new(Health::new(&crate::format::Extensions::default(), None, &options));
        let copies = SuperblockCopies::read(&*device).expect("two copies");
        let superblocks = SuperblockStore::new(device.clone(), health, copies);
        superblocks.require_to_write(NEWER).expect("the feature is added");
        let generation = |at| read_copy(&*device, at).expect("a copy").generation;
        let [first, backup] = [SUPERBLOCK_ADDRESS, BLOCKS - 1].map(generation);
        assert_eq!(first, backup, "both copies are written");
        superblocks.require_to_write(NEWER).expect("nothing to do");
        assert_eq!(generation(SUPERBLOCK_ADDRESS), first, "the second call writes nothing");
        let newer = crate::format::Incompatibility::ReadOnlyFeatures(NEWER);
        assert!(
            matches!(Volume::open(device.clone(), options, NOW), Err(Error::Incompatible(found)) if found == newer)
        );
        let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        Volume::open(device, read_only, NOW).expect("the volume can be read");
    }
}
