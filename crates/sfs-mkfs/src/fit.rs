//! `--fit`: an image file that is as small as its content allows.
//!
//! The content is first written to a large, sparse image, which then knows the size that would do. The minimum is
//! the blocks of files and of the tree, the summaries, the segments that the cleaner and a checkpoint need, and 32
//! segments in any case. Groups of blocks end in the middle of segments, so a few more segments can be needed.

use std::fs;
use std::path::Path;

use crate::fill::FillReason;
use crate::make::{Made, make_image_of};
use crate::plan::SEGMENT_SIZE_MIN;
use crate::{FillError, MkfsError, MkfsOptions};

/// Size of the first image beside the bytes of the source, in bytes; it is sparse.
const SPARE_LEN: u64 = 256 << 20;

/// Bytes of metadata for an entry at most, beside its content and its extended attributes.
const ENTRY_LEN: u64 = 8 << 10;

/// Largest first image.
const LEN_MAX: u64 = 1 << 42;

/// Number of images after which no larger one is tried.
const ATTEMPTS: u32 = 16;

/// Divisor of the size by which an image grows that was too small.
const GROWTH: u64 = 64;

/// Makes the smallest image file, of at most `most` bytes.
pub(crate) fn make_fitted(options: &MkfsOptions, most: Option<u64>) -> Result<Made, MkfsError> {
    let path = &options.device;
    let source = options.from.as_deref().expect("clap demands --from");
    let of_source = |error| {
        let error = FillError { path: source.to_owned(), reason: FillReason::Read(error) };
        MkfsError::Fill { device: path.clone(), error }
    };
    let estimate = estimate(source).map_err(of_source)?.saturating_mul(2);
    let limit = most.unwrap_or(LEN_MAX);
    let first = estimate.saturating_add(SPARE_LEN).min(LEN_MAX);
    let (_, filled) = make_image_of(options, first)?;
    let (mut best, mut next) = (None, filled.least_bytes.min(limit));
    for _ in 0..ATTEMPTS {
        let _ = fs::remove_file(path);
        match make_image_of(options, next) {
            // A smaller image has smaller segments, and may need less.
            Ok((made, filled)) if filled.least_bytes >= next => return Ok(made),
            Ok((_, filled)) => {
                best = Some(next);
                next = filled.least_bytes;
            }
            Err(error) if !is_too_small(&error) => return Err(error),
            Err(error) => {
                let larger = next + (next / GROWTH).next_multiple_of(SEGMENT_SIZE_MIN);
                if next == limit {
                    return Err(error);
                }
                next = larger.min(limit);
                if best.is_some_and(|best| next >= best) {
                    break;
                }
            }
        }
    }
    let _ = fs::remove_file(path);
    make_image_of(options, best.unwrap_or(first).min(limit)).map(|(made, _)| made)
}

/// Returns whether a larger image could hold the content.
fn is_too_small(error: &MkfsError) -> bool {
    match error {
        MkfsError::Fill { error, .. } => matches!(error.reason, FillReason::NoSpace),
        MkfsError::Layout { .. } => true,
        MkfsError::Volume { error, .. } => matches!(error, sfs_core::Error::NoSpace),
        _ => false,
    }
}

/// Returns a size in bytes that the content of `source` certainly does not exceed by much.
fn estimate(source: &Path) -> std::io::Result<u64> {
    let metadata = fs::metadata(source)?;
    if !metadata.is_dir() {
        // Every entry of an archive has a header, of 512 bytes.
        return Ok(metadata.len().saturating_mul(ENTRY_LEN / 512));
    }
    let (mut len, mut waiting) = (0u64, vec![source.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let own = if metadata.is_file() { metadata.len() } else { 0 };
            len = len.saturating_add(own).saturating_add(ENTRY_LEN);
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(len)
}
