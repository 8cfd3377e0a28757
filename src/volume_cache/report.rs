//! Figures of the cache of a mounted volume, for `sfs-ctl cache stat`.

use std::fmt;

use serde::{Deserialize, Serialize};
use sfs_cache::{CacheStat, Warmth};
use sfs_device::BLOCK_SIZE;
use sfs_system::Human;
use uuid::Uuid;

/// Figures of a cache. Bytes are since the mount, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CacheReport {
    /// Version of this object.
    pub(crate) version: u32,
    /// Path of the cache device.
    pub(crate) device: String,
    /// UUID of the cache.
    pub(crate) uuid: String,
    /// `in use`, or the reason why the cache is not used any more.
    pub(crate) state: String,
    /// State of the content at the mount: `warm`, or `empty`.
    pub(crate) at_mount: String,
    /// Eviction policy.
    pub(crate) policy: String,
    /// Bytes that can be cached.
    pub(crate) capacity_bytes: u64,
    /// Bytes that are cached now.
    pub(crate) cached_bytes: u64,
    /// Extents that are cached now, wholly or in part.
    pub(crate) cached_extents: u64,
    /// Bytes that were read from the cache.
    pub(crate) hit_bytes: u64,
    /// Bytes that were looked up and were not there.
    pub(crate) miss_bytes: u64,
    /// Bytes that were added.
    pub(crate) added_bytes: u64,
    /// Bytes that were written once more to make room.
    pub(crate) moved_bytes: u64,
    /// Bytes of sequential streams, which bypass the cache.
    pub(crate) bypassed_bytes: u64,
    /// Bytes that were not added because the cache device is slower than the misses.
    pub(crate) crowded_out_bytes: u64,
    /// Bytes that were forgotten because the disk's were written.
    pub(crate) invalidated_bytes: u64,
    /// Extents that left to make room.
    pub(crate) evicted_extents: u64,
    /// Bytes written to the cache device since the cache was made.
    pub(crate) device_bytes_written: u64,
}

impl CacheReport {
    /// Returns the report of the cache on the device at `path`.
    pub(super) fn new(path: &str, stat: &CacheStat) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE as u64);
        let at_mount = match stat.warmth {
            Warmth::Warm => "warm",
            Warmth::Emptied => "empty",
        };
        Self {
            version: 1,
            device: path.to_owned(),
            uuid: Uuid::from_bytes(stat.cache_uuid).to_string(),
            state: stat.dropped.clone().unwrap_or_else(|| "in use".into()),
            at_mount: at_mount.into(),
            policy: stat.policy.into(),
            capacity_bytes: bytes(stat.capacity_blocks),
            cached_bytes: bytes(stat.cached_blocks),
            cached_extents: stat.cached_extents,
            hit_bytes: bytes(stat.hit_blocks),
            miss_bytes: bytes(stat.miss_blocks),
            added_bytes: bytes(stat.added_blocks),
            moved_bytes: bytes(stat.moved_blocks),
            bypassed_bytes: bytes(stat.bypassed_blocks),
            crowded_out_bytes: bytes(stat.crowded_out_blocks),
            invalidated_bytes: bytes(stat.invalidated_blocks),
            evicted_extents: stat.evicted_extents,
            device_bytes_written: stat.bytes_written,
        }
    }
}

impl fmt::Display for CacheReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.hit_bytes + self.miss_bytes;
        let percent = if asked == 0 { 0.0 } else { 100.0 * self.hit_bytes as f64 / asked as f64 };
        writeln!(f, "Cache      {} ({})", self.device, self.uuid)?;
        writeln!(f, "State      {}; at the mount {}", self.state, self.at_mount)?;
        let (cached, capacity) = (Human(self.cached_bytes), Human(self.capacity_bytes));
        writeln!(f, "Cached     {cached} of {capacity}, in {} extents", self.cached_extents)?;
        writeln!(f, "Hits       {} of {} ({percent:.1}%)", Human(self.hit_bytes), Human(asked))?;
        writeln!(f, "Added      {}, moved {}", Human(self.added_bytes), Human(self.moved_bytes))?;
        let (streams, crowded) = (Human(self.bypassed_bytes), Human(self.crowded_out_bytes));
        writeln!(f, "Not added  {streams} of streams, {crowded} in haste")?;
        let invalidated = Human(self.invalidated_bytes);
        writeln!(
            f,
            "Left       {} extents evicted ({}), {invalidated} overwritten",
            self.evicted_extents, self.policy
        )?;
        write!(f, "Written    {} to the cache device in its life", Human(self.device_bytes_written))
    }
}
