//! Blocks that the volume refers to, against the segments that they lie in.
//!
//! Owns: a bit for each block that is referred to, and for each segment the sum of what refers to it.
//! Promises: each segment is walked once; references are held one by one only for segments whose sum is
//! not that of their summaries, a bounded number at a time.
//! Never: reads data, unless it is asked to.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{ItemKind, Key, NodePointer, RUN_BLOCKS, SegmentState, SummaryEntry};
use sfs_device::Block;

use crate::bits::Bits;
use crate::log;
use crate::progress::{Listener, Stage, tell};
use crate::usage::{Usage, decode_run};
use crate::view::{View, Visitor};
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError};

/// Blocks read at once.
const READ_BLOCKS: usize = 256;

/// References that are held at once: 256 MiB of them.
const HELD_MAX: u64 = 8 << 20;

/// Who refers to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Data { ino: u64, block: u32 },
    Node,
}

/// A block that something refers to.
#[derive(Clone, Copy)]
struct Referred {
    address: u64,
    /// None of a block that is overwritten in place.
    checksum: Option<u32>,
    owner: Owner,
}

/// What refers to a segment.
#[derive(Clone, Copy, Default)]
struct Sum {
    blocks: u64,
    /// Those that are overwritten in place.
    placed: u64,
    /// Different blocks.
    distinct: u64,
    hash: u64,
}

impl Sum {
    /// Whether the segment holds nothing but blocks that are overwritten in place.
    fn is_placed(&self) -> bool {
        self.placed == self.blocks
    }
}

/// All blocks that the volume refers to.
#[derive(Default)]
pub(crate) struct References {
    bits: Bits,
    sums: BTreeMap<u32, Sum>,
    blocks: u64,
}

impl References {
    /// Something refers to the node at `pointer`.
    pub(crate) fn add_node(&mut self, volume: &Volume<'_>, pointer: NodePointer) {
        let NodePointer { address, checksum } = pointer;
        let checksum = Some(checksum);
        self.add(volume, &Referred { address, checksum, owner: Owner::Node });
    }

    /// The tree has this item; what it maps to outside of the segments goes to `findings`.
    pub(crate) fn add_item(
        &mut self,
        volume: &Volume<'_>,
        key: &Key,
        value: &[u8],
        findings: &mut Findings,
    ) {
        each_mapping(volume, key, value, |referred| {
            let Owner::Data { ino, block } = referred.owner else { return };
            if !self.add(volume, &referred) {
                let address = referred.address;
                findings.push(Finding::MappingOutside { ino, block, address });
            }
        });
    }

    fn add(&mut self, volume: &Volume<'_>, referred: &Referred) -> bool {
        let Some(segment) = volume.layout().segment_of(referred.address) else { return false };
        let is_first = u64::from(self.bits.insert(referred.address));
        self.blocks += is_first;
        let sum = self.sums.entry(segment).or_default();
        sum.blocks += 1;
        sum.distinct += is_first;
        sum.placed += u64::from(referred.checksum.is_none());
        sum.hash = sum.hash.wrapping_add(referred.hash());
        true
    }

    /// Blocks that the volume refers to.
    pub(crate) fn len(&self) -> u64 {
        self.blocks
    }

    /// Segments in which something is referred to.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u32> {
        self.sums.keys().copied()
    }

    /// Those in which only blocks are that are overwritten in place.
    pub(crate) fn placed_segments(&self) -> impl Iterator<Item = u32> {
        self.sums.iter().filter(|(_, sum)| sum.is_placed()).map(|(segment, _)| *segment)
    }

    /// Compares them with the summaries; with `data`, reads what they refer to as well.
    pub(crate) fn check(
        &self,
        view: &View<'_>,
        data: bool,
        findings: &mut Findings,
        listener: Listener<'_>,
    ) -> Result<(), FsckError> {
        let stage = if data { Stage::Data } else { Stage::Summaries };
        let (mut done, mut suspects) = (0, Vec::new());
        for (segment, sum) in &self.sums {
            done += sum.blocks;
            tell(listener, stage, done, self.blocks)?;
            if sum.is_placed() {
                // No summary says whose they are: each may have one owner.
                if sum.distinct != sum.blocks || data {
                    suspects.push(*segment);
                }
                continue;
            }
            let described = self.described(view.volume, *segment);
            let hashes = described.iter().map(Referred::hash);
            if hashes.fold(0, u64::wrapping_add) != sum.hash {
                suspects.push(*segment);
            } else if data {
                check_data(view.volume, &described, findings);
            }
        }
        let mut rest = suspects.as_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at(self.fitting(rest));
            rest = others;
            check_one_by_one(view, some, data, findings, listener)?;
        }
        Ok(())
    }

    /// How many of `segments`, at least one, have few enough references to be held.
    fn fitting(&self, segments: &[u32]) -> usize {
        let mut held = 0;
        let fits = segments.iter().take_while(|segment| {
            held += self.sums.get(segment).map_or(0, |sum| sum.blocks);
            held <= HELD_MAX
        });
        fits.count().max(1)
    }

    /// The blocks of `segment` that are referred to, as its summaries describe them, ascending.
    fn described(&self, volume: &Volume<'_>, segment: u32) -> Vec<Referred> {
        let mut described = Vec::new();
        log::walk(volume, segment, |address, entry| {
            if self.bits.contains(address) {
                described.push(Referred::described(address, entry));
            }
        });
        described
    }
}

/// Looks at every reference to `segments`.
fn check_one_by_one(
    view: &View<'_>,
    segments: &[u32],
    data: bool,
    findings: &mut Findings,
    listener: Listener<'_>,
) -> Result<(), FsckError> {
    let wanted = segments.iter().copied().collect();
    let mut collector = Collector { volume: view.volume, wanted: &wanted, found: Vec::new() };
    view.show(&mut collector, 0, &mut Findings::default(), listener)?;
    let mut found = collector.found;
    // Stable: who comes first in the tree stays first.
    found.sort_by_key(|referred| (referred.address, referred.owner == Owner::Node));
    find_shared(&mut found, findings);
    let segment_of = |referred: &Referred| view.volume.layout().segment_of(referred.address);
    let usage = Usage::read(view, &mut Findings::default());
    for group in found.chunk_by(|a, b| segment_of(a) == segment_of(b)) {
        let Some(segment) = segment_of(&group[0]) else { continue };
        let is_placed = |referred: &Referred| referred.checksum.is_none();
        let all_placed = group.iter().all(is_placed);
        let says_placed = usage.get(segment).is_some_and(|e| e.state == SegmentState::InPlace);
        // No summary says whose placed blocks are. One of the log beside them is wrong, not they.
        let mut known: Vec<bool> =
            group.iter().map(|r| is_placed(r) && (all_placed || says_placed)).collect();
        let compare = |address, entry: &SummaryEntry| {
            let place = group.binary_search_by_key(&address, |referred| referred.address);
            if let Ok(index) = place
                && !is_placed(&group[index])
            {
                known[index] = group[index].hash() == Referred::described(address, entry).hash();
            }
        };
        if !all_placed {
            log::walk(view.volume, segment, compare);
        }
        for (referred, _) in group.iter().zip(known).filter(|(_, known)| !known) {
            findings.push(referred.unknown());
        }
        if data {
            check_data(view.volume, group, findings);
        }
    }
    Ok(())
}

/// Finds blocks with two owners, and keeps the first of them.
fn find_shared(found: &mut Vec<Referred>, findings: &mut Findings) {
    found.dedup_by(|later, first| {
        if later.address != first.address {
            return false;
        }
        let other = match first.owner {
            Owner::Data { ino, .. } => ino,
            Owner::Node => 0,
        };
        let address = later.address;
        findings.push(match later.owner {
            Owner::Data { ino, block } => Finding::MappingShared { ino, block, address, other },
            Owner::Node => Finding::NodeShared { address },
        });
        true
    });
}

/// Reads data, neighbours together, and compares it with the checksums.
fn check_data(volume: &Volume<'_>, described: &[Referred], findings: &mut Findings) {
    for run in described.chunk_by(|a, b| a.address + 1 == b.address) {
        run.chunks(READ_BLOCKS).for_each(|part| check_part(volume, part, findings));
    }
}

/// Reads neighbouring blocks; one by one if one of them cannot be read.
fn check_part(volume: &Volume<'_>, part: &[Referred], findings: &mut Findings) {
    let mut blocks = Block::zeroed(part.len());
    if volume.device.read(part[0].address, &mut blocks).is_err() {
        match part {
            [Referred { address, owner: Owner::Data { ino, block }, .. }] => {
                let (ino, block, address) = (*ino, *block, *address);
                findings.push(Finding::DataDamaged { ino, block, address });
            }
            [one] => findings.push(Finding::Unreadable { address: one.address }),
            _ => part.chunks(1).for_each(|one| check_part(volume, one, findings)),
        }
        return;
    }
    for (referred, block) in part.iter().zip(&blocks) {
        let Owner::Data { ino, block: at } = referred.owner else { continue };
        if referred.checksum.is_some_and(|checksum| crc32c::crc32c(&block.0) != checksum) {
            let address = referred.address;
            findings.push(Finding::DataDamaged { ino, block: at, address });
        }
    }
}

/// Collects the references to some segments.
struct Collector<'a> {
    volume: &'a Volume<'a>,
    wanted: &'a BTreeSet<u32>,
    found: Vec<Referred>,
}

impl Collector<'_> {
    fn add(&mut self, referred: Referred) {
        let segment = self.volume.layout().segment_of(referred.address);
        if segment.is_some_and(|segment| self.wanted.contains(&segment)) {
            self.found.push(referred);
        }
    }
}

impl Visitor for Collector<'_> {
    fn node(&mut self, pointer: NodePointer) {
        let NodePointer { address, checksum } = pointer;
        self.add(Referred { address, checksum: Some(checksum), owner: Owner::Node });
    }

    fn old_item(&mut self, _: &Key, _: &[u8]) {}

    fn item(&mut self, key: &Key, value: &[u8]) {
        each_mapping(self.volume, key, value, |referred| self.add(referred));
    }
}

/// Calls `each` for what an item refers to. Runs that do not decode are found elsewhere.
fn each_mapping(volume: &Volume<'_>, key: &Key, value: &[u8], mut each: impl FnMut(Referred)) {
    if key.kind != ItemKind::Mapping as u8 {
        return;
    }
    let tolerance = volume.superblock.tolerance();
    let (ino, Ok(run)) = (key.ino, decode_run(key, value, tolerance)) else { return };
    for (block, mapping) in run.iter(key.offset as u32 * RUN_BLOCKS) {
        let (address, checksum) = (mapping.address, mapping.checksum);
        each(Referred { address, checksum, owner: Owner::Data { ino, block } });
    }
}

impl Referred {
    /// The block at `address`, as a summary describes it.
    fn described(address: u64, entry: &SummaryEntry) -> Self {
        match *entry {
            SummaryEntry::Data { ino, block, checksum, .. } => {
                Self { address, checksum: Some(checksum), owner: Owner::Data { ino, block } }
            }
            SummaryEntry::Node { checksum } => {
                Self { address, checksum: Some(checksum), owner: Owner::Node }
            }
        }
    }

    /// A number that differs wherever the reference does, but for one time in 2^64.
    fn hash(&self) -> u64 {
        let (ino, block) = match self.owner {
            Owner::Data { ino, block } => (ino, block),
            Owner::Node => (u64::MAX, 0),
        };
        let checksum = u64::from(self.checksum.unwrap_or_default());
        let words = [self.address, ino, u64::from(block) << 32 | checksum];
        words.into_iter().fold(1, |hash, word| mix(hash ^ mix(word)))
    }

    fn unknown(&self) -> Finding {
        let address = self.address;
        match self.owner {
            Owner::Data { ino, block } => Finding::MappingUnknown { ino, block, address },
            Owner::Node => Finding::NodeUnknown { address },
        }
    }
}

/// Spreads every bit over all others (the finalizer of splitmix64).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
