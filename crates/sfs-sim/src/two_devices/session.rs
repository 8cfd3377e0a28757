//! One mount: operations on files, work of the cache, and faults of the SSD.

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_cache::Cache;
use sfs_core::format::ROOT_INO;
use sfs_core::request::WriteMode;
use sfs_core::{Error, Volume};
use sfs_device::{
    BLOCK_SIZE, Block, Copies, Device, Event, Keep, Moment, Operation, RecordingDevice, WantedBlock,
};

use super::ssd::{Fault, Ssd};
use super::{Devices, Mounted, Violation, close, failed, mount, open_cache};
use crate::image::CowImage;
use crate::model::fixture::{FILE, caller};
use crate::model::random::SplitMix64;

/// Number of names.
const NAMES: u64 = 7;

/// Largest number of blocks of a file.
const FILE_BLOCKS_MAX: u64 = 24;

/// Content of all files, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View(BTreeMap<String, Vec<u8>>);

impl View {
    /// Reads all files of a volume.
    pub(super) fn of(volume: &Volume) -> Result<Self, Violation> {
        let mut view = Self::default();
        for name in (0..NAMES).map(|no| no.to_string()) {
            if let Some(content) = read(volume, &name)? {
                view.0.insert(name, content);
            }
        }
        Ok(view)
    }

    /// Asserts that the volume has these files.
    pub(super) fn compare(&self, volume: &Volume) -> Result<(), Violation> {
        for name in (0..NAMES).map(|no| no.to_string()) {
            let (found, wanted) = (read(volume, &name)?, self.0.get(&name));
            match (found, wanted) {
                (None, None) => {}
                (Some(found), Some(wanted)) if found == *wanted => {}
                (Some(_), Some(_)) => return Err(Violation::Content(name)),
                _ => return Err(Violation::Names),
            }
        }
        Ok(())
    }
}

fn read(volume: &Volume, name: &str) -> Result<Option<Vec<u8>>, Violation> {
    let entry = match volume.lookup(ROOT_INO, name.as_bytes()) {
        Ok(entry) => entry,
        Err(Error::NotFound) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let len = FILE_BLOCKS_MAX as usize * BLOCK_SIZE;
    let content = volume.read(entry.ino, 0, len).map_err(failed)?;
    volume.forget(entry.ino, 1);
    Ok(Some(content.as_bytes().to_vec()))
}

/// Overwrites or makes a file; a full volume is no violation.
fn write(volume: &Volume, name: &str, first: u64, bytes: &[u8]) -> Result<bool, Violation> {
    let entry = match volume.lookup(ROOT_INO, name.as_bytes()) {
        Err(Error::NotFound) => volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller()),
        found => found,
    };
    let entry = match entry {
        Err(Error::NoSpace) => return Ok(false),
        entry => entry.map_err(failed)?,
    };
    let written =
        volume.write(entry.ino, first * BLOCK_SIZE as u64, bytes, WriteMode::default(), &caller());
    volume.forget(entry.ino, 1);
    match written {
        Err(Error::NoSpace) => Ok(false),
        written => written.map(|()| true).map_err(failed),
    }
}

/// Overwrites a part of a file.
pub(super) fn write_any(volume: &Volume, random: &mut SplitMix64) -> Result<(), Violation> {
    let (name, first) = (random.below(NAMES).to_string(), random.below(4));
    let blocks = 1 + random.below(FILE_BLOCKS_MAX - 4);
    write(volume, &name, first, &random.bytes(blocks as usize * BLOCK_SIZE)).map(drop)
}

/// Overwrites a file or two, syncs, and reads everything once more.
pub(super) fn overwrite_some(volume: &Volume, random: &mut SplitMix64) -> Result<(), Violation> {
    let mut view = View::of(volume)?;
    for _ in 0..2 {
        let name = random.below(NAMES).to_string();
        if view.0.contains_key(&name) {
            let bytes = random.bytes(2 * BLOCK_SIZE);
            if write(volume, &name, 0, &bytes)? {
                let content = view.0.entry(name).or_default();
                content.resize(content.len().max(bytes.len()), 0);
                content[..bytes.len()].copy_from_slice(&bytes);
            } else {
                view = View::of(volume)?;
            }
        }
    }
    volume.sync_all().map_err(failed)?;
    view.compare(volume)
}

/// A mount with the devices that it uses.
pub(super) struct Session {
    disk: Arc<RecordingDevice<CowImage>>,
    ssd: Arc<Ssd>,
    mounted: Mounted,
    view: View,
    /// Content that was read from the disk, and is offered later.
    late: Option<(Moment, u64, Box<[Block]>)>,
    was_closed: bool,
    had_lied: bool,
}

impl Session {
    /// Mounts the volume, with its cache if `with_cache`.
    pub(super) fn begin(
        devices: &Devices,
        with_cache: bool,
        random: &mut SplitMix64,
    ) -> Result<Self, Violation> {
        let record = |image: &CowImage| RecordingDevice::new(image.clone(), Keep::Contents);
        let disk = Arc::new(record(&devices.disk));
        let ssd = Arc::new(Ssd::new(record(&devices.cache)));
        let cache = match with_cache {
            true => open_cache(&*disk, ssd.clone())?,
            false => None,
        };
        let mounted = mount(disk.clone(), cache, random.one_in(2), random)?;
        let view = View::of(&mounted.volume)?;
        let had_lied = devices.has_lied;
        Ok(Self { disk, ssd, mounted, view, late: None, was_closed: false, had_lied })
    }

    /// Does something.
    pub(super) fn step(&mut self, random: &mut SplitMix64) -> Result<(), Violation> {
        match random.below(20) {
            0..=6 => self.write(random)?,
            7 | 8 => self.mounted.volume.sync_all().map_err(failed)?,
            9..=11 => self.view.compare(&self.mounted.volume)?,
            12 => self.remove(random)?,
            13 | 14 => {
                if let Some(cache) = &self.mounted.cache {
                    (0..random.below(20)).for_each(|_| {
                        cache.work();
                    });
                }
            }
            15 => {
                let cleaned = self.mounted.volume.clean_round(2, &mut || true);
                ignore_shortage(cleaned.map(drop))?;
            }
            16 => {
                let written = self.mounted.volume.checkpoint();
                ignore_shortage(written.map(drop))?;
            }
            17 => self.offer_late(random),
            18 => self.read_while_busy(random)?,
            _ => self.break_ssd(random)?,
        }
        self.check_given_up()
    }

    fn write(&mut self, random: &mut SplitMix64) -> Result<(), Violation> {
        let name = random.below(NAMES).to_string();
        let first = random.below(4);
        let blocks = 1 + random.below(FILE_BLOCKS_MAX - 4);
        let bytes = random.bytes(blocks as usize * BLOCK_SIZE);
        if !write(&self.mounted.volume, &name, first, &bytes)? {
            // A part may have been written.
            self.view = View::of(&self.mounted.volume)?;
            return Ok(());
        }
        let start = first as usize * BLOCK_SIZE;
        let content = self.view.0.entry(name).or_default();
        content.resize(content.len().max(start + bytes.len()), 0);
        content[start..start + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn remove(&mut self, random: &mut SplitMix64) -> Result<(), Violation> {
        let name = random.below(NAMES).to_string();
        match self.mounted.volume.unlink(ROOT_INO, name.as_bytes(), &caller()) {
            Ok(()) => drop(self.view.0.remove(&name)),
            Err(Error::NotFound | Error::NoSpace) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }

    /// Keeps content of the disk, which later requests may overwrite, or offers what was kept.
    fn offer_late(&mut self, random: &mut SplitMix64) {
        let Some(cache) = &self.mounted.cache else { return };
        match self.late.take() {
            Some((moment, address, blocks)) => cache.offer(moment, address, &blocks),
            None => {
                let moment = cache.fetch(&mut []);
                let address = 32 + random.below(super::SEGMENTS * 32 - 8);
                let mut blocks = Block::zeroed(8);
                if self.disk.read(address, &mut blocks).is_ok() {
                    self.late = Some((moment, address, blocks));
                }
            }
        }
    }

    /// Reads everything; during the first read of the SSD the cache takes so much that it writes all its segments anew.
    fn read_while_busy(&mut self, random: &mut SplitMix64) -> Result<(), Violation> {
        if let Some(cache) = &self.mounted.cache {
            let (cache, disk, start) = (cache.clone(), self.disk.clone(), random.below(7));
            self.ssd.on_next_read(Box::new(move || {
                let moment = cache.fetch(&mut []);
                let mut block = Block::zeroed(1);
                for address in (32 + start..super::SEGMENTS * 32).step_by(2) {
                    if disk.read(address, &mut block).is_ok() {
                        cache.offer(moment, address, &block);
                    }
                    if address % 16 < 2 {
                        while cache.work() {}
                    }
                }
                while cache.work() {}
            }));
        }
        let compared = self.view.compare(&self.mounted.volume);
        self.ssd.forget_act();
        compared
    }

    /// Lets the SSD fail or lie, rarely.
    fn break_ssd(&mut self, random: &mut SplitMix64) -> Result<(), Violation> {
        if !random.one_in(3) {
            return Ok(());
        }
        self.ssd.break_down(random.pick(&[
            Fault::Fails(Operation::Read),
            Fault::Fails(Operation::Write),
            Fault::Fails(Operation::Flush),
            Fault::Lies,
            Fault::LiesInHead,
            Fault::Loses,
        ]));
        self.ask_for_nodes()?;
        self.view.compare(&self.mounted.volume)
    }

    /// Asks for every block as for a node, whose checksum leaves out the first bytes. The model's nodes stay in memory.
    fn ask_for_nodes(&self) -> Result<(), Violation> {
        let Some(cache) = &self.mounted.cache else { return Ok(()) };
        for address in 32..super::SEGMENTS * 32 {
            let (mut block, mut memory) = (Block::ZERO, Block::ZERO);
            if self.disk.read(address, std::slice::from_mut(&mut block)).is_err() {
                continue;
            }
            let (head, summed) = block.0.split_at(8);
            let checksum = crc32c::crc32c(summed);
            let memory = &mut memory;
            let mut wanted = [WantedBlock { address, checksum, head, memory, is_found: false }];
            cache.fetch(&mut wanted);
            if wanted[0].is_found && *wanted[0].memory != block {
                return Err(Violation::Unequal(address));
            }
        }
        Ok(())
    }

    /// Asserts that the cache is given up if and only if its device is unsound.
    fn check_given_up(&self) -> Result<(), Violation> {
        let Some(cache) = &self.mounted.cache else { return Ok(()) };
        let stat = cache.stat();
        let is_sound = self.ssd.fault() == Fault::None && !self.has_lied();
        match stat.dropped {
            Some(reason) if is_sound => return Err(Violation::GivenUp(reason)),
            None if matches!(self.ssd.fault(), Fault::Lies | Fault::LiesInHead)
                && stat.old_blocks > 0 =>
            {
                return Err(Violation::LieForgiven);
            }
            _ => {}
        }
        match self.mounted.volume.remembered().is_empty() {
            true => Ok(()),
            false => Err(Violation::Remembered),
        }
    }

    /// Returns the image of the disk now, as a backup of a mounted volume takes it.
    pub(super) fn image_of_disk(&self) -> CowImage {
        self.disk.inner().clone()
    }

    /// Unmounts, or lets the power fail. Returns the requests to the disk and to the SSD.
    pub(super) fn end(
        &mut self,
        unmounts: bool,
        random: &mut SplitMix64,
    ) -> Result<(Vec<Event>, Vec<Event>), Violation> {
        self.view.compare(&self.mounted.volume)?;
        if unmounts {
            close(&self.mounted, random)?;
            let is_sound = self.ssd.fault() == Fault::None;
            let is_used = |cache: &Arc<Cache>| cache.stat().dropped.is_none();
            self.was_closed = is_sound && self.mounted.cache.as_ref().is_some_and(is_used);
        }
        Ok((self.disk.take_events(), self.ssd.recording().take_events()))
    }

    /// Returns whether the cache was closed, and the next mount must find it warm.
    pub(super) fn was_closed(&self) -> bool {
        self.was_closed
    }

    /// Returns whether the SSD has ever lied or lost a write.
    pub(super) fn has_lied(&self) -> bool {
        self.had_lied || self.ssd.has_lied()
    }
}

fn ignore_shortage(outcome: sfs_core::Result<()>) -> Result<(), Violation> {
    match outcome {
        Ok(()) | Err(Error::NoSpace) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}
