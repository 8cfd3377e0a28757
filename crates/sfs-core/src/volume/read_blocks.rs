//! Blocks of a file: from the write buffer, the tree item, blocks in flight, and the device.
//!
//! The places of all wanted blocks are looked up first, a part of them at a time under the lock of the metadata. Then
//! the device gets all requests together, without that lock, and every block is verified by its checksum, unless it is
//! overwritten in place. A block that is wrong has moved meanwhile, or is damaged: its place is looked up again.

use sfs_device::{BLOCK_SIZE, Block, Moment, WantedBlock};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::Volume;
use super::read::inline;
use crate::files::InodeState;
use crate::format::{
    Corruption, CorruptionKind, ErrorKind, Key, Mapping, MappingRun, Structure, run_key,
};
use crate::io::Piece;
use crate::metadata::{MetadataError, Txn};
use crate::{Error, Result};

/// Number of attempts to read a block whose mapping changes meanwhile; after the last attempt, the
/// checksum counts as wrong.
const ATTEMPTS: usize = 8;

/// Number of blocks that are looked up under one hold of the metadata lock.
const LOOKUP_BLOCKS: usize = 256;

/// A block of a file and its place on the device.
pub(super) type Mapped = (u32, Mapping);

/// Something for each block of a request. Most random reads are of one block, which takes no memory.
type PerBlock<T> = SmallVec<[T; 1]>;

/// Outcome of reading blocks of a file.
#[derive(Debug, Default)]
pub(super) struct BlocksRead {
    /// Number of requests to the device.
    pub(super) requests: usize,
    /// Numbers of the blocks that the device failed to read.
    pub(super) unread: Vec<u32>,
    /// Error of the first of them, not counted yet.
    pub(super) error: Option<Error>,
    /// Numbers of the blocks whose content was wrong at every attempt.
    pub(super) damaged: Vec<u32>,
    /// Blocks that are overwritten in place and have no checksum, with their places.
    pub(super) unverified: Vec<Mapped>,
    /// `true` if not all blocks were read, because nobody wanted them any more.
    pub(super) is_given_up: bool,
}

impl Volume {
    /// Fills `blocks` with the content of a file from block `first` on. Holes are zeros; bytes of the last block
    /// beyond the end of the file are undefined.
    pub(super) fn fill(&self, handle: &InodeState, first: u32, blocks: &mut [Block]) -> Result<()> {
        let read = self.read_blocks(handle, first, blocks, &|| true)?;
        if let Some(error) = read.error {
            return Err(self.health.counted(error));
        }
        let Some(damaged) = read.damaged.first() else { return Ok(()) };
        let at = self.metadata.read_txn(|txn| txn.mapping(handle.ino, *damaged))?;
        let at = at.map_or(0, |mapping| mapping.address);
        let block = &blocks[(damaged - first) as usize];
        self.health.note_misplaced(block, self.superblock.volume(), at);
        let damage = Corruption::in_block(Structure::Data, at, CorruptionKind::Checksum);
        Err(self.health.counted(damage.into()))
    }

    /// Fills `blocks` as [`Volume::fill`] does, as far as the blocks can be read, and as long as they `are_wanted`.
    pub(super) fn read_blocks(
        &self,
        handle: &InodeState,
        first: u32,
        blocks: &mut [Block],
        are_wanted: &dyn Fn() -> bool,
    ) -> Result<BlocksRead> {
        let _read = self.space.begin_read();
        let mut read = BlocksRead::default();
        let mut wanted = take_dirty(handle, first, blocks);
        // The mappings are read after the dirty blocks: a block written back meanwhile is found at its new address.
        let mut wrong = PerBlock::new();
        for _ in 0..ATTEMPTS {
            if wanted.is_empty() {
                break;
            }
            let mapped = self.locate(handle.ino, &wanted, first, blocks)?;
            let now_wrong = self.fetch(&mapped, first, blocks, are_wanted, &mut read);
            if read.is_given_up {
                return Ok(read);
            }
            let before = std::mem::replace(&mut wrong, now_wrong);
            self.note_retries(&before, &mapped, &wrong);
            wanted = wrong.iter().map(|(block, _)| *block).collect();
        }
        read.damaged = wanted.into_vec();
        Ok(read)
    }

    /// Returns whether the blocks without a checksum are still where they were read.
    pub(super) fn have_stayed(&self, ino: u64, unverified: &[Mapped]) -> Result<bool> {
        for part in unverified.chunks(LOOKUP_BLOCKS) {
            let have_stayed = self.metadata.read_txn(|txn| {
                for (block, mapping) in part {
                    if txn.mapping(ino, *block)?.map(|now| now.address) != Some(mapping.address) {
                        return Ok(false);
                    }
                }
                Ok(true)
            })?;
            if !have_stayed {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts blocks that were wrong `before` and are now right, read from the same address.
    fn note_retries(&self, before: &[Mapped], mapped: &[Mapped], wrong: &[Mapped]) {
        for at in before.iter().filter(|at| mapped.contains(at) && !wrong.contains(at)) {
            self.health.note_error(ErrorKind::Retry, at.1.address);
        }
    }

    /// Looks up `wanted` blocks. Those without a mapping are filled in here.
    fn locate(
        &self,
        ino: u64,
        wanted: &[u32],
        first: u32,
        blocks: &mut [Block],
    ) -> Result<PerBlock<Mapped>> {
        let mut mapped = PerBlock::with_capacity(wanted.len());
        for part in wanted.chunks(LOOKUP_BLOCKS) {
            let before = mapped.len();
            self.metadata.read_txn(|txn| {
                mapped.truncate(before);
                locate(txn, ino, part, (first, blocks), &mut mapped)
            })?;
        }
        Ok(mapped)
    }

    /// Reads mapped blocks. Returns the blocks whose checksum does not match; those that the device failed to read are
    /// noted in `read`.
    fn fetch(
        &self,
        mapped: &[Mapped],
        first: u32,
        blocks: &mut [Block],
        are_wanted: &dyn Fn() -> bool,
        read: &mut BlocksRead,
    ) -> PerBlock<Mapped> {
        let mut unread: Vec<u64> = Vec::new();
        let (copied, moment) = self.fetch_copies(mapped, first, blocks);
        let is_copy = |block: u32| copied.binary_search(&block).is_ok();
        let rest: Vec<Mapped>;
        let mapped = match copied.is_empty() {
            true => mapped,
            false => {
                rest = mapped.iter().filter(|(block, _)| !is_copy(*block)).copied().collect();
                &rest[..]
            }
        };
        {
            let mut pieces = pieces(mapped, first, blocks, self.io.run_blocks_max());
            let outcome = self.io.read_pieces(&mut pieces, are_wanted);
            read.requests += outcome.requests;
            if outcome.is_given_up {
                read.is_given_up = true;
                return PerBlock::new();
            }
            for (no, error) in outcome.failed {
                let piece = &pieces[no];
                unread.extend((piece.address..).take(piece.blocks.len()));
                read.error.get_or_insert(error);
            }
        }
        unread.sort_unstable();
        let mut wrong = PerBlock::new();
        for (block, mapping) in mapped {
            let memory = &blocks[(block - first) as usize];
            if !unread.is_empty() && unread.binary_search(&mapping.address).is_ok() {
                read.unread.push(*block);
                continue;
            }
            match mapping.checksum {
                None => read.unverified.push((*block, *mapping)),
                Some(sum) if crc32c::crc32c(memory.as_bytes()) != sum => {
                    wrong.push((*block, *mapping));
                }
                Some(_) => {}
            }
        }
        if let Some(moment) = moment {
            self.offer_copies(moment, mapped, (first, blocks), &|at| {
                let is_wrong = wrong.iter().any(|(block, _)| *block == at.0);
                at.1.checksum.is_some() && !is_wrong && unread.binary_search(&at.1.address).is_err()
            });
        }
        wrong
    }

    /// Fills those of the mapped blocks of which the device has copies with their checksums. Returns their numbers, ascending, and the
    /// moment for [`Volume::offer_copies`], if the device keeps copies.
    fn fetch_copies(
        &self,
        mapped: &[Mapped],
        first: u32,
        blocks: &mut [Block],
    ) -> (Vec<u32>, Option<Moment>) {
        if !self.io.has_copies() {
            return (Vec::new(), None);
        }
        let mut numbers = Vec::with_capacity(mapped.len());
        let mut wanted = Vec::with_capacity(mapped.len());
        let mut left = mapped;
        for (memory, block) in blocks.iter_mut().zip(first..) {
            let Some(((number, mapping), after)) = left.split_first() else { break };
            if *number != block {
                continue;
            }
            left = after;
            if let Some(checksum) = mapping.checksum {
                let address = mapping.address;
                numbers.push(block);
                wanted.push(WantedBlock { address, checksum, head: &[], memory, is_found: false });
            }
        }
        let moment = self.io.fetch_copies(&mut wanted);
        let found = numbers.into_iter().zip(&wanted).filter(|(_, wanted)| wanted.is_found);
        (found.map(|(block, _)| block).collect(), moment)
    }

    /// Offers the blocks that `are_verified` to the device's copies, neighbours on the device together.
    fn offer_copies(
        &self,
        moment: Moment,
        mapped: &[Mapped],
        (first, blocks): (u32, &[Block]),
        are_verified: &dyn Fn(&Mapped) -> bool,
    ) {
        let mut left = mapped;
        while let Some((block, mapping)) = left.first() {
            let follows = |(no, at): &(u32, &Mapped)| {
                at.0 == block + no
                    && at.1.address == mapping.address.wrapping_add(u64::from(*no))
                    && are_verified(at)
            };
            let count = (0..).zip(left).take_while(follows).count();
            let begin = (block - first) as usize;
            if count > 0 {
                self.io.offer_copy(moment, mapping.address, &blocks[begin..begin + count]);
            }
            left = &left[count.max(1)..];
        }
    }
}

/// Copies dirty blocks to `blocks`, and returns the others.
fn take_dirty(handle: &InodeState, first: u32, blocks: &mut [Block]) -> PerBlock<u32> {
    let data = handle.data();
    let range = first..=first + (blocks.len() - 1) as u32;
    if data.dirty.is_empty() {
        return range.collect();
    }
    let mut wanted = PerBlock::new();
    for block in range {
        match data.dirty.get(block) {
            Some(dirty) => blocks[(block - first) as usize].clone_from(dirty.memory.block()),
            None => wanted.push(block),
        }
    }
    wanted
}

/// Divides mapped blocks, in ascending order, into pieces that are adjacent in the file and on the device, of up to `len_max`
/// blocks.
fn pieces<'a>(
    mapped: &[Mapped],
    first: u32,
    blocks: &'a mut [Block],
    len_max: usize,
) -> PerBlock<Piece<'a>> {
    let mut pieces = PerBlock::new();
    // The memory from block `first + at` on: the block behind the last one of the largest file has no number.
    let (mut rest, mut at) = (blocks, 0);
    let mut left = mapped;
    while let Some((block, mapping)) = left.first() {
        let follows = |(no, (other, place)): &(u32, &Mapped)| {
            *other == block + no && place.address == mapping.address.wrapping_add(u64::from(*no))
        };
        let len = (0..).zip(left).take_while(follows).take(len_max).count();
        let begin = (block - first) as usize;
        let (_, from_here) = rest.split_at_mut(begin - at);
        let (memory, after) = from_here.split_at_mut(len);
        pieces.push(Piece { address: mapping.address, blocks: memory });
        (rest, at, left) = (after, begin + len, &left[len..]);
    }
    pieces
}

/// Adds the mappings of `wanted` blocks to `mapped`. Blocks without a mapping are filled in here, from the inline item
/// or with zeros.
fn locate(
    txn: &Txn<'_>,
    ino: u64,
    wanted: &[u32],
    (first, blocks): (u32, &mut [Block]),
    mapped: &mut PerBlock<Mapped>,
) -> std::result::Result<(), MetadataError> {
    let mut run: Option<(Key, MappingRun)> = None;
    for &block in wanted {
        let mapping = match wanted {
            // Decodes one mapping of the run.
            [_] => txn.mapping(ino, block)?,
            _ => {
                let key = run_key(ino, block);
                if run.as_ref().is_none_or(|(at, _)| *at != key) {
                    run = Some((key, txn.run(&key)?.unwrap_or_default()));
                }
                run.as_ref().and_then(|(_, run)| run.get(block))
            }
        };
        match mapping {
            Some(mapping) => mapped.push((block, mapping)),
            None => {
                let memory = blocks[(block - first) as usize].as_mut_bytes();
                memory.fill(0);
                if block == 0 {
                    let content = inline(txn, ino)?;
                    let len = content.len().min(BLOCK_SIZE);
                    memory[..len].copy_from_slice(&content[..len]);
                }
            }
        }
    }
    Ok(())
}
