//! The real filesystem on raw flash: one segment for each erase block, and no translation layer.
//!
//! [`RawFlash`] erases a block when its segment is taken into use, and programs its pages in order; the array of
//! `sfs-ssd` panics if SFS breaks a rule of NAND. Areas outside the segments (superblocks, checkpoints) are not on the
//! array: a real device would keep them elsewhere. A run is exact: it has its own clock.

use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use sfs_core::Volume;
use sfs_core::format::{Layout, ROOT_INO, Timestamp};
use sfs_core::request::{Caller, Counters, VolumeOptions, Work};
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Geometry, RamDevice, Stream};
use sfs_ssd::{Flash, FlashGeometry, Spare, Timing};

use crate::ram_volume::{self, START, START_SECS};
use crate::random::WorkloadRng;

/// Virtual time between two writes, in nanoseconds.
const WRITE_NANOS: u64 = 1_000_000;

/// Number of writes from one sync to the next.
const SYNC_WRITES: u64 = 256;

/// A device in memory whose segments are erase blocks of an array.
pub struct RawFlash {
    ram: RamDevice,
    layout: Layout,
    flash: Mutex<Flash>,
}

impl RawFlash {
    /// Puts the segments of `layout` on an erased array; `ram` holds the content, an empty volume in the first segment.
    pub fn new(ram: RamDevice, layout: Layout) -> Self {
        let geometry = FlashGeometry {
            channels: 1,
            packages: 1,
            dies: 1,
            planes: 1,
            blocks: layout.segment_count,
            flash_pages: layout.segment_blocks,
            flash_page_size: BLOCK_SIZE as u32,
            gang: 1,
            stripe: 1,
            spare_permille: 0,
        };
        let mut flash = Flash::new(geometry, Timing::NONE);
        flash.erase(0, 0);
        Self { ram, layout, flash: Mutex::new(flash) }
    }

    /// Returns the number of erasures of each block.
    pub fn erases(&self) -> Vec<u32> {
        self.flash.lock().erases().to_vec()
    }

    /// Programs the page of block `address`, after an erasure if it is the first of its segment.
    fn program(&self, address: u64) {
        let Some(segment) = self.layout.segment_of(address) else { return };
        let index = (address - self.layout.segment_address(segment)) as u32;
        let mut flash = self.flash.lock();
        if index == 0 {
            flash.erase(segment, 0);
        }
        let slot = flash.slot(segment, index);
        flash.program(slot, Spare { page: slot, version: 1 }, 0);
    }
}

impl Device for RawFlash {
    fn geometry(&self) -> &Geometry {
        self.ram.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.ram.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let blocks: usize = parts.iter().map(|part| part.len()).sum();
        (address..address + blocks as u64).for_each(|address| self.program(address));
        self.ram.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.ram.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.ram.discard(address, count)
    }
}

/// Cold data, and hot data that is overwritten at random.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// Size of a segment, and of an erase block, in bytes.
    pub segment_bytes: u64,
    /// Part of the volume with data that never changes.
    pub cold: f64,
    /// Part of the volume with data that is overwritten.
    pub hot: f64,
    /// Number of bytes that are overwritten, in sizes of the volume.
    pub overwrites: f64,
    /// The mount option `wear_levelling=`.
    pub wear_levelling: Option<u16>,
    /// Seed of the overwrites.
    pub seed: u64,
}

/// Counts of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCounts {
    /// Erasures of each block, as the array counts them.
    pub erases: Vec<u32>,
    /// The same as the volume counts them.
    pub counted: Vec<u16>,
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// Number of bytes that the job wrote.
    pub written_bytes: u64,
    /// Counters of the volume.
    pub counters: Counters,
}

impl Job {
    /// Runs the job.
    ///
    /// # Errors
    ///
    /// If the volume cannot be made or opened, or is too small for the data.
    pub fn run(&self) -> Result<JobCounts> {
        let (volume, device) = self.make()?;
        let blocks = volume.space().total_blocks as f64;
        let (cold, hot) = ((blocks * self.cold) as u64, (blocks * self.hot) as u64);
        let mut run = Run { volume, nanos: 0, unsynced: 0 };
        let [cold_file, hot_file] = [run.create("cold")?, run.create("hot")?];
        for block in 0..cold {
            run.write(cold_file, block)?;
        }
        for block in 0..hot {
            run.write(hot_file, block)?;
        }
        let mut random = WorkloadRng::new(self.seed);
        let overwrites = (blocks * self.overwrites) as u64;
        for _ in 0..overwrites {
            run.write(hot_file, u64::from(random.below(hot as u32)))?;
        }
        run.sync()?;
        Ok(JobCounts {
            erases: device.erases(),
            device_bytes: self.device_bytes,
            counted: run.volume.segment_erases(),
            written_bytes: (cold + hot + overwrites) * BLOCK_SIZE as u64,
            counters: run.volume.counters(),
        })
    }

    fn make(&self) -> Result<(Volume, Arc<RawFlash>)> {
        let (ram, plan) = ram_volume::make(self.device_bytes, Some(self.segment_bytes))?;
        let ram = Arc::into_inner(ram).expect("sfs-mkfs drops its reference to the device");
        let device = Arc::new(RawFlash::new(ram, plan.superblock.layout));
        let options = VolumeOptions {
            wear_levelling: self.wear_levelling,
            yield_cleaning: false,
            ..VolumeOptions::default()
        };
        Ok((Volume::open(device.clone(), options, START)?, device))
    }
}

/// A volume in use.
struct Run {
    volume: Volume,
    /// Virtual time since the start.
    nanos: u64,
    /// Number of writes since the last sync.
    unsynced: u64,
}

impl Run {
    fn now(&self) -> Timestamp {
        let secs = START_SECS + (self.nanos / 1_000_000_000) as i64;
        Timestamp { secs, nanos: (self.nanos % 1_000_000_000) as u32 }
    }

    fn caller(&self) -> Caller {
        Caller { uid: 0, gid: 0, umask: None, now: self.now() }
    }

    fn create(&self, name: &str) -> Result<u64> {
        let made = self.volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &self.caller());
        Ok(made?.ino)
    }

    fn write(&mut self, file: u64, block: u64) -> Result<()> {
        let offset = block * BLOCK_SIZE as u64;
        self.nanos += WRITE_NANOS;
        let caller = self.caller();
        self.volume.write(file, offset, &[1; BLOCK_SIZE], Default::default(), &caller)?;
        self.unsynced += 1;
        if self.unsynced == SYNC_WRITES { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<()> {
        self.unsynced = 0;
        self.volume.sync_all()?;
        while self.volume.work(self.now())? == Work::More {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(wear_levelling: Option<u16>) -> Job {
        Job {
            device_bytes: 32 << 20,
            segment_bytes: 128 << 10,
            cold: 0.5,
            hot: 0.2,
            overwrites: 16.0,
            wear_levelling,
            seed: 1,
        }
    }

    fn spread(counts: &JobCounts) -> u32 {
        let most = counts.erases.iter().max().expect("blocks");
        most - counts.erases.iter().min().expect("blocks")
    }

    #[test]
    fn the_volume_counts_the_erasures_of_the_array() {
        let counts = job(None).run().expect("the job runs");
        let counted: Vec<u32> = counts.counted.iter().map(|count| u32::from(*count)).collect();
        assert_eq!(counted, counts.erases);
        assert!(*counts.erases.iter().max().expect("blocks") > 20);
    }

    #[test]
    fn static_wear_levelling_narrows_the_spread_and_costs_little() {
        let (without, with) = (job(None).run(), job(Some(8)).run());
        let (without, with) = (without.expect("the job runs"), with.expect("the job runs"));
        let (wide, narrow) = (spread(&without), spread(&with));
        assert!(narrow <= 16 && wide >= 2 * narrow, "{wide} without, {narrow} with");
        let moved = |counts: &JobCounts| counts.counters.cleaning_bytes;
        let more = moved(&with).saturating_sub(moved(&without)) as f64;
        let share = more / with.written_bytes as f64;
        assert!(share < 0.15, "{share:.3} more bytes moved for each byte written");
    }
}
