//! Reading around a missing node: its siblings nearby on the device come with it, in one request, when the walk that
//! needs it has read a neighbour a short time ago.
//!
//! Checkpoints write nodes in key order, so the next nodes of a walk are mostly the next blocks. A lookup somewhere else
//! reads its node alone.

use std::collections::VecDeque;

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block};

use super::store::MetadataStore;
use crate::format::Key;
use crate::tree::{Keys, NodeNotCached, Siblings, VerifiedNode};

/// Maximum number of blocks that one request reads: 64 KiB.
const READ_BLOCKS: u64 = 16;

/// Distance in siblings within which a recent load shows a walk: the last one may have read as many nodes as fit.
const REACH: usize = 2 * READ_BLOCKS as usize;

/// Number of loads that are remembered: a walk through directories alternates between a few places. In a tree that is
/// larger than the cache, lookups at random places are seldom as near to one of so few.
const RECENT_LOADS: usize = 16;

/// First keys of the nodes that were loaded last.
#[derive(Debug, Default)]
pub(super) struct RecentLoads(Mutex<VecDeque<Key>>);

impl RecentLoads {
    /// Notes that a node whose first key is `key` is loaded; returns whether one with a first key in `near` was
    /// loaded a short time ago.
    fn note(&self, key: Key, near: &Keys) -> bool {
        let mut recent = self.0.lock();
        let is_near =
            |recent: &Key| *recent >= near.from && near.end.is_none_or(|end| *recent < end);
        let found = recent.iter().any(is_near);
        if recent.len() >= RECENT_LOADS {
            recent.pop_front();
        }
        recent.push_back(key);
        found
    }
}

impl MetadataStore {
    /// Returns the missing siblings of `node` that one request reads with it, ascending by address, `node` included. Empty if
    /// the node is to be read alone.
    fn nodes_around(&self, node: &NodeNotCached) -> Vec<NodeNotCached> {
        let siblings = self.read().tree.siblings(node, REACH);
        let Some(Siblings { mut missing, keys }) = siblings else { return Vec::new() };
        let from = node.keys.map_or(Key::MIN, |keys| keys.from);
        if !self.recent_loads.note(from, &keys) {
            return Vec::new();
        }
        let at = node.pointer.address;
        let (ahead, behind) =
            (at..at.saturating_add(READ_BLOCKS), at.saturating_sub(READ_BLOCKS - 1)..=at);
        let count = |is_in: &dyn Fn(u64) -> bool| {
            missing.iter().filter(|node| is_in(node.pointer.address)).count()
        };
        let goes_back = count(&|at| behind.contains(&at)) > count(&|at| ahead.contains(&at));
        missing.retain(|node| match goes_back {
            true => behind.contains(&node.pointer.address),
            false => ahead.contains(&node.pointer.address),
        });
        missing.sort_unstable_by_key(|node| node.pointer.address);
        if missing.len() > 1 { missing } else { Vec::new() }
    }

    /// Reads `node` with siblings nearby, in one request, and adds the siblings to the cache. Returns the node; `None` if
    /// it is to be read alone: a failure here counts for nothing.
    pub(super) fn read_around(&self, node: &NodeNotCached) -> Option<VerifiedNode> {
        let around = self.nodes_around(node);
        let (first, last) = (around.first()?.pointer.address, around.last()?.pointer.address);
        let mut blocks = vec![Block([0; BLOCK_SIZE]); (last - first + 1) as usize];
        if !self.io.read_ahead(first, &mut blocks) {
            return None;
        }
        let decode = |missing: &NodeNotCached| {
            let block = &blocks[(missing.pointer.address - first) as usize];
            let (volume, tolerance) = (self.superblock.volume(), self.superblock.tolerance());
            VerifiedNode::decode(block, volume, missing, tolerance).ok()
        };
        let read = decode(node)?;
        let others = around.iter().filter(|other| other.pointer != node.pointer);
        let others: Vec<_> = others.filter_map(|other| Some((other, decode(other)?))).collect();
        self.count_nodes_read(others.len() + 1);
        let mut metadata = self.write();
        others.into_iter().for_each(|(other, verified)| metadata.tree.insert(other, verified));
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::{Keep, RamDevice, RecordingDevice};

    use crate::Volume;
    use crate::fixture::{BLOCKS, NOW, create, new_volume_of};
    use crate::request::VolumeOptions;

    /// A walk in the order of the inode numbers needs one request for at least eight nodes; a lookup far from all others reads
    /// its path alone.
    #[test]
    fn a_walk_reads_eight_nodes_with_a_request() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS * 4), Keep::Requests));
        let blocks = BLOCKS * 4;
        let volume = new_volume_of(device.clone(), blocks, VolumeOptions::default());
        let files: Vec<u64> = (0..20_000).map(|no| create(&volume, &format!("{no}"))).collect();
        volume.close().expect("the volume closes");
        drop(volume);
        let reopen = || {
            let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
            let volume = Volume::open(device.clone(), options, NOW).expect("the volume opens");
            let counts = (device.counts().reads, volume.counters().nodes_read);
            (volume, counts)
        };
        let (volume, before) = reopen();
        for file in &files {
            volume.attributes(*file).expect("the file is there");
        }
        let reads = device.counts().reads - before.0;
        let nodes = volume.counters().nodes_read - before.1;
        assert!(nodes > 400 && reads * 8 <= nodes, "{reads} reads of {nodes} nodes");
        drop(volume);
        let (volume, before) = reopen();
        volume.attributes(files[files.len() / 2]).expect("the file is there");
        volume.attributes(files[files.len() / 5]).expect("the file is there");
        let nodes = volume.counters().nodes_read - before.1;
        assert!(nodes <= 4, "{nodes} nodes for two lookups");
    }
}
