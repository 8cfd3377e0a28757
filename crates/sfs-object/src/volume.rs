//! An object volume as a block device: an image in a local cache, and objects in a store.
//!
//! Requests go to the image. A page that it does not hold is read from the store first. What was written is *cut* at one moment, and
//! uploaded as one log object, so that the objects are always a state that the device has had. A region of which much was written
//! goes into a data object of its own, which the log object names. A *join* writes every region that the log objects touch into data objects, and publishes a
//! manifest. docs/decisions/0047 says what holds after a crash.

mod ahead;
mod collect;
mod cuts;
mod demand;
mod device;
mod dirty;
mod failure;
mod local;
mod local_state;
mod log_record;
mod opening;
mod region_map;
mod residency;
mod shape;
mod snapshot;
mod state;
mod upload;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use fixedbitset::FixedBitSet;
use parking_lot::{Condvar, Mutex, RwLock};
use sfs_device::Geometry;

use crate::name::ObjectName;
use crate::store::ObjectStore;
use ahead::Ahead;
use demand::Demand;
pub use demand::{Outage, with_reads_that_fail};
use dirty::{DirtyRegions, Frozen};
pub use failure::{Failure, OpenError};
use local::Local;
pub use local_state::LocalState;
pub use opening::{OpenRequest, create, read_state};
use region_map::RegionMap;
pub use shape::Shape;
pub use snapshot::{PageCache, Snapshot};
pub use state::VolumeState;
use upload::Uploader;

/// Contract of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The local cache is flushed.
    Local,
    /// The store has everything.
    Remote,
}

/// Bounds of a volume in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks of the local cache that may be in use; more only for what is not uploaded.
    pub cache_blocks: u64,
    /// Blocks in log objects that are joined at once.
    pub log_blocks: u64,
    /// Number of log objects that are joined at once.
    pub log_objects: u64,
    /// Regions with pieces in log objects that are left to the next use, which reads them as a whole. Those of more are joined at the end.
    pub left_regions: u64,
    /// Number of log objects from which on none is left to the next use.
    pub left_objects: u64,
    /// Blocks in log objects from which on none is left to the next use, which reads them all.
    pub left_blocks: u64,
    /// Blocks in data objects that are under way at once.
    pub upload_blocks: u64,
    /// Blocks that are written until the worker uploads without being asked, when little was written before.
    pub early_blocks_first: u64,
    /// The same, while much is written.
    pub early_blocks: u64,
    /// Seconds for which an object is kept that nothing needs.
    pub grace_secs: u64,
}

impl Limits {
    /// Limits of a mount whose cache may grow to `cache_blocks`.
    pub fn of_mount(cache_blocks: u64) -> Self {
        Self {
            cache_blocks,
            log_blocks: 16 << 10,
            log_objects: 512,
            left_regions: 8,
            left_objects: 32,
            left_blocks: 4 << 10,
            upload_blocks: 8 << 10,
            early_blocks_first: 1 << 10,
            early_blocks: 4 << 10,
            grace_secs: 20 * 60,
        }
    }
}

/// A volume in an object store, with a local cache.
///
/// Threads may call all methods at once. The volume has no thread of its own: the caller calls [`ObjectDevice::work`] from time to time.
pub struct ObjectDevice<S> {
    store: S,
    local: Local,
    geometry: Geometry,
    durability: Durability,
    limits: Limits,
    /// Held for reading during a request to the image, for writing during a cut, a discard or an eviction. Taken before `state`.
    access: RwLock<()>,
    /// Never held during I/O.
    state: Mutex<State>,
    /// Notified when a region is no longer busy.
    changed: Condvar,
    /// Held while the map of regions ahead is written. Taken before `state`.
    ahead_io: Mutex<()>,
    /// Held during uploads. Taken before `access`.
    uploader: Mutex<Uploader<S>>,
    /// Taken before `state`.
    demand: Demand,
    ahead: Ahead,
    /// Held while objects are deleted. Taken before `uploader`.
    collecting: Mutex<()>,
}

/// Places of the content of all regions.
struct State {
    map: RegionMap,
    /// Objects of the map of the last manifest, for regions that have changed since.
    published: BTreeMap<u64, Option<ObjectName>>,
    /// Pages that the image holds.
    present: FixedBitSet,
    /// Number of such pages.
    present_pages: usize,
    /// Regions that may be ahead of the store, as the local cache has them durably.
    ahead: FixedBitSet,
    /// Written since the last cut.
    open: DirtyRegions,
    /// Blocks that were written since, those of which that were written again counted again.
    written: u64,
    /// Number of them from which on the worker uploads without being asked.
    early: u64,
    /// Discarded since the last cut.
    discarded: BTreeSet<u64>,
    frozen: Option<Frozen>,
    /// Regions of which log objects have pieces: the image alone has them whole.
    unjoined: BTreeSet<u64>,
    /// Regions that a thread is filling, preparing, discarding or evicting.
    busy: HashSet<u64>,
    /// Regions that were used since eviction looked at them.
    used: FixedBitSet,
    /// Region at which eviction looks next.
    hand: u64,
    /// `true` once the image has needed zeros that are perhaps not durable yet.
    writes_zeros: bool,
    failure: Option<Failure>,
    /// `true` once the volume is closed: pages are neither added to the image nor evicted, so that the map of present pages stays right.
    is_final: bool,
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    fn new(
        (store, local, geometry): (S, Local, Geometry),
        (durability, limits): (Durability, Limits),
        state: State,
        uploader: Uploader<S>,
    ) -> Self {
        Self {
            store,
            local,
            geometry,
            durability,
            limits,
            access: RwLock::default(),
            state: Mutex::new(state),
            changed: Condvar::default(),
            ahead_io: Mutex::default(),
            uploader: Mutex::new(uploader),
            demand: Demand::default(),
            ahead: Ahead::default(),
            collecting: Mutex::default(),
        }
    }

    /// Returns the bytes of the data objects that hold the content of the volume, without log objects that are not joined.
    pub fn stored_bytes(&self) -> u64 {
        let region_bytes = self.local.shape.region_blocks * sfs_device::BLOCK_SIZE as u64;
        self.state.lock().map.region_count() * region_bytes
    }

    /// Returns why nothing more is written, if that is so.
    pub fn failure(&self) -> Option<Failure> {
        self.state.lock().failure.clone()
    }
}
