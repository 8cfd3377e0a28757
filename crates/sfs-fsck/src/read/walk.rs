//! Walk over the tree of a checkpoint, node by node, in the order of the keys.
//!
//! The walk visits each node once, even if several pointers lead to it. Levels fall on the way down, so the
//! walk ends on a forged tree, too. For an unreadable node it returns the range of keys that is lost with it.
//! Items are not interpreted. The leaves below one node are read ahead together.

use std::collections::HashMap;

use sfs_core::format::{Key, NodeHeader, NodePointer};
use sfs_device::Block;

use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::block_set::BlockSet;
use crate::read::key_range::KeyRange;
use crate::read::node::{self, NodeContent};
use crate::read::volume::VolumeReader;

/// Highest level that a root may have. No volume needs more than 8.
pub(crate) const LEVEL_MAX: u8 = 32;

/// Verified leaf.
pub(crate) struct Leaf {
    pub(crate) pointer: NodePointer,
    /// Range of keys that the parents of the leaf assign to it.
    pub(crate) range: KeyRange,
    pub(crate) block: Box<Block>,
    item_count: u16,
}

impl Leaf {
    /// Returns the items of the leaf, ascending.
    pub(crate) fn items(&self) -> Vec<(Key, &[u8])> {
        self.decode().unwrap_or_default()
    }

    fn decode(&self) -> Option<Vec<(Key, &[u8])>> {
        let header = NodeHeader { level: 0, item_count: self.item_count };
        match node::decode(&self.block.0, header, self.pointer.address) {
            Ok(NodeContent::Leaf(items)) => Some(items),
            _ => None,
        }
    }
}

/// Part of a tree, as a walk returns it.
pub(crate) enum TreePart {
    /// Node above the leaves.
    Inner(NodePointer),
    /// Leaf.
    Leaf(Leaf),
    /// Keys below an unreadable node.
    Lost(KeyRange),
}

/// Node to be read.
struct NodeVisit {
    pointer: NodePointer,
    level: u8,
    /// Key of the entry that points to the node. No key in the node is below it.
    least: Key,
    /// Range of keys that the parents assign to the node. For a first child it may begin below `least`.
    range: KeyRange,
}

/// Walk over a tree.
pub(crate) struct TreeWalk<'a> {
    volume: &'a VolumeReader<'a>,
    within: KeyRange,
    /// Nodes still to be visited; the next one is the last.
    visits: Vec<NodeVisit>,
    seen: BlockSet,
    /// Leaves that were read ahead, by address.
    ahead: HashMap<u64, Box<Block>>,
}

impl<'a> TreeWalk<'a> {
    /// Returns a walk over the nodes below a root, of this pointer and level, that may hold keys `within`.
    pub(crate) fn new(
        volume: &'a VolumeReader<'a>,
        (pointer, level): (NodePointer, u8),
        within: KeyRange,
    ) -> Self {
        let visits = vec![NodeVisit { pointer, level, least: Key::MIN, range: KeyRange::ALL }];
        Self { volume, within, visits, seen: BlockSet::default(), ahead: HashMap::new() }
    }

    /// Returns the next part. Damage is added to `findings`.
    pub(crate) fn next(&mut self, findings: &mut Findings) -> Option<TreePart> {
        let visit = self.visits.pop()?;
        let range = visit.range;
        Some(self.visit(visit, findings).unwrap_or(TreePart::Lost(range)))
    }

    fn visit(&mut self, visit: NodeVisit, findings: &mut Findings) -> Option<TreePart> {
        let NodeVisit { pointer, level, least, range } = visit;
        let address = pointer.address;
        if level > LEVEL_MAX {
            findings.push(Finding::NodeLevel { address, level, expected: LEVEL_MAX });
            return None;
        }
        if !self.volume.in_segments(address) {
            findings.push(Finding::NodeOutside { address });
            return None;
        }
        if !self.seen.insert(address) {
            findings.push(Finding::NodeShared { address });
            return None;
        }
        let block = match self.ahead.remove(&address) {
            Some(block) => block,
            None => self.volume.read(address, findings)?,
        };
        let header = read_header(self.volume, pointer, level, &block, findings)?;
        let content = match node::decode(&block.0, header, address) {
            Ok(content) => content,
            Err(corruption) => {
                findings.push(Finding::NodeDamaged { corruption });
                return None;
            }
        };
        if content.keys().any(|key| *key < least || !range.contains(key)) {
            findings.push(Finding::NodeRange { address });
            return None;
        }
        match content {
            NodeContent::Leaf(_) => {
                Some(TreePart::Leaf(Leaf { pointer, range, block, item_count: header.item_count }))
            }
            NodeContent::Inner(children) => {
                self.push_children(&children, level - 1, range);
                Some(TreePart::Inner(pointer))
            }
        }
    }

    /// Schedules the children of a node as the next visits.
    fn push_children(&mut self, children: &[(Key, NodePointer)], level: u8, range: KeyRange) {
        let highs = children.iter().skip(1).map(|(key, _)| Some(*key)).chain([range.high]);
        let lows = [range.low].into_iter().chain(children.iter().skip(1).map(|(key, _)| *key));
        let ranges = lows.zip(highs).map(|(low, high)| KeyRange { low, high });
        let visits = children.iter().zip(ranges).map(|((least, pointer), range)| NodeVisit {
            pointer: *pointer,
            level,
            least: *least,
            range,
        });
        let within = self.within;
        let mut below: Vec<NodeVisit> =
            visits.filter(|visit| visit.range.overlaps(&within)).collect();
        if level == 0 {
            self.read_ahead(&below);
        }
        below.reverse();
        self.visits.append(&mut below);
    }

    /// Reads leaves, neighbours on the device in one request. The leaves of a failed request are left to
    /// their visits.
    fn read_ahead(&mut self, leaves: &[NodeVisit]) {
        self.ahead.clear();
        let addresses = leaves.iter().map(|visit| visit.pointer.address);
        let mut addresses: Vec<u64> = addresses
            .filter(|at| self.volume.in_segments(*at) && !self.seen.contains(*at))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        for run in addresses.chunk_by(|a, b| a + 1 == *b) {
            let mut blocks = Block::zeroed(run.len());
            if self.volume.device.read(run[0], &mut blocks).is_ok() {
                let read = run.iter().copied().zip(blocks.iter());
                self.ahead.extend(read.map(|(at, block)| (at, Box::new(block.clone()))));
            }
        }
    }
}

/// Returns the header of the node in `block`, read through `pointer`, if it is sound and of the `expected`
/// level.
fn read_header(
    volume: &VolumeReader<'_>,
    pointer: NodePointer,
    expected: u8,
    block: &Block,
    findings: &mut Findings,
) -> Option<NodeHeader> {
    match NodeHeader::verify(&block.0, volume.id(), pointer) {
        Ok(header) if header.level == expected => Some(header),
        Ok(header) => {
            let (address, level) = (pointer.address, header.level);
            findings.push(Finding::NodeLevel { address, level, expected });
            None
        }
        Err(corruption) => {
            findings.push(Finding::NodeDamaged { corruption });
            None
        }
    }
}
