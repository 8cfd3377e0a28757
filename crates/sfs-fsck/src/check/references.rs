//! References of the tree to blocks, compared with the summaries of their segments.
//!
//! The first walk over the tree keeps a bit for each referenced block, and for each segment a sum of hashes.
//! Each segment is then read once, and its sum compared with that of its summaries. A second walk collects
//! single references only for segments whose sums differ, a bounded number at a time.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{Key, NodePointer, SegmentState, SummaryEntry};

use crate::check::data_blocks::check_data;
use crate::check::reference::{BlockOwner, BlockReference, each_mapping};
use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::{self, ProgressListener, Stage};
use crate::read::block_set::BlockSet;
use crate::read::chunk;
use crate::read::overlay_tree::{OverlayTree, TreeVisitor};
use crate::read::usage::UsageEntries;
use crate::read::volume::VolumeReader;

/// Maximum number of references in memory, which occupy 256 MiB.
const COLLECTED_MAX: u64 = 8 << 20;

/// References to one segment.
#[derive(Clone, Copy, Default)]
struct ReferenceSum {
    /// Number of references.
    references: u64,
    /// Number of references to blocks that are overwritten in place.
    placed: u64,
    /// Number of different blocks.
    distinct: u64,
    /// Sum of the hashes.
    hash: u64,
}

impl ReferenceSum {
    /// Returns whether all references are to blocks that are overwritten in place.
    fn is_placed(&self) -> bool {
        self.placed == self.references
    }
}

/// All references of a tree.
#[derive(Default)]
pub(crate) struct BlockReferences {
    blocks: BlockSet,
    sums: BTreeMap<u32, ReferenceSum>,
    block_count: u64,
}

impl BlockReferences {
    /// Adds the reference to the node at `pointer`.
    pub(crate) fn add_node(&mut self, volume: &VolumeReader<'_>, pointer: NodePointer) {
        self.add(volume, &BlockReference::to_node(pointer));
    }

    /// Adds the references of an item. A reference outside all segments is a finding.
    pub(crate) fn add_item(
        &mut self,
        volume: &VolumeReader<'_>,
        key: &Key,
        value: &[u8],
        findings: &mut Findings,
    ) {
        each_mapping(volume, key, value, |reference| {
            let BlockOwner::Data { ino, block } = reference.owner else { return };
            if !self.add(volume, &reference) {
                let address = reference.address;
                findings.push(Finding::MappingOutside { ino, block, address });
            }
        });
    }

    /// Adds `reference`. Returns whether it is inside a segment.
    fn add(&mut self, volume: &VolumeReader<'_>, reference: &BlockReference) -> bool {
        let Some(segment) = volume.layout().segment_of(reference.address) else { return false };
        let is_first = u64::from(self.blocks.insert(reference.address));
        self.block_count += is_first;
        let sum = self.sums.entry(segment).or_default();
        sum.references += 1;
        sum.distinct += is_first;
        sum.placed += u64::from(reference.is_placed());
        sum.hash = sum.hash.wrapping_add(reference.hash());
        true
    }

    /// Returns the number of different blocks with a reference.
    pub(crate) fn block_count(&self) -> u64 {
        self.block_count
    }

    /// Returns the segments with a reference, ascending.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u32> {
        self.sums.keys().copied()
    }

    /// Returns the segments all of whose referenced blocks are overwritten in place.
    pub(crate) fn placed_segments(&self) -> impl Iterator<Item = u32> {
        self.sums.iter().filter(|(_, sum)| sum.is_placed()).map(|(segment, _)| *segment)
    }

    /// Compares the references with the summaries; with `data`, reads the blocks as well.
    pub(crate) fn check(
        &self,
        tree: &OverlayTree<'_>,
        data: bool,
        findings: &mut Findings,
        listener: ProgressListener<'_>,
    ) -> Result<(), FsckError> {
        let stage = if data { Stage::Data } else { Stage::Summaries };
        let (mut done, mut suspects) = (0, Vec::new());
        for (segment, sum) in &self.sums {
            done += sum.references;
            progress::report(listener, stage, done, self.block_count)?;
            if sum.is_placed() {
                // No summary names the owners of placed blocks: each block may have only one
                // reference.
                if sum.distinct != sum.references || data {
                    suspects.push(*segment);
                }
                continue;
            }
            let described = self.described(tree.volume, *segment);
            let hashes = described.iter().map(BlockReference::hash);
            if hashes.fold(0, u64::wrapping_add) != sum.hash {
                suspects.push(*segment);
            } else if data {
                check_data(tree.volume, &described, findings);
            }
        }
        let mut rest = suspects.as_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at(self.fitting(rest));
            rest = others;
            check_one_by_one(tree, some, data, findings, listener)?;
        }
        Ok(())
    }

    /// Returns the number of leading `segments`, at least one, whose references fit into memory.
    fn fitting(&self, segments: &[u32]) -> usize {
        let mut collected = 0;
        let fits = segments.iter().take_while(|segment| {
            collected += self.sums.get(segment).map_or(0, |sum| sum.references);
            collected <= COLLECTED_MAX
        });
        fits.count().max(1)
    }

    /// Returns the referenced blocks of `segment`, as its summaries describe them, ascending.
    fn described(&self, volume: &VolumeReader<'_>, segment: u32) -> Vec<BlockReference> {
        let mut described = Vec::new();
        chunk::each_entry(volume, segment, |address, entry| {
            if self.blocks.contains(address) {
                described.push(BlockReference::described(address, entry));
            }
        });
        described
    }
}

/// Checks every reference to `segments` on its own.
fn check_one_by_one(
    tree: &OverlayTree<'_>,
    segments: &[u32],
    data: bool,
    findings: &mut Findings,
    listener: ProgressListener<'_>,
) -> Result<(), FsckError> {
    let wanted = segments.iter().copied().collect();
    let mut collector =
        ReferenceCollector { volume: tree.volume, wanted: &wanted, found: Vec::new() };
    tree.visit(&mut collector, 0, &mut Findings::default(), listener)?;
    let mut found = collector.found;
    // The sort is stable: references to one block stay in the order of the tree.
    found.sort_by_key(|reference| (reference.address, reference.owner == BlockOwner::Node));
    take_shared(&mut found, findings);
    let segment_of =
        |reference: &BlockReference| tree.volume.layout().segment_of(reference.address);
    let usage = UsageEntries::stored(tree);
    for group in found.chunk_by(|a, b| segment_of(a) == segment_of(b)) {
        let Some(segment) = segment_of(&group[0]) else { continue };
        let is_placed = usage.get(segment).is_some_and(|e| e.state == SegmentState::InPlace);
        check_segment(tree.volume, segment, is_placed, group, findings);
        if data {
            check_data(tree.volume, group, findings);
        }
    }
    Ok(())
}

/// Compares the references of one segment, `group`, with its summaries. `is_placed_by_table` is its state in
/// the usage table.
fn check_segment(
    volume: &VolumeReader<'_>,
    segment: u32,
    is_placed_by_table: bool,
    group: &[BlockReference],
    findings: &mut Findings,
) {
    let all_placed = group.iter().all(BlockReference::is_placed);
    // No summary names the owners of placed blocks. Beside them a reference to a block of the log is wrong.
    let is_trusted = |one: &BlockReference| one.is_placed() && (all_placed || is_placed_by_table);
    let mut known: Vec<bool> = group.iter().map(is_trusted).collect();
    let compare = |address, entry: &SummaryEntry| {
        let position = group.binary_search_by_key(&address, |reference| reference.address);
        if let Ok(index) = position
            && !group[index].is_placed()
        {
            known[index] = group[index].hash() == BlockReference::described(address, entry).hash();
        }
    };
    if !all_placed {
        chunk::each_entry(volume, segment, compare);
    }
    for (reference, _) in group.iter().zip(known).filter(|(_, known)| !known) {
        findings.push(reference.unknown());
    }
}

/// Removes all but the first of several references to one block. Each removed reference is a
/// finding.
fn take_shared(found: &mut Vec<BlockReference>, findings: &mut Findings) {
    found.dedup_by(|later, first| {
        if later.address != first.address {
            return false;
        }
        let other = match first.owner {
            BlockOwner::Data { ino, .. } => ino,
            BlockOwner::Node => 0,
        };
        let address = later.address;
        findings.push(match later.owner {
            BlockOwner::Data { ino, block } => {
                Finding::MappingShared { ino, block, address, other }
            }
            BlockOwner::Node => Finding::NodeShared { address },
        });
        true
    });
}

/// Collector of the references to some segments.
struct ReferenceCollector<'a> {
    volume: &'a VolumeReader<'a>,
    wanted: &'a BTreeSet<u32>,
    found: Vec<BlockReference>,
}

impl ReferenceCollector<'_> {
    fn add(&mut self, reference: BlockReference) {
        let segment = self.volume.layout().segment_of(reference.address);
        if segment.is_some_and(|segment| self.wanted.contains(&segment)) {
            self.found.push(reference);
        }
    }
}

impl TreeVisitor for ReferenceCollector<'_> {
    fn node(&mut self, pointer: NodePointer) {
        self.add(BlockReference::to_node(pointer));
    }

    fn old_item(&mut self, _: &Key, _: &[u8]) {}

    fn item(&mut self, key: &Key, value: &[u8]) {
        each_mapping(self.volume, key, value, |reference| self.add(reference));
    }
}
