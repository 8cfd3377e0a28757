//! What this machine has.
//!
//! Owns the questions asked of it, and the installing of Debian packages that are missing when we are
//! root. Promises an answer that says how to get what is missing.

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

/// Where `program` is, in `PATH` or where system programs are.
pub(crate) fn program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The kernel offers io_uring to FUSE as long as this lives.
pub(crate) struct Rings {
    before: String,
}

/// Whether it does.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

impl Rings {
    pub(crate) fn enable() -> Result<Self> {
        let before = fs::read_to_string(RINGS)
            .with_context(|| format!("without io_uring: {RINGS}, which Linux 6.14 has"))?;
        fs::write(RINGS, "Y").with_context(|| format!("without io_uring: {RINGS}, as root"))?;
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

/// `tool` is there, or is installed from `package` if we may.
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
        bail!("{tool} is missing, and the package {package} does not bring it");
    }
    Ok(())
}

/// A FUSE filesystem can be mounted here.
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

/// A file can be made a block device here.
pub(crate) fn need_loop() -> Result<()> {
    if !is_root() {
        bail!("loop devices need root");
    }
    if !Path::new("/dev/loop-control").exists() {
        bail!("/dev/loop-control is missing: modprobe loop");
    }
    need("losetup", "util-linux")
}

/// Processor, kernel, cores, date and load, in one line.
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
