//! `sfs-lab hdd`: exports the model of a hard drive as a block device of this machine.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use sfs_hdd::{DriveProfile, HardDrive, profiles};
use sfs_lab::exported::ExportedHdd;
use sfs_mkfs::parse_size;
use sfs_ssd::ModelClock;

use super::export::{OneModel, empty_dir};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An empty directory, in which the files `disk` (the drive's bytes) and `control` (its
    /// counters) appear.
    dir: PathBuf,
    /// Drive: deskstar. In real time the drive reorders waiting requests.
    #[arg(long, default_value = "deskstar")]
    profile: String,
    /// Size of the drive, rounded up to whole cylinders of all zones (some 135 MiB); written data is kept in memory. A
    /// small drive has the seek times of the whole one.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Size of the write cache; 0 turns it off. By default the profile's.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    write_cache: Option<u64>,
    #[command(flatten)]
    model: OneModel,
}

/// Returns the drive of a profile with this capacity.
///
/// # Errors
///
/// If there is no profile of this name.
pub(super) fn drive(profile: &str, size: u64, write_cache: Option<u64>) -> Result<HardDrive> {
    let found = DriveProfile::by_name(profile).with_context(|| {
        let names: Vec<&str> = profiles().iter().map(|profile| profile.name).collect();
        format!("no profile {profile}: there are {}", names.join(", "))
    })?;
    let found = found.with_capacity(size);
    Ok(HardDrive::new(match write_cache {
        Some(bytes) => found.with_write_cache(bytes),
        None => found,
    }))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let drive = drive(&arguments.profile, arguments.size, arguments.write_cache)?;
    let dir = empty_dir(&arguments.dir)?;
    let name = drive.profile().device.to_owned();
    let (clock, is_recorded) =
        (ModelClock::new(arguments.model.time_mode()), arguments.model.is_recorded());
    let disk = ExportedHdd::with_clock(drive, arguments.profile.clone(), clock, is_recorded);
    arguments.model.run(dir, &Arc::new(disk), name)
}
