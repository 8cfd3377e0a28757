//! Detection of devices that do not store all data that is written to them.
//!
//! The probe writes a reference at the start of the device and samples after it, and reads all of
//! them back. The probe finds every device whose addresses wrap around, and a device that drops one
//! write in a few thousand. The time of a probe grows with the square root of the size. The content
//! of the device is lost.

use std::fmt;

use serde::Serialize;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

use crate::Human;

/// Minimum number of blocks of the reference, which is written without gaps.
const REFERENCE_MIN: u64 = 1024;

/// Number of blocks of one request.
const REQUEST_BLOCKS: u64 = 256;

/// Number of requests between two reports of progress.
const REPORT_EVERY: u64 = 64;

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Number of bytes that were written once and read back.
    pub bytes: u64,
    /// Size that the device claims, in bytes.
    pub claimed_bytes: u64,
    /// Defect of the device; `None` if all data was read back correctly.
    #[serde(flatten)]
    pub fault: Option<Fault>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Some(fault) => fault.fmt(f),
            None => write!(
                f,
                "stores all data: {} in samples over all of its {} were read back correctly",
                Human(self.bytes),
                Human(self.claimed_bytes)
            ),
        }
    }
}

/// Defect of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// Addresses wrap around after `blocks` blocks: the device claims more capacity than it has.
    Wraps {
        /// Number of blocks that the device has, or a multiple of this number if it is below the
        /// length of the reference.
        blocks: u64,
    },
    /// The device reported a block as written, but had not stored it.
    Drops {
        /// Address of the block.
        address: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wraps { blocks } => {
                let bytes = blocks * BLOCK_SIZE as u64;
                write!(f, "is a fake: it has {bytes} bytes, and writes past this size destroy data")
            }
            Self::Drops { address } => {
                let offset = address * BLOCK_SIZE as u64;
                write!(f, "drops writes: the data written at byte {offset} could not be read back")
            }
        }
    }
}

/// Addresses that are tried: every block of the reference, and one of each `reference` blocks
/// after it.
///
/// Let addresses wrap around after R blocks. If R is at least `reference`, exactly one of the
/// blocks from R to R + `reference` is tried; that write lands in the reference and is found there.
/// If R is less, the reference overwrites itself.
#[derive(Clone, Copy, Debug)]
struct TriedAddresses {
    reference: u64,
    block_count: u64,
}

impl TriedAddresses {
    fn new(block_count: u64) -> Self {
        let reference = block_count.isqrt().max(REFERENCE_MIN).min(block_count);
        Self { reference, block_count }
    }

    /// Returns the addresses after the reference, ascending.
    fn samples(self) -> impl Iterator<Item = u64> {
        let step = self.reference.max(1) as usize;
        // The last block of each step, so that the last block of the device is among them, or
        // nearly.
        ((2 * self.reference).saturating_sub(1)..self.block_count)
            .step_by(step)
            .chain(self.block_count.checked_sub(1).filter(|last| *last >= self.reference))
    }
}

/// Writes to `device`, reads the data back, and returns the verdict. `seed` distinguishes the
/// content of this run from the content of earlier runs. `progress` takes the number of bytes
/// written and read so far, and the number of all bytes to write and read.
///
/// # Errors
///
/// Errors that the device reports.
pub fn probe(
    device: &dyn Device,
    seed: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verdict, DeviceError> {
    let tried = TriedAddresses::new(device.geometry().block_count);
    let blocks = tried.reference + tried.samples().count() as u64;
    let mut run = ProbeRun { device, seed, requests: 0, blocks: 0, total: 2 * blocks, progress };
    let fault = run.fault(tried)?;
    let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
    let claimed_bytes = bytes(device.geometry().block_count);
    Ok(Verdict { bytes: bytes(blocks), claimed_bytes, fault })
}

struct ProbeRun<'a> {
    device: &'a dyn Device,
    seed: u64,
    requests: u64,
    /// Number of blocks that were written or read so far.
    blocks: u64,
    /// Number of blocks to write and to read.
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl ProbeRun<'_> {
    /// Writes and reads all addresses of `tried`, and returns the defect.
    fn fault(&mut self, tried: TriedAddresses) -> Result<Option<Fault>, DeviceError> {
        self.write_reference(tried)?;
        self.device.flush()?;
        // The samples are written in descending order. Of several samples that wrap around to one
        // block, the lowest one remains, whose address gives the real size.
        let mut samples: Vec<u64> = tried.samples().collect();
        samples.reverse();
        for address in samples {
            self.write(address, 1)?;
        }
        self.device.flush()?;
        if let Some(fault) = self.read_reference(tried)? {
            return Ok(Some(fault));
        }
        for address in tried.samples() {
            if let [fault, ..] = self.read(address, 1)?[..] {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    fn write_reference(&mut self, tried: TriedAddresses) -> Result<(), DeviceError> {
        for address in (0..tried.reference).step_by(REQUEST_BLOCKS as usize) {
            self.write(address, REQUEST_BLOCKS.min(tried.reference - address))?;
        }
        Ok(())
    }

    /// Returns the defect that the reference shows; of several, the shortest wrap.
    fn read_reference(&mut self, tried: TriedAddresses) -> Result<Option<Fault>, DeviceError> {
        let mut faults = Vec::new();
        for address in (0..tried.reference).step_by(REQUEST_BLOCKS as usize) {
            let count = REQUEST_BLOCKS.min(tried.reference - address);
            faults.extend(self.read(address, count)?);
        }
        let wraps = |fault: &Fault| match fault {
            Fault::Wraps { blocks } => *blocks,
            Fault::Drops { .. } => u64::MAX,
        };
        Ok(faults.into_iter().min_by_key(wraps))
    }

    fn write(&mut self, address: u64, count: u64) -> Result<(), DeviceError> {
        let mut blocks = Block::zeroed(count as usize);
        for (at, block) in (address..).zip(blocks.iter_mut()) {
            fill(block, self.seed, at);
        }
        self.report(count);
        self.device.write(address, &[&blocks], Stream::default())
    }

    /// Reads `count` blocks, and returns the defect that each shows.
    fn read(&mut self, address: u64, count: u64) -> Result<Vec<Fault>, DeviceError> {
        let mut blocks = Block::zeroed(count as usize);
        self.device.read(address, &mut blocks)?;
        self.report(count);
        let read = (address..).zip(blocks.iter());
        Ok(read.filter_map(|(at, block)| self.fault_of(at, block)).collect())
    }

    /// Returns the defect that `block`, read at `address`, shows.
    fn fault_of(&self, address: u64, block: &Block) -> Option<Fault> {
        let mut expected = Block::ZERO;
        fill(&mut expected, self.seed, address);
        if *block == expected {
            return None;
        }
        let other = u64::from_le_bytes(block.0[..8].try_into().expect("eight bytes"));
        fill(&mut expected, self.seed, other);
        Some(match *block == expected {
            true => Fault::Wraps { blocks: other.abs_diff(address) },
            false => Fault::Drops { address },
        })
    }

    /// Counts a request of `count` blocks.
    fn report(&mut self, count: u64) {
        self.requests += 1;
        self.blocks += count;
        if self.requests.is_multiple_of(REPORT_EVERY) || self.blocks == self.total {
            let size = BLOCK_SIZE as u64;
            (self.progress)(self.blocks * size, self.total * size);
        }
    }
}

/// Fills a block with its address, then noise that depends on the address and the seed
/// (SplitMix64). A device can neither predict nor compress the noise.
fn fill(block: &mut Block, seed: u64, address: u64) {
    let mut state = seed ^ address.rotate_left(32);
    let (first, rest) = block.0.split_at_mut(8);
    first.copy_from_slice(&address.to_le_bytes());
    for word in rest.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use sfs_device::{Geometry, RamDevice};

    use super::*;

    /// A device that claims `claimed` blocks and stores `real` of them, without the blocks that
    /// `dropped` selects.
    struct Liar {
        geometry: Geometry,
        inside: RamDevice,
        real: u64,
        dropped: fn(u64) -> bool,
    }

    impl Liar {
        fn new(claimed: u64, real: u64, dropped: fn(u64) -> bool) -> Self {
            let geometry = Geometry { block_count: claimed, ..Geometry::default() };
            Self { geometry, inside: RamDevice::new(real), real, dropped }
        }
    }

    impl Device for Liar {
        fn geometry(&self) -> &Geometry {
            &self.geometry
        }

        fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
            for (at, block) in (address..).zip(buffer) {
                self.inside.read(at % self.real, std::slice::from_mut(block))?;
            }
            Ok(())
        }

        fn write(&self, address: u64, parts: &[&[Block]], on: Stream) -> Result<(), DeviceError> {
            for (at, block) in (address..).zip(parts.iter().copied().flatten()) {
                if !(self.dropped)(at) {
                    self.inside.write(at % self.real, &[std::slice::from_ref(block)], on)?;
                }
            }
            Ok(())
        }

        fn flush(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    fn found(claimed: u64, real: u64, dropped: fn(u64) -> bool) -> Option<Fault> {
        let device = Liar::new(claimed, real, dropped);
        probe(&device, 7, &mut |_, _| {}).expect("the device answers").fault
    }

    #[test]
    fn honest_devices_pass() {
        for blocks in [0, 1, 2, 1023, 1024, 1025, 3000, 1 << 20, 1_234_567] {
            let device = RamDevice::new(blocks);
            let verdict = probe(&device, 7, &mut |_, _| {}).expect("RAM");
            assert_eq!(verdict.fault, None, "{blocks}");
            assert_eq!(verdict.claimed_bytes, blocks * BLOCK_SIZE as u64);
        }
    }

    #[test]
    fn every_wrap_is_found_with_its_length() {
        for claimed in [5000, 1 << 20, 3_000_001] {
            for real in [1, 2, 1000, 1023, 1024, 1025, 1999, 2048, 4095, 4999, 500_001, 1_048_575] {
                if real < claimed {
                    let fault = found(claimed, real, |_| false);
                    // If the real size is below the reference, only a multiple of the size is
                    // found.
                    let Some(Fault::Wraps { blocks }) = fault else { panic!("{claimed} {real}") };
                    assert_eq!(blocks % real, 0, "{claimed} {real}");
                    assert!(real < 1732 || blocks == real, "{claimed} {real} {blocks}");
                }
            }
        }
    }

    #[test]
    fn dropped_writes_are_found() {
        let behind = found(1 << 20, 1 << 20, |address| address >= 1 << 18);
        assert_eq!(behind, Some(Fault::Drops { address: (1 << 18) + 1023 }));
        let some = found(1 << 20, 1 << 20, |address| address % 500 == 3);
        assert_eq!(some, Some(Fault::Drops { address: 3 }));
        assert_eq!(found(100, 100, |address| address == 99), Some(Fault::Drops { address: 99 }));
    }

    #[test]
    fn a_verdict_is_in_words_and_json() {
        let device = Liar::new(1 << 20, 4095, |_| false);
        let verdict = probe(&device, 7, &mut |_, _| {}).expect("the device answers");
        assert!(verdict.to_string().starts_with("is a fake: it has 16773120 bytes"), "{verdict}");
        let json = serde_json::json!(verdict);
        assert_eq!((&json["fault"], &json["blocks"]), (&"wraps".into(), &4095.into()), "{json}");
    }

    #[test]
    fn time_grows_with_the_root_of_the_size() {
        let blocks = 1 << 28;
        let (last, reports) = (Cell::new(0), Cell::new(0));
        let device = RamDevice::new(blocks);
        let verdict = probe(&device, 7, &mut |done, total| {
            assert!(last.get() < done && done <= total);
            last.set(done);
            reports.set(reports.get() + 1);
        })
        .expect("RAM");
        assert_eq!(last.get(), 2 * verdict.bytes, "everything is written and read");
        assert!(reports.get() * REPORT_EVERY < 40_000, "{} reports for a terabyte", reports.get());
    }
}
