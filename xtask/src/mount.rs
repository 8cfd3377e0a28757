//! A mounted filesystem and its daemon.
//!
//! A mount serves requests once it is made. Unmounting waits for the daemon to end. A dropped mount
//! is unmounted.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    cleanup::{Guard, Undo, is_alive, is_mounted},
    device::TestDevice,
    filesystem::{Cache, FilesystemKind},
    workspace::Programs,
};

const WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A mounted filesystem, unmounted when dropped.
pub(crate) struct Mount {
    pub(crate) dir: PathBuf,
    kind: FilesystemKind,
    programs: Programs,
    pids: Vec<u32>,
    guard: Option<Guard>,
    child: Option<Child>,
}

impl Mount {
    pub(crate) fn new(
        kind: FilesystemKind,
        programs: &Programs,
        device: &TestDevice,
        dir: &Path,
        cache: Cache,
    ) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut mount = Self {
            dir: dir.to_owned(),
            kind,
            programs: programs.clone(),
            pids: Vec::new(),
            guard: Some(Undo::Unmount(dir.to_owned()).later()),
            child: None,
        };
        let cmd = kind.mount(programs, device, dir, cache);
        if kind.stays() {
            let child = cmd.spawn()?;
            mount.pids.push(child.id());
            mount.child = Some(child);
        } else {
            // Not `read`: the daemon that the command leaves behind may keep a pipe open.
            cmd.run()?;
        }
        mount.wait_until(true)?;
        if let Some(name) = kind.daemon() {
            mount.pids = daemons(name, &device.path)?;
        }
        Ok(mount)
    }

    /// Returns the processes that serve the mount.
    pub(crate) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Returns major and minor number of the mount's device, `7:3`.
    pub(crate) fn dev(&self) -> Result<String> {
        let dev = fs::metadata(&self.dir)?.dev();
        Ok(format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)))
    }

    /// Unmounts as a user would, and waits for the daemon.
    pub(crate) fn unmount(mut self) -> Result<()> {
        self.kind.unmount(&self.programs, &self.dir)?;
        self.wait_until(false)?;
        self.reap()?;
        drop(self.guard.take());
        Ok(())
    }

    fn wait_until(&mut self, mounted: bool) -> Result<()> {
        let end = Instant::now() + WAIT;
        while is_mounted(&self.dir) != mounted {
            if let Some(child) = &mut self.child
                && mounted
                && let Some(status) = child.try_wait()?
            {
                bail!("{} ended before it had mounted: {status}", self.kind.name());
            }
            if Instant::now() > end {
                let what = if mounted { "mounted" } else { "unmounted" };
                bail!("{} is not {what} after {WAIT:?}", self.dir.display());
            }
            thread::sleep(PAUSE);
        }
        // The root must answer, not only be in the mount table.
        if mounted { fs::metadata(&self.dir).map(drop).context("the mount") } else { Ok(()) }
    }

    fn reap(&mut self) -> Result<()> {
        let end = Instant::now() + WAIT;
        while self.pids.iter().any(|pid| is_alive(*pid)) {
            if let Some(child) = &mut self.child
                && child.try_wait()?.is_some()
            {
                break;
            }
            if Instant::now() > end {
                bail!("{} is unmounted, but its daemon is still running", self.kind.name());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(self.guard.take());
        if let Some(child) = &mut self.child {
            // The daemon ends by itself after an unmount. A daemon that has never mounted is
            // killed.
            let end = Instant::now() + Duration::from_secs(5);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(PAUSE);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the processes of program `name` with `device` among their arguments, without monitors.
fn daemons(name: &str, device: &Path) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            continue;
        };
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let program = words.next().unwrap_or_default();
        let given = words.any(|word| word == device.as_os_str().as_encoded_bytes());
        let is_monitor = fs::read_to_string(path.join("comm"))
            .is_ok_and(|name| name.trim_end() == "sfs-monitor");
        if program.ends_with(name.as_bytes()) && given && !is_monitor {
            pids.push(pid);
        }
    }
    Ok(pids)
}
