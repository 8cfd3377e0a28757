//! The copies of the superblock on a device: which one counts, and how they are written.
//!
//! A change writes the first copy, flushes, writes the backup and flushes, so one copy is whole at every
//! moment. A copy that is older or damaged is written anew before the other one is touched. The *locator*, a
//! third copy, only says where the backup is when the first copy is damaged: the device may have more blocks
//! than the volume.

use sfs_device::{Block, Device, Stream};
use zerocopy::FromZeros;

use super::Volume;
use crate::format::{
    Corruption, CorruptionKind, FORMAT_VERSION, LOCATOR_ADDRESS, Label, SUPERBLOCK_ADDRESS,
    Structure, Superblock,
};
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// The superblock that counts, and which of its copies on the device can be relied on.
#[derive(Debug)]
pub(super) struct Superblocks {
    current: Superblock,
    /// Whether the first copy and the backup are whole and no older than the other; one of them is.
    is_current: [bool; 2],
}

const FIRST: usize = 0;
const BACKUP: usize = 1;

impl Superblocks {
    /// Copies that both are `superblock`.
    pub(super) fn new(superblock: Superblock) -> Self {
        Self { current: superblock, is_current: [true; 2] }
    }

    /// Reads both copies. The sound one with the higher generation counts.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] if a copy is of a newer program, [`Error::Corrupt`] if none is sound,
    /// [`Error::DeviceTooSmall`] if the device ends before the volume.
    pub(super) fn read(device: &dyn Device) -> Result<Self> {
        let device_blocks = device.geometry().block_count;
        if device_blocks <= LOCATOR_ADDRESS {
            let volume = LOCATOR_ADDRESS + 1;
            return Err(Error::DeviceTooSmall { device: device_blocks, volume });
        }
        match read_copy(device, SUPERBLOCK_ADDRESS) {
            Ok(first) => {
                refuse_truncated(&first, device_blocks)?;
                let backup = read_copy(device, first.layout.backup);
                let found = Self::choose(first, backup)?;
                refuse_truncated(&found.current, device_blocks)?;
                Ok(found)
            }
            Err(Error::Corrupt(damage)) => match find_backup(device)? {
                Some(backup) => Ok(Self { current: backup, is_current: [false, true] }),
                None => Err(damage.into()),
            },
            Err(other) => Err(other),
        }
    }

    /// Chooses between a sound first copy and what was read of the backup.
    fn choose(first: Superblock, backup: Result<Superblock>) -> Result<Self> {
        Ok(match backup {
            Ok(backup) if is_newer(&backup, &first) => {
                Self { current: backup, is_current: [false, true] }
            }
            Ok(backup) => {
                let is_current = [true, backup == first];
                Self { current: first, is_current }
            }
            Err(newer @ Error::Incompatible(_)) => return Err(newer),
            Err(_) => Self { current: first, is_current: [true, false] },
        })
    }

    /// Returns the superblock that counts.
    pub(super) fn current(&self) -> &Superblock {
        &self.current
    }

    /// Brings both copies up to date, and to the format version of this program.
    pub(super) fn settle(&mut self, device: &dyn Device) -> Result<()> {
        if self.current.version < FORMAT_VERSION {
            return self.change(device, |_| ());
        }
        let stale = [FIRST, BACKUP].into_iter().find(|copy| !self.is_current[*copy]);
        stale.map_or(Ok(()), |copy| self.write(device, copy))
    }

    /// Makes `change`, durably in both copies.
    ///
    /// # Errors
    ///
    /// Those of the device: the next mount may find the change, or not. [`Error::Corrupt`] if the
    /// generation is forged, and so high that there is no next one.
    pub(super) fn change(
        &mut self,
        device: &dyn Device,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let forged =
            Corruption::in_block(Structure::Superblock, SUPERBLOCK_ADDRESS, CorruptionKind::Value);
        let is_upgrade = self.current.version < FORMAT_VERSION;
        let mut next = self.current.next_generation().ok_or(forged)?;
        if mutated(Mutant::GenerationKept) {
            next.generation = self.current.generation.max(1);
        }
        change(&mut next);
        self.current = next;
        self.keep_locator(device)?;
        // The copy that is no use any more goes first: a crash may leave nothing of it.
        let order = if self.is_current[BACKUP] { [FIRST, BACKUP] } else { [BACKUP, FIRST] };
        for copy in order {
            self.put(device, copy)?;
            let is_unflushed = copy == FIRST && mutated(Mutant::SuperblocksAtOnce)
                || is_upgrade && mutated(Mutant::UpgradeUnflushed);
            if !is_unflushed {
                self.finish(device, copy)?;
            }
        }
        Ok(())
    }

    /// Writes the locator, unless it leads to the backup of this volume. A crash or a failure that leaves a
    /// part of it is no loss: the first copy has not been touched.
    fn keep_locator(&self, device: &dyn Device) -> Result<()> {
        let is_kept = read_copy(device, LOCATOR_ADDRESS).is_ok_and(|locator| {
            locator.uuid == self.current.uuid && locator.layout.backup == self.current.layout.backup
        });
        if is_kept {
            return Ok(());
        }
        device.write(LOCATOR_ADDRESS, &[&[Block(self.current.encode())]], Stream::default())?;
        Ok(device.flush()?)
    }

    /// Writes a copy, durably.
    fn write(&mut self, device: &dyn Device, copy: usize) -> Result<()> {
        self.put(device, copy)?;
        self.finish(device, copy)
    }

    /// Writes a copy: until it is flushed nobody knows what it holds. The other one is what it was.
    fn put(&mut self, device: &dyn Device, copy: usize) -> Result<()> {
        self.is_current[copy] = false;
        let at = [SUPERBLOCK_ADDRESS, self.current.layout.backup][copy];
        Ok(device.write(at, &[&[Block(self.current.encode())]], Stream::default())?)
    }

    fn finish(&mut self, device: &dyn Device, copy: usize) -> Result<()> {
        device.flush()?;
        self.is_current[copy] = true;
        Ok(())
    }
}

impl Volume {
    /// Returns the name of the volume.
    pub fn label(&self) -> Label {
        self.superblocks.lock().current().label
    }

    /// Names the volume, durably.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], or those of the device: the next mount may find the new name, or the old one. A
    /// device that fails ends writing: a flush may have lost what others had written.
    pub fn set_label(&self, label: Label) -> Result<()> {
        self.writable()?;
        let named =
            self.superblocks.lock().change(&*self.device, |superblock| superblock.label = label);
        self.with_failure_written(named.map_err(|error| match error {
            Error::Device(error) => self.fail(error),
            other => other,
        }))
    }

    /// Returns the format version that this mount has upgraded the volume from, if it has.
    pub fn upgraded_from(&self) -> Option<u32> {
        let version = self.superblock.version;
        (version < FORMAT_VERSION && !self.options.read_only).then_some(version)
    }
}

/// Whether `backup` is a later state of the volume that `first` is of.
fn is_newer(backup: &Superblock, first: &Superblock) -> bool {
    backup.uuid == first.uuid && backup.generation > first.generation
}

fn refuse_truncated(superblock: &Superblock, device: u64) -> Result<()> {
    let volume = superblock.layout.block_count;
    if volume > device { Err(Error::DeviceTooSmall { device, volume }) } else { Ok(()) }
}

/// Returns the backup of a volume whose first copy is damaged: the locator leads to it, or it is in the last
/// block of the device.
fn find_backup(device: &dyn Device) -> Result<Option<Superblock>> {
    let last = device.geometry().block_count - 1;
    if let Some(locator) = sound_copy(device, LOCATOR_ADDRESS)?
        && locator.layout.backup <= last
        && let Some(backup) = sound_copy(device, locator.layout.backup)?
        && backup.uuid == locator.uuid
        && backup.layout.backup == locator.layout.backup
    {
        return Ok(Some(backup));
    }
    Ok(sound_copy(device, last)?.filter(|backup| backup.layout.backup == last))
}

/// Returns the copy at `at`, if there is a sound one.
///
/// # Errors
///
/// [`Error::Incompatible`] if it is of a newer program.
fn sound_copy(device: &dyn Device, at: u64) -> Result<Option<Superblock>> {
    match read_copy(device, at) {
        Err(newer @ Error::Incompatible(_)) => Err(newer),
        other => Ok(other.ok()),
    }
}

fn read_copy(device: &dyn Device, at: u64) -> Result<Superblock> {
    let mut blocks = Block::new_vec_zeroed(1).expect("memory for a block");
    device.read(at, &mut blocks)?;
    match Superblock::incompatibility_of(&blocks[0].0) {
        Some(newer) => Err(newer.into()),
        None => Ok(Superblock::decode(&blocks[0].0, at)?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::{FaultyDevice, Operation, RamDevice};

    use super::super::rig::{BLOCKS, NOW, new_volume};
    use super::*;
    use crate::format::COUNT_MAX;
    use crate::request::VolumeOptions;

    fn label(text: &str) -> Label {
        Label::new(text).expect("a label")
    }

    fn open(device: &Arc<FaultyDevice<RamDevice>>) -> Result<Volume> {
        Volume::open(device.clone(), VolumeOptions::default(), NOW)
    }

    fn copies(device: &dyn Device) -> [Option<Label>; 2] {
        [SUPERBLOCK_ADDRESS, BLOCKS - 1].map(|at| read_copy(device, at).ok().map(|copy| copy.label))
    }

    /// The copy that may be torn is the first of the next change, too: never both at once.
    #[test]
    fn a_copy_that_failed_to_be_written_goes_first_in_the_next_change() {
        for (failing, kept) in [(1, [None, Some("old")]), (2, [Some("new"), None])] {
            let device = Arc::new(FaultyDevice::new(RamDevice::new(BLOCKS)));
            let volume = new_volume(device.clone());
            let name = |text| {
                let named = |superblock: &mut Superblock| superblock.label = label(text);
                volume.superblocks.lock().change(&*device, named)
            };
            name("old").expect("it is changed");
            device.fail_nth(Operation::Write, failing);
            assert!(name("new").is_err());
            // What failed is torn, and so is what the next change begins with.
            let torn = if failing == 1 { SUPERBLOCK_ADDRESS } else { BLOCKS - 1 };
            tear(&*device, torn);
            let kept = kept.map(|text| text.map(label));
            assert_eq!(copies(&*device), kept);
            device.fail_nth(Operation::Write, 1);
            assert!(name("newer").is_err());
            assert_eq!(copies(&*device), kept, "the copy that is whole was not touched");
            name("last").expect("it is changed");
            assert_eq!(copies(&*device), [Some(label("last")); 2]);
            drop(volume);
            assert_eq!(open(&device).expect("it opens").label(), label("last"));
        }
    }

    fn tear(device: &dyn Device, at: u64) {
        let mut block = Block::new_vec_zeroed(1).expect("memory");
        device.read(at, &mut block).expect("RAM");
        block[0].0[200] ^= 0x55;
        device.write(at, &[&block], Stream::default()).expect("RAM");
    }

    fn forge(device: &dyn Device, change: impl Fn(&mut Superblock)) {
        let mut superblock = read_copy(device, SUPERBLOCK_ADDRESS).expect("a superblock");
        change(&mut superblock);
        for at in [SUPERBLOCK_ADDRESS, BLOCKS - 1] {
            device.write(at, &[&[Block(superblock.encode())]], Stream::default()).expect("RAM");
        }
    }

    #[test]
    fn a_generation_that_has_no_next_one_is_not_changed() {
        let device = Arc::new(FaultyDevice::new(RamDevice::new(BLOCKS)));
        new_volume(device.clone()).close().expect("it closes");
        forge(&*device, |superblock| superblock.generation = COUNT_MAX - 2);
        let volume = open(&device).expect("it opens");
        volume.set_label(label("last")).expect("it is changed");
        assert!(matches!(volume.set_label(label("none")), Err(Error::Corrupt(_))));
        drop(volume);
        assert_eq!(open(&device).expect("it opens").label(), label("last"));
        forge(&*device, |superblock| superblock.generation = COUNT_MAX);
        assert!(matches!(open(&device), Err(Error::Corrupt(_))), "no program writes this");
    }

    #[test]
    fn any_tick_that_decodes_can_be_used() {
        for shift in [0, 1, 31, 32, 63, 64, u32::MAX] {
            let device = Arc::new(FaultyDevice::new(RamDevice::new(BLOCKS)));
            new_volume(device.clone()).close().expect("it closes");
            forge(&*device, |superblock| superblock.tick_shift = shift);
            let opened = open(&device);
            assert_eq!(opened.is_ok(), shift < 64, "{shift}");
            let Ok(volume) = opened else { continue };
            let file = super::super::rig::create(&volume, "file");
            super::super::rig::write(&volume, file, &[7; 100_000]);
            volume.sync_all().expect("a sync");
            drop(volume);
            assert_eq!(open(&device).expect("it opens").audit().expect("it counts"), []);
        }
    }
}
