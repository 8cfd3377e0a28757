//! The numbers of a volume as JSON has them.
//!
//! Owns: names and units, which `docs/sfs-ctl.md` states.
//! Promises: what has a name keeps it and its meaning; new ones may come.
//! Never: contains a number that was not counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sfs_core::Volume;
use sfs_core::request::{
    Counters, ErrorReaction, GroupStatus, LifetimeTotals, SegmentCounts, Space, Status,
};
use uuid::Uuid;

use super::error_report::{ErrorReport, FailureReport};
use crate::bdi::DirtyBound;
use crate::transport::Transport;

/// Changes when a name changes its meaning or goes.
const VERSION: u32 = 1;

/// The numbers of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Of this form of the numbers.
    pub version: u32,
    /// The device's path.
    pub device: String,
    /// Where it is mounted; `None` when it is not.
    pub mount_point: Option<String>,
    /// How requests come from the kernel; `None` when it is not mounted.
    pub transport: Option<TransportReport>,
    /// What the kernel may hold of what was written; `None` when it is not mounted.
    pub cache: Option<CacheReport>,
    /// Nothing can be written.
    pub read_only: bool,
    /// Identity of the volume.
    pub uuid: String,
    /// Name of the volume.
    pub label: String,
    /// How full it is.
    pub space: SpaceReport,
    /// Segments by state.
    pub segments: SegmentsReport,
    /// The policies; `None` when it is not mounted: they are chosen at each mount.
    pub policies: Option<PoliciesReport>,
    /// The groups that have segments, by number.
    pub groups: Vec<GroupReport>,
    /// What is done about damage, as `-o errors=` has it; `None` when it is not mounted.
    #[serde(default)]
    pub on_error: Option<String>,
    /// Nothing is written any more, since something failed or it was shut down.
    #[serde(default)]
    pub has_failed: bool,
    /// The errors that were met on the volume, by kind.
    #[serde(default)]
    pub errors: Vec<ErrorReport>,
    /// The error that ended writing, in this mount or before.
    #[serde(default)]
    pub failure: Option<FailureReport>,
    /// Since it was mounted; `None` when it is not.
    pub mount: Option<Activity>,
    /// In all mounts, as far as checkpoints say, and in this one.
    pub life: Activity,
}

/// How full a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceReport {
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Blocks that files and metadata can have in all.
    pub total_blocks: u64,
    /// Blocks that are still to be had.
    pub free_blocks: u64,
    /// Inode numbers given out.
    pub files: u64,
}

/// Segments by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsReport {
    /// Blocks in a segment.
    pub blocks: u32,
    /// May be opened.
    pub clean: u32,
    /// Are appended to.
    pub open: u32,
    /// Are full.
    pub sealed: u32,
    /// Hold nothing, and become Clean with a delta or a checkpoint.
    pub drained: u32,
    /// Are not used.
    pub bad: u32,
    /// For data that is overwritten in place.
    pub placed: u32,
}

/// The names of the policies, as mount options have them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoliciesReport {
    /// Which blocks belong together.
    pub grouping: String,
    /// Which segment is cleaned next.
    pub victims: String,
}

/// What a group holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its number.
    pub group: u8,
    /// What it is for.
    pub holds: Holds,
    /// Open and Sealed segments.
    pub segments: u32,
    /// Open ones.
    pub open_segments: u32,
    /// Blocks in them that live.
    pub live_blocks: u64,
    /// The group's centre, if the grouping has centres: for `sfs` a hotness.
    pub centre: Option<f64>,
}

/// What a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// File data.
    Data,
    /// Tree nodes, and deltas without data.
    Metadata,
}

/// How requests come from the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransportReport {
    /// As `--transport` has it.
    pub name: String,
    /// Why this one.
    pub reason: String,
    /// References to inodes that the kernel holds; what it has forgotten it has given back.
    pub references: u64,
}

/// What the kernel's cache may hold of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Bytes, as the kernel says; `None` if it does not.
    pub dirty_bytes_max: Option<u64>,
    /// Times that the kernel took a bound.
    pub bounds_set: u64,
    /// Times that the kernel took none: its own, 1 % of its dirty threshold, stands.
    pub bounds_refused: u64,
}

/// What happened in some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// By name. Bytes where the name says so.
    pub counters: BTreeMap<String, u64>,
    /// Bytes written to the device for each byte written by users; `None` while they wrote nothing.
    pub log_write_amplification: Option<f64>,
}

impl VolumeReport {
    /// Of a volume that is mounted; `before` is what earlier mounts did.
    pub(crate) fn of_mounted(
        volume: &Volume,
        before: &LifetimeTotals,
        device: &str,
        (transport, reason): &(Transport, String),
    ) -> Self {
        let status = volume.status();
        let now = status.counters;
        let life = LifetimeTotals {
            mount_count: before.mount_count,
            user_bytes_written: before.user_bytes_written + now.user_bytes_written,
            device_bytes_written: before.device_bytes_written + now.device_bytes_written,
        };
        let mount = Some(Activity::of_mount(&now));
        let (grouping, victims) = (status.grouping.to_owned(), status.victims.to_owned());
        let policies = Some(PoliciesReport { grouping, victims });
        let on_error = match status.on_error {
            ErrorReaction::Continue => "continue",
            ErrorReaction::RemountReadOnly => "remount-ro",
        };
        Self {
            mount,
            on_error: Some(on_error.to_owned()),
            policies,
            transport: Some(TransportReport {
                name: transport.to_string(),
                reason: reason.clone(),
                references: volume.reference_count(),
            }),
            ..Self::new(volume, &status, &life, device)
        }
    }

    /// Of a volume that was opened to be looked at.
    pub(crate) fn of_device(volume: &Volume, device: &str) -> Self {
        Self::new(volume, &volume.status(), &volume.lifetime_before(), device)
    }

    fn new(volume: &Volume, status: &Status, life: &LifetimeTotals, device: &str) -> Self {
        let superblock = volume.superblock();
        Self {
            version: VERSION,
            device: device.to_owned(),
            mount_point: None,
            transport: None,
            cache: None,
            read_only: true,
            uuid: Uuid::from_bytes(superblock.uuid).to_string(),
            label: superblock.label.as_str().to_owned(),
            space: status.space.into(),
            segments: SegmentsReport::new(status.segment_blocks, status.segments),
            policies: None,
            groups: status.groups.iter().map(GroupReport::from).collect(),
            on_error: None,
            has_failed: status.has_failed,
            errors: status.remembered.errors.iter().map(ErrorReport::from).collect(),
            failure: status.remembered.failure.map(FailureReport::from),
            mount: None,
            life: Activity::of_life(life),
        }
    }

    /// One JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and text are JSON")
    }
}

impl From<DirtyBound> for CacheReport {
    fn from(bound: DirtyBound) -> Self {
        let DirtyBound { bytes: dirty_bytes_max, set: bounds_set, refused: bounds_refused } = bound;
        Self { dirty_bytes_max, bounds_set, bounds_refused }
    }
}

impl From<Space> for SpaceReport {
    fn from(space: Space) -> Self {
        let Space { total_blocks, free_blocks, files } = space;
        Self { block_bytes: sfs_device::BLOCK_SIZE as u64, total_blocks, free_blocks, files }
    }
}

impl SegmentsReport {
    fn new(blocks: u32, counts: SegmentCounts) -> Self {
        let SegmentCounts { clean, open, sealed, drained, bad, placed } = counts;
        Self { blocks, clean, open, sealed, drained, bad, placed }
    }

    /// All segments.
    pub(super) fn count(&self) -> u32 {
        self.clean + self.open + self.sealed + self.drained + self.bad + self.placed
    }
}

impl From<&GroupStatus> for GroupReport {
    fn from(status: &GroupStatus) -> Self {
        let GroupStatus { group, holds_metadata, segments, open_segments, live_blocks, centre } =
            *status;
        let holds = if holds_metadata { Holds::Metadata } else { Holds::Data };
        Self { group, holds, segments, open_segments, live_blocks, centre }
    }
}

impl Activity {
    /// A counter that is new in core does not compile until it has its line here.
    fn of_mount(counters: &Counters) -> Self {
        let Counters {
            user_bytes_written,
            device_bytes_written,
            data_bytes,
            cleaning_bytes,
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
