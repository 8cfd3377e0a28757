//! A sparse device in memory, with cheap snapshots.
//!
//! Blocks are stored in chunks of 64 KiB, each allocated by the first write to the chunk. Blocks that
//! were never written, or were discarded, read as zeros. Snapshots share chunks until either side writes.
//! Chunks are spread over shards with a lock each, so that threads rarely contend.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::block::{BLOCK_SIZE, Block};
use crate::device::{Device, Stream};
use crate::error::{DeviceError, Operation};
use crate::geometry::Geometry;

/// Number of blocks in a chunk: large enough to copy fast, small enough for sparse images.
const CHUNK_BLOCKS: usize = 16;

/// Content of a chunk before its first write.
static ZERO_CHUNK: [Block; CHUNK_BLOCKS] = [Block::ZERO; CHUNK_BLOCKS];

/// Number of shards; consecutive chunks are in different shards.
const SHARD_COUNT: u64 = 64;

/// Number of whole chunks from which on a discard visits all allocated chunks, and not every chunk number
/// of the request: a discard of a terabyte stays fast.
const SWEEP_CHUNKS_MIN: u64 = 4096;

/// Allocated chunks by their number, shared with snapshots until one side writes.
type ChunkShard = HashMap<u64, Arc<[Block]>>;

/// Device in memory, which allocates only the chunks that were written.
///
/// A request that spans several chunks of 64 KiB is not atomic for concurrent requests.
pub struct RamDevice {
    geometry: Geometry,
    shards: Vec<RwLock<ChunkShard>>,
}

impl RamDevice {
    /// Makes a device of `block_count` blocks of zeros; each of its reported units is one block.
    pub fn new(block_count: u64) -> RamDevice {
        RamDevice::with_geometry(Geometry {
            block_count,
            logical_block_size: BLOCK_SIZE as u32,
            physical_block_size: BLOCK_SIZE as u32,
            discard_granularity: BLOCK_SIZE as u64,
            ..Geometry::default()
        })
    }

    /// Makes a device of zeros that reports `geometry`.
    pub fn with_geometry(geometry: Geometry) -> RamDevice {
        RamDevice { geometry, shards: (0..SHARD_COUNT).map(|_| RwLock::default()).collect() }
    }

    /// Returns a device with the same content, which shares memory with this one until either is written.
    ///
    /// The snapshot may contain a concurrent write wholly, in part or not at all.
    pub fn snapshot(&self) -> RamDevice {
        let copy = |shard: &RwLock<ChunkShard>| RwLock::new(shard.read().clone());
        RamDevice {
            geometry: self.geometry.clone(),
            shards: self.shards.iter().map(copy).collect(),
        }
    }

    /// Returns the number of bytes of all allocated chunks, shared with a snapshot or not.
    pub fn allocated_bytes(&self) -> u64 {
        let chunk_count: usize = self.shards.iter().map(|shard| shard.read().len()).sum();
        (chunk_count * CHUNK_BLOCKS * BLOCK_SIZE) as u64
    }

    fn shard(&self, chunk_no: u64) -> &RwLock<ChunkShard> {
        &self.shards[(chunk_no % SHARD_COUNT) as usize]
    }

    fn write_part(&self, address: u64, part: &[Block]) {
        let mut rest = part;
        for ChunkRange { chunk_no, blocks } in chunk_ranges(address, part.len() as u64) {
            let (source, after) = rest.split_at(blocks.len());
            rest = after;
            let mut shard = self.shard(chunk_no).write();
            if let Some(chunk) = shard.get_mut(&chunk_no).and_then(Arc::get_mut) {
                copy(source, &mut chunk[blocks]);
            } else if source.len() == CHUNK_BLOCKS {
                shard.insert(chunk_no, source.into());
            } else {
                let chunk = shard.entry(chunk_no).or_insert_with(|| ZERO_CHUNK[..].into());
                copy(source, &mut Arc::make_mut(chunk)[blocks]);
            }
        }
    }

    fn discard_chunk_by_chunk(&self, address: u64, block_count: u64) {
        for ChunkRange { chunk_no, blocks } in chunk_ranges(address, block_count) {
            let mut shard = self.shard(chunk_no).write();
            if blocks.len() == CHUNK_BLOCKS {
                shard.remove(&chunk_no);
            } else if let Some(chunk) = shard.get_mut(&chunk_no) {
                Block::bytes_of_mut(&mut Arc::make_mut(chunk)[blocks]).fill(0);
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
        for ChunkRange { chunk_no, blocks } in chunk_ranges(address, block_count) {
            let (target, after) = rest.split_at_mut(blocks.len());
            rest = after;
            match self.shard(chunk_no).read().get(&chunk_no) {
                Some(chunk) => copy(&chunk[blocks], target),
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
            self.discard_chunk_by_chunk(address, count);
            return Ok(());
        }
        for shard in &self.shards {
            shard.write().retain(|chunk_no, _| !whole.contains(chunk_no));
        }
        self.discard_chunk_by_chunk(address, whole.start * chunk_blocks - address);
        self.discard_chunk_by_chunk(whole.end * chunk_blocks, end - whole.end * chunk_blocks);
        Ok(())
    }
}

/// Part of a request that lies in one chunk.
struct ChunkRange {
    chunk_no: u64,
    /// Blocks within the chunk.
    blocks: Range<usize>,
}

/// Splits a request at the boundaries of chunks.
fn chunk_ranges(address: u64, block_count: u64) -> impl Iterator<Item = ChunkRange> {
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
        ChunkRange { chunk_no, blocks: first as usize..last as usize }
    })
}

fn copy(source: &[Block], target: &mut [Block]) {
    Block::bytes_of_mut(target).copy_from_slice(Block::bytes_of(source));
}

#[cfg(test)]
mod tests;
