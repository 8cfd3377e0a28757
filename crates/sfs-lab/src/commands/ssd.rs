//! `sfs-lab ssd`: exports a model as a block device of this machine.
//!
//! On SIGTERM, SIGINT and SIGHUP the command detaches the loop device, waits until it is no longer in use,
//! and unmounts the directory.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sfs_device::BLOCK_SIZE;
use sfs_lab::exported::{CONTROL, DISK, ExportedSsd, ExportedStatus, serve};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{Ssd, SsdConfig, SsdProfile, TimeMode, profiles};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Interval between two polls for a signal, or for the end of the use of the loop device.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time after which the command reports that the device is in use.
const REPORT_DELAY: Duration = Duration::from_secs(2);

/// Number of attempts to attach a loop device: another process may take the device that
/// `losetup --find` found.
const LOOP_TRIES: u32 = 5;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An empty directory, in which the files `disk` (the device's bytes) and `control` (its
    /// counters) appear.
    dir: PathBuf,
    /// Device: ssd-h, ssd-m, ssd-l, sandisk, samsung, mtron, sd, emmc, fast12.
    #[arg(long, default_value = "ssd-m")]
    profile: String,
    /// Translation layer: page-mapped[:STREAMS], page-mapped-fifo, fast[:LOG_BLOCKS],
    /// bast[:LOG_BLOCKS]; by default the profile's.
    #[arg(long)]
    ftl: Option<Layer>,
    /// Size of the device; written data is kept in memory.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Size of the erase blocks; by default the profile's.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    erase_block: Option<u64>,
    /// Begin with a device whose pages were all written before.
    #[arg(long)]
    filled: bool,
    /// Ignore discards.
    #[arg(long)]
    no_trim: bool,
    /// Let requests take as long as on the device, instead of only counting the time. Writing `real` or
    /// `virtual` to the file `control` changes the mode later.
    #[arg(long)]
    real_time: bool,
    /// Make only the files, without a loop device.
    #[arg(long)]
    no_loop: bool,
    /// Write all requests to this file at the end, in a format of `sfs-lab replay`.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the counters at the end as JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn config(&self) -> Result<(String, SsdConfig)> {
        let profile = SsdProfile::by_name(&self.profile).with_context(|| {
            let names: Vec<&str> = profiles().iter().map(|profile| profile.name).collect();
            format!("no profile {}: there are {}", self.profile, names.join(", "))
        })?;
        let layer = self.ftl.unwrap_or(profile.layer);
        let profile = profile.with_layer(layer);
        let profile = match self.erase_block {
            Some(size) => profile.with_cluster_size(size),
            None => profile,
        };
        let erase_block = profile.geometry.cluster_size();
        if self.size < erase_block {
            bail!("--size {}: smaller than an erase block of {}", self.size, Human(erase_block));
        }
        let config =
            SsdConfig { informed: !self.no_trim, ..profile.with_capacity(self.size).config() };
        Ok((format!("{} {layer}", self.profile), config))
    }

    /// Returns the absolute path of the directory, which must be empty.
    fn check_dir(&self) -> Result<PathBuf> {
        let shown = self.dir.display();
        let mut entries = fs::read_dir(&self.dir).with_context(|| shown.to_string())?;
        if entries.next().is_some() {
            bail!("{shown}: not empty; name an empty directory");
        }
        self.dir.canonicalize().with_context(|| shown.to_string())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (name, config) = arguments.config()?;
    let dir = arguments.check_dir()?;
    let ssd = Ssd::new(&config).context("too few spare blocks; try a larger --size")?;
    let pace = if arguments.real_time { TimeMode::RealTime } else { TimeMode::Virtual };
    let is_recorded = arguments.record.is_some();
    let disk = Arc::new(ExportedSsd::new(ssd, name, pace, arguments.filled, is_recorded));
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, end.clone()).context("signals")?;
    }
    // The serving thread must not allocate memory by writing back to the disk that it serves.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let session = serve(disk.clone(), &dir)
        .with_context(|| format!("{}: cannot mount with FUSE", dir.display()))?;
    let loop_device = match arguments.no_loop {
        true => None,
        false => match LoopDevice::attach(&dir.join(DISK)) {
            Ok(loop_device) => Some(loop_device),
            Err(error) => {
                session.umount_and_join().context("unmounting")?;
                return Err(error);
            }
        },
    };
    announce(&disk.status(), &dir, loop_device.as_ref());
    while !end.load(Ordering::Relaxed) && !session.guard.is_finished() {
        thread::sleep(POLL_INTERVAL);
    }
    if let Some(loop_device) = loop_device {
        loop_device.detach()?;
    }
    if !session.guard.is_finished() {
        session.umount_and_join().context("unmounting")?;
    }
    finish(arguments, &disk)
}

/// Prints the device alone on the first line, for scripts.
fn announce(status: &ExportedStatus, dir: &Path, loop_device: Option<&LoopDevice>) {
    let device =
        loop_device.map_or_else(|| dir.join(DISK), |loop_device| loop_device.device.clone());
    print(format_args!(
        "{}\n{} of {}, erase blocks of {}; counters in {}; end with Ctrl-C\n",
        device.display(),
        status.model,
        Human(status.capacity),
        Human(status.erase_block),
        dir.join(CONTROL).display()
    ));
}

/// Prints to standard output, which may be closed.
fn print(text: fmt::Arguments<'_>) {
    let mut output = io::stdout().lock();
    let _ = output.write_fmt(text).and_then(|()| output.flush());
}

fn finish(arguments: &Arguments, disk: &ExportedSsd) -> Result<()> {
    if let Some(path) = &arguments.record {
        fs::write(path, disk.trace().to_csv()).with_context(|| path.display().to_string())?;
    }
    let status = disk.status();
    if arguments.json {
        print(format_args!("{}\n", serde_json::to_string_pretty(&status)?));
        return Ok(());
    }
    let counters = &status.counters;
    print(format_args!(
        "written {}, write amplification {:.3}, {} erases, {} discards, {:.3} s of device time\n",
        Human(counters.host_bytes_written),
        status.write_amplification,
        counters.erases,
        counters.trim_requests,
        status.virtual_ns as f64 / 1e9
    ));
    Ok(())
}

/// A loop device.
struct LoopDevice {
    device: PathBuf,
}

impl LoopDevice {
    fn attach(disk: &Path) -> Result<LoopDevice> {
        let sector = BLOCK_SIZE.to_string();
        let mut message = String::new();
        for _ in 0..LOOP_TRIES {
            let output = Command::new("losetup")
                .args(["--find", "--show", "--direct-io=on", "--sector-size", &sector])
                .arg(disk)
                .output()
                .context("cannot run losetup; --no-loop needs no loop device")?;
            let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if output.status.success() && !device.is_empty() {
                return Ok(LoopDevice { device: device.into() });
            }
            message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        }
        bail!("cannot attach a loop device: {message}; --no-loop needs none");
    }

    /// Returns the file of sysfs that exists while the device is attached.
    fn backing_file(&self) -> PathBuf {
        let name = self.device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("loop/backing_file")
    }

    /// Detaches the device, and waits while it is in use.
    fn detach(&self) -> Result<()> {
        if !self.backing_file().exists() {
            return Ok(());
        }
        let status = Command::new("losetup").arg("--detach").arg(&self.device).status();
        if !status.context("losetup")?.success() {
            bail!("{}: losetup cannot detach the device", self.device.display());
        }
        let (began, mut reported) = (Instant::now(), false);
        while self.backing_file().exists() {
            if !reported && began.elapsed() > REPORT_DELAY {
                reported = true;
                output::complain(format_args!(
                    "{} is in use; waiting until it is free",
                    self.device.display()
                ));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}
