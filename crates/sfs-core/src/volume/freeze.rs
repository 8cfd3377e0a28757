//! Freezing: the device holds a clean volume while nothing is written.
//!
//! The caller keeps all changes and background work away between [`Volume::freeze`] and [`Volume::thaw`].

use super::Volume;
use crate::Result;

impl Volume {
    /// Commits everything and writes a checkpoint that calls the volume unmounted. A copy of the device is a clean volume, with
    /// the files that are open without a name, which a mount deletes.
    ///
    /// # Errors
    ///
    /// `ReadOnly` or `Stopped` if nothing may be written; otherwise the errors of a sync and of a checkpoint. The volume may
    /// be written then.
    pub fn freeze(&self) -> Result<()> {
        self.health.check_writable()?;
        self.sync_all()?;
        let frozen = self.space.commit_for_freeze(&mut self.log.lock());
        self.superblocks.after(frozen)
    }

    /// Writes a checkpoint that calls the volume mounted. Must be called before the first change after
    /// [`Volume::freeze`]: a crash would leave a volume that looks unmounted.
    ///
    /// # Errors
    ///
    /// The errors of a checkpoint.
    pub fn thaw(&self) -> Result<()> {
        self.health.check_writable()?;
        let thawed = self.space.checkpoint_for_thaw(&mut self.log.lock());
        self.superblocks.after(thawed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

    use super::*;
    use crate::fixture::{BLOCKS, NOW, create, new_volume, write};
    use crate::format::{CHECKPOINT_SLOT_BLOCKS, ROOT_INO};
    use crate::recovery::read_checkpoints;
    use crate::request::VolumeOptions;

    fn is_unmounted(device: &RamDevice, volume: &Volume) -> bool {
        let found = read_checkpoints(device, volume.superblock()).expect("a checkpoint");
        assert!(found.damage.is_none(), "{CHECKPOINT_SLOT_BLOCKS} blocks in each slot are sound");
        found.record.unmounted
    }

    /// A crash at any point after the thaw leaves a volume that does not look unmounted once anything was written.
    #[test]
    fn a_frozen_volume_is_clean_and_a_thawed_one_is_not() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        let volume = new_volume(device.clone());
        let file = create(&volume, "file");
        write(&volume, file, &[1; 9000]);
        volume.freeze().expect("the volume is frozen");
        let copy = device.inner().snapshot();
        assert!(is_unmounted(&copy, &volume));
        device.take_events();
        volume.thaw().expect("the volume is thawed");
        let thawed = device.take_events();
        create(&volume, "second");
        volume.sync_all().expect("a sync");
        let events: Vec<Event> = thawed.iter().cloned().chain(device.take_events()).collect();
        for count in thawed.len()..=events.len() {
            let image = image_after(&copy, &events[..count]);
            assert!(!is_unmounted(&image, &volume), "after {count} requests");
        }
        drop(volume);
        let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let volume = Volume::open(Arc::new(copy), read_only, NOW).expect("the copy opens");
        assert_eq!(volume.read(file, 0, 1).expect("the file reads").as_bytes(), [1]);
        assert!(volume.lookup(ROOT_INO, b"second").is_err());
    }
}
