//! Loading nodes that are not in the cache: alone, or together with their neighbours on the device.

use std::ops::Range;
use std::sync::atomic::Ordering;

use sfs_device::{BLOCK_SIZE, Block};

use super::{CACHED_NODES_MIN, MetadataStore, NODE_READS_MAX};
use crate::format::{ErrorKind, NodePointer};
use crate::tree::{Neighbourhood, NodeNotCached, VerifiedNode};
use crate::{Error, Result};

/// Largest number of adjacent blocks that are read for one node: on flash a request of 64 KiB takes about twice the time of one of 4
/// KiB, and nodes that were written together are often needed together.
const NEIGHBOURHOOD_BLOCKS: u64 = 16;

/// Number of places at which the device may fail to read nodes together: a device may try a bad block for half a minute, and so keep the
/// readers of its neighbours waiting. From then on every node is read alone.
const FAILED_PLACES_MAX: usize = 4;

/// Blocks that the device has failed to read together. The nodes in them are read alone.
#[derive(Debug, Default)]
pub(super) struct FailedTogether(Vec<Range<u64>>);

impl FailedTogether {
    /// Notes that the device has failed to read these blocks together.
    fn note(&mut self, blocks: Range<u64>) {
        self.0.push(blocks);
    }

    /// Returns whether no nodes are read together any more.
    fn is_full(&self) -> bool {
        self.0.len() >= FAILED_PLACES_MAX
    }

    /// Returns whether some of `blocks` were among those of a failure.
    fn overlaps(&self, blocks: &Range<u64>) -> bool {
        self.0.iter().any(|failed| failed.start < blocks.end && blocks.start < failed.end)
    }
}

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
        if !self.io.read_along(blocks.start, &mut memory) {
            self.failed_together.lock().note(blocks);
            return Together::Failed;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_together_except_where_that_has_failed() {
        let mut failed = FailedTogether::default();
        failed.note(100..116);
        assert!(failed.overlaps(&(115..120)) && failed.overlaps(&(90..101)));
        assert!(!failed.overlaps(&(116..120)) && !failed.overlaps(&(90..100)));
        (1..FAILED_PLACES_MAX as u64).for_each(|no| {
            assert!(!failed.is_full());
            failed.note(1000 * no..1000 * no + 2);
        });
        assert!(failed.is_full());
    }
}
