//! A repair from beginning to end.
//!
//! Owns: what is tried in which order, and when to give up.
//! Promises: nothing is written before a survey of what will be written finds nothing; what was written
//! is checked again.
//! Never: asks; whoever calls has been asked.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{CheckpointRecord, FORMAT_VERSION, Key, ROOT_INO, Remembered, Timestamp};
use sfs_device::Device;

use crate::check::Examined;
use crate::origin::Origin;
use crate::progress::{Listener, Progress};
use crate::remedy::{Plan, Remedies};
use crate::rewrite::{Draft, clear_slot, write_superblocks};
use crate::salvage::fill;
use crate::scan::Scan;
use crate::survey::{Expected, Survey};
use crate::view::{Root, View};
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError, Loss, Report, remembered};

/// Rounds of remedies after which a repair gives up. Each makes at most a few things wrong elsewhere.
const ROUNDS_MAX: usize = 64;

/// Passes over a volume that is so full that copies have to wait for each other.
const PASSES_MAX: usize = 256;

/// What to repair.
#[derive(Clone, Copy, Debug)]
pub struct Repair {
    /// Read all data, too, and make holes of blocks whose content is wrong.
    pub data: bool,
    /// Only if nothing is lost by it.
    pub preen: bool,
    /// The time.
    pub now: Timestamp,
}

/// What a repair has done.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// What was found.
    pub before: Report,
    /// What was found afterwards, if anything was written.
    pub after: Option<Report>,
    /// What could not be saved, each once.
    pub losses: Vec<Loss>,
    /// The errors that the volume remembers still, if nothing wrong is left on it.
    pub remembered: Option<Remembered>,
}

impl Repaired {
    /// Errors that are left.
    pub fn errors_left(&self) -> u64 {
        self.after.as_ref().unwrap_or(&self.before).errors()
    }
}

/// Whether the volume on `device` was unmounted, remembers no errors, and nothing is wrong with what can be
/// seen in constant time: superblocks, checkpoints, and the nodes that lead to the root directory, without
/// which a mount fails and has nowhere to remember why.
///
/// # Errors
///
/// As those of [`crate::check`].
pub fn is_unmounted(device: &dyn Device) -> Result<bool, FsckError> {
    let mut findings = Findings::default();
    let volume = Volume::open(device, &mut findings)?;
    let record = volume.checkpoint(&mut findings);
    let is_sound = findings.errors() == 0 && !mends_superblock(&findings);
    let is_well = |record: CheckpointRecord| {
        record.unmounted
            && Remembered::of(&volume.superblock, &record).is_empty()
            && View::new(&volume, Some((record.root(), record.root_level)))
                .get(&Key::inode(ROOT_INO))
                .is_some()
    };
    Ok(is_sound && record.is_some_and(is_well))
}

/// Repairs the volume on `device`, which nobody else must be using. When nothing wrong is left, it forgets
/// the errors that it remembers, those of data only if all data was read.
///
/// # Errors
///
/// If there is nothing to repair, the device fails, there is no room, or the caller does not want to go
/// on: the volume is as it was then, or as an earlier pass of the repair has left it.
pub fn repair(
    device: &Arc<dyn Device>,
    options: &Repair,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Repaired, FsckError> {
    let mut repaired = mend(device, options, progress)?;
    if repaired.errors_left() == 0 {
        repaired.remembered = Some(remembered::forget(&**device, options.data)?);
    }
    Ok(repaired)
}

/// Repairs what is damaged, in as many passes as it takes.
fn mend(
    device: &Arc<dyn Device>,
    options: &Repair,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Repaired, FsckError> {
    let mut losses = BTreeSet::new();
    let mut options = *options;
    let first = pass(device, &options, &mut losses, progress)?;
    let data = std::mem::take(&mut options.data);
    if !first.has_written {
        return Ok(Repaired { before: first.before, ..Repaired::default() });
    }
    // What was written is gone through to the end: nobody could say any more that nothing was changed.
    let told = &mut |at| {
        let _ = progress(at);
        ControlFlow::Continue(())
    };
    let mut copies = first.copies;
    for _ in 0..PASSES_MAX {
        if copies.postponed == 0 {
            break;
        }
        copies = match pass(device, &options, &mut losses, told) {
            Ok(Pass { copies, .. }) if copies.made > 0 => copies,
            // No more room is made; what is left is found below.
            Ok(_) | Err(FsckError::NoRoom) => break,
            Err(error) => return Err(error),
        };
    }
    let losses: Vec<Loss> = losses.into_iter().collect();
    let after = look_again(&**device, data, &losses, told)?;
    Ok(Repaired { before: first.before, after: Some(after), losses, remembered: None })
}

/// What a pass over the volume has found and done.
struct Pass {
    before: Report,
    has_written: bool,
    copies: Copies,
}

/// Blocks that need another place.
#[derive(Clone, Copy, Default)]
struct Copies {
    made: usize,
    /// They wait for the room that the others have left.
    postponed: usize,
}

/// Looks for damage, and repairs as much as there is room for.
fn pass(
    device: &Arc<dyn Device>,
    options: &Repair,
    losses: &mut BTreeSet<Loss>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Pass, FsckError> {
    let untouched = |before| Pass { before, has_written: false, copies: Copies::default() };
    let mut findings = Findings::default();
    let volume = Volume::open(&**device, &mut findings)?;
    let origin = Origin::find(&volume, &mut findings, progress)?;
    let misses_checkpoint = Volume::misses_checkpoint(&findings);
    let mut is_lost = origin.as_ref().is_none_or(|origin| !origin.is_whole);
    if is_lost && options.preen {
        return Ok(untouched(Report { findings, ..Report::default() }));
    }
    let origin = origin.map_or_else(|| Origin::search(&volume, progress), Ok)?;
    let mut root = origin.root;
    let mut examined = Examined::examine(&volume, origin, options.data, progress)?;
    let before = examined.report(findings, HashSet::new());
    let is_refused = options.preen && !before.findings.kept().iter().all(Finding::is_safe);
    let mends_superblock = mends_superblock(&before.findings);
    if before.errors() == 0 && !mends_superblock || is_refused {
        return Ok(untouched(before));
    }
    refuse_writing(&volume, &examined.record)?;
    if (is_lost || misses_checkpoint && !examined.survey.is_complete())
        && let Some(origin) = Origin::past_end(&volume, &examined, progress)?
    {
        (root, is_lost) = (None, true);
        examined = Examined::examine(&volume, origin, options.data, progress)?;
    }
    let is_other = |finding: &Finding| finding.is_error() && !finding.is_of_superblock();
    let mut copies = Copies::default();
    if is_lost || before.findings.kept().iter().any(is_other) {
        let mut work = Work::new(examined, options, root, progress)?;
        work.make_whole(options, progress)?;
        // A program of version 1 must not find what follows under a superblock of its own.
        if mends_superblock || volume.superblock.version < FORMAT_VERSION {
            write_superblocks(&volume)?;
        }
        copies = work.write(device, progress)?;
        losses.extend(work.plan.losses);
        // The new checkpoint may be in the other slot, and have a lower number than what cannot be.
        let newest = Volume::open(&**device, &mut Findings::default())?;
        let mut left = Findings::default();
        newest.checkpoint(&mut left);
        for slot in left.kept().iter().filter_map(impossible_slot) {
            clear_slot(&**device, &volume.superblock, slot)?;
        }
    } else if mends_superblock {
        write_superblocks(&volume)?;
    }
    Ok(Pass { before, has_written: true, copies })
}

/// Checks what was written, and finds where the files of `losses` are now.
fn look_again(
    device: &dyn Device,
    data: bool,
    losses: &[Loss],
    listener: Listener<'_>,
) -> Result<Report, FsckError> {
    let mut findings = Findings::default();
    let volume = Volume::open(device, &mut findings)?;
    let Some(origin) = Origin::find(&volume, &mut findings, listener)? else {
        return Ok(Report { findings, ..Report::default() });
    };
    let examined = Examined::examine(&volume, origin, data, listener)?;
    Ok(examined.report(findings, losses.iter().filter_map(Loss::ino).collect()))
}

fn impossible_slot(finding: &Finding) -> Option<u8> {
    match *finding {
        Finding::CheckpointCounts { slot } | Finding::CheckpointNumber { slot, .. } => Some(slot),
        _ => None,
    }
}

fn mends_superblock(findings: &Findings) -> bool {
    findings.kept().iter().any(Finding::is_of_superblock)
}

/// A volume with something that a writer has to know is left alone.
fn refuse_writing(volume: &Volume<'_>, record: &CheckpointRecord) -> Result<(), FsckError> {
    let of_superblock = volume.superblock.write_incompatibility();
    match of_superblock.or(record.extensions.incompatibility(true)) {
        Some(reason) => Err(FsckError::Incompatible(reason)),
        None => Ok(()),
    }
}

/// A repair under way.
struct Work<'a> {
    examined: Examined<'a>,
    plan: Plan,
    /// Blocks that were salvaged from.
    sources: BTreeSet<u64>,
    /// Higher than any chunk has.
    next_sequence: u64,
    time: u32,
}

impl<'a> Work<'a> {
    /// Salvages what is lost, if anything is.
    fn new(
        first: Examined<'a>,
        options: &Repair,
        root: Option<Root>,
        listener: Listener<'_>,
    ) -> Result<Self, FsckError> {
        let mut work = Self {
            plan: Plan { next_ino: first.rolled.next_ino, ..Plan::default() },
            sources: BTreeSet::new(),
            next_sequence: first.rolled.next_sequence,
            time: first.rolled.time,
            examined: first,
        };
        if !work.examined.survey.is_complete() {
            work.salvage(options, root, listener)?;
        }
        work.plan.losses.extend(work.examined.log_findings.kept().iter().filter_map(log_loss));
        Ok(work)
    }

    fn salvage(
        &mut self,
        options: &Repair,
        root: Option<Root>,
        listener: Listener<'_>,
    ) -> Result<(), FsckError> {
        let volume = self.examined.view.volume;
        let record = self.examined.record.clone();
        let lost = std::mem::take(&mut self.examined.survey.lost);
        let placed = self.examined.survey.references.placed_segments().collect();
        let mut scan = Scan::take(volume, &lost, record.next_sequence, &placed, listener)?;
        let mut view = View::new(volume, root);
        view.give_up(lost.clone());
        let salvaged = fill(&mut view, &mut scan)?;
        self.plan.losses.extend(salvaged.losses);
        self.sources.extend(salvaged.sources);
        self.examined = Examined::finish(view, record, &scan.chunks, options.data, listener)?;
        let rolled = &self.examined.rolled;
        self.plan.next_ino = self.plan.next_ino.max(rolled.next_ino);
        self.next_sequence = rolled.next_sequence.max(scan.last_sequence.saturating_add(1));
        self.time = rolled.time.max(scan.time);
        Ok(())
    }

    /// Remedies what is found until nothing is.
    fn make_whole(&mut self, options: &Repair, listener: Listener<'_>) -> Result<(), FsckError> {
        for _ in 0..ROUNDS_MAX {
            let found = self.uncovered();
            if found.is_empty() {
                return Ok(());
            }
            let Examined { view, survey, .. } = &mut self.examined;
            Remedies::new(view, &mut self.plan, survey, options.now).apply(&found);
            let expected = Expected { next_ino: self.plan.next_ino, node_count: 0, data: false };
            self.examined.survey = Survey::take(&self.examined.view, expected, listener)?;
        }
        Err(FsckError::NoEnd)
    }

    /// What was found about files that the plan does not take care of yet.
    fn uncovered(&self) -> Vec<Finding> {
        let survey = &self.examined.survey;
        let all = survey.items.kept().iter().chain(survey.files.kept());
        all.filter(|finding| finding.is_error() && !self.plan.covers(finding)).cloned().collect()
    }

    /// Writes what was repaired, with as many copies as there is room for.
    fn write(
        &mut self,
        device: &Arc<dyn Device>,
        listener: Listener<'_>,
    ) -> Result<Copies, FsckError> {
        let Examined { record, view, usage, rolled, survey, .. } = &mut self.examined;
        let volume = view.volume;
        let layout = volume.layout();
        let mut needed: BTreeSet<u32> = survey.references.segments().collect();
        needed.extend(self.sources.iter().filter_map(|at| layout.segment_of(*at)));
        needed.extend(rolled.segments.iter().copied());
        needed.extend(record.heads.iter().map(|head| head.segment));
        let record = CheckpointRecord {
            next_sequence: self.next_sequence,
            previous: rolled.previous,
            ..record.clone()
        };
        let superblock = &volume.superblock;
        let placed = survey.references.placed_segments().collect();
        let draft = Draft { device, superblock, record, time: self.time, usage, needed, placed };
        let copies = draft.affordable(view, &self.plan);
        let edits = view.edits.clone();
        let made = copies.len();
        match draft.write(view, &self.plan, &copies, listener) {
            Err(FsckError::NoRoom) if made > 0 => {
                view.edits = edits;
                draft.write(view, &self.plan, &[], listener)?;
                Ok(Copies { made: 0, postponed: self.plan.copies.len() })
            }
            outcome => outcome.map(|()| Copies { made, postponed: self.plan.copies.len() - made }),
        }
    }
}

fn log_loss(finding: &Finding) -> Option<Loss> {
    match *finding {
        Finding::DeltaDamaged { corruption } => {
            Some(Loss::Log { address: corruption.location.number() })
        }
        Finding::DeltaKey { address, .. } => Some(Loss::Log { address }),
        _ => None,
    }
}
