//! The content of the image: reading pages from the store, making regions ready to be written, and eviction.

use std::ops::Range;
use std::time::{Duration, Instant};

use fixedbitset::FixedBitSet;
use sfs_device::{BLOCK_SIZE, Block, Stream};

use super::shape::{PAGE_BLOCKS, Shape};
use super::{Failure, ObjectDevice, State};
use crate::error::ObjectError;
use crate::frame::HEADER_LEN;
use crate::mutant::{Mutant, mutated};
use crate::name::ObjectName;
use crate::store::{Found, ObjectStore, Part};

/// Pages that are read from the store at once at least, if the region has them: 256 KiB.
const PAGES_AT_ONCE: u64 = 4;
/// Pages that are written to the image at once at most: 256 KiB.
const INSTALLED_AT_ONCE: usize = 4;
/// Parts that are read from the store at once at most, each a region at most: 64 MiB.
const PARTS_AT_ONCE: usize = 16;

/// Blocks of one region that the image does not hold.
pub(super) struct Missing {
    pub(super) region: u64,
    /// The data object that has them, or `None` if they are zero.
    pub(super) name: Option<ObjectName>,
    pub(super) blocks: Range<u64>,
}

impl State {
    /// Notes that the image holds these pages.
    pub(super) fn add_pages(&mut self, pages: Range<usize>) {
        self.present_pages += pages.len() - self.present.count_ones(pages.clone());
        self.present.insert_range(pages);
    }

    /// Notes why nothing more is written, if nothing has failed before.
    pub(super) fn fail(&mut self, failure: &Failure) {
        if matches!(self.failure, None | Some(Failure::Closed)) {
            self.failure = Some(failure.clone());
        }
    }

    fn remove_pages(&mut self, pages: Range<usize>) {
        self.present_pages -= self.present.count_ones(pages.clone());
        self.present.remove_range(pages);
    }

    /// Returns the pages of a range that the image does not hold, in runs that are not long.
    fn absent_runs(&self, pages: Range<usize>) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for page in pages.filter(|page| !self.present.contains(*page)) {
            match runs.last_mut() {
                Some(run) if run.end == page && run.len() < INSTALLED_AT_ONCE => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// Returns what a range of blocks lacks, for each region one range from the first to the last such page.
    pub(super) fn missing(&self, shape: Shape, blocks: &Range<u64>) -> Vec<Missing> {
        let regions = shape.regions_of(blocks.start, blocks.end - blocks.start);
        let missing = regions.filter_map(|region| {
            let name = self.map.get(region);
            if name.is_none() && mutated(Mutant::HolesTrusted) {
                return None;
            }
            let of = shape.blocks(region);
            let wanted = blocks.start.max(of.start)..blocks.end.min(of.end);
            let mut absent = shape
                .pages_of(wanted)
                .filter(|page| !self.present.contains(*page))
                .map(|p| p as u64);
            let first = absent.next()?;
            let last = absent.next_back().unwrap_or(first);
            let begin = first / PAGES_AT_ONCE * PAGES_AT_ONCE * PAGE_BLOCKS;
            let end = (last / PAGES_AT_ONCE + 1) * PAGES_AT_ONCE * PAGE_BLOCKS;
            Some(Missing { region, name, blocks: begin.max(of.start)..end.min(of.end) })
        });
        missing.collect()
    }

    /// Returns whether eviction may take a region: the store has all of it.
    fn may_evict(&self, region: u64) -> bool {
        !self.ahead.contains(region as usize)
            && !self.busy.contains(&region)
            && !self.discarded.contains(&region)
            && (!self.unjoined.contains(&region) || mutated(Mutant::UnjoinedEvicted))
    }
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Reads what these ranges lack from the store, or waits until another thread has, each no longer than `wait`. The caller looks again.
    pub(super) fn fill(
        &self,
        wanted: &[Range<u64>],
        wait: Option<Duration>,
    ) -> Result<(), Failure> {
        let blocks: u64 = wanted.iter().map(|range| range.end - range.start).sum();
        // A cache that is too full is better than a read that fails, or waits for a join.
        let _ = self.evict(blocks.div_ceil(PAGE_BLOCKS));
        let claimed = {
            let mut state = self.state.lock();
            if state.is_final {
                return Err(Failure::Closed);
            }
            let missing = wanted.iter().flat_map(|range| state.missing(self.local.shape, range));
            let missing = missing.collect::<Vec<_>>();
            let mut claimed = Vec::new();
            for part in missing {
                if state.busy.insert(part.region) {
                    claimed.push(part);
                } else if claimed.is_empty() {
                    let end = wait.map(|wait| Instant::now() + wait);
                    while state.busy.contains(&part.region) {
                        match end {
                            None => self.changed.wait(&mut state),
                            Some(end) if self.changed.wait_until(&mut state, end).timed_out() => {
                                return Err(Failure::Late);
                            }
                            Some(_) => {}
                        }
                    }
                    return Ok(());
                }
            }
            claimed
        };
        let result = self.fetch(&claimed, |parts| self.read_parts(parts, wait));
        self.end_busy(claimed.iter().map(|part| part.region));
        match result {
            // At the end reads are bounded as well, and what was not read is not lost.
            Err(Failure::Object(ObjectError::Stopped(_))) if self.demand.is_ending() => {
                Err(Failure::Late)
            }
            result => result,
        }
    }

    /// Makes regions ready to be written: the image has them whole, and the local cache says durably that they may be ahead. The
    /// caller looks again, since another thread may prepare them.
    pub(super) fn prepare(&self, regions: Range<u64>) -> Result<(), Failure> {
        let pages = (regions.end - regions.start) * self.local.shape.region_blocks / PAGE_BLOCKS;
        self.make_room(pages)?;
        let claimed = {
            let mut state = self.state.lock();
            let behind = regions.filter(|region| !state.ahead.contains(*region as usize));
            let behind = behind.collect::<Vec<_>>();
            if behind.iter().any(|region| state.busy.contains(region)) {
                self.changed.wait(&mut state);
                return Ok(());
            }
            state.busy.extend(&behind);
            behind
        };
        let result = self.fill_whole(&claimed).and_then(|()| self.set_ahead(&claimed));
        self.end_busy(claimed.into_iter());
        result
    }

    pub(super) fn end_busy(&self, regions: impl Iterator<Item = u64>) {
        let mut state = self.state.lock();
        for region in regions {
            state.busy.remove(&region);
        }
        self.changed.notify_all();
    }

    /// Reads all that busy regions lack.
    pub(super) fn fill_whole(&self, regions: &[u64]) -> Result<(), Failure> {
        let shape = self.local.shape;
        if !mutated(Mutant::AheadUnfilled) {
            let missing = {
                let state = self.state.lock();
                let missing =
                    regions.iter().flat_map(|no| state.missing(shape, &shape.blocks(*no)));
                missing.collect::<Vec<_>>()
            };
            self.fetch(&missing, |parts| self.read_parts(parts, None))?;
        }
        let mut state = self.state.lock();
        regions.iter().for_each(|no| state.add_pages(shape.pages_of(shape.blocks(*no))));
        Ok(())
    }

    /// Notes that busy regions may be ahead of the store.
    ///
    /// After an error nobody knows what the local cache says: the regions stay in the image, and nothing more is written.
    fn set_ahead(&self, regions: &[u64]) -> Result<(), Failure> {
        let _io = self.ahead_io.lock();
        let (mut ahead, has_content) = {
            let state = self.state.lock();
            let has = |region: &u64| state.map.has(*region) || state.unjoined.contains(region);
            (state.ahead.clone(), state.writes_zeros || regions.iter().any(has))
        };
        regions.iter().for_each(|region| ahead.insert(*region as usize));
        let result = match mutated(Mutant::AheadUnwritten) {
            false => self.write_set(&ahead, regions, has_content),
            true => Ok(()),
        };
        let mut state = self.state.lock();
        regions.iter().for_each(|region| state.ahead.insert(*region as usize));
        if let Err(failure) = &result {
            state.fail(failure);
        }
        result
    }

    /// Writes the bits of regions that may be ahead from now on, durably.
    fn write_set(
        &self,
        ahead: &FixedBitSet,
        regions: &[u64],
        has_content: bool,
    ) -> Result<(), Failure> {
        // The content of the image counts as soon as the bit does.
        if has_content {
            self.local.flush()?;
        }
        self.local.write_ahead(ahead, regions.iter().copied())?;
        Ok(self.local.flush()?)
    }

    /// Notes that regions are not ahead any more, if nothing was written to them since they were uploaded.
    ///
    /// Such regions are busy until the local cache says so durably: an eviction before would leave a region that is ahead and a hole.
    /// After an error nobody knows what the local cache says: the regions stay in the image, and nothing more is written.
    pub(super) fn clear_ahead(&self) -> Result<(), Failure> {
        let _io = self.ahead_io.lock();
        let (ahead, cleared) = {
            let mut state = self.state.lock();
            let is_clean = |region: &u64| {
                !state.open.contains_key(region)
                    && !state.busy.contains(region)
                    && !state.discarded.contains(region)
            };
            let cleared = state.ahead.ones().map(|region| region as u64).filter(is_clean);
            let cleared = cleared.collect::<Vec<_>>();
            cleared.iter().for_each(|region| state.ahead.remove(*region as usize));
            if !mutated(Mutant::ClearedUnflushed) {
                state.busy.extend(&cleared);
            }
            (state.ahead.clone(), cleared)
        };
        let mut result = self.local.write_ahead(&ahead, cleared.iter().copied());
        if !mutated(Mutant::ClearedUnflushed) {
            result = result.and_then(|()| self.local.flush());
        }
        let result = result.map_err(Failure::from);
        if let Err(failure) = &result {
            let mut state = self.state.lock();
            cleared.iter().for_each(|region| state.ahead.insert(*region as usize));
            state.fail(failure);
        }
        self.end_busy(cleared.into_iter());
        result
    }

    /// Puts missing blocks into the image: what `get` reads from the store, or zeros. Their regions are busy.
    pub(super) fn fetch(
        &self,
        missing: &[Missing],
        get: impl Fn(&[Part]) -> Result<Found, Failure>,
    ) -> Result<(), Failure> {
        let shape = self.local.shape;
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        let (mut parts, mut targets) = (Vec::new(), Vec::new());
        for Missing { region, name, blocks } in missing {
            let Some(name) = *name else {
                self.install_zeros(blocks)?;
                continue;
            };
            let of = shape.blocks(*region);
            let len = bytes(blocks.end - blocks.start);
            // A part from the begin on costs a server less than one that begins behind the header.
            parts.push(match *blocks == of {
                true => Part { name, offset: 0, len: HEADER_LEN as u64 + len },
                false => {
                    let offset = HEADER_LEN as u64 + bytes(blocks.start - of.start);
                    Part { name, offset, len }
                }
            });
            targets.push(blocks);
        }
        for (parts, targets) in parts.chunks(PARTS_AT_ONCE).zip(targets.chunks(PARTS_AT_ONCE)) {
            for (part, (blocks, found)) in parts.iter().zip(targets.iter().zip(get(parts)?)) {
                let found = found.ok_or(ObjectError::Missing(part.name))?;
                if found.len() as u64 != part.len {
                    return Err(ObjectError::Damaged(part.name).into());
                }
                let content_at = if part.offset == 0 { HEADER_LEN } else { 0 };
                self.install(blocks, &found[content_at..])?;
                self.store.give_back(found);
            }
        }
        Ok(())
    }

    /// Makes sure that a range of blocks is zero in the image. A discard promises nothing, so it is read; nothing is written where the
    /// device has returned zeros.
    fn install_zeros(&self, blocks: &Range<u64>) -> Result<(), Failure> {
        let mut content = Block::zeroed((blocks.end - blocks.start) as usize);
        self.local.image.read(blocks.start, &mut content)?;
        if content.iter().all(|block| *block == Block::ZERO) {
            self.state.lock().add_pages(self.local.shape.pages_of(blocks.clone()));
            return Ok(());
        }
        self.state.lock().writes_zeros = true;
        content.fill(Block::ZERO);
        self.install(blocks, Block::bytes_of(&content))
    }

    /// Writes those pages of a range to the image that it does not hold.
    fn install(&self, blocks: &Range<u64>, bytes: &[u8]) -> Result<(), Failure> {
        let shape = self.local.shape;
        let runs = self.state.lock().absent_runs(shape.pages_of(blocks.clone()));
        // The bytes are where no block may be. This memory is short, so that it stays in the processor's cache.
        let longest = runs.iter().map(|run| run.len()).max().unwrap_or_default();
        let mut content = Block::zeroed(longest * PAGE_BLOCKS as usize);
        for pages in runs {
            let of = (pages.start as u64 * PAGE_BLOCKS).max(blocks.start)
                ..(pages.end as u64 * PAGE_BLOCKS).min(blocks.end);
            let content = &mut content[..(of.end - of.start) as usize];
            let from = (of.start - blocks.start) as usize * BLOCK_SIZE;
            let target = Block::bytes_of_mut(content);
            target.copy_from_slice(&bytes[from..from + target.len()]);
            self.local.image.write(of.start, &[content], Stream::default())?;
            self.state.lock().add_pages(pages);
        }
        Ok(())
    }

    /// Makes room for a number of pages: evicts what the store has, after a join if that is not enough.
    fn make_room(&self, pages: u64) -> Result<(), Failure> {
        if self.evict(pages)? {
            return Ok(());
        }
        match self.ask(true) {
            // The use ends: what is to be written gets into the cache, whatever its limit.
            Err(Failure::Late) => return Ok(()),
            asked => asked?,
        }
        // The rest is being written: the cache holds more than its limit for a while.
        self.evict(pages).map(|_| ())
    }

    /// Evicts regions until there is room for a number of pages. Returns whether there is.
    pub(super) fn evict(&self, pages: u64) -> Result<bool, Failure> {
        let limit = (self.limits.cache_blocks / PAGE_BLOCKS) as usize;
        let has_room =
            |state: &State| state.is_final || state.present_pages + pages as usize <= limit;
        if has_room(&self.state.lock()) {
            return Ok(true);
        }
        let _access = self.access.write();
        let (victims, has_room) = {
            let mut state = self.state.lock();
            let victims = state.choose_victims(self.local.shape, has_room);
            (victims, has_room(&state))
        };
        let discard = |region: &u64| self.local.image.discard(self.local.shape.blocks(*region));
        let result = victims.iter().try_for_each(discard);
        self.end_busy(victims.into_iter());
        result?;
        Ok(has_room)
    }
}

impl State {
    /// Takes regions out of the image until there is room. They are busy: the caller discards them.
    fn choose_victims(&mut self, shape: Shape, has_room: impl Fn(&Self) -> bool) -> Vec<u64> {
        let mut victims = Vec::new();
        // The second round takes what was used before the first.
        for _ in 0..2 * shape.regions() {
            if has_room(self) {
                break;
            }
            let region = self.hand;
            self.hand = (region + 1) % shape.regions();
            let pages = shape.pages_of(shape.blocks(region));
            if self.present.count_ones(pages.clone()) == 0 || !self.may_evict(region) {
                continue;
            }
            if self.used.contains(region as usize) {
                self.used.remove(region as usize);
                continue;
            }
            self.remove_pages(pages);
            self.busy.insert(region);
            victims.push(region);
        }
        victims
    }
}
