//! Looks for the device with a cache among the block devices of the machine.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sfs_cache::{CacheHeader, HEADER_BLOCKS, Identity};
use sfs_device::{BLOCK_SIZE, Block};

/// Returns the block device with the cache of the volume `of`.
///
/// # Errors
///
/// A sentence if there is none, or more than one: a copy of a disk has the UUIDs of the original.
pub(super) fn by_uuid(of: &Identity) -> Result<PathBuf, String> {
    let table = fs::read_to_string("/proc/partitions").unwrap_or_default();
    let free = table.lines().filter_map(device).filter(|path| !is_used(Path::new(SYSFS), path));
    let mut found = free.filter(|path| has_cache(path, of));
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path),
        (Some(first), Some(second)) => Err(format!(
            "{} and {} both have its UUID; name one by -o cache_dev=",
            first.display(),
            second.display()
        )),
        (None, _) => {
            Err("no device has its UUID; a cache in an image file is named by -o cache_dev=".into())
        }
    }
}

/// Returns the device of a line of `/proc/partitions`: numbers, blocks, name.
fn device(line: &str) -> Option<PathBuf> {
    let name = line.split_whitespace().nth(3).filter(|name| *name != "name")?;
    // The kernel shows the `/` of a name as `!`.
    Some(PathBuf::from("/dev").join(name.replace('!', "/")))
}

/// Directory of the kernel's block devices.
const SYSFS: &str = "/sys/class/block";

/// Returns whether another device is made of this one, or a read of it would wait until device mapper resumes it.
fn is_used(sysfs: &Path, device: &Path) -> bool {
    let name = device.strip_prefix("/dev").unwrap_or(device).to_string_lossy().replace('/', "!");
    let of = sysfs.join(name);
    let has_holder = fs::read_dir(of.join("holders")).is_ok_and(|mut all| all.next().is_some());
    has_holder || fs::read_to_string(of.join("dm/suspended")).is_ok_and(|text| text.trim() == "1")
}

fn has_cache(path: &PathBuf, of: &Identity) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    HEADER_BLOCKS.into_iter().any(|at| {
        let mut block = Block::ZERO;
        let read = file.read_exact_at(&mut block.0, at * BLOCK_SIZE as u64);
        let header = read.ok().and_then(|()| CacheHeader::decode(&block).ok().flatten());
        header.is_some_and(|header| {
            header.volume_uuid == of.volume_uuid && header.cache_uuid == of.cache_uuid
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_the_fourth_word_of_a_line() {
        let table =
            "major minor  #blocks  name\n\n   8        0  244198584 sda\n 104 0 5 cciss!c0d0\n";
        let found: Vec<PathBuf> = table.lines().filter_map(device).collect();
        assert_eq!(found, ["/dev/sda", "/dev/cciss/c0d0"].map(PathBuf::from));
    }

    #[test]
    fn devices_with_holders_and_suspended_ones_are_left_alone() {
        let sysfs = tempfile::tempdir().expect("room");
        let make = |path: &str, text: &str| {
            let path = sysfs.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("room");
            fs::write(path, text).expect("room");
        };
        make("sda/size", "8");
        make("cciss!c0d0/holders/dm-0", "");
        make("dm-0/dm/suspended", "0\n");
        make("dm-1/dm/suspended", "1\n");
        let is_used = |path| is_used(sysfs.path(), Path::new(path));
        assert_eq!(
            ["/dev/sda", "/dev/cciss/c0d0", "/dev/dm-0", "/dev/dm-1"].map(is_used),
            [false, true, false, true]
        );
    }
}
