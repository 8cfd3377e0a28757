//! What is open: the number of each handle, and what it has been told of losses.
//!
//! Owns: which losses of which files a handle has yet to be told of.
//! Promises: every handle that may write, and was open when something of its file was lost, is told once, and as
//! long as there is no room; a file without a loss costs one look at a number.
//! Never: tells what was lost (see `overflow`), or knows of room.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

const SHARDS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OpenHandles {
    /// The last number that was given to one.
    last: AtomicU64,
    /// Losses of write-back so far, of all files.
    losses: AtomicU64,
    /// Files with a loss that a handle has to be told of.
    lossy_files: AtomicUsize,
    shards: [Mutex<HandleShard>; SHARDS],
}

#[derive(Debug, Default)]
struct HandleShard {
    /// By inode and number.
    open: BTreeMap<(u64, u64), OpenHandle>,
    /// Files with a loss that a handle has to be told of: the last.
    lost: HashMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
struct OpenHandle {
    flags: u32,
    /// The losses of write-back before this one need not be told.
    told: u64,
    /// It was told, and there has been no room since.
    is_refused: bool,
    /// Losses by damage that it has been told of, of this file.
    damage_told: u64,
}

impl OpenHandle {
    /// Whether it may write.
    fn may_write(&self) -> bool {
        self.flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether its next write(2) has something to be told of, when `loss` is the last of the file.
    fn waits(&self, loss: u64) -> bool {
        self.may_write() && (self.told < loss || self.is_refused)
    }
}

impl HandleShard {
    fn of(&self, ino: u64) -> impl Iterator<Item = &OpenHandle> {
        self.open.range((ino, 0)..=(ino, u64::MAX)).map(|(_, open)| open)
    }
}

impl OpenHandles {
    fn shard(&self, ino: u64) -> MutexGuard<'_, HandleShard> {
        self.shards[ino as usize % SHARDS].lock()
    }

    /// File `ino` was opened with the flags of open(2); of so many losses by damage somebody has been told.
    /// Gives the number of the handle, which is not 0.
    pub(super) fn opened(&self, ino: u64, flags: u32, damage_told: u64) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let told = self.losses.load(Ordering::Acquire);
        let open = OpenHandle { flags, told, is_refused: false, damage_told };
        self.shard(ino).open.insert((ino, number), open);
        number
    }

    /// Nobody has handle `number` of file `ino` any more.
    pub(super) fn released(&self, ino: u64, number: u64) {
        let mut shard = self.shard(ino);
        shard.open.remove(&(ino, number));
        self.settle(&mut shard, ino);
    }

    /// Whether file `ino` may be mapped for writing: for that it has to be open for reading, too.
    pub(super) fn may_be_mapped_for_writing(&self, ino: u64) -> bool {
        let is_both =
            |open: &OpenHandle| open.flags.cast_signed() & libc::O_ACCMODE == libc::O_RDWR;
        self.shard(ino).of(ino).any(is_both)
    }

    /// Something that the kernel wanted to write back to file `ino` is lost. Says whether all who may have
    /// written it know that there is no room.
    pub(super) fn lose(&self, ino: u64) -> bool {
        let mut shard = self.shard(ino);
        let loss = self.losses.fetch_add(1, Ordering::AcqRel) + 1;
        let mut writers = 0;
        let mut is_known = true;
        for (_, open) in shard.open.range_mut((ino, 0)..=(ino, u64::MAX)) {
            if open.may_write() {
                writers += 1;
                is_known &= open.is_refused;
            }
        }
        if writers == 0 {
            return false;
        }
        if is_known {
            // Who goes on although there is no room is refused anyway.
            shard.open.range_mut((ino, 0)..=(ino, u64::MAX)).for_each(|(_, open)| open.told = loss);
        }
        if shard.lost.insert(ino, loss).is_none() {
            self.lossy_files.fetch_add(1, Ordering::Relaxed);
        }
        is_known
    }

    /// Whether a handle of file `ino` has something to be told of.
    pub(super) fn have_news(&self, ino: u64) -> bool {
        self.lossy_files.load(Ordering::Relaxed) > 0 && self.shard(ino).lost.contains_key(&ino)
    }

    /// What the write(2) that handle `number` of file `ino` is about to do is told.
    pub(super) fn ask(&self, ino: u64, number: u64, has_room: bool) -> WriteVerdict {
        let mut shard = self.shard(ino);
        let Some(loss) = shard.lost.get(&ino).copied() else { return WriteVerdict::Allowed };
        let Some(open) = shard.open.get_mut(&(ino, number)).filter(|open| open.waits(loss)) else {
            return WriteVerdict::Allowed;
        };
        let is_news = open.told < loss;
        open.told = loss;
        open.is_refused = !has_room;
        let told = match (is_news, has_room) {
            (true, _) => WriteVerdict::ReportLoss,
            (false, false) => WriteVerdict::StillFull,
            (false, true) => WriteVerdict::Allowed,
        };
        self.settle(&mut shard, ino);
        told
    }

    /// An fsync(2) through handle `number` has come this far: what was lost before, the kernel has told it.
    /// Says whether that is news.
    pub(super) fn synced(&self, ino: u64, number: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(loss) = shard.lost.get(&ino).copied() else { return false };
        let Some(open) = shard.open.get_mut(&(ino, number)) else { return false };
        let is_news = open.told < loss;
        if is_news {
            open.told = loss;
            // Whether there is room is found out by the next write(2).
            open.is_refused = true;
        }
        is_news
    }

    /// Losses by damage that handle `number` of file `ino` has been told of.
    pub(super) fn damage_told(&self, ino: u64, number: u64) -> Option<u64> {
        self.shard(ino).open.get(&(ino, number)).map(|open| open.damage_told)
    }

    /// It has been told of so many.
    pub(super) fn tell_damage(&self, ino: u64, number: u64, count: u64) {
        if let Some(open) = self.shard(ino).open.get_mut(&(ino, number)) {
            open.damage_told = open.damage_told.max(count);
        }
    }

    /// Forgets the loss of file `ino` if there is nobody left to tell.
    fn settle(&self, shard: &mut HandleShard, ino: u64) {
        let Some(loss) = shard.lost.get(&ino).copied() else { return };
        if !shard.of(ino).any(|open| open.waits(loss)) {
            shard.lost.remove(&ino);
            self.lossy_files.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Result that a write(2) is to have, as far as losses of its file decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteVerdict {
    /// The write may go on.
    Allowed,
    /// The write is refused, as its handle has not learned of a loss yet.
    ReportLoss,
    /// The write is refused, as the volume is still full.
    StillFull,
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = libc::O_RDONLY.cast_unsigned();
    const WRITE: u32 = libc::O_WRONLY.cast_unsigned();
    const BOTH: u32 = (libc::O_RDWR | libc::O_APPEND).cast_unsigned();

    #[test]
    fn each_handle_is_told_of_a_loss_once_and_while_there_is_no_room() {
        let handles = OpenHandles::default();
        let [one, two, reader] = [WRITE, BOTH, READ].map(|flags| handles.opened(7, flags, 0));
        let other = handles.opened(7 + SHARDS as u64, WRITE, 0);
        assert!(!handles.have_news(7));
        assert!(!handles.lose(7), "nobody knows yet");
        let later = handles.opened(7, WRITE, 0);
        assert!(handles.have_news(7) && !handles.have_news(7 + SHARDS as u64));
        assert_eq!(handles.ask(7, reader, false), WriteVerdict::Allowed);
        assert_eq!(handles.ask(7, later, false), WriteVerdict::Allowed, "it has lost nothing");
        assert_eq!(handles.ask(7 + SHARDS as u64, other, false), WriteVerdict::Allowed);
        assert_eq!(handles.ask(7, one, false), WriteVerdict::ReportLoss);
        assert_eq!(handles.ask(7, one, false), WriteVerdict::StillFull);
        assert_eq!(handles.ask(7, one, true), WriteVerdict::Allowed);
        assert_eq!(handles.ask(7, two, true), WriteVerdict::ReportLoss, "though there is room");
        assert!(!handles.have_news(7), "all have been told");
        assert_eq!(handles.ask(7, two, false), WriteVerdict::Allowed);
        assert!(!handles.lose(7));
        assert_eq!(handles.ask(7, later, true), WriteVerdict::ReportLoss);
    }

    #[test]
    fn what_is_lost_of_one_who_knows_is_no_news() {
        let handles = OpenHandles::default();
        let one = handles.opened(7, WRITE, 0);
        handles.lose(7);
        assert_eq!(handles.ask(7, one, false), WriteVerdict::ReportLoss);
        assert!(handles.lose(7), "as at close(2)");
        assert_eq!(handles.ask(7, one, false), WriteVerdict::StillFull);
        handles.released(7, one);
        assert!(!handles.have_news(7) && handles.lossy_files.load(Ordering::Relaxed) == 0);
        assert!(!handles.lose(7), "nobody has it open");
        assert!(!handles.have_news(7));
    }

    #[test]
    fn what_fsync_has_told_write_does_not_tell_again() {
        let handles = OpenHandles::default();
        let one = handles.opened(7, WRITE, 0);
        assert!(!handles.synced(7, one));
        handles.lose(7);
        assert!(handles.synced(7, one) && !handles.synced(7, one));
        assert_eq!(handles.ask(7, one, false), WriteVerdict::StillFull);
        assert_eq!(handles.ask(7, one, true), WriteVerdict::Allowed);
        assert!(!handles.have_news(7));
    }

    #[test]
    fn a_file_may_be_mapped_for_writing_until_its_last_writer_has_gone() {
        let handles = OpenHandles::default();
        let numbers = [READ, WRITE, BOTH, BOTH].map(|flags| handles.opened(7, flags, 0));
        for number in [2, 0, 1].map(|index: usize| numbers[index]) {
            handles.released(7, number);
            assert!(handles.may_be_mapped_for_writing(7) && !handles.may_be_mapped_for_writing(8));
        }
        handles.released(7, numbers[3]);
        assert!(!handles.may_be_mapped_for_writing(7));
        handles.released(7, numbers[3]);
    }

    #[test]
    fn a_handle_remembers_the_damage_that_it_was_told_of() {
        let handles = OpenHandles::default();
        let one = handles.opened(7, WRITE, 3);
        assert_eq!(handles.damage_told(7, one), Some(3));
        handles.tell_damage(7, one, 5);
        handles.tell_damage(7, one, 4);
        assert_eq!(handles.damage_told(7, one), Some(5));
        assert_eq!(handles.damage_told(7, one + 1), None);
    }
}
