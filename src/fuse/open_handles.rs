//! Open handles: their numbers, and the losses of their files that were reported through each
//! handle.
//!
//! Every handle that may write, and was open when data of its file was lost, is refused one
//! write(2), and further writes while the volume is full. fsync(2) through a handle counts as a
//! report as well. A file without a loss costs one load of a counter. The lost data itself is
//! recorded in `lost_writeback`.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use sfs_fuse::Errno;

const SHARDS: usize = 16;

/// All open handles, by file.
#[derive(Debug, Default)]
pub(crate) struct OpenHandles {
    /// Last number that was given to a handle.
    last: AtomicU64,
    /// Number of losses of write-back so far, in all files.
    losses: AtomicU64,
    /// Number of files with a loss that a handle has to learn of.
    lossy_files: AtomicUsize,
    shards: [Mutex<HandleShard>; SHARDS],
}

#[derive(Debug, Default)]
struct HandleShard {
    /// Handles, by inode and number.
    open: BTreeMap<(u64, u64), OpenHandle>,
    /// Last loss of each file with a loss that a handle has to learn of.
    lost: HashMap<u64, WriteBackLoss>,
}

/// Loss of write-back.
#[derive(Clone, Copy, Debug)]
struct WriteBackLoss {
    /// Number of the loss among those of all files.
    number: u64,
    /// Error that a write(2) reports.
    errno: Errno,
}

impl WriteBackLoss {
    /// Returns whether the data did not fit: such a loss is reported until there is space.
    fn is_of_space(&self) -> bool {
        self.errno.code() == libc::ENOSPC
    }
}

#[derive(Clone, Copy, Debug)]
struct OpenHandle {
    flags: u32,
    /// Last loss of write-back that the handle need not learn of any more.
    loss_reported: u64,
    /// `true` if the handle was refused, and the volume has been full since.
    is_refused: bool,
    /// Number of losses by damage of this file that the handle has learned of.
    damage_reported: u64,
}

impl OpenHandle {
    /// Returns whether the handle may write.
    fn may_write(&self) -> bool {
        self.flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Returns whether the next write(2) has something to report, if `loss` is the last loss of the file.
    fn must_report(&self, loss: u64) -> bool {
        self.may_write() && (self.loss_reported < loss || self.is_refused)
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

    /// Opens file `ino` with the flags of open(2). `damage_reported` losses by damage of the file were reported
    /// already. Returns the number of the handle, which is not 0.
    pub(super) fn opened(&self, ino: u64, flags: u32, damage_reported: u64) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let loss_reported = self.losses.load(Ordering::Acquire);
        let open = OpenHandle { flags, loss_reported, is_refused: false, damage_reported };
        self.shard(ino).open.insert((ino, number), open);
        number
    }

    /// Closes handle `number` of file `ino`.
    pub(super) fn released(&self, ino: u64, number: u64) {
        let mut shard = self.shard(ino);
        shard.open.remove(&(ino, number));
        self.remove_if_reported(&mut shard, ino);
    }

    /// Returns whether handle `number` of file `ino` is open for writing.
    pub(super) fn may_write(&self, ino: u64, number: u64) -> bool {
        self.shard(ino).open.get(&(ino, number)).is_some_and(OpenHandle::may_write)
    }

    /// Returns whether file `ino` has a handle that may write.
    pub(super) fn may_be_written(&self, ino: u64) -> bool {
        self.shard(ino).of(ino).any(OpenHandle::may_write)
    }

    /// Returns whether file `ino` may be mapped for writing. A mapping for writing needs a handle
    /// that is open for reading as well.
    pub(super) fn may_be_mapped_for_writing(&self, ino: u64) -> bool {
        let is_both =
            |open: &OpenHandle| open.flags.cast_signed() & libc::O_ACCMODE == libc::O_RDWR;
        self.shard(ino).of(ino).any(is_both)
    }

    /// Records a loss of write-back of file `ino` with the error `errno`. Returns whether the volume is full and all
    /// handles that may have written the data know that.
    pub(super) fn record_loss(&self, ino: u64, errno: Errno) -> bool {
        let mut shard = self.shard(ino);
        let number = self.losses.fetch_add(1, Ordering::AcqRel) + 1;
        let loss = WriteBackLoss { number, errno };
        let mut writers = 0;
        let mut is_known = loss.is_of_space();
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
            // A writer that goes on although the volume is full is refused anyway.
            shard
                .open
                .range_mut((ino, 0)..=(ino, u64::MAX))
                .for_each(|(_, open)| open.loss_reported = number);
        }
        if shard.lost.insert(ino, loss).is_none() {
            self.lossy_files.fetch_add(1, Ordering::Relaxed);
        }
        is_known
    }

    /// Returns the files with a loss that a handle has to learn of.
    pub(super) fn lossy_files(&self) -> Vec<u64> {
        let of_shard = |shard: &Mutex<HandleShard>| shard.lock().lost.keys().copied().collect();
        self.shards.iter().flat_map::<Vec<u64>, _>(of_shard).collect()
    }

    /// Returns whether a handle of file `ino` has a loss to learn of.
    pub(super) fn has_unreported_loss(&self, ino: u64) -> bool {
        self.lossy_files.load(Ordering::Relaxed) > 0 && self.shard(ino).lost.contains_key(&ino)
    }

    /// Decides about the write(2) that is about to go through handle `number` of file `ino`.
    pub(super) fn check_write(&self, ino: u64, number: u64, has_space: bool) -> WriteVerdict {
        let mut shard = self.shard(ino);
        let Some(loss) = shard.lost.get(&ino).copied() else { return WriteVerdict::Allowed };
        let Some(open) =
            shard.open.get_mut(&(ino, number)).filter(|open| open.must_report(loss.number))
        else {
            return WriteVerdict::Allowed;
        };
        let is_news = open.loss_reported < loss.number;
        open.loss_reported = loss.number;
        open.is_refused = !has_space && (open.is_refused || loss.is_of_space());
        let verdict = match (is_news, has_space) {
            (true, _) => WriteVerdict::ReportLoss(loss.errno),
            (false, false) => WriteVerdict::StillFull,
            (false, true) => WriteVerdict::Allowed,
        };
        self.remove_if_reported(&mut shard, ino);
        verdict
    }

    /// Notes an fsync(2) through handle `number`, to which the kernel has reported earlier losses.
    /// Returns whether a loss was new to the handle.
    pub(super) fn reported_by_fsync(&self, ino: u64, number: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(loss) = shard.lost.get(&ino).copied() else { return false };
        let Some(open) = shard.open.get_mut(&(ino, number)) else { return false };
        let is_news = open.loss_reported < loss.number;
        if is_news {
            open.loss_reported = loss.number;
            // The next write(2) finds out whether the volume is still full.
            open.is_refused |= loss.is_of_space();
            self.remove_if_reported(&mut shard, ino);
        }
        is_news
    }

    /// Returns the number of losses by damage that handle `number` of file `ino` has learned of.
    pub(super) fn damage_reported(&self, ino: u64, number: u64) -> Option<u64> {
        self.shard(ino).open.get(&(ino, number)).map(|open| open.damage_reported)
    }

    /// Notes that `count` losses by damage were reported to the handle.
    pub(super) fn note_damage_reported(&self, ino: u64, number: u64, count: u64) {
        if let Some(open) = self.shard(ino).open.get_mut(&(ino, number)) {
            open.damage_reported = open.damage_reported.max(count);
        }
    }

    /// Removes the loss of file `ino` if no handle is left to learn of it.
    fn remove_if_reported(&self, shard: &mut HandleShard, ino: u64) {
        let Some(loss) = shard.lost.get(&ino).copied() else { return };
        if !shard.of(ino).any(|open| open.must_report(loss.number)) {
            shard.lost.remove(&ino);
            self.lossy_files.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The open handles, and what each has learned of, for another program that takes the mount over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandedHandles {
    last: u64,
    losses: u64,
    open: Vec<HandedHandle>,
    /// Inode, number of its last loss, and the error that a write(2) reports.
    lost: Vec<(u64, u64, i32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedHandle {
    ino: u64,
    number: u64,
    flags: u32,
    loss_reported: u64,
    is_refused: bool,
}

impl OpenHandles {
    /// Returns inode, number and flags of each handle that is open.
    pub(crate) fn opened_now(&self) -> Vec<(u64, u64, u32)> {
        let of_shard = |shard: &Mutex<HandleShard>| {
            let shard = shard.lock();
            shard.open.iter().map(|(&(ino, number), open)| (ino, number, open.flags)).collect()
        };
        self.shards.iter().flat_map::<Vec<_>, _>(of_shard).collect()
    }

    /// Adopts the handles of a program that has died, of which only this is known. Their numbers are at most `last`.
    pub(crate) fn adopt_opened(&self, (opened, last): (Vec<(u64, u64, u32)>, u64)) {
        self.last.store(last, Ordering::Release);
        for (ino, number, flags) in opened {
            let open =
                OpenHandle { flags, loss_reported: 0, is_refused: false, damage_reported: 0 };
            self.shard(ino).open.insert((ino, number), open);
        }
    }
}

impl OpenHandles {
    /// Returns the handles for another program. No request may be under way. Losses by damage are left out: with one, the mount
    /// is not handed over.
    pub(crate) fn handed(&self) -> HandedHandles {
        let counts = [&self.last, &self.losses].map(|count| count.load(Ordering::Acquire));
        let mut handed =
            HandedHandles { last: counts[0], losses: counts[1], ..HandedHandles::default() };
        for shard in &self.shards {
            let shard = shard.lock();
            let open = shard.open.iter().map(|(&(ino, number), open)| {
                let OpenHandle { flags, loss_reported, is_refused, .. } = *open;
                HandedHandle { ino, number, flags, loss_reported, is_refused }
            });
            handed.open.extend(open);
            let lost = shard.lost.iter();
            handed.lost.extend(lost.map(|(ino, loss)| (*ino, loss.number, loss.errno.code())));
        }
        handed
    }

    /// Adopts the handles of another program. Must be called before the first request.
    pub(crate) fn adopt(&self, handed: &HandedHandles) {
        self.last.store(handed.last, Ordering::Release);
        self.losses.store(handed.losses, Ordering::Release);
        for &HandedHandle { ino, number, flags, loss_reported, is_refused } in &handed.open {
            let open = OpenHandle { flags, loss_reported, is_refused, damage_reported: 0 };
            self.shard(ino).open.insert((ino, number), open);
        }
        for &(ino, number, errno) in &handed.lost {
            let loss = WriteBackLoss { number, errno: Errno::new(errno) };
            if self.shard(ino).lost.insert(ino, loss).is_none() {
                self.lossy_files.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Decision about a write(2), as far as losses of its file matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteVerdict {
    /// The write goes on.
    Allowed,
    /// The write is refused with this error, as its handle has not learned of a loss yet.
    ReportLoss(Errno),
    /// The write is refused, as the volume is still full.
    StillFull,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_SPACE: Errno = Errno::new(libc::ENOSPC);
    const FULL: WriteVerdict = WriteVerdict::ReportLoss(NO_SPACE);
    const READ: u32 = libc::O_RDONLY.cast_unsigned();
    const WRITE: u32 = libc::O_WRONLY.cast_unsigned();
    const BOTH: u32 = (libc::O_RDWR | libc::O_APPEND).cast_unsigned();

    #[test]
    fn each_handle_is_refused_once_for_a_loss_and_while_the_volume_is_full() {
        let handles = OpenHandles::default();
        let [one, two, reader] = [WRITE, BOTH, READ].map(|flags| handles.opened(7, flags, 0));
        let other = handles.opened(7 + SHARDS as u64, WRITE, 0);
        assert!(!handles.has_unreported_loss(7));
        assert!(!handles.record_loss(7, NO_SPACE), "no writer knows yet");
        let later = handles.opened(7, WRITE, 0);
        assert!(handles.has_unreported_loss(7) && !handles.has_unreported_loss(7 + SHARDS as u64));
        assert_eq!(handles.check_write(7, reader, false), WriteVerdict::Allowed);
        assert_eq!(
            handles.check_write(7, later, false),
            WriteVerdict::Allowed,
            "the loss is older"
        );
        assert_eq!(handles.check_write(7 + SHARDS as u64, other, false), WriteVerdict::Allowed);
        assert_eq!(handles.check_write(7, one, false), FULL);
        assert_eq!(handles.check_write(7, one, false), WriteVerdict::StillFull);
        assert_eq!(handles.check_write(7, one, true), WriteVerdict::Allowed);
        assert_eq!(handles.check_write(7, two, true), FULL, "though there is space");
        assert!(!handles.has_unreported_loss(7), "every handle has learned of the loss");
        assert_eq!(handles.check_write(7, two, false), WriteVerdict::Allowed);
        assert!(!handles.record_loss(7, NO_SPACE));
        assert_eq!(handles.check_write(7, later, true), FULL);
    }

    #[test]
    fn a_further_loss_while_the_volume_is_full_is_not_reported_again() {
        let handles = OpenHandles::default();
        let one = handles.opened(7, WRITE, 0);
        handles.record_loss(7, NO_SPACE);
        assert_eq!(handles.check_write(7, one, false), FULL);
        assert!(handles.record_loss(7, NO_SPACE), "as at close(2)");
        assert_eq!(handles.check_write(7, one, false), WriteVerdict::StillFull);
        handles.released(7, one);
        assert!(
            !handles.has_unreported_loss(7) && handles.lossy_files.load(Ordering::Relaxed) == 0
        );
        assert!(!handles.record_loss(7, NO_SPACE), "no handle is open");
        assert!(!handles.has_unreported_loss(7));
    }

    #[test]
    fn a_loss_that_fsync_reported_is_not_reported_by_write() {
        let handles = OpenHandles::default();
        let one = handles.opened(7, WRITE, 0);
        assert!(!handles.reported_by_fsync(7, one));
        handles.record_loss(7, NO_SPACE);
        assert!(handles.reported_by_fsync(7, one) && !handles.reported_by_fsync(7, one));
        assert_eq!(handles.check_write(7, one, false), WriteVerdict::StillFull);
        assert_eq!(handles.check_write(7, one, true), WriteVerdict::Allowed);
        assert!(!handles.has_unreported_loss(7));
    }

    /// A loss for another reason than a full volume is reported once: each handle is refused once.
    #[test]
    fn a_loss_on_a_volume_with_space_is_reported_once_with_its_error() {
        let handles = OpenHandles::default();
        let [one, two] = [WRITE, BOTH].map(|flags| handles.opened(7, flags, 0));
        let no_memory = Errno::new(libc::ENOMEM);
        assert!(!handles.record_loss(7, no_memory));
        assert_eq!(handles.check_write(7, one, false), WriteVerdict::ReportLoss(no_memory));
        assert_eq!(handles.check_write(7, one, false), WriteVerdict::Allowed, "though it is full");
        assert!(handles.reported_by_fsync(7, two));
        assert_eq!(handles.check_write(7, two, false), WriteVerdict::Allowed);
        assert!(!handles.has_unreported_loss(7), "every handle has learned of the loss");
        // A writer that knows of the full volume does not know of this loss.
        handles.record_loss(7, NO_SPACE);
        assert_eq!(handles.check_write(7, one, false), FULL);
        assert!(!handles.record_loss(7, no_memory));
        assert_eq!(handles.check_write(7, one, true), WriteVerdict::ReportLoss(no_memory));
    }

    #[test]
    fn another_program_knows_what_each_handle_has_learned_of() {
        let handles = OpenHandles::default();
        let [one, two] = [WRITE, BOTH].map(|flags| handles.opened(7, flags, 0));
        handles.record_loss(7, NO_SPACE);
        assert_eq!(handles.check_write(7, one, false), FULL);
        let text = serde_json::to_string(&handles.handed()).expect("JSON");
        let next = OpenHandles::default();
        next.adopt(&serde_json::from_str(&text).expect("the same JSON"));
        assert_eq!(next.handed(), handles.handed());
        assert!(next.may_write(7, two) && next.has_unreported_loss(7));
        assert_eq!(next.check_write(7, one, false), WriteVerdict::StillFull);
        assert_eq!(next.check_write(7, two, true), FULL);
        assert_eq!(next.lossy_files(), [7], "one is refused until there is space");
        assert_eq!(next.check_write(7, one, true), WriteVerdict::Allowed);
        assert!(!next.has_unreported_loss(7), "every handle has learned of the loss");
        assert!(next.opened(7, READ, 0) > two, "numbers are given once");
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
    fn a_handle_remembers_how_much_damage_was_reported() {
        let handles = OpenHandles::default();
        let one = handles.opened(7, WRITE, 3);
        assert_eq!(handles.damage_reported(7, one), Some(3));
        handles.note_damage_reported(7, one, 5);
        handles.note_damage_reported(7, one, 4);
        assert_eq!(handles.damage_reported(7, one), Some(5));
        assert_eq!(handles.damage_reported(7, one + 1), None);
    }
}
