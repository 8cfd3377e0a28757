//! Flags of files in the reference: setting them, and the changes that they forbid.
//!
//! The rules are those of the kernel for its own filesystems, stated without a look at the code of the volume.

use sfs_core::Error;
use sfs_core::format::InodeFlags;
use sfs_core::request::{AttributeChanges, Caller};

use super::reference::{Reference, ReferenceNode};

type Result<T> = std::result::Result<T, Error>;

impl ReferenceNode {
    fn is_immutable(&self) -> bool {
        self.flags.contains(InodeFlags::IMMUTABLE)
    }

    fn is_append_only(&self) -> bool {
        self.flags.contains(InodeFlags::APPEND_ONLY)
    }

    /// Returns whether names and extended attributes of the file are fixed, and for a directory its entries.
    pub fn is_fixed(&self) -> bool {
        self.is_immutable() || self.is_append_only()
    }

    /// Checks that the directory may get another entry.
    pub fn may_add(&self) -> Result<()> {
        if self.is_immutable() { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Checks that the directory may lose an entry, or that a name of the file may change.
    pub fn may_remove(&self) -> Result<()> {
        if self.is_fixed() { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Copies the flags that a new file in `directory` inherits.
    pub fn inherit(&mut self, directory: &Self) {
        for flag in [InodeFlags::NO_DUMP, InodeFlags::NO_ATIME] {
            if directory.flags.contains(flag) {
                self.flags |= flag;
            }
        }
    }
}

impl Reference {
    /// Sets the flags of `ino`.
    ///
    /// # Errors
    ///
    /// The error that the volume has to return.
    pub fn set_flags(&mut self, ino: u64, flags: InodeFlags, caller: &Caller) -> Result<()> {
        self.node(ino)?;
        let node = self.edit(ino);
        node.flags = flags;
        node.ctime = caller.now;
        Ok(())
    }
}

/// Checks that `changes` may be made to `node`.
pub(super) fn check_attributes(
    node: &ReferenceNode,
    changes: &AttributeChanges,
    caller: &Caller,
) -> Result<()> {
    let times: Vec<_> = [changes.atime, changes.mtime].into_iter().flatten().collect();
    let is_touch = times.iter().all(|time| *time == caller.now || Some(*time) == changes.ctime);
    let is_attribute = changes.mode.is_some() || changes.give_owner();
    let is_forbidden = if changes.through_open {
        node.is_append_only() && (changes.size.is_some() || is_attribute)
    } else {
        let is_any = is_attribute || changes.size.is_some();
        node.is_immutable() && (is_any || !times.is_empty())
            || node.is_append_only() && (is_any || !is_touch)
    };
    if is_forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}
