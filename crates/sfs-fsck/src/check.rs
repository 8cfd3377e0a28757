//! The check: what is read, in which order, and what is said of it.
//!
//! Owns: the order of the stages.
//! Promises: findings come in the order of the structures: superblocks, checkpoints, nodes, usage, log,
//! names, content, references.
//! Never: prints or writes.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sfs_core::format::{CheckpointRecord, Corruption, CorruptionKind, Remembered};
use sfs_device::{BLOCK_SIZE, Device};

use crate::origin::Origin;
use crate::progress::{Listener, Progress};
use crate::roll_forward::{Rolled, roll_forward};
use crate::scan::Chunks;
use crate::survey::{Expected, Survey};
use crate::usage::Usage;
use crate::view::View;
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError, Report};

/// What to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Read every data block and compare it with its checksum.
    pub data: bool,
}

/// Checks the volume on `device`, which nobody must be writing to.
///
/// # Errors
///
/// Only if there is nothing to check; damage is in the report.
pub fn check(
    device: &dyn Device,
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, FsckError> {
    let mut findings = Findings::default();
    let volume = Volume::open(device, &mut findings)?;
    let origin = Origin::find(&volume, &mut findings, progress)?;
    let Some(origin) = origin.filter(|origin| origin.is_whole) else {
        return Ok(Report { findings, ..Report::default() });
    };
    let examined = Examined::examine(&volume, origin, options.data, progress)?;
    Ok(examined.report(findings, HashSet::new()))
}

/// A volume that was looked at.
pub(crate) struct Examined<'a> {
    pub(crate) record: CheckpointRecord,
    pub(crate) view: View<'a>,
    pub(crate) usage: Usage,
    pub(crate) rolled: Rolled,
    pub(crate) survey: Survey,
    /// What is wrong with the usage table, and with the log past the checkpoint.
    pub(crate) usage_findings: Findings,
    pub(crate) log_findings: Findings,
}

impl<'a> Examined<'a> {
    /// Reads everything that a checkpoint leads to, and the log past it.
    pub(crate) fn examine(
        volume: &'a Volume<'a>,
        origin: Origin,
        data: bool,
        listener: Listener<'_>,
    ) -> Result<Self, FsckError> {
        let Origin { record, root, .. } = origin;
        Self::finish(View::new(volume, root), record, &Chunks::new(), data, listener)
    }

    /// The same for a `view` whose damage is known, and chunks that were found past the checkpoint.
    pub(crate) fn finish(
        mut view: View<'a>,
        record: CheckpointRecord,
        found: &Chunks,
        data: bool,
        listener: Listener<'_>,
    ) -> Result<Self, FsckError> {
        let (mut usage_findings, mut log_findings) = Default::default();
        let usage = Usage::read(&view, &mut usage_findings);
        let rolled = roll_forward(&mut view, &record, &usage, found, &mut log_findings, listener)?;
        let next_ino = rolled.next_ino;
        let expected = Expected { next_ino, node_count: usage.node_count(), data };
        let survey = Survey::take(&view, expected, listener)?;
        let data_layout = view.volume.superblock.data_layout;
        survey.counts.check(data_layout, &record, &usage, &mut usage_findings);
        for segment in survey.references.segments().filter(|at| rolled.released.contains(at)) {
            let corruption = Corruption::in_usage_entry(segment, CorruptionKind::Count);
            log_findings.push(Finding::DeltaDamaged { corruption });
        }
        Ok(Self { record, view, usage, rolled, survey, usage_findings, log_findings })
    }

    /// What was found in all, after `findings`, with paths of what is found and of `named`.
    pub(crate) fn report(&self, mut findings: Findings, named: HashSet<u64>) -> Report {
        let mut report = Report { unmounted: self.record.unmounted, ..Report::default() };
        let Self { view, rolled, survey, .. } = self;
        report.remembered = Remembered::of(&view.volume.superblock, &self.record);
        findings.extend(&survey.nodes);
        if survey.is_complete() {
            findings.extend(&self.usage_findings);
            findings.extend(&self.log_findings);
            findings.extend(&survey.items);
            findings.extend(&survey.files);
            report.rolled_chunks = rolled.chunks;
            report.files = survey.population.files;
            report.directories = survey.population.directories;
            report.used_bytes = survey.references.len() * BLOCK_SIZE as u64;
            let mut inos = named;
            inos.extend(findings.kept().iter().filter_map(Finding::ino));
            report.paths = survey.namespace.paths(view, &inos);
        } else {
            findings.push(Finding::TreeIncomplete);
        }
        report.findings = findings;
        report
    }
}
