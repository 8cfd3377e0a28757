//! Loading nodes that are not in the cache: alone, or together with their neighbours on the device.

use std::sync::atomic::Ordering;

use sfs_device::{BLOCK_SIZE, Block};

use super::{CACHED_NODES_MIN, MetadataStore, NODE_READS_MAX};
use crate::format::{ErrorKind, NodePointer};
use crate::tree::{Neighbourhood, NodeNotCached, VerifiedNode};
use crate::{Error, Result};

/// Largest number of adjacent blocks that are read for one node: on flash a request of 64 KiB takes about twice the time of one of 4
/// KiB, and nodes that were written together are often needed together.
const NEIGHBOURHOOD_BLOCKS: u64 = 16;

/// Outcome of reading a node together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    Loaded,
    /// The node has no neighbours, or was not found where it should be.
    NotLoaded,
    /// The device failed to read a block, perhaps one that nobody needs.
    Failed,
}

impl MetadataStore {
    /// Loads a node into the cache. A node that does not verify may have moved since the lock was released: `failed`
    /// remembers it, and the second failure is an error.
    pub(crate) fn load(
        &self,
        node: &NodeNotCached,
        failed: &mut Option<NodeNotCached>,
    ) -> Result<()> {
        let together = self.load_with_neighbours(node);
        if together == Together::Loaded {
            return Ok(());
        }
        let verified = match self.read_node(node) {
            Err(Error::Corrupt(_)) if *failed != Some(*node) => {
                *failed = Some(*node);
                return Ok(());
            }
            // A device error is counted where it occurs.
            Err(Error::Corrupt(damage)) => {
                self.note_if_misplaced(node.pointer.address);
                return Err(self.health.counted(damage.into()));
            }
            other => other?,
        };
        let was_unread = self.unread.lock().remove(&node.pointer.address).is_some();
        if was_unread || together == Together::Failed {
            self.health.note_error(ErrorKind::Retry, node.pointer.address);
        }
        self.write().tree.insert(node, verified);
        self.note_new_nodes();
        Ok(())
    }

    /// Loads a node and others near it by one request to the device. An error is not counted here: the node is then read
    /// alone, and a neighbour when it is needed.
    fn load_with_neighbours(&self, node: &NodeNotCached) -> Together {
        let is_alone = self.io.has_copies()
            || self.io.is_in_flight(node.pointer.address)
            || self.failed_together.lock().is_full()
            || !self.unread.lock().is_empty();
        if is_alone {
            return Together::NotLoaded;
        }
        let Some(Neighbourhood { blocks, neighbours }) = self.neighbourhood(node) else {
            return Together::NotLoaded;
        };
        if self.failed_together.lock().overlaps(&blocks) {
            return Together::NotLoaded;
        }
        let mut memory = Block::zeroed((blocks.end - blocks.start) as usize);
        match self.io.read_along(blocks.start, &mut memory) {
            Ok(()) => {}
            // Nothing is wrong with this place.
            Err(error) if error.is_late() => return Together::NotLoaded,
            Err(_) => {
                self.failed_together.lock().note(blocks);
                return Together::Failed;
            }
        }
        let (volume, tolerance) = (self.superblock.volume(), self.superblock.tolerance());
        let decode = |node: &NodeNotCached| {
            let block = memory.get((node.pointer.address - blocks.start) as usize)?;
            VerifiedNode::decode(block, volume, node, tolerance).ok()
        };
        let verified = decode(node);
        let decoded = neighbours.iter().filter_map(|node| Some((node, decode(node)?)));
        let decoded: Vec<_> = decoded.collect();
        let count = decoded.len() + usize::from(verified.is_some());
        self.counters.nodes_read.fetch_add(count as u64, Ordering::Relaxed);
        let outcome = if verified.is_some() { Together::Loaded } else { Together::NotLoaded };
        let mut metadata = self.write();
        if let Some(verified) = verified {
            metadata.tree.insert(node, verified);
        }
        for (neighbour, verified) in decoded {
            metadata.tree.insert_neighbour(neighbour, verified);
        }
        drop(metadata);
        self.note_new_nodes();
        outcome
    }

    /// Returns the blocks to read for `node`, with its neighbours; `None` if there are none, or no room for them: while
    /// nodes are pinned, the cache may hold more than its size for what an operation needs, and not for more.
    fn neighbourhood(&self, node: &NodeNotCached) -> Option<Neighbourhood> {
        let metadata = self.read();
        if metadata.tree.node_count() > self.cache_room() + CACHED_NODES_MIN / 2 {
            return None;
        }
        let gap_max = self.io.gap_blocks_max() as u64;
        let found = metadata.tree.neighbourhood(node, NEIGHBOURHOOD_BLOCKS, gap_max)?;
        (found.blocks.end <= self.superblock.layout().block_count).then_some(found)
    }

    /// Reads a node from the device, or from memory while it is in flight, and verifies it.
    pub(in crate::metadata) fn read_node(&self, node: &NodeNotCached) -> Result<VerifiedNode> {
        let mut block = Box::new(Block([0; BLOCK_SIZE]));
        let NodePointer { address, checksum } = node.pointer;
        let moment = self.io.read_summed(address, (&node.pointer.head(), checksum), &mut block)?;
        self.counters.nodes_read.fetch_add(1, Ordering::Relaxed);
        let tolerance = self.superblock.tolerance();
        let verified = VerifiedNode::decode(&*block, self.superblock.volume(), node, tolerance)?;
        if let Some(moment) = moment {
            self.io.offer_copy(moment, address, std::slice::from_ref(&*block));
        }
        Ok(verified)
    }

    /// Looks once more at a block that is no sound node.
    pub(in crate::metadata) fn note_if_misplaced(&self, address: u64) {
        let mut block = Box::new(Block([0; BLOCK_SIZE]));
        if self.io.read(address, std::slice::from_mut(&mut *block)).is_ok() {
            self.health.note_misplaced(&block, self.superblock.volume(), address);
        }
    }

    /// Counts a failed attempt to read the node at `address`; returns whether it was the last one.
    pub(crate) fn gives_up_reading(&self, address: u64) -> bool {
        let mut unread = self.unread.lock();
        let attempts = unread.entry(address).or_insert(0);
        *attempts += 1;
        *attempts >= NODE_READS_MAX
    }
}
