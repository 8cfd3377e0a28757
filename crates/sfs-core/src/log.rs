//! The log: heads that append chunks to open segments, and one writer.
//!
//! [`LogState`] is the position of the log; [`LogWriter`] owns the state and writes. [`Batch`] lays
//! the blocks of a commit or checkpoint out over the heads. [`ChunkReader`] reads chunks back, for
//! recovery and for cleaning. Chunks are numbered without a gap, each repeats the checksum of the
//! one before, and the last chunk of a batch has the END flag.

mod batch;
mod heads;
mod scan;
mod sync_queue;
mod writer;

use crate::format::{Extensions, LogEra};

pub(crate) use batch::Batch;
pub(crate) use heads::{CHUNK_BLOCKS_MIN, HeadPosition, Heads};
pub(crate) use scan::ChunkReader;
pub(crate) use sync_queue::SyncTarget;
pub use sync_queue::WholeSyncTicket;
pub(crate) use writer::LogWriter;

/// Position of the log, and the counters that each checkpoint stores.
pub(crate) struct LogState {
    pub(crate) heads: Heads,
    /// Sequence number of the next chunk.
    pub(crate) next_sequence: u64,
    /// Checksum of the last chunk, which the next chunk repeats.
    pub(crate) previous: u32,
    /// `true` if chunks were written that are not durable for somebody who waits for that.
    pub(crate) unflushed: bool,
    /// Value of `next_sequence` at the last flush, or the last time that the device was told the order: chunks before it are kept if a later one is.
    pub(crate) flushed: u64,
    /// Number of blocks written since the last checkpoint.
    pub(crate) blocks_since_checkpoint: u64,
    /// Number of the last checkpoint.
    pub(crate) checkpoint: u64,
    /// Number of writable mounts.
    pub(crate) mount_count: u64,
    /// Era that the next chunk names.
    pub(crate) era: LogEra,
    /// Number of bytes that users wrote in earlier mounts.
    pub(crate) user_bytes_before: u64,
    /// Extension records that the next checkpoint repeats.
    pub(crate) extensions: Extensions,
}

impl LogState {
    /// Begins the era of this mount or repair with the next chunk.
    pub(crate) fn begin_era(&mut self) {
        self.era = LogEra::of_mount(self.mount_count, self.next_sequence);
    }
}
