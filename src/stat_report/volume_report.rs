//! The numbers of a volume, as JSON; `docs/sfs-ctl.md` states names and units.
//!
//! A name keeps its meaning as long as [`VolumeReport::version`] is the same; new names may be added.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sfs_core::Volume;
use sfs_core::format::{Day, Head};
use sfs_core::request::{
    Counters, ErrorReaction, GroupStatus, LifetimeTotals, SegmentCounts, Space, Status,
};
use uuid::Uuid;

use super::cleaning_report::CleaningReport;
use super::error_report::{ErrorReport, FailureReport};
use super::health_report::HealthReport;
use super::latency_report::LatencyReport;
use super::lock_report::LockReport;
use super::reads_report::ReadsReport;
use super::sandbox_report::SandboxReport;
use super::store_price::StorePrices;
use super::store_report::StoreReport;
use super::wear_report::WearReport;
use crate::bdi::DirtyBound;
use crate::file_clock;
use crate::transport::ActiveTransport;

/// Version of the names, raised when a name changes its meaning or is removed.
const VERSION: u32 = 1;

/// Numbers of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Version of the names.
    pub version: u32,
    /// Path of the device.
    pub device: String,
    /// Mount point; `None` when the volume is not mounted.
    pub mount_point: Option<String>,
    /// Transport of the kernel's requests; `None` when the volume is not mounted.
    pub transport: Option<TransportReport>,
    /// Limits of the daemon; `None` when the volume is not mounted, and from an older daemon.
    #[serde(default)]
    pub sandbox: Option<SandboxReport>,
    /// Dirty data that the kernel may hold; `None` when the volume is not mounted.
    pub cache: Option<CacheReport>,
    /// The object store; `None` when the volume is in none, or not mounted.
    #[serde(default)]
    pub store: Option<StoreReport>,
    /// How the device is read; `None` when the volume is not mounted.
    #[serde(default)]
    pub reads: Option<ReadsReport>,
    /// `true` if nothing can be written.
    pub read_only: bool,
    /// Identity of the volume.
    pub uuid: String,
    /// Name of the volume.
    pub label: String,
    /// `true` if the UUID and the key of the hash of names come from a seed.
    #[serde(default)]
    pub hash_key_from_seed: bool,
    /// Space of the volume.
    pub space: SpaceReport,
    /// Number of segments in each state.
    pub segments: SegmentCountsReport,
    /// Policies, which are chosen at each mount; `None` when the volume is not mounted.
    pub policies: Option<PoliciesReport>,
    /// Groups that have segments, by number.
    pub groups: Vec<GroupReport>,
    /// Reaction to damage, as `-o errors=` names it; `None` when the volume is not mounted.
    #[serde(default)]
    pub on_error: Option<String>,
    /// `true` if writing has stopped, after a failure or a shutdown.
    #[serde(default)]
    pub has_failed: bool,
    /// Errors that were recorded on the volume, by kind.
    #[serde(default)]
    pub errors: Vec<ErrorReport>,
    /// Error that ended writing, in this mount or before.
    #[serde(default)]
    pub failure: Option<FailureReport>,
    /// Wear of the device; `None` from an older daemon.
    #[serde(default)]
    pub wear: Option<WearReport>,
    /// Health of the volume and its device; `None` from an older daemon.
    #[serde(default)]
    pub health: Option<HealthReport>,
    /// Activity since the mount; `None` when the volume is not mounted.
    pub mount: Option<ActivityReport>,
    /// Times of locks since the daemon began; empty in a build that does not keep them.
    #[serde(default)]
    pub locks: Vec<LockReport>,
    /// Latencies of the requests since the mount, by operation; empty when the volume is not mounted.
    #[serde(default)]
    pub latencies: Vec<LatencyReport>,
    /// The last cleaning rounds of the mount, at most 32, the newest first.
    #[serde(default)]
    pub cleanings: Vec<CleaningReport>,
    /// Activity in all mounts: in earlier mounts up to their last checkpoints, and in this mount.
    pub life: ActivityReport,
}

/// Space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceReport {
    /// Number of bytes in a block.
    pub block_bytes: u64,
    /// Number of blocks for files and metadata.
    pub total_blocks: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Number of free blocks that data can have; 0 from an older daemon.
    #[serde(default)]
    pub available_blocks: u64,
    /// Number of files of all kinds, the root directory included.
    pub files: u64,
}

/// Number of segments in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCountsReport {
    /// Number of blocks in a segment.
    pub blocks: u32,
    /// Number of segments that may be opened.
    pub clean: u32,
    /// Number of segments that are appended to.
    pub open: u32,
    /// Number of segments that take no more appends.
    pub sealed: u32,
    /// Number of segments without live blocks, which become Clean with a delta or a checkpoint.
    pub drained: u32,
    /// Number of segments that are not used.
    pub bad: u32,
    /// Number of segments for data that is overwritten in place.
    pub placed: u32,
}

/// Names of the policies, as mount options have them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoliciesReport {
    /// Grouping policy, which chooses the group of a block. Version 1 of the names calls it `placement`.
    #[serde(rename = "placement")]
    pub grouping: String,
    /// Victim policy, which chooses the segment to clean.
    pub victims: String,
}

/// Contents of a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Number of the group's head: 0 for metadata, and the group's number plus 1 for data.
    pub group: u8,
    /// Kind of the group's blocks.
    pub holds: Holds,
    /// Number of Open and Sealed segments.
    pub segments: u32,
    /// Number of Open segments.
    pub open_segments: u32,
    /// Number of live blocks in the Open and Sealed segments.
    pub live_blocks: u64,
    /// Centre of the group, if the grouping policy has centres: for `sfs-fast12` a hotness.
    pub centre: Option<f64>,
}

/// Kind of blocks in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// File data.
    Data,
    /// Tree nodes, and deltas without data.
    Metadata,
}

/// Transport of the kernel's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransportReport {
    /// Name, as `--transport` has it.
    pub name: String,
    /// Reason for this transport.
    pub reason: String,
    /// Number of references to inodes that the kernel holds and has not returned.
    pub references: u64,
}

/// Dirty data that the kernel's cache may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// `true` if the kernel reads asynchronously: `-o async_read=`.
    #[serde(default)]
    pub asynchronous_reads: bool,
    /// Number of bytes that the device writes in a second, by which the bound is set; `None` if unknown.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
    /// Bound in bytes, as the kernel states it; `None` if the kernel states none.
    pub dirty_bytes_max: Option<u64>,
    /// Number of times that the kernel accepted a bound.
    pub bounds_set: u64,
    /// Number of times that the kernel refused a bound, and used its own instead, 1 % of its dirty
    /// threshold.
    pub bounds_refused: u64,
}

/// Activity in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivityReport {
    /// Counters by name; names of counters of bytes contain `bytes`.
    pub counters: BTreeMap<String, u64>,
    /// Bytes written to the device for each byte written by users; `None` while users have written nothing.
    pub log_write_amplification: Option<f64>,
}

impl VolumeReport {
    /// Returns the report with the costs of the volume in its object store, if it is in one, at these prices.
    #[must_use]
    pub fn at(mut self, prices: Option<&StorePrices>) -> Self {
        if let Some(prices) = prices {
            self.store = self.store.map(|store| store.at(prices));
        }
        self
    }

    /// Makes the report of a mounted volume; `before` has the totals of earlier mounts.
    pub(crate) fn of_mounted(
        volume: &Volume,
        before: &LifetimeTotals,
        device: &str,
        (transport, reason): &(ActiveTransport, String),
    ) -> Self {
        let status = volume.status();
        let now = status.counters;
        let life = LifetimeTotals {
            mount_count: before.mount_count,
            user_bytes_written: before.user_bytes_written + now.user_bytes_written,
            device_bytes_written: before.device_bytes_written + now.device_bytes_written,
        };
        let mount = Some(ActivityReport::of_mount(&now));
        let (grouping, victims) = (status.grouping.to_owned(), status.victim.to_owned());
        let policies = Some(PoliciesReport { grouping, victims });
        let on_error = match status.on_error {
            ErrorReaction::Continue => "continue",
            ErrorReaction::RemountReadOnly => "remount-ro",
        };
        Self {
            mount,
            on_error: Some(on_error.to_owned()),
            policies,
            locks: sfs_core::lock_times().into_iter().map(LockReport::from).collect(),
            transport: Some(TransportReport {
                name: transport.to_string(),
                reason: reason.clone(),
                references: volume.reference_count(),
            }),
            ..Self::new(volume, &status, &life, device)
        }
    }

    /// Makes the report of a volume that was opened only for the report.
    pub(crate) fn of_device(volume: &Volume, device: &str) -> Self {
        Self::new(volume, &volume.status(), &volume.lifetime_before(), device)
    }

    fn new(volume: &Volume, status: &Status, life: &LifetimeTotals, device: &str) -> Self {
        let (superblock, now) = (volume.superblock(), file_clock::now());
        Self {
            version: VERSION,
            device: device.to_owned(),
            mount_point: None,
            transport: None,
            sandbox: None,
            cache: None,
            store: None,
            reads: None,
            read_only: true,
            uuid: Uuid::from_bytes(superblock.uuid).to_string(),
            label: superblock.label.as_str().to_owned(),
            hash_key_from_seed: superblock.features.has_key_from_seed(),
            space: status.space.into(),
            segments: SegmentCountsReport::new(status.segment_blocks, status.segments),
            policies: None,
            groups: status.groups.iter().map(GroupReport::from).collect(),
            on_error: None,
            has_failed: status.has_failed,
            errors: status.remembered.errors.iter().map(ErrorReport::from).collect(),
            failure: status.remembered.failure.map(FailureReport::from),
            wear: Some(WearReport::new(&volume.wear(), Day::of(now), Path::new(device))),
            health: None,
            mount: None,
            locks: Vec::new(),
            latencies: Vec::new(),
            cleanings: Vec::new(),
            life: ActivityReport::of_life(life),
        }
        .judged()
    }

    /// Returns the report as one JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and text are JSON")
    }
}

impl From<DirtyBound> for CacheReport {
    fn from(bound: DirtyBound) -> Self {
        Self {
            asynchronous_reads: bound.reads_asynchronously,
            bytes_per_second: bound.speed,
            dirty_bytes_max: bound.bytes,
            bounds_set: bound.set,
            bounds_refused: bound.refused,
        }
    }
}

impl From<Space> for SpaceReport {
    fn from(space: Space) -> Self {
        let Space { total_blocks, free_blocks, available_blocks, files } = space;
        let block_bytes = sfs_device::BLOCK_SIZE as u64;
        Self { block_bytes, total_blocks, free_blocks, available_blocks, files }
    }
}

impl SegmentCountsReport {
    fn new(blocks: u32, counts: SegmentCounts) -> Self {
        let SegmentCounts { clean, open, sealed, drained, bad, in_place: placed } = counts;
        Self { blocks, clean, open, sealed, drained, bad, placed }
    }

    /// Number of all segments.
    pub(crate) fn count(&self) -> u32 {
        self.clean + self.open + self.sealed + self.drained + self.bad + self.placed
    }
}

impl From<&GroupStatus> for GroupReport {
    fn from(status: &GroupStatus) -> Self {
        let GroupStatus { head, segments, open_segments, live_blocks, centre } = *status;
        let holds = if head == Head::METADATA { Holds::Metadata } else { Holds::Data };
        Self { group: head.0, holds, segments, open_segments, live_blocks, centre }
    }
}

impl ActivityReport {
    /// Returns the counter called `name`; 0 if the daemon has none of that name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    /// Lists the counters of a mount. A counter that is new in the core does not compile until it has its line
    /// here.
    fn of_mount(counters: &Counters) -> Self {
        let Counters {
            user_bytes_written,
            device_bytes_written,
            data_bytes,
            cleaning_bytes,
            defragmentation_bytes,
            metadata_bytes,
            summary_bytes,
            commits,
            syncs,
            checkpoints,
            segments_cleaned,
            nodes_read,
            stalls,
        } = *counters;
        Self::new(
            &[
                ("data_bytes", data_bytes),
                ("cleaning_bytes", cleaning_bytes),
                ("defragmentation_bytes", defragmentation_bytes),
                ("metadata_bytes", metadata_bytes),
                ("summary_bytes", summary_bytes),
                ("commits", commits),
                ("syncs", syncs),
                ("checkpoints", checkpoints),
                ("segments_cleaned", segments_cleaned),
                ("nodes_read", nodes_read),
                ("stalls", stalls),
            ],
            user_bytes_written,
            device_bytes_written,
        )
    }

    fn of_life(life: &LifetimeTotals) -> Self {
        let LifetimeTotals { mount_count, user_bytes_written, device_bytes_written } = *life;
        Self::new(&[("mounts", mount_count)], user_bytes_written, device_bytes_written)
    }

    fn new(counters: &[(&str, u64)], user_bytes: u64, device_bytes: u64) -> Self {
        let both = [("user_bytes_written", user_bytes), ("device_bytes_written", device_bytes)];
        let all = counters.iter().copied().chain(both);
        let amplification = device_bytes as f64 / user_bytes as f64;
        Self {
            counters: all.map(|(name, count)| (name.to_owned(), count)).collect(),
            log_write_amplification: (user_bytes > 0).then_some(amplification),
        }
    }
}
