//! The plan of a volume: its segment size, superblock and root directory.
//!
//! Planning does no I/O: the same arguments give the same superblock.

use sfs_core::format::{DataLayout, Inode, Label, Layout, LayoutError, Superblock, Timestamp};
use sfs_device::{BLOCK_SIZE, Geometry};

/// Default segment size, in bytes.
const SEGMENT_SIZE: u64 = 8 << 20;

/// Smallest and largest segment, in bytes.
pub(crate) const SEGMENT_SIZE_MIN: u64 = 128 << 10;
const SEGMENT_SIZE_MAX: u64 = 1 << 30;

/// Number of segments below which open heads and the reserve take a large part of the volume. One
/// load on 2 GiB writes 1.27 bytes for each byte of the user with 1,000 segments, 1.43 with 500,
/// and 1.55 with 250 (docs/benchmarks.md).
const SEGMENTS_WANTED: u32 = 1000;

/// Smallest segment size that is chosen for [`SEGMENTS_WANTED`] segments, in bytes. The overhead of
/// summaries and requests is large in smaller segments.
const SEGMENT_SIZE_LOW: u64 = 1 << 20;

/// Number of segments below which the cleaner has little choice.
const SEGMENTS_NEEDED: u32 = 250;

/// Properties that only the caller can know: randomness, time, names and owners.
#[derive(Clone, Debug)]
pub struct Identity {
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Label of the volume.
    pub label: Label,
    /// Key of the hash of names; random.
    pub hash_key: [u64; 2],
    /// Time of creation.
    pub now: Timestamp,
    /// Data layout, fixed for the life of the volume.
    pub data_layout: DataLayout,
    /// Owner of the root directory: user and group.
    pub owner: (u32, u32),
}

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct VolumePlan {
    /// Superblock of the volume.
    pub superblock: Superblock,
    /// Inode of the root directory.
    pub root: Inode,
}

impl VolumePlan {
    /// Plans the volume on a device of `geometry`, with segments of `segment_size` bytes, or of
    /// [`segment_size_for`] if `segment_size` is `None`.
    pub fn new(
        geometry: &Geometry,
        segment_size: Option<u64>,
        identity: &Identity,
    ) -> Result<Self, LayoutError> {
        let size = segment_size.unwrap_or_else(|| segment_size_for(geometry));
        if !size.is_multiple_of(BLOCK_SIZE as u64) {
            return Err(LayoutError::SegmentSize);
        }
        let layout = layout(geometry, size)?;
        let superblock = Superblock {
            uuid: identity.uuid,
            label: identity.label,
            layout,
            hash_key: identity.hash_key,
            data_layout: identity.data_layout,
            created: identity.now,
            ..Superblock::new(layout)
        };
        let (uid, gid) = identity.owner;
        Ok(Self { superblock, root: sfs_core::root_directory(uid, gid, identity.now) })
    }

    /// Returns the size of a segment, in bytes.
    pub fn segment_size(&self) -> u64 {
        u64::from(self.superblock.layout.segment_blocks) * BLOCK_SIZE as u64
    }
}

fn layout(geometry: &Geometry, segment_size: u64) -> Result<Layout, LayoutError> {
    let segment_blocks = segment_size / BLOCK_SIZE as u64;
    Layout::new(geometry.block_count, segment_blocks, geometry.partition_start)
}

/// Returns the segment size that suits a device, in bytes: 8 MiB, or the device's erase unit if the
/// unit is larger. If the device would have fewer than about 1,000 segments, the size is smaller,
/// but at least 1 MiB. The size is below 1 MiB only if there would be fewer than 250 segments, and
/// below the erase unit only if no volume would fit otherwise.
pub fn segment_size_for(geometry: &Geometry) -> u64 {
    let erase_size = geometry.preferred_erase_size.max(geometry.discard_granularity);
    let least = erase_size.clamp(SEGMENT_SIZE_MIN, SEGMENT_SIZE_MAX).next_power_of_two();
    let segments = |size| layout(geometry, size).map_or(0, |layout| layout.segment_count);
    let mut size = SEGMENT_SIZE.max(least);
    let wanted = |size| if size > SEGMENT_SIZE_LOW { SEGMENTS_WANTED } else { SEGMENTS_NEEDED };
    while size > least && segments(size) < wanted(size) {
        size /= 2;
    }
    while size > SEGMENT_SIZE_MIN && segments(size) == 0 {
        size /= 2;
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(bytes: u64) -> Geometry {
        Geometry { block_count: bytes / BLOCK_SIZE as u64, ..Geometry::default() }
    }

    #[test]
    fn large_devices_get_8_mib() {
        assert_eq!(segment_size_for(&geometry(8 << 30)), 8 << 20);
        assert_eq!(segment_size_for(&geometry(1 << 40)), 8 << 20);
    }

    #[test]
    fn devices_get_1000_segments_of_at_least_a_mib() {
        assert_eq!(segment_size_for(&geometry(4 << 30)), 4 << 20);
        assert_eq!(segment_size_for(&geometry(2 << 30)), 2 << 20);
        assert_eq!(segment_size_for(&geometry(1 << 30)), 1 << 20);
        assert_eq!(segment_size_for(&geometry(512 << 20)), 1 << 20);
    }

    #[test]
    fn small_devices_get_250_segments_as_long_as_possible() {
        assert_eq!(segment_size_for(&geometry(256 << 20)), 1 << 20);
        assert_eq!(segment_size_for(&geometry(16 << 20)), 128 << 10);
        assert_eq!(segment_size_for(&geometry(5 << 20)), 128 << 10);
        assert_eq!(segment_size_for(&geometry(0)), 128 << 10);
    }

    #[test]
    fn a_larger_erase_unit_wins() {
        let large = Geometry { discard_granularity: 16 << 20, ..geometry(64 << 30) };
        assert_eq!(segment_size_for(&large), 16 << 20);
        let odd = Geometry { preferred_erase_size: 12 << 20, ..geometry(64 << 30) };
        assert_eq!(segment_size_for(&odd), 16 << 20);
        let small = Geometry { preferred_erase_size: 4 << 20, ..geometry(256 << 20) };
        assert_eq!(segment_size_for(&small), 4 << 20);
        let tiny = Geometry { preferred_erase_size: 4 << 20, ..geometry(16 << 20) };
        assert_eq!(segment_size_for(&tiny), 256 << 10);
        let absurd = Geometry { discard_granularity: u64::MAX, ..geometry(16 << 20) };
        assert_eq!(segment_size_for(&absurd), 256 << 10);
    }
}
