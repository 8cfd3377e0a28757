//! Comparison of data blocks with their checksums.

use sfs_device::Block;

use crate::check::reference::{BlockOwner, BlockReference};
use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::volume::VolumeReader;

/// Maximum number of blocks per read request.
const READ_BLOCKS: usize = 256;

/// Reads the blocks of `references`, which ascend by address, and compares them with the checksums.
/// Neighbours are read together.
pub(crate) fn check_data(
    volume: &VolumeReader<'_>,
    references: &[BlockReference],
    findings: &mut Findings,
) {
    for run in references.chunk_by(|a, b| a.address + 1 == b.address) {
        run.chunks(READ_BLOCKS).for_each(|part| check_neighbours(volume, part, findings));
    }
}

/// Checks neighbouring blocks; one by one if they cannot be read together.
fn check_neighbours(volume: &VolumeReader<'_>, part: &[BlockReference], findings: &mut Findings) {
    let mut blocks = Block::zeroed(part.len());
    if volume.device.read(part[0].address, &mut blocks).is_err() {
        match part {
            [one] => findings.push(unreadable(one)),
            _ => part.chunks(1).for_each(|one| check_neighbours(volume, one, findings)),
        }
        return;
    }
    for (reference, block) in part.iter().zip(&blocks) {
        let BlockOwner::Data { ino, block: at } = reference.owner else { continue };
        if reference.checksum.is_some_and(|checksum| crc32c::crc32c(&block.0) != checksum) {
            let address = reference.address;
            findings.push(Finding::DataDamaged { ino, block: at, address });
        }
    }
}

fn unreadable(reference: &BlockReference) -> Finding {
    let address = reference.address;
    match reference.owner {
        BlockOwner::Data { ino, block } => Finding::DataDamaged { ino, block, address },
        BlockOwner::Node => Finding::Unreadable { address },
    }
}
