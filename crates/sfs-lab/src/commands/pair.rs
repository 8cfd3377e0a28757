//! `sfs-lab pair`: exports a flash device and a hard drive at once, with one clock.
//!
//! In virtual time a request to either device arrives when the request before it, to whichever device, has ended; so
//! the clock shows the time of an experiment that uses both.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use sfs_lab::exported::{ExportedDisk, ServedDisk};
use sfs_mkfs::parse_size;
use sfs_ssd::{ModelClock, Ssd, SsdProfile, TimeMode};

use super::export::{self, Export, empty_dir, print};
use super::hdd;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An empty directory, in which the directories `ssd` and `hdd` appear, each with the files `disk` and `control`.
    dir: PathBuf,
    /// Profile of the flash device, as for `sfs-lab ssd`.
    #[arg(long, default_value = "ssd-m")]
    ssd: String,
    /// Size of the flash device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    ssd_size: u64,
    /// Profile of the hard drive, as for `sfs-lab hdd`.
    #[arg(long, default_value = "deskstar")]
    hdd: String,
    /// Size of the hard drive.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4G")]
    hdd_size: u64,
    /// Let requests take as long as on the devices. Writing `real` or `virtual` to either file `control` changes the
    /// mode of both later.
    #[arg(long)]
    real_time: bool,
    /// Make only the files, without loop devices.
    #[arg(long)]
    no_loop: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let profile = SsdProfile::by_name(&arguments.ssd)
        .with_context(|| format!("no profile {}; sfs-lab ssd --help lists them", arguments.ssd))?;
    let ssd = Ssd::new(&profile.with_capacity(arguments.ssd_size).config())
        .context("too few spare blocks; try a larger --ssd-size")?;
    let drive = hdd::drive(&arguments.hdd, arguments.hdd_size, None)?;
    let dir = empty_dir(&arguments.dir)?;
    let pace = if arguments.real_time { TimeMode::RealTime } else { TimeMode::Virtual };
    let clock = ModelClock::new(pace);
    let ssd = Arc::new(ExportedDisk::with_clock(ssd, arguments.ssd.clone(), clock.clone(), false));
    let hdd = Arc::new(ExportedDisk::with_clock(drive, arguments.hdd.clone(), clock, false));
    let export = |name: &str, disk: Arc<dyn ServedDisk>, shown: &str| -> Result<Export> {
        let dir = dir.join(name);
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        Ok(Export { dir, disk, name: shown.to_owned() })
    };
    let exports =
        [export("ssd", ssd.clone(), &arguments.ssd)?, export("hdd", hdd.clone(), &arguments.hdd)?];
    let outcome = export::run(&exports, !arguments.no_loop);
    exports.iter().for_each(|export| drop(fs::remove_dir(&export.dir)));
    outcome?;
    print(format_args!("ssd: {}\nhdd: {}\n", ssd.summary(), hdd.summary()));
    Ok(())
}
