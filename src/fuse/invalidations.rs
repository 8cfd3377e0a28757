//! Notifications that wait for the notify thread: inodes whose attributes the kernel must ask for
//! again, because a loss has to be reported to their writers, and requests that the kernel forgets
//! files.
//!
//! A shell thread posts an inode to a channel and goes on. The notify thread receives the inode, sends the
//! notification, and sends it once more after [`REPEAT_AFTER`]. The thread holds no lock while it sends, as
//! the kernel may wait for other replies first.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, Sender};
use parking_lot::Mutex;

/// Delay of the second notification. A reply with attributes that was in flight during the first
/// notification may reach the kernel later, and would make the attributes valid again.
const REPEAT_AFTER: Duration = Duration::from_millis(20);

/// Time between two prunes.
const PRUNE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Queue of inodes between the shell and the notify thread.
#[derive(Debug)]
pub(crate) struct AttributeInvalidations {
    posts: Sender<Post>,
    posted: Receiver<Post>,
    /// Time of the last [`Post::Prune`].
    pruned: Mutex<Option<Instant>>,
}

#[derive(Debug)]
enum Post {
    Inode(u64),
    Prune,
    End,
}

impl Default for AttributeInvalidations {
    fn default() -> Self {
        let (posts, posted) = channel::unbounded();
        Self { posts, posted, pruned: Mutex::default() }
    }
}

impl AttributeInvalidations {
    /// Posts inode `ino`. Never waits.
    pub(super) fn post(&self, ino: u64) {
        self.send(Post::Inode(ino));
    }

    /// Asks for a prune, unless one was asked for lately: the kernel needs time to forget. Never waits.
    pub(super) fn post_prune(&self) {
        let mut pruned = self.pruned.lock();
        if pruned.is_none_or(|when| when.elapsed() >= PRUNE_AGAIN_AFTER) {
            *pruned = Some(Instant::now());
            self.send(Post::Prune);
        }
    }

    /// Ends [`AttributeInvalidations::serve`]. Inode numbers that were not sent by then are dropped.
    pub(crate) fn end(&self) {
        self.send(Post::End);
    }

    fn send(&self, post: Post) {
        self.posts.send(post).expect("the receiver is in this struct");
    }

    /// Sends every posted inode by `send`, twice, and calls `prune` for each posted prune, until
    /// [`AttributeInvalidations::end`].
    pub(crate) fn serve(&self, send: impl Fn(u64), prune: impl Fn()) {
        let mut schedule = InvalidationSchedule::default();
        while self.receive(&mut schedule) {
            if std::mem::take(&mut schedule.has_prune) {
                prune();
            }
            let inodes = schedule.take_due(Instant::now());
            inodes.into_iter().for_each(&send);
        }
    }

    /// Moves all posts into `schedule`, waiting until an inode is due. Returns `false` at the end.
    fn receive(&self, schedule: &mut InvalidationSchedule) -> bool {
        let first = match schedule.next_repeat() {
            _ if schedule.has_new() => self.posted.try_recv().ok(),
            None => self.posted.recv().ok(),
            Some(when) => self.posted.recv_deadline(when).ok(),
        };
        for post in first.into_iter().chain(self.posted.try_iter()) {
            match post {
                Post::Inode(ino) => schedule.add(ino),
                Post::Prune => schedule.has_prune = true,
                Post::End => return false,
            }
        }
        true
    }
}

/// Inodes to be sent for the first time, and inodes to be sent again, with their times.
#[derive(Debug, Default)]
struct InvalidationSchedule {
    has_prune: bool,
    new: BTreeSet<u64>,
    repeats: VecDeque<(Instant, BTreeSet<u64>)>,
}

impl InvalidationSchedule {
    fn add(&mut self, ino: u64) {
        self.new.insert(ino);
    }

    fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    fn next_repeat(&self) -> Option<Instant> {
        self.repeats.front().map(|(when, _)| *when)
    }

    /// Takes the inodes that are due `now`. Repeats come first, so that new inodes cannot delay them for ever.
    fn take_due(&mut self, now: Instant) -> BTreeSet<u64> {
        if self.next_repeat().is_some_and(|when| when <= now) {
            return self.repeats.pop_front().map(|(_, inodes)| inodes).unwrap_or_default();
        }
        let new = std::mem::take(&mut self.new);
        if !new.is_empty() {
            self.repeats.push_back((now + REPEAT_AFTER, new.clone()));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_posted_inode_is_sent_twice() {
        let invalidations = AttributeInvalidations::default();
        let (send, sent) = channel::unbounded();
        thread::scope(|scope| {
            scope.spawn(|| {
                invalidations
                    .serve(move |ino| send.send(ino).expect("the number is received"), || ())
            });
            for ino in [7, 9] {
                invalidations.post(ino);
                let next = || sent.recv_timeout(Duration::from_secs(10)).expect("a number is sent");
                assert_eq!([next(), next()], [ino, ino]);
            }
            invalidations.end();
        });
        assert!(sent.recv().is_err(), "no number is sent a third time");
    }

    /// Regression: a file that was posted all the time delayed the second notification of all others.
    #[test]
    fn an_inode_that_is_posted_all_the_time_does_not_delay_others() {
        let invalidations = AttributeInvalidations::default();
        let (send, sent) = channel::unbounded();
        thread::scope(|scope| {
            scope.spawn(|| {
                invalidations
                    .serve(move |ino| send.send(ino).expect("the number is received"), || ())
            });
            invalidations.post(7);
            for _ in 0..400 {
                invalidations.post(9);
                thread::sleep(REPEAT_AFTER / 8);
            }
            invalidations.end();
        });
        assert_eq!(sent.into_iter().filter(|ino| *ino == 7).count(), 2);
    }
}
