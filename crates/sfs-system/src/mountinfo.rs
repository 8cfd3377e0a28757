//! The table of mounts, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
//!
//! [`MountRecord::parse_all`] turns the bytes of that file into mounts; [`MountTable`] reads them from the kernel.
//! Paths come back byte for byte. No function here touches a mounted filesystem, whose daemon may not answer.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Filesystem type of a mounted image file, and of every mount that an ordinary user makes.
pub const TYPE: &str = "fuse.sfs";

/// Filesystem type of a block device that root has mounted.
pub const TYPE_OF_BLOCK_DEVICE: &str = "fuseblk.sfs";

/// File of the kernel with one line for each mount.
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One mount: a line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRecord {
    /// Mount point.
    pub dir: PathBuf,
    /// Filesystem type, with the subtype after the dot.
    pub kind: String,
    /// Source of the mount; for SFS, the path of the device or image file.
    pub source: PathBuf,
    /// Device number of the filesystem. The number is unique among the filesystems that are mounted now, and the same at
    /// every mount point of one filesystem.
    pub number: DeviceNumber,
    /// Options of this mount point, separated by commas.
    pub options: String,
    /// Options of the filesystem at every mount point, separated by commas.
    pub super_options: String,
}

/// Device number, as `st_dev` of stat(2) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl MountRecord {
    /// Parses all lines of a mountinfo file; lines that are not understood are skipped.
    pub fn parse_all(text: &[u8]) -> Vec<Self> {
        text.split(|byte| *byte == b'\n').filter_map(Self::parse).collect()
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let (major, minor) = str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
        let dir = *fields.get(4)?;
        let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
        let (kind, source) = (*fields.get(dash + 1)?, *fields.get(dash + 2)?);
        Some(Self {
            dir: unescape(dir),
            kind: text(kind),
            source: unescape(source),
            number: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
            options: text(fields.get(5)?),
            super_options: text(fields.get(dash + 3)?),
        })
    }

    /// Returns the user number of the mount's owner; `None` for a filesystem other than FUSE.
    pub fn owner(&self) -> Option<u32> {
        let mut options = self.super_options.split(',');
        options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }

    /// Returns whether the filesystem is SFS, by its type. The device may be gone.
    pub fn is_sfs(&self) -> bool {
        [TYPE, TYPE_OF_BLOCK_DEVICE].contains(&self.kind.as_str())
    }

    /// Returns whether this mount and `earlier`, which may be unmounted, are mounts of one
    /// filesystem. The kernel reuses the device number of an unmounted filesystem, so the number
    /// alone is not enough.
    pub fn is_of_same_filesystem(&self, earlier: &Self) -> bool {
        (self.number, &self.kind, &self.source) == (earlier.number, &earlier.kind, &earlier.source)
    }

    /// Returns whether the filesystem is read-only at every mount point.
    pub fn is_read_only(&self) -> bool {
        self.super_options.split(',').any(|option| option == "ro")
    }
}

/// Open table of mounts. The table can be read again after the process has run out of descriptors.
#[derive(Debug)]
pub struct MountTable(Mutex<File>);

impl MountTable {
    /// Opens the table of this process's mount namespace.
    ///
    /// # Errors
    ///
    /// Errors of open(2).
    pub fn open() -> io::Result<Self> {
        File::open(MOUNTINFO).map(|file| Self(Mutex::new(file)))
    }

    /// Returns the table in `file`, which another process has opened for this one alone.
    pub fn adopt(file: impl Into<File>) -> Self {
        Self(Mutex::new(file.into()))
    }

    /// Reads all mounts of the table, in the order in which they were made.
    ///
    /// # Errors
    ///
    /// Errors of read(2).
    pub fn mounts(&self) -> io::Result<Vec<MountRecord>> {
        // The kernel keeps one position: pieces of two readers in turn would be cut at the wrong bytes.
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match file.read_at(&mut piece, text.len() as u64) {
                Ok(0) => break,
                Ok(len) => text.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(MountRecord::parse_all(&text))
    }

    /// Finds the topmost mount at `dir`.
    ///
    /// # Errors
    ///
    /// Errors of read(2).
    pub fn at(&self, dir: &Path) -> io::Result<Option<MountRecord>> {
        Ok(self.mounts()?.into_iter().rev().find(|mount| mount.dir == dir))
    }

    /// Finds a mount of the filesystem with device number `number`.
    ///
    /// # Errors
    ///
    /// Errors of read(2).
    pub fn of_number(&self, number: DeviceNumber) -> io::Result<Option<MountRecord>> {
        Ok(self.mounts()?.into_iter().find(|mount| mount.number == number))
    }
}

/// Reads all mounts that this process sees, in the order in which they were made.
///
/// # Errors
///
/// Errors of reading the kernel's table.
pub fn mounts() -> io::Result<Vec<MountRecord>> {
    MountTable::open()?.mounts()
}

/// Finds the topmost mount at `dir`.
///
/// # Errors
///
/// Errors of reading the kernel's table.
pub fn at(dir: &Path) -> io::Result<Option<MountRecord>> {
    MountTable::open()?.at(dir)
}

/// Finds a mount of the filesystem with device number `number`.
///
/// # Errors
///
/// Errors of reading the kernel's table.
pub fn of_number(number: DeviceNumber) -> io::Result<Option<MountRecord>> {
    MountTable::open()?.of_number(number)
}

/// Returns the absolute path of `dir` if one of `mounts` is there. The function does not look below the mount
/// point, so it also works for a mount whose daemon is dead or does not answer.
pub fn mount_point(dir: &Path, mounts: &[MountRecord]) -> Option<PathBuf> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let absolute = parent.unwrap_or(Path::new(".")).canonicalize().ok()?.join(dir.file_name()?);
    mounts.iter().any(|mount| mount.dir == absolute).then_some(absolute)
}

/// Decodes a path of a file under `/proc`, in which the kernel writes space, tab, newline and backslash as `\ooo`.
pub fn unescape(field: &[u8]) -> PathBuf {
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

    #[test]
    fn every_field_of_a_line_is_parsed() {
        let line =
            b"36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - fuseblk /dev/sd\\134x rw,user_id=1000";
        let mount = MountRecord::parse(line).expect("a line");
        assert_eq!(mount.dir, Path::new("/mnt/a b"));
        assert_eq!(mount.kind, "fuseblk");
        assert_eq!(mount.source, Path::new("/dev/sd\\x"));
        assert_eq!(mount.number, DeviceNumber { major: 98, minor: 0 });
        assert_eq!(mount.options, "rw,noatime");
        assert_eq!(mount.owner(), Some(1000));
        assert!(!mount.is_read_only());
        assert_eq!(MountRecord::parse(b"nonsense"), None);
    }

    #[test]
    fn a_filesystem_with_the_number_of_one_that_ended_is_another() {
        let mount = |text: &[u8]| MountRecord::parse_all(text).remove(0);
        let ended = mount(b"41 22 0:50 / /mnt/card rw - fuse.sfs /images/card.img rw\n");
        let bound = mount(b"43 22 0:50 / /srv/card ro - fuse.sfs /images/card.img rw\n");
        let next = mount(b"44 22 0:50 / /mnt/other rw - fuse.sfs /images/other.img rw\n");
        assert!(bound.is_of_same_filesystem(&ended));
        assert!(!next.is_of_same_filesystem(&ended));
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let text = b"nonsense\n\n41 22 0:50 / /mnt/card ro - fuse.sfs /images/card.img ro\n";
        let mounts = MountRecord::parse_all(text);
        assert_eq!(mounts.len(), 1);
        assert!(mounts[0].is_sfs() && mounts[0].is_read_only());
        assert_eq!(mounts[0].owner(), None);
    }

    #[test]
    fn escapes_that_are_not_octal_stay() {
        assert_eq!(unescape(b"a\\040b\\x\\04"), Path::new("a b\\x\\04"));
    }
}
