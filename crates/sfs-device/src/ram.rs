//! A device in memory.
//!
//! Owns: the blocks that were written, in chunks that exist from their first write on.
//! Promises: what was never written, or was discarded, reads as zeros; reading allocates nothing.
//! Never: makes two requests to different chunks wait for each other for longer than a copy.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::{BLOCK_SIZE, Block, Device, DeviceError, Geometry, Operation, Stream};

/// Blocks in a chunk: large enough to copy well, small enough for sparse images.
const CHUNK_BLOCKS: usize = 16;

/// What a chunk is before its first write.
static ZERO_CHUNK: [Block; CHUNK_BLOCKS] = [Block::ZERO; CHUNK_BLOCKS];

/// Locks; consecutive chunks have different ones.
const SHARD_COUNT: u64 = 64;

/// From this many whole chunks on, a discard looks at the chunks that exist, and not at those
/// that may: letting go of a terabyte takes no time.
const SWEEP_CHUNKS_MIN: u64 = 4096;

/// Chunks by their number. Shared with snapshots until one of them writes.
type Shard = HashMap<u64, Arc<[Block]>>;

/// A device in memory. It takes what is written to it, not its size.
///
/// A request that spans chunks of 64 KiB is not atomic for others that run at the same time.
pub struct RamDevice {
    geometry: Geometry,
    shards: Vec<RwLock<Shard>>,
}

impl RamDevice {
    /// A device of `block_count` blocks of zeros, whose every unit is one block.
    pub fn new(block_count: u64) -> RamDevice {
        RamDevice::with_geometry(Geometry {
            block_count,
            logical_block_size: BLOCK_SIZE as u32,
            physical_block_size: BLOCK_SIZE as u32,
            discard_granularity: BLOCK_SIZE as u64,
            ..Geometry::default()
        })
    }

    /// A device of zeros that says `geometry` of itself.
    pub fn with_geometry(geometry: Geometry) -> RamDevice {
        RamDevice { geometry, shards: (0..SHARD_COUNT).map(|_| RwLock::default()).collect() }
    }

    /// Another device with the same content. Cheap: the two share memory until one is written.
    /// Writes that are under way may be in it or not, or in part.
    pub fn snapshot(&self) -> RamDevice {
        let copy = |shard: &RwLock<Shard>| RwLock::new(shard.read().clone());
        RamDevice {
            geometry: self.geometry.clone(),
            shards: self.shards.iter().map(copy).collect(),
        }
    }

    /// Bytes of memory that the content takes, whether shared with a snapshot or not.
    pub fn allocated_bytes(&self) -> u64 {
        let chunk_count: usize = self.shards.iter().map(|shard| shard.read().len()).sum();
        (chunk_count * CHUNK_BLOCKS * BLOCK_SIZE) as u64
    }

    fn shard(&self, chunk_no: u64) -> &RwLock<Shard> {
        &self.shards[(chunk_no % SHARD_COUNT) as usize]
    }

    fn write_part(&self, address: u64, part: &[Block]) {
        let mut rest = part;
        for piece in pieces(address, part.len() as u64) {
            let (source, after) = rest.split_at(piece.blocks.len());
            rest = after;
            let mut shard = self.shard(piece.chunk_no).write();
            if let Some(chunk) = shard.get_mut(&piece.chunk_no).and_then(Arc::get_mut) {
                copy(source, &mut chunk[piece.blocks]);
            } else if source.len() == CHUNK_BLOCKS {
                shard.insert(piece.chunk_no, source.into());
            } else {
                let chunk = shard.entry(piece.chunk_no).or_insert_with(|| ZERO_CHUNK[..].into());
                copy(source, &mut Arc::make_mut(chunk)[piece.blocks]);
            }
        }
    }

    fn discard_pieces(&self, address: u64, block_count: u64) {
        for piece in pieces(address, block_count) {
            let mut shard = self.shard(piece.chunk_no).write();
            if piece.blocks.len() == CHUNK_BLOCKS {
                shard.remove(&piece.chunk_no);
            } else if let Some(chunk) = shard.get_mut(&piece.chunk_no) {
                Block::bytes_of_mut(&mut Arc::make_mut(chunk)[piece.blocks]).fill(0);
            }
        }
    }
}

impl Device for RamDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let block_count = buffer.len() as u64;
        self.geometry.check_range(Operation::Read, address, block_count)?;
        let mut rest = buffer;
        for piece in pieces(address, block_count) {
            let (target, after) = rest.split_at_mut(piece.blocks.len());
            rest = after;
            match self.shard(piece.chunk_no).read().get(&piece.chunk_no) {
                Some(chunk) => copy(&chunk[piece.blocks], target),
                None => Block::bytes_of_mut(target).fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], _: Stream) -> Result<(), DeviceError> {
        let block_count = parts.iter().map(|part| part.len() as u64).sum();
        self.geometry.check_range(Operation::Write, address, block_count)?;
        let mut address = address;
        for part in parts {
            self.write_part(address, part);
            address += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.geometry.check_range(Operation::Discard, address, count)?;
        let end = address + count;
        let chunk_blocks = CHUNK_BLOCKS as u64;
        let whole = address.div_ceil(chunk_blocks)..end / chunk_blocks;
        if whole.end.saturating_sub(whole.start) < SWEEP_CHUNKS_MIN {
            self.discard_pieces(address, count);
            return Ok(());
        }
        for shard in &self.shards {
            shard.write().retain(|chunk_no, _| !whole.contains(chunk_no));
        }
        self.discard_pieces(address, whole.start * chunk_blocks - address);
        self.discard_pieces(whole.end * chunk_blocks, end - whole.end * chunk_blocks);
        Ok(())
    }
}

/// The part of a request that lies in one chunk.
struct Piece {
    chunk_no: u64,
    blocks: Range<usize>,
}

fn pieces(address: u64, block_count: u64) -> impl Iterator<Item = Piece> {
    let chunk_blocks = CHUNK_BLOCKS as u64;
    let end = address + block_count;
    let chunks = match block_count {
        0 => 0..0,
        _ => address / chunk_blocks..end.div_ceil(chunk_blocks),
    };
    chunks.map(move |chunk_no| {
        let start = chunk_no * chunk_blocks;
        let first = address.max(start) - start;
        let last = end.min(start + chunk_blocks) - start;
        Piece { chunk_no, blocks: first as usize..last as usize }
    })
}

fn copy(source: &[Block], target: &mut [Block]) {
    Block::bytes_of_mut(target).copy_from_slice(Block::bytes_of(source));
}

#[cfg(test)]
mod tests;
