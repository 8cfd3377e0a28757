//! Format version 1: making volumes of this version, and the decision of a version 1 program about a device.
//!
//! The decision is a copy of the superblock selection in the last program that wrote version 1 (commit
//! fab95bc). The copy must not follow later changes of the format.

use sfs_core::format::{LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS};
use sfs_device::{BLOCK_SIZE, Device};

use crate::image::CowImage;

/// Number of bytes of a superblock that version 1 uses; the rest of the block is zero.
const LEN: usize = 184;

/// Decision of a version 1 program about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenDecision {
    /// The program uses the volume of the superblock in this block.
    Volume(u64),
    /// The program refuses the volume because of its newer version.
    Newer(u32),
    /// The program refuses the device because no superblock is valid.
    Damaged,
}

impl OpenDecision {
    /// Returns whether the program refuses the volume because of its newer version.
    pub fn is_newer(self) -> bool {
        matches!(self, Self::Newer(_))
    }
}

/// Converts the closed volume in `image` to version 1.
///
/// # Panics
///
/// If `image` has no volume of version 2.
pub fn downgrade(image: &CowImage) {
    let mut bytes = *image.block(SUPERBLOCK_ADDRESS);
    assert_eq!(number(&bytes, 12, 4), 2, "a volume of version 2");
    bytes[12..16].copy_from_slice(&1u32.to_le_bytes());
    bytes[LEN..].fill(0);
    let checksum = crc32c::crc32c(&bytes[12..]).to_le_bytes();
    bytes[8..12].copy_from_slice(&checksum);
    for at in [SUPERBLOCK_ADDRESS, number(&bytes, 144, 8)] {
        image.edit(at, |block| *block = bytes);
    }
    image.clear(LOCATOR_ADDRESS, 1);
}

/// Returns whether `image` differs from `base` only in copies of the superblock, and in the locator, which a
/// version 1 program does not read.
pub fn is_untouched(base: &CowImage, image: &CowImage) -> bool {
    let last = base.geometry().block_count - 1;
    let OpenDecision::Volume(at) = choose(base) else { return false };
    let backup = number(&base.block(at), 144, 8);
    let is_copy = |at: u64| [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, backup].contains(&at);
    (0..=last).all(|at| is_copy(at) || image.same_block(base, at))
}

/// Returns whether the last block of the device, the only place where version 1 looks for the backup, is zero: shrinking
/// zeroes the backup that it leaves there.
pub fn is_last_block_zero(image: &CowImage) -> bool {
    let last = image.geometry().block_count - 1;
    image.block(last).iter().all(|byte| *byte == 0)
}

/// Returns the decision of a version 1 program about `image`.
pub fn choose(image: &CowImage) -> OpenDecision {
    let last = image.geometry().block_count - 1;
    match read(image, SUPERBLOCK_ADDRESS) {
        CopyValidity::Sound => OpenDecision::Volume(SUPERBLOCK_ADDRESS),
        CopyValidity::Newer(version) => OpenDecision::Newer(version),
        CopyValidity::Damaged => match read(image, last) {
            CopyValidity::Sound if number(&image.block(last), 144, 8) == last => {
                OpenDecision::Volume(last)
            }
            CopyValidity::Newer(version) => OpenDecision::Newer(version),
            _ => OpenDecision::Damaged,
        },
    }
}

/// Validity of a copy of the superblock for version 1.
enum CopyValidity {
    Sound,
    Newer(u32),
    Damaged,
}

/// Validates a copy of the superblock like `Superblock::version_of` and `Superblock::decode` of version 1.
fn read(image: &CowImage, at: u64) -> CopyValidity {
    let bytes = &*image.block(at);
    let has_checksum = number(bytes, 8, 4) == u64::from(crc32c::crc32c(&bytes[12..]));
    if !bytes.starts_with(b"SFS-log\n") || !has_checksum {
        return CopyValidity::Damaged;
    }
    let version = number(bytes, 12, 4) as u32;
    let data_layout = number(bytes, 180, 4);
    let features = if data_layout == 0 { 0 } else { 2 };
    let label = &bytes[40..104];
    let len = label.iter().position(|byte| *byte == 0).unwrap_or(label.len());
    let text = str::from_utf8(&label[..len]);
    let is_label = text.is_ok_and(|text| !text.chars().any(char::is_control))
        && label[len..].iter().all(|byte| *byte == 0);
    match version {
        2.. => CopyValidity::Newer(version),
        1 if data_layout <= 4
            && number(bytes, 16, 8) == features
            && number(bytes, 176, 4) < 1_000_000_000
            && is_label
            && is_layout(bytes) =>
        {
            CopyValidity::Sound
        }
        _ => CopyValidity::Damaged,
    }
}

/// Validates the layout like `Layout::is_sound` of version 1.
fn is_layout(bytes: &[u8; BLOCK_SIZE]) -> bool {
    let [block_count, first] = [104, 112].map(|at| number(bytes, at, 8));
    let [segment_blocks, segment_count] = [120, 124].map(|at| number(bytes, at, 4));
    let [slot, other_slot, backup] = [128, 136, 144].map(|at| number(bytes, at, 8));
    let end = first.checked_add(segment_blocks * segment_count);
    (32..=1 << 18).contains(&segment_blocks)
        && segment_blocks.is_power_of_two()
        && (32..=1 << 24).contains(&segment_count)
        && block_count < 1 << 40
        && slot == 16
        && slot + 16 <= first
        && end.is_some_and(|end| end <= other_slot)
        && other_slot.checked_add(16).is_some_and(|end| end <= backup)
        && backup.checked_add(1) == Some(block_count)
}

/// Reads the little-endian number of `len` bytes at `at`.
fn number(bytes: &[u8; BLOCK_SIZE], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
