//! The device as an open volume uses it.
//!
//! A read finds blocks that are still on their way to the device, so callers never see stale content. Errors are
//! counted in [`Health`]; a write or flush that fails ends writing. The module does not interpret the content
//! of a block, and does not depend on the locks that a caller holds.

mod chunk;
mod copies;
mod in_flight;
mod in_place;
mod pieces;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

use crate::Result;
use crate::counters::AtomicCounters;
use crate::format::{Layout, SummaryEntry};
use crate::health::Health;
use in_flight::InFlight;

pub(crate) use chunk::{Append, Chunk};
pub(crate) use in_place::{InPlaceBlock, InPlaceWrites};
pub(crate) use pieces::Piece;

/// Gap in blocks that is read along, until the mount has measured its device.
const GAP_BLOCKS_MAX: usize = 8;

/// Largest number of blocks of a read among others: requests of a megabyte are as fast as longer ones, and let other
/// requests get their turn.
const RUN_BLOCKS_MAX: usize = 256;

/// Device of an open volume.
pub(crate) struct VolumeDevice {
    device: Arc<dyn Device>,
    in_flight: RwLock<InFlight>,
    health: Arc<Health>,
    counters: Arc<AtomicCounters>,
    /// Longest gap between two blocks that is read along, in blocks.
    gap_blocks_max: AtomicUsize,
    /// Number of blocks that the device reads while requests of other threads wait.
    turn_blocks: AtomicUsize,
}

impl VolumeDevice {
    /// Wraps `device`, with no block in flight.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        health: Arc<Health>,
        counters: Arc<AtomicCounters>,
    ) -> Self {
        let gap_blocks_max = AtomicUsize::new(GAP_BLOCKS_MAX);
        let (in_flight, turn_blocks) = (RwLock::default(), AtomicUsize::new(usize::MAX));
        Self { device, in_flight, health, counters, gap_blocks_max, turn_blocks }
    }

    /// Sets the longest gap between two wanted blocks that is read along, in blocks.
    pub(crate) fn set_gap_blocks_max(&self, blocks: usize) {
        self.gap_blocks_max.store(blocks, Ordering::Relaxed);
    }

    /// Returns the longest gap between two wanted blocks that is read along, in blocks.
    pub(crate) fn gap_blocks_max(&self) -> usize {
        self.gap_blocks_max.load(Ordering::Relaxed)
    }

    /// Sets the number of blocks that the device reads while requests of other threads wait.
    pub(crate) fn set_turn_blocks(&self, blocks: usize) {
        self.turn_blocks.store(blocks.max(1), Ordering::Relaxed);
    }

    fn turn_blocks(&self) -> usize {
        self.turn_blocks.load(Ordering::Relaxed)
    }

    /// Returns the largest number of blocks that are read as one piece.
    pub(crate) fn run_blocks_max(&self) -> usize {
        self.turn_blocks().min(RUN_BLOCKS_MAX)
    }

    /// Reads blocks from `address` on: from memory while they are in flight, otherwise from the device.
    pub(crate) fn read(&self, address: u64, blocks: &mut [Block]) -> Result<()> {
        self.read_uncounted(address, blocks).map_err(|error| self.health.counted(error))
    }

    /// Reads blocks as [`VolumeDevice::read`] does, and leaves it to the caller to count an error.
    fn read_uncounted(&self, address: u64, blocks: &mut [Block]) -> Result<()> {
        let mut found = 0;
        {
            let in_flight = self.in_flight.read();
            if !in_flight.is_empty() {
                for (at, block) in (address..).zip(blocks.iter_mut()) {
                    if let Some(memory) = in_flight.get(at) {
                        block.clone_from(memory.block());
                        found += 1;
                    }
                }
            }
        }
        match found {
            0 => Ok(self.device.read(address, blocks)?),
            _ if found == blocks.len() => Ok(()),
            _ => self.read_mixed(address, blocks),
        }
    }

    /// Reads block by block, where only some of the blocks are in flight.
    fn read_mixed(&self, address: u64, blocks: &mut [Block]) -> Result<()> {
        for (at, block) in (address..).zip(blocks) {
            self.read_uncounted(at, std::slice::from_mut(block))?;
        }
        Ok(())
    }

    /// Reads blocks as the device has them, without blocks in flight.
    pub(crate) fn read_stored(&self, address: u64, blocks: &mut [Block]) -> Result<()> {
        self.device.read(address, blocks).map_err(|error| self.health.counted(error.into()))
    }

    /// Returns whether the block at `address` is read from memory, because it is still on its way to the device.
    pub(crate) fn is_in_flight(&self, address: u64) -> bool {
        self.in_flight.read().get(address).is_some()
    }

    /// Reads blocks as the device has them, for a caller that recognizes those that it needs and can do without them. A failure is not
    /// counted.
    pub(crate) fn read_along(
        &self,
        address: u64,
        blocks: &mut [Block],
    ) -> std::result::Result<(), DeviceError> {
        self.device.read(address, blocks)
    }

    /// Makes the blocks of a batch readable before they are written.
    pub(crate) fn announce(&self, chunks: &[Arc<Chunk>], in_place: &InPlaceWrites) {
        self.in_flight.write().insert(chunks, in_place);
    }

    /// Writes an announced chunk.
    pub(crate) fn write_chunk(&self, chunk: &Chunk) -> Result<()> {
        let written = self.device.write(chunk.address, &chunk.parts(), chunk.stream());
        written.map_err(|error| self.health.fail(error))?;
        self.count_chunk(chunk);
        self.in_flight.write().remove_chunk(chunk);
        Ok(())
    }

    fn count_chunk(&self, chunk: &Chunk) {
        let is_node = |append: &&Append| matches!(append.entry, SummaryEntry::Node { .. });
        let nodes = chunk.appends.iter().filter(is_node).count() * BLOCK_SIZE;
        let counters = &self.counters;
        counters.metadata_bytes.fetch_add(nodes as u64, Ordering::Relaxed);
        let summary = (chunk.summary.len() * BLOCK_SIZE) as u64;
        counters.summary_bytes.fetch_add(summary, Ordering::Relaxed);
        let bytes = (chunk.block_count() * BLOCK_SIZE) as u64;
        counters.device_bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Writes announced neighbouring blocks in place, in one request.
    pub(crate) fn write_in_place(&self, run: &[InPlaceBlock], stream: Stream) -> Result<()> {
        let written = self.device.write(run[0].0, &in_place::parts(run), stream);
        written.map_err(|error| self.health.fail(error))?;
        let bytes = (run.len() * BLOCK_SIZE) as u64;
        self.counters.device_bytes_written.fetch_add(bytes, Ordering::Relaxed);
        self.in_flight.write().remove_in_place(run);
        Ok(())
    }

    /// Writes metadata outside the log: a checkpoint record.
    pub(crate) fn write_record(
        &self,
        address: u64,
        blocks: &[Block],
        stream: Stream,
    ) -> Result<()> {
        let written = self.device.write(address, &[blocks], stream);
        written.map_err(|error| self.health.fail(error))?;
        let bytes = (blocks.len() * BLOCK_SIZE) as u64;
        self.counters.metadata_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.device_bytes_written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Writes `block` at `address`, uncounted, for recovery and repair. An error does not end
    /// writing.
    pub(crate) fn write_block(&self, address: u64, block: &Block, stream: Stream) -> Result<()> {
        Ok(self.device.write(address, &[std::slice::from_ref(block)], stream)?)
    }

    /// Makes every completed write durable. A device that is late has lost nothing: the error ends nothing, and a later flush makes up for it.
    pub(crate) fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|error| match error.is_late() {
            true => error.into(),
            false => self.health.fail(error),
        })
    }

    /// Makes sure that no later write is kept by a crash that loses a completed one. Returns whether every completed write is durable.
    pub(crate) fn order(&self) -> Result<bool> {
        self.device.order().map_err(|error| self.health.fail(error))
    }

    /// Returns whether the device can discard.
    pub(crate) fn can_discard(&self) -> bool {
        self.device.geometry().discard_granularity > 0
    }

    /// Discards `count` segments from `first` on. The request is a hint: a device that refuses it loses nothing.
    pub(crate) fn discard_segments(&self, layout: &Layout, first: u32, count: u32) {
        let blocks = u64::from(count) * u64::from(layout.segment_blocks);
        let _ = self.device.discard(layout.segment_address(first), blocks);
    }
}
