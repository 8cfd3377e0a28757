//! Requests that are parked: each keeps its message and the channel for its reply, and holds no serving thread.
//!
//! A serving thread moves a message into a queue, and reads the next one; the thread of the queue answers the message later. A
//! message is in one place at a time, so it is answered once. When the serving threads have ended, the queues give out
//! everything that is in them, and end.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::channels::fuse_channel::{FuseChannel, MessageBuffer};
use crate::handler::{Handler, WaitingChange};
use crate::protocol::reply::Queue;

/// Longest message that is copied to memory of its own length. A longer one keeps the buffer that it was read into.
const COPIED_BYTES_MAX: usize = 512 << 10;

/// Factor of the bound for the last serving thread that does not wait: it waits later than the others, so that a frozen mount
/// still reads.
const LAST_THREAD_FACTOR: usize = 4;

/// Maximum number of buffers that are kept for the next messages.
const SPARE_BUFFERS_MAX: usize = 8;

/// Time without parked changes after which the kept buffers are freed.
const SPARE_TIME: Duration = Duration::from_secs(1);

/// Message that is parked.
pub(crate) struct ParkedMessage {
    pub(crate) buffer: MessageBuffer,
    pub(crate) len: usize,
    pub(crate) channel: Arc<FuseChannel>,
    pub(crate) queue: Queue,
    node: u64,
    data_len: usize,
    /// Time since when the message is the first of its inode, or is parked.
    since: Instant,
}

impl ParkedMessage {
    fn waiting(&self) -> WaitingChange {
        let Self { node, data_len, .. } = *self;
        WaitingChange { node, data_len, waited: self.since.elapsed() }
    }
}

/// The queues of a session.
pub(crate) struct Parked {
    changes: Mutex<Changes>,
    /// Notified when a change is parked, and at the end.
    changes_moved: Condvar,
    /// Number of changes in the queue: readable without its lock.
    change_count: AtomicUsize,
    syncs: SyncQueue,
    whole_syncs: SyncQueue,
    spare: Mutex<Vec<MessageBuffer>>,
    max_write: u32,
    /// `true` if new buffers are occupied at once.
    pub(crate) populates: bool,
    /// Number of bytes of parked messages from which serving threads wait, all but the last.
    bytes_max: usize,
    bytes: AtomicUsize,
    /// Number of serving threads that may wait while another one reads.
    threads_to_spare: usize,
    /// Number of serving threads that wait or park a message.
    waiting_threads: AtomicUsize,
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Queue by its thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueueName {
    Changes,
    Syncs,
    WholeSyncs,
}

/// Serving thread that does not read.
pub(crate) struct WaitingThread<'a>(&'a AtomicUsize);

impl Drop for WaitingThread<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Changes {
    /// Messages of each inode, in their order; none is empty.
    by_node: HashMap<u64, VecDeque<ParkedMessage>>,
    /// Inodes in the order of their turns.
    turns: VecDeque<u64>,
    is_ended: bool,
}

#[derive(Default)]
struct SyncQueue {
    waiting: Mutex<(VecDeque<ParkedMessage>, bool)>,
    moved: Condvar,
}

impl Parked {
    /// Returns empty queues for messages with writes of up to `max_write` bytes, which have about `bytes_max` bytes together, of a
    /// session with `threads` serving threads.
    pub(crate) fn new(max_write: u32, bytes_max: usize, threads: usize) -> Self {
        Self {
            changes: Mutex::default(),
            changes_moved: Condvar::new(),
            change_count: AtomicUsize::new(0),
            syncs: SyncQueue::default(),
            whole_syncs: SyncQueue::default(),
            spare: Mutex::default(),
            max_write,
            populates: false,
            bytes_max,
            bytes: AtomicUsize::new(0),
            threads_to_spare: threads.saturating_sub(1),
            waiting_threads: AtomicUsize::new(0),
        }
    }

    /// Returns whether changes of `node` are parked: a later write waits behind them.
    pub(crate) fn has_changes_of(&self, node: u64) -> bool {
        self.change_count.load(Ordering::Relaxed) > 0
            && self.changes.lock().by_node.contains_key(&node)
    }

    /// Moves the message of `len` bytes in `buffer` into `queue`, and leaves a buffer for the next message. Returns `false`
    /// without memory for that, with the message still in `buffer`.
    pub(crate) fn add(
        &self,
        queue: Queue,
        (node, data_len): (u64, usize),
        (buffer, len): (&mut MessageBuffer, usize),
        channel: &Arc<FuseChannel>,
    ) -> bool {
        if data_len > 0 && !self.has_memory() {
            return false;
        }
        let Ok(taken) = self.take(buffer, len) else { return false };
        self.bytes.fetch_add(len, Ordering::Relaxed);
        let (channel, since) = (channel.clone(), Instant::now());
        let message = ParkedMessage { buffer: taken, len, channel, queue, node, data_len, since };
        let refused = self.add_again(message, queue);
        debug_assert!(refused.is_none(), "no queue ends before the serving threads");
        true
    }

    /// Moves a message into `queue`, perhaps after another one. Returns it if the queue has ended.
    pub(crate) fn add_again(
        &self,
        mut message: ParkedMessage,
        queue: Queue,
    ) -> Option<ParkedMessage> {
        message.queue = queue;
        match queue {
            Queue::Changes => self.add_change(message),
            Queue::Syncs(_) => self.syncs.add(message),
            Queue::WholeSyncs(_) => self.whole_syncs.add(message),
        }
    }

    /// Returns whether no message is parked or being answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) == 0
    }

    /// Notes that a serving thread waits, or parks a message, as long as the returned value lives.
    pub(crate) fn note_waiting_thread(&self) -> WaitingThread<'_> {
        self.waiting_threads.fetch_add(1, Ordering::SeqCst);
        WaitingThread(&self.waiting_threads)
    }

    /// Returns whether one more message with data may be parked. Other messages are short, and always may.
    fn has_memory(&self) -> bool {
        let is_last = self.waiting_threads.load(Ordering::SeqCst) > self.threads_to_spare;
        let factor = if is_last { LAST_THREAD_FACTOR } else { 1 };
        self.bytes.load(Ordering::Relaxed) < self.bytes_max.saturating_mul(factor)
    }

    fn take(&self, buffer: &mut MessageBuffer, len: usize) -> io::Result<MessageBuffer> {
        if len <= COPIED_BYTES_MAX {
            return buffer.copy(len);
        }
        let spare = self.spare.lock().pop();
        let mut next = spare.map_or_else(|| MessageBuffer::new(self.max_write), Ok)?;
        if self.populates {
            next.populate();
        }
        Ok(std::mem::replace(buffer, next))
    }

    fn add_change(&self, message: ParkedMessage) -> Option<ParkedMessage> {
        let mut changes = self.changes.lock();
        if changes.is_ended {
            return Some(message);
        }
        let node = message.node;
        let Changes { by_node, turns, .. } = &mut *changes;
        let messages = by_node.entry(node).or_default();
        if messages.is_empty() {
            turns.push_back(node);
        }
        messages.push_back(message);
        self.change_count.fetch_add(1, Ordering::Relaxed);
        self.changes_moved.notify_one();
        None
    }

    /// Waits for the next change that may go on; `None` at the end. After the end of the serving threads no change waits.
    pub(crate) fn next_change(&self, handler: &impl Handler) -> Option<ParkedMessage> {
        loop {
            let mut changes = self.changes.lock();
            while changes.turns.is_empty() {
                if changes.is_ended {
                    return None;
                }
                if self.changes_moved.wait_for(&mut changes, SPARE_TIME).timed_out() {
                    self.spare.lock().clear();
                    if changes.turns.is_empty() && !changes.is_ended {
                        self.changes_moved.wait(&mut changes);
                    }
                }
            }
            // Read before the look at the changes, so that no progress after the look is missed.
            let seen = handler.progress();
            if let Some(message) = changes.take(handler) {
                self.change_count.fetch_sub(1, Ordering::Relaxed);
                return Some(message);
            }
            drop(changes);
            handler.wait_for_progress(seen);
        }
    }

    /// Waits for the next sync of a file; `None` at the end.
    pub(crate) fn next_sync(&self) -> Option<ParkedMessage> {
        self.syncs.next()
    }

    /// Waits for the next sync of the filesystem; `None` at the end.
    pub(crate) fn next_whole_sync(&self) -> Option<ParkedMessage> {
        self.whole_syncs.next()
    }

    /// Takes back the memory of a message that was answered.
    pub(crate) fn recycle(&self, message: ParkedMessage) {
        self.bytes.fetch_sub(message.len, Ordering::Relaxed);
        if message.len > COPIED_BYTES_MAX {
            let mut spare = self.spare.lock();
            if spare.len() < SPARE_BUFFERS_MAX {
                spare.push(message.buffer);
            }
        }
    }

    /// Ends the queues once they are empty. No thread adds messages any more.
    pub(crate) fn end(&self) {
        self.changes.lock().is_ended = true;
        self.changes_moved.notify_all();
        self.syncs.end();
        self.whole_syncs.end();
    }
}

impl Changes {
    /// Takes the first message of the first inode, in turn, whose message may go on.
    fn take(&mut self, handler: &impl Handler) -> Option<ParkedMessage> {
        for _ in 0..self.turns.len() {
            let node = self.turns.pop_front()?;
            let messages = self.by_node.get_mut(&node).expect("an inode with a turn has messages");
            let goes_on = self.is_ended
                || messages.front().is_some_and(|message| handler.may_go_on(&message.waiting()));
            let taken = if goes_on { messages.pop_front() } else { None };
            if taken.is_some()
                && let Some(next) = messages.front_mut()
            {
                next.since = Instant::now();
            }
            if messages.is_empty() {
                self.by_node.remove(&node);
            } else {
                self.turns.push_back(node);
            }
            if taken.is_some() {
                return taken;
            }
        }
        None
    }
}

impl SyncQueue {
    fn add(&self, message: ParkedMessage) -> Option<ParkedMessage> {
        let mut waiting = self.waiting.lock();
        if waiting.1 {
            return Some(message);
        }
        waiting.0.push_back(message);
        self.moved.notify_one();
        None
    }

    fn next(&self) -> Option<ParkedMessage> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(message) = waiting.0.pop_front() {
                return Some(message);
            }
            if waiting.1 {
                return None;
            }
            self.moved.wait(&mut waiting);
        }
    }

    fn end(&self) {
        self.waiting.lock().1 = true;
        self.moved.notify_all();
    }
}

/// Ends the queues when dropped.
pub(crate) struct EndOnDrop<'a>(pub(crate) &'a Parked);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
