//! Pausing a session between two requests, so that another program can go on with its channels.
//!
//! A thread that reads from a channel says so before each attempt, and looks whether a pause is wanted. [`Pauser::pause`] wakes the
//! threads that read by a signal, again and again: one that comes just before read(2) begins has no effect. A request
//! is read as a whole or not at all. The session is paused once all these threads wait and every parked request is answered.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::channels::fuse_channel::FuseChannel;
use crate::channels::wake;
use crate::parked::Parked;
use crate::protocol::init_features::Agreed;

/// Time between two looks at the threads, and between two signals.
const LOOK: Duration = Duration::from_micros(500);

/// Wish for a pause, and the threads that it concerns.
#[derive(Debug, Default)]
pub(crate) struct Pausing {
    is_wanted: AtomicBool,
    readers: Mutex<Readers>,
    /// Notified when no pause is wanted any more.
    resumed: Condvar,
}

#[derive(Debug, Default)]
struct Readers {
    /// The threads that read requests.
    threads: Vec<Arc<ReadingThread>>,
    /// Number of those that wait for the end of the pause.
    waiting: usize,
}

#[derive(Debug)]
struct ReadingThread {
    number: i32,
    /// `true` while the thread is in read(2), just before, or just after.
    is_reading: AtomicBool,
}

/// This thread as one that reads requests, as long as the value lives.
pub(crate) struct Reader<'a> {
    pausing: &'a Pausing,
    thread: Arc<ReadingThread>,
}

/// An attempt to read.
pub(crate) struct Attempt<'a>(&'a ReadingThread);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.is_reading.store(false, Ordering::Release);
    }
}

impl Pausing {
    /// Notes that this thread reads requests.
    pub(crate) fn reader(&self) -> Reader<'_> {
        let is_reading = AtomicBool::new(false);
        let thread = Arc::new(ReadingThread { number: wake::thread_number(), is_reading });
        self.readers.lock().threads.push(thread.clone());
        Reader { pausing: self, thread }
    }

    fn resume(&self) {
        let _readers = self.readers.lock();
        self.is_wanted.store(false, Ordering::SeqCst);
        self.resumed.notify_all();
    }
}

impl Reader<'_> {
    /// Begins an attempt to read, after the end of a pause.
    pub(crate) fn begin(&self) -> Attempt<'_> {
        loop {
            // Either the pauser sees that this thread reads, or this thread sees the wish.
            self.thread.is_reading.store(true, Ordering::SeqCst);
            let attempt = Attempt(&self.thread);
            if !self.pausing.is_wanted.load(Ordering::SeqCst) {
                return attempt;
            }
            drop(attempt);
            let mut readers = self.pausing.readers.lock();
            readers.waiting += 1;
            while self.pausing.is_wanted.load(Ordering::SeqCst) {
                self.pausing.resumed.wait(&mut readers);
            }
            readers.waiting -= 1;
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let threads = &mut self.pausing.readers.lock().threads;
        threads.retain(|thread| !Arc::ptr_eq(thread, &self.thread));
    }
}

/// Pauses a session that another thread serves. See [`FuseSession::pauser`](crate::FuseSession::pauser).
#[derive(Clone)]
pub struct Pauser {
    pub(crate) pausing: Arc<Pausing>,
    pub(crate) parked: Arc<Parked>,
    /// The session alone keeps them open: the kernel must learn of its end.
    pub(crate) channels: Vec<Weak<FuseChannel>>,
    /// Channel that nobody reads, and that another session makes its own from.
    pub(crate) unread: Option<Weak<FuseChannel>>,
    pub(crate) agreed: Agreed,
}

/// Descriptors with which another program goes on with a session.
#[derive(Debug)]
pub enum SessionChannels {
    /// All channels. What was read from them, and not answered, outlives the process that has read it while a duplicate is open.
    Read(Vec<OwnedFd>),
    /// The channel that nobody reads. Each process makes its own from it, and what was read from those ends with them.
    Unread(OwnedFd),
}

/// Pause of a session. Dropping the value ends the pause.
pub struct Pause<'a>(&'a Pauser);

impl Pauser {
    /// Waits until every request that was read is answered, and no further one is read. Returns `None`, and the session goes on, if
    /// that takes longer than `wait_max`, and if the session has ended.
    pub fn pause(&self, wait_max: Duration) -> Option<Pause<'_>> {
        let end = Instant::now() + wait_max;
        self.pausing.is_wanted.store(true, Ordering::SeqCst);
        let pause = Pause(self);
        loop {
            let readers = self.pausing.readers.lock();
            let count = readers.threads.len();
            if count == 0 || Instant::now() > end {
                drop(readers);
                return None;
            }
            if readers.waiting == count && self.parked.is_empty() {
                drop(readers);
                return Some(pause);
            }
            let reading = |thread: &&Arc<ReadingThread>| thread.is_reading.load(Ordering::SeqCst);
            readers.threads.iter().filter(reading).for_each(|thread| wake::wake(thread.number));
            drop(readers);
            std::thread::sleep(LOOK);
        }
    }

    /// Keeps a session that is not served yet from reading before [`Pauser::release`]: its threads start, and wait.
    pub fn hold(&self) {
        self.pausing.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Ends a [`Pauser::hold`].
    pub fn release(&self) {
        self.pausing.resume();
    }

    /// Returns whether all threads that read from the channels have started, and wait for the end of a pause.
    pub fn is_held(&self) -> bool {
        self.pausing.readers.lock().waiting == self.channels.len()
    }

    /// Returns what both sides have agreed on.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Returns duplicates of the descriptors of the channels, for [`FuseSession::resume`](crate::FuseSession::resume).
    ///
    /// # Errors
    ///
    /// `NotConnected` if the session has ended; errors of the system.
    pub fn duplicates(&self) -> io::Result<SessionChannels> {
        let duplicate = |channel: &Weak<FuseChannel>| {
            let channel = channel.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            channel.file().try_clone().map(OwnedFd::from)
        };
        match &self.unread {
            Some(unread) => duplicate(unread).map(SessionChannels::Unread),
            None => {
                let all = self.channels.iter().map(duplicate);
                all.collect::<io::Result<_>>().map(SessionChannels::Read)
            }
        }
    }
}

impl std::fmt::Debug for Pauser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pauser").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.pausing.resume();
    }
}
