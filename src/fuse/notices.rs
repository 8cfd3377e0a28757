//! Inodes whose attributes the kernel is to ask for again: those whose writers have something to be told of.
//!
//! Owns: the queue of them, and the order of sending.
//! Promises: who puts one in waits for nobody; what is sent is sent by the thread that serves the queue alone, under
//! no lock, for the kernel may have to wait for answers before it takes it.
//! Never: knows how a notification is sent.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// An answer with attributes that is given at the same time may reach the kernel after the notification, and make
/// them valid again: after so long it is sent once more.
const AGAIN: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    queue: Mutex<Queue>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    due: BTreeSet<u64>,
    /// Those that are sent once more, and when.
    again: VecDeque<(Instant, BTreeSet<u64>)>,
    is_over: bool,
}

impl Notices {
    /// The kernel is to ask for the attributes of `ino`.
    pub(super) fn post(&self, ino: u64) {
        self.queue.lock().due.insert(ino);
        self.bell.notify_one();
    }

    /// Ends [`Notices::serve`].
    pub(crate) fn end(&self) {
        self.queue.lock().is_over = true;
        self.bell.notify_one();
    }

    /// Sends what is posted by `send`, until [`Notices::end`].
    pub(crate) fn serve(&self, send: impl Fn(u64)) {
        while let Some(inodes) = self.next() {
            inodes.into_iter().for_each(&send);
        }
    }

    /// Waits for what is due.
    fn next(&self) -> Option<BTreeSet<u64>> {
        let mut queue = self.queue.lock();
        while !queue.is_over {
            if let Some(inodes) = queue.take_due(Instant::now()) {
                return Some(inodes);
            }
            match queue.again.front().map(|(when, _)| *when) {
                None => self.bell.wait(&mut queue),
                Some(when) => drop(self.bell.wait_until(&mut queue, when)),
            }
        }
        None
    }
}

impl Queue {
    /// What is due `now`. What was sent long enough ago goes first, so that nothing new holds it up.
    fn take_due(&mut self, now: Instant) -> Option<BTreeSet<u64>> {
        if self.again.front().is_some_and(|(when, _)| *when <= now) {
            return self.again.pop_front().map(|(_, inodes)| inodes);
        }
        if self.due.is_empty() {
            return None;
        }
        let due = std::mem::take(&mut self.due);
        self.again.push_back((now + AGAIN, due.clone()));
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn what_is_posted_is_sent_twice() {
        let notices = Notices::default();
        let (send, sent) = channel();
        thread::scope(|scope| {
            scope.spawn(|| notices.serve(move |ino| send.send(ino).expect("it is received")));
            for ino in [7, 9] {
                notices.post(ino);
                let next = || sent.recv_timeout(Duration::from_secs(10)).expect("it is sent");
                assert_eq!([next(), next()], [ino, ino]);
            }
            notices.end();
        });
        assert!(sent.recv().is_err(), "and not more often");
    }

    /// Somebody who looks at one file all the time kept the second notification of all others back.
    #[test]
    fn what_is_posted_all_the_time_holds_nothing_up() {
        let notices = Notices::default();
        let (send, sent) = channel();
        thread::scope(|scope| {
            scope.spawn(|| notices.serve(move |ino| send.send(ino).expect("it is received")));
            notices.post(7);
            for _ in 0..400 {
                notices.post(9);
                thread::sleep(AGAIN / 8);
            }
            notices.end();
        });
        assert_eq!(sent.into_iter().filter(|ino| *ino == 7).count(), 2);
    }
}
