//! Block mappings against the segments that they lead to.
//!
//! Owns: the list of all mapped blocks, by address.
//! Promises: each segment is walked once.
//! Never: reads data, unless it is asked to.

use sfs_core::format::{ItemKind, NodePointer, RUN_BLOCKS, SummaryEntry};
use sfs_device::Block;

use crate::items::Items;
use crate::log;
use crate::progress::{Listener, Stage, tell};
use crate::usage::decode_run;
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError};

/// Blocks read at once.
const READ_BLOCKS: usize = 256;

/// Who refers to a block.
#[derive(Clone, Copy)]
enum Owner {
    Data { ino: u64, block: u32 },
    Node,
}

/// A block that something refers to.
#[derive(Clone, Copy)]
struct Referred {
    address: u64,
    checksum: u32,
    owner: Owner,
}

/// All blocks that the volume refers to, ascending.
pub(crate) struct Mappings(Vec<Referred>);

impl Mappings {
    /// Collects them, and finds those that are nowhere or have two owners.
    pub(crate) fn collect(
        volume: &Volume<'_>,
        items: &Items,
        nodes: &[NodePointer],
        findings: &mut Findings,
    ) -> Self {
        let mut all = Vec::new();
        for (key, value) in items.iter().filter(|(key, _)| key.kind == ItemKind::Mapping as u8) {
            let (ino, Some(run)) = (key.ino, decode_run(key, value)) else { continue };
            for (block, mapping) in run.iter(key.offset as u32 * RUN_BLOCKS) {
                let (address, checksum) = (mapping.address, mapping.checksum);
                if volume.in_segments(address) {
                    all.push(Referred { address, checksum, owner: Owner::Data { ino, block } });
                } else {
                    findings.push(Finding::MappingOutside { ino, block, address });
                }
            }
        }
        all.extend(nodes.iter().map(|node| Referred {
            address: node.address,
            checksum: node.checksum,
            owner: Owner::Node,
        }));
        all.sort_by_key(|referred| referred.address);
        let mut mappings = Self(all);
        mappings.find_shared(findings);
        mappings
    }

    /// Blocks that the volume refers to.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Finds blocks with two owners, and keeps the first of them.
    fn find_shared(&mut self, findings: &mut Findings) {
        self.0.dedup_by(|later, first| {
            if later.address != first.address {
                return false;
            }
            let other = match first.owner {
                Owner::Data { ino, .. } => ino,
                Owner::Node => 0,
            };
            match later.owner {
                Owner::Data { ino, block } => {
                    let address = later.address;
                    findings.push(Finding::MappingShared { ino, block, address, other });
                }
                Owner::Node => findings.push(Finding::NodeShared { address: later.address }),
            }
            true
        });
    }

    /// Compares them with the summaries of their segments.
    pub(crate) fn check_summaries(
        &self,
        volume: &Volume<'_>,
        findings: &mut Findings,
        listener: Listener<'_>,
    ) -> Result<(), FsckError> {
        let segment_of = |referred: &Referred| volume.layout().segment_of(referred.address);
        let mut done = 0;
        for group in self.0.chunk_by(|a, b| segment_of(a) == segment_of(b)) {
            let Some(segment) = segment_of(&group[0]) else { continue };
            let mut known = vec![false; group.len()];
            log::walk(volume, segment, |address, entry| {
                let found = group.binary_search_by_key(&address, |referred| referred.address);
                if let Ok(index) = found {
                    known[index] = group[index].agrees(entry);
                }
            });
            for (referred, _) in group.iter().zip(known).filter(|(_, known)| !known) {
                findings.push(referred.unknown());
            }
            done += group.len() as u64;
            tell(listener, Stage::Summaries, done, self.len())?;
        }
        Ok(())
    }

    /// Reads all data and compares it with the checksums.
    pub(crate) fn check_data(
        &self,
        volume: &Volume<'_>,
        findings: &mut Findings,
        listener: Listener<'_>,
    ) -> Result<(), FsckError> {
        let mut done = 0;
        for run in self.0.chunk_by(|a, b| a.address + 1 == b.address) {
            for part in run.chunks(READ_BLOCKS) {
                check_part(volume, part, findings);
                done += part.len() as u64;
                tell(listener, Stage::Data, done, self.len())?;
            }
        }
        Ok(())
    }
}

/// Reads neighbouring blocks; one by one if one of them cannot be read.
fn check_part(volume: &Volume<'_>, part: &[Referred], findings: &mut Findings) {
    let mut blocks = Block::zeroed(part.len());
    if volume.device.read(part[0].address, &mut blocks).is_err() {
        match part {
            [one] => findings.push(Finding::Unreadable { address: one.address }),
            _ => part.chunks(1).for_each(|one| check_part(volume, one, findings)),
        }
        return;
    }
    for (referred, block) in part.iter().zip(&blocks) {
        let Owner::Data { ino, block: at } = referred.owner else { continue };
        if crc32c::crc32c(&block.0) != referred.checksum {
            let address = referred.address;
            findings.push(Finding::DataDamaged { ino, block: at, address });
        }
    }
}

impl Referred {
    fn agrees(&self, entry: &SummaryEntry) -> bool {
        match (self.owner, *entry) {
            (Owner::Data { ino, block }, SummaryEntry::Data { ino: i, block: b, checksum, .. }) => {
                (ino, block, self.checksum) == (i, b, checksum)
            }
            (Owner::Node, SummaryEntry::Node { checksum }) => self.checksum == checksum,
            _ => false,
        }
    }

    fn unknown(&self) -> Finding {
        let address = self.address;
        match self.owner {
            Owner::Data { ino, block } => Finding::MappingUnknown { ino, block, address },
            Owner::Node => Finding::NodeUnknown { address },
        }
    }
}
