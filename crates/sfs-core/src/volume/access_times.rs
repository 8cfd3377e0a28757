//! Times of access: which reading moves them, and when they are written.
//!
//! A time that has moved waits in memory ([`AccessTimes`](crate::metadata::AccessTimes)), so that reading writes nothing. It
//! goes to the log with the next change of its inode, a sync of the file or of everything, a checkpoint that the
//! background writes, the unmount, or a day later.

use super::Volume;
use crate::Result;
use crate::format::{FileKind, Inode, InodeFlags, Timestamp};
use crate::metadata::Txn;
use crate::mutant::{Mutant, mutated};
use crate::request::AccessTimePolicy;

/// Seconds after which a time that waits is written, and after which reading moves a time again.
const DAY_SECS: i64 = 24 * 3600;

impl Volume {
    /// Notes that file `ino` was read at `now`. Returns whether its time of access has moved. Other files than regular ones
    /// have no times of access, nor have volumes that cannot be written.
    pub fn note_access(&self, ino: u64, now: Timestamp) -> Result<bool> {
        let Some(policy) = self.access_policy_in_use() else { return Ok(false) };
        Ok(self.set_access_time((ino, &self.attributes(ino)?), policy, now))
    }

    /// Notes an access as [`Volume::note_access`] does, to a file whose attributes are known.
    pub(super) fn note_access_to(&self, of: (u64, &Inode), now: Timestamp) {
        if let Some(policy) = self.access_policy_in_use() {
            self.set_access_time(of, policy, now);
        }
    }

    /// Returns `None` if no access is noted.
    fn access_policy_in_use(&self) -> Option<AccessTimePolicy> {
        let policy = *self.access_policy.lock();
        (policy != AccessTimePolicy::Never && self.health.check_writable().is_ok())
            .then_some(policy)
    }

    /// Returns whether the time of access moves.
    fn set_access_time(
        &self,
        (ino, inode): (u64, &Inode),
        policy: AccessTimePolicy,
        now: Timestamp,
    ) -> bool {
        let moves = inode.kind() == FileKind::Regular
            && !inode.flags.contains(InodeFlags::NO_ATIME)
            && (policy == AccessTimePolicy::Strict || is_relatively_old(inode, now));
        moves && inode.atime != now && self.metadata.access_times().set(ino, now)
    }

    /// Changes the policy of [`Volume::note_access`].
    pub fn set_access_times(&self, policy: AccessTimePolicy) {
        *self.access_policy.lock() = policy;
    }

    /// Puts the times of access that wait into the tree, so that the next commit writes them.
    pub(super) fn write_access_times(&self) -> Result<()> {
        for ino in self.metadata.access_times().files() {
            self.write_access_time(ino)?;
        }
        Ok(())
    }

    /// Puts the time of access of `ino` into the tree, if it waits. A time that cannot be written, as that of a deleted or
    /// damaged file, is forgotten: it must not keep data from being written. Waits on while the volume is frozen.
    ///
    /// # Errors
    ///
    /// The errors after which nothing can be written.
    pub(super) fn write_access_time(&self, ino: u64) -> Result<()> {
        let times = self.metadata.access_times();
        if times.get(ino).is_none() || self.log.is_frozen() {
            return Ok(());
        }
        let written = self.change(|txn: &mut Txn<'_>| {
            let inode = txn.inode(ino)?;
            txn.change_only_times();
            txn.put_inode(ino, &inode);
            Ok(())
        });
        if written.is_err() && !self.health.has_stopped() {
            times.forget(ino);
            return Ok(());
        }
        written
    }

    /// Puts the times that wait into the tree if the background should write them now.
    pub(super) fn write_access_times_if_due(&self, now: Timestamp) -> Result<()> {
        let times = self.metadata.access_times();
        let is_old = |since: i64| !(0..DAY_SECS).contains(&now.secs.saturating_sub(since));
        if times.are_many() || times.since().is_some_and(is_old) {
            self.write_access_times()?;
        }
        Ok(())
    }

    /// Puts the times that wait into the tree before the last checkpoint.
    pub(super) fn write_access_times_at_the_end(&self) -> Result<()> {
        if mutated(Mutant::AccessTimesUnwritten) { Ok(()) } else { self.write_access_times() }
    }
}

/// Returns whether the file was changed since it was last read, or was read a day ago or, by another clock, in the
/// future.
fn is_relatively_old(inode: &Inode, now: Timestamp) -> bool {
    let age_secs = now.secs.saturating_sub(inode.atime.secs);
    inode.atime <= inode.mtime || inode.atime <= inode.ctime || age_secs >= DAY_SECS
}
