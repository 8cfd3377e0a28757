//! Saving: the used areas of a volume, and its superblocks last.

use std::io::Write;

use sfs_core::Volume;
use sfs_core::format::{LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS};
use sfs_device::{Block, Device};

use super::record::{Copied, ImageError, ImageHeader, ImageWriter, RECORD_BLOCKS_MAX};

/// Writes the `volume` on `device`, to which nothing is written until `before_end` has been called, to `out`. An error of
/// `before_end` leaves `out` without its end.
pub(super) fn save(
    volume: &Volume,
    device: &dyn Device,
    out: &mut dyn Write,
    before_end: &mut dyn FnMut() -> Result<(), ImageError>,
) -> Result<Copied, ImageError> {
    let (superblock, layout) = (volume.superblock(), volume.layout());
    let header = ImageHeader {
        block_count: layout.block_count,
        volume: superblock.volume(),
        uuid: superblock.uuid,
    };
    let mut writer = ImageWriter::begin(out, &header)?;
    let superblocks = [layout.backup, LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS].map(|at| at..at + 1);
    let mut blocks = Block::zeroed(RECORD_BLOCKS_MAX);
    for area in volume.used_areas().into_iter().chain(superblocks) {
        for start in area.clone().step_by(RECORD_BLOCKS_MAX) {
            let count = (area.end - start).min(RECORD_BLOCKS_MAX as u64) as usize;
            device.read(start, &mut blocks[..count])?;
            put(&mut writer, start, &blocks[..count])?;
        }
    }
    before_end()?;
    let blocks = writer.end()?;
    Ok(Copied { blocks, volume_blocks: layout.block_count })
}

/// Writes blocks in records of content and of zeros.
fn put(writer: &mut ImageWriter<'_>, start: u64, blocks: &[Block]) -> Result<(), ImageError> {
    let is_zero = |block: &Block| *block == Block::ZERO;
    let mut at = start;
    for run in blocks.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let content = if is_zero(&run[0]) { &[] } else { run };
        writer.put(at, run.len() as u32, content)?;
        at += run.len() as u64;
    }
    Ok(())
}
