//! What cannot be written because its place in the tree is damaged: given up, counted and told.
//!
//! Owns: what a batch does about nodes that cannot be read, and the count of losses, which goes up only.
//! Promises: damage to one file keeps no other from becoming durable; who waits while something is
//! given up is told, and if nobody does the next who asks.
//! Never: gives up more than what waits of the file that the damage belongs to.

use super::Volume;
use super::commit::{Obstacle, Selection};
use crate::format::{Corruption, CorruptionKind, DecodeError, Structure};
use crate::log::Log;
use crate::meta::MetadataError;
use crate::tree::NodeNotCached;
use crate::{Error, Result};

/// A node that the device does not read may be read the next time. So often it is tried.
pub(super) const READS_MAX: usize = 3;

/// Losses, as one kind of listener hears of them.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: u64,
    damage: Option<DecodeError>,
    told: u64,
}

/// The losses of all files, for each who listens.
#[derive(Debug, Default)]
pub(crate) struct AllLosses {
    /// Who syncs everything.
    pub(crate) syncs: Losses,
    /// Background work, for the log.
    pub(crate) work: Losses,
    /// The unmount.
    pub(crate) close: Losses,
}

impl Losses {
    /// Losses so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether somebody has been told of all.
    pub(crate) fn is_told(&self) -> bool {
        self.told == self.count
    }

    /// Something is lost because of `damage`.
    pub(crate) fn note(&mut self, damage: DecodeError) {
        self.count += 1;
        self.damage = Some(damage);
    }

    /// Losses that somebody has been told of.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// The error, if something was lost that nobody has been told of.
    pub(crate) fn tell_news(&mut self) -> Result<()> {
        self.tell(u64::MAX)
    }

    /// The error, if something was lost after the first `before` losses, or that nobody has been told of.
    pub(crate) fn tell(&mut self, before: u64) -> Result<()> {
        let is_new = self.count > before.min(self.told);
        self.told = self.count;
        match self.damage {
            Some(damage) if is_new => Err(damage.into()),
            _ => Ok(()),
        }
    }
}

impl AllLosses {
    /// As [`Losses::note`], for all.
    pub(crate) fn note(&mut self, damage: DecodeError) {
        for losses in [&mut self.syncs, &mut self.work, &mut self.close] {
            losses.note(damage);
        }
    }
}

impl Volume {
    /// Losses of file `ino` that somebody has been told of: of those that come after, who opens the file now is
    /// to be told, see [`Volume::sync_file_after`].
    pub fn losses_told(&self, ino: u64) -> u64 {
        self.handles.find(ino).map_or(0, |handle| handle.data().lost.told())
    }

    /// Takes an obstacle to a batch out of the way: brings the node that is needed into memory. A file
    /// whose place in the tree is damaged must not keep others from becoming durable: what waits of it is
    /// given up, as the kernel does with what it cannot write back, and who syncs it is told.
    pub(super) fn overcome(
        &self,
        obstacle: Obstacle,
        failed: &mut Option<NodeNotCached>,
    ) -> Result<()> {
        let damage = |error| match error {
            Error::Corrupt(damage) => Ok(damage.into()),
            Error::Incompatible(what) => Ok(what.into()),
            error => Err(error),
        };
        let outcome = match obstacle.fault {
            MetadataError::Error(error) => damage(self.counted(error)),
            MetadataError::NodeNotCached(missing) => match self.load(&missing, failed) {
                Ok(()) => return Ok(()),
                Err(Error::Device(_)) if self.is_unreadable(missing.pointer.address) => {
                    let at = missing.pointer.address;
                    let unreadable = CorruptionKind::Unreadable;
                    let damage = Corruption::in_block(Structure::Node, at, unreadable);
                    self.note_corruption(&damage);
                    Ok(damage.into())
                }
                Err(error) => damage(error),
            },
        };
        match (outcome, obstacle.ino) {
            (Ok(damage), Some(ino)) => {
                *failed = None;
                self.give_up_file(ino, damage);
                Ok(())
            }
            (Ok(damage), None) => Err(damage.into()),
            (Err(error), _) => Err(error),
        }
    }

    /// Commits everything, though nodes that it needs cannot be read: tries each of them often enough.
    pub(super) fn commit_all_there_is(&self, log: &mut Log) -> Result<()> {
        // Each of these files may need two: a leaf and what leads to it.
        let nodes = 1 + 2 * self.dirty_files.lock().len();
        self.commit_again_if_unread(log, &Selection::All, READS_MAX * nodes)
    }

    /// Commits what `selection` says, in up to so many attempts where the device does not read a node.
    pub(super) fn commit_again_if_unread(
        &self,
        log: &mut Log,
        selection: &Selection,
        attempts: usize,
    ) -> Result<()> {
        for _ in 1..attempts {
            let outcome = self.commit(log, selection);
            if !matches!(outcome, Err(Error::Device(_))) || self.has_failed() {
                return outcome;
            }
        }
        self.commit(log, selection)
    }

    /// The device has not read the node at `address`: whether it has had chances enough.
    fn is_unreadable(&self, address: u64) -> bool {
        let mut unread = self.unread.lock();
        let times = unread.entry(address).or_insert(0);
        *times += 1;
        *times >= READS_MAX
    }

    /// What waits of file `ino` cannot be written.
    fn give_up_file(&self, ino: u64, damage: DecodeError) {
        let handle = self.handles.get(ino);
        self.drop_dirty(&handle);
        handle.data().lost.note(damage);
        self.lost.lock().note(damage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_waits_is_told_and_later_nobody() {
        let mut losses = Losses::default();
        losses.tell(0).expect("nothing is lost");
        let before = losses.count();
        losses.note(Corruption::in_block(Structure::Node, 7, CorruptionKind::Checksum).into());
        losses.tell(before).expect_err("the first who waits");
        losses.tell(before).expect_err("the second");
        losses.tell(losses.count()).expect("who comes later");
        losses.note(Corruption::in_block(Structure::Node, 7, CorruptionKind::Checksum).into());
        losses.tell(losses.count()).expect_err("nobody has been told");
    }
}
