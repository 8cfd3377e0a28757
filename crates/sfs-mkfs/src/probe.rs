//! Whether a device stores what it is given, all over the addresses that it claims to have.
//!
//! Owns: the places that are tried, and what is written there.
//! Promises: finds every device whose addresses begin again after some of them, wherever that is, and one
//! that drops writes, if it drops one in a few thousand; time grows with the root of the size.
//! Never: leaves content alone: what was on the device is gone.

use std::fmt;

use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

/// Fewest blocks at the start that are written one by one.
const REFERENCE_MIN: u64 = 1024;

/// Blocks of one request.
const REQUEST_BLOCKS: u64 = 256;

/// Requests between two reports of progress.
const REPORT_EVERY: u64 = 64;

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its addresses begin again after so many blocks: it claims more than it has.
    Wraps {
        /// Blocks that it has.
        blocks: u64,
    },
    /// It said that it had written this block, and had not.
    Drops {
        /// The block.
        address: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wraps { blocks } => {
                let bytes = blocks * BLOCK_SIZE as u64;
                write!(
                    f,
                    "is a fake: it has {bytes} bytes, and writes behind them overwrite others"
                )
            }
            Self::Drops { address } => {
                let offset = address * BLOCK_SIZE as u64;
                write!(
                    f,
                    "drops writes: what was written at byte {offset} was not there afterwards"
                )
            }
        }
    }
}

/// The places that are tried: each block up to `reference`, and one in each `reference` blocks behind.
///
/// If addresses begin again after R blocks, with R not below `reference`, then of the blocks from R to
/// R + `reference` exactly one is tried; it lands in the reference and is found there. If R is below, the
/// reference overwrites itself.
#[derive(Clone, Copy, Debug)]
struct Places {
    reference: u64,
    block_count: u64,
}

impl Places {
    fn new(block_count: u64) -> Self {
        let reference = block_count.isqrt().max(REFERENCE_MIN).min(block_count);
        Self { reference, block_count }
    }

    /// Those behind the reference, ascending.
    fn samples(self) -> impl Iterator<Item = u64> {
        let step = self.reference.max(1) as usize;
        // The last block of each: so the last of the device is among them, or nearly.
        ((2 * self.reference).saturating_sub(1)..self.block_count)
            .step_by(step)
            .chain(self.block_count.checked_sub(1).filter(|last| *last >= self.reference))
    }
}

/// Writes to `device`, reads back, and says what is wrong. `seed` tells this run from earlier ones.
/// `progress` is told how many requests of how many are done.
///
/// # Errors
///
/// If the device says itself that it has failed.
pub fn probe(
    device: &dyn Device,
    seed: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<Fault>, DeviceError> {
    let places = Places::new(device.geometry().block_count);
    let requests = places.reference.div_ceil(REQUEST_BLOCKS) + places.samples().count() as u64;
    let mut run = Run { device, seed, done: 0, total: 2 * requests, progress };
    run.write_reference(places)?;
    device.flush()?;
    // Descending: of those that land on one block the first behind the end is left, which says where that is.
    let mut samples: Vec<u64> = places.samples().collect();
    samples.reverse();
    for address in samples {
        run.write(address, 1)?;
    }
    device.flush()?;
    if let Some(fault) = run.read_reference(places)? {
        return Ok(Some(fault));
    }
    for address in places.samples() {
        if let [fault, ..] = run.read(address, 1)?[..] {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

struct Run<'a> {
    device: &'a dyn Device,
    seed: u64,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Run<'_> {
    fn write_reference(&mut self, places: Places) -> Result<(), DeviceError> {
        for address in (0..places.reference).step_by(REQUEST_BLOCKS as usize) {
            self.write(address, REQUEST_BLOCKS.min(places.reference - address))?;
        }
        Ok(())
    }

    /// The fault of the reference; of several the shortest wrap.
    fn read_reference(&mut self, places: Places) -> Result<Option<Fault>, DeviceError> {
        let mut faults = Vec::new();
        for address in (0..places.reference).step_by(REQUEST_BLOCKS as usize) {
            let count = REQUEST_BLOCKS.min(places.reference - address);
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
        self.tell();
        self.device.write(address, &[&blocks], Stream::default())
    }

    /// Reads `count` blocks, and says what is wrong with each.
    fn read(&mut self, address: u64, count: u64) -> Result<Vec<Fault>, DeviceError> {
        let mut blocks = Block::zeroed(count as usize);
        self.device.read(address, &mut blocks)?;
        self.tell();
        let read = (address..).zip(blocks.iter());
        Ok(read.filter_map(|(at, block)| self.fault_of(at, block)).collect())
    }

    /// What is wrong with `block`, read at `address`.
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

    fn tell(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(REPORT_EVERY) || self.done == self.total {
            (self.progress)(self.done, self.total);
        }
    }
}

/// The address, then noise that depends on it and on the seed (splitmix64): nothing that a device
/// could make up or make smaller.
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

    /// A device that claims `claimed` blocks and stores `real` of them, and of these not the writes that
    /// begin at a block of `dropped`.
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
        probe(&Liar::new(claimed, real, dropped), 7, &mut |_, _| {}).expect("it answers")
    }

    #[test]
    fn honest_devices_pass() {
        for blocks in [0, 1, 2, 1023, 1024, 1025, 3000, 1 << 20, 1_234_567] {
            let device = RamDevice::new(blocks);
            assert_eq!(probe(&device, 7, &mut |_, _| {}).expect("RAM"), None, "{blocks}");
        }
    }

    #[test]
    fn every_wrap_is_found_and_measured() {
        for claimed in [5000, 1 << 20, 3_000_001] {
            for real in [1, 2, 1000, 1023, 1024, 1025, 1999, 2048, 4095, 4999, 500_001, 1_048_575] {
                if real < claimed {
                    let fault = found(claimed, real, |_| false);
                    // Below the reference only a multiple shows.
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
    fn time_grows_with_the_root_of_the_size() {
        let blocks = 1 << 28;
        let requests = Cell::new(0);
        let device = RamDevice::new(blocks);
        probe(&device, 7, &mut |done, total| {
            assert!(done <= total);
            requests.set(total);
        })
        .expect("RAM");
        assert!(requests.get() < 40_000, "{} requests for a terabyte", requests.get());
    }
}
