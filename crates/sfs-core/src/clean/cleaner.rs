//! Cleaner: takes victims, and reads and verifies their live blocks.
//!
//! A [`CleaningRound`] collects live blocks of one or more victims in bounded steps. The caller then commits
//! the blocks and calls [`Cleaner::finish`], or [`Cleaner::abandon`] after a failure. `choice`
//! chooses the victims; `watermarks` decides when to clean.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use sfs_device::{BLOCK_SIZE, Block};

use super::choice::{Candidates, Choice, Chosen};
use super::excluded::{BlockDamage, ExcludedVictims, SegmentGeneration};
use super::futility::Futility;
use super::live_block::{LiveBlock, STEP_BLOCKS};
use super::observer::{Cleaned, CleaningObserver, ObserverSlot};
use super::progress::GarbageBlocks;
use super::round::CleaningRound;
use super::watermarks::Urgency;
use crate::counters::AtomicCounters;
use crate::files::DirtyData;
use crate::format::{NodeHeader, NodePointer, SummaryEntry};
use crate::health::{Health, OpenSuperblock};
use crate::io::VolumeDevice;
use crate::lock_rank::{Rank, Ranked};
use crate::log::ChunkReader;
use crate::metadata::MetadataStore;
use crate::reserves::has_cleaning_reserve;
use crate::tree::{NodeNotCached, VerifiedNode};
use crate::{Error, Result};

/// Divisor of the write buffer: moved blocks may take the quotient.
const WRITE_BUFFERS_PER_MOVED: usize = 4;

/// Divisor of the volume's blocks: moved blocks may take the quotient, but at least the blocks of
/// one step. Until a round is committed, the volume lacks the space of its victims.
const VOLUMES_PER_MOVED: u64 = 256;

/// Divisor of the node cache: cleaning may make the quotient dirty. The other half is for the
/// copies of the dirty nodes during a checkpoint.
const CACHES_PER_DIRTY: usize = 2;

/// Number of dirty nodes that cleaning may cause with the smallest cache.
const DIRTY_NODES_MIN: usize = 512;

/// Result of a step of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStep {
    /// A part of a victim has been read.
    Read {
        /// Number of blocks in the part that are not live: they are gained by cleaning.
        garbage_blocks: u64,
        /// Number of all blocks in the part.
        blocks: u64,
    },
    /// The round is complete: its blocks have to be committed.
    RoundComplete,
    /// No segment is worth cleaning.
    NoVictim,
}

/// Reader of victims, with the round of the background and the segments that must not be chosen.
pub(crate) struct Cleaner {
    /// Round of the background, and of writers that are throttled.
    round: Mutex<CleaningRound>,
    excluded: Mutex<ExcludedVictims>,
    /// State in which cleaning last gained nothing; `None` if that has not happened.
    futility: Mutex<Option<Futility>>,
    pub(super) superblock: Arc<OpenSuperblock>,
    pub(super) metadata: Arc<MetadataStore>,
    pub(super) dirty: Arc<DirtyData>,
    pub(super) io: Arc<VolumeDevice>,
    chunks: ChunkReader,
    pub(super) health: Arc<Health>,
    counters: Arc<AtomicCounters>,
    pub(super) moved_blocks_max: usize,
    /// Number of dirty nodes beyond which cleaning makes no more nodes dirty: the next checkpoint
    /// comes first.
    dirty_nodes_max: usize,
    /// `true` if victims with nodes were left out of the last choice, because too many nodes are dirty.
    waits_for_checkpoint: AtomicBool,
    observer: ObserverSlot,
    /// Number of openings of segments when the wear was last levelled.
    levelled: AtomicU64,
}

/// Components that the cleaner uses.
pub(crate) struct CleanerParts {
    pub(crate) superblock: Arc<OpenSuperblock>,
    pub(crate) metadata: Arc<MetadataStore>,
    pub(crate) dirty: Arc<DirtyData>,
    pub(crate) io: Arc<VolumeDevice>,
    pub(crate) chunks: ChunkReader,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<AtomicCounters>,
}

impl Cleaner {
    /// Returns a cleaner of the volume that `parts` belong to, whose write buffer has `write_buffer_bytes` and whose node
    /// cache has `cache_bytes`.
    pub(crate) fn new(parts: CleanerParts, write_buffer_bytes: usize, cache_bytes: usize) -> Self {
        let CleanerParts { superblock, metadata, dirty, io, chunks, health, counters } = parts;
        let layout = &superblock.layout();
        let blocks = u64::from(layout.segment_count) * u64::from(layout.segment_blocks);
        let in_memory = write_buffer_bytes / WRITE_BUFFERS_PER_MOVED / BLOCK_SIZE;
        let moved_blocks_max =
            in_memory.min((blocks / VOLUMES_PER_MOVED).max(STEP_BLOCKS) as usize);
        Self {
            round: Mutex::default(),
            excluded: Mutex::default(),
            futility: Mutex::default(),
            superblock,
            metadata,
            dirty,
            io,
            chunks,
            health,
            counters,
            moved_blocks_max,
            dirty_nodes_max: (cache_bytes / BLOCK_SIZE / CACHES_PER_DIRTY).max(DIRTY_NODES_MIN),
            waits_for_checkpoint: AtomicBool::new(false),
            observer: ObserverSlot::default(),
            levelled: AtomicU64::new(0),
        }
    }

    /// Has rounds reported to `observer`.
    pub(crate) fn observe(&self, observer: Arc<dyn CleaningObserver>) {
        self.observer.set(observer);
    }

    /// Locks the round of the background.
    pub(crate) fn lock_round(&self) -> Ranked<MutexGuard<'_, CleaningRound>> {
        Ranked::take(Rank::Cleaner, || self.round.lock())
    }

    /// Locks the round of the background unless another thread works on it.
    pub(crate) fn try_lock_round(&self) -> Option<Ranked<MutexGuard<'_, CleaningRound>>> {
        Ranked::try_take(Rank::Cleaner, || self.round.try_lock())
    }

    /// Returns whether another round would only wear the device, at this `garbage` and `urgency`: see [`Futility`].
    pub(crate) fn is_futile(&self, garbage: GarbageBlocks, urgency: Urgency) -> bool {
        let changes = self.metadata.changes();
        let mut futility = self.futility.lock();
        futility.as_mut().is_some_and(|futility| futility.holds(changes, garbage, urgency))
    }

    /// Returns whether the last choice left out victims that can be cleaned after a checkpoint.
    pub(crate) fn waits_for_checkpoint(&self) -> bool {
        self.waits_for_checkpoint.load(Ordering::Relaxed)
    }

    /// Records that cleaning has gained nothing.
    pub(crate) fn note_futile(&self, garbage: GarbageBlocks, urgency: Urgency) {
        *self.futility.lock() = Some(Futility::new(self.metadata.changes(), garbage, urgency));
    }

    /// Reads the next part of a victim, and takes another victim when one has been read. The log is not needed.
    pub(crate) fn read_step(&self, round: &mut CleaningRound) -> ReadStep {
        self.read_step_of(round, usize::MAX)
    }

    /// Does a step as [`Cleaner::read_step`], of a round with at most `victims_max` victims.
    pub(crate) fn read_step_of(&self, round: &mut CleaningRound, victims_max: usize) -> ReadStep {
        let is_last = round.failed.is_some() || round.victims.len() >= victims_max;
        if round.unread.is_empty() && (is_last || !self.take_victim(round, Choice::Policy)) {
            return if round.is_empty() { ReadStep::NoVictim } else { ReadStep::RoundComplete };
        }
        let (start, moves) = (self.next_address(round), round.moves.len());
        let live_nodes = self.read_part(round);
        round.moved_nodes += live_nodes as u64;
        let seen = self.next_address(round).saturating_sub(start);
        let live = (round.moves.len() - moves + live_nodes) as u64;
        let is_cut_short = round.failed.is_some();
        let garbage_blocks = if is_cut_short { 0 } else { seen.saturating_sub(live) };
        ReadStep::Read { garbage_blocks, blocks: seen }
    }

    /// Returns the address up to which the last victim has been read: its end once nothing is unread.
    fn next_address(&self, round: &CleaningRound) -> u64 {
        let layout = &self.superblock.layout();
        match (round.unread.last(), round.victims.last()) {
            (Some((address, _)), _) => *address,
            (None, Some((victim, _))) => {
                layout.segment_address(*victim) + u64::from(layout.segment_blocks)
            }
            (None, None) => 0,
        }
    }

    /// Reads a whole round for a thread that lacks segments: of the emptiest, or of better ones that cost little more. The open
    /// segments of data have `head_room_blocks` of room.
    pub(crate) fn read_round(&self, head_room_blocks: usize) -> CleaningRound {
        self.read_round_of(Choice::Needed, head_room_blocks)
    }

    /// Reads a round of withheld segments.
    pub(crate) fn read_withheld(&self, head_room_blocks: usize) -> CleaningRound {
        self.read_round_of(Choice::Withheld, head_room_blocks)
    }

    /// Reads a round of one segment: the least used one, if it is more than `bound` erase cycles behind the most used
    /// one. The round is empty if there is none, or if no segment was opened since the last call.
    pub(crate) fn read_least_used(&self, bound: u16) -> CleaningRound {
        let mut round = CleaningRound::default();
        let opened = self.metadata.read().usage.opened_count();
        if self.levelled.swap(opened, Ordering::Relaxed) == opened {
            return round;
        }
        if self.take_victim(&mut round, Choice::LeastUsed(bound)) {
            while !round.unread.is_empty() {
                self.read_part(&mut round);
            }
        }
        round
    }

    fn read_round_of(&self, choice: Choice, head_room_blocks: usize) -> CleaningRound {
        let mut round =
            CleaningRound { head_room_blocks, is_needed: true, ..CleaningRound::default() };
        while round.failed.is_none() && self.take_victim(&mut round, choice) {
            while !round.unread.is_empty() {
                self.read_part(&mut round);
            }
        }
        round
    }

    /// Ends a round whose blocks were committed; returns whether another round is worthwhile. There is room for
    /// `free_blocks` now. A victim of which only a part was read is not empty: a later round may take it again.
    pub(crate) fn finish(
        &self,
        round: &mut CleaningRound,
        garbage: GarbageBlocks,
        free_blocks: usize,
    ) -> bool {
        let goes_on = round.progress.note(self.metadata.changes(), garbage, free_blocks);
        let is_last_read = round.unread.is_empty();
        let failed = round.failed;
        let mut victims = round.take();
        let mut excluded = self.excluded.lock();
        if !is_last_read && let Some((segment, _)) = victims.pop() {
            excluded.give_back(segment);
        }
        if let Some(victim) = failed {
            excluded.note_failed(victim);
            victims.retain(|other| *other != victim);
        }
        victims.iter().for_each(|victim| excluded.note_emptied(*victim));
        self.counters.segments_cleaned.fetch_add(victims.len() as u64, Ordering::Relaxed);
        goes_on
    }

    /// Reports a round whose blocks were committed, `moved_bytes` of them. Comes before [`Cleaner::finish`].
    pub(crate) fn report(&self, round: &CleaningRound, moved_bytes: u64) {
        let unfinished = usize::from(round.failed.is_some() || !round.unread.is_empty());
        let victims = round.victims.len().saturating_sub(unfinished) as u32;
        let of_victims = u64::from(victims) * u64::from(self.superblock.layout().segment_blocks);
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        let kept_bytes = moved_bytes + bytes(round.live_nodes as u64);
        let freed_bytes = bytes(of_victims).saturating_sub(kept_bytes);
        self.observer.finished(round.begun, Cleaned { victims, moved_bytes, freed_bytes });
    }

    /// Ends a round whose blocks were not committed: other rounds may take its victims.
    pub(crate) fn abandon(&self, round: &mut CleaningRound) {
        let failed = round.failed;
        let victims = round.take();
        let mut excluded = self.excluded.lock();
        victims.iter().for_each(|(segment, _)| excluded.give_back(*segment));
        failed.into_iter().for_each(|victim| excluded.note_failed(victim));
    }

    /// Reconsiders the emptied segments after a checkpoint. Unless it was written `for_shortage`, victims that the device
    /// failed to read wait for one checkpoint less.
    pub(crate) fn reconsider_excluded(&self, for_shortage: bool) {
        let metadata = self.metadata.read();
        let layout = &self.superblock.layout();
        let mut excluded = self.excluded.lock();
        excluded.reconsider_emptied(&metadata, layout, &self.health);
        if !for_shortage {
            excluded.shorten_waits();
        }
    }

    /// Takes the best victim, if its live blocks fit into the Clean segments and into memory,
    /// together with those of the round and the nodes that moving them makes dirty. Returns whether
    /// the victim was taken; no other victim is tried.
    fn take_victim(&self, round: &mut CleaningRound, choice: Choice) -> bool {
        let Some(victim) = self.choose_victim(round, choice) else { return false };
        self.excluded.lock().take(victim.0);
        if round.is_empty() {
            round.begun = self.observer.begun();
        }
        round.victims.push(victim);
        match self.chunks.segment_entries(victim.0) {
            Ok(entries) => round.unread = entries.into_iter().rev().collect(),
            Err(error) => self.give_up_victim(round, &error),
        }
        true
    }

    /// Reads no more of the victim, because of `error`. Blocks already read are moved. A failure of the device or of memory
    /// may pass, and ends the round; any other error excludes the victim.
    fn give_up_victim(&self, round: &mut CleaningRound, error: &Error) {
        round.unread.clear();
        match error {
            Error::Device(_) | Error::NoMemory => round.failed = round.victims.last().copied(),
            _ => {
                if let Some(victim) = round.victims.last() {
                    self.excluded.lock().note_unreadable(*victim);
                }
            }
        }
    }

    /// Allows another attempt to read the victims that the device failed to read; returns whether there are any.
    pub(crate) fn retry_failed_reads(&self) -> bool {
        self.excluded.lock().retry_failed()
    }

    fn choose_victim(&self, round: &CleaningRound, choice: Choice) -> Option<SegmentGeneration> {
        let mut metadata = self.metadata.write();
        let layout = &self.superblock.layout();
        if matches!(choice, Choice::Policy | Choice::Needed) {
            metadata.score_segments(layout.segment_blocks);
        }
        let excluded = self.excluded.lock();
        let candidates = Candidates {
            layout,
            metadata: &metadata,
            excluded: &excluded,
            victims: &round.victims,
            dirty_nodes_max: self.dirty_nodes_max,
        };
        let Chosen { victim, has_waiting } = match choice {
            Choice::Policy => candidates.best(),
            Choice::Needed => {
                let emptiest = candidates.emptiest();
                let may_choose = has_cleaning_reserve(layout, &metadata);
                let better = emptiest.victim.filter(|_| may_choose);
                let better = better.and_then(|emptiest| candidates.better_than(emptiest));
                let better = better.filter(|better| self.fits(round, &metadata, *better));
                Chosen { victim: better.or(emptiest.victim), ..emptiest }
            }
            Choice::Withheld => candidates.withheld(),
            Choice::LeastUsed(bound) => candidates.least_used(bound),
        };
        self.waits_for_checkpoint.store(has_waiting, Ordering::Relaxed);
        let victim = candidates.generation(victim?);
        drop(excluded);
        if !self.fits(round, &metadata, victim.0) {
            return None;
        }
        metadata.note_cleaning(victim.0);
        Some(victim)
    }

    /// Collects live data from the next part of the victim, and makes its live nodes dirty. Returns the number of these
    /// nodes.
    fn read_part(&self, round: &mut CleaningRound) -> usize {
        let live_nodes = self.try_read_part(round).unwrap_or_else(|error| {
            self.give_up_victim(round, &error);
            0
        });
        round.live_nodes += live_nodes;
        live_nodes
    }

    fn try_read_part(&self, round: &mut CleaningRound) -> Result<usize> {
        let Some((start, _)) = round.unread.last() else { return Ok(0) };
        let end = start + STEP_BLOCKS;
        let (mut live, mut live_nodes) = (Vec::new(), 0);
        while let Some((address, entry)) = round.unread.pop_if(|(at, _)| *at < end) {
            match entry {
                SummaryEntry::Data { ino, block, .. } => {
                    let named = (ino, block);
                    let owners = self.metadata.read_txn(|txn| txn.owners(address, named))?;
                    // The commit looks for the owners once more: see `staged::stage_moves`.
                    live.extend(owners.first().map(|owner| {
                        let checksum = owner.mapping.checksum;
                        LiveBlock { named, address, checksum }
                    }));
                }
                SummaryEntry::Node { checksum } => {
                    match self.relocate_node(NodePointer { address, checksum })? {
                        Some(is_live) => live_nodes += usize::from(is_live),
                        None => self.note_damage(round, BlockDamage::Node(address)),
                    }
                }
            }
        }
        let (damaged, outcome) = self.read_live(&live, &mut round.moves);
        (0..damaged).for_each(|_| self.note_damage(round, BlockDamage::Data));
        outcome.map(|()| live_nodes)
    }

    fn note_damage(&self, round: &CleaningRound, damage: BlockDamage) {
        if let Some(victim) = round.victims.last() {
            self.excluded.lock().note_damage(*victim, damage);
        }
    }

    /// Makes the node at `pointer` dirty if the tree refers to it, so that the next checkpoint moves it. Returns
    /// whether the tree does; `None` if no node is there.
    fn relocate_node(&self, pointer: NodePointer) -> Result<Option<bool>> {
        let mut block = Block([0; BLOCK_SIZE]);
        self.io.read(pointer.address, std::slice::from_mut(&mut block))?;
        let volume = self.superblock.volume();
        let Ok(header) = NodeHeader::verify(&block.0, volume, pointer) else { return Ok(None) };
        let node = NodeNotCached { pointer, level: header.level, keys: None };
        let tolerance = self.superblock.tolerance();
        let Ok(node) = VerifiedNode::decode(block, volume, &node, tolerance) else {
            return Ok(None);
        };
        let relocated = self
            .metadata
            .update(|metadata| Ok(metadata.tree.relocate_node(&node, pointer.address)?))?;
        Ok(Some(relocated))
    }
}
