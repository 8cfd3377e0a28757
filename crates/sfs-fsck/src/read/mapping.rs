//! Decoding of mapping runs.

use sfs_core::format::{
    Corruption, CorruptionKind, DecodeError, Key, MappingRun, RUN_BLOCKS, Tolerance,
};

/// Decodes the mapping run `value` of the item `key`.
///
/// # Errors
///
/// Errors of [`MappingRun::decode`], and `Corrupt` if the block numbers of `key` exceed those of
/// the largest file.
pub(crate) fn decode_run(
    key: &Key,
    value: &[u8],
    tolerance: Tolerance,
) -> Result<MappingRun, DecodeError> {
    let offset_max = u64::from(u32::MAX / RUN_BLOCKS);
    if key.offset > offset_max {
        return Err(Corruption::in_item(key.ino, CorruptionKind::Value).into());
    }
    MappingRun::decode(value, key, tolerance)
}
