//! Check of a whole volume.
//!
//! Findings come in the order of the structures: superblocks, checkpoints, nodes, usage, log, items, names,
//! content, references. The check does not write.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sfs_core::format::{
    CheckpointRecord, Corruption, CorruptionKind, FileCount, Remembered, ReservationTotals,
    WearLedger,
};
use sfs_device::{BLOCK_SIZE, Device};

use crate::check::paths::paths;
use crate::check::report::CheckReport;
use crate::check::tree::{TreeCheck, TreeExpectation};
use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::{CheckProgress, ProgressListener};
use crate::read::overlay_tree::OverlayTree;
use crate::read::recovery_point::RecoveryPoint;
use crate::read::roll_forward::{RollForward, roll_forward};
use crate::read::segment_scan::ChunkPositions;
use crate::read::usage::UsageEntries;
use crate::read::volume::VolumeReader;

/// Extent of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// `true` to read every data block and compare it with its checksum.
    pub data: bool,
}

/// Checks the volume on `device`. No other program may write to the device meanwhile.
///
/// # Errors
///
/// Errors of the device; an error if the device has no volume that can be checked; `Cancelled`.
/// Damage is in the report.
pub fn check(
    device: &dyn Device,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
) -> Result<CheckReport, FsckError> {
    let mut findings = Findings::default();
    let volume = VolumeReader::open(device, &mut findings)?;
    let point = RecoveryPoint::find(&volume, &mut findings, progress)?;
    let Some(point) = point.filter(|point| point.is_in_slot) else {
        return Ok(CheckReport { findings, ..CheckReport::default() });
    };
    let checked = VolumeCheck::run(&volume, point, options.data, progress)?;
    checked.report(findings, HashSet::new(), progress)
}

/// Checked volume.
pub(crate) struct VolumeCheck<'a> {
    pub(crate) record: CheckpointRecord,
    /// Tree of the checkpoint, with the log past it applied.
    pub(crate) tree: OverlayTree<'a>,
    pub(crate) usage: UsageEntries,
    pub(crate) rolled: RollForward,
    pub(crate) tree_check: TreeCheck,
    /// Findings about the usage table, the number of files, and the features.
    pub(crate) usage_findings: Findings,
    /// Findings about the log past the checkpoint.
    pub(crate) log_findings: Findings,
    /// `true` if all data was read.
    data_read: bool,
}

impl<'a> VolumeCheck<'a> {
    /// Checks the tree of the recovery point `point`, with the log past it.
    pub(crate) fn run(
        volume: &'a VolumeReader<'a>,
        point: RecoveryPoint,
        data: bool,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        let RecoveryPoint { record, root, .. } = point;
        let tree = OverlayTree::new(volume, root);
        Self::run_on_tree(tree, record, &ChunkPositions::new(), data, listener)
    }

    /// Checks `tree`, with the log past the checkpoint `record`. Chunks of that log may be at `found`.
    pub(crate) fn run_on_tree(
        mut tree: OverlayTree<'a>,
        record: CheckpointRecord,
        found: &ChunkPositions,
        data: bool,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        let (mut usage_findings, mut log_findings) = Default::default();
        let usage = UsageEntries::read(&tree, &record, &mut usage_findings);
        let rolled = roll_forward(&mut tree, &record, &usage, found, &mut log_findings, listener)?;
        let next_ino = rolled.next_ino;
        let expected = TreeExpectation { next_ino, node_count: usage.node_count(), data };
        let tree_check = TreeCheck::run(&tree, expected, listener)?;
        let data_layout = tree.volume.superblock.data_layout;
        tree_check.recount.check(data_layout, &record, &usage, &mut usage_findings);
        check_file_count(&record, tree_check.inode_count, &mut usage_findings);
        if WearLedger::of(&record.extensions).is_err() {
            usage_findings.push(Finding::WearLedgerDamaged);
        }
        let declared = tree.volume.superblock.features.read_only_compatible;
        if tree_check.features() & !declared != 0 {
            usage_findings.push(Finding::AccessListsUndeclared);
        }
        check_reservations(&record, tree_check.reserved, &mut usage_findings);
        for segment in tree_check.references.segments().filter(|at| rolled.released.contains(at)) {
            let corruption = Corruption::in_usage_entry(segment, CorruptionKind::Count);
            log_findings.push(Finding::DeltaDamaged { corruption });
        }
        let data_read = data;
        Ok(Self {
            record,
            tree,
            usage,
            rolled,
            tree_check,
            usage_findings,
            log_findings,
            data_read,
        })
    }

    /// Returns the report: `findings`, then those of this check, with the paths of all inodes in findings and
    /// in `named`.
    pub(crate) fn report(
        &self,
        mut findings: Findings,
        named: HashSet<u64>,
        listener: ProgressListener<'_>,
    ) -> Result<CheckReport, FsckError> {
        let (unmounted, data_read) = (self.record.unmounted, self.data_read);
        let mut report = CheckReport { unmounted, data_read, ..CheckReport::default() };
        let Self { tree, rolled, tree_check, .. } = self;
        report.remembered = Remembered::of(&tree.volume.superblock, &self.record);
        findings.extend(&tree_check.nodes);
        if tree_check.is_complete() {
            findings.extend(&self.usage_findings);
            findings.extend(&self.log_findings);
            findings.extend(&tree_check.items);
            findings.extend(&tree_check.files);
            report.rolled_chunks = rolled.chunks;
            report.files = tree_check.file_counts.files;
            report.directories = tree_check.file_counts.directories;
            report.used_bytes = tree_check.references.block_count() * BLOCK_SIZE as u64;
            let mut inos = named;
            inos.extend(findings.kept().iter().filter_map(Finding::ino));
            report.paths = paths(&tree_check.namespace, tree, &inos, listener)?;
        } else {
            findings.push(Finding::TreeIncomplete);
        }
        report.findings = findings;
        Ok(report)
    }
}

/// Compares the number of files in `record` with the number of inodes in its tree. An older program
/// records no number of files.
fn check_file_count(record: &CheckpointRecord, counted: u64, findings: &mut Findings) {
    let recorded = FileCount::of(&record.extensions).map(|FileCount(recorded)| recorded);
    if let Some(recorded) = recorded.filter(|recorded| *recorded != counted) {
        findings.push(Finding::FileCount { recorded, counted });
    }
}

/// Compares the totals of the reservations in `record` with those in its tree.
fn check_reservations(
    record: &CheckpointRecord,
    counted: ReservationTotals,
    findings: &mut Findings,
) {
    // A malformed record is as wrong as other totals.
    let recorded = ReservationTotals::of(&record.extensions);
    if recorded != Some(counted) {
        let ReservationTotals { blocks, ranges } = counted;
        findings.push(Finding::ReservationTotals { blocks, ranges });
    }
}
