//! A change of a volume's size, as it is reported to users, and the calls that make it.

use std::fmt;

use serde::{Deserialize, Serialize};
use sfs_core::format::Layout;
use sfs_core::{ResizeError, Resized, Volume};
use sfs_device::BLOCK_SIZE;
use sfs_mkfs::Human;
use uuid::Uuid;

/// A change of size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeReport {
    /// Size of the volume before.
    pub from_bytes: u64,
    /// Size of the volume now.
    pub to_bytes: u64,
    /// Number of segments now.
    pub segments: u32,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Size of the volume with one more segment, if the volume was not changed.
    pub next_bytes: Option<u64>,
}

impl From<Resized> for ResizeReport {
    fn from(resized: Resized) -> Self {
        let Resized { from, to } = resized;
        let bytes = |layout: Layout| layout.block_count * BLOCK_SIZE as u64;
        let next = to.blocks_for(to.segment_count + 1) * BLOCK_SIZE as u64;
        Self {
            from_bytes: bytes(from),
            to_bytes: bytes(to),
            segments: to.segment_count,
            segment_bytes: u64::from(to.segment_blocks) * BLOCK_SIZE as u64,
            next_bytes: (from == to).then_some(next),
        }
    }
}

impl fmt::Display for ResizeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_bytes, to_bytes, segments, segment_bytes, next_bytes } = *self;
        let segments = format_args!("{segments} segments of {}", Human(segment_bytes));
        match next_bytes {
            Some(next) => write!(
                f,
                "has {} already: {segments}; one more needs {next} bytes",
                Human(to_bytes)
            ),
            None => {
                let verb = if from_bytes < to_bytes { "grown" } else { "shrunk" };
                write!(f, "{verb} from {} to {}: {segments}", Human(from_bytes), Human(to_bytes))
            }
        }
    }
}

/// Grows an open volume to `bytes` bytes, or to the size of its device.
pub(crate) fn grow(volume: &Volume, bytes: Option<u64>) -> Result<ResizeReport, ResizeError> {
    let blocks = bytes.map(|bytes| bytes / BLOCK_SIZE as u64);
    Ok(volume.grow_volume(blocks, nonce())?.into())
}

/// Resizes an open volume that nobody else uses to `bytes` bytes, or to the size of its device.
pub(crate) fn resize(volume: &Volume, bytes: Option<u64>) -> Result<ResizeReport, ResizeError> {
    match bytes.map(|bytes| bytes / BLOCK_SIZE as u64) {
        Some(blocks) if blocks < volume.layout().block_count => {
            Ok(volume.shrink_volume(blocks, nonce())?.into())
        }
        _ => grow(volume, bytes),
    }
}

/// Returns a random number.
fn nonce() -> u64 {
    // A UUID of version 4 has six bits that are not random; two halves make a number without them.
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high.rotate_left(32) ^ low
}
