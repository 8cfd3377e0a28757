//! Opening and closing a volume, and changing its metadata.

use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::Device;

use super::Volume;
use super::directory::NameHasher;
use super::schedule::Schedule;
use crate::clean::{Cleaner, CleanerParts, Discards};
use crate::format::{FORMAT_VERSION, Label, Layout, Remembered, Superblock, Timestamp};
use crate::metadata::{MetadataError, Txn};
use crate::recovery::{self, Components};
use crate::request::{Counters, OpenProgress, VolumeOptions};
use crate::space::{SpaceControl, SpaceControlParts};
use crate::writeback::Committer;
use crate::{Error, Result};

impl Volume {
    /// Opens the volume on `device`: loads its newest checkpoint and rolls the log forward. Unless `options` make it
    /// read-only, a checkpoint of this mount is written.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::Error::Corrupt) and [`Incompatible`](crate::Error::Incompatible) for the
    /// image, [`Invalid`](crate::Error::Invalid) for an unknown policy, and errors of the device.
    pub fn open(device: Arc<dyn Device>, options: VolumeOptions, now: Timestamp) -> Result<Self> {
        Self::open_with_progress(device, options, now, &mut |_| {})
    }

    /// Opens the volume as [`Volume::open`] does, and reports to `progress` while the blocks in place are found.
    ///
    /// # Errors
    ///
    /// Errors of [`Volume::open`].
    pub fn open_with_progress(
        device: Arc<dyn Device>,
        options: VolumeOptions,
        now: Timestamp,
        progress: &mut dyn FnMut(OpenProgress),
    ) -> Result<Self> {
        let opened = recovery::open(device, options, now, progress)?;
        let volume = Self {
            unwritten: Mutex::new(opened.unwritten),
            ..Self::from_components(opened.components)
        };
        volume.schedule.start(now);
        Ok(volume)
    }

    /// Opens the volume as [`Volume::open_with_progress`] does, and writes nothing: the volume is read-only until
    /// [`Volume::begin_writing`]. For a program that takes a mounted volume over, and must be able to give up before its
    /// first write.
    ///
    /// # Errors
    ///
    /// Errors of [`Volume::open`].
    pub fn open_to_write_later(
        device: Arc<dyn Device>,
        options: VolumeOptions,
        now: Timestamp,
        progress: &mut dyn FnMut(OpenProgress),
    ) -> Result<Self> {
        let opened = recovery::open_to_write_later(device, options, now, progress)?;
        Ok(Self {
            unwritten: Mutex::new(opened.unwritten),
            ..Self::from_components(opened.components)
        })
    }

    /// Completes the components of an open volume.
    pub(crate) fn from_components(components: Components) -> Self {
        let Components { superblock, options, counters, wear, .. } = components;
        let Components { health, superblocks, .. } = components;
        let Components { io, chunks, metadata, inodes, dirty, orphans, log, .. } = components;
        let committer = Committer::new(
            components.builder.clone(),
            components.resolver,
            metadata.clone(),
            log.clone(),
            health.clone(),
        );
        let cleaner_parts = CleanerParts {
            superblock: superblock.clone(),
            metadata: metadata.clone(),
            dirty: dirty.clone(),
            io: io.clone(),
            chunks,
            health: health.clone(),
            counters: counters.clone(),
        };
        let cleaner = Cleaner::new(cleaner_parts, options.write_buffer, options.cache);
        let discards =
            Discards::new(options.discard, superblock.clone(), metadata.clone(), io.clone());
        discards.add(&components.released);
        let space_parts = SpaceControlParts {
            superblock: superblock.clone(),
            behaviour: components.behaviour,
            metadata: metadata.clone(),
            dirty: dirty.clone(),
            log: log.clone(),
            health: health.clone(),
            counters: counters.clone(),
            builder: components.builder,
            committer,
            checkpointer: components.checkpointer,
            cleaner,
            discards,
            orphans,
        };
        let space = SpaceControl::new(space_parts, &options);
        let access_policy = Mutex::new(options.access_times);
        Self {
            superblock,
            options,
            counters,
            wear,
            health,
            superblocks,
            io,
            metadata,
            inodes,
            dirty,
            log,
            space,
            schedule: Schedule::default(),
            access_policy,
            unwritten: Mutex::default(),
        }
    }

    /// Allows changes of a volume to which nothing was written yet, as a mount for writing begins: makes everything durable
    /// that was read, brings the superblock up to date, and writes a checkpoint of this mount.
    ///
    /// # Errors
    ///
    /// [`NotSupported`](crate::Error::NotSupported) if the volume was opened without its log;
    /// [`Incompatible`](crate::Error::Incompatible) if a newer program has to write it; errors of the image and the device.
    /// The volume stays read-only then.
    pub fn begin_writing(
        &self,
        now: Timestamp,
        progress: &mut dyn FnMut(OpenProgress),
    ) -> Result<()> {
        let mut unwritten = self.unwritten.lock();
        if !self.health.is_read_only() {
            return Ok(());
        }
        if self.options.skip_recovery {
            return Err(Error::NotSupported);
        }
        let Some(mut recovery) = unwritten.take() else { return Err(Error::ReadOnly) };
        self.wear.set_time(now);
        let begun = recovery.begin_writing(progress);
        if matches!(begun, Err(Error::Incompatible(_))) {
            // Nothing was written, and a later call gets the same answer.
            *unwritten = Some(recovery);
        }
        self.space.add_discards(&begun?);
        self.schedule.start(now);
        Ok(())
    }

    /// Returns whether the volume was opened for reading, and is not written since.
    pub fn is_read_only(&self) -> bool {
        self.health.is_read_only()
    }

    /// Changes metadata atomically. `logic` may run several times.
    pub(super) fn change<T>(
        &self,
        logic: impl FnMut(&mut Txn<'_>) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        self.change_then(logic, |_| {})
    }

    /// Changes metadata as [`Volume::change`] does. `then` runs once, before the change is visible to other threads.
    pub(super) fn change_then<T>(
        &self,
        logic: impl FnMut(&mut Txn<'_>) -> std::result::Result<T, MetadataError>,
        then: impl FnOnce(&T),
    ) -> Result<T> {
        self.space.before_change()?;
        self.metadata.write_txn(logic, then)
    }

    /// Returns the superblock as it was when the volume was opened.
    pub fn superblock(&self) -> &Superblock {
        self.superblock.opened()
    }

    /// Returns the present layout of the volume, which a resize changes.
    pub fn layout(&self) -> Layout {
        self.superblock.layout()
    }

    /// Returns the name of the volume.
    pub fn label(&self) -> Label {
        self.superblocks.label()
    }

    /// Gives a volume that was closed, and has a cache, the epoch that the cache will have when it is closed: an image of the disk
    /// from an earlier moment of this mount has another one. Does nothing if the volume was not closed.
    ///
    /// # Errors
    ///
    /// Errors of the device: no cache is trusted by the next mount.
    pub fn end_epoch(&self, epoch: [u8; 16]) -> Result<()> {
        let is_over = self.is_closed() && !self.has_failed() && !self.is_read_only();
        if is_over { self.superblocks.end_epoch(epoch) } else { Ok(()) }
    }

    /// Makes the volume one with the cache `uuid`, or with `None` one without a cache, durably. No cache has the content of the volume
    /// afterwards.
    ///
    /// # Errors
    ///
    /// Those of [`Volume::set_label`].
    pub fn set_cache(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        self.superblocks.set_cache(uuid, [0; 16])
    }

    /// Sets the name of the volume, durably.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](crate::Error::ReadOnly), or errors of the device: the next mount finds the new
    /// name or the old one. A device error ends writing: a failed flush may have lost other writes.
    pub fn set_label(&self, label: Label) -> Result<()> {
        self.superblocks.set_label(label)
    }

    /// Returns the format version that this mount has upgraded the volume from, if it has.
    pub fn upgraded_from(&self) -> Option<u32> {
        let version = self.superblock.opened().version;
        (version < FORMAT_VERSION && !self.health.is_read_only()).then_some(version)
    }

    /// Ends writing, as if a write had failed: the next mount finds the state that a crash leaves.
    /// Data in memory can still be read.
    pub fn shut_down(&self) {
        self.health.shut_down();
    }

    /// Returns whether [`Volume::close`] has written everything that could be written. In that
    /// case, an error of [`Volume::close`] concerns damage.
    pub fn is_closed(&self) -> bool {
        self.schedule.is_closed()
    }

    /// Returns whether writing has ended, because a write failed or [`Volume::shut_down`] was called.
    pub fn has_failed(&self) -> bool {
        self.health.has_stopped()
    }

    /// Returns the errors of this mount and of earlier ones, since `sfs-fsck` last found the volume sound.
    pub fn remembered(&self) -> Remembered {
        self.health.remembered()
    }

    /// Returns the counters since the volume was opened.
    pub fn counters(&self) -> Counters {
        self.counters.snapshot()
    }

    /// Returns the number of references that callers hold, over all files.
    pub fn reference_count(&self) -> u64 {
        self.inodes.reference_count()
    }

    /// Returns the number of files that callers refer to.
    pub fn referenced_files(&self) -> usize {
        self.inodes.referenced_files()
    }

    /// Returns about `count` files that callers refer to, first the files that were not looked up
    /// for the longest time.
    pub fn old_references(&self, count: usize) -> Vec<u64> {
        self.inodes.old_references(count)
    }

    /// Returns the hasher of file names.
    pub(super) fn hasher(&self) -> NameHasher {
        NameHasher::new(self.superblock.opened().hash_key)
    }
}
