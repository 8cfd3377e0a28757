//! A real device: checks before it is erased, its description by sysfs, and its count of written bytes.

use std::{
    cell::Cell,
    fs,
    io::{self, BufRead as _, Write as _},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{Mode, OFlags};

use super::medium::last_name;
use crate::device::TestDevice;

/// Size of the sectors in which the kernel counts, in bytes.
const SECTOR: u64 = 512;

/// Files of sysfs about a card, which contain nothing about its owner.
const FACTS: [&str; 9] =
    ["vendor", "model", "name", "type", "manfid", "oemid", "fwrev", "date", "pre_eol_info"];

/// A device that may be erased.
pub(super) struct RealDevice {
    device: TestDevice,
    sysfs: PathBuf,
    /// Bytes written up to the last reset.
    before: Cell<u64>,
}

impl RealDevice {
    /// Returns the device, if it is a block device that nothing uses.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let path = path.canonicalize().with_context(|| format!("{shown}"))?;
        let kind = fs::metadata(&path)?.file_type();
        ensure!(kind.is_block_device(), "{shown}: not a block device");
        let sysfs = Path::new("/sys/class/block").join(last_name(&path)).canonicalize()?;
        refuse_in_use(&path, &sysfs)?;
        let real = Self { device: TestDevice::of_others(&path), sysfs, before: Cell::new(0) };
        real.reset()?;
        Ok(real)
    }

    pub(super) fn device(&self) -> &TestDevice {
        &self.device
    }

    /// Returns the size, in bytes.
    pub(super) fn len(&self) -> Result<u64> {
        Ok(read_trimmed(&self.sysfs.join("size"))?.parse::<u64>()? * SECTOR)
    }

    /// Asks on the terminal whether all data may be erased.
    pub(super) fn ask(&self) -> Result<()> {
        let path = self.device.path.display();
        println!("{}", self.description()?);
        print!("All data on {path} will be erased, several times. Type {path} to go on: ");
        io::stdout().flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        ensure!(line.trim() == path.to_string(), "nothing was erased");
        Ok(())
    }

    /// Describes the device, without its serial number.
    pub(super) fn description(&self) -> Result<String> {
        let gb = self.len()? as f64 / 1e9;
        let mut text = format!("{}: {gb:.1} GB", self.device.path.display());
        for fact in FACTS {
            if let Some(value) = self.fact(fact) {
                text += &format!(", {fact} {value}");
            }
        }
        Ok(text)
    }

    /// Returns the used part of its life that an eMMC reports, as two steps of 10 %.
    pub(super) fn life_time(&self) -> Option<String> {
        self.fact("life_time")
    }

    fn fact(&self, name: &str) -> Option<String> {
        // The directory of a partition is in the directory of its disk.
        let disks = [self.sysfs.join("device"), self.sysfs.join("../device")];
        let values = disks.iter().filter_map(|disk| read_trimmed(&disk.join(name)).ok());
        values.into_iter().find(|value| !value.is_empty())
    }

    /// Counts from now on.
    pub(super) fn reset(&self) -> Result<()> {
        self.before.set(self.total()?);
        Ok(())
    }

    /// Returns the bytes written since the last reset.
    pub(super) fn bytes_written(&self) -> Result<u64> {
        Ok(self.total()?.saturating_sub(self.before.get()))
    }

    fn total(&self) -> Result<u64> {
        let text = read_trimmed(&self.sysfs.join("stat"))?;
        let sectors = text.split_whitespace().nth(6).context("/sys: no count of writes")?;
        Ok(sectors.parse::<u64>()? * SECTOR)
    }
}

fn read_trimmed(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// Refuses a device if the device itself, a partition of it, or a device above it is in use.
fn refuse_in_use(path: &Path, sysfs: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for dir in [vec![sysfs.to_owned()], partitions(sysfs)?].concat() {
        let name = last_name(&dir);
        let number = read_trimmed(&dir.join("dev"))?;
        let mounted = mounts.lines().map(|line| line.split(' ')).find_map(|mut fields| {
            let (device, at) = (fields.nth(2)?, fields.nth(1)?);
            (device == number).then(|| at.to_owned())
        });
        if let Some(at) = mounted {
            bail!("/dev/{name} is mounted at {at}");
        }
        ensure!(!swaps.contains(&format!("/dev/{name} ")), "/dev/{name} is used for swapping");
        let holders = fs::read_dir(dir.join("holders")).into_iter().flatten().count();
        ensure!(holders == 0, "/dev/{name} is used by another device");
    }
    // The kernel refuses whatever has another exclusive user, such as a volume of several devices.
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(_) => Ok(()),
        Err(error) => bail!("{} cannot be opened alone: {error}", path.display()),
    }
}

/// Returns the directories of sysfs of the partitions of a disk.
fn partitions(sysfs: &Path) -> Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<_>> = fs::read_dir(sysfs)?.collect();
    let dirs = entries?.into_iter().map(|entry| entry.path());
    Ok(dirs.filter(|dir| dir.join("partition").exists()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_a_device() {
        let error = RealDevice::open(Path::new("/proc/version")).err().expect("refused");
        assert_eq!(error.to_string(), "/proc/version: not a block device");
    }

    #[test]
    fn the_disk_of_the_root_filesystem_is_refused() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let devices = mounts.lines().filter_map(|line| line.split(" - ").nth(1)?.split(' ').nth(1));
        for path in devices.map(Path::new).filter(|path| path.starts_with("/dev") && path.exists())
        {
            let is_block = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
            assert!(!is_block || RealDevice::open(path).is_err(), "{}", path.display());
        }
    }
}
