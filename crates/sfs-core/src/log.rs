//! The log: heads that append chunks to open segments.
//!
//! Owns: the position of every head, the sequence number, and the layout of a batch.
//! Promises: chunks are numbered without a gap, each repeats the checksum of the one before, and
//! the last of a batch has the END flag.
//! Never: reads or writes the device.

mod batch;
mod heads;

use crate::format::Extensions;
use crate::format::{Group, Head};

pub(crate) use batch::{Append, Batch, Chunk};
pub(crate) use heads::{HeadPosition, Heads};

/// The head that tree nodes and lone deltas go to.
pub(crate) const METADATA_HEAD: u8 = Head::METADATA.0;

/// The head of the first group; the other groups' follow.
pub(crate) const FIRST_GROUP_HEAD: u8 = Head::of(Group(0)).0;

/// Where the log stands.
pub(crate) struct Log {
    pub(crate) heads: Heads,
    /// Sequence number of the next chunk.
    pub(crate) next_sequence: u64,
    /// Checksum of the chunk before it.
    pub(crate) previous: u32,
    /// Chunks have been written since the last flush.
    pub(crate) unflushed: bool,
    /// What `next_sequence` was at the last flush: chunks before it are durable.
    pub(crate) flushed: u64,
    /// Blocks written since the last checkpoint.
    pub(crate) blocks_since_checkpoint: u64,
    /// Number of the last checkpoint.
    pub(crate) checkpoint: u64,
    /// Syncs up to this one are durable.
    pub(crate) synced: u64,
    /// Times the volume was mounted for writing.
    pub(crate) mount_count: u64,
    /// Bytes that users wrote in earlier mounts.
    pub(crate) user_bytes_before: u64,
    /// Bytes that went to the device in earlier mounts.
    pub(crate) device_bytes_before: u64,
    /// Records that the next checkpoint repeats.
    pub(crate) extensions: Extensions,
}
