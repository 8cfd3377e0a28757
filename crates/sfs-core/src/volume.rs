//! The volume: a thin interface to the components of an open filesystem.
//!
//! Operations on names, attributes and content are here, one file each. Operations read the tree by
//! [`MetadataStore::read_txn`], change it by `Volume::change`, and leave space, write-back and
//! cleaning to [`SpaceControl`]. Any number of threads may run operations at the same time. A
//! reader waits for its own device requests, for changes of the same file, and for short holds of
//! the metadata lock. `docs/SEMANTICS.md` states the guarantees for users, and [`crate::lock_rank`]
//! the order of the locks.

mod access_lists;
mod access_times;
mod administration;
mod allocate;
mod attributes;
mod audit;
#[cfg(test)]
mod bounded_move_tests;
#[cfg(test)]
mod cleaning_tests;
mod copy;
mod covered;
mod defragment;
mod deletion;
mod directory;
mod due_work;
mod file_blocks;
mod file_flags;
mod freeze;
mod handover;
mod history;
#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod late_device_tests;
mod log_step;
#[cfg(test)]
mod log_step_tests;
#[cfg(test)]
mod memory_tests;
mod mount;
mod namespace;
mod old_content;
mod read;
mod read_ahead;
mod read_blocks;
mod rename;
mod resize;
#[cfg(test)]
mod resize_tests;
mod schedule;
mod scrub;
mod scrub_data;
mod scrub_fixed;
mod scrub_log;
#[cfg(test)]
mod scrub_tests;
mod seek;
mod segments;
#[cfg(test)]
mod shortage_tests;
mod status;
#[cfg(test)]
mod steady_cleaning_tests;
mod sync;
mod trim;
mod truncate;
mod wear;
mod write;
mod xattr;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::counters::AtomicCounters;
use crate::files::{DirtyData, InodeTable};
use crate::health::{Health, OpenSuperblock, SuperblockStore};
use crate::io::VolumeDevice;
use crate::log::LogWriter;
use crate::metadata::MetadataStore;
use crate::recovery::Recovery;
use crate::request::{AccessTimePolicy, VolumeOptions};
use crate::space::SpaceControl;
use crate::wear::WearRecorder;
pub use copy::COPY_PIECE_LEN_MAX;
pub use handover::FileReferences;
pub use read_ahead::{AheadRead, ContentAhead};
pub use resize::{ResizeError, Resized};
use schedule::Schedule;
pub use scrub::Scrub;

/// A mounted volume.
pub struct Volume {
    /// Superblock at the time of the mount, and the present layout.
    superblock: Arc<OpenSuperblock>,
    options: VolumeOptions,
    counters: Arc<AtomicCounters>,
    wear: Arc<WearRecorder>,
    health: Arc<Health>,
    superblocks: Arc<SuperblockStore>,
    io: Arc<VolumeDevice>,
    metadata: Arc<MetadataStore>,
    inodes: Arc<InodeTable>,
    dirty: Arc<DirtyData>,
    log: Arc<LogWriter>,
    space: SpaceControl,
    schedule: Schedule,
    access_policy: Mutex<AccessTimePolicy>,
    /// The recovery of a volume that was opened for reading, until [`Volume::begin_writing`].
    unwritten: Mutex<Option<Recovery>>,
}
