//! The common part of `ssd`, `hdd` and `pair`: directories with models, loop devices on them, and their end.
//!
//! On SIGTERM, SIGINT and SIGHUP the loop devices are detached, and the directories are unmounted once the devices
//! are no longer in use. A second signal does not wait for that: the directories disappear, and whoever
//! still uses a device gets errors.

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
use fuser::BackgroundSession;
use sfs_device::BLOCK_SIZE;
use sfs_lab::exported::{CONTROL, DISK, Exportable, ExportedDisk, ServedDisk, serve};
use sfs_mkfs::{Human, output};
use sfs_ssd::TimeMode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Interval between two polls for a signal, or for the end of the use of the loop device.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time after which the command reports that the device is in use.
const REPORT_DELAY: Duration = Duration::from_secs(2);

/// Number of attempts to attach a loop device: another process may take the device that
/// `losetup --find` found.
const LOOP_TRIES: u32 = 5;

/// Returns the absolute path of a directory, which must be empty.
pub(super) fn empty_dir(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    let mut entries = fs::read_dir(dir).with_context(|| shown.to_string())?;
    if entries.next().is_some() {
        bail!("{shown}: not empty; name an empty directory");
    }
    dir.canonicalize().with_context(|| shown.to_string())
}

/// A model and where to show it.
pub(super) struct Export {
    pub(super) dir: PathBuf,
    pub(super) disk: Arc<dyn ServedDisk>,
    /// Name of the model, for the message.
    pub(super) name: String,
}

/// Options of the commands that export one model.
#[derive(clap::Args)]
pub(super) struct OneModel {
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

impl OneModel {
    pub(super) fn time_mode(&self) -> TimeMode {
        if self.real_time { TimeMode::RealTime } else { TimeMode::Virtual }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// Exports `disk` in `dir` until a signal arrives, and prints its counters.
    pub(super) fn run<M: Exportable>(
        &self,
        dir: PathBuf,
        disk: &Arc<ExportedDisk<M>>,
        name: String,
    ) -> Result<()> {
        run(&[Export { dir, disk: disk.clone(), name }], !self.no_loop)?;
        if let Some(path) = &self.record {
            fs::write(path, disk.trace().to_csv()).with_context(|| path.display().to_string())?;
        }
        match self.json {
            true => print(format_args!("{}", disk.status_text())),
            false => print(format_args!("{}\n", disk.summary())),
        }
        Ok(())
    }
}

/// Exports models until a signal arrives or a directory is unmounted. Prints the path of each device on a line of
/// its own, for scripts.
pub(super) fn run(exports: &[Export], with_loop_device: bool) -> Result<()> {
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, signalled.clone()).context("signals")?;
    }
    // The serving thread must not allocate memory by writing back to the disk that it serves.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let mut shown = Vec::new();
    for export in exports {
        shown.push(ShownDisk::new(export, with_loop_device)?);
    }
    shown.iter().for_each(|disk| print(format_args!("{}\n", disk.device().display())));
    for (export, disk) in exports.iter().zip(&shown) {
        print(format_args!(
            "{}: {} of {}; counters in {}; end with Ctrl-C\n",
            disk.device().display(),
            export.name,
            Human(export.disk.capacity()),
            export.dir.join(CONTROL).display()
        ));
    }
    while !signalled.load(Ordering::Relaxed) && shown.iter().all(ShownDisk::is_mounted) {
        thread::sleep(POLL_INTERVAL);
    }
    // Set again by a second signal.
    signalled.store(false, Ordering::Relaxed);
    for disk in shown {
        disk.end(&signalled)?;
    }
    Ok(())
}

/// Prints to standard output, which may be closed.
pub(super) fn print(text: fmt::Arguments<'_>) {
    let mut output = io::stdout().lock();
    let _ = output.write_fmt(text).and_then(|()| output.flush());
}

/// A mounted directory with a disk, and the loop device on it. Dropping it ends both.
struct ShownDisk {
    dir: PathBuf,
    session: Option<BackgroundSession>,
    loop_device: Option<LoopDevice>,
}

impl ShownDisk {
    fn new(export: &Export, with_loop_device: bool) -> Result<ShownDisk> {
        let session = serve(export.disk.clone(), &export.dir)
            .with_context(|| format!("{}: cannot mount with FUSE", export.dir.display()))?;
        let mut shown =
            ShownDisk { dir: export.dir.clone(), session: Some(session), loop_device: None };
        if with_loop_device {
            shown.loop_device = Some(LoopDevice::attach(&export.dir.join(DISK))?);
        }
        Ok(shown)
    }

    fn device(&self) -> PathBuf {
        match &self.loop_device {
            Some(loop_device) => loop_device.device.clone(),
            None => self.dir.join(DISK),
        }
    }

    fn is_mounted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Detaches the loop device, waits until it is free or a second signal arrives, and unmounts.
    fn end(mut self, signalled: &AtomicBool) -> Result<()> {
        if let Some(loop_device) = self.loop_device.take() {
            loop_device.detach()?;
            if !loop_device.wait(signalled) {
                output::complain(format_args!(
                    "{} is still in use; the model ends all the same, and its users get errors",
                    loop_device.device.display()
                ));
                self.unmount_lazily();
                return Ok(());
            }
        }
        match self.session.take() {
            Some(session) if !session.guard.is_finished() => {
                session.umount_and_join().context("unmounting")
            }
            _ => Ok(()),
        }
    }

    /// Removes the directory from the tree without waiting for its users. The session ends with the process.
    fn unmount_lazily(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).status();
        std::mem::forget(self.session.take());
    }
}

impl Drop for ShownDisk {
    fn drop(&mut self) {
        if let Some(loop_device) = self.loop_device.take() {
            let _ = loop_device.detach();
            self.unmount_lazily();
        }
        if let Some(session) = self.session.take().filter(|session| !session.guard.is_finished()) {
            let _ = session.umount_and_join();
        }
    }
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

    /// Detaches the device, as soon as it is no longer in use.
    fn detach(&self) -> Result<()> {
        if !self.backing_file().exists() {
            return Ok(());
        }
        let status = Command::new("losetup").arg("--detach").arg(&self.device).status();
        if !status.context("losetup")?.success() {
            bail!("{}: losetup cannot detach the device", self.device.display());
        }
        Ok(())
    }

    /// Waits until the device is detached. Returns `false` if a second signal arrives before.
    fn wait(&self, signalled: &AtomicBool) -> bool {
        let (began, mut reported) = (Instant::now(), false);
        while self.backing_file().exists() {
            if signalled.load(Ordering::Relaxed) {
                return false;
            }
            if !reported && began.elapsed() > REPORT_DELAY {
                reported = true;
                output::complain(format_args!(
                    "{} is in use; waiting until it is free, or for a second signal",
                    self.device.display()
                ));
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }
}
