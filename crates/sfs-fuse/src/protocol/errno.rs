//! Error numbers of errno(3), within the range that the kernel accepts in a reply.

use std::fmt;
use std::io;

/// Largest number that the kernel accepts.
const ERRNO_MAX: i32 = 511;

/// Number of errno(3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// ENOSYS: the operation is not implemented. For many operations the kernel sends no further
    /// request until the unmount, so this reply must not depend on one file or one moment.
    pub const NOT_IMPLEMENTED: Self = Self(libc::ENOSYS);

    /// Makes an error number of `code`, one of `libc::E...`; any other value becomes EIO.
    pub const fn new(code: i32) -> Self {
        if code > 0 && code <= ERRNO_MAX { Self(code) } else { Self(libc::EIO) }
    }

    /// Returns the number, which is greater than 0.
    pub const fn code(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({})", self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_kernels_range_become_eio() {
        assert_eq!(Errno::new(libc::ENOENT).code(), libc::ENOENT);
        for wrong in [0, -libc::ENOENT, 512, i32::MIN, i32::MAX] {
            assert_eq!(Errno::new(wrong).code(), libc::EIO, "{wrong}");
        }
    }
}
