//! Copies of the superblock on a device: the choice of the valid one, and updates of all.
//!
//! The sound copy with the higher generation is valid. A change writes the first copy, flushes,
//! writes the backup and flushes, so one copy is whole at every moment. A copy that is older or
//! damaged is written anew before the other one is touched. The *locator*, a third copy, only leads
//! to the backup when the first copy is damaged: the device may have more blocks than the volume.

use sfs_device::{Block, Device, Stream};
use zerocopy::FromZeros;

use crate::format::{
    Corruption, CorruptionKind, FORMAT_VERSION, LOCATOR_ADDRESS, Layout, SUPERBLOCK_ADDRESS,
    Structure, Superblock,
};
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// The valid superblock, and the state of its copies on the device.
#[derive(Debug)]
pub(crate) struct SuperblockCopies {
    current: Superblock,
    /// For the first copy, and for the backup: `true` if the copy is whole and no older than the
    /// other. At least one of them is `true`.
    is_current: [bool; 2],
}

/// Damage of a forged superblock whose generation is so high that there is no next one.
const FORGED: Corruption =
    Corruption::in_block(Structure::Superblock, SUPERBLOCK_ADDRESS, CorruptionKind::Value);

const FIRST: usize = 0;
const BACKUP: usize = 1;

impl SuperblockCopies {
    /// Returns two copies that equal `superblock`.
    pub(crate) fn new(superblock: Superblock) -> Self {
        Self { current: superblock, is_current: [true; 2] }
    }

    /// Reads both copies. The sound copy with the higher generation is valid.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] if a newer program wrote a copy, [`Error::Corrupt`] if no copy is sound,
    /// [`Error::DeviceTooSmall`] if the device ends before the volume.
    pub(crate) fn read(device: &dyn Device) -> Result<Self> {
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

    /// Chooses between a sound first copy and the result of reading the backup.
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

    /// Returns the valid superblock.
    pub(crate) fn current(&self) -> &Superblock {
        &self.current
    }

    /// Brings both copies up to date, and to the format version of this program. A volume with a cache gets `epoch`: from now on
    /// no cache of an earlier epoch has the content of the volume.
    pub(crate) fn settle_for_writing(
        &mut self,
        device: &dyn Device,
        epoch: [u8; 16],
    ) -> Result<()> {
        let is_due = self.current.features.has_cache() && self.current.epoch != epoch;
        if is_due && !mutated(Mutant::EpochKept) {
            return self.change(device, |superblock| superblock.epoch = epoch);
        }
        self.settle(device)
    }

    /// Brings both copies up to date, and to the format version of this program.
    pub(crate) fn settle(&mut self, device: &dyn Device) -> Result<()> {
        if self.current.version < FORMAT_VERSION {
            return self.change(device, |_| ());
        }
        let stale = [FIRST, BACKUP].into_iter().find(|copy| !self.is_current[*copy]);
        stale.map_or(Ok(()), |copy| self.write(device, copy))?;
        // A crash may have interrupted a resize before the locator was written.
        self.keep_locator(device)
    }

    /// Makes `layout` the layout of the volume, durably. Everything that the new layout refers to is on the device, but
    /// not necessarily durable. Until the first copy is written, the copies on the device are those of the old
    /// layout; the locator leads to the old backup until the new one is in use.
    ///
    /// # Errors
    ///
    /// Those of [`SuperblockCopies::change`].
    pub(crate) fn resize(&mut self, device: &dyn Device, layout: Layout) -> Result<()> {
        self.settle(device)?;
        let next = self.current.next_generation().ok_or(FORGED)?;
        let next = Superblock { layout, ..next };
        let backup = Block(next.encode());
        device.write(layout.backup, &[&[backup]], Stream::default())?;
        if !mutated(Mutant::ResizeUnflushed) {
            device.order()?;
        }
        let old = std::mem::replace(&mut self.current, next).layout;
        self.write(device, FIRST)?;
        self.keep_locator(device)?;
        // Where the volume has shrunk, nothing of it may be found behind its end.
        if old.backup > layout.backup {
            device.write(old.backup, &[&[Block::ZERO]], Stream::default())?;
            device.order()?;
        }
        Ok(())
    }

    /// Makes `change`, durably in both copies.
    ///
    /// # Errors
    ///
    /// Errors of the device: the next mount may or may not find the change. [`Error::Corrupt`] if a forged
    /// generation is so high that there is no next one.
    pub(crate) fn change(
        &mut self,
        device: &dyn Device,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let is_upgrade = self.current.version < FORMAT_VERSION;
        let mut next = self.current.next_generation().ok_or(FORGED)?;
        if mutated(Mutant::GenerationKept) {
            next.generation = self.current.generation.max(1);
        }
        change(&mut next);
        let is_partial = mutated(Mutant::LabelInOneCopy) && next.label != self.current.label;
        if is_partial {
            next.generation = self.current.generation;
        }
        self.current = next;
        self.keep_locator(device)?;
        // The copy that is already stale is written first: a crash may destroy it.
        let order = if self.is_current[BACKUP] { [FIRST, BACKUP] } else { [BACKUP, FIRST] };
        for copy in order.into_iter().take(if is_partial { 1 } else { 2 }) {
            self.put(device, copy)?;
            let is_unflushed = copy == FIRST && mutated(Mutant::SuperblocksAtOnce)
                || is_upgrade && mutated(Mutant::UpgradeUnflushed);
            if !is_unflushed {
                self.finish(device, copy)?;
            }
        }
        Ok(())
    }

    /// Writes the locator, unless it leads to the backup of this volume. A crash may tear it without a loss: the first
    /// copy has not been touched yet.
    fn keep_locator(&self, device: &dyn Device) -> Result<()> {
        let is_kept = read_copy(device, LOCATOR_ADDRESS).is_ok_and(|locator| {
            locator.uuid == self.current.uuid && locator.layout.backup == self.current.layout.backup
        });
        if is_kept {
            return Ok(());
        }
        device.write(LOCATOR_ADDRESS, &[&[Block(self.current.encode())]], Stream::default())?;
        Ok(device.order().map(drop)?)
    }

    /// Writes a copy, durably.
    fn write(&mut self, device: &dyn Device, copy: usize) -> Result<()> {
        self.put(device, copy)?;
        self.finish(device, copy)
    }

    /// Writes a copy, whose content on the device is unknown until [`SuperblockCopies::finish`]. The other copy
    /// stays as it was.
    fn put(&mut self, device: &dyn Device, copy: usize) -> Result<()> {
        self.is_current[copy] = false;
        let at = [SUPERBLOCK_ADDRESS, self.current.layout.backup][copy];
        Ok(device.write(at, &[&[Block(self.current.encode())]], Stream::default())?)
    }

    fn finish(&mut self, device: &dyn Device, copy: usize) -> Result<()> {
        device.order()?;
        self.is_current[copy] = true;
        Ok(())
    }
}

/// Returns whether `backup` is a later state of the same volume as `first`.
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
/// [`Error::Incompatible`] if a newer program wrote it.
fn sound_copy(device: &dyn Device, at: u64) -> Result<Option<Superblock>> {
    match read_copy(device, at) {
        Err(newer @ Error::Incompatible(_)) => Err(newer),
        other => Ok(other.ok()),
    }
}

pub(super) fn read_copy(device: &dyn Device, at: u64) -> Result<Superblock> {
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

    use super::*;
    use crate::Volume;
    use crate::fixture::{BLOCKS, NOW, new_volume};
    use crate::format::{COUNT_MAX, Label};
    use crate::request::VolumeOptions;

    fn label(text: &str) -> Label {
        Label::new(text).expect("a label")
    }

    fn open(device: &Arc<FaultyDevice<RamDevice>>) -> Result<Volume> {
        Volume::open(device.clone(), VolumeOptions::default(), NOW)
    }

    fn labels(device: &dyn Device) -> [Option<Label>; 2] {
        [SUPERBLOCK_ADDRESS, BLOCKS - 1].map(|at| read_copy(device, at).ok().map(|copy| copy.label))
    }

    /// A torn copy is rewritten first by the next change, so both are never torn at once.
    #[test]
    fn a_copy_that_failed_to_be_written_goes_first_in_the_next_change() {
        for (failing, kept) in [(1, [None, Some("old")]), (2, [Some("new"), None])] {
            let device = Arc::new(FaultyDevice::new(RamDevice::new(BLOCKS)));
            new_volume(device.clone()).close().expect("the volume closes");
            let mut copies = SuperblockCopies::read(&*device).expect("two copies");
            let mut name = |text| {
                let named = |superblock: &mut Superblock| superblock.label = label(text);
                copies.change(&*device, named)
            };
            name("old").expect("the label is changed");
            device.fail_nth(Operation::Write, failing);
            assert!(name("new").is_err());
            // The failed copy is torn, and so is the first copy of the next change.
            let torn = if failing == 1 { SUPERBLOCK_ADDRESS } else { BLOCKS - 1 };
            tear(&*device, torn);
            let kept = kept.map(|text| text.map(label));
            assert_eq!(labels(&*device), kept);
            device.fail_nth(Operation::Write, 1);
            assert!(name("newer").is_err());
            assert_eq!(labels(&*device), kept, "the copy that is whole was not touched");
            name("last").expect("the label is changed");
            assert_eq!(labels(&*device), [Some(label("last")); 2]);
            assert_eq!(open(&device).expect("the volume opens").label(), label("last"));
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
        new_volume(device.clone()).close().expect("the volume closes");
        forge(&*device, |superblock| superblock.generation = COUNT_MAX - 2);
        let volume = open(&device).expect("the volume opens");
        volume.set_label(label("last")).expect("the label is changed");
        assert!(matches!(volume.set_label(label("none")), Err(Error::Corrupt(_))));
        drop(volume);
        assert_eq!(open(&device).expect("the volume opens").label(), label("last"));
        forge(&*device, |superblock| superblock.generation = COUNT_MAX);
        assert!(matches!(open(&device), Err(Error::Corrupt(_))), "no program writes this");
    }

    #[test]
    fn any_tick_that_decodes_can_be_used() {
        for shift in [0, 1, 31, 32, 63, 64, u32::MAX] {
            let device = Arc::new(FaultyDevice::new(RamDevice::new(BLOCKS)));
            new_volume(device.clone()).close().expect("the volume closes");
            forge(&*device, |superblock| superblock.tick_shift = shift);
            let opened = open(&device);
            assert_eq!(opened.is_ok(), shift < 64, "{shift}");
            let Ok(volume) = opened else { continue };
            let file = crate::fixture::create(&volume, "file");
            crate::fixture::write(&volume, file, &[7; 100_000]);
            volume.sync_all().expect("a sync");
            drop(volume);
            assert_eq!(
                open(&device).expect("the volume opens").audit().expect("the audit counts"),
                []
            );
        }
    }
}
