//! Getting at the metadata: read it, change it, and load what is not in memory.
//!
//! Owns: the loop of trying, loading a node, and trying again.
//! Promises: the metadata lock is never held while a node is loaded.
//! Never: knows what an operation is about.

use std::sync::atomic::Ordering;

use sfs_device::{BLOCK_SIZE, Block};

use super::Volume;
use super::txn::Txn;
use crate::format::ErrorKind;
use crate::meta::MetadataError;
use crate::tree::{NodeNotCached, VerifiedNode};
use crate::{Error, Result};

/// An operation needs some nodes at once, however small the cache.
const NODES_MIN: usize = 256;

/// See [`Volume::keep_nodes`].
pub(super) struct KeepNodes<'a>(&'a Volume);

impl Drop for KeepNodes<'_> {
    fn drop(&mut self) {
        self.0.keepers.fetch_sub(1, Ordering::Relaxed);
        self.0.trim();
    }
}

impl Volume {
    /// Reads metadata. `logic` may be called several times.
    pub(super) fn consult<T>(
        &self,
        mut logic: impl FnMut(&Txn<'_>) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        let mut failed = None;
        let outcome = loop {
            let outcome = {
                let meta = self.meta.read();
                logic(&Txn::new(&meta))
            };
            match outcome {
                Ok(value) => break Ok(value),
                Err(MetadataError::NodeNotCached(missing)) => self.load(&missing, &mut failed)?,
                Err(MetadataError::Error(error)) => break Err(self.counted(error)),
            }
        };
        self.trim();
        outcome
    }

    /// Changes metadata, whole or not at all. `logic` may be called several times.
    pub(super) fn transact<T>(
        &self,
        logic: impl FnMut(&mut Txn<'_>) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        self.transact_then(logic, |_| {})
    }

    /// As [`Volume::transact`]; `then` runs before anybody can see the change.
    pub(super) fn transact_then<T>(
        &self,
        mut logic: impl FnMut(&mut Txn<'_>) -> std::result::Result<T, MetadataError>,
        then: impl FnOnce(&T),
    ) -> Result<T> {
        self.writable()?;
        self.relieve_changes()?;
        let mut failed = None;
        let _keep = self.keep_nodes();
        loop {
            let mut meta = self.meta.write();
            let mut txn = Txn::new(&meta);
            let missing = match logic(&mut txn) {
                Ok(value) => {
                    let effects = txn.finish();
                    let sequence = self.next_sequence.load(Ordering::Relaxed);
                    match meta.apply(effects, sequence) {
                        Ok(()) => {
                            then(&value);
                            self.clock.note_change();
                            return Ok(value);
                        }
                        Err(missing) => missing,
                    }
                }
                Err(MetadataError::NodeNotCached(missing)) => missing,
                Err(MetadataError::Error(error)) => {
                    drop(meta);
                    return Err(self.counted(error));
                }
            };
            drop(meta);
            self.load(&missing, &mut failed)?;
        }
    }

    /// Brings a node into memory. A node that does not verify may have moved since the lock was
    /// let go: `failed` remembers it, and it is an error when it is asked for again.
    pub(super) fn load(
        &self,
        missing: &NodeNotCached,
        failed: &mut Option<NodeNotCached>,
    ) -> Result<()> {
        let node = match self.read_node(missing) {
            Err(Error::Corrupt(_)) if *failed != Some(*missing) => {
                *failed = Some(*missing);
                return Ok(());
            }
            // That the device failed to read is counted already.
            Err(Error::Corrupt(damage)) => return Err(self.counted(damage.into())),
            other => other?,
        };
        if self.unread.lock().remove(&missing.pointer.address).is_some() {
            self.note_error(ErrorKind::Retry, missing.pointer.address);
        }
        self.meta.write().tree.insert(missing, node);
        self.loaded.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// While a guard lives, nodes stay in memory: a change may need more of them at once than the
    /// cache holds, and readers must not take them away from it.
    pub(super) fn keep_nodes(&self) -> KeepNodes<'_> {
        self.keepers.fetch_add(1, Ordering::Relaxed);
        KeepNodes(self)
    }

    /// Brings the cache back to its budget after nodes have been loaded.
    fn trim(&self) {
        if self.loaded.load(Ordering::Relaxed) && self.keepers.load(Ordering::Relaxed) == 0 {
            let budget = (self.options.cache / BLOCK_SIZE).max(NODES_MIN);
            self.loaded.store(false, Ordering::Relaxed);
            self.meta.write().tree.evict(budget);
        }
    }

    /// A node from the device, verified.
    pub(super) fn read_node(&self, missing: &NodeNotCached) -> Result<VerifiedNode> {
        let mut block = Box::new(Block([0; BLOCK_SIZE]));
        let slice = std::slice::from_mut(&mut *block);
        self.read_blocks(missing.pointer.address, slice)?;
        self.counters.nodes_read.fetch_add(1, Ordering::Relaxed);
        let tolerance = self.superblock.tolerance();
        Ok(VerifiedNode::decode(*block, self.superblock.volume(), missing, tolerance)?)
    }

    /// Whether the volume may be changed. As with ext4, a change is refused in one way after a failure and
    /// in another after a shutdown.
    pub(super) fn writable(&self) -> Result<()> {
        if self.is_shut_down.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        if self.options.read_only || self.has_failed() {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    /// Whether what waits may be written out. What may not is lost, and nobody is to take that for a
    /// change that was refused: the error is always [`Error::Stopped`].
    pub(super) fn may_write_out(&self) -> Result<()> {
        if self.has_failed() { Err(Error::Stopped) } else { Ok(()) }
    }
}
