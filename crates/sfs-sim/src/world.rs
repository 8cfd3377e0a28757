//! Random worlds: long lives on volumes that are tiny, and filled at first.
//!
//! Owns: the choice of volume, budgets and operations.
//! Promises: segments wrap and the cleaner runs all the time; several files are synced by turns.
//! Never: needs what an earlier step did: leaving one out leaves a life, too.

use std::ops::Range;

use sfs_core::format::{DataLayout, FIRST_INO, FileKind, ROOT_INO};
use sfs_core::request::{VolumeOptions, WriteMode};

use crate::case::fresh;
use crate::crash::Crash;
use crate::history::{History, Life};
use crate::model::operation::{Limits, Operation, choose};
use crate::model::random::Random;
use crate::model::reference::Reference;
use crate::model::rig::{FILE, tight_with};
use crate::panics::catch;
use crate::version_1;

/// Of so many worlds one begins with a volume of version 1.
const UPGRADE_SHARE: u64 = 4;

/// Steps of a world.
pub const STEPS: u32 = 120;

/// Crash states of each epoch.
const STATES: usize = 3;

/// Percent of the blocks to be had that files are to have: below the first, a step appends to one
/// of them; beyond the second, most steps make room.
const FILL_PERCENT: u64 = 88;
const FULL_PERCENT: u64 = 94;

/// Files at first: so many that none of them matters.
const FILES: u64 = 20;

/// Bytes of an appending write at most: one in twenty of the smallest volume.
const APPEND_LEN_MAX: u64 = 80_000;

/// A sync follows a step once in so many.
const SYNC_ODDS: u64 = 4;

/// A step of background work follows once in so many.
const WORK_ODDS: u64 = 2;

/// The budgets of a world: one write buffer in eight is hardly more than a block a group.
fn options(random: &mut Random) -> VolumeOptions {
    VolumeOptions { write_buffer: random.pick(&[64, 128, 256]) << 10, ..tight_with(random.draw()) }
}

/// The life of world `seed`, with these of its steps.
pub(crate) fn record(data_layout: DataLayout, seed: u64, steps: &[u32]) -> History {
    let (mut life, limits) = begin(data_layout, seed);
    steps.iter().for_each(|step| take(&mut life, &limits, seed, *step, |_| {}));
    life.end()
}

/// The operations of the steps, up to one that panics: it is the last.
pub(crate) fn describe(data_layout: DataLayout, seed: u64, steps: &[u32]) -> Vec<String> {
    let mut lines = Vec::new();
    let lived = catch(|| {
        let (mut life, limits) = begin(data_layout, seed);
        for step in steps {
            take(&mut life, &limits, seed, *step, |operation| {
                lines.push(format!("{step}: {:.160}", format!("{operation:?}")));
            });
        }
    });
    lines.extend(lived.err());
    lines
}

/// A new volume, filled.
fn begin(data_layout: DataLayout, seed: u64) -> (Life, Limits) {
    let mut random = Random::new(seed);
    let image = fresh(data_layout, 32 + random.below(6));
    if seed.is_multiple_of(UPGRADE_SHARE) {
        version_1::downgrade(&image);
    }
    let mut life = Life::begin(image, options(&mut random), Reference::new(), 0);
    let blocks = life.pair.volume().space().free_blocks;
    let bytes = |percent: u64| blocks * percent / 100 * 4096;
    for no in 0..FILES {
        let name = format!("fill-{no}").into_bytes();
        life.step(&Operation::Make { parent: ROOT_INO, name, mode: FILE, rdev: 0 });
        let bytes = random.bytes((bytes(FILL_PERCENT) / FILES) as usize);
        let ino = FIRST_INO + no;
        life.step(&Operation::Write { ino, offset: 0, bytes, mode: WriteMode::default() });
    }
    life.step(&Operation::Reopen { close: random.one_in(2) });
    (life, Limits { bytes: bytes(FULL_PERCENT), files: 60, reopens: true })
}

/// Appends to some file while there is too much room.
fn refill(random: &mut Random, reference: &Reference, limits: &Limits) -> Option<Operation> {
    let files = regular_files(reference);
    let size = |ino: &u64| reference.nodes[ino].content.blocks.len() as u64 * 4096;
    let taken: u64 = files.iter().map(size).sum();
    if files.is_empty() || taken * FULL_PERCENT >= limits.bytes * FILL_PERCENT {
        return None;
    }
    let ino = random.pick(&files);
    let len = 1 + random.below(APPEND_LEN_MAX);
    let bytes = random.bytes(len as usize);
    let offset = reference.nodes[&ino].content.size;
    Some(Operation::Write { ino, offset, bytes, mode: WriteMode::default() })
}

fn regular_files(reference: &Reference) -> Vec<u64> {
    let nodes = reference.nodes.iter();
    nodes.filter(|(_, node)| node.kind() == FileKind::Regular).map(|(ino, _)| *ino).collect()
}

/// Takes a step, and tells each of its operations before it is done: one, an append while there is
/// too much room, a sync of some file now and then. Each is chosen from what the one before has left:
/// a file that was let go is not written any more.
fn take(life: &mut Life, limits: &Limits, seed: u64, step: u32, mut told: impl FnMut(&Operation)) {
    let mut random = Random::new(seed ^ u64::from(step + 1) << 32);
    let mut perform = |life: &mut Life, operation: Option<Operation>| {
        if let Some(operation) = operation {
            told(&operation);
            life.step(&operation);
        }
    };
    let chosen = choose(random.draw(), &life.pair.reference, limits);
    // A listing lets guests come and go, which are operations of their own.
    perform(life, Some(chosen).filter(|chosen| !matches!(chosen, Operation::List { .. })));
    let refill = refill(&mut random, &life.pair.reference, limits);
    perform(life, refill);
    let files = regular_files(&life.pair.reference);
    let synced = (random.one_in(SYNC_ODDS) && !files.is_empty()).then(|| random.pick(&files));
    perform(life, synced.map(|ino| Operation::SyncFile { ino }));
    let works = random.one_in(WORK_ODDS);
    perform(life, works.then_some(Operation::Step));
}

/// Random crash states of an epoch.
pub(crate) fn states_of(epoch: &Range<usize>, random: &mut Random) -> Vec<Crash> {
    (0..STATES).map(|_| Crash::random(epoch.clone(), random)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One in which a file is let go in a step that appends to some file.
    #[test]
    fn worlds_write_no_file_that_was_let_go() {
        let steps: Vec<u32> = (0..STEPS).collect();
        record(DataLayout::Log, 16_386_432_822_165_503_073, &steps);
    }

    /// What the worlds are for happens in them: the median of each is at what files are given, and
    /// no more than a tenth of its steps leave it much emptier.
    #[test]
    fn worlds_are_nearly_full_and_cleaned_all_the_time() {
        let data_layout = DataLayout::Log;
        for seed in 0..8 {
            let (mut life, limits) = begin(data_layout, seed);
            let mut full: Vec<u64> = Vec::new();
            for step in 0..STEPS {
                take(&mut life, &limits, seed, step, |_| {});
                let space = life.pair.volume().space();
                full.push(100 - 100 * space.free_blocks / space.total_blocks);
            }
            full.sort_unstable();
            let (tenth, median) = (full[full.len() / 10], full[full.len() / 2]);
            assert!((FILL_PERCENT..=97).contains(&median), "world {seed}: half are at {median}%");
            assert!(tenth >= 80, "world {seed}: a tenth is at {tenth}%");
            let cleaned = life.pair.cleaned();
            assert!(cleaned >= 20, "world {seed}: {cleaned} segments cleaned");
        }
    }
}
