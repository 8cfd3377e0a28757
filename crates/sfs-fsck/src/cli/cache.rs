//! The SSD cache of the checked volume. A repair empties a damaged cache: everything in it is on the disk.

use std::path::Path;

use serde_json::{Value, json};
use sfs_cache::{CacheReport, Identity};
use sfs_core::read_superblock;
use sfs_device::{Access, Device, FileDevice};
use sfs_mkfs::refuse_in_use;

/// Result of a check of a cache.
pub(crate) struct CacheOutcome {
    report: CacheReport,
    /// `true` if the cache was damaged, and was emptied.
    pub(crate) was_emptied: bool,
}

/// Checks the cache on `path` of the volume on `disk`; with `data`, the content of all its blocks, too. Empties a damaged one if
/// `repairs`.
///
/// # Errors
///
/// A line for the user if the device has no cache of this volume, or fails.
pub(crate) fn check_cache(
    path: &Path,
    disk: &dyn Device,
    (data, repairs): (bool, bool),
) -> Result<CacheOutcome, String> {
    let shown = path.display();
    let access = if repairs { Access::ReadWrite } else { Access::ReadOnly };
    if repairs {
        refuse_in_use(path).map_err(|error| error.to_string())?;
    }
    let device = FileDevice::open(path, access).map_err(|error| error.to_string())?;
    let superblock = read_superblock(disk).map_err(|error| format!("{shown}: {error}"))?;
    let of = Identity {
        volume_uuid: superblock.uuid,
        cache_uuid: superblock.cache_uuid,
        epoch: superblock.epoch,
    };
    let failed = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
    let (header, report) = sfs_cache::check(&device, &of, data).map_err(|error| failed(&error))?;
    let was_emptied = report.is_damaged() && repairs;
    if was_emptied {
        // Any other number will do: what has been written before is not taken any more.
        let filling = header.filling.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        sfs_cache::empty(&device, &header, filling).map_err(|error| failed(&error))?;
    }
    Ok(CacheOutcome { report, was_emptied })
}

impl CacheOutcome {
    /// Returns whether the cache is damaged now.
    pub(crate) fn is_damaged(&self) -> bool {
        self.report.is_damaged() && !self.was_emptied
    }

    /// Returns the line for a user.
    pub(crate) fn to_text(&self, path: &Path) -> String {
        let CacheReport { blocks, damaged_blocks, lost_blocks, is_map_damaged, .. } = self.report;
        let state = match (self.report.is_current, self.report.is_closed) {
            (false, _) => "of another time than the disk; the next mount empties it",
            (true, true) => "of the last mount",
            (true, false) => "of a mount that was cut off; the next mount empties it",
        };
        let damage = match self.report.is_damaged() {
            false => "clean".to_owned(),
            true => format!(
                "damaged: {damaged_blocks} blocks are wrong, {lost_blocks} have no summary{}",
                if is_map_damaged { ", the map of live blocks is damaged" } else { "" }
            ),
        };
        let emptied = if self.was_emptied { "; emptied" } else { "" };
        format!("{}: cache: {damage}, {blocks} blocks, {state}{emptied}\n", path.display())
    }

    /// Returns the object for programs.
    pub(crate) fn to_json(&self) -> Value {
        let report = &self.report;
        json!({
            "damaged": report.is_damaged(),
            "emptied": self.was_emptied,
            "current": report.is_current,
            "closed": report.is_closed,
            "blocks": report.blocks,
            "damaged_blocks": report.damaged_blocks,
            "lost_blocks": report.lost_blocks,
        })
    }
}
