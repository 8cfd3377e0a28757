//! The two copies of the superblock on a device: which one counts, and how both are written.
//!
//! A change writes the first copy, flushes, writes the backup and flushes, so one copy is whole at every
//! moment. A copy that is older or damaged is written anew before the other one is touched.

use sfs_device::{Block, Device, DeviceError, Stream};
use zerocopy::FromZeros;

use crate::format::{FORMAT_VERSION, SUPERBLOCK_ADDRESS, Superblock};
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// The superblock that counts, and which of its copies on the device are the same.
#[derive(Debug)]
pub(super) struct Superblocks {
    current: Superblock,
    /// Whether the first copy and the backup are `current`; one of them is.
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
    /// [`Error::Incompatible`] if a copy that counts is of a newer program, [`Error::Corrupt`] if none is
    /// sound, [`Error::DeviceTooSmall`] if the device ends before the volume.
    pub(super) fn read(device: &dyn Device) -> Result<Self> {
        let device_blocks = device.geometry().block_count;
        if device_blocks <= SUPERBLOCK_ADDRESS {
            let volume = SUPERBLOCK_ADDRESS + 1;
            return Err(Error::DeviceTooSmall { device: device_blocks, volume });
        }
        let found = match read_copy(device, SUPERBLOCK_ADDRESS) {
            Ok(first) => {
                refuse_truncated(&first, device_blocks)?;
                let backup = read_copy(device, first.layout.backup);
                Self::choose(first, backup)?
            }
            Err(Error::Corrupt(damage)) => match read_copy(device, device_blocks - 1) {
                Ok(backup) if backup.layout.backup == device_blocks - 1 => {
                    Self { current: backup, is_current: [false, true] }
                }
                Err(newer @ Error::Incompatible(_)) => return Err(newer),
                _ => return Err(damage.into()),
            },
            Err(other) => return Err(other),
        };
        refuse_truncated(&found.current, device_blocks)?;
        Ok(found)
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
        self.write_stale(device)
    }

    /// Makes `change`, durably in both copies.
    ///
    /// # Errors
    ///
    /// Those of the device. The next mount may find the change, or not.
    pub(super) fn change(
        &mut self,
        device: &dyn Device,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        self.current = self.current.next_generation();
        change(&mut self.current);
        // The copy that is no use any more goes first: a crash may leave nothing of it.
        let order = if self.is_current[BACKUP] { [FIRST, BACKUP] } else { [BACKUP, FIRST] };
        self.is_current = [false; 2];
        order.into_iter().try_for_each(|copy| Ok(self.write(device, copy)?))
    }

    /// Writes the copy that is older or damaged, if one is.
    fn write_stale(&mut self, device: &dyn Device) -> Result<()> {
        let stale = [FIRST, BACKUP].into_iter().filter(|copy| !self.is_current[*copy]);
        stale.collect::<Vec<_>>().into_iter().try_for_each(|copy| Ok(self.write(device, copy)?))
    }

    fn write(&mut self, device: &dyn Device, copy: usize) -> std::result::Result<(), DeviceError> {
        let at = [SUPERBLOCK_ADDRESS, self.current.layout.backup][copy];
        let block = [Block(self.current.encode())];
        device.write(at, &[&block], Stream::default())?;
        if copy == BACKUP || !mutated(Mutant::SuperblocksAtOnce) {
            device.flush()?;
        }
        self.is_current[copy] = true;
        Ok(())
    }
}

/// Whether `backup` is a later state of the volume that `first` is of.
fn is_newer(backup: &Superblock, first: &Superblock) -> bool {
    backup.uuid == first.uuid
        && backup.generation > first.generation
        && !mutated(Mutant::OldSuperblock)
}

fn refuse_truncated(superblock: &Superblock, device: u64) -> Result<()> {
    let volume = superblock.layout.block_count;
    if volume > device { Err(Error::DeviceTooSmall { device, volume }) } else { Ok(()) }
}

fn read_copy(device: &dyn Device, at: u64) -> Result<Superblock> {
    let mut blocks = Block::new_vec_zeroed(1).expect("memory for a block");
    device.read(at, &mut blocks)?;
    match Superblock::incompatibility_of(&blocks[0].0) {
        Some(newer) => Err(newer.into()),
        None => Ok(Superblock::decode(&blocks[0].0, at)?),
    }
}
