//! Choice of the checkpoint from which a volume is read.
//!
//! As long as both slots hold sound checkpoints, the newer one counts and no segment is searched. Otherwise a
//! scan of the segments shows whether a newer checkpoint was durable. A repair may also begin with the newest
//! root of the segments, or with no root at all. The search does not check the nodes below the root.

use std::collections::BTreeSet;

use sfs_core::format::{CheckpointRecord, ChunkSummary, FIRST_INO, WearLedger};

use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::ProgressListener;
use crate::read::checkpoint;
use crate::read::chunk;
use crate::read::overlay_tree::{OverlayTree, TreeRoot};
use crate::read::roll_forward::roll_forward;
use crate::read::segment_scan::{ChunkPositions, FoundRoot, SegmentScan};
use crate::read::usage::UsageEntries;
use crate::read::volume::VolumeReader;

/// Checkpoint from a slot, or one reconstructed from the segments.
#[derive(Clone)]
pub(crate) struct RecoveryPoint {
    pub(crate) record: CheckpointRecord,
    /// Root of the tree, if there is one.
    pub(crate) root: Option<TreeRoot>,
    /// `true` if the record is in a slot.
    pub(crate) is_in_slot: bool,
}

impl RecoveryPoint {
    /// Returns the newest checkpoint in a slot; or, with a finding, a newer checkpoint that was
    /// durable, as segments show. `None` if neither slot holds a checkpoint.
    pub(crate) fn find(
        volume: &VolumeReader<'_>,
        findings: &mut Findings,
        listener: ProgressListener<'_>,
    ) -> Result<Option<Self>, FsckError> {
        let mut of_slots = Findings::default();
        let newest = checkpoint::newest(volume, &mut of_slots);
        findings.extend(&of_slots);
        let Some(record) = newest else { return Ok(None) };
        if let Some(reason) = record.extensions.incompatibility(false) {
            return Err(FsckError::Incompatible(reason));
        }
        if checkpoint::is_slot_empty(&of_slots)
            && let Some(newer) = find_newer(volume, &record, listener)?
        {
            findings.push(Finding::CheckpointLost { number: newer.record.number });
            return Ok(Some(newer.with_totals_of(&record)));
        }
        let root = Some((record.root(), record.root_level));
        Ok(Some(Self { record, root, is_in_slot: true }))
    }

    /// Returns the newest root that segments still hold, with a reconstructed checkpoint.
    pub(crate) fn from_segments(
        volume: &VolumeReader<'_>,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        let scan = SegmentScan::run(volume, &[], u64::MAX, &BTreeSet::new(), listener)?;
        let (number, found) = scan.best_root().unzip();
        Ok(Self::of_root(number.unwrap_or(1), found, scan.last_sequence))
    }

    /// Returns a recovery point without a root, with a number of at least `number`, if segments other than
    /// the `placed` ones hold chunks from sequence number `log_end` on.
    ///
    /// A volume with checkpoints in both slots does not need this recovery point. A crash may leave
    /// such chunks, too. Salvage from these chunks is safe all the same: files restored without
    /// need are reported, while skipped chunks would be lost without a report.
    pub(crate) fn past_log_end(
        volume: &VolumeReader<'_>,
        log_end: u64,
        placed: &BTreeSet<u32>,
        number: u64,
        listener: ProgressListener<'_>,
    ) -> Result<Option<Self>, FsckError> {
        let scan = SegmentScan::run(volume, &[], log_end, placed, listener)?;
        let number = scan.best_root().map_or(0, |(number, _)| number).max(number);
        let is_continued = scan.chunks.range(log_end..).next().is_some();
        Ok(is_continued.then(|| Self::of_root(number, None, scan.last_sequence)))
    }

    /// Takes over the totals of the older `record`, bytes written and the wear ledger: what the lost checkpoint counted beyond
    /// them is unknown.
    fn with_totals_of(mut self, record: &CheckpointRecord) -> Self {
        self.record.user_bytes_written = record.user_bytes_written;
        self.record.device_bytes_written = record.device_bytes_written;
        let ledger = record.extensions.iter().find(|other| other.tag == WearLedger::TAG);
        ledger.into_iter().for_each(|ledger| self.record.extensions.set(ledger.clone()));
        self
    }

    fn of_root(number: u64, found: Option<FoundRoot>, last_sequence: u64) -> Self {
        let root = found.map(|found| found.root);
        let record = CheckpointRecord {
            number,
            next_sequence: found.map_or(last_sequence, |found| found.sequence).saturating_add(1),
            previous: found.map_or(0, |found| found.checksum),
            root_address: root.map_or(0, |(pointer, _)| pointer.address),
            root_checksum: root.map_or(0, |(pointer, _)| pointer.checksum),
            root_level: root.map_or(0, |(_, level)| level),
            next_ino: FIRST_INO,
            heads: Vec::new(),
            blocks_written: 0,
            policies: Vec::new(),
            unmounted: false,
            mount_count: number,
            user_bytes_written: 0,
            device_bytes_written: 0,
            extensions: Default::default(),
        };
        Self { record, root, is_in_slot: false }
    }
}

/// Returns a checkpoint newer than `record` that was durable: the log continues after that
/// checkpoint, or the log past `record` does not lead up to it. After a crash during the write of a
/// checkpoint's record, the log leads up to the checkpoint, and holds everything that the
/// checkpoint holds.
fn find_newer(
    volume: &VolumeReader<'_>,
    record: &CheckpointRecord,
    listener: ProgressListener<'_>,
) -> Result<Option<RecoveryPoint>, FsckError> {
    let scan = SegmentScan::run(volume, &[], u64::MAX, &BTreeSet::new(), listener)?;
    let Some((number, nodes)) = scan.roots.range(record.number + 1..).next_back() else {
        return Ok(None);
    };
    let root = scan.best_root().filter(|(of, _)| of == number).map(|(_, root)| root);
    let mut tree = OverlayTree::new(volume, Some((record.root(), record.root_level)));
    let mut ignored = Findings::default();
    let usage = UsageEntries::read(&tree, record, &mut ignored);
    let none = ChunkPositions::new();
    let rolled = roll_forward(&mut tree, record, &usage, &none, &mut ignored, listener)?;
    let is_durable = rolled.next_sequence < nodes.first_sequence
        || root.is_some_and(|root| is_continued(volume, &root));
    Ok(is_durable.then(|| RecoveryPoint::of_root(*number, root, scan.last_sequence)))
}

/// Returns whether a chunk follows the `last` chunk of a checkpoint. A higher sequence number alone proves
/// nothing: a torn batch of an earlier crash may have left it.
fn is_continued(volume: &VolumeReader<'_>, last: &FoundRoot) -> bool {
    let follows = |chunk: ChunkSummary| {
        chunk.header.sequence == last.sequence.saturating_add(1)
            && chunk.header.previous == last.checksum
    };
    (0..volume.layout().segment_count).any(|segment| chunk::chunks(volume, segment).any(follows))
}
