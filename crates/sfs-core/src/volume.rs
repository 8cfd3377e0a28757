//! The volume: one log and one tree as a filesystem.
//!
//! Owns: the state of a mounted volume and its locks.
//! Promises: `docs/SEMANTICS.md`. Any number of threads may call; a reader waits for no device
//! request but its own, and those of who changes its file.
//! Never: starts a thread, asks for the time, or draws a random number.
//!
//! Locks are taken in this order: `admission`, a file's `io`, `cleaner`, `log`, `meta`, a file's data, then the
//! small ones (`writing`, `dirty_files`, ...). Only the first four are held across device requests.

mod access;
mod attributes;
mod audit;
mod checkpoint;
mod cleaner;
mod commit;
mod directory;
mod dirty;
mod engine;
mod errors;
mod handles;
mod losses;
mod make;
mod namespace;
mod orphans;
#[cfg(test)]
mod overwriting;
mod pacing;
mod placing;
mod read;
mod rebuild;
mod recovery;
mod release;
#[cfg(test)]
mod rig;
mod roll_forward;
mod scan;
mod seek;
#[cfg(test)]
mod shortage;
mod space;
mod status;
mod superblocks;
mod sync;
mod truncate;
mod txn;
mod work;
mod write;
mod writing;
mod xattr;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use sfs_device::Device;

use crate::counters::AtomicCounters;
use crate::format::{DataLayout, Layout, Superblock};
use crate::log::Log;
use crate::memory::Pool;
use crate::meta::Meta;
use crate::policy::{self, GroupingPolicy, SingleGroup, VictimPolicy};
use crate::request::{Counters, VolumeOptions};
use crate::{Error, Result};
use cleaner::{Cleaner, Unfit};
use directory::NameHasher;
use engine::{Engine, engine};
use errors::Errors;
use handles::{Handle, Handles};
use losses::AllLosses;
pub use make::{make, root_directory};
use pacing::Pace;
pub use rebuild::{Basis, Moved, Rebuild};
use superblocks::Superblocks;
use sync::SyncQueue;
use work::Clock;
use writing::Writing;

/// A mounted volume.
pub struct Volume {
    device: Arc<dyn Device>,
    /// The superblock as it was when the volume was opened: what cannot change while it is open.
    superblock: Superblock,
    superblocks: Mutex<Superblocks>,
    options: VolumeOptions,
    engine: Box<dyn Engine>,
    hasher: NameHasher,

    log: Mutex<Log>,
    meta: RwLock<Meta>,
    /// Blocks on their way to the device.
    writing: RwLock<Writing>,

    handles: Handles,
    /// Files with dirty blocks or pending attributes.
    dirty_files: Mutex<BTreeMap<u64, Arc<Handle>>>,
    /// Those whose data has to go with the next delta.
    ordered_files: Mutex<BTreeSet<u64>>,
    dirty_blocks: AtomicUsize,
    /// Blocks that writers have been admitted to, and that are not dirty yet.
    admitted: AtomicU64,
    /// They have it together; who is refused for their sake has it alone.
    admission: RwLock<()>,
    pool: Pool,
    /// Before `log`, in the order of locks.
    cleaner: Mutex<Cleaner>,
    unfit: Mutex<Unfit>,
    /// Clean segments that the device has not been told of.
    discards: Mutex<BTreeSet<u32>>,
    pace: Pace,
    /// Files to delete.
    reclaim: Mutex<Vec<u64>>,

    syncs: SyncQueue,
    clock: Clock,
    counters: AtomicCounters,
    errors: Errors,
    /// `log.next_sequence`, for those who do not hold the log.
    next_sequence: AtomicU64,
    /// Changes under way, whose nodes have to stay in memory.
    keepers: AtomicUsize,
    /// Nodes have been loaded since the cache was trimmed.
    loaded: AtomicBool,
    /// A write failed, or the volume was shut down: nothing is written any more.
    failed: AtomicBool,
    /// ... it was shut down.
    is_shut_down: AtomicBool,
    /// The last checkpoint is written.
    closed: AtomicBool,
    /// What waited to be written and was given up, for each who has to hear of it.
    lost: Mutex<AllLosses>,
    /// Nodes that the device did not read for a commit, and how often.
    unread: Mutex<BTreeMap<u64, usize>>,
}

/// The policies that `options` name.
fn policies(
    options: &VolumeOptions,
    superblock: &Superblock,
) -> Result<(Box<dyn GroupingPolicy>, Box<dyn VictimPolicy>)> {
    let Layout { segment_count, segment_blocks, .. } = superblock.layout;
    let blocks = u64::from(segment_count) * u64::from(segment_blocks);
    // Data that does not go to the log needs no groups there.
    let name = match superblock.data_layout {
        DataLayout::Log => &*options.grouping,
        _ => SingleGroup.name(),
    };
    let groups = options.groups;
    let grouping = policy::grouping_policy(name, groups, segment_count, segment_blocks, blocks);
    let victims = options.victim.as_deref().unwrap_or_else(|| policy::default_victim_policy(name));
    let victims = policy::victim_policy(victims, segment_count, segment_blocks, blocks);
    grouping.zip(victims).ok_or(Error::Invalid)
}

impl Volume {
    fn assemble(
        device: Arc<dyn Device>,
        superblocks: Superblocks,
        options: VolumeOptions,
        log: Log,
        mut meta: Meta,
    ) -> Self {
        let next_sequence = AtomicU64::new(log.next_sequence);
        let superblock = superblocks.current().clone();
        meta.tolerance = superblock.tolerance();
        let errors = Errors::new(&log.extensions, superblock.failure);
        let pool = Pool::new(if options.read_only { 0 } else { options.write_buffer });
        Self {
            device,
            engine: engine(superblock.data_layout),
            hasher: NameHasher::new(superblock.hash_key),
            superblock,
            superblocks: Mutex::new(superblocks),
            options,
            log: Mutex::new(log),
            meta: RwLock::new(meta),
            writing: RwLock::default(),
            handles: Handles::default(),
            dirty_files: Mutex::default(),
            ordered_files: Mutex::default(),
            dirty_blocks: AtomicUsize::new(0),
            admitted: AtomicU64::new(0),
            admission: RwLock::default(),
            pool,
            cleaner: Mutex::default(),
            unfit: Mutex::default(),
            discards: Mutex::default(),
            pace: Pace::default(),
            reclaim: Mutex::default(),
            syncs: SyncQueue::default(),
            clock: Clock::default(),
            counters: AtomicCounters::default(),
            errors,
            next_sequence,
            keepers: AtomicUsize::new(0),
            loaded: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            is_shut_down: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            lost: Mutex::default(),
            unread: Mutex::default(),
        }
    }

    /// Returns the superblock as it was when the volume was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// From now on nothing is written, as if a write had failed: the next to open the volume finds what a
    /// crash leaves. What is in memory can still be read.
    pub fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Release);
        self.errors.end();
        self.stop();
    }

    /// From now on nothing is written but the note of what has failed.
    fn stop(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether [`Volume::close`] has written everything that could be. An error that it gave is of what
    /// was damaged.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether a write has failed, or [`Volume::shut_down`] was called, since when nothing is written
    /// any more.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// What happened since the volume was opened.
    pub fn counters(&self) -> Counters {
        self.counters.snapshot()
    }

    /// References that callers hold to files, over all files.
    pub fn reference_count(&self) -> u64 {
        self.handles.reference_count()
    }

    fn hasher(&self) -> &NameHasher {
        &self.hasher
    }
}
