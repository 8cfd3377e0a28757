//! A repair from beginning to end.
//!
//! Owns: what is tried in which order, and when to give up.
//! Promises: nothing is written before a survey of what will be written finds nothing; what was written
//! is checked again.
//! Never: asks; whoever calls has been asked.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{CheckpointRecord, FIRST_INO, Timestamp};
use sfs_device::Device;

use crate::check::Examined;
use crate::progress::{Listener, Progress};
use crate::remedy::{Plan, Remedies};
use crate::rewrite::{Draft, write_superblocks};
use crate::salvage::fill;
use crate::scan::Scan;
use crate::survey::{Expected, Survey};
use crate::view::{Root, View};
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError, Loss, Report};

/// Rounds of remedies after which a repair gives up. Each makes at most a few things wrong elsewhere.
const ROUNDS_MAX: usize = 64;

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
}

impl Repaired {
    /// Errors that are left.
    pub fn errors_left(&self) -> u64 {
        self.after.as_ref().unwrap_or(&self.before).errors()
    }
}

/// Whether the volume on `device` was unmounted, and nothing is wrong with what can be seen in constant
/// time: superblocks and checkpoints.
///
/// # Errors
///
/// As those of [`crate::check`].
pub fn is_unmounted(device: &dyn Device) -> Result<bool, FsckError> {
    let mut findings = Findings::default();
    let volume = Volume::open(device, &mut findings)?;
    let record = volume.checkpoint(&mut findings);
    Ok(findings.errors() == 0 && record.is_some_and(|record| record.unmounted))
}

/// Repairs the volume on `device`, which nobody else must be using.
///
/// # Errors
///
/// If there is nothing to repair, the device fails, there is no room, or the caller does not want to go
/// on: the volume is as it was then.
pub fn repair(
    device: &Arc<dyn Device>,
    options: &Repair,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Repaired, FsckError> {
    let mut findings = Findings::default();
    let volume = Volume::open(&**device, &mut findings)?;
    let record = volume.checkpoint(&mut findings);
    let superblocks_differ = findings.kept().iter().any(is_of_superblock);
    let is_lost = record.is_none();
    if is_lost && options.preen {
        let before = Report { findings, ..Report::default() };
        return Ok(Repaired { before, ..Repaired::default() });
    }
    let (record, root) = match record {
        Some(record) => {
            let root = (record.root(), record.root_level);
            (record, Some(root))
        }
        None => search_root(&volume, progress)?,
    };
    let first = Examined::examine(&volume, record, root, options.data, progress)?;
    let before = first.report(findings, HashSet::new());
    let is_only_superblocks =
        before.findings.kept().iter().filter(|f| f.is_error()).all(is_of_superblock);
    let is_refused = options.preen && !before.findings.kept().iter().all(Finding::is_safe);
    if before.errors() == 0 || is_refused {
        return Ok(Repaired { before, ..Repaired::default() });
    }
    let mut work = Work::new(first, options, root, progress)?;
    if is_lost || !is_only_superblocks {
        work.make_whole(options, progress)?;
        work.write(device, progress)?;
    }
    if superblocks_differ {
        write_superblocks(&**device, &volume.superblock)?;
    }
    let losses: Vec<Loss> = work.plan.losses.into_iter().collect();
    // What was written is checked to the end: nobody could say any more that nothing was changed.
    let told = &mut |at| {
        let _ = progress(at);
        ControlFlow::Continue(())
    };
    let after = look_again(&**device, options, &losses, told)?;
    Ok(Repaired { before, after: Some(after), losses })
}

/// Checks what was written, and finds where the files of `losses` are now.
fn look_again(
    device: &dyn Device,
    options: &Repair,
    losses: &[Loss],
    listener: Listener<'_>,
) -> Result<Report, FsckError> {
    let mut findings = Findings::default();
    let volume = Volume::open(device, &mut findings)?;
    let Some(record) = volume.checkpoint(&mut findings) else {
        return Ok(Report { findings, ..Report::default() });
    };
    let root = Some((record.root(), record.root_level));
    let examined = Examined::examine(&volume, record, root, options.data, listener)?;
    Ok(examined.report(findings, losses.iter().filter_map(Loss::ino).collect()))
}

fn is_of_superblock(finding: &Finding) -> bool {
    matches!(finding, Finding::SuperblockDamaged { .. } | Finding::SuperblocksDiffer)
}

/// The newest root that segments still hold, with what a checkpoint would have said.
fn search_root(
    volume: &Volume<'_>,
    listener: Listener<'_>,
) -> Result<(CheckpointRecord, Option<Root>), FsckError> {
    let scan = Scan::take(volume, &[], u64::MAX, listener)?;
    let best = scan.best_root();
    let (number, found) = best.unzip();
    let root = found.map(|found| found.root);
    let record = CheckpointRecord {
        number: number.unwrap_or(1),
        next_sequence: found.map_or(scan.last_sequence, |found| found.sequence).saturating_add(1),
        previous: found.map_or(0, |found| found.checksum),
        root_address: root.map_or(0, |(pointer, _)| pointer.address),
        root_checksum: root.map_or(0, |(pointer, _)| pointer.checksum),
        root_level: root.map_or(0, |(_, level)| level),
        next_ino: FIRST_INO,
        heads: Vec::new(),
        blocks_written: 0,
        policies: Vec::new(),
        unmounted: false,
        mount_count: number.unwrap_or(1),
        user_bytes_written: 0,
        device_bytes_written: 0,
    };
    Ok((record, root))
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
        let scan = Scan::take(volume, &lost, record.next_sequence, listener)?;
        let mut view = View::new(volume, root);
        view.give_up(lost.clone());
        let salvaged = fill(&mut view, &scan);
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

    fn write(&mut self, device: &Arc<dyn Device>, listener: Listener<'_>) -> Result<(), FsckError> {
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
        let draft = Draft { device, superblock, record, time: self.time, usage, needed };
        draft.write(view, &self.plan, listener)
    }
}

fn log_loss(finding: &Finding) -> Option<Loss> {
    match *finding {
        Finding::DeltaDamaged { corruption } => Some(Loss::Log { address: corruption.at }),
        Finding::DeltaKey { address, .. } => Some(Loss::Log { address }),
        _ => None,
    }
}
