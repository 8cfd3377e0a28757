//! Reading the tree of a checkpoint, node by node, in the order of the keys.
//!
//! Owns: the descent from the root, and the leaves of one node read ahead.
//! Promises: every node is read once, whatever points to it; levels only fall, so it ends; what cannot
//! be read is given as the range of keys that is lost with it.
//! Never: looks at what the items say.

use std::collections::HashMap;

use sfs_core::format::{Key, NodeHeader, NodePointer};
use sfs_device::Block;

use crate::bits::Bits;
use crate::node::{self, Content};
use crate::volume::Volume;
use crate::{Finding, Findings};

/// The highest level that a root may have. No volume has a need for 8.
pub(crate) const LEVEL_MAX: u8 = 32;

/// A range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// No key is below this one,
    pub(crate) low: Key,
    /// and every key is below this one, if there is one.
    pub(crate) high: Option<Key>,
}

impl Keys {
    /// Every key.
    pub(crate) const ALL: Self = Self { low: Key::MIN, high: None };

    /// Every key of `ino`.
    pub(crate) fn of(ino: u64) -> Self {
        let first = |ino| Key { ino, kind: 0, offset: 0 };
        Self { low: first(ino), high: ino.checked_add(1).map(first) }
    }

    /// Whether `key` is one of them.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        *key >= self.low && self.high.is_none_or(|high| *key < high)
    }

    /// Whether a key can be one of both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let below = |keys: &Self, low: &Key| keys.high.is_some_and(|high| high <= *low);
        !below(self, &other.low) && !below(other, &self.low)
    }
}

/// A leaf, verified.
pub(crate) struct Leaf {
    pub(crate) pointer: NodePointer,
    /// What its parents leave to it.
    pub(crate) keys: Keys,
    pub(crate) block: Box<Block>,
    item_count: u16,
}

impl Leaf {
    /// Its items, ascending.
    pub(crate) fn items(&self) -> Vec<(Key, &[u8])> {
        self.decode().unwrap_or_default()
    }

    fn decode(&self) -> Option<Vec<(Key, &[u8])>> {
        let header = NodeHeader { level: 0, item_count: self.item_count };
        match node::decode(&self.block.0, header, self.pointer.address) {
            Ok(Content::Leaf(items)) => Some(items),
            _ => None,
        }
    }
}

/// What a walk comes to.
pub(crate) enum Part {
    /// A node that is no leaf.
    Inner(NodePointer),
    /// A leaf.
    Leaf(Leaf),
    /// These keys cannot be read.
    Lost(Keys),
}

/// A node to be read.
struct Visit {
    pointer: NodePointer,
    level: u8,
    /// The key of its entry: none in it is below.
    least: Key,
    /// What is left to it; to the first child of a node also what is below its key.
    keys: Keys,
}

/// A walk over a tree.
pub(crate) struct Walk<'a> {
    volume: &'a Volume<'a>,
    within: Keys,
    /// The next one last.
    visits: Vec<Visit>,
    seen: Bits,
    /// Leaves that have been read ahead.
    ahead: HashMap<u64, Box<Block>>,
}

impl<'a> Walk<'a> {
    /// A walk over the nodes below `root` at `level` that may hold keys `within`.
    pub(crate) fn new(
        volume: &'a Volume<'a>,
        (pointer, level): (NodePointer, u8),
        within: Keys,
    ) -> Self {
        let visits = vec![Visit { pointer, level, least: Key::MIN, keys: Keys::ALL }];
        Self { volume, within, visits, seen: Bits::default(), ahead: HashMap::new() }
    }

    /// Goes on; damage goes to `findings`.
    pub(crate) fn next(&mut self, findings: &mut Findings) -> Option<Part> {
        let visit = self.visits.pop()?;
        let keys = visit.keys;
        Some(self.visit(visit, findings).unwrap_or(Part::Lost(keys)))
    }

    fn visit(&mut self, visit: Visit, findings: &mut Findings) -> Option<Part> {
        let Visit { pointer, level, least, keys } = visit;
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
        if content.keys().any(|key| *key < least || !keys.contains(key)) {
            findings.push(Finding::NodeRange { address });
            return None;
        }
        match content {
            Content::Leaf(_) => {
                Some(Part::Leaf(Leaf { pointer, keys, block, item_count: header.item_count }))
            }
            Content::Inner(children) => {
                self.go_below(&children, level - 1, keys);
                Some(Part::Inner(pointer))
            }
        }
    }

    /// Visits the children of a node next.
    fn go_below(&mut self, children: &[(Key, NodePointer)], level: u8, keys: Keys) {
        let highs = children.iter().skip(1).map(|(key, _)| Some(*key)).chain([keys.high]);
        let lows = [keys.low].into_iter().chain(children.iter().skip(1).map(|(key, _)| *key));
        let ranges = lows.zip(highs).map(|(low, high)| Keys { low, high });
        let visits = children.iter().zip(ranges).map(|((least, pointer), keys)| Visit {
            pointer: *pointer,
            level,
            least: *least,
            keys,
        });
        let within = self.within;
        let mut below: Vec<Visit> = visits.filter(|visit| visit.keys.overlaps(&within)).collect();
        if level == 0 {
            self.read_ahead(&below);
        }
        below.reverse();
        self.visits.append(&mut below);
    }

    /// Reads leaves, neighbours on the device in one request. What fails is read again, alone.
    fn read_ahead(&mut self, leaves: &[Visit]) {
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

/// The header of a node that was read through `pointer`, if it is sound and of the `expected` level.
fn read_header(
    volume: &Volume<'_>,
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
