//! Results of cleaning, trimming and a checkpoint that were asked for.

use serde::{Deserialize, Serialize};
use sfs_core::request::{CleanedRound, DefragmentedPart, WrittenCheckpoint};
use sfs_device::BLOCK_SIZE;

/// A checkpoint that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckpointReport {
    /// 1; see docs/sfs-ctl.md.
    pub(crate) version: u32,
    /// Number of the checkpoint.
    pub(crate) number: u64,
    /// Bytes of data that was dirty.
    pub(crate) data_bytes: u64,
    /// Bytes of tree nodes and of the checkpoint record.
    pub(crate) metadata_bytes: u64,
    /// Bytes of summaries and deltas.
    pub(crate) summary_bytes: u64,
    /// All bytes written to the device.
    pub(crate) device_bytes: u64,
    /// Number of segments that became Clean.
    pub(crate) released_segments: u32,
}

impl From<WrittenCheckpoint> for CheckpointReport {
    fn from(written: WrittenCheckpoint) -> Self {
        let WrittenCheckpoint { number, data_bytes, metadata_bytes, summary_bytes, .. } = written;
        let WrittenCheckpoint { device_bytes, released_segments, .. } = written;
        Self {
            version: 1,
            number,
            data_bytes,
            metadata_bytes,
            summary_bytes,
            device_bytes,
            released_segments,
        }
    }
}

/// A round of cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CleanPart {
    /// Number of segments; 0 if no segment was worth cleaning.
    pub(crate) segments: u32,
    pub(crate) moved_bytes: u64,
    pub(crate) moved_nodes: u64,
    pub(crate) device_bytes: u64,
}

impl From<CleanedRound> for CleanPart {
    fn from(round: CleanedRound) -> Self {
        Self {
            segments: round.segments,
            moved_bytes: round.moved_blocks * BLOCK_SIZE as u64,
            moved_nodes: round.moved_nodes,
            device_bytes: round.device_bytes,
        }
    }
}

/// Cleaning that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CleanReport {
    /// 1; see docs/sfs-ctl.md.
    pub(crate) version: u32,
    /// Number of segments that were cleaned.
    pub(crate) segments: u32,
    /// Bytes of data that were moved.
    pub(crate) moved_bytes: u64,
    /// Number of tree nodes that were moved.
    pub(crate) moved_nodes: u64,
    /// Bytes written to the device, checkpoints included.
    pub(crate) device_bytes: u64,
    /// Number of Clean segments before.
    pub(crate) clean_segments_before: u32,
    /// Number of Clean segments afterwards.
    pub(crate) clean_segments_after: u32,
    /// `true` if cleaning ended since no segment was worthwhile any more, and not since enough were cleaned.
    pub(crate) is_exhausted: bool,
}

/// A part of a file that was put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DefragPart {
    pub(crate) bytes: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) requests_before: u64,
    pub(crate) requests_after: u64,
    /// First block of the next part; `None` after the last one.
    pub(crate) next: Option<u32>,
}

impl From<DefragmentedPart> for DefragPart {
    fn from(part: DefragmentedPart) -> Self {
        Self {
            bytes: part.blocks * BLOCK_SIZE as u64,
            moved_bytes: part.moved_blocks * BLOCK_SIZE as u64,
            device_bytes: part.device_bytes,
            requests_before: part.requests_before,
            requests_after: part.requests_after,
            next: part.next,
        }
    }
}

/// A file that was not put in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DefragFailure {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// Files that were put in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DefragReport {
    /// 1; see docs/sfs-ctl.md.
    pub(crate) version: u32,
    /// Number of files that are in order now.
    pub(crate) files: u64,
    /// Number of files among them of which something was moved.
    pub(crate) moved_files: u64,
    /// Bytes of the files in the log.
    pub(crate) bytes: u64,
    /// Bytes of data that were moved.
    pub(crate) moved_bytes: u64,
    /// Bytes written to the device, for cleaning and checkpoints as well.
    pub(crate) device_bytes: u64,
    /// Number of requests that would have read the files before, if windows of 4 MiB are looked up at once, and gaps of
    /// at most 64 KiB are read along.
    pub(crate) requests_before: u64,
    /// Number of requests that would read them afterwards.
    pub(crate) requests_after: u64,
    /// Number of files that were not put in order.
    pub(crate) failed_files: u64,
    /// The first 100 of these files.
    pub(crate) failures: Vec<DefragFailure>,
}

/// A part of a trim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrimPart {
    pub(crate) bytes: u64,
    /// First byte of the next part; `None` after the last one.
    pub(crate) next: Option<u64>,
}

/// A trim that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TrimReport {
    /// 1; see docs/sfs-ctl.md.
    pub(crate) version: u32,
    /// Bytes of the free segments that were discarded.
    pub(crate) discarded_bytes: u64,
}
