//! Signatures of other filesystems, volumes and partition tables.
//!
//! [`detect`] compares the bytes in [`ranges`] with a table of signatures. Every signature lies in these
//! ranges, so that `sfs-mkfs` removes all signatures by wiping them. A signature does not prove that the
//! content still works.

mod table;

use std::ops::Range;

use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError};

pub use self::table::SFS;
use self::table::{Position, SIGNATURES};

/// Bytes at the start of a device. The last signature is the ninth possible position of a second LUKS2
/// header, at 4 MiB.
const START_LEN: u64 = (4 << 20) + (64 << 10);

/// Bytes at the end of a device. The first signature is a ZFS label: 512 KiB before a multiple of 256 KiB.
const END_LEN: u64 = 2 << 20;

/// Offsets of copies of the btrfs superblock, far inside a device.
const FAR: [u64; 2] = [64 << 20, 256 << 30];

/// A signature that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Kind of content: `XFS filesystem`.
    pub name: &'static str,
    /// Offset of the signature on the device, in bytes.
    pub offset: u64,
}

/// Returns the ranges of a device of `size` bytes where signatures can be, ascending, without overlap.
pub fn ranges(size: u64) -> Vec<Range<u64>> {
    let block_size = BLOCK_SIZE as u64;
    let end = size.saturating_sub(END_LEN) / block_size * block_size;
    let far = FAR.map(|offset| offset..offset + block_size);
    let mut wanted = vec![0..START_LEN, end..size];
    wanted.extend(far);
    wanted.sort_by_key(|range| range.start);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for range in wanted {
        let start = ranges.last().map_or(range.start, |last| range.start.max(last.end));
        let end = range.end.min(size);
        if start < end {
            ranges.push(start..end);
        }
    }
    ranges
}

/// Bytes of a device in its [`ranges`].
pub struct Ends {
    size: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Ends {
    /// Reads the ranges of a source of `size` bytes.
    pub fn read<E>(
        size: u64,
        mut read_at: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut pieces = Vec::new();
        for range in ranges(size) {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            read_at(range.start, &mut bytes)?;
            pieces.push((range.start, bytes));
        }
        Ok(Self { size, pieces })
    }

    /// Reads the ranges of a device, as far as it has whole blocks.
    pub fn read_device(device: &dyn Device) -> Result<Self, DeviceError> {
        let size = device.geometry().block_count.saturating_mul(BLOCK_SIZE as u64);
        Self::read(size, |offset, bytes| {
            let mut blocks = Block::zeroed(bytes.len() / BLOCK_SIZE);
            device.read(offset / BLOCK_SIZE as u64, &mut blocks)?;
            bytes.copy_from_slice(Block::bytes_of(&blocks));
            Ok(())
        })
    }

    /// Returns the `len` bytes at `offset`, if they were read.
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.pieces.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(len)?)
        })
    }
}

/// Returns the signatures on a device, each kind once.
pub fn detect(ends: &Ends) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for signature in SIGNATURES {
        let Some(offset) = signature.position.offset(ends.size) else { continue };
        let matches = ends.get(offset, signature.magic.len()) == Some(signature.magic);
        if matches && found.iter().all(|other| other.name != signature.name) {
            found.push(Found { name: signature.name, offset });
        }
    }
    if found.is_empty() && has_partitions(ends) {
        found.push(Found { name: "MBR partition table", offset: 446 });
    }
    found
}

/// Returns whether there is a partition table. Two bytes at the end of a boot sector prove little,
/// so a partition must be plausible, too.
fn has_partitions(ends: &Ends) -> bool {
    let Some(sector) = ends.get(0, 512) else { return false };
    let entries = sector[446..510].chunks_exact(16);
    let plausible = |entry: &[u8]| entry[0] & 0x7f == 0;
    let used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    sector[510..] == [0x55, 0xaa] && entries.clone().all(plausible) && { entries }.any(used)
}

impl Position {
    /// Returns the offset on a device of `size` bytes.
    fn offset(self, size: u64) -> Option<u64> {
        match self {
            Self::Start(offset) => Some(offset),
            Self::End { unit, back, offset } => {
                (size / unit * unit).checked_sub(back).map(|base| base + offset)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = (512 << 20) + 1536;

    fn blank(size: u64) -> Ends {
        Ends::read(size, |_, _| Ok::<_, ()>(())).expect("reading zeros")
    }

    /// Puts `magic` at `offset`, and returns whether that is within the ranges.
    fn put(ends: &mut Ends, offset: u64, magic: &[u8]) -> bool {
        ends.pieces.iter_mut().any(|(start, bytes)| {
            let Some(from) = offset.checked_sub(*start) else { return false };
            let Some(slot) = bytes.get_mut(from as usize..from as usize + magic.len()) else {
                return false;
            };
            slot.copy_from_slice(magic);
            true
        })
    }

    #[test]
    fn every_signature_lies_in_the_ranges_and_is_found() {
        for signature in SIGNATURES {
            let mut ends = blank(SIZE);
            let offset = signature.position.offset(SIZE).expect("an offset");
            assert!(put(&mut ends, offset, signature.magic), "{}", signature.name);
            assert_eq!(detect(&ends), [Found { name: signature.name, offset }]);
        }
    }

    #[test]
    fn nothing_is_found_in_zeros_of_any_size() {
        for size in [0, 1, 511, 4096, 65_536, 1 << 20, 3 << 20, SIZE] {
            assert_eq!(detect(&blank(size)), []);
        }
    }

    #[test]
    fn ranges_ascend_and_end_with_the_device() {
        for size in [0, 1, 4096, 5 << 20, 64 << 20, (64 << 20) + 512, 66 << 20, SIZE, 1 << 40] {
            let ranges = ranges(size);
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
            assert_eq!(ranges.last().map_or(0, |range| range.end), size);
        }
    }

    #[test]
    fn a_boot_sector_without_partitions_is_no_partition_table() {
        let mut ends = blank(SIZE);
        put(&mut ends, 510, &[0x55, 0xaa]);
        assert_eq!(detect(&ends), []);
        put(&mut ends, 446 + 4, &[0x83]);
        put(&mut ends, 446 + 8, &[0, 8, 0, 0, 0, 0, 1, 0]);
        assert_eq!(detect(&ends), [Found { name: "MBR partition table", offset: 446 }]);
    }
}
