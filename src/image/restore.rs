//! Restoring: everything but the superblocks first, and these once the end mark has been read.

use std::collections::BTreeMap;
use std::io::Read;

use sfs_core::format::{LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, Superblock};
use sfs_device::{BLOCK_SIZE, Block, Device, Stream};

pub(super) use super::record::read_header;
use super::record::{Copied, ImageError, ImageHeader, ImageReader, RECORD_BLOCKS_MAX, RecordKind};

/// Reason why an image was not restored.
pub(super) struct Failure {
    pub(super) error: ImageError,
    /// `true` if the device has been written to.
    pub(super) has_written: bool,
}

/// Reads a whole image without a target.
pub(super) fn verify(input: &mut dyn Read) -> Result<(), ImageError> {
    let header = read_header(input)?;
    let mut reader = ImageReader::after(input, &header);
    let mut content = Block::zeroed(RECORD_BLOCKS_MAX);
    let mut first = None;
    while let Some(record) = reader.next(&mut content)? {
        if (record.kind, record.address) == (RecordKind::Blocks, SUPERBLOCK_ADDRESS) {
            first = Some(content[0].clone());
        }
    }
    superblock(&header, first.as_ref()).map(drop)
}

/// Writes the image with `header`, whose records follow in `input`, to `device`. A new image file is all zeros.
pub(super) fn restore(
    header: &ImageHeader,
    input: &mut dyn Read,
    device: &dyn Device,
    is_new: bool,
) -> Result<Copied, Failure> {
    let before = |error| Failure { error, has_written: false };
    let blocks = device.geometry().block_count;
    if blocks < header.block_count {
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        let (device, volume) = (bytes(blocks), bytes(header.block_count));
        return Err(before(ImageError::TooSmall { device, volume }));
    }
    let mut reader = ImageReader::after(input, header);
    let mut content = Block::zeroed(RECORD_BLOCKS_MAX);
    // An image that breaks off at once leaves the device as it is.
    let mut next = reader.next(&mut content).map_err(before)?;
    let after = |error: ImageError| Failure { error, has_written: true };
    erase(header, device, is_new).map_err(after)?;
    let mut held = BTreeMap::new();
    while let Some(record) = next {
        let count = record.count as usize;
        let is_held =
            [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, header.block_count - 1].contains(&record.address);
        match record.kind {
            RecordKind::Blocks if is_held => drop(held.insert(record.address, content[0].clone())),
            RecordKind::Blocks => {
                write(device, record.address, &content[..count]).map_err(after)?
            }
            RecordKind::Zeros if is_held || is_new => {}
            RecordKind::Zeros => {
                write(device, record.address, &Block::zeroed(count)).map_err(after)?;
            }
            RecordKind::End => {}
        }
        next = reader.next(&mut content).map_err(after)?;
    }
    let blocks = reader.blocks();
    superblock(header, held.get(&SUPERBLOCK_ADDRESS)).map_err(after)?;
    device.flush().map_err(|error| after(error.into()))?;
    held.values_mut().for_each(leave_cache);
    // The backup has the highest address, the first copy the lowest.
    for (at, block) in held.iter().rev() {
        write(device, *at, std::slice::from_ref(block)).map_err(after)?;
        device.flush().map_err(|error| after(error.into()))?;
    }
    Ok(Copied { blocks, volume_blocks: header.block_count })
}

/// Makes a superblock one whose content no cache has: the cache may be from another time than the image.
fn leave_cache(block: &mut Block) {
    if let Ok(mut superblock) = Superblock::decode(&block.0, SUPERBLOCK_ADDRESS)
        && superblock.features.has_cache()
    {
        superblock.epoch = [0; 16];
        block.0 = superblock.encode();
    }
}

/// Erases the superblocks of the device, and everything on it that a mount could take for a part of the volume: a later
/// state of it may have been there.
fn erase(header: &ImageHeader, device: &dyn Device, is_new: bool) -> Result<(), ImageError> {
    if is_new {
        return Ok(());
    }
    let last = device.geometry().block_count - 1;
    for at in [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, header.block_count - 1, last] {
        write(device, at, &[Block::ZERO])?;
    }
    device.flush()?;
    Ok(sfs_mkfs::erase_volume(device, header.volume, &mut |_, _| {})?)
}

fn write(device: &dyn Device, address: u64, blocks: &[Block]) -> Result<(), ImageError> {
    Ok(device.write(address, &[blocks], Stream::default())?)
}

/// Returns the superblock in `first`, if it is one of the volume of `header`.
fn superblock(header: &ImageHeader, first: Option<&Block>) -> Result<Superblock, ImageError> {
    let decoded = first.and_then(|block| Superblock::decode(&block.0, SUPERBLOCK_ADDRESS).ok());
    let is_it = |superblock: &Superblock| {
        superblock.uuid == header.uuid
            && superblock.layout.block_count == header.block_count
            && superblock.volume() == header.volume
    };
    decoded.filter(is_it).ok_or(ImageError::Superblock)
}
