//! Freezing: the device holds a clean volume while nothing is written.
//!
//! The caller keeps all changes away between [`Volume::freeze`] and [`Volume::thaw`]. Syncs, the thread for the log, the
//! background and deletions may go on: they find the volume frozen once they have the log, and write nothing. Everything that
//! a caller was told of is durable by then, so a sync succeeds.

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
        let mut log = self.log.lock();
        let frozen = self.space.commit_for_freeze(&mut log);
        if frozen.is_ok() {
            self.log.set_frozen(&mut log, true);
        }
        drop(log);
        self.superblocks.after(frozen)
    }

    /// Writes a checkpoint that calls the volume mounted. Must be called before the first change after
    /// [`Volume::freeze`]: a crash would leave a volume that looks unmounted.
    ///
    /// # Errors
    ///
    /// The errors of a checkpoint.
    pub fn thaw(&self) -> Result<()> {
        let mut log = self.log.lock();
        self.log.set_frozen(&mut log, false);
        let writable = self.health.check_writable();
        let thawed = writable.and_then(|()| self.space.checkpoint_for_thaw(&mut log));
        drop(log);
        self.superblocks.after(thawed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::Duration;

    use sfs_device::{
        Event, GatedDevice, Keep, Operation, RamDevice, RecordingDevice, image_after,
    };

    use super::*;
    use crate::fixture::{BLOCKS, CALLER, NOW, create, new_volume, write};
    use crate::format::{CHECKPOINT_SLOT_BLOCKS, ROOT_INO, Timestamp};
    use crate::recovery::read_checkpoints;
    use crate::request::{AccessTimePolicy, VolumeOptions, Work};

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

    /// Regression: a time of access that a read noted while the freeze began went to the device with the next fsync(2), and a
    /// file that was forgotten then was deleted. A copy of the device was no clean volume.
    #[test]
    fn a_frozen_volume_is_not_written_by_what_need_not_wait() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        drop(new_volume(device.clone()));
        let options = VolumeOptions { has_log_thread: true, ..VolumeOptions::default() };
        let volume = Volume::open(device.clone(), options, NOW).expect("the volume opens");
        volume.set_access_times(AccessTimePolicy::Strict);
        let (file, gone) = (create(&volume, "file"), create(&volume, "gone"));
        write(&volume, file, &[1; 9000]);
        write(&volume, gone, &[2; 9000]);
        volume.unlink(ROOT_INO, b"gone", &CALLER).expect("the name is removed");
        let (early, whole) = (volume.announce_sync(file), volume.announce_sync_all());
        volume.freeze().expect("the volume is frozen");
        device.take_events();
        let later = Timestamp { secs: NOW.secs + 100, ..NOW };
        assert!(volume.note_access(file, later).expect("the file is there"));
        volume.forget(gone, 1);
        for ticket in [early, volume.announce_sync(file)] {
            for data_only in [false, true] {
                let synced = volume.sync_announced_after(file, (ticket, data_only), &mut 0);
                synced.expect("everything is durable");
            }
        }
        volume.sync_all_announced(whole).expect("everything is durable");
        volume.sync_file(file).expect("everything is durable");
        volume.sync_data(file).expect("everything is durable");
        volume.sync_all().expect("everything is durable");
        volume.log_step().expect("nothing is due");
        assert!(!volume.is_log_work_due());
        assert_eq!(volume.work(later).expect("nothing is due"), Work::Idle(Duration::MAX));
        let events = device.take_events();
        assert!(events.is_empty(), "{} requests to a frozen volume", events.len());

        volume.thaw().expect("the volume is thawed");
        volume.sync_file(file).expect("a sync");
        while volume.work(later).expect("RAM does not fail") == Work::More {}
        volume.close().expect("the volume closes");
        let volume = Volume::open(device, VolumeOptions::default(), later).expect("it opens");
        assert_eq!(volume.attributes(file).expect("the file is there").atime, later);
        assert!(volume.attributes(gone).is_err(), "the deletion waited for the thaw");
    }

    /// Regression: the thread for the log, and syncs that waited for the log while the volume was frozen, wrote afterwards.
    #[test]
    fn threads_that_wait_for_the_log_find_the_volume_frozen() {
        let inner = RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents);
        let device = Arc::new(GatedDevice::new(inner));
        drop(new_volume(device.clone()));
        let options = VolumeOptions { has_log_thread: true, ..VolumeOptions::default() };
        let volume = Volume::open(device.clone(), options, NOW).expect("the volume opens");
        volume.set_access_times(AccessTimePolicy::Strict);
        let file = create(&volume, "file");
        write(&volume, file, &[1; 9000]);
        volume.sync_all().expect("a sync");
        device.close(Operation::Write);
        std::thread::scope(|scope| {
            // The checkpoint of the freeze holds the log.
            let freeze = scope.spawn(|| volume.freeze());
            device.wait_until_reached();
            let later = Timestamp { secs: NOW.secs + 100, ..NOW };
            assert!(volume.note_access(file, later).expect("the file is there"));
            let sync = scope.spawn(|| volume.sync_file(file));
            let step = scope.spawn(|| volume.log_step());
            (0..10_000).for_each(|_| std::thread::yield_now());
            device.open();
            freeze.join().expect("no panic").expect("the volume is frozen");
            sync.join().expect("no panic").expect("a sync");
            step.join().expect("no panic").expect("a step");
        });
        assert!(is_unmounted(&device.inner().inner().snapshot(), &volume));
        let last = volume.counters().device_bytes_written;
        volume.sync_all().expect("everything is durable");
        assert_eq!(volume.counters().device_bytes_written, last);
        let written = volume.log.lock().blocks_since_checkpoint;
        assert_eq!(written, 0, "blocks written after the checkpoint of the freeze");
    }
}
