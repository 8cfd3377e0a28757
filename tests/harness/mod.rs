//! Volumes in image files and on loop devices, mounted by the programs under test.
//!
//! [`TestVolume`] makes a volume with `sfs-mkfs`; [`TestVolume::mount`] starts `sfs-mount`. A
//! failed test removes its own mount and its own daemon, and no other. The messages of a failed
//! program are part of the panic.

use std::env;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sfs_device::{Access, FileDevice};
use sfs_fsck::CheckReport;
use sfs_testkit::mount_table::is_mounted;
use sfs_testkit::{LoopDevice, SeededRng, scratch_directory, wait_until};
use tempfile::TempDir;

/// Mount options of the two cache modes: write-back by the kernel, and write-through.
pub(crate) const CACHES: [&str; 2] = ["writeback", "nowriteback"];

/// Returns whether FUSE can be used; prints the reason if not. xtask counts the group as skipped
/// for the same reason.
pub(crate) fn can_mount() -> bool {
    let door = File::options().read(true).write(true).open("/dev/fuse");
    let reason = match door {
        Err(error) => format!("/dev/fuse: {error}"),
        Ok(_) if !rustix::process::geteuid().is_root() => "mounting needs root".into(),
        Ok(_) => return true,
    };
    eprintln!("skipped: {reason}");
    false
}

/// A volume that can be mounted several times in turn.
pub(crate) struct TestVolume {
    /// Path that is mounted: the image or its loop device.
    pub(crate) device: PathBuf,
    /// Mount point.
    pub(crate) dir: PathBuf,
    // Detached before the image is deleted.
    attached: Option<LoopDevice>,
    // Dropped last: the image is in this directory.
    pub(crate) scratch: TempDir,
}

impl TestVolume {
    /// Makes a volume of `size`, such as "64M", in an image file.
    pub(crate) fn new(size: &str) -> Self {
        Self::within(scratch_directory(), size)
    }

    /// Makes a volume as [`TestVolume::new`] does, with the data layout `data_layout`.
    pub(crate) fn placed(size: &str, data_layout: &str) -> Self {
        Self::made(scratch_directory(), &["--size", size, "--layout", data_layout])
    }

    /// Makes a volume as [`TestVolume::new`] does, on a disk: the image takes no memory.
    pub(crate) fn on_disk(size: &str) -> Self {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        Self::within(scratch, size)
    }

    /// Makes a volume as [`TestVolume::new`] does, on the filesystem of `dir`.
    pub(crate) fn below(dir: &Path, size: &str) -> Self {
        Self::within(tempfile::tempdir_in(dir).expect("a directory"), size)
    }

    fn within(scratch: TempDir, size: &str) -> Self {
        Self::made(scratch, &["--size", size])
    }

    fn made(scratch: TempDir, options: &[&str]) -> Self {
        let device = scratch.path().join("image");
        let path = device.to_str().expect("UTF-8");
        let arguments = ["sfs-mkfs", "--quiet"].iter().chain(options).chain([&path]);
        sfs_mkfs::make(&sfs_mkfs::MkfsOptions::parse_from(arguments)).expect("a volume");
        let dir = scratch.path().join("mount");
        fs::create_dir(&dir).expect("a mount point");
        Self { device, dir, attached: None, scratch }
    }

    /// Returns the volume that `device` already holds.
    pub(crate) fn existing(device: PathBuf) -> Self {
        let scratch = scratch_directory();
        let dir = scratch.path().join("mount");
        fs::create_dir(&dir).expect("a mount point");
        Self { device, dir, attached: None, scratch }
    }

    /// Makes a volume as [`TestVolume::new`] does, on a loop device; prints the reason if there is
    /// none.
    pub(crate) fn on_loop(size: &str) -> Option<Self> {
        Self::new(size).looped()
    }

    /// Makes two volumes, for tests that treat images and block devices alike: one as [`TestVolume::new`] does, and one as
    /// [`TestVolume::on_loop`] does.
    pub(crate) fn in_image_and_on_loop(size: &str) -> impl Iterator<Item = Self> {
        [Some(Self::new(size)), Self::on_loop(size)].into_iter().flatten()
    }

    /// Puts the volume on a loop device; prints the reason and returns `None` if there is none.
    pub(crate) fn looped(mut self) -> Option<Self> {
        let attached = LoopDevice::attach(&self.device)?;
        self.device = attached.path.clone();
        self.attached = Some(attached);
        Some(self)
    }

    /// Mounts the volume once no process uses the device.
    pub(crate) fn mount(&self, options: &str) -> Mount {
        let output = sfs_mount_unused(&self.device, &self.dir, options);
        assert!(output.status.success(), "sfs-mount -o {options}: {}", stderr(&output));
        self.mounted()
    }

    /// Returns the mount that `sfs-mount` has just made.
    pub(crate) fn mounted(&self) -> Mount {
        let daemon = daemon_of(&self.device).expect("the daemon runs");
        Mount { dir: self.dir.clone(), device: self.device.clone(), daemon, is_over: false }
    }

    /// Checks the volume with its data, and asserts that nothing is wrong.
    pub(crate) fn check(&self) -> CheckReport {
        let mut device = None;
        wait_until("the daemon releases its device", || {
            device = FileDevice::open(&self.device, Access::ReadOnly).ok();
            device.is_some()
        });
        let device = device.expect("the device was opened");
        let options = sfs_fsck::CheckOptions { data: true };
        let report = sfs_fsck::check(&device, &options, &mut |_| ControlFlow::Continue(()))
            .expect("a volume");
        let lines: Vec<_> = report.findings.kept().iter().map(|f| report.line(f)).collect();
        assert_eq!(report.errors(), 0, "fsck of {}: {lines:#?}", self.device.display());
        report
    }
}

/// A mounted volume.
pub(crate) struct Mount {
    /// Root of the mount.
    pub(crate) dir: PathBuf,
    device: PathBuf,
    /// Process that serves the mount.
    pub(crate) daemon: Pid,
    is_over: bool,
}

impl Mount {
    /// Unmounts with `sfs-umount`. All data is on the device afterwards.
    pub(crate) fn unmount(mut self) {
        let output = sfs_umount_unused(&self.dir);
        assert!(output.status.success(), "{}", stderr(&output));
        self.is_over = true;
        self.wait_for_daemon();
    }

    /// Sends `signal` to the daemon.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.daemon, signal).expect("the daemon runs");
    }

    /// Kills the daemon. The mount fails every request from then on.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        self.wait_for_daemon();
    }

    /// Returns whether the daemon runs.
    pub(crate) fn is_served(&self) -> bool {
        is_alive(self.daemon)
    }

    /// Waits until the daemon has ended by a failure of its own. The mount fails every request from then on.
    pub(crate) fn wait_for_death(&self) {
        self.wait_for_daemon();
    }

    /// Detaches a mount whose daemon is dead.
    pub(crate) fn detach(mut self) {
        unmount(&self.dir, UnmountFlags::DETACH).expect("the volume was mounted");
        self.is_over = true;
    }

    /// Waits until the daemon has ended by itself.
    pub(crate) fn wait_for_end(mut self) {
        self.wait_for_daemon();
        self.is_over = true;
        assert!(!is_mounted(&self.dir), "the daemon has ended and the mount is still there");
    }

    fn wait_for_daemon(&self) {
        wait_until("the daemon ends", || !is_alive(self.daemon));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = unmount(&self.dir, UnmountFlags::DETACH);
            let _ = kill_process(self.daemon, Signal::KILL);
            self.wait_for_daemon();
        }
    }
}

/// Returns the transport of the tests' mounts: the value of `SFS_TRANSPORT`, or the default.
pub(crate) fn transport() -> String {
    env::var("SFS_TRANSPORT").unwrap_or_else(|_| "auto".into())
}

/// Returns the transport that [`transport`] leads to on this machine.
pub(crate) fn transport_used() -> String {
    let offered = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    match transport().as_str() {
        "auto" if offered.is_ok_and(|offered| offered.trim() == "Y") => "uring".into(),
        "auto" => "dev".into(),
        named => named.into(),
    }
}

/// Runs `sfs-mount`.
pub(crate) fn sfs_mount(device: &Path, dir: &Path, options: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    command.args(["--transport", &transport()]).arg(device).arg(dir).args(["-o", options]);
    command.output().expect("sfs-mount runs")
}

/// Runs `sfs-mount` through the program and the arguments of `by`.
pub(crate) fn sfs_mount_by(by: &[&str], device: &Path, dir: &Path, options: &str) -> Output {
    let mut command = Command::new(by[0]);
    command.args(&by[1..]).arg(env!("CARGO_BIN_EXE_sfs-mount"));
    command.args(["--transport", &transport()]).arg(device).arg(dir).args(["-o", options]);
    command.output().expect("the program runs")
}

/// Runs `sfs-mount` until no process uses the device: see [`sfs_umount_unused`].
pub(crate) fn sfs_mount_unused(device: &Path, dir: &Path, options: &str) -> Output {
    let mut output = sfs_mount(device, dir, options);
    wait_until("the device is not in use", || {
        let is_used = stderr(&output).contains(": is mounted or in use");
        if is_used {
            output = sfs_mount(device, dir, options);
        }
        !is_used
    });
    output
}

/// Runs `sfs-umount`.
pub(crate) fn sfs_umount(dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sfs-umount")).arg(dir).output().expect("sfs-umount runs")
}

/// Runs `sfs-umount` until no process uses the mount. A test that has closed its files may have to
/// wait: a process that another test forks holds all descriptors until it executes.
pub(crate) fn sfs_umount_unused(dir: &Path) -> Output {
    let mut output = sfs_umount(dir);
    wait_until("the mount is not in use", || {
        let is_used = stderr(&output).contains(": in use;");
        if is_used {
            output = sfs_umount(dir);
        }
        !is_used
    });
    output
}

/// Unmounts with the flags of umount(8), once no process uses the mount.
pub(crate) fn unmount_unused(dir: &Path) {
    wait_until("the mount is not in use", || match unmount(dir, UnmountFlags::empty()) {
        Err(Errno::BUSY) => false,
        unmounted => unmounted.map(|()| true).expect("the volume is mounted"),
    });
}

/// Runs `sfs-ctl stat`.
pub(crate) fn sfs_ctl_stat(path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.arg("stat").args(arguments).arg(path).output().expect("sfs-ctl runs")
}

/// Makes a copy that can be executed at once. Another process writes the copy: a file that this
/// process has open for writing is open, too, in every process that another test forks, and busy
/// until that process executes.
pub(crate) fn copy_program(program: &Path, copy: &Path) {
    let copied = Command::new("cp").args([program, copy]).status().expect("the program runs");
    assert!(copied.success());
}

/// Returns the messages of a program on stderr.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns whether a thread of `process` is left: the last one closes the device. The process's
/// directory of threads is no proof, since a reader may miss threads while others end.
fn is_alive(process: Pid) -> bool {
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return false };
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).expect("polling a process") == 0
}

impl TestVolume {
    /// Returns the process that serves the volume.
    pub(crate) fn daemon(&self) -> Pid {
        daemon_of(&self.device).expect("a daemon runs")
    }

    /// Unmounts the volume, which nobody uses, from its directory, and checks it.
    pub(crate) fn unmount_and_check(&self) {
        let output = sfs_umount_unused(&self.dir);
        assert!(output.status.success(), "{}", stderr(&output));
        self.check();
    }
}

/// Returns the live process that serves `device`, and not its monitor, which has the same command line.
pub(crate) fn daemon_of(device: &Path) -> Option<Pid> {
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    processes.map(|entry| entry.path()).find_map(|path| {
        let pid = path.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let line = fs::read(path.join("cmdline")).ok()?;
        let mut words = line.split(|byte| *byte == 0);
        let program = words.next()?;
        let is_ours = program.ends_with(b"sfs-mount") || program.ends_with(b"mount.sfs");
        let is_given = words.any(|word| word == device.as_os_str().as_encoded_bytes());
        let name = fs::read_to_string(path.join("comm")).ok()?;
        (is_ours && is_given && name.trim_end() != "sfs-monitor").then_some(pid)
    })
}

/// Returns the bytes of version `version` of the item `name`. The bytes begin with the version.
pub(crate) fn content(name: &str, version: u64, len: usize) -> Vec<u8> {
    let salt = name.bytes().fold(version, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(SeededRng::new(salt).bytes(len.saturating_sub(8)));
    bytes
}
