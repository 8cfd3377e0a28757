//! The mounts of this process, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
//!
//! The programs under test have a parser of their own; a test that used it would test nothing. Mount
//! points with a space, tab, newline or backslash, which the kernel escapes, are not found.

use std::fs;
use std::path::Path;

/// Returns the options of the mount on `dir`: those of the mount itself, and those of its filesystem.
/// Returns `None` if no mount is there. The mounted filesystem is not touched, so a dead daemon does not matter.
///
/// # Panics
///
/// If the table cannot be read, or `dir` is not UTF-8.
pub fn options_of(dir: &Path) -> Option<(String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table of mounts");
    options_in(&table, dir.to_str().expect("UTF-8"))
}

/// Returns whether a filesystem is mounted on `dir`, without touching it.
///
/// # Panics
///
/// As [`options_of`].
pub fn is_mounted(dir: &Path) -> bool {
    options_of(dir).is_some()
}

/// Returns the options of the last mount on `dir` in `table`, which hides the others there.
fn options_in(table: &str, dir: &str) -> Option<(String, String)> {
    let mounts = table.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let fields = mounts.into_iter().find(|fields| fields.get(4) == Some(&dir))?;
    Some(((*fields.get(5)?).to_owned(), (*fields.last()?).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_on_a_directory_counts() {
        let table = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                     90 22 0:40 / /mnt/a rw,nosuid - fuse.sfs image rw,user_id=0\n\
                     91 90 0:41 / /mnt/a ro,noatime shared:2 master:1 - fuse.sfs other ro,user_id=1\n";
        let options = Some(("ro,noatime".into(), "ro,user_id=1".into()));
        assert_eq!(options_in(table, "/mnt/a"), options);
        assert_eq!(options_in(table, "/mnt"), None);
        assert!(is_mounted(Path::new("/proc")));
    }
}
