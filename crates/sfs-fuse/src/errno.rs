//! What the kernel is told when an operation has failed.
//!
//! Owns: the range of numbers that it takes.
//! Promises: an [`Errno`] is a number that may stand in a reply.
//! Never: says what a number means; errno(3) does.

use std::fmt;
use std::io;

/// The kernel takes no greater number from us.
const ERRNO_MAX: i32 = 511;

/// A number of errno(3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// What was asked for is not known here. The kernel does not ask again for the life of the
    /// mount, for many operations; it is no answer that holds for one file or one moment.
    pub const NOT_IMPLEMENTED: Self = Self(libc::ENOSYS);

    /// The number `code`, one of `libc::E...`; EIO for what is none.
    pub const fn new(code: i32) -> Self {
        if code > 0 && code <= ERRNO_MAX { Self(code) } else { Self(libc::EIO) }
    }

    /// The number, greater than 0.
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
    fn no_number_is_beyond_what_the_kernel_takes() {
        assert_eq!(Errno::new(libc::ENOENT).code(), libc::ENOENT);
        for wrong in [0, -libc::ENOENT, 512, i32::MIN, i32::MAX] {
            assert_eq!(Errno::new(wrong).code(), libc::EIO, "{wrong}");
        }
    }
}
