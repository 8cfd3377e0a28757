//! Reading the tree of a checkpoint, whole.
//!
//! Owns: the descent from the root.
//! Promises: every node is read once, whatever points to it; levels only fall, so it ends.
//! Never: looks at what the items say.

use std::collections::HashSet;

use sfs_core::format::{CheckpointRecord, Key, NodeHeader, NodePointer};

use crate::items::Items;
use crate::node::{self, Content};
use crate::progress::{Listener, Stage, tell};
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError};

/// The highest level that a root may have. No volume has a need for 8.
const LEVEL_MAX: u8 = 32;

/// Nodes between two reports of progress.
const REPORT_EVERY: usize = 256;

/// What the tree holds.
pub(crate) struct Tree {
    pub(crate) items: Items,
    /// Every node.
    pub(crate) nodes: Vec<NodePointer>,
    /// Nothing is missing.
    pub(crate) complete: bool,
}

/// A node to be read.
struct Visit {
    pointer: NodePointer,
    level: u8,
    /// No key in it is below this one,
    low: Key,
    /// and every key is below this one, if there is one.
    high: Option<Key>,
}

/// Reads the tree of `record`.
pub(crate) fn read(
    volume: &Volume<'_>,
    record: &CheckpointRecord,
    findings: &mut Findings,
    listener: Listener<'_>,
) -> Result<Tree, FsckError> {
    let mut tree = Tree { items: Items::default(), nodes: Vec::new(), complete: true };
    let mut seen = HashSet::new();
    let root =
        Visit { pointer: record.root(), level: record.root_level, low: Key::MIN, high: None };
    let mut visits = vec![root];
    if record.root_level > LEVEL_MAX {
        let (address, level) = (record.root_address, record.root_level);
        findings.push(Finding::NodeLevel { address, level, expected: LEVEL_MAX });
        tree.complete = false;
        visits.clear();
    }
    while let Some(visit) = visits.pop() {
        let address = visit.pointer.address;
        if !volume.in_segments(address) {
            findings.push(Finding::NodeOutside { address });
            tree.complete = false;
        } else if !seen.insert(address) {
            findings.push(Finding::NodeShared { address });
            tree.complete = false;
        } else if read_node(volume, &visit, &mut tree, &mut visits, findings).is_none() {
            tree.complete = false;
        }
        if seen.len() % REPORT_EVERY == 0 {
            tell(listener, Stage::Tree, seen.len() as u64, 0)?;
        }
    }
    Ok(tree)
}

/// Reads a node, and adds its items to the tree or its children to `visits`.
fn read_node(
    volume: &Volume<'_>,
    visit: &Visit,
    tree: &mut Tree,
    visits: &mut Vec<Visit>,
    findings: &mut Findings,
) -> Option<()> {
    let address = visit.pointer.address;
    let blocks = volume.read(address, findings)?;
    let bytes = &blocks[0].0;
    let decoded = NodeHeader::verify(bytes, volume.id(), visit.pointer)
        .and_then(|header| Ok((header.level, node::decode(bytes, header, address)?)));
    let (level, content) = match decoded {
        Ok(decoded) => decoded,
        Err(corruption) => {
            findings.push(Finding::NodeDamaged { corruption });
            return None;
        }
    };
    if level != visit.level {
        findings.push(Finding::NodeLevel { address, level, expected: visit.level });
        return None;
    }
    let outside = |key: &Key| *key < visit.low || visit.high.is_some_and(|high| *key >= high);
    let strays = match &content {
        Content::Leaf(items) => items.iter().any(|(key, _)| outside(key)),
        Content::Inner(children) => children.iter().any(|(key, _)| outside(key)),
    };
    if strays {
        findings.push(Finding::NodeRange { address });
        return None;
    }
    tree.nodes.push(visit.pointer);
    match content {
        Content::Leaf(items) => {
            for (key, value) in items {
                tree.items.put(key, value.into());
            }
        }
        Content::Inner(children) => {
            let highs = children.iter().skip(1).map(|(key, _)| Some(*key)).chain([visit.high]);
            let next = children.iter().zip(highs).map(|((low, pointer), high)| Visit {
                pointer: *pointer,
                level: level - 1,
                low: *low,
                high,
            });
            visits.extend(next);
        }
    }
    Some(())
}
