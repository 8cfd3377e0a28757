//! Files of one backing device under /sys/class/bdi.
//!
//! The open directory keeps its identity: after the device is gone, reads and writes fail, and never reach another
//! device that got the same number.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};

use super::dirty_bound;

/// Maximum number of bytes that are read from a file.
const LEN_MAX: u64 = 32;

/// Open directory of a backing device.
#[derive(Debug)]
pub(super) struct BdiFiles(File);

impl BdiFiles {
    /// Opens the directory `dir`.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        File::open(dir).map(Self)
    }

    fn file(&self, name: &str, access: OFlags) -> io::Result<File> {
        Ok(openat(&self.0, name, access | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        self.file(name, OFlags::WRONLY)?.write_all(value.as_bytes())
    }

    /// Writes a setting that the kernel may refuse.
    pub(super) fn try_write(&self, name: &str, value: &str) {
        if let Err(error) = self.write(name, value) {
            tracing::debug!("{name} of the backing device: {error}");
        }
    }

    /// Sets the bound to `bytes`, or to half, a quarter, ... of `bytes` until the kernel accepts
    /// it. The kernel accepts at most half of the memory that may be dirty. With `needs_min_bound`,
    /// the smallest bound is set as well.
    pub(super) fn set_dirty_max(&self, bytes: u64, needs_min_bound: bool) -> io::Result<()> {
        let mut wanted = bytes;
        loop {
            match self.write("max_bytes", &wanted.to_string()) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL)
                        && wanted / 2 >= dirty_bound::BOUND_MIN =>
                {
                    wanted /= 2;
                }
                outcome => break outcome?,
            }
        }
        if needs_min_bound {
            self.try_write("min_bytes", &dirty_bound::BOUND_MIN.to_string());
        }
        Ok(())
    }

    /// Reads the bound; `None` if it cannot be read.
    pub(super) fn dirty_max(&self) -> Option<u64> {
        let mut digits = String::new();
        let file = self.file("max_bytes", OFlags::RDONLY).ok()?;
        file.take(LEN_MAX).read_to_string(&mut digits).ok()?;
        digits.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn another_device_with_the_same_number_is_not_touched() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("0:99");
        let make = || {
            fs::create_dir(&dir).expect("a directory");
            fs::write(dir.join("max_bytes"), "123456789\n").expect("a file");
            fs::write(dir.join("min_bytes"), "0").expect("a file");
        };
        make();
        let files = BdiFiles::open(&dir).expect("the directory is there");
        assert_eq!(files.dirty_max(), Some(123_456_789));
        files.set_dirty_max(987_654_321, false).expect("the file is there");
        assert_eq!(files.dirty_max(), Some(987_654_321));
        let least = || fs::read_to_string(dir.join("min_bytes")).expect("the file is there");
        assert_eq!(least(), "0");
        files.set_dirty_max(987_654_321, true).expect("the file is there");
        assert_eq!(least(), dirty_bound::BOUND_MIN.to_string());
        fs::remove_dir_all(&dir).expect("removing");
        make();
        files.set_dirty_max(5, true).expect_err("the file is gone");
        assert_eq!(files.dirty_max(), None);
        assert_eq!(
            fs::read_to_string(dir.join("max_bytes")).expect("the file is there"),
            "123456789\n"
        );
    }
}
