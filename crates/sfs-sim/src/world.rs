//! Random worlds: long lives on volumes that are tiny, and filled at first.
//!
//! Owns: the choice of volume, budgets and operations.
//! Promises: segments wrap and the cleaner runs all the time; several files are synced by turns.
//! Never: needs what an earlier step did: leaving one out leaves a life, too.

use std::ops::Range;

use sfs_core::format::{FileKind, ROOT_INO};
use sfs_core::request::{Options, WriteMode};

use crate::case::fresh;
use crate::crash::Crash;
use crate::history::{History, Life};
use crate::model::operation::{Limits, Operation, choose};
use crate::model::random::Random;
use crate::model::reference::Reference;
use crate::model::rig::{FILE, tight_with};

/// Steps of a world.
pub const STEPS: u32 = 120;

/// Crash states of each epoch.
const STATES: usize = 3;

/// Percent of the blocks to be had that are taken before the first step, and at most later.
const FILL_PERCENT: u64 = 80;
const FULL_PERCENT: u64 = 90;

/// A sync follows a step once in so many.
const SYNC_ODDS: u64 = 4;

/// A step of background work follows once in so many.
const WORK_ODDS: u64 = 2;

/// The budgets of a world: one write buffer in eight is hardly more than a block a group.
fn options(random: &mut Random) -> Options {
    Options { write_buffer: random.pick(&[64, 128, 256]) << 10, ..tight_with(random.draw()) }
}

/// The life of world `seed`, with these of its steps.
pub(crate) fn record(seed: u64, steps: &[u32]) -> History {
    let (mut life, limits) = begin(seed);
    for step in steps {
        for operation in operations(seed, *step, &life.pair.reference, &limits) {
            life.step(&operation);
        }
    }
    life.end()
}

/// The operations of the steps, as they are chosen.
pub(crate) fn describe(seed: u64, steps: &[u32]) -> Vec<String> {
    let (mut life, limits) = begin(seed);
    let mut lines = Vec::new();
    for step in steps {
        for operation in operations(seed, *step, &life.pair.reference, &limits) {
            lines.push(format!("{step}: {:.160}", format!("{operation:?}")));
            life.step(&operation);
        }
    }
    lines
}

/// A new volume, filled.
fn begin(seed: u64) -> (Life, Limits) {
    let mut random = Random::new(seed);
    let image = fresh(32 + random.below(6));
    let mut life = Life::begin(image, options(&mut random), Reference::new(), 0);
    let blocks = life.pair.volume().space().free_blocks;
    for no in 0..4u8 {
        let name = vec![b'a' + no];
        life.step(&Operation::Make { parent: ROOT_INO, name, mode: FILE, rdev: 0 });
        let len = blocks * FILL_PERCENT / 400 * 4096;
        let bytes = random.bytes(len as usize);
        let ino = 16 + u64::from(no);
        life.step(&Operation::Write { ino, offset: 0, bytes, mode: WriteMode::default() });
    }
    life.step(&Operation::Reopen { close: random.one_in(2) });
    let bytes = blocks * FULL_PERCENT / 100 * 4096;
    (life, Limits { bytes, files: 30, reopens: true })
}

/// What a step does: an operation, and a sync of some file now and then.
fn operations(seed: u64, step: u32, reference: &Reference, limits: &Limits) -> Vec<Operation> {
    let mut random = Random::new(seed ^ u64::from(step + 1) << 32);
    let mut operations = vec![choose(random.draw(), reference, limits)];
    // A listing lets guests come and go, which are operations of their own.
    operations.retain(|operation| !matches!(operation, Operation::List { .. }));
    let files: Vec<u64> = reference
        .nodes
        .iter()
        .filter(|(_, node)| node.kind() == FileKind::Regular)
        .map(|(ino, _)| *ino)
        .collect();
    if random.one_in(SYNC_ODDS) && !files.is_empty() {
        operations.push(Operation::SyncFile { ino: random.pick(&files) });
    }
    if random.one_in(WORK_ODDS) {
        operations.push(Operation::Step);
    }
    operations
}

/// Random crash states of an epoch.
pub(crate) fn states_of(epoch: &Range<usize>, random: &mut Random) -> Vec<Crash> {
    (0..STATES).map(|_| Crash::random(epoch.clone(), random)).collect()
}
