//! One pass of a repair: check, edit until a check of the edited tree finds nothing, write.
//!
//! The first write comes after the edited tree is sound.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{
    CheckpointRecord, Corruption, CorruptionKind, Day, EXTENSION_LEN_MAX, FORMAT_VERSION, Features,
    Layout, Location, SUPERBLOCK_ADDRESS, Structure, Timestamp, WearLedger,
};
use sfs_device::Device;

use crate::check::report::CheckReport;
use crate::check::tree::{TreeCheck, TreeExpectation};
use crate::check::volume::VolumeCheck;
use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::{CheckProgress, ProgressListener};
use crate::read::checkpoint;
use crate::read::overlay_tree::{OverlayTree, TreeRoot};
use crate::read::recovery_point::RecoveryPoint;
use crate::read::roll_forward::RollForward;
use crate::read::segment_scan::SegmentScan;
use crate::read::volume::VolumeReader;
use crate::repair::checkpoint_slots::clear_slot;
use crate::repair::editor::TreeEditor;
use crate::repair::fix::Fixes;
use crate::repair::loss::Loss;
use crate::repair::options::RepairOptions;
use crate::repair::plan::RepairPlan;
use crate::repair::rewrite::Rewrite;
use crate::repair::salvage::salvage;
use crate::repair::superblocks::{change_superblock, write_superblocks};

/// Number of rounds of fixes after which a repair gives up. Each round causes few new findings.
const ROUNDS_MAX: usize = 64;

/// Result of a pass.
pub(crate) struct PassResult {
    /// Report of the check at the start of the pass.
    pub(crate) before: CheckReport,
    /// `true` if the pass has written.
    pub(crate) has_written: bool,
    pub(crate) copies: CopyCounts,
}

/// Numbers of planned copies of blocks.
#[derive(Clone, Copy, Default)]
pub(crate) struct CopyCounts {
    /// Number of copies that were written.
    pub(crate) made: usize,
    /// Number of copies for a later pass, which has the space of the blocks that were copied.
    pub(crate) postponed: usize,
}

/// Checks the volume on `device`, and repairs as much as there is space for. A volume with a cache gets the epoch of no cache before
/// anything else is written, and is checked once more: the superblocks have changed.
pub(crate) fn run_pass(
    device: &Arc<dyn Device>,
    options: &RepairOptions,
    losses: &mut BTreeSet<Loss>,
    progress: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
) -> Result<PassResult, FsckError> {
    let before = match run_pass_of_no_cache(device, options, losses, progress)? {
        ControlFlow::Break(result) => return Ok(result),
        ControlFlow::Continue(before) => before,
    };
    // The volume has changed, and `Cancelled` would claim the opposite.
    let listener = &mut |at| {
        let _ = progress(at);
        ControlFlow::Continue(())
    };
    match run_pass_of_no_cache(device, options, losses, listener)? {
        ControlFlow::Break(result) => Ok(PassResult { before, has_written: true, ..result }),
        ControlFlow::Continue(_) => {
            let kept = CorruptionKind::Value;
            let at = Corruption::in_block(Structure::Superblock, SUPERBLOCK_ADDRESS, kept);
            Err(FsckError::Write(at.into()))
        }
    }
}

/// Does [`run_pass`] on a volume that no cache belongs to. If one may, takes it away, and returns the report of the check before that.
fn run_pass_of_no_cache(
    device: &Arc<dyn Device>,
    options: &RepairOptions,
    losses: &mut BTreeSet<Loss>,
    progress: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
) -> Result<ControlFlow<PassResult, CheckReport>, FsckError> {
    let unchanged = |before| {
        ControlFlow::Break(PassResult { before, has_written: false, copies: CopyCounts::default() })
    };
    let mut findings = Findings::default();
    let volume = VolumeReader::open(&**device, &mut findings)?;
    let point = RecoveryPoint::find(&volume, &mut findings, progress)?;
    let is_slot_empty = checkpoint::is_slot_empty(&findings);
    let mut is_lost = point.as_ref().is_none_or(|point| !point.is_in_slot);
    if is_lost && options.preen {
        return Ok(unchanged(CheckReport { findings, ..CheckReport::default() }));
    }
    let point = point.map_or_else(|| RecoveryPoint::from_segments(&volume, progress), Ok)?;
    let mut root = point.root;
    let mut checked = VolumeCheck::run(&volume, point, options.data, progress)?;
    let before = checked.report(findings, HashSet::new(), progress)?;
    let is_refused = options.preen && !before.findings.kept().iter().all(Finding::is_safe);
    let fixes_superblock = before.findings.kept().iter().any(Finding::is_of_superblock);
    if before.errors() == 0 && !fixes_superblock || is_refused {
        return Ok(unchanged(before));
    }
    refuse_newer(&volume, &checked.record)?;
    if volume.superblock.features.has_cache() && volume.superblock.epoch != [0; 16] {
        // Before anything else is written: no cache has the content of the volume any more.
        change_superblock(&volume, |superblock| superblock.epoch = [0; 16])?;
        return Ok(ControlFlow::Continue(before));
    }
    if (is_lost || is_slot_empty && !checked.tree_check.is_complete())
        && let Some(point) = point_past_log_end(&volume, &checked, progress)?
    {
        (root, is_lost) = (None, true);
        checked = VolumeCheck::run(&volume, point, options.data, progress)?;
    }
    let is_other = |finding: &Finding| finding.is_error() && !finding.is_of_superblock();
    let mut copies = CopyCounts::default();
    if is_lost || before.findings.kept().iter().any(is_other) {
        let mut repair = TreeRepair::new(checked, options, root, progress)?;
        repair.fix_all(options, progress)?;
        copies = repair.write(device, (fixes_superblock, options.now), progress)?;
        losses.extend(repair.plan.losses);
        clear_impossible_slots(device)?;
    } else if fixes_superblock {
        write_superblocks(&volume, checked.tree_check.features())?;
    }
    Ok(ControlFlow::Break(PassResult { before, has_written: true, copies }))
}

/// Returns a recovery point without a root, if segments hold chunks past the end of the log that `checked`
/// read.
fn point_past_log_end(
    volume: &VolumeReader<'_>,
    checked: &VolumeCheck<'_>,
    listener: ProgressListener<'_>,
) -> Result<Option<RecoveryPoint>, FsckError> {
    let log_end = checked.rolled.next_sequence;
    let placed = checked.tree_check.references.placed_segments().collect();
    RecoveryPoint::past_log_end(volume, log_end, &placed, checked.record.number, listener)
}

/// Empties the slots whose checkpoint has an impossible number or count. The new checkpoint may
/// have a lower number than an impossible checkpoint in the other slot.
fn clear_impossible_slots(device: &Arc<dyn Device>) -> Result<(), FsckError> {
    let volume = VolumeReader::open(&**device, &mut Findings::default())?;
    let mut left = Findings::default();
    checkpoint::newest(&volume, &mut left);
    for finding in left.kept() {
        if let Finding::CheckpointCounts { slot } | Finding::CheckpointNumber { slot, .. } =
            *finding
        {
            clear_slot(&**device, &volume.superblock, slot)?;
        }
    }
    Ok(())
}

/// Refuses to write to a volume with an unknown feature that a writer has to know.
fn refuse_newer(volume: &VolumeReader<'_>, record: &CheckpointRecord) -> Result<(), FsckError> {
    let of_superblock = volume.superblock.write_incompatibility();
    match of_superblock.or(record.extensions.incompatibility(true)) {
        Some(reason) => Err(FsckError::Incompatible(reason)),
        None => Ok(()),
    }
}

/// Repair of a tree in memory.
struct TreeRepair<'a> {
    checked: VolumeCheck<'a>,
    plan: RepairPlan,
    /// Addresses of the leaves with salvaged items.
    sources: BTreeSet<u64>,
    /// Sequence number above that of any chunk.
    next_sequence: u64,
    /// Latest time of all chunks, in ticks.
    time: u32,
}

impl<'a> TreeRepair<'a> {
    /// Returns the repair of a checked volume, with lost keys salvaged.
    fn new(
        checked: VolumeCheck<'a>,
        options: &RepairOptions,
        root: Option<TreeRoot>,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        let mut repair = Self {
            plan: RepairPlan { next_ino: checked.rolled.next_ino, ..RepairPlan::default() },
            sources: BTreeSet::new(),
            next_sequence: checked.rolled.next_sequence,
            time: checked.rolled.time,
            checked,
        };
        if !repair.checked.tree_check.is_complete() {
            repair.salvage(options, root, listener)?;
        }
        let layout = repair.checked.tree.volume.layout();
        let log_findings = repair.checked.log_findings.kept();
        let log_losses = log_findings.iter().filter_map(|finding| log_loss(finding, layout));
        repair.plan.losses.extend(log_losses);
        Ok(repair)
    }

    /// Fills lost keys from a scan of all segments, and checks the result.
    fn salvage(
        &mut self,
        options: &RepairOptions,
        root: Option<TreeRoot>,
        listener: ProgressListener<'_>,
    ) -> Result<(), FsckError> {
        let volume = self.checked.tree.volume;
        let record = self.checked.record.clone();
        let lost = std::mem::take(&mut self.checked.tree_check.lost);
        let placed = self.checked.tree_check.references.placed_segments().collect();
        let mut scan = SegmentScan::run(volume, &lost, record.next_sequence, &placed, listener)?;
        let mut tree = OverlayTree::new(volume, root);
        tree.set_lost(lost.clone());
        let salvaged = salvage(&mut tree, &mut scan)?;
        self.plan.losses.extend(salvaged.losses);
        self.sources.extend(salvaged.sources);
        self.checked =
            VolumeCheck::run_on_tree(tree, record, &scan.chunks, options.data, listener)?;
        let rolled = &self.checked.rolled;
        self.plan.next_ino = self.plan.next_ino.max(rolled.next_ino);
        self.next_sequence = rolled.next_sequence.max(scan.last_sequence.saturating_add(1));
        self.time = rolled.time.max(scan.time);
        Ok(())
    }

    /// Fixes findings and checks the tree again, until nothing is left to fix.
    fn fix_all(
        &mut self,
        options: &RepairOptions,
        listener: ProgressListener<'_>,
    ) -> Result<(), FsckError> {
        for _ in 0..ROUNDS_MAX {
            let found = self.uncovered();
            if found.is_empty() {
                return Ok(());
            }
            let VolumeCheck { tree, tree_check, .. } = &mut self.checked;
            let editor = TreeEditor { tree, plan: &mut self.plan, now: options.now };
            Fixes::new(editor, tree_check).apply(&found);
            let next_ino = self.plan.next_ino;
            let expected = TreeExpectation { next_ino, node_count: 0, data: false };
            self.checked.tree_check = TreeCheck::run(&self.checked.tree, expected, listener)?;
        }
        Err(FsckError::NotConverging)
    }

    /// Returns the errors about files that the plan does not cover.
    fn uncovered(&self) -> Vec<Finding> {
        let tree_check = &self.checked.tree_check;
        let all = tree_check.items.kept().iter().chain(tree_check.files.kept());
        all.filter(|finding| finding.is_error() && !self.plan.covers(finding)).cloned().collect()
    }

    /// Writes the repaired tree, with as many copies as there is space for, and before it the superblocks if
    /// they have findings or an older version, or lack a feature.
    fn write(
        &mut self,
        device: &Arc<dyn Device>,
        (fixes_superblock, now): (bool, Timestamp),
        listener: ProgressListener<'_>,
    ) -> Result<CopyCounts, FsckError> {
        // A program for format version 1 must refuse the volume before anything new is on it.
        let volume = self.checked.tree.volume;
        let needed = self.needed_features();
        let is_declared = volume.superblock.features.read_only_compatible & needed == needed;
        if fixes_superblock || !is_declared || volume.superblock.version < FORMAT_VERSION {
            write_superblocks(volume, needed)?;
        }
        let needed = self.needed_segments();
        let VolumeCheck { record, tree, usage, rolled, tree_check, .. } = &mut self.checked;
        let mut record = CheckpointRecord {
            next_sequence: self.next_sequence,
            previous: rolled.previous,
            ..record.clone()
        };
        count_recovered(&mut record, rolled, now);
        let superblock = &tree.volume.superblock;
        let placed = tree_check.references.placed_segments().collect();
        let rewrite = Rewrite {
            device,
            superblock,
            record,
            time: self.time,
            usage,
            opened: &rolled.opened,
            now,
            needed,
            placed,
        };
        let copies = rewrite.affordable_copies(tree, &self.plan);
        let edits = tree.edits.clone();
        let (made, planned) = (copies.len(), self.plan.copies.len());
        match rewrite.write(tree, &self.plan, &copies, listener) {
            Err(FsckError::NoSpace) if made > 0 => {
                tree.edits = edits;
                rewrite.write(tree, &self.plan, &[], listener)?;
                Ok(CopyCounts { made: 0, postponed: planned })
            }
            result => result.map(|()| CopyCounts { made, postponed: planned - made }),
        }
    }

    /// Returns the read-only-compatible features that the superblock lacks.
    fn needed_features(&self) -> u64 {
        let is_flag = |finding: &Finding| matches!(finding, Finding::FlagFeature { .. });
        let has_flag = self.checked.tree_check.files.kept().iter().any(is_flag);
        let flags = if has_flag { Features::INODE_FLAGS } else { 0 };
        flags | self.checked.tree_check.features()
    }

    /// Returns the segments with live blocks, salvaged leaves, chunks past the checkpoint, or heads.
    fn needed_segments(&self) -> BTreeSet<u32> {
        let VolumeCheck { record, tree, rolled, tree_check, .. } = &self.checked;
        let layout = tree.volume.layout();
        let mut needed: BTreeSet<u32> = tree_check.references.segments().collect();
        needed.extend(self.sources.iter().filter_map(|at| layout.segment_of(*at)));
        needed.extend(rolled.segments.iter().copied());
        needed.extend(record.heads.iter().map(|head| head.segment));
        needed
    }
}

/// Counts the chunks past the checkpoint in the totals and the wear ledger of `record`.
fn count_recovered(record: &mut CheckpointRecord, rolled: &RollForward, now: Timestamp) {
    record.device_bytes_written = record.device_bytes_written.saturating_add(rolled.bytes.sum());
    if let Ok(Some(mut ledger)) = WearLedger::of(&record.extensions) {
        ledger.add_recovered(Day::of(now), rolled.bytes, rolled.chunks);
        ledger.put_into(&mut record.extensions, EXTENSION_LEN_MAX);
    }
}

fn log_loss(finding: &Finding, layout: &Layout) -> Option<Loss> {
    match *finding {
        Finding::DeltaDamaged { corruption } => {
            let address = match corruption.location {
                Location::Segment(segment) => layout.segment_address(segment),
                Location::Block(address) | Location::Inode(address) => address,
            };
            Some(Loss::Log { address })
        }
        Finding::DeltaKey { address, .. } => Some(Loss::Log { address }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator finds the lost part of the log on the device by the first block of its segment.
    #[test]
    fn a_loss_in_a_segment_has_the_address_of_its_first_block() {
        let layout = Layout::new(1 << 16, 256, 0).expect("a layout");
        let corruption = Corruption::in_usage_entry(3, CorruptionKind::Count);
        let loss = log_loss(&Finding::DeltaDamaged { corruption }, &layout);
        let address = layout.segment_address(3);
        assert!(matches!(loss, Some(Loss::Log { address: found }) if found == address), "{loss:?}");
    }
}
