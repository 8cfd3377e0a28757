//! The cleaner: empties segments by moving what lives in them.
//!
//! Owns: the victims in hand, and the blocks under cleaning.
//! Promises: one step is bounded; what is moved is verified first, and stays where it is until its
//! copy is durable, for its segment is not Clean before what says so is (LRF: nothing is overwritten
//! that is the only copy of a block under cleaning).
//! Never: chooses the victim (a policy does), or decides when to clean (see `pacing`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use super::Volume;
use super::commit::{DELTA_SEGMENTS, Move, Request};
use super::pacing::{Dead, Vain};
use crate::format::{ErrorKind, NodeHeader, NodePointer, SegmentState, SummaryEntry};
use crate::log::{Batch, Log};
use crate::memory::DirtyBuf;
use crate::meta::Meta;
use crate::owners::Owner;
use crate::policy::{Greedy, VictimPolicy};
use crate::tree::{NodeNotCached, VerifiedNode};
use crate::{Error, Result};

/// Blocks under cleaning take so large a share of the write buffer at most.
const MOVED_SHARE: usize = 4;

/// Blocks of a victim that one step reads, in one request where it can: 1 MiB.
const PIECE_BLOCKS: u64 = 256;

/// Dead blocks between two live ones are read along with them up to so many: that is faster than
/// another request.
const GAP_BLOCKS: u64 = 8;

/// A live block of a victim.
struct Live {
    /// The mapping that its summary names.
    named: (u64, u32),
    address: u64,
    /// What all its owners say of its content.
    checksum: Option<u32>,
}

/// Which victims are the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Those that the policy says: it looks ahead.
    Policy,
    /// The emptiest: they make room for one who cannot wait.
    Emptiest,
}

/// What one step of cleaning came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Part of a victim has been read.
    Read,
    /// What was read has been written; its segments wait to be let go.
    Written,
    /// There is no victim worth cleaning, or nothing has been gained for a while.
    Nothing,
}

/// The cleaner's hands.
#[derive(Default)]
pub(super) struct Cleaner {
    /// What has not been looked at of the victim being read, last address first.
    unread: Vec<(u64, SummaryEntry)>,
    /// The victims of this round, the one being read last.
    victims: Vec<Life>,
    /// Blocks under cleaning: they wait until there are enough of them.
    moves: Vec<Move>,
    gain: Gain,
}

/// What cleaning has come to since users let a segment's worth of blocks die.
#[derive(Clone, Copy, Default)]
struct Gain {
    /// Changes by users until then.
    changes: u64,
    /// Fewest dead blocks since.
    dead: u64,
    vain: Vain,
}

impl Gain {
    /// A round has ended with `blocks` of room; says whether another is worth while.
    fn note(&mut self, changes: u64, dead: Dead, blocks: usize) -> bool {
        // What the cleaner itself has in hand may look dead, too.
        if dead.is_more(&mut self.dead) && self.changes != changes {
            *self = Self { changes, dead: dead.blocks, ..Self::default() };
        }
        self.vain.note(blocks)
    }
}

impl Cleaner {
    /// Nothing is in hand.
    pub(super) fn is_idle(&self) -> bool {
        self.victims.is_empty()
    }
}

/// A segment in one of its lives: its number, and the stamp it was opened with.
type Life = (u32, u64);

/// Segments that are not chosen as victims.
#[derive(Debug, Default)]
pub(super) struct Unfit {
    /// A cleaner has them in hand.
    taken: BTreeSet<u32>,
    /// Emptied, but for nodes that the next checkpoint moves.
    emptied: BTreeSet<Life>,
    /// Something lived in them still, after a checkpoint.
    suspect: BTreeSet<Life>,
    /// With live blocks that cannot be read: they stay as they are.
    rotten: BTreeSet<Life>,
    /// What was found in a segment that the cleaner read.
    blemishes: BTreeMap<Life, Blemish>,
}

/// What is wrong with a block that the cleaner has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blemish {
    /// It is live data; that is counted.
    Data,
    /// It was to be the node at this address, which may be dead.
    Node(u64),
}

impl Volume {
    /// One step of cleaning in the background, which does not hold the log while it reads.
    pub(super) fn clean_step(&self, cleaner: &mut Cleaner) -> Result<Step> {
        if cleaner.unread.is_empty() && !self.take_victim(cleaner, Choice::Policy) {
            return match cleaner.victims.is_empty() {
                true => Ok(Step::Nothing),
                false => self.finish_round(cleaner),
            };
        }
        self.read_piece(cleaner);
        Ok(Step::Read)
    }

    /// Writes what the background has in hand.
    pub(super) fn finish_round(&self, cleaner: &mut Cleaner) -> Result<Step> {
        let outcome = self.write_moves(&mut self.log.lock(), cleaner);
        if outcome.is_err() {
            // Whoever needs room now cleans emptier segments; and what lies behind damage is found to be
            // when its segment is read again.
            self.let_go(cleaner);
        }
        match outcome {
            Err(Error::NoSpace) => Ok(Step::Nothing),
            other => other,
        }
    }

    /// A whole round of cleaning the emptiest segments, for one who has the log and needs room; says
    /// whether there was anything to clean.
    pub(super) fn clean_round(&self, log: &mut Log) -> Result<bool> {
        let mut cleaner = Cleaner::default();
        while self.take_victim(&mut cleaner, Choice::Emptiest) {
            while !cleaner.unread.is_empty() {
                self.read_piece(&mut cleaner);
            }
        }
        if cleaner.victims.is_empty() {
            return Ok(false);
        }
        let outcome = self.write_moves(log, &mut cleaner);
        self.let_go(&mut cleaner);
        outcome.map(|_| true)
    }

    /// Others may take the victims that are still in hand.
    fn let_go(&self, cleaner: &mut Cleaner) {
        let gain = cleaner.gain;
        let round = std::mem::replace(cleaner, Cleaner { gain, ..Cleaner::default() });
        let mut unfit = self.unfit.lock();
        for (victim, _) in round.victims {
            unfit.taken.remove(&victim);
        }
    }

    /// Writes the blocks under cleaning, wherever they belong.
    pub(super) fn write_moves(&self, log: &mut Log, cleaner: &mut Cleaner) -> Result<Step> {
        let write = |log: &mut Log| match cleaner.moves.is_empty() {
            true => Ok(()),
            false => self.commit_some(log, &Request::moving(&cleaner.moves)).map(drop),
        };
        match write(log) {
            Err(Error::NoSpace) => {
                // Others have taken the room since; what is Drained may give it back.
                if !self.release(log)? {
                    self.checkpoint(log, false)?;
                }
                write(log)?;
            }
            other => other?,
        }
        let mut gain = cleaner.gain;
        let dead = self.dead(&self.meta.read());
        let goes_on = gain.note(self.clock.changes(), dead, self.room_to_be_had(log));
        let round = std::mem::replace(cleaner, Cleaner { gain, ..Cleaner::default() });
        let mut unfit = self.unfit.lock();
        for life in &round.victims {
            unfit.taken.remove(&life.0);
            unfit.emptied.insert(*life);
        }
        self.counters.segments_cleaned.fetch_add(round.victims.len() as u64, Ordering::Relaxed);
        Ok(if goes_on { Step::Written } else { Step::Nothing })
    }

    /// A checkpoint has written the nodes of the segments that have been emptied. What still lives
    /// in one of them had not reached the device when it was read, or cannot be moved: it is
    /// damaged, or behind a damaged summary. Where that happens twice the segment is left alone
    /// for the rest of its life: cleaning it over and over would gain nothing.
    pub(super) fn note_rotten(&self, meta: &Meta) {
        let lives = |(segment, stamp): &Life| {
            let entry = meta.usage.entry(*segment);
            entry.state == SegmentState::Sealed && entry.stamp == *stamp
        };
        let mut unfit = self.unfit.lock();
        unfit.suspect.retain(lives);
        unfit.rotten.retain(lives);
        unfit.blemishes.retain(|life, _| lives(life));
        for life in std::mem::take(&mut unfit.emptied).into_iter().filter(lives) {
            if !unfit.suspect.insert(life) && unfit.rotten.insert(life) {
                self.note_unmovable(life, unfit.blemishes.remove(&life));
            }
        }
    }

    /// Counts that something in a segment lives and cannot be moved: data, or else a node, or what a damaged
    /// summary described.
    fn note_unmovable(&self, (segment, _): Life, blemish: Option<Blemish>) {
        match blemish {
            Some(Blemish::Data) => {}
            Some(Blemish::Node(address)) => self.note_error(ErrorKind::Tree, address),
            None => {
                let address = self.superblock.layout.segment_address(segment);
                self.note_error(ErrorKind::Log, address);
            }
        }
    }

    /// Takes the best victim whose live blocks fit into what is Clean and into memory, together
    /// with those in hand and the nodes that moving them makes dirty.
    fn take_victim(&self, cleaner: &mut Cleaner, choice: Choice) -> bool {
        let Some(victim) = self.choose_victim(cleaner, choice) else { return false };
        self.unfit.lock().taken.insert(victim.0);
        cleaner.victims.push(victim);
        match self.segment_entries(victim.0) {
            Ok(entries) => cleaner.unread = entries.into_iter().rev().collect(),
            Err(_) => self.give_up(cleaner),
        }
        true
    }

    /// The victim being read cannot be: it is rotten. What was read of it moves.
    fn give_up(&self, cleaner: &mut Cleaner) {
        cleaner.unread.clear();
        if let Some(victim) = cleaner.victims.last() {
            self.unfit.lock().rotten.insert(*victim);
        }
    }

    fn choose_victim(&self, cleaner: &Cleaner, choice: Choice) -> Option<Life> {
        let mut meta = self.meta.write();
        let meta = &mut *meta;
        let layout = &self.superblock.layout;
        let life = |segment: u32| (segment, meta.usage.entry(segment).stamp);
        let unfit = self.unfit.lock();
        let fit = |segment: u32| {
            // Who needs room now does not wait for others: what both move is moved once.
            let taken = match choice {
                Choice::Policy => unfit.taken.contains(&segment),
                Choice::Emptiest => cleaner.victims.contains(&life(segment)),
            };
            let life = life(segment);
            !(taken || unfit.emptied.contains(&life) || unfit.rotten.contains(&life))
        };
        let greedy: &dyn VictimPolicy = &Greedy;
        let policy = if choice == Choice::Emptiest { greedy } else { &*meta.victims };
        let victim = meta.choose_victim(policy, layout.segment_blocks, fit)?;
        drop(unfit);
        let entry = meta.usage.entry(victim);
        let (life, live) = ((victim, entry.stamp), entry.live_blocks as usize);
        let data = cleaner.moves.len() + if entry.data_group().is_some() { live } else { 0 };
        let memory = self.options.write_buffer / MOVED_SHARE / BLOCK_SIZE;
        let segments = data.div_ceil(Batch::segment_room(layout))
            + DELTA_SEGMENTS
            + self.checkpoint_reserve(meta, cleaner.moves.len() + live);
        let fits =
            (cleaner.victims.is_empty() || data <= memory) && segments <= meta.usage.clean_count();
        if fits {
            meta.note_cleaning(victim);
        }
        fits.then_some(life)
    }

    /// Collects live data from the next part of the victim, and makes its live nodes dirty.
    fn read_piece(&self, cleaner: &mut Cleaner) {
        if self.try_read_piece(cleaner).is_err() {
            self.give_up(cleaner);
        }
    }

    fn try_read_piece(&self, cleaner: &mut Cleaner) -> Result<()> {
        let Some((start, _)) = cleaner.unread.last() else { return Ok(()) };
        let end = start + PIECE_BLOCKS;
        let mut live = Vec::new();
        while let Some((address, entry)) = cleaner.unread.pop_if(|(at, _)| *at < end) {
            match entry {
                SummaryEntry::Data { ino, block, .. } => {
                    let named = (ino, block);
                    let owners = self.consult(|txn| txn.owners(address, named))?;
                    // Who owns it when it is written is asked then: see `choose`.
                    live.extend(owners.first().map(|owner| {
                        let checksum = owner.mapping.checksum;
                        Live { named, address, checksum }
                    }));
                }
                SummaryEntry::Node { checksum } => {
                    if !self.touch_node(NodePointer { address, checksum })? {
                        self.note_blemish(cleaner, Blemish::Node(address));
                    }
                }
            }
        }
        let near = |a: &Live, b: &Live| b.address - a.address <= GAP_BLOCKS;
        for run in live.chunk_by(near) {
            self.read_run(run, cleaner)?;
        }
        Ok(())
    }

    /// Reads live blocks that are near each other in one request.
    fn read_run(&self, run: &[Live], cleaner: &mut Cleaner) -> Result<()> {
        let (first, last) = (run[0].address, run[run.len() - 1].address);
        let mut buffer = DirtyBuf::new((last - first + 1) as usize, &self.pool);
        if self.read_blocks(first, buffer.blocks_mut()).is_err() && run.len() > 1 {
            // What can be read is saved. What cannot stays where it is.
            return run
                .iter()
                .try_for_each(|live| self.read_run(std::slice::from_ref(live), cleaner));
        }
        let mut live = run.iter().peekable();
        for (address, memory) in (first..).zip(buffer.share()) {
            let Some(live) = live.next_if(|live| live.address == address) else { continue };
            let checksum = crc32c::crc32c(memory.block().as_bytes());
            if Some(checksum) == live.checksum {
                cleaner.moves.push(Move { named: live.named, address, checksum, memory });
            } else if self.is_live(live) {
                // Moving what does not match would hide the damage behind a new checksum: its segment
                // will be found to be rotten.
                self.note_error(ErrorKind::Data, address);
                self.note_blemish(cleaner, Blemish::Data);
            }
        }
        Ok(())
    }

    /// Whether a block with a checksum is still mapped where it was.
    fn is_live(&self, live: &Live) -> bool {
        let owners = self.consult(|txn| txn.owners(live.address, live.named));
        let has_checksum = |owner: &Owner| owner.mapping.checksum == live.checksum;
        live.checksum.is_some() && owners.is_ok_and(|owners| owners.iter().any(has_checksum))
    }

    /// Remembers what is wrong in the victim being read. What is certain counts more.
    fn note_blemish(&self, cleaner: &Cleaner, blemish: Blemish) {
        if let Some(victim) = cleaner.victims.last() {
            let mut unfit = self.unfit.lock();
            let known = unfit.blemishes.entry(*victim).or_insert(blemish);
            if blemish == Blemish::Data {
                *known = blemish;
            }
        }
    }

    /// Makes the node at `pointer` dirty if the tree refers to it, so that the next checkpoint
    /// moves it. Says whether a node is there.
    fn touch_node(&self, pointer: NodePointer) -> Result<bool> {
        let mut block = Block([0; BLOCK_SIZE]);
        self.read_blocks(pointer.address, std::slice::from_mut(&mut block))?;
        let volume = self.superblock.volume();
        let Ok(header) = NodeHeader::verify(&block.0, volume, pointer) else { return Ok(false) };
        let missing = NodeNotCached { pointer, level: header.level, keys: None };
        let tolerance = self.superblock.tolerance();
        let Ok(node) = VerifiedNode::decode(block, volume, &missing, tolerance) else {
            return Ok(false);
        };
        let mut failed = None;
        let _keep = self.keep_nodes();
        loop {
            let touched = self.meta.write().tree.relocate_node(&node, pointer.address);
            match touched {
                Ok(_) => return Ok(true),
                Err(missing) => self.load(&missing, &mut failed)?,
            }
        }
    }
}
