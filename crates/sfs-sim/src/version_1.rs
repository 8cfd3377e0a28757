//! Format version 1: volumes of it, and what a program of it makes of a device.
//!
//! Owns: a copy of the choice of a superblock in the last program that wrote version 1 (commit fab95bc).
//! Promises: it is that program's choice, whatever later ones do.
//! Never: reads a segment.

use sfs_core::format::{LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS};
use sfs_device::{BLOCK_SIZE, Device};

use crate::image::Image;

/// Bytes of a superblock that mean something in version 1; the others are zero.
const LEN: usize = 184;

/// What a program of version 1 decides to do with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It uses the volume of the superblock in this block.
    Volume(u64),
    /// It refuses the volume, of a newer version, and says so.
    Newer(u32),
    /// It refuses the device: no superblock is sound.
    Damaged,
}

impl Choice {
    /// Whether it refuses the volume because it is newer.
    pub fn is_newer(self) -> bool {
        matches!(self, Self::Newer(_))
    }
}

/// Makes the volume in `image`, which was closed, one of version 1.
///
/// # Panics
///
/// If no volume of version 2 is there.
pub fn downgrade(image: &Image) {
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

/// Whether a program of version 1 finds in `image` all that it finds in `base`: only copies of the superblock
/// differ, and the locator, which it does not look at.
pub fn is_untouched(base: &Image, image: &Image) -> bool {
    let last = base.geometry().block_count - 1;
    let Choice::Volume(at) = choose(base) else { return false };
    let backup = number(&base.block(at), 144, 8);
    let is_copy = |at: u64| [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, backup].contains(&at);
    (0..=last).all(|at| is_copy(at) || image.same_block(base, at))
}

/// What a program of version 1 decides to do with `image`.
pub fn choose(image: &Image) -> Choice {
    let last = image.geometry().block_count - 1;
    match read(image, SUPERBLOCK_ADDRESS) {
        Copy::Sound => Choice::Volume(SUPERBLOCK_ADDRESS),
        Copy::Newer(version) => Choice::Newer(version),
        Copy::Damaged => match read(image, last) {
            Copy::Sound if number(&image.block(last), 144, 8) == last => Choice::Volume(last),
            Copy::Newer(version) => Choice::Newer(version),
            _ => Choice::Damaged,
        },
    }
}

/// What a block is to version 1.
enum Copy {
    Sound,
    Newer(u32),
    Damaged,
}

/// `Superblock::version_of` and then `Superblock::decode` of version 1.
fn read(image: &Image, at: u64) -> Copy {
    let bytes = &*image.block(at);
    let has_checksum = number(bytes, 8, 4) == u64::from(crc32c::crc32c(&bytes[12..]));
    if !bytes.starts_with(b"SFS-log\n") || !has_checksum {
        return Copy::Damaged;
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
        2.. => Copy::Newer(version),
        1 if data_layout <= 4
            && number(bytes, 16, 8) == features
            && number(bytes, 176, 4) < 1_000_000_000
            && is_label
            && is_layout(bytes) =>
        {
            Copy::Sound
        }
        _ => Copy::Damaged,
    }
}

/// `Layout::is_sound` of version 1.
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

/// The little-endian number of `len` bytes at `at`.
fn number(bytes: &[u8; BLOCK_SIZE], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
