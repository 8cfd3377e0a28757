//! Metadata store: the lock of the metadata, and the loop that loads nodes.
//!
//! A read or write transaction is a closure that may run several times: when it meets a node that is not cached,
//! the lock is released, the node is read from the device and verified, and the closure runs again. The lock is
//! never held during a device request, except by the rebuild of `sfs-fsck`, which has one thread.

mod failed_together;
mod loading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use sfs_device::BLOCK_SIZE;

use self::failed_together::FailedTogether;
use super::access_times::AccessTimes;
use super::metadata_error::MetadataError;
use super::state::Metadata;
use super::txn::Txn;
use crate::Result;
use crate::counters::AtomicCounters;
use crate::health::{Health, OpenSuperblock};
use crate::io::VolumeDevice;
use crate::lock_rank::{Rank, Ranked};

/// Minimum number of nodes in the cache: an operation needs several at once.
const CACHED_NODES_MIN: usize = 256;

/// Number of attempts to read a node before the node counts as unreadable: the device may succeed
/// the next time.
pub(crate) const NODE_READS_MAX: usize = 3;

/// Guard for reading the metadata.
pub(crate) type ReadGuard<'a> = Ranked<RwLockReadGuard<'a, Metadata>>;

/// Guard for changing the metadata.
pub(crate) type WriteGuard<'a> = Ranked<RwLockWriteGuard<'a, Metadata>>;

/// Lock of the metadata, with the loop that loads nodes.
pub(crate) struct MetadataStore {
    metadata: RwLock<Metadata>,
    access_times: Arc<AccessTimes>,
    io: Arc<VolumeDevice>,
    superblock: Arc<OpenSuperblock>,
    pub(super) health: Arc<Health>,
    counters: Arc<AtomicCounters>,
    cached_nodes_max: usize,
    /// Number of [`CachePin`]s.
    pins: AtomicUsize,
    /// Number of nodes of a checkpoint that is being written: copies beside the cache.
    copied_nodes: AtomicUsize,
    /// Number of nodes whose memory holds content that was read ahead.
    lent_nodes: AtomicUsize,
    /// `true` if the cache may have grown, or dirty nodes have become clean, since it was last trimmed.
    has_new_nodes: AtomicBool,
    /// Number of changes by users.
    changes: AtomicU64,
    /// Sequence number of the next chunk, for threads that do not hold the log.
    next_sequence: AtomicU64,
    /// Addresses of nodes that the device failed to read, with the number of attempts.
    unread: Mutex<BTreeMap<u64, usize>>,
    failed_together: Mutex<FailedTogether>,
}

/// Keeps every node in the cache: a change may need more nodes at once than the cache holds, and readers must not evict
/// them meanwhile.
pub(crate) struct CachePin<'a>(&'a MetadataStore);

impl Drop for CachePin<'_> {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::Relaxed);
        self.0.trim();
    }
}

impl MetadataStore {
    /// Takes over `metadata`. The cache of clean nodes has `cache_bytes`; the next chunk has number `next_sequence`.
    pub(crate) fn new(
        metadata: Metadata,
        io: Arc<VolumeDevice>,
        superblock: Arc<OpenSuperblock>,
        health: Arc<Health>,
        counters: Arc<AtomicCounters>,
        cache_bytes: usize,
        next_sequence: u64,
    ) -> Self {
        Self {
            access_times: metadata.access_times.clone(),
            metadata: RwLock::new(metadata),
            io,
            superblock,
            health,
            counters,
            cached_nodes_max: (cache_bytes / BLOCK_SIZE).max(CACHED_NODES_MIN),
            pins: AtomicUsize::new(0),
            copied_nodes: AtomicUsize::new(0),
            lent_nodes: AtomicUsize::new(0),
            has_new_nodes: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            next_sequence: AtomicU64::new(next_sequence),
            unread: Mutex::default(),
            failed_together: Mutex::default(),
        }
    }

    /// Returns the times of access that wait in memory.
    pub(crate) fn access_times(&self) -> &AccessTimes {
        &self.access_times
    }

    /// Locks the metadata for reading.
    pub(crate) fn read(&self) -> ReadGuard<'_> {
        Ranked::take(Rank::Metadata, || self.metadata.read())
    }

    /// Locks the metadata for reading unless a thread is changing it.
    pub(crate) fn try_read(&self) -> Option<ReadGuard<'_>> {
        Ranked::try_take(Rank::Metadata, || self.metadata.try_read())
    }

    /// Locks the metadata for changes. Users' changes go through [`MetadataStore::write_txn`].
    pub(crate) fn write(&self) -> WriteGuard<'_> {
        Ranked::take(Rank::Metadata, || self.metadata.write())
    }

    /// Reads metadata. `logic` may run several times.
    pub(crate) fn read_txn<T>(
        &self,
        mut logic: impl FnMut(&Txn<'_>) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        let mut failed = None;
        let outcome = loop {
            let outcome = {
                let metadata = self.read();
                logic(&Txn::new(&metadata))
            };
            match outcome {
                Ok(value) => break Ok(value),
                Err(MetadataError::NotCached(node)) => self.load(&node, &mut failed)?,
                Err(MetadataError::Error(error)) => break Err(self.health.counted(error)),
            }
        };
        self.trim();
        outcome
    }

    /// Changes metadata, whole or not at all. `logic` may run several times; `then` runs once, before the change is
    /// visible to other threads.
    ///
    /// # Errors
    ///
    /// The errors of [`Health::check_writable`], of `logic`, and of reading nodes.
    pub(crate) fn write_txn<T>(
        &self,
        mut logic: impl FnMut(&mut Txn<'_>) -> std::result::Result<T, MetadataError>,
        then: impl FnOnce(&T),
    ) -> Result<T> {
        self.health.check_writable()?;
        let mut failed = None;
        let _pin = self.pin_nodes();
        loop {
            let mut metadata = self.write();
            let mut txn = Txn::new(&metadata);
            let node = match logic(&mut txn) {
                Ok(value) => {
                    let effects = txn.finish();
                    match metadata.apply(effects, self.next_sequence()) {
                        Ok(()) => {
                            self.note_nodes_of(&metadata);
                            then(&value);
                            self.note_change();
                            return Ok(value);
                        }
                        Err(node) => node,
                    }
                }
                Err(MetadataError::NotCached(node)) => node,
                Err(MetadataError::Error(error)) => {
                    drop(metadata);
                    return Err(self.health.counted(error));
                }
            };
            drop(metadata);
            self.load(&node, &mut failed)?;
        }
    }

    /// Reads the whole metadata; readers are not kept waiting. `logic` may run several times.
    pub(crate) fn inspect<T>(
        &self,
        mut logic: impl FnMut(&Metadata) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        let mut failed = None;
        let _pin = self.pin_nodes();
        loop {
            let outcome = logic(&self.read());
            match outcome {
                Ok(value) => return Ok(value),
                Err(MetadataError::NotCached(node)) => self.load(&node, &mut failed)?,
                Err(MetadataError::Error(error)) => return Err(error),
            }
        }
    }

    /// Changes metadata step by step outside of transactions, for recovery and repair. `step` changes nothing when it
    /// returns [`MetadataError::NotCached`], and runs again once the node is loaded.
    pub(crate) fn update<T>(
        &self,
        mut step: impl FnMut(&mut Metadata) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        let mut failed = None;
        let _pin = self.pin_nodes();
        loop {
            let outcome = {
                let mut metadata = self.write();
                let outcome = step(&mut metadata);
                self.note_nodes_of(&metadata);
                outcome
            };
            match outcome {
                Ok(value) => return Ok(value),
                Err(MetadataError::NotCached(node)) => self.load(&node, &mut failed)?,
                Err(MetadataError::Error(error)) => return Err(error),
            }
        }
    }

    /// Returns the number of nodes that the cache may hold beside what it has lent and the copies of a checkpoint.
    fn cache_room(&self) -> usize {
        let copies = self.copied_nodes.load(Ordering::Relaxed);
        let lent = self.lent_nodes.load(Ordering::Relaxed);
        self.cached_nodes_max.saturating_sub(copies + lent)
    }

    /// Keeps every node in the cache while the returned guard lives.
    pub(crate) fn pin_nodes(&self) -> CachePin<'_> {
        self.pins.fetch_add(1, Ordering::Relaxed);
        CachePin(self)
    }

    /// Notes that a change has added nodes, if there are more than the cache holds.
    fn note_nodes_of(&self, metadata: &Metadata) {
        let lent = self.lent_nodes.load(Ordering::Relaxed);
        if metadata.tree.node_count() > self.cached_nodes_max.saturating_sub(lent) {
            self.note_new_nodes();
        }
    }

    /// Notes that nodes were loaded or made, or that a checkpoint has made dirty ones clean. The end of the next
    /// transaction evicts nodes beyond the cache's size.
    pub(crate) fn note_new_nodes(&self) {
        self.has_new_nodes.store(true, Ordering::Relaxed);
    }

    /// Notes that a checkpoint holds copies of `count` nodes until it is written. Meanwhile the
    /// cache may hold `count` nodes fewer.
    pub(crate) fn note_copied_nodes(&self, count: usize) {
        self.copied_nodes.store(count, Ordering::Relaxed);
        self.note_new_nodes();
    }

    /// Takes `bytes` of the cache away, for content that was read ahead.
    pub(crate) fn lend_cache(&self, bytes: usize) {
        self.lent_nodes.fetch_add(bytes.div_ceil(BLOCK_SIZE), Ordering::Relaxed);
        self.note_new_nodes();
    }

    /// Gives back `bytes` that one call of [`MetadataStore::lend_cache`] took.
    pub(crate) fn give_back_cache(&self, bytes: usize) {
        self.lent_nodes.fetch_sub(bytes.div_ceil(BLOCK_SIZE), Ordering::Relaxed);
    }

    /// Evicts clean nodes beyond the cache's size, if nodes were added. Dirty nodes and copies count, but leave room
    /// for the clean ones that operations need at once.
    pub(super) fn trim(&self) {
        if self.has_new_nodes.load(Ordering::Relaxed) && self.pins.load(Ordering::Relaxed) == 0 {
            self.has_new_nodes.store(false, Ordering::Relaxed);
            let mut metadata = self.write();
            let least = metadata.tree.dirty_count() + CACHED_NODES_MIN / 2;
            metadata.tree.evict(self.cache_room().max(least));
        }
    }

    /// Returns the number of changes by users so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Counts a change by a user.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the sequence number of the next chunk. A chunk that is built later has this number or a higher one.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Relaxed)
    }

    /// Publishes the sequence number of the next chunk; the caller holds the log.
    pub(crate) fn publish_sequence(&self, next_sequence: u64) {
        self.next_sequence.store(next_sequence, Ordering::Relaxed);
    }
}
