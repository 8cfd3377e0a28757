//! Whether the system uses a device or image file in a way that an exclusive open does not notice.
//!
//! Owns: the reading of `/proc/self/mountinfo`, `/proc/swaps` and `/sys/block/loop*`.
//! Promises: what cannot be read counts as not in use; the exclusive open is the other guard.
//! Never: opens the device.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::MkfsError;

/// Refuses `path` if it is mounted, swapped to or behind a loop device.
///
/// # Errors
///
/// [`MkfsError::Mounted`], [`MkfsError::Swap`] and [`MkfsError::BehindLoop`].
pub fn refuse_in_use(path: &Path) -> Result<(), MkfsError> {
    let Ok(real) = fs::canonicalize(path) else { return Ok(()) };
    let number = fs::metadata(&real)
        .ok()
        .filter(|metadata| metadata.file_type().is_block_device())
        .map(|metadata| device_number(metadata.rdev()));
    let read = |path| fs::read(path).unwrap_or_default();
    let device = || path.to_owned();
    if let Some(at) = mount_point(&read("/proc/self/mountinfo"), &real, number) {
        return Err(MkfsError::Mounted { device: device(), at });
    }
    if is_swap(&read("/proc/swaps"), &real) {
        return Err(MkfsError::Swap(device()));
    }
    match loop_device_of(Path::new("/sys/block"), &real) {
        Some(loop_device) => Err(MkfsError::BehindLoop { device: device(), loop_device }),
        None => Ok(()),
    }
}

/// Major and minor number, as glibc packs them.
pub(crate) fn device_number(rdev: u64) -> (u64, u64) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & 0xffff_f000);
    let minor = (rdev & 0xff) | (rdev >> 12 & 0xffff_ff00);
    (major, minor)
}

/// Where `device` is mounted, by the lines of mountinfo (proc_pid_mountinfo(5)).
fn mount_point(mountinfo: &[u8], device: &Path, number: Option<(u64, u64)>) -> Option<PathBuf> {
    mountinfo.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let at = unescape(fields.get(4)?);
        let same_number = number.is_some_and(|(major, minor)| {
            fields.get(2).is_some_and(|field| *field == format!("{major}:{minor}").as_bytes())
        });
        let separator = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
        let source = unescape(fields.get(separator + 2)?);
        let same_source = source.is_absolute()
            && (source == device || fs::canonicalize(&source).is_ok_and(|real| real == device));
        (same_number || same_source).then_some(at)
    })
}

fn is_swap(swaps: &[u8], device: &Path) -> bool {
    let lines = swaps.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| line.split(|byte| *byte == b' ' || *byte == b'\t').next()).any(|name| {
        let name = unescape(name);
        name == device || fs::canonicalize(&name).is_ok_and(|real| real == device)
    })
}

fn loop_device_of(sys_block: &Path, file: &Path) -> Option<PathBuf> {
    fs::read_dir(sys_block).ok()?.flatten().find_map(|entry| {
        let backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
        let backing = PathBuf::from(OsString::from_vec(backing.trim_ascii_end().to_vec()));
        (backing == file).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// The path in which the kernel wrote space, tab, newline and backslash as `\ooo`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if *byte == b'\\' => {
                bytes.push(value);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
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
        let attributes = sys.path().join("loop7/loop");
        fs::create_dir_all(&attributes).expect("a directory");
        fs::write(attributes.join("backing_file"), "/images/a.img\n").expect("a file");
        let found = loop_device_of(sys.path(), Path::new("/images/a.img"));
        assert_eq!(found, Some(PathBuf::from("/dev/loop7")));
        assert_eq!(loop_device_of(sys.path(), Path::new("/images/b.img")), None);
    }

    #[test]
    fn device_numbers_are_those_of_glibc() {
        assert_eq!(device_number(0x0802), (8, 2));
        assert_eq!(device_number(0x0011_3505), (0x135, 0x105));
    }
}
