//! Uses of a device or image file that an exclusive open does not notice.
//!
//! Mounts, swap areas and loop devices come from `/proc/self/mountinfo`, `/proc/swaps` and
//! `/sys/block/loop*`. An unreadable source counts as no use, since the exclusive open of the
//! device is a second check.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sfs_system::mountinfo::{DeviceNumber, MountRecord, unescape};

use crate::MkfsError;

/// Refuses `path` if it is mounted, swapped to, or used by way of a loop device.
///
/// # Errors
///
/// [`MkfsError::Mounted`], [`MkfsError::Swap`] and those of [`refuse_in_use_by_loop`].
pub fn refuse_in_use(path: &Path) -> Result<(), MkfsError> {
    let Ok(real) = fs::canonicalize(path) else { return Ok(()) };
    let number = block_device_number(&real);
    if let Some(at) = mount_point(&read("/proc/self/mountinfo"), &real, number) {
        return Err(MkfsError::Mounted { device: path.to_owned(), at });
    }
    if is_swap(&read("/proc/swaps"), &real) {
        return Err(MkfsError::Swap(path.to_owned()));
    }
    refuse_in_use_by_loop(path)
}

/// Directory of device files.
const DEVICES: &str = "/dev";

/// Refuses to make a file at `path` if the filesystem there holds device files: a misspelled name of a device would
/// become a file in memory. Other filesystems below `/dev`, such as `/dev/shm`, are allowed.
///
/// # Errors
///
/// [`MkfsError::AmongDevices`].
pub(crate) fn refuse_among_devices(path: &Path) -> Result<(), MkfsError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(parent) = fs::canonicalize(parent.unwrap_or(Path::new("."))) else { return Ok(()) };
    let mounts = MountRecord::parse_all(&read("/proc/self/mountinfo"));
    let around = mounts.iter().rev().filter(|mount| parent.starts_with(&mount.dir));
    let Some(mount) = around.max_by_key(|mount| mount.dir.components().count()) else {
        return Ok(());
    };
    let is_below = |dir: &Path| dir.starts_with(DEVICES);
    let is_root_of_devices = mount.kind == "devtmpfs" || mount.dir == Path::new(DEVICES);
    if is_root_of_devices || is_below(&parent) && !is_below(&mount.dir) {
        let directory = if is_root_of_devices { mount.dir.clone() } else { DEVICES.into() };
        return Err(MkfsError::AmongDevices { path: path.to_owned(), directory });
    }
    Ok(())
}

/// Refuses an image file that a loop device uses. Also refuses a loop device if its file is
/// mounted, or if another loop device maps some of the same bytes of the file. A lock on the file
/// does not exclude an exclusive open of the loop device, nor the reverse.
///
/// # Errors
///
/// [`MkfsError::BehindLoop`] and [`MkfsError::FileMounted`].
pub fn refuse_in_use_by_loop(path: &Path) -> Result<(), MkfsError> {
    let Ok(real) = fs::canonicalize(path) else { return Ok(()) };
    let device = || path.to_owned();
    let loops = Loop::all(Path::new("/sys/block"));
    let own = match block_device_number(&real) {
        None => None,
        Some((major, minor)) => {
            let here = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
            let Ok(here) = fs::canonicalize(here) else { return Ok(()) };
            // The directory of a partition is in the directory of its disk.
            match loops.iter().find(|other| here.starts_with(&other.sysfs)) {
                None => return Ok(()),
                Some(own) => Some(own),
            }
        }
    };
    let file = own.map_or(&real, |own| &own.file);
    let is_other =
        |other: &&Loop| other.file == *file && own.is_none_or(|own| own.is_beside(other));
    if let Some(other) = loops.iter().find(is_other) {
        let loop_device = other.device();
        return Err(MkfsError::BehindLoop { device: device(), loop_device });
    }
    match mount_point(&read("/proc/self/mountinfo"), file, None) {
        Some(at) if own.is_some() => {
            Err(MkfsError::FileMounted { device: device(), file: file.clone(), at })
        }
        _ => Ok(()),
    }
}

fn read(path: &str) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

fn block_device_number(real: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(real).ok()?;
    metadata.file_type().is_block_device().then(|| device_number(metadata.rdev()))
}

/// A loop device and the file below it.
#[derive(Debug, PartialEq, Eq)]
struct Loop {
    /// Directory in sysfs.
    sysfs: PathBuf,
    file: PathBuf,
    /// Bytes of the file that the device maps.
    bytes: Range<u64>,
}

impl Loop {
    fn all(sys_block: &Path) -> Vec<Self> {
        let entries = fs::read_dir(sys_block).into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::read(&entry.path())).collect()
    }

    fn read(entry: &Path) -> Option<Self> {
        let of = |name: &str| fs::read(entry.join("loop").join(name)).ok();
        let number = |name: &str| String::from_utf8(of(name)?).ok()?.trim().parse::<u64>().ok();
        let file = OsString::from_vec(of("backing_file")?.trim_ascii_end().to_vec());
        let start = number("offset").unwrap_or(0);
        let len = number("sizelimit").filter(|len| *len > 0);
        let end = len.and_then(|len| start.checked_add(len)).unwrap_or(u64::MAX);
        Some(Self { sysfs: entry.canonicalize().ok()?, file: file.into(), bytes: start..end })
    }

    fn device(&self) -> PathBuf {
        Path::new("/dev").join(self.sysfs.file_name().unwrap_or_default())
    }

    /// Returns whether `other` is another loop device over some of the same bytes.
    fn is_beside(&self, other: &Self) -> bool {
        let overlaps = self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end;
        self.sysfs != other.sysfs && overlaps
    }
}

/// Returns major and minor number of `rdev`, as glibc packs them.
pub(crate) fn device_number(rdev: u64) -> (u64, u64) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & 0xffff_f000);
    let minor = (rdev & 0xff) | (rdev >> 12 & 0xffff_ff00);
    (major, minor)
}

/// Returns the mount point of `device` among the lines of mountinfo, by its number or by its path as the source.
fn mount_point(mountinfo: &[u8], device: &Path, number: Option<(u64, u64)>) -> Option<PathBuf> {
    let is_it = |mount: &MountRecord| {
        let DeviceNumber { major, minor } = mount.number;
        let source = &mount.source;
        let same_source = source.is_absolute()
            && (source == device || fs::canonicalize(source).is_ok_and(|real| real == device));
        number == Some((major.into(), minor.into())) || same_source
    };
    MountRecord::parse_all(mountinfo).into_iter().find(is_it).map(|mount| mount.dir)
}

fn is_swap(swaps: &[u8], device: &Path) -> bool {
    let lines = swaps.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| line.split(|byte| *byte == b' ' || *byte == b'\t').next()).any(|name| {
        let name = unescape(name);
        name == device || fs::canonicalize(&name).is_ok_and(|real| real == device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/none rw\n\
40 22 7:3 / /mnt/my\\040disk rw - xfs /dev/loop3 rw\n\
41 22 0:50 / /mnt/card rw - fuse.sfs /images/card.img rw\n";

    #[test]
    fn a_mount_is_found_by_number_and_by_source() {
        let none = Path::new("/nowhere");
        let found = |path, number| mount_point(MOUNTINFO, Path::new(path), number);
        assert_eq!(found("/nowhere", Some((7, 3))), Some(PathBuf::from("/mnt/my disk")));
        assert_eq!(found("/images/card.img", None), Some(PathBuf::from("/mnt/card")));
        assert_eq!(mount_point(MOUNTINFO, none, Some((8, 3))), None);
        assert_eq!(mount_point(b"", none, Some((8, 3))), None);
    }

    #[test]
    fn swap_files_are_found() {
        let swaps = b"Filename\tType\tSize\n/var/swap\\040file   file  1024 0 -2\n";
        assert!(is_swap(swaps, Path::new("/var/swap file")));
        assert!(!is_swap(swaps, Path::new("Filename")));
    }

    #[test]
    fn loop_devices_are_found() {
        let sys = tempfile::tempdir().expect("a directory");
        for (name, offset, limit) in [("loop0", 0, 0), ("loop1", 0, 4096), ("loop2", 4096, 0)] {
            let attributes = sys.path().join(name).join("loop");
            fs::create_dir_all(&attributes).expect("a directory");
            let write =
                |file, text: String| fs::write(attributes.join(file), text).expect("a file");
            write("backing_file", "/images/a.img\n".to_owned());
            write("offset", format!("{offset}\n"));
            write("sizelimit", format!("{limit}\n"));
        }
        let mut loops = Loop::all(sys.path());
        loops.sort_by_key(Loop::device);
        let [whole, first, second] = loops.try_into().expect("three loop devices");
        assert_eq!(whole.file, Path::new("/images/a.img"));
        assert_eq!(second.device(), Path::new("/dev/loop2"));
        assert!(whole.is_beside(&first) && second.is_beside(&whole));
        assert!(!first.is_beside(&second) && !whole.is_beside(&whole));
    }

    #[test]
    fn device_numbers_are_those_of_glibc() {
        assert_eq!(device_number(0x0802), (8, 2));
        assert_eq!(device_number(0x0011_3505), (0x135, 0x105));
    }
}
