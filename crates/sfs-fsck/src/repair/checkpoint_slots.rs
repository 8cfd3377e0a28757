//! Writes to the checkpoint slots.

use sfs_core::format::{CheckpointRecord, Superblock};
use sfs_device::{BLOCK_SIZE, Block, Device, Stream};

use crate::error::FsckError;
use crate::read::volume::VolumeReader;

/// Makes checkpoint slot `slot` empty, durably.
pub(crate) fn clear_slot(
    device: &dyn Device,
    superblock: &Superblock,
    slot: u8,
) -> Result<(), FsckError> {
    let at = superblock.layout.slots[usize::from(slot)];
    device.write(at, &[&[Block::ZERO]], Stream::default())?;
    Ok(device.flush()?)
}

/// Writes the checkpoint `record` to its slot, durably. A record with the next number does not replace the
/// newest checkpoint.
pub(crate) fn write_record(
    volume: &VolumeReader<'_>,
    record: &CheckpointRecord,
) -> Result<(), FsckError> {
    let at = volume.layout().slots[(record.number % 2) as usize];
    let bytes = record.encode(volume.id(), at);
    let block = |bytes: &[u8]| Block(bytes.try_into().expect("the bytes of a block"));
    let blocks: Vec<Block> = bytes.chunks_exact(BLOCK_SIZE).map(block).collect();
    volume.device.write(at, &[&blocks], Stream::default())?;
    Ok(volume.device.flush()?)
}
