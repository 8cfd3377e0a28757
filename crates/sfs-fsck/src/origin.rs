//! Where a volume's tree begins.
//!
//! Owns: the choice of a checkpoint, and the search for one that is in no slot.
//! Promises: nothing is searched as long as the slots hold what they should.
//! Never: looks below the root.

use std::collections::BTreeSet;

use sfs_core::format::{CheckpointRecord, ChunkSummary, FIRST_INO};

use crate::check::Examined;
use crate::log;
use crate::progress::Listener;
use crate::roll_forward::roll_forward;
use crate::scan::{Chunks, FoundRoot, Scan};
use crate::usage::Usage;
use crate::view::{Root, View};
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError};

/// A checkpoint, from a slot or as it must have been.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) record: CheckpointRecord,
    /// The root, if there is one.
    pub(crate) root: Option<Root>,
    /// The record is in a slot.
    pub(crate) is_whole: bool,
}

impl Origin {
    /// The newest checkpoint of `volume`: the one in a slot, unless segments say that there was a newer
    /// one; then that is what is given, and a finding. `None` if there is none in either.
    pub(crate) fn find(
        volume: &Volume<'_>,
        findings: &mut Findings,
        listener: Listener<'_>,
    ) -> Result<Option<Self>, FsckError> {
        let mut of_slots = Findings::default();
        let found = volume.checkpoint(&mut of_slots);
        findings.extend(&of_slots);
        let Some(record) = found else { return Ok(None) };
        if let Some(reason) = record.extensions.incompatibility(false) {
            return Err(FsckError::Incompatible(reason));
        }
        if Volume::misses_checkpoint(&of_slots)
            && let Some(newer) = newer(volume, &record, listener)?
        {
            findings.push(Finding::CheckpointLost { number: newer.record.number });
            return Ok(Some(newer));
        }
        let root = Some((record.root(), record.root_level));
        Ok(Some(Self { record, root, is_whole: true }))
    }

    /// The newest root that segments still hold, with what a checkpoint would have said.
    pub(crate) fn search(volume: &Volume<'_>, listener: Listener<'_>) -> Result<Self, FsckError> {
        let scan = Scan::take(volume, &[], u64::MAX, &BTreeSet::new(), listener)?;
        let (number, found) = scan.best_root().unzip();
        Ok(Self::of_root(number.unwrap_or(1), found, scan.last_sequence))
    }

    /// No root at all, if segments hold chunks past the end of the log that `examined` found: to be asked
    /// only if a checkpoint is missing. A crash may have left them; but what is filled in from them for
    /// nothing is named, and what is left out of them would be lost without a word.
    pub(crate) fn past_end(
        volume: &Volume<'_>,
        examined: &Examined<'_>,
        listener: Listener<'_>,
    ) -> Result<Option<Self>, FsckError> {
        let end = examined.rolled.next_sequence;
        let placed = examined.survey.references.placed_segments().collect();
        let scan = Scan::take(volume, &[], end, &placed, listener)?;
        let number = scan.best_root().map_or(0, |(number, _)| number).max(examined.record.number);
        let goes_on = scan.chunks.range(end..).next().is_some();
        Ok(goes_on.then(|| Self::of_root(number, None, scan.last_sequence)))
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
        Self { record, root, is_whole: false }
    }
}

/// A checkpoint newer than `record` that must have been durable: the log goes on after it, or the log past
/// `record` does not even lead to it. (After a crash in the middle of its record it does, and says all that
/// the checkpoint says.)
fn newer(
    volume: &Volume<'_>,
    record: &CheckpointRecord,
    listener: Listener<'_>,
) -> Result<Option<Origin>, FsckError> {
    let scan = Scan::take(volume, &[], u64::MAX, &BTreeSet::new(), listener)?;
    let Some((number, nodes)) = scan.roots.range(record.number + 1..).next_back() else {
        return Ok(None);
    };
    let root = scan.best_root().filter(|(of, _)| of == number).map(|(_, root)| root);
    let mut view = View::new(volume, Some((record.root(), record.root_level)));
    let mut ignored = Findings::default();
    let usage = Usage::read(&view, &mut ignored);
    let none = Chunks::new();
    let rolled = roll_forward(&mut view, record, &usage, &none, &mut ignored, listener)?;
    let is_durable = rolled.next_sequence < nodes.first_sequence
        || root.is_some_and(|root| is_continued(volume, &root));
    Ok(is_durable.then(|| Origin::of_root(*number, root, scan.last_sequence)))
}

/// Whether a chunk follows the last of a checkpoint. A higher number alone says nothing: a batch that
/// was not whole at an earlier crash may have left it.
fn is_continued(volume: &Volume<'_>, last: &FoundRoot) -> bool {
    let follows = |chunk: ChunkSummary| {
        chunk.header.sequence == last.sequence.saturating_add(1)
            && chunk.header.previous == last.checksum
    };
    (0..volume.layout().segment_count).any(|segment| log::chunks(volume, segment).any(follows))
}
