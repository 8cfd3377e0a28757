//! What must be true of every crash state.
//!
//! Owns: the judgement of one state: by `sfs-fsck`, by mounting it, against the reference, by
//! writing to it and mounting it again; and the crashes of all that.
//! Promises: whatever the durability contract forbids is a [`Violation`].
//! Never: decides which states there are.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

use sfs_core::Error;
use sfs_core::format::{DataLayout, FileKind, ROOT_INO};
use sfs_core::request::{VolumeOptions, WriteMode};
use sfs_device::Event;
use sfs_fsck::{Finding, FsckError};

use crate::crash::{Crash, Fate, epochs};
use crate::history::{History, Life, State};
use crate::image::Image;
use crate::model::digest::{Digest, of_reference};
use crate::model::operation::Operation;
use crate::model::random::Random;
use crate::model::reference::Node;
use crate::model::rig::{FILE, tight_with};
use crate::version_1::{self, Choice};

/// Crashes of the recovery, and of what is written after it, that are looked at for each state.
const RECRASHES: usize = 1;

/// A state that the contract forbids.
#[derive(Debug)]
pub enum Violation {
    /// `sfs-fsck` finds something wrong.
    Findings(Vec<Finding>),
    /// `sfs-fsck` does not find a volume.
    NoVolume(FsckError),
    /// It does not mount.
    NoMount(Error),
    /// The usage table is not what the tree says.
    Usage,
    /// The namespace is that of no state which is allowed.
    Namespace {
        /// How many are.
        allowed: usize,
        /// Where it differs from the last of them.
        paths: Vec<String>,
    },
    /// A file has a length that it never had since its last sync.
    Length {
        /// The file.
        ino: u64,
        /// What was found.
        found: u64,
    },
    /// A block is what it never was since the last sync.
    Content {
        /// The file.
        ino: u64,
        /// Its block.
        block: u32,
    },
    /// A file that took the place of another, or was written anew, is empty.
    Empty {
        /// The file.
        ino: u64,
    },
    /// Errors were counted, or a failure noted, that there were not.
    Remembered(sfs_core::format::Remembered),
    /// The volume has a name that it must not have.
    Label(String),
    /// A program of version 1 takes the volume for one of its own, though it has changed.
    TakenByVersion1,
    /// A program of version 1 takes neither superblock for a sound or a newer one.
    LostToVersion1,
    /// Something panicked.
    Panic(String),
    /// A violation in a crash of the recovery.
    Again(Box<Violation>),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Findings(findings) => {
                f.write_str("sfs-fsck:")?;
                findings.iter().try_for_each(|finding| write!(f, " {finding};"))
            }
            Self::NoVolume(error) => write!(f, "sfs-fsck: {error}"),
            Self::NoMount(error) => write!(f, "it does not mount: {error}"),
            Self::Usage => f.write_str("the usage table is not what the tree says"),
            Self::Namespace { allowed, paths } => {
                write!(f, "the namespace is none of {allowed} states, by {}", paths.join(", "))
            }
            Self::Length { ino, found } => {
                write!(f, "file {ino} has {found} bytes, as it never had")
            }
            Self::Content { ino, block } => {
                write!(f, "block {block} of file {ino} is as it never was since the last sync")
            }
            Self::Empty { ino } => write!(f, "file {ino} is empty; its new data had been closed"),
            Self::Remembered(remembered) => write!(f, "errors that were none: {remembered:?}"),
            Self::Label(label) => write!(f, "the volume has the name {label:?}"),
            Self::TakenByVersion1 => {
                f.write_str("version 1 takes the volume for its own, though it has changed")
            }
            Self::LostToVersion1 => f.write_str("version 1 takes the superblocks for damaged"),
            Self::Panic(message) => write!(f, "panic: {message}"),
            Self::Again(violation) => write!(f, "in a crash of the recovery: {violation}"),
        }
    }
}

/// Judges what `crash` has left in `image`; gives how many states that were, crashes of the
/// recovery included.
///
/// # Errors
///
/// What the contract forbids.
pub fn check(
    data_layout: DataLayout,
    history: &History,
    crash: &Crash,
    image: Image,
    random: &mut Random,
) -> Result<u64, Violation> {
    let life = recover(data_layout, history, crash, image, random)?;
    let second = write_on(life, random)?;
    for _ in 0..RECRASHES {
        let crash = crash_of(&second, random);
        let image = image_of(&second, &crash);
        recover(data_layout, &second, &crash, image, random)
            .map_err(|violation| Violation::Again(Box::new(violation)))?;
    }
    Ok(1 + RECRASHES as u64)
}

/// Checks and mounts an image, and compares it with what it may be.
fn recover(
    data_layout: DataLayout,
    history: &History,
    crash: &Crash,
    image: Image,
    random: &mut Random,
) -> Result<Life, Violation> {
    check_upgrade(history, &image)?;
    check_volume(&image, true)?;
    let life = Life::recover(image, options(random), 200_000_000).map_err(Violation::NoMount)?;
    let found = &life.pair.reference;
    if !history.labels(crash).any(|label| label == found.label) {
        return Err(Violation::Label(found.label.as_str().to_owned()));
    }
    let states = find_namespace(history, crash, &of_reference(found))?;
    let tears = data_layout != DataLayout::Log && tears_data(history, crash);
    for (ino, node) in &found.nodes {
        if node.kind() == FileKind::Regular {
            check_content(history, crash, tears, *ino, node)?;
            if node.size() == 0 && !may_be_empty(crash, &states, *ino) {
                return Err(Violation::Empty { ino: *ino });
            }
        }
    }
    let remembered = life.pair.volume().remembered();
    if !remembered.is_empty() {
        return Err(Violation::Remembered(remembered));
    }
    match life.pair.volume().audit() {
        Ok(discrepancies) if discrepancies.is_empty() => Ok(life),
        Ok(_) => Err(Violation::Usage),
        Err(error) => Err(Violation::NoMount(error)),
    }
}

/// As long as a program of version 1 takes a volume for one of its own, nothing has changed but superblocks.
fn check_upgrade(history: &History, image: &Image) -> Result<(), Violation> {
    if version_1::choose(&history.base).is_newer() {
        return Ok(());
    }
    match version_1::choose(image) {
        Choice::Newer(_) => Ok(()),
        Choice::Damaged => Err(Violation::LostToVersion1),
        Choice::Volume(_) if version_1::is_untouched(&history.base, image) => Ok(()),
        Choice::Volume(_) => Err(Violation::TakenByVersion1),
    }
}

/// Every life has another policy.
fn options(random: &mut Random) -> VolumeOptions {
    tight_with(random.draw())
}

fn check_volume(image: &Image, data: bool) -> Result<(), Violation> {
    let mut go_on = |_| ControlFlow::Continue(());
    let options = sfs_fsck::CheckOptions { data };
    let report = sfs_fsck::check(image, &options, &mut go_on).map_err(Violation::NoVolume)?;
    match report.errors() {
        0 => Ok(()),
        _ => Err(Violation::Findings(report.findings.kept().to_vec())),
    }
}

/// The allowed states whose namespace is the one found, oldest first.
fn find_namespace<'a>(
    history: &'a History,
    crash: &Crash,
    found: &Digest,
) -> Result<Vec<&'a State>, Violation> {
    let allowed = &history.states[history.allowed(crash)];
    let same: Vec<&State> = allowed.iter().filter(|state| state.digest == *found).collect();
    if !same.is_empty() {
        return Ok(same);
    }
    let last = &allowed.last().expect("a state is allowed").digest;
    let differs = |path: &&Vec<u8>| found.get(*path) != last.get(*path);
    let all: BTreeSet<&Vec<u8>> = found.keys().chain(last.keys()).filter(differs).collect();
    let paths = all.into_iter().map(|path| path.escape_ascii().to_string()).collect();
    Err(Violation::Namespace { allowed: allowed.len(), paths })
}

/// Whether file `ino`, in a namespace like that of `states`, may be empty: it had been so without
/// taking the place of anything, or its new data had not been closed.
fn may_be_empty(crash: &Crash, states: &[&State], ino: u64) -> bool {
    let mut nodes =
        states.iter().filter_map(|state| Some((state, state.reference.node(ino).ok()?)));
    let had_been = |node: &Node| node.size() == 0 && !node.replaces;
    let closed = |(state, node): (&&State, &Node)| {
        node.replaces && node.size() > 0 && History::is_done(crash, state)
    };
    nodes.clone().any(|(_, node)| had_been(node)) || !nodes.next_back().is_some_and(closed)
}

/// Whether `crash` has torn a write of data that goes beside the log.
fn tears_data(history: &History, crash: &Crash) -> bool {
    let is_data = |event: &Event| matches!(event, Event::Write { stream, .. } if stream.0 > 0);
    let events = history.events[crash.epoch.clone()].iter().zip(&crash.fates);
    events.into_iter().any(|(event, fate)| is_data(event) && matches!(fate, Fate::Torn(_)))
}

/// Block by block, the content is that of some state since the last sync. Where data is overwritten in place,
/// and the crash `tears` some, a file that has changed since may have any bytes.
fn check_content(
    history: &History,
    crash: &Crash,
    tears: bool,
    ino: u64,
    found: &Node,
) -> Result<(), Violation> {
    let states = history.versions(crash, ino).iter();
    let mut versions: Vec<&Node> =
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
        let is_from = |version: &&Node| {
            version.content.size > start && version.content.block(block)[..len] == *bytes
        };
        if len > 0 && !versions.iter().any(is_from) {
            return Err(Violation::Content { ino, block });
        }
    }
    Ok(())
}

/// Writes to what was recovered, mounts it again, and compares; gives the whole second life.
fn write_on(mut life: Life, random: &mut Random) -> Result<History, Violation> {
    let regular = |life: &Life| -> Vec<u64> {
        let nodes = life.pair.reference.nodes.iter();
        nodes.filter(|(_, node)| node.kind() == FileKind::Regular).map(|(ino, _)| *ino).collect()
    };
    let files = regular(&life);
    let after = Operation::Make { parent: ROOT_INO, name: b"after".into(), mode: FILE, rdev: 0 };
    life.step(&after);
    let new = life.pair.reference.find(ROOT_INO, b"after").ok();
    let old = (!files.is_empty()).then(|| random.pick(&files));
    for (ino, offset) in old.map(|ino| (ino, 100)).into_iter().chain(new.map(|ino| (ino, 0))) {
        let bytes = random.bytes(9000);
        life.step(&Operation::Write { ino, offset, bytes, mode: WriteMode::default() });
    }
    match (random.below(4), new) {
        (0, Some(ino)) => life.step(&Operation::SyncFile { ino }),
        (1, _) => life.step(&Operation::Work { millis: 60_000 }),
        _ => {}
    }
    // Compares everything.
    life.step(&Operation::Reopen { close: random.one_in(2) });
    // The data has been read.
    check_volume(&life.image(), false)?;
    Ok(life.end())
}

/// Some crash in `history`.
fn crash_of(history: &History, random: &mut Random) -> Crash {
    let epochs = epochs(&history.events);
    let epoch = epochs[random.below(epochs.len() as u64) as usize].clone();
    Crash::random(epoch, random)
}

/// What `crash` leaves of `history`.
fn image_of(history: &History, crash: &Crash) -> Image {
    let image = history.base.clone();
    for event in &history.events[..crash.epoch.start] {
        crate::crash::apply(&image, event, crate::crash::Fate::Done);
    }
    crash.image(&image, &history.events)
}
