//! Flags of files that users set, as chattr(1) does: which changes they forbid, and changing them.
//!
//! The kernel does not know the flags of a FUSE filesystem, so each operation that changes a name, an attribute or
//! a length asks here, in its transaction. A refused change answers [`Error::NotPermitted`], also to an administrator,
//! as the kernel answers for its own filesystems. Data that arrives through a descriptor that was open before is not
//! refused: the kernel may hold the data in its cache already.

use super::Volume;
use crate::format::{Features, Inode, InodeFlags};
use crate::metadata::Txn;
use crate::mutant::{Mutant, mutated};
use crate::request::{AttributeChanges, Caller, OpenMode};
use crate::{Error, Result};

const IMMUTABLE: InodeFlags = InodeFlags::IMMUTABLE;
const APPEND_ONLY: InodeFlags = InodeFlags::APPEND_ONLY;

impl Volume {
    /// Sets the flags of users of file `ino` to `flags`, and clears the others of them. The first flag of a volume
    /// adds the feature to the superblock, durably, so that no older program writes to the volume.
    ///
    /// # Errors
    ///
    /// `Invalid` if `flags` has other flags; errors of a change of metadata and of the superblock.
    pub fn set_flags(&self, ino: u64, flags: InodeFlags, caller: &Caller) -> Result<()> {
        if flags.intersection(InodeFlags::OF_USERS) != flags {
            return Err(Error::Invalid);
        }
        let handle = self.inodes.get(ino);
        let needs_feature = flags != InodeFlags::NONE;
        if needs_feature && !mutated(Mutant::FlagBeforeFeature) {
            self.superblocks.require_to_write(Features::INODE_FLAGS)?;
        }
        // The length of a file changes before its other attributes: no flag may come between.
        let io = handle.io_write();
        self.change(|txn: &mut Txn<'_>| {
            let mut inode = txn.inode(ino)?;
            inode.flags.set(InodeFlags::OF_USERS, false);
            inode.flags |= flags;
            inode.ctime = caller.now;
            txn.put_inode(ino, &inode);
            Ok(())
        })?;
        drop(io);
        if needs_feature && mutated(Mutant::FlagBeforeFeature) {
            self.sync_queued(None)?;
            self.superblocks.require_to_write(Features::INODE_FLAGS)?;
        }
        Ok(())
    }

    /// Checks that the flags of file `ino` allow to open it for writing.
    ///
    /// # Errors
    ///
    /// `NotPermitted` if they do not.
    pub fn check_open(&self, ino: u64, mode: OpenMode) -> Result<()> {
        check_content(&self.attributes(ino)?, mode)
    }
}

/// Checks that the content of `inode` can be changed as with a handle that was opened in `mode`.
pub(super) fn check_content(inode: &Inode, mode: OpenMode) -> Result<()> {
    let flags = inode.flags;
    refuse(flags.contains(IMMUTABLE) || flags.contains(APPEND_ONLY) && mode == OpenMode::Write)
}

/// Returns [`Error::NotPermitted`] if `is_forbidden`.
fn refuse(is_forbidden: bool) -> Result<()> {
    if is_forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Checks that an entry can be added to `directory`.
pub(super) fn check_addition(directory: &Inode) -> Result<()> {
    refuse(directory.flags.contains(IMMUTABLE))
}

/// Checks that an entry can be removed from `directory`, or lead to another file.
pub(super) fn check_removal(directory: &Inode) -> Result<()> {
    refuse(directory.flags.intersects(IMMUTABLE | APPEND_ONLY))
}

/// Checks that a name or an extended attribute of `inode` can be added, changed or removed.
pub(super) fn check_file(inode: &Inode) -> Result<()> {
    refuse(inode.flags.intersects(IMMUTABLE | APPEND_ONLY))
}

/// Checks that `changes` can be made to `inode`. Setting times to the present, as touch(1) does, is allowed for an
/// append-only file: an append does the same. The kernel states such a time as the time of change, too.
pub(super) fn check_attributes(
    inode: &Inode,
    changes: &AttributeChanges,
    caller: &Caller,
) -> Result<()> {
    let is_append_only = inode.flags.contains(APPEND_ONLY);
    let is_immutable = inode.flags.contains(IMMUTABLE) && !changes.through_open;
    let is_now =
        |time: Option<_>| time.is_none_or(|_| time == Some(caller.now) || time == changes.ctime);
    let sets_times = !is_now(changes.atime) || !is_now(changes.mtime);
    let touches = changes.atime.is_some() || changes.mtime.is_some();
    let is_attribute = changes.mode.is_some() || changes.give_owner();
    refuse(
        is_append_only && (changes.size.is_some() || is_attribute)
            || is_append_only && sets_times && !changes.through_open
            || is_immutable && (changes.size.is_some() || is_attribute || touches),
    )
}

/// Gives `inode`, which is new in `directory`, the flags that it inherits, as with ext4 and XFS.
pub(super) fn inherit(inode: &mut Inode, directory: &Inode) {
    let inherited = InodeFlags::NO_DUMP | InodeFlags::NO_ATIME;
    inode.flags |= directory.flags.intersection(inherited);
}
