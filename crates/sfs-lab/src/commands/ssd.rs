//! `sfs-lab ssd`: a model as a block device of this machine.
//!
//! Owns: its options, the loop device, the end.
//! Promises: what was attached is detached again on SIGTERM, SIGINT and SIGHUP, as soon as nobody
//! uses it.
//! Never: answers a request: the exported disk does.

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
use sfs_lab::exported::{CONTROL, DISK, Exported, Status, serve};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{Ssd, SsdConfig, SsdProfile, TimeMode, profiles};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Between two looks whether the end has come.
const PAUSE: Duration = Duration::from_millis(20);

/// A wait that is longer is explained.
const PATIENCE: Duration = Duration::from_secs(2);

/// `losetup --find` and its use are two steps: others may come between.
const LOOP_TRIES: u32 = 5;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An empty directory: `disk`, the device's bytes, and `control`, its counters, appear in it.
    dir: PathBuf,
    /// Device: ssd-h, ssd-m, ssd-l, sandisk, samsung, mtron, sd, emmc, fast12.
    #[arg(long, default_value = "ssd-m")]
    profile: String,
    /// Translation layer: page-mapped[:STREAMS], page-mapped-fifo, fast[:LOG_BLOCKS],
    /// bast[:LOG_BLOCKS]; by default the profile's.
    #[arg(long)]
    ftl: Option<Layer>,
    /// Size of the device; what was written to it is kept in memory.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Every page was written before: a device that has been used.
    #[arg(long)]
    filled: bool,
    /// The device does not listen to discards.
    #[arg(long)]
    no_trim: bool,
    /// Requests take as long as on the device; without this, the time is only counted.
    #[arg(long)]
    real_time: bool,
    /// Make no loop device: only the files.
    #[arg(long)]
    no_loop: bool,
    /// Write all requests to this file at the end, as sfs-lab replay reads them.
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
        let erase_block = profile.geometry.cluster_size();
        if self.size < erase_block {
            bail!("--size {}: smaller than an erase block of {}", self.size, Human(erase_block));
        }
        let config =
            SsdConfig { informed: !self.no_trim, ..profile.with_capacity(self.size).config() };
        Ok((format!("{} {layer}", self.profile), config))
    }

    fn check_dir(&self) -> Result<PathBuf> {
        let shown = self.dir.display();
        let mut entries = fs::read_dir(&self.dir).with_context(|| shown.to_string())?;
        if entries.next().is_some() {
            bail!("{shown}: not empty");
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
    let disk = Arc::new(Exported::new(ssd, name, pace, arguments.filled, is_recorded));
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, end.clone()).context("signals")?;
    }
    // Memory for the thread that serves must not be had by writing back to the disk that it serves.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let session = serve(disk.clone(), &dir)
        .with_context(|| format!("{}: cannot mount there with FUSE", dir.display()))?;
    let looped = match arguments.no_loop {
        true => None,
        false => match Looped::attach(&dir.join(DISK)) {
            Ok(looped) => Some(looped),
            Err(error) => {
                session.umount_and_join().context("unmounting")?;
                return Err(error);
            }
        },
    };
    announce(&disk.status(), &dir, looped.as_ref());
    while !end.load(Ordering::Relaxed) && !session.guard.is_finished() {
        thread::sleep(PAUSE);
    }
    if let Some(looped) = looped {
        looped.detach()?;
    }
    if !session.guard.is_finished() {
        session.umount_and_join().context("unmounting")?;
    }
    finish(arguments, &disk)
}

/// The device alone on the first line, for scripts.
fn announce(status: &Status, dir: &Path, looped: Option<&Looped>) {
    let device = looped.map_or_else(|| dir.join(DISK), |looped| looped.device.clone());
    say(format_args!(
        "{}\n{} of {}, erase blocks of {}; counters in {}; end with Ctrl-C\n",
        device.display(),
        status.model,
        Human(status.capacity),
        Human(status.erase_block),
        dir.join(CONTROL).display()
    ));
}

/// Nobody may be listening any more.
fn say(text: fmt::Arguments<'_>) {
    let mut output = io::stdout().lock();
    let _ = output.write_fmt(text).and_then(|()| output.flush());
}

fn finish(arguments: &Arguments, disk: &Exported) -> Result<()> {
    if let Some(path) = &arguments.record {
        fs::write(path, disk.trace().to_csv()).with_context(|| path.display().to_string())?;
    }
    let status = disk.status();
    if arguments.json {
        say(format_args!("{}\n", serde_json::to_string_pretty(&status)?));
        return Ok(());
    }
    let counters = &status.counters;
    say(format_args!(
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
struct Looped {
    device: PathBuf,
}

impl Looped {
    fn attach(disk: &Path) -> Result<Looped> {
        let sector = BLOCK_SIZE.to_string();
        let mut said = String::new();
        for _ in 0..LOOP_TRIES {
            let output = Command::new("losetup")
                .args(["--find", "--show", "--direct-io=on", "--sector-size", &sector])
                .arg(disk)
                .output()
                .context("losetup, for a loop device; --no-loop does without")?;
            let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if output.status.success() && !device.is_empty() {
                return Ok(Looped { device: device.into() });
            }
            said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        }
        bail!("no loop device: {said}; --no-loop does without");
    }

    /// What the kernel says of it while it is attached.
    fn backing(&self) -> PathBuf {
        let name = self.device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("loop/backing_file")
    }

    /// Detaches it; while somebody uses it, the kernel waits for that.
    fn detach(&self) -> Result<()> {
        if !self.backing().exists() {
            return Ok(());
        }
        let status = Command::new("losetup").arg("--detach").arg(&self.device).status();
        if !status.context("losetup")?.success() {
            bail!("{}: losetup cannot detach it", self.device.display());
        }
        let (began, mut said) = (Instant::now(), false);
        while self.backing().exists() {
            if !said && began.elapsed() > PATIENCE {
                said = true;
                output::complain(format_args!(
                    "{} is in use; waiting until it is not",
                    self.device.display()
                ));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}
