//! Random scenarios: long runs on tiny, nearly full volumes.
//!
//! A scenario fills a new volume, then takes numbered steps of random operations, with syncs of single files
//! and background work between them. The log wraps and the cleaner runs all the time. Each step draws from a
//! generator of its own, and chooses from the files that exist. Any subset of the steps is therefore a valid
//! scenario, which shrinking needs.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use sfs_core::format::{DataLayout, FIRST_INO, FileKind, ROOT_INO};
use sfs_core::request::{VolumeOptions, WriteMode};

use crate::crash::Crash;
use crate::empty_volume::{empty_volume, empty_volume_with_room};
use crate::model::fixture::{FILE, tight_with};
use crate::model::operation::{RunLimits, VolumeOperation, choose};
use crate::model::random::SplitMix64;
use crate::model::reference::Reference;
use crate::panics::catch;
use crate::recorded_run::{RecordedRun, RunRecorder};
use crate::version_1;

/// One in this many scenarios begins with a volume of version 1.
const UPGRADE_SHARE: u64 = 4;

/// Number of steps of a scenario.
pub const STEPS: u32 = 120;

/// Number of crash states of each epoch.
const STATES: usize = 3;

/// Percentage of the initially free blocks below which a step also appends to a file.
const FILL_PERCENT: u64 = 88;

/// Percentage of the initially free blocks beyond which most steps free space.
const FULL_PERCENT: u64 = 94;

/// Number of files that fill the volume at first, so many that the deletion of one hardly matters.
const FILES: u64 = 20;

/// Maximum length of an appending write in bytes, a twentieth of the smallest volume.
const APPEND_LEN_MAX: u64 = 80_000;

/// One in this many steps is followed by a sync of a file.
const SYNC_ODDS: u64 = 4;

/// One in this many steps is followed by a step of background work.
const WORK_ODDS: u64 = 2;

/// One in this many operations is followed by the announcement of a sync.
const ANNOUNCE_ODDS: u64 = 4;

/// Maximum number of blocks of a batch of the thread for the log.
const BATCH_BLOCKS_MAX: u64 = 24;

/// Returns whether the log of a scenario has a thread.
fn has_log_thread(seed: u64) -> bool {
    // Independent of the choice of version 1, which takes the lowest bits.
    SplitMix64::new(!seed).one_in(2)
}

/// Draws the options of a scenario; the smallest write buffer has hardly more than a block for each group.
fn options(random: &mut SplitMix64) -> VolumeOptions {
    VolumeOptions { write_buffer: random.pick(&[64, 128, 256]) << 10, ..tight_with(random.draw()) }
}

/// Runs the given steps of the scenario of `seed`, and returns the recorded run.
pub(crate) fn record(data_layout: DataLayout, seed: u64, steps: &[u32]) -> RecordedRun {
    let (mut recorder, limits) = filled_volume(data_layout, seed);
    steps.iter().for_each(|step| take_step(&mut recorder, &limits, seed, *step, |_| {}));
    recorder.end()
}

/// Returns a line for each operation of the steps. The lines end with the message of the first panic.
pub(crate) fn describe(data_layout: DataLayout, seed: u64, steps: &[u32]) -> Vec<String> {
    let mut lines = Vec::new();
    let outcome = catch(|| {
        let (mut recorder, limits) = filled_volume(data_layout, seed);
        for step in steps {
            take_step(&mut recorder, &limits, seed, *step, |operation| {
                lines.push(format!("{step}: {:.160}", format!("{operation:?}")));
            });
        }
    });
    lines.extend(outcome.err());
    lines
}

/// Makes and fills a new volume.
fn filled_volume(data_layout: DataLayout, seed: u64) -> (RunRecorder, RunLimits) {
    let mut random = SplitMix64::new(seed);
    let segments = 32 + random.below(6);
    // A program of version 1 looks for the backup in the last block of the device only.
    let image = if seed.is_multiple_of(UPGRADE_SHARE) {
        let image = empty_volume(data_layout, segments);
        version_1::downgrade(&image);
        image
    } else {
        empty_volume_with_room(data_layout, segments)
    };
    let options = VolumeOptions { has_log_thread: has_log_thread(seed), ..options(&mut random) };
    let mut recorder = RunRecorder::begin(image, options, Reference::new(), 0);
    let blocks = recorder.pair.volume().space().free_blocks;
    let bytes = |percent: u64| blocks * percent / 100 * 4096;
    for no in 0..FILES {
        let name = format!("fill-{no}").into_bytes();
        recorder.step(&VolumeOperation::Make { parent: ROOT_INO, name, mode: FILE, rdev: 0 });
        let bytes = random.bytes((bytes(FILL_PERCENT) / FILES) as usize);
        let ino = FIRST_INO + no;
        recorder.step(&VolumeOperation::Write {
            ino,
            offset: 0,
            bytes,
            mode: WriteMode::default(),
        });
    }
    recorder.step(&VolumeOperation::Reopen { close: random.one_in(2) });
    (recorder, RunLimits { bytes: bytes(FULL_PERCENT), files: 60, reopens: true })
}

/// Chooses an append to some file if the files take less than [`FILL_PERCENT`] of the initially free blocks.
fn refill(
    random: &mut SplitMix64,
    reference: &Reference,
    limits: &RunLimits,
) -> Option<VolumeOperation> {
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
    Some(VolumeOperation::Write { ino, offset, bytes, mode: WriteMode::default() })
}

fn regular_files(reference: &Reference) -> Vec<u64> {
    let nodes = reference.nodes.iter();
    nodes.filter(|(_, node)| node.kind() == FileKind::Regular).map(|(ino, _)| *ino).collect()
}

/// Takes a step: a random operation, and possibly an append, a sync of a file, and background work.
///
/// Calls `before` with each operation, and each step of the thread for the log, before it is performed. Each operation is chosen after the previous one
/// was performed, so that no deleted file is written.
fn take_step(
    recorder: &mut RunRecorder,
    limits: &RunLimits,
    seed: u64,
    step: u32,
    mut before: impl FnMut(&dyn Debug),
) {
    let mut random = SplitMix64::new(seed ^ u64::from(step + 1) << 32);
    // A generator of its own, so that the operations are those of a log without a thread.
    let mut log_random = SplitMix64::new(!seed ^ u64::from(step + 1) << 32);
    let mut perform = |recorder: &mut RunRecorder, operation: Option<VolumeOperation>| {
        if let Some(operation) = operation {
            if has_log_thread(seed) {
                run_log_thread(recorder, &operation, &mut log_random, &mut before);
            }
            before(&operation);
            recorder.step(&operation);
        }
    };
    let chosen = choose(random.draw(), &recorder.pair.reference, limits);
    // A listing is left out, because it creates and deletes files, which are operations of their own.
    perform(
        recorder,
        Some(chosen).filter(|chosen| !matches!(chosen, VolumeOperation::List { .. })),
    );
    let refill = refill(&mut random, &recorder.pair.reference, limits);
    perform(recorder, refill);
    let files = regular_files(&recorder.pair.reference);
    let synced = (random.one_in(SYNC_ODDS) && !files.is_empty()).then(|| random.pick(&files));
    let data_only = random.one_in(2);
    let sync = |ino| match data_only {
        true => VolumeOperation::SyncData { ino },
        false => VolumeOperation::SyncFile { ino },
    };
    perform(recorder, synced.map(sync));
    let works = random.one_in(WORK_ODDS);
    perform(recorder, works.then_some(VolumeOperation::Step));
}

/// Does what the thread for the log, and a queue of syncs that wait, may have done before `operation`: any number of steps, and
/// the announcement of a sync. A write may find room or not.
fn run_log_thread(
    recorder: &mut RunRecorder,
    operation: &VolumeOperation,
    random: &mut SplitMix64,
    before: &mut impl FnMut(&dyn Debug),
) {
    let blocks = 1 + random.below(BATCH_BLOCKS_MAX) as usize;
    recorder.pair.volume().bound_batches(blocks);
    while recorder.pair.volume().is_log_work_due() && !random.one_in(3) {
        before(&format_args!("LogStep {{ blocks: {blocks} }}"));
        recorder.log_step();
    }
    if let VolumeOperation::Write { ino, bytes, .. } = operation {
        let waited = Duration::from_secs(60 * random.below(2));
        let has_room = recorder.pair.volume().has_write_room(*ino, bytes.len(), waited);
        if !has_room && recorder.pair.volume().is_log_work_due() {
            before(&format_args!("LogStep {{ blocks: {blocks} }}, for room"));
            recorder.log_step();
        }
    }
    let files = regular_files(&recorder.pair.reference);
    if random.one_in(ANNOUNCE_ODDS) && !files.is_empty() {
        let ino = random.pick(&files);
        before(&format_args!("AnnounceSync {{ ino: {ino} }}"));
        recorder.pair.volume().announce_sync(ino);
    }
}

/// Draws the crash states of an epoch.
pub(crate) fn states_of(epoch: &Range<usize>, random: &mut SplitMix64) -> Vec<Crash> {
    (0..STATES).map(|_| Crash::random(epoch.clone(), random)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In this scenario, one step both deletes a file and appends to a file.
    #[test]
    fn a_scenario_never_writes_a_deleted_file() {
        const SEED: u64 = 16_386_432_822_165_503_073;
        let steps: Vec<u32> = (0..STEPS).collect();
        let lines = describe(DataLayout::Log, SEED, &steps);
        let does = |step: u32, operation: &str| {
            lines.iter().any(|line| line.starts_with(&format!("{step}: {operation}")))
        };
        assert!(steps.iter().any(|step| does(*step, "Unlink") && does(*step, "Write")));
        record(DataLayout::Log, SEED, &steps);
    }

    /// The median utilization of each scenario is at least the target, and at most a tenth of its steps leave
    /// the volume much emptier.
    #[test]
    fn scenarios_are_nearly_full_and_cleaned_all_the_time() {
        let data_layout = DataLayout::Log;
        for seed in 0..8 {
            let (mut recorder, limits) = filled_volume(data_layout, seed);
            let mut full: Vec<u64> = Vec::new();
            for step in 0..STEPS {
                take_step(&mut recorder, &limits, seed, step, |_| {});
                let space = recorder.pair.volume().space();
                full.push(100 - 100 * space.free_blocks / space.total_blocks);
            }
            full.sort_unstable();
            let (tenth, median) = (full[full.len() / 10], full[full.len() / 2]);
            assert!((FILL_PERCENT..=97).contains(&median), "scenario {seed}: median {median}%");
            assert!(tenth >= 80, "scenario {seed}: first decile {tenth}%");
            let cleaned = recorder.pair.cleaned();
            assert!(cleaned >= 20, "scenario {seed}: {cleaned} segments cleaned");
        }
    }
}
