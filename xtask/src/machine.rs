//! Properties of this machine, and the Debian packages on it.
//!
//! The error for a missing program or device names a remedy. As root, missing packages are installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, bail};

use crate::run::Cmd;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the path of `program`, in `PATH` or a directory of system programs.
pub(crate) fn program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The kernel's setting for FUSE over io_uring, restored when dropped.
pub(crate) struct Rings {
    before: String,
}

/// File of the kernel's setting, `Y` if FUSE may use io_uring.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

impl Rings {
    pub(crate) fn enable() -> Result<Self> {
        let before = fs::read_to_string(RINGS)
            .with_context(|| format!("io_uring is not enabled: {RINGS} needs Linux 6.14"))?;
        fs::write(RINGS, "Y")
            .with_context(|| format!("io_uring is not enabled: {RINGS} needs root"))?;
        Ok(Self { before })
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        if let Err(error) = fs::write(RINGS, self.before.trim()) {
            eprintln!("{RINGS} stays enabled: {error}");
        }
    }
}

/// Checks that `tool` is present, or installs it from `package` as root.
pub(crate) fn need(tool: &str, package: &str) -> Result<()> {
    if program(tool).is_some() {
        return Ok(());
    }
    if !is_root() || program("apt-get").is_none() {
        bail!("{tool} is missing: apt-get install {package}");
    }
    println!("installing {package}, for {tool}");
    static UPDATED: OnceLock<bool> = OnceLock::new();
    UPDATED.get_or_init(|| Cmd::new("apt-get").args(["update", "-qq"]).read().is_ok());
    let install = ["install", "-y", "-qq", "--no-install-recommends", package];
    Cmd::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(install).read()?;
    if program(tool).is_none() {
        bail!("{tool} is missing, and the package {package} does not contain this program");
    }
    Ok(())
}

/// Checks that a FUSE filesystem can be mounted here.
pub(crate) fn need_fuse() -> Result<()> {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        bail!(
            "/dev/fuse is missing: modprobe fuse (in a container: run it with --device /dev/fuse)"
        );
    }
    if let Err(error) = fs::File::options().read(true).write(true).open(device) {
        bail!("/dev/fuse cannot be opened ({error}): chmod 666 /dev/fuse, or become root");
    }
    if is_root() { Ok(()) } else { need("fusermount3", "fuse3") }
}

/// Checks that loop devices can be made here.
pub(crate) fn need_loop() -> Result<()> {
    if !is_root() {
        bail!("loop devices need root");
    }
    if !Path::new("/dev/loop-control").exists() {
        bail!("/dev/loop-control is missing: modprobe loop");
    }
    need("losetup", "util-linux")
}

/// Drops pages and names from the kernel's caches, after writing dirty pages back.
pub(crate) fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches: run as root")
}

/// Describes processor, kernel, cores, date and load in one line.
pub(crate) fn description() -> String {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = text("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let kernel = text("/proc/sys/kernel/osrelease");
    let load = text("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ");
    let date = Cmd::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).read().unwrap_or_default();
    format!("{model}, {cores} cores, Linux {}, {date}, load average {load}", kernel.trim())
}
