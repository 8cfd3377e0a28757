//! Files that may be mapped for writing.
//!
//! Owns: how often each is open for reading and writing.
//! Promises: the kernel has nothing of a file that is not here but what it has said: it writes back
//! what was mapped before it releases the file.
//! Never: tells one opening from another.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Mappable(Mutex<HashMap<u64, u64>>);

impl Mappable {
    /// File `ino` was opened with `open_flags`.
    pub(super) fn opened(&self, ino: u64, open_flags: u32) {
        if may_map(open_flags) {
            *self.0.lock().entry(ino).or_default() += 1;
        }
    }

    /// What was opened with `open_flags` is not open any more.
    pub(super) fn released(&self, ino: u64, open_flags: u32) {
        if may_map(open_flags)
            && let Entry::Occupied(mut count) = self.0.lock().entry(ino)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(super) fn contains(&self, ino: u64) -> bool {
        self.0.lock().contains_key(&ino)
    }
}

/// To be mapped for writing a file has to be open for reading, too.
fn may_map(open_flags: u32) -> bool {
    open_flags.cast_signed() & libc::O_ACCMODE == libc::O_RDWR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_mappable_until_its_last_writer_has_gone() {
        let [read, write, both] =
            [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR | libc::O_APPEND].map(i32::cast_unsigned);
        let files = Mappable::default();
        for flags in [read, write, both, both] {
            files.opened(7, flags);
        }
        for flags in [both, read, write] {
            files.released(7, flags);
            assert!(files.contains(7) && !files.contains(8));
        }
        files.released(7, both);
        assert!(!files.contains(7));
        files.released(7, both);
    }
}
