//! Scrub of the tree: one leaf a step, with the nodes above it that were not verified yet, and the data of its mappings.

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use super::Volume;
use super::scrub::{Phase, Scrub};
use super::scrub_log::WalkedSegments;
use crate::Error;
use crate::format::{
    Corruption, CorruptionKind, ErrorKind, ItemKind, Key, Mapping, MappingRun, NodeHeader,
};
use crate::metadata::run_base;
use crate::request::{SCRUB_STEP_BLOCKS, ScrubDamage, ScrubStep};
use crate::tree::NodeNotCached;

/// A mapped block of a file.
#[derive(Clone, Copy)]
struct MappedBlock {
    ino: u64,
    block: u32,
    mapping: Mapping,
}

impl Volume {
    /// Verifies the next leaf, the nodes above it, and the data that it maps.
    pub(super) fn scrub_leaf(&self, scrub: &mut Scrub, step: &mut ScrubStep) {
        let from = scrub.from;
        let next = match self.metadata.scan_leaf(&from) {
            Ok(scanned) => {
                let path = &scanned.path;
                for node in path.inner.iter().filter(|node| !scrub.path.contains(node)) {
                    self.scrub_node(node, &from, step);
                }
                if scanned.is_read {
                    step.counts.node_blocks += 1;
                } else if path.is_stored() {
                    self.scrub_node(&path.leaf, &from, step);
                }
                let nodes = path.inner.iter().chain(path.is_stored().then_some(&path.leaf));
                let mut live: Vec<u64> = nodes.map(|node| node.pointer.address).collect();
                let blocks = self.mapped_blocks(&from, scanned.leaf.items(), step);
                live.extend(blocks.iter().map(|mapped| mapped.mapping.address));
                self.check_walked(&live, &mut scrub.walked, step);
                self.scrub_blocks(blocks, &mut scrub.memory, step);
                let end = path.end();
                scrub.path = scanned.path.inner;
                end
            }
            Err(unreadable) => {
                step.counts.node_blocks += 1;
                let at = unreadable.node.pointer.address;
                Self::note_scrub_error(step, at, &unreadable.error);
                // The bounds of a damaged node may be wrong.
                unreadable.node.keys.and_then(|keys| keys.end).filter(|end| *end > scrub.from)
            }
        };
        match next {
            Some(next) => scrub.from = next,
            None => scrub.phase = Phase::Done,
        }
    }

    /// Reports the damaged summary before each live block that is behind the last chunk that was found in its segment.
    fn check_walked(&self, live: &[u64], walked: &mut WalkedSegments, step: &mut ScrubStep) {
        let layout = self.layout();
        let lost: Vec<(u32, u32)> = {
            let metadata = self.metadata.read();
            let end_before = |address: &u64| {
                let segment = layout.segment_of(*address)?;
                let entry = metadata.usage.entries().get(segment as usize)?;
                let block = (address - layout.segment_address(segment)) as u32;
                Some((segment, walked.missing(segment, entry.stamp, block)?))
            };
            live.iter().filter_map(end_before).collect()
        };
        for (segment, end) in lost {
            self.note_lost_summary(step, segment, end);
        }
    }

    /// Verifies a node on the device that is on the path to `key`, unless it is dirty.
    fn scrub_node(&self, node: &NodeNotCached, key: &Key, step: &mut ScrubStep) {
        step.counts.node_blocks += 1;
        let at = node.pointer.address;
        if self.is_node_sound(node).is_ok() {
            return;
        }
        let is_there = match self.metadata.scan_leaf(key) {
            Ok(scanned) => scanned.path.inner.contains(node) || scanned.path.leaf == *node,
            // The damaged node itself, which is reported here, or one below.
            Err(_) => true,
        };
        let again = self.read_node_block(node);
        let verified = again.and_then(|block| {
            self.verify_node_block(node, &block).inspect_err(|_| {
                if is_there {
                    self.health.note_misplaced(&block, self.superblock.volume(), at);
                }
            })
        });
        match verified {
            Ok(()) if is_there => self.health.note_error(ErrorKind::Retry, at),
            Err(error) if is_there => {
                // A failure of the device is counted where it occurs.
                if let Error::Corrupt(damage) = &error {
                    self.health.note_corruption(damage);
                }
                Self::note_scrub_error(step, at, &error);
            }
            // The node has been written elsewhere since.
            _ => {}
        }
    }

    fn is_node_sound(&self, node: &NodeNotCached) -> Result<(), Error> {
        self.read_node_block(node).and_then(|block| self.verify_node_block(node, &block))
    }

    fn read_node_block(&self, node: &NodeNotCached) -> Result<Block, Error> {
        let mut block = Block([0; BLOCK_SIZE]);
        self.io.read(node.pointer.address, std::slice::from_mut(&mut block))?;
        Ok(block)
    }

    fn verify_node_block(&self, node: &NodeNotCached, block: &Block) -> Result<(), Error> {
        NodeHeader::verify(&block.0, self.superblock.volume(), node.pointer)?;
        Ok(())
    }

    /// Returns the mapped blocks in the `items` of a leaf from `from` on, ascending by address.
    fn mapped_blocks<'a>(
        &self,
        from: &Key,
        items: impl Iterator<Item = (Key, &'a [u8])>,
        step: &mut ScrubStep,
    ) -> Vec<MappedBlock> {
        let (layout, tolerance) = (self.layout(), self.superblock.tolerance());
        let mut blocks = Vec::new();
        let of_runs = |(key, _): &(Key, &[u8])| key >= from && key.kind == ItemKind::Mapping as u8;
        for (key, value) in items.filter(of_runs) {
            let ino = key.ino;
            let decoded = run_base(&key)
                .map_err(Error::from)
                .and_then(|base| Ok((base, MappingRun::decode(value, &key, tolerance)?)));
            let damage = match decoded {
                Ok((base, run)) => {
                    let start = blocks.len();
                    let mapped =
                        |(block, mapping): (u32, Mapping)| MappedBlock { ino, block, mapping };
                    blocks.extend(run.iter(base).map(mapped));
                    let is_outside =
                        |mapped: &MappedBlock| layout.segment_of(mapped.mapping.address).is_none();
                    if !blocks[start..].iter().any(is_outside) {
                        continue;
                    }
                    blocks.truncate(start);
                    Corruption::in_item(ino, CorruptionKind::Dangling).into()
                }
                Err(error) => error,
            };
            // A structure of a newer program is no damage.
            if let Error::Corrupt(damage) = &damage {
                self.health.note_corruption(damage);
                let kind = ErrorKind::of_corruption(damage);
                step.damage.push(ScrubDamage { kind, at: ino, owner: None });
            }
        }
        blocks.sort_unstable_by_key(|mapped| mapped.mapping.address);
        blocks
    }

    /// Reads and verifies blocks, neighbours in one request.
    fn scrub_blocks(&self, blocks: Vec<MappedBlock>, memory: &mut [Block], step: &mut ScrubStep) {
        let follows = |a: &MappedBlock, b: &MappedBlock| a.mapping.address + 1 == b.mapping.address;
        for run in blocks.chunk_by(follows).flat_map(|run| run.chunks(SCRUB_STEP_BLOCKS)) {
            let memory = &mut memory[..run.len()];
            let is_read = self.io.read(run[0].mapping.address, memory).is_ok();
            for (mapped, block) in run.iter().zip(memory.iter_mut()) {
                match mapped.mapping.checksum {
                    Some(_) => step.counts.data_blocks += 1,
                    None => step.counts.unverified_blocks += 1,
                }
                if !is_read || !is_right(&mapped.mapping, block) {
                    self.read_again(mapped, block, is_read || run.len() == 1, step);
                }
            }
        }
    }

    /// Reads a block once more, which is wrong, or in a run that could not be read. `is_retry` is `true` if the block itself
    /// was wrong.
    fn read_again(
        &self,
        mapped: &MappedBlock,
        memory: &mut Block,
        is_retry: bool,
        step: &mut ScrubStep,
    ) {
        let MappedBlock { ino, block, mapping } = *mapped;
        let at = mapping.address;
        let read = self.io.read(at, std::slice::from_mut(memory));
        // The block may have been written elsewhere, or cut off, since its leaf was read.
        let now = self.metadata.read_txn(|txn| txn.mapping(ino, block));
        if now.is_ok_and(|now| now != Some(mapping)) {
            return;
        }
        let kind = match read {
            Ok(()) if is_right(&mapping, memory) => {
                if is_retry {
                    self.health.note_error(ErrorKind::Retry, at);
                }
                return;
            }
            Ok(()) => {
                self.health.note_misplaced(memory, self.superblock.volume(), at);
                self.health.note_error(ErrorKind::Data, at);
                ErrorKind::Data
            }
            Err(_) => ErrorKind::Read,
        };
        step.damage.push(ScrubDamage { kind, at, owner: Some((ino, block)) });
    }
}

/// Returns whether `block` has the checksum of its mapping, if there is one.
fn is_right(mapping: &Mapping, block: &Block) -> bool {
    mapping.checksum.is_none_or(|checksum| crc32c::crc32c(block.as_bytes()) == checksum)
}
