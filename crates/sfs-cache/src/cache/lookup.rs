//! Looking blocks up: in memory, or on the cache device, where the content is compared with what is wanted.

use sfs_device::{Block, Copies, Moment, ReadPart, ReadRun, WantedBlock};

use super::Cache;
use crate::DISK_OBJECT;
use crate::mutant::{Mutant, mutated};
use crate::section::{Found, Slot};
use crate::state::State;
use crate::summary::{BlockKey, Summary};

/// A wanted block that is on the cache device.
struct Place<'a, 'b> {
    section: usize,
    slot: Slot,
    address: u64,
    wanted: &'a mut WantedBlock<'b>,
}

impl Copies for Cache {
    fn fetch(&self, wanted: &mut [WantedBlock<'_>]) -> Moment {
        let (moment, places) = self.locate(wanted);
        if !places.is_empty() {
            self.read_places(places);
        }
        moment
    }

    fn offer(&self, moment: Moment, address: u64, blocks: &[Block]) {
        let is_taken = self.state.lock().offer(moment, address, blocks);
        if is_taken {
            self.wake();
        }
    }
}

impl Cache {
    /// Finds the places of the wanted blocks. Those in memory are copied, and the segments of the others stay until they are read.
    fn locate<'a, 'b>(&self, wanted: &'a mut [WantedBlock<'b>]) -> (Moment, Vec<Place<'a, 'b>>) {
        let mut state = self.state.lock();
        let moment = state.now();
        if state.dropped.is_some() {
            return (moment, Vec::new());
        }
        let mut places = Vec::new();
        let State { sections, counts, .. } = &mut *state;
        for wanted in wanted {
            let key = BlockKey { object: DISK_OBJECT, block: wanted.address };
            counts.misses += 1;
            for (no, section) in sections.iter_mut().enumerate() {
                match section.find(key) {
                    None => continue,
                    Some(Found::Memory(block)) => {
                        if is_content(wanted, block) {
                            wanted.memory.clone_from(block);
                            wanted.is_found = true;
                            (counts.hits, counts.misses) = (counts.hits + 1, counts.misses - 1);
                        } else {
                            counts.old_copies += 1;
                            section.forget(DISK_OBJECT, wanted.address..wanted.address + 1);
                        }
                    }
                    Some(Found::Device(slot)) => {
                        section.pin(slot);
                        let address = section.address(slot);
                        places.push(Place { section: no, slot, address, wanted });
                    }
                }
                break;
            }
        }
        (moment, places)
    }

    /// Reads blocks from the cache device, and keeps those with the wanted content.
    fn read_places(&self, mut places: Vec<Place<'_, '_>>) {
        places.sort_unstable_by_key(|place| place.address);
        let outcomes = {
            let mut runs: Vec<ReadRun<'_>> = Vec::new();
            let mut end = 0;
            for place in &mut places {
                let part = ReadPart::Into(std::slice::from_mut(&mut *place.wanted.memory));
                match runs.last_mut() {
                    Some(run) if end == place.address => run.parts.push(part),
                    _ => runs.push(ReadRun { address: place.address, parts: vec![part] }),
                }
                end = place.address + 1;
            }
            self.device.read_many(&mut runs)
        };
        let failed = outcomes.into_iter().find_map(Result::err);
        let mut wrong = Vec::new();
        if failed.is_none() || mutated(Mutant::ErrorServed) {
            for place in &mut places {
                let is_right = is_content(place.wanted, place.wanted.memory)
                    || mutated(Mutant::ChecksumNotCompared)
                    || failed.is_some();
                place.wanted.is_found = is_right;
                if !is_right {
                    wrong.push((
                        place.section,
                        place.slot,
                        place.wanted.address,
                        crc32c::crc32c(&place.wanted.memory.0),
                    ));
                }
            }
        }
        let lies = wrong.iter().any(|(section, slot, address, checksum)| {
            self.lies(*section, *slot, *address, *checksum)
        });
        {
            let mut state = self.state.lock();
            let found = places.iter().filter(|place| place.wanted.is_found).count() as u64;
            state.counts.hits += found;
            state.counts.misses = state.counts.misses.saturating_sub(found);
            state.counts.old_copies += wrong.len() as u64;
            if state.dropped.is_none() {
                for place in &places {
                    state.sections[place.section].unpin(place.slot);
                }
                for (section, slot, address, _) in &wrong {
                    let section = &mut state.sections[*section];
                    let key = BlockKey { object: DISK_OBJECT, block: *address };
                    if section.slot_of(key) == Some(*slot) {
                        section.forget(DISK_OBJECT, *address..*address + 1);
                    }
                }
            }
        }
        if let Some(error) = failed {
            self.end_use(&error.to_string());
        } else if lies && !mutated(Mutant::LieForgiven) {
            self.end_use("a block of the cache is not what was written");
        }
    }

    /// Returns whether content with `checksum`, which the device returned for a slot, is not what was written there. The segment of
    /// the slot is pinned.
    fn lies(&self, section: usize, slot: Slot, address: u64, checksum: u32) -> bool {
        let (at, entry, summary_blocks, data_blocks) = {
            let state = self.state.lock();
            if state.dropped.is_some() {
                return false;
            }
            let section = &state.sections[section];
            let (at, entry) = section.entry_of(slot);
            (at, entry, section.summary_blocks(), section.data_blocks())
        };
        let mut memory = Block::zeroed(summary_blocks as usize);
        if self.device.read(at, &mut memory).is_err() {
            return true;
        }
        let summary = Summary::decode(&memory, data_blocks);
        let entry = summary.as_ref().and_then(|summary| summary.entries.get(entry));
        entry.is_none_or(|entry| entry.key.block != address || entry.checksum != checksum)
    }
}

/// Returns whether `block` has the wanted content.
fn is_content(wanted: &WantedBlock<'_>, block: &Block) -> bool {
    let summed = match mutated(Mutant::HeadNotCompared) {
        true => block.0.get(wanted.head.len()..),
        false => block.0.strip_prefix(wanted.head),
    };
    summed.is_some_and(|summed| crc32c::crc32c(summed) == wanted.checksum)
}
