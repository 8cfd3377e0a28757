//! Volumes in image files and on loop devices, mounted by the programs themselves.
//!
//! Owns: the image, the loop device, the mount and its daemon.
//! Promises: when a test fails, its mount and its daemon go away, and no others.
//! Never: hides what a program has said.

use std::env;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sfs_device::{Access, FileDevice};
use sfs_fsck::CheckReport;
use tempfile::TempDir;

/// How a volume is mounted: with the kernel's cache writing back, and without.
pub(crate) const CACHES: [&str; 2] = ["writeback", "nowriteback"];

/// Longer than anything waited for here takes on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Whether FUSE can be used; says why not. xtask counts the group as skipped for the same reason.
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

/// A directory in memory where there is one, that other users may enter.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder.prefix("sfs-test-").permissions(fs::Permissions::from_mode(0o755));
    let made = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() };
    made.expect("a directory")
}

/// Waits for `condition`, which `what` names.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_MAX;
    while !condition() {
        assert!(Instant::now() < end, "not within {WAIT_MAX:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// A volume that is not mounted, or several times in turn.
pub(crate) struct Volume {
    /// What is mounted: the image or its loop device.
    pub(crate) device: PathBuf,
    /// Where.
    pub(crate) dir: PathBuf,
    is_looped: bool,
    // Goes last: the image is in it.
    pub(crate) scratch: TempDir,
}

impl Volume {
    /// A new volume of `size`, as "64M", in an image file.
    pub(crate) fn new(size: &str) -> Self {
        Self::within(scratch(), size)
    }

    /// As [`Volume::new`], with its data placed as `data_layout` says.
    pub(crate) fn placed(size: &str, data_layout: &str) -> Self {
        Self::made(scratch(), &["--size", size, "--layout", data_layout])
    }

    /// As [`Volume::new`], on a disk: what is in the image takes no memory.
    pub(crate) fn on_disk(size: &str) -> Self {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        Self::within(scratch, size)
    }

    /// As [`Volume::new`], on the filesystem of `dir`.
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
        sfs_mkfs::make(&sfs_mkfs::Options::parse_from(arguments)).expect("a volume");
        let dir = scratch.path().join("mount");
        fs::create_dir(&dir).expect("a mount point");
        Self { device, dir, is_looped: false, scratch }
    }

    /// The volume that `device` holds already.
    pub(crate) fn existing(device: PathBuf) -> Self {
        let scratch = scratch();
        let dir = scratch.path().join("mount");
        fs::create_dir(&dir).expect("a mount point");
        Self { device, dir, is_looped: false, scratch }
    }

    /// As [`Volume::new`], on a loop device; says why not when there are none.
    pub(crate) fn on_loop(size: &str) -> Option<Self> {
        Self::new(size).looped()
    }

    /// The same volume on a loop device; says why not when there are none.
    pub(crate) fn looped(mut self) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&self.device).output();
        match output {
            Ok(output) if output.status.success() => {
                self.device = String::from_utf8_lossy(&output.stdout).trim().into();
                self.is_looped = true;
                Some(self)
            }
            Ok(output) => {
                eprintln!("skipped: losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: losetup: {error}");
                None
            }
        }
    }

    /// Mounts, when nobody uses the device.
    pub(crate) fn mount(&self, options: &str) -> Mount {
        let output = sfs_mount_unused(&self.device, &self.dir, options);
        assert!(output.status.success(), "sfs-mount -o {options}: {}", stderr(&output));
        let daemon = daemon_of(&self.device).expect("the daemon runs");
        Mount { dir: self.dir.clone(), device: self.device.clone(), daemon, is_over: false }
    }

    /// Checks the volume with its data; nothing may be wrong.
    pub(crate) fn check(&self) -> CheckReport {
        let mut device = None;
        wait_until("the daemon lets go of its device", || {
            device = FileDevice::open(&self.device, Access::ReadOnly).ok();
            device.is_some()
        });
        let device = device.expect("it was opened");
        let options = sfs_fsck::CheckOptions { data: true };
        let report = sfs_fsck::check(&device, &options, &mut |_| ControlFlow::Continue(()))
            .expect("a volume");
        let lines: Vec<_> = report.findings.kept().iter().map(|f| report.line(f)).collect();
        assert_eq!(report.errors(), 0, "fsck of {}: {lines:#?}", self.device.display());
        report
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.is_looped {
            let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
        }
    }
}

/// A mounted volume.
pub(crate) struct Mount {
    /// Its root.
    pub(crate) dir: PathBuf,
    device: PathBuf,
    /// The process that serves it.
    pub(crate) daemon: Pid,
    is_over: bool,
}

impl Mount {
    /// Unmounts as a user would; everything is on the device afterwards.
    pub(crate) fn unmount(mut self) {
        let output = sfs_umount_unused(&self.dir);
        assert!(output.status.success(), "{}", stderr(&output));
        self.is_over = true;
        self.wait_for_daemon();
    }

    /// Sends the daemon `signal`.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.daemon, signal).expect("the daemon runs");
    }

    /// Kills the daemon. What is mounted answers nothing any more.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        self.wait_for_daemon();
    }

    /// Takes a mount away whose daemon is dead.
    pub(crate) fn detach(mut self) {
        unmount(&self.dir, UnmountFlags::DETACH).expect("it was mounted");
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

/// The transport that the tests mount with: what `SFS_TRANSPORT` says, or what is used by default.
pub(crate) fn transport() -> String {
    env::var("SFS_TRANSPORT").unwrap_or_else(|_| "auto".into())
}

/// What that is here.
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

/// Runs `sfs-mount` until nobody uses the device: see [`sfs_umount_unused`].
pub(crate) fn sfs_mount_unused(device: &Path, dir: &Path, options: &str) -> Output {
    let mut output = sfs_mount(device, dir, options);
    wait_until("nobody uses the device", || {
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

/// Runs `sfs-umount` until nobody uses what is mounted. A test that has closed its files may have
/// to wait: a process that a test beside it forks holds all descriptors until it executes.
pub(crate) fn sfs_umount_unused(dir: &Path) -> Output {
    let mut output = sfs_umount(dir);
    wait_until("nobody uses the mount", || {
        let is_used = stderr(&output).contains(": in use;");
        if is_used {
            output = sfs_umount(dir);
        }
        !is_used
    });
    output
}

/// What umount(8) asks of the kernel, in the same way.
pub(crate) fn unmount_unused(dir: &Path) {
    wait_until("nobody uses the mount", || match unmount(dir, UnmountFlags::empty()) {
        Err(Errno::BUSY) => false,
        unmounted => unmounted.map(|()| true).expect("it is mounted"),
    });
}

/// Runs `sfs-ctl stat`.
pub(crate) fn sfs_ctl_stat(path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.arg("stat").args(arguments).arg(path).output().expect("sfs-ctl runs")
}

/// A copy that can be executed at once. Another process writes it: what this one has open for writing,
/// every process has that a test beside this one forks, and until it has let go the copy is busy.
pub(crate) fn copy_program(program: &Path, copy: &Path) {
    let copied = Command::new("cp").args([program, copy]).status().expect("it runs");
    assert!(copied.success());
}

/// What a program said.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether something is mounted on `dir`. Does not touch it.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("Linux");
    mounts.lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}

/// Whether a thread of `process` is left: it is the last that lets go of the device. A directory of its threads does
/// not say: who reads it while they end may miss some that have not.
fn is_alive(process: Pid) -> bool {
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return false };
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).expect("polling a process") == 0
}

/// The live process that serves `device`.
pub(crate) fn daemon_of(device: &Path) -> Option<Pid> {
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    processes.map(|entry| entry.path()).find_map(|path| {
        let pid = path.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let line = fs::read(path.join("cmdline")).ok()?;
        let mut words = line.split(|byte| *byte == 0);
        let is_ours = words.next()?.ends_with(b"sfs-mount");
        let is_given = words.any(|word| word == device.as_os_str().as_encoded_bytes());
        (is_ours && is_given).then_some(pid)
    })
}

/// Seeded numbers: splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The bytes of version `version` of what `name` says; they begin with the version.
pub(crate) fn content(name: &str, version: u64, len: usize) -> Vec<u8> {
    let salt = name.bytes().fold(version, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(Random(salt).bytes(len.saturating_sub(8)));
    bytes
}
