//! Handing a mounted volume over to another program, which opens it from the device.
//!
//! Nothing on the device tells which files callers refer to, so the references go from program to program. They must be adopted
//! before the first change: a file without a name is kept by its references alone.

use super::Volume;
use crate::Result;

/// References of callers to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileReferences {
    /// Inode number.
    pub ino: u64,
    /// Number of references.
    pub count: u64,
    /// `true` if the file was made without a name, and may get one.
    pub is_linkable: bool,
}

impl Volume {
    /// Returns the references that callers hold, in no order.
    pub fn references(&self) -> Vec<FileReferences> {
        let of_file = |(ino, count, is_linkable)| FileReferences { ino, count, is_linkable };
        self.inodes.references().into_iter().map(of_file).collect()
    }

    /// Returns the number that the next new inode gets. No number is given twice, and the log never has a smaller one than an inode
    /// that it has, or has had.
    ///
    /// # Errors
    ///
    /// Those of a read.
    pub fn next_inode_number(&self) -> Result<u64> {
        self.metadata.read_txn(|txn| Ok(txn.next_ino()))
    }

    /// Adds the references that callers hold by way of another program. An inode that does not exist does no harm.
    pub fn adopt_references(&self, references: &[FileReferences]) {
        for &FileReferences { ino, count, is_linkable } in
            references.iter().filter(|of| of.count > 0)
        {
            self.inodes.refer_often(ino, count);
            self.inodes.set_linkable(ino, is_linkable);
        }
    }

    /// Calls `work`, which repeats changes that another program has made once, and gives it the space that is withheld from users. The
    /// tree may take some blocks more than it took then, as its nodes were split at other places. No other thread may change anything
    /// meanwhile.
    pub fn with_withheld_space<T>(&self, work: impl FnOnce() -> T) -> T {
        self.space.with_withheld_space(work)
    }

    /// Makes everything durable for the handover. Losses are reported to nobody: programs learn of them at their own syncs.
    ///
    /// # Errors
    ///
    /// `Stopped` if nothing may be written; errors of the device.
    pub fn write_for_handover(&self) -> Result<()> {
        self.write_access_times()?;
        self.superblocks.after(self.sync_queued(None))
    }

    /// Writes a checkpoint as [`Volume::freeze`] does, and reports losses to nobody.
    ///
    /// # Errors
    ///
    /// Those of [`Volume::freeze`], but for losses.
    pub fn freeze_for_handover(&self) -> Result<()> {
        self.health.check_writable()?;
        self.write_for_handover()?;
        let frozen = self.space.commit_for_freeze(&mut self.log.lock());
        self.superblocks.after(frozen)
    }

    /// Returns whether dirty data was lost because its place in the tree is damaged. Which caller has learned of that is
    /// known in memory alone.
    pub fn has_lost_data(&self) -> bool {
        self.dirty.with_errors(|errors| errors.syncs.count()) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::{Event, Keep, RamDevice, RecordingDevice};

    use super::*;
    use crate::fixture::{BLOCKS, CALLER, NOW, create, new_volume, write};
    use crate::format::ROOT_INO;
    use crate::request::{VolumeOptions, Work};
    use crate::{Error, Result};

    fn open_later(device: Arc<RecordingDevice<RamDevice>>) -> Volume {
        let options = VolumeOptions::default();
        Volume::open_to_write_later(device, options, NOW, &mut |_| {}).expect("the volume opens")
    }

    fn work(volume: &Volume) {
        while volume.work(NOW).expect("RAM does not fail") == Work::More {}
    }

    fn read(volume: &Volume, ino: u64) -> Result<Vec<u8>> {
        Ok(volume.read(ino, 0, 9000)?.as_bytes().to_vec())
    }

    #[test]
    fn an_open_file_without_a_name_goes_from_program_to_program() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        let first = new_volume(device.clone());
        let file = create(&first, "file");
        write(&first, file, &[7; 9000]);
        first.unlink(ROOT_INO, b"file", &CALLER).expect("the file has a name");
        first.freeze().expect("the volume is frozen");
        let references = first.references();
        assert_eq!(references, [FileReferences { ino: file, count: 1, is_linkable: false }]);
        device.take_events();

        let second = open_later(device.clone());
        second.adopt_references(&references);
        assert!(matches!(second.unlink(ROOT_INO, b"x", &CALLER), Err(Error::ReadOnly)));
        work(&second);
        let writes = |event: &Event| matches!(event, Event::Write { .. });
        assert!(!device.take_events().iter().any(writes), "the first program may go on");
        second.begin_writing(NOW, &mut |_| {}).expect("RAM does not fail");
        work(&second);
        assert_eq!(read(&second, file).expect("the file is open"), [7; 9000]);
        second.forget(file, 1);
        work(&second);
        assert!(read(&second, file).is_err(), "the last reference has gone");
        second.close().expect("RAM does not fail");
    }

    /// Without the references the file is deleted: the test above would notice that they are missing.
    #[test]
    fn without_references_the_file_is_deleted() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        let first = new_volume(device.clone());
        let file = create(&first, "file");
        write(&first, file, &[7; 9000]);
        first.unlink(ROOT_INO, b"file", &CALLER).expect("the file has a name");
        first.freeze().expect("the volume is frozen");
        let second = open_later(device);
        second.begin_writing(NOW, &mut |_| {}).expect("RAM does not fail");
        work(&second);
        assert!(read(&second, file).is_err());
    }
}
