//! The check of one crash state against the durability contract.
//!
//! The state is checked by `sfs-fsck`, mounted, and compared with the states of the reference that the contract
//! allows. Then it is written to, remounted and compared again. A random crash of this second run is checked
//! as well. Everything that the contract forbids is a [`Violation`].

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{ChunkSummary, DataLayout, FileKind, Head, Key, ROOT_INO, SummaryEntry};
use sfs_core::request::{ScrubCounts, ScrubDamage, VolumeOptions, WriteMode};
use sfs_core::{Error, Volume};
use sfs_device::{Device, Event};
use sfs_fsck::{Finding, FsckError, RepairOptions};

use crate::crash::{Crash, RequestEffect, epochs};
use crate::image::CowImage;
use crate::model::digest::{Digest, of_reference};
use crate::model::fixture::{FILE, after, tight_with};
use crate::model::operation::VolumeOperation;
use crate::model::random::SplitMix64;
use crate::model::reference::ReferenceNode;
use crate::recorded_run::{RecordedRun, RunRecorder, RunState};
use crate::version_1::{self, OpenDecision};
use crate::wear_floor::WearFloor;

/// Number of crashes of the recovery, and of the writes after it, that are checked for each state.
const RECRASHES: usize = 1;

/// One in about this many recovered volumes is scrubbed.
const SCRUB_SHARE: u64 = 8;

/// One in this many states is also damaged and repaired.
const REPAIR_ODDS: u64 = 32;

/// Violation of the durability contract.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// `sfs-fsck` reports errors.
    #[error("sfs-fsck:{}", list(.0))]
    Findings(Vec<Finding>),
    /// `sfs-fsck` does not find a volume.
    #[error("sfs-fsck: {0}")]
    NoVolume(FsckError),
    /// The volume does not mount.
    #[error("mount failed: {0}")]
    NoMount(Error),
    /// A scrub of the recovered volume reports damage, or other numbers than the usage table.
    #[error("a scrub finds {damage:?}, and {live} blocks of data instead of {expected}")]
    Scrub {
        /// The damage.
        damage: Vec<ScrubDamage>,
        /// Number of blocks of data that were read.
        live: u64,
        /// Number of live blocks of data in the usage table.
        expected: u64,
    },
    /// The usage table disagrees with the tree.
    #[error("the usage table disagrees with the tree")]
    Usage,
    /// The namespace is none of the allowed ones.
    #[error("the namespace is none of {allowed} allowed states, at {}", paths.join(", "))]
    Namespace {
        /// Number of allowed states.
        allowed: usize,
        /// Paths that differ from the last allowed state.
        paths: Vec<String>,
    },
    /// A file has a length that it never had since its last sync.
    #[error("file {ino} has {found} bytes, a length that it never had since the last sync")]
    Length {
        /// Inode number of the file.
        ino: u64,
        /// Length of the file in bytes.
        found: u64,
    },
    /// A block has content that it never had since the last sync.
    #[error("block {block} of file {ino} has content that it never had since the last sync")]
    Content {
        /// Inode number of the file.
        ino: u64,
        /// Number of the block in the file.
        block: u32,
    },
    /// A file has a time of access that it never had since its last sync.
    #[error("file {ino} has a time of access that it never had since the last sync")]
    AccessTime {
        /// Inode number of the file.
        ino: u64,
    },
    /// A file that replaced another, or was truncated and rewritten, is empty.
    #[error("file {ino} is empty, but its new data had been closed")]
    Empty {
        /// Inode number of the file.
        ino: u64,
    },
    /// The volume recorded errors or a failure that did not happen.
    #[error("recorded errors that did not happen: {0:?}")]
    Remembered(sfs_core::format::Remembered),
    /// The volume has a label that the run cannot have left.
    #[error("the volume has the wrong label {0:?}")]
    Label(String),
    /// The volume has a number of segments that the run cannot have left.
    #[error("the volume has {0} segments, which it never had since the last operation")]
    Size(u32),
    /// The wear ledger or the erase cycles have less than the last durable checkpoint.
    #[error("the wear has {0}")]
    Wear(String),
    /// After a repair they have less than before.
    #[error("after a repair the wear has {0}")]
    WearAfterRepair(String),
    /// A version 1 program uses the volume, although the volume has changed.
    #[error("version 1 accepts the volume, although it has changed")]
    TakenByVersion1,
    /// A version 1 program finds no superblock that is valid, or of a newer version.
    #[error("version 1 finds the superblocks damaged")]
    LostToVersion1,
    /// The core or the check panicked.
    #[error("panic: {0}")]
    Panic(String),
    /// A crash of the recovery violates the contract.
    #[error("in a crash of the recovery: {0}")]
    Again(Box<Violation>),
}

fn list(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!(" {finding};")).collect()
}

/// Checks the state that `crash` left in `image`, and a crash of its recovery.
///
/// Returns the number of states checked.
///
/// # Errors
///
/// The first violation of the contract.
pub fn check(
    data_layout: DataLayout,
    recorded: &RecordedRun,
    crash: &Crash,
    image: CowImage,
    random: &mut SplitMix64,
) -> Result<u64, Violation> {
    let recorder = recover(data_layout, recorded, crash, image, random)?;
    let second = write_on(recorder, random)?;
    for _ in 0..RECRASHES {
        let crash = crash_of(&second, random);
        let image = image_of(&second, &crash);
        recover(data_layout, &second, &crash, image, random)
            .map_err(|violation| Violation::Again(Box::new(violation)))?;
    }
    Ok(1 + RECRASHES as u64)
}

/// Checks and mounts an image, and compares it with the allowed states.
fn recover(
    data_layout: DataLayout,
    recorded: &RecordedRun,
    crash: &Crash,
    image: CowImage,
    random: &mut SplitMix64,
) -> Result<RunRecorder, Violation> {
    check_upgrade(recorded, &image)?;
    check_volume(&image, true)?;
    let recorder =
        RunRecorder::recover(image, options(random), 200_000_000).map_err(Violation::NoMount)?;
    let found = &recorder.pair.reference;
    if !recorded.labels(crash).any(|label| label == found.label) {
        return Err(Violation::Label(found.label.as_str().to_owned()));
    }
    let segments = recorder.pair.volume().layout().segment_count;
    if !recorded.sizes(crash).any(|size| size == segments) {
        return Err(Violation::Size(segments));
    }
    let states = find_namespace(recorded, crash, &of_reference(found))?;
    let tears = data_layout != DataLayout::Log && tears_data(recorded, crash);
    for (ino, node) in &found.nodes {
        if node.kind() == FileKind::Regular {
            check_content(recorded, crash, tears, *ino, node)?;
            check_access_time(recorded, crash, *ino, node)?;
            if node.size() == 0 && !may_be_empty(crash, &states, *ino) {
                return Err(Violation::Empty { ino: *ino });
            }
        }
    }
    if recorder.pair.volume().live_blocks().is_multiple_of(SCRUB_SHARE) {
        scrub(recorder.pair.volume())?;
    }
    let remembered = recorder.pair.volume().remembered();
    if !remembered.is_empty() {
        return Err(Violation::Remembered(remembered));
    }
    let floor = recorded.wear_floor(crash);
    if let Some(less) = floor.missing_in(&WearFloor::of(recorder.pair.volume())) {
        return Err(Violation::Wear(less));
    }
    match recorder.pair.volume().audit() {
        Ok(discrepancies) if discrepancies.is_empty() => Ok(recorder),
        Ok(_) => Err(Violation::Usage),
        Err(error) => Err(Violation::NoMount(error)),
    }
}

/// Scrubs a volume that was just recovered: nothing is damaged, and the scrub reads each block of data that the usage table counts.
fn scrub(volume: &Volume) -> Result<(), Violation> {
    let mut scrub = volume.begin_scrub(Key::MIN).map_err(Violation::NoMount)?;
    let (mut counts, mut damage) = (ScrubCounts::default(), Vec::new());
    while !scrub.is_done() {
        let step = volume.scrub_step(&mut scrub);
        counts.add(&step.counts);
        damage.extend(step.damage);
    }
    let segments = volume.segments(0, usize::MAX).segments.into_iter();
    let of_data =
        segments.filter(|segment| segment.head.is_some_and(|head| head != Head::METADATA));
    let expected = of_data.map(|segment| u64::from(segment.live_blocks)).sum();
    let live = counts.data_blocks + counts.unverified_blocks;
    if damage.is_empty() && live == expected {
        return Ok(());
    }
    Err(Violation::Scrub { damage, live, expected })
}

/// Checks that only superblocks have changed as long as a version 1 program accepts the volume.
fn check_upgrade(recorded: &RecordedRun, image: &CowImage) -> Result<(), Violation> {
    // On a device that is larger than the volume, a version 1 program may find no superblock before the run either.
    if !matches!(version_1::choose(&recorded.base), OpenDecision::Volume(_)) {
        return Ok(());
    }
    match version_1::choose(image) {
        OpenDecision::Newer(_) => Ok(()),
        // The backup of a shrunk volume is elsewhere. The checks and the mount that follow find it.
        OpenDecision::Damaged if version_1::is_last_block_zero(image) => Ok(()),
        OpenDecision::Damaged => Err(Violation::LostToVersion1),
        OpenDecision::Volume(_) if version_1::is_untouched(&recorded.base, image) => Ok(()),
        OpenDecision::Volume(_) => Err(Violation::TakenByVersion1),
    }
}

/// Draws the options of a mount, with a random policy.
fn options(random: &mut SplitMix64) -> VolumeOptions {
    tight_with(random.draw())
}

fn check_volume(image: &CowImage, data: bool) -> Result<(), Violation> {
    let mut proceed = |_| ControlFlow::Continue(());
    let options = sfs_fsck::CheckOptions { data };
    let report = sfs_fsck::check(image, &options, &mut proceed).map_err(Violation::NoVolume)?;
    match report.errors() {
        0 => Ok(()),
        _ => Err(Violation::Findings(report.findings.kept().to_vec())),
    }
}

/// Returns the allowed states whose namespace is the one found, oldest first.
fn find_namespace<'a>(
    recorded: &'a RecordedRun,
    crash: &Crash,
    found: &Digest,
) -> Result<Vec<&'a RunState>, Violation> {
    let allowed = &recorded.states[recorded.allowed(crash)];
    let same: Vec<&RunState> = allowed.iter().filter(|state| state.digest == *found).collect();
    if !same.is_empty() {
        return Ok(same);
    }
    let last = &allowed.last().expect("a state is allowed").digest;
    let differs = |path: &&Vec<u8>| found.get(*path) != last.get(*path);
    let all: BTreeSet<&Vec<u8>> = found.keys().chain(last.keys()).filter(differs).collect();
    let paths = all.into_iter().map(|path| path.escape_ascii().to_string()).collect();
    Err(Violation::Namespace { allowed: allowed.len(), paths })
}

/// Returns whether file `ino` may be empty in the namespace of `states`.
///
/// The file may be empty if it was so in one of the states without replacing another file, or if its new data
/// was not closed before the crash.
fn may_be_empty(crash: &Crash, states: &[&RunState], ino: u64) -> bool {
    let mut nodes =
        states.iter().filter_map(|state| Some((state, state.reference.node(ino).ok()?)));
    let was_empty = |node: &ReferenceNode| node.size() == 0 && !node.replaces;
    let closed = |(state, node): (&&RunState, &ReferenceNode)| {
        node.replaces && node.size() > 0 && RecordedRun::is_done(crash, state)
    };
    nodes.clone().any(|(_, node)| was_empty(node)) || !nodes.next_back().is_some_and(closed)
}

/// Returns whether `crash` tore a write of data in place.
fn tears_data(recorded: &RecordedRun, crash: &Crash) -> bool {
    let is_data = |event: &Event| matches!(event, Event::Write { stream, .. } if stream.0 > 0);
    let events = recorded.events[crash.epoch.clone()].iter().zip(&crash.effects);
    events
        .into_iter()
        .any(|(event, effect)| is_data(event) && matches!(effect, RequestEffect::Torn(_)))
}

/// Checks that each block has the content of some state since the last sync.
///
/// If the crash `tears` writes in place, a file that changed since the last sync may have any content.
fn check_content(
    recorded: &RecordedRun,
    crash: &Crash,
    tears: bool,
    ino: u64,
    found: &ReferenceNode,
) -> Result<(), Violation> {
    let states = recorded.versions(crash, ino).iter();
    let mut versions: Vec<&ReferenceNode> =
        states.filter_map(|state| state.reference.node(ino).ok()).collect();
    versions.dedup_by(|a, b| std::ptr::eq(*a, *b));
    let size = found.content.size;
    let sizes = versions.iter().map(|version| version.content.size);
    let (least, most) = (sizes.clone().min(), sizes.max());
    if least.is_none_or(|least| size < least) || most.is_none_or(|most| size > most) {
        return Err(Violation::Length { ino, found: size });
    }
    let mut blocks: BTreeSet<u32> = found.content.blocks.keys().copied().collect();
    blocks.extend(versions.iter().flat_map(|version| version.content.blocks.keys()));
    if tears && versions.len() > 1 {
        return Ok(());
    }
    for block in blocks {
        let start = u64::from(block) * 4096;
        let len = size.saturating_sub(start).min(4096) as usize;
        let bytes = &found.content.block(block)[..len];
        let is_from = |version: &&ReferenceNode| {
            version.content.size > start && version.content.block(block)[..len] == *bytes
        };
        if len > 0 && !versions.iter().any(is_from) {
            return Err(Violation::Content { ino, block });
        }
    }
    Ok(())
}

/// Checks that the time of access is that of some state since the last sync.
fn check_access_time(
    recorded: &RecordedRun,
    crash: &Crash,
    ino: u64,
    found: &ReferenceNode,
) -> Result<(), Violation> {
    let mut states = recorded.access_times(crash, ino).iter();
    let had =
        |state: &RunState| state.reference.node(ino).is_ok_and(|node| node.atime == found.atime);
    if states.any(had) { Ok(()) } else { Err(Violation::AccessTime { ino }) }
}

/// Writes to the recovered volume, remounts it and compares; returns the recording of this second run.
fn write_on(mut recorder: RunRecorder, random: &mut SplitMix64) -> Result<RecordedRun, Violation> {
    let regular = |recorder: &RunRecorder| -> Vec<u64> {
        let nodes = recorder.pair.reference.nodes.iter();
        nodes.filter(|(_, node)| node.kind() == FileKind::Regular).map(|(ino, _)| *ino).collect()
    };
    let files = regular(&recorder);
    let after =
        VolumeOperation::Make { parent: ROOT_INO, name: b"after".into(), mode: FILE, rdev: 0 };
    recorder.step(&after);
    let new = recorder.pair.reference.find(ROOT_INO, b"after").ok();
    let old = (!files.is_empty()).then(|| random.pick(&files));
    for (ino, offset) in old.map(|ino| (ino, 100)).into_iter().chain(new.map(|ino| (ino, 0))) {
        let bytes = random.bytes(9000);
        recorder.step(&VolumeOperation::Write { ino, offset, bytes, mode: WriteMode::default() });
    }
    match (random.below(4), new) {
        (0, Some(ino)) => recorder.step(&VolumeOperation::SyncFile { ino }),
        (1, _) => recorder.step(&VolumeOperation::Work { millis: 310_000 }),
        _ => {}
    }
    // A remount compares everything with the reference.
    recorder.step(&VolumeOperation::Reopen { close: random.one_in(2) });
    // The remount has read the data, so fsck checks the metadata only.
    check_volume(&recorder.image(), false)?;
    // Of its own, so that the other choices stay as they are.
    if random.clone().one_in(REPAIR_ODDS) {
        check_repair(&recorder)?;
    }
    Ok(recorder.end())
}

/// Damages a block of data in a copy of the closed volume, repairs it, and checks that the repair keeps the wear.
fn check_repair(recorder: &RunRecorder) -> Result<(), Violation> {
    let image = recorder.image();
    let volume = recorder.pair.volume();
    let (id, layout) = (volume.superblock().volume(), volume.layout());
    let floor = match Volume::open(Arc::new(image.clone()), read_only(), after(0)) {
        Ok(volume) => WearFloor::of(&volume),
        Err(error) => return Err(Violation::NoMount(error)),
    };
    for segment in 0..layout.segment_count {
        let at = layout.segment_address(segment);
        let chunk = ChunkSummary::decode(&image.block(at)[..], id, at);
        let is_data = |entry: &SummaryEntry| matches!(entry, SummaryEntry::Data { .. });
        let Ok(position) = chunk.map(|chunk| chunk.entries.iter().position(is_data)) else {
            continue;
        };
        let Some(position) = position else { continue };
        let damaged = image.clone();
        damaged.edit(at + 1 + position as u64, |bytes| bytes[100] ^= 1);
        if check_volume(&damaged, true).is_ok() {
            continue;
        }
        let device: Arc<dyn Device> = Arc::new(damaged.clone());
        let options = RepairOptions { data: true, preen: false, now: after(0) };
        let mut proceed = |_| ControlFlow::Continue(());
        sfs_fsck::repair(&device, &options, &mut proceed).map_err(Violation::NoVolume)?;
        let repaired = Volume::open(device, read_only(), after(0)).map_err(Violation::NoMount)?;
        let less = floor.missing_in(&WearFloor::of(&repaired));
        return less.map_or(Ok(()), |less| Err(Violation::WearAfterRepair(less)));
    }
    Ok(())
}

fn read_only() -> VolumeOptions {
    VolumeOptions { read_only: true, ..VolumeOptions::default() }
}

/// Draws a crash of a recorded run.
fn crash_of(recorded: &RecordedRun, random: &mut SplitMix64) -> Crash {
    let epochs = epochs(&recorded.events);
    let epoch = epochs[random.below(epochs.len() as u64) as usize].clone();
    Crash::random(epoch, random)
}

/// Makes the image that `crash` leaves of a recorded run.
fn image_of(recorded: &RecordedRun, crash: &Crash) -> CowImage {
    let image = recorded.base.clone();
    for event in &recorded.events[..crash.epoch.start] {
        crate::crash::apply(&image, event, crate::crash::RequestEffect::Done);
    }
    crash.image(&image, &recorded.events)
}
