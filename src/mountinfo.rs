//! What is mounted, from /proc/self/mountinfo.
//!
//! Owns: parsing its lines, and telling which are SFS.
//! Promises: names come back as they are, whatever bytes are in them.
//! Never: touches a mount, whose daemon may not answer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sfs_mkfs::unescape;

/// The type of a mounted image file, and of all that users mount.
pub(crate) const TYPE: &str = "fuse.sfs";

/// The type of a block device that root has mounted.
pub(crate) const TYPE_OF_BLOCK_DEVICE: &str = "fuseblk.sfs";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    /// Where.
    pub(crate) dir: PathBuf,
    /// Type, with the part after the dot.
    pub(crate) kind: String,
    /// What: for us the device's path.
    pub(crate) source: PathBuf,
    /// The kernel's number for the filesystem. No two that live have the same, and all places
    /// where one is mounted do.
    pub(crate) number: DeviceNumber,
    /// Options of this place, separated by commas.
    pub(crate) options: String,
    /// Options of the filesystem, wherever it is mounted.
    pub(crate) super_options: String,
}

/// What `stat` shows as the device of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl MountLine {
    /// The user whose process serves a mount of FUSE.
    pub(crate) fn owner(&self) -> Option<u32> {
        let mut options = self.super_options.split(',');
        options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }

    /// Whether it is SFS. Its device may be gone.
    pub(crate) fn is_volume(&self) -> bool {
        [TYPE, TYPE_OF_BLOCK_DEVICE].contains(&self.kind.as_str())
    }

    /// Nothing can be written, wherever it is mounted.
    pub(crate) fn is_read_only(&self) -> bool {
        self.super_options.split(',').any(|option| option == "ro")
    }
}

/// What says which mounts there are; open, so that it can be asked when nothing more can be opened.
#[derive(Debug)]
pub(crate) struct Table(File);

impl Table {
    pub(crate) fn open() -> io::Result<Self> {
        File::open("/proc/self/mountinfo").map(Self)
    }

    /// All mounts that this process sees, in the order in which they were made.
    fn mounts(&self) -> io::Result<Vec<MountLine>> {
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match self.0.read_at(&mut piece, text.len() as u64) {
                Ok(0) => break,
                Ok(len) => text.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
    }

    /// The mount on top at `dir`.
    pub(crate) fn at(&self, dir: &Path) -> io::Result<Option<MountLine>> {
        Ok(self.mounts()?.into_iter().rev().find(|mount| mount.dir == dir))
    }
}

/// All mounts that this process sees, in the order in which they were made.
pub(crate) fn mounts() -> io::Result<Vec<MountLine>> {
    Table::open()?.mounts()
}

/// The mount on top at `dir`.
pub(crate) fn at(dir: &Path) -> io::Result<Option<MountLine>> {
    Table::open()?.at(dir)
}

/// The filesystem with this number, wherever it is mounted.
pub(crate) fn of_number(number: DeviceNumber) -> io::Result<Option<MountLine>> {
    Ok(mounts()?.into_iter().find(|mount| mount.number == number))
}

fn parse(line: &[u8]) -> Option<MountLine> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let (major, minor) = str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let dir = *fields.get(4)?;
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let (kind, source) = (*fields.get(dash + 1)?, *fields.get(dash + 2)?);
    Some(MountLine {
        dir: unescape(dir),
        kind: text(kind),
        source: unescape(source),
        number: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        options: text(fields.get(5)?),
        super_options: text(fields.get(dash + 3)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line =
            b"36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - fuseblk /dev/sd\\134x rw,user_id=1000";
        let mount = parse(line).expect("a line");
        assert_eq!(mount.dir, Path::new("/mnt/a b"));
        assert_eq!(mount.kind, "fuseblk");
        assert_eq!(mount.source, Path::new("/dev/sd\\x"));
        assert_eq!(mount.number, DeviceNumber { major: 98, minor: 0 });
        assert_eq!(mount.options, "rw,noatime");
        assert_eq!(mount.owner(), Some(1000));
        assert!(!mount.is_read_only());
        assert_eq!(parse(b"nonsense"), None);
    }
}
