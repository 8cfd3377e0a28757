//! Reading and verifying live blocks that are to be moved.

use zerocopy::IntoBytes;

use super::cleaner::Cleaner;
use super::live_block::LiveBlock;
use crate::format::ErrorKind;
use crate::memory::DirtyBuf;
use crate::metadata::Owner;
use crate::writeback::MovedBlock;
use crate::{Error, Result};

/// Maximum distance, in blocks, of two live blocks that one read covers, with the dead blocks
/// between them: one longer request is faster than two.
const GAP_BLOCKS: u64 = 8;

impl Cleaner {
    /// Reads `live`, ascending by address, and adds the verified blocks to `moves`; blocks near each other are read in one
    /// request. Returns the number of damaged blocks, which are noted.
    pub(super) fn read_live(
        &self,
        live: &[LiveBlock],
        moves: &mut Vec<MovedBlock>,
    ) -> (usize, Result<()>) {
        let is_near = |a: &LiveBlock, b: &LiveBlock| b.address - a.address <= GAP_BLOCKS;
        let mut damaged = 0;
        let mut runs = live.chunk_by(is_near);
        let outcome = runs.try_for_each(|run| {
            damaged += self.read_run(run, moves)?;
            Ok(())
        });
        (damaged, outcome)
    }

    /// Reads live blocks that are near each other in one request. Returns the number of damaged ones.
    fn read_run(&self, run: &[LiveBlock], moves: &mut Vec<MovedBlock>) -> Result<usize> {
        let (first, last) = (run[0].address, run[run.len() - 1].address);
        let mut buffer =
            DirtyBuf::new((last - first + 1) as usize, self.dirty.pool()).ok_or(Error::NoMemory)?;
        self.io.read(first, buffer.blocks_mut())?;
        let mut live = run.iter().peekable();
        let mut damaged = 0;
        for (address, memory) in (first..).zip(buffer.share()) {
            let Some(live) = live.next_if(|live| live.address == address) else { continue };
            let checksum = crc32c::crc32c(memory.block().as_bytes());
            if Some(checksum) == live.checksum {
                moves.push(MovedBlock { named: live.named, address, checksum, memory });
            } else if self.is_live(live) {
                // Moving the block would hide the damage behind a new checksum.
                self.health.note_error(ErrorKind::Data, address);
                self.health.note_misplaced(memory.block(), self.superblock.volume(), address);
                damaged += 1;
            }
        }
        Ok(damaged)
    }

    /// Returns whether a block with a checksum is still mapped at its address.
    fn is_live(&self, live: &LiveBlock) -> bool {
        let owners = self.metadata.read_txn(|txn| txn.owners(live.address, live.named));
        let has_checksum = |owner: &Owner| owner.mapping.checksum == live.checksum;
        live.checksum.is_some() && owners.is_ok_and(|owners| owners.iter().any(has_checksum))
    }
}
