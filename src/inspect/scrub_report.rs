//! State and result of a scrub, as `sfs-ctl scrub` shows them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sfs_core::Volume;
use sfs_core::format::{ErrorKind, Key};
use sfs_core::request::{ScrubCounts, ScrubDamage, ScrubStep};

use super::position::TreePosition;
use crate::fuse::inode_paths;

/// Number of damaged places that are listed; more are counted.
const DAMAGE_LISTED_MAX: usize = 256;

/// State of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScrubState {
    /// There was none since the mount.
    #[default]
    Never,
    /// It goes on in the background.
    Running,
    /// It was stopped, and can be resumed.
    Stopped,
    /// It has read everything.
    Done,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DamagedPlace {
    /// Kind of the damage, with the words of `errors` in `sfs-ctl stat`.
    pub(crate) kind: String,
    /// Block address; for `item` the inode number.
    pub(crate) at: u64,
    /// Inode number of the file; null for a block that is no data.
    pub(crate) inode: Option<u64>,
    /// Offset in the file.
    pub(crate) offset_bytes: Option<u64>,
    /// Path of the file from the root of the volume, escaped; null until the scrub has ended, or if the bounded search
    /// did not find the file.
    pub(crate) path: Option<String>,
}

/// State and result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScrubReport {
    /// 1; see docs/sfs-ctl.md.
    pub(crate) version: u32,
    /// UUID of the volume.
    pub(crate) uuid: String,
    /// State.
    pub(crate) state: ScrubState,
    /// Position at which the scrub can be resumed.
    pub(crate) position: Option<String>,
    /// Largest number of bytes that it reads in a second; 0 if there is no limit.
    pub(crate) rate_bytes: u64,
    /// Seconds since 1970 at which it began or was resumed last.
    pub(crate) started_secs: i64,
    /// Seconds that it has run.
    pub(crate) running_secs: u64,
    /// Blocks of files with a checksum that were verified.
    pub(crate) data_blocks: u64,
    /// Blocks of files that are overwritten in place, without a checksum: they were read.
    pub(crate) unverified_blocks: u64,
    /// Tree nodes that were verified.
    pub(crate) node_blocks: u64,
    /// Blocks of the log that were read for its summaries.
    pub(crate) summary_blocks: u64,
    /// Blocks of superblocks and checkpoint slots.
    pub(crate) fixed_blocks: u64,
    /// Blocks of data and nodes that the volume had when the scrub began.
    pub(crate) live_blocks: u64,
    /// Number of damaged places found.
    pub(crate) damage_count: u64,
    /// The first of them.
    pub(crate) damage: Vec<DamagedPlace>,
    /// `true` once the paths of the damaged files were looked for.
    pub(crate) is_named: bool,
}

impl ScrubReport {
    /// Adds the result of a step.
    pub(crate) fn add(&mut self, step: &ScrubStep, position: Key) {
        let ScrubCounts { data_blocks, unverified_blocks, node_blocks, .. } = step.counts;
        let ScrubCounts { summary_blocks, fixed_blocks, .. } = step.counts;
        self.data_blocks += data_blocks;
        self.unverified_blocks += unverified_blocks;
        self.node_blocks += node_blocks;
        self.summary_blocks += summary_blocks;
        self.fixed_blocks += fixed_blocks;
        self.position = Some(TreePosition::from(position).to_string());
        for damage in &step.damage {
            // A scrub that was resumed meets damage outside of the tree again.
            let place = DamagedPlace::from(damage);
            if self.damage.iter().any(|known| known.is_at(&place)) {
                continue;
            }
            self.damage_count += 1;
            if self.damage.len() < DAMAGE_LISTED_MAX {
                self.damage.push(place);
            }
        }
    }

    /// Finds the paths of the damaged files, by one walk.
    pub(crate) fn name_files(&mut self, volume: &Volume) {
        let paths = self.paths(volume);
        self.set_paths(&paths);
    }

    /// Returns the paths of the damaged files, by their inode numbers.
    pub(crate) fn paths(&self, volume: &Volume) -> BTreeMap<u64, String> {
        let inodes: BTreeSet<u64> = self.damage.iter().filter_map(|place| place.inode).collect();
        if inodes.is_empty() {
            return BTreeMap::new();
        }
        inode_paths::find(volume, "/".as_ref(), &inodes)
    }

    pub(crate) fn set_paths(&mut self, paths: &BTreeMap<u64, String>) {
        self.is_named = true;
        for place in &mut self.damage {
            place.path = place.inode.and_then(|inode| paths.get(&inode).cloned());
        }
    }

    /// Returns whether the paths of damaged files may still be looked for.
    pub(crate) fn is_unnamed(&self) -> bool {
        !self.is_named && self.damage.iter().any(|place| place.inode.is_some())
    }

    /// Returns the numbers of live blocks that were verified, and of all blocks that were read.
    pub(crate) fn blocks(&self) -> (u64, u64) {
        let live = self.data_blocks + self.unverified_blocks + self.node_blocks;
        (live, live + self.summary_blocks + self.fixed_blocks)
    }

    /// Returns how much was verified, 0 to 1. A volume that is changed meanwhile makes it inexact.
    pub(crate) fn progress(&self) -> f64 {
        if self.state == ScrubState::Done {
            return 1.0;
        }
        (self.blocks().0 as f64 / self.live_blocks.max(1) as f64).min(0.999)
    }

    /// Returns the damaged files, each once, by path or inode number.
    pub(crate) fn damaged_files(&self) -> Vec<String> {
        let name = |place: &DamagedPlace| {
            let inode = place.inode?;
            Some((inode, place.path.clone().unwrap_or_else(|| format!("inode {inode}"))))
        };
        let names: BTreeMap<u64, String> = self.damage.iter().filter_map(name).collect();
        names.into_values().collect()
    }
}

impl DamagedPlace {
    fn is_at(&self, other: &Self) -> bool {
        (&self.kind, self.at, self.inode) == (&other.kind, other.at, other.inode)
    }
}

impl From<&ScrubDamage> for DamagedPlace {
    fn from(damage: &ScrubDamage) -> Self {
        let inode = damage.owner.map(|(ino, _)| ino);
        let is_item = damage.kind == ErrorKind::Item;
        Self {
            kind: damage.kind.name().map_or_else(|| damage.kind.code().to_string(), str::to_owned),
            at: damage.at,
            inode: inode.or(is_item.then_some(damage.at)),
            offset_bytes: damage.owner.map(|(_, block)| u64::from(block) * 4096),
            path: None,
        }
    }
}
