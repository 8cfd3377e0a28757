//! Read-ahead by the daemon, beyond that of the kernel, which reads at most a megabyte ahead.
//!
//! A handle that is seen to be read in order gets windows of content, read by threads of their own while the reader uses
//! the window before. A window grows while its content is scattered over the device: the more blocks are looked up
//! together, the more of them are adjacent or near each other. Its memory is a part of `cache=`.
//!
//! A read is answered from a window only if the content of the file has not changed since the window was read.

mod stream;
mod window;
mod workers;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use sfs_core::Volume;
use sfs_device::BLOCK_SIZE;
use sfs_fuse::ReadArgs;

pub(super) use self::window::Ahead;

use self::stream::Stream;
use self::window::{Slot, WINDOW_FIRST, WindowBudget};
use self::workers::{Job, Workers};
use crate::device_speed::DeviceSpeed;

/// Part of `cache=` that windows may have, as a divisor.
const CACHE_DIVISOR: usize = 4;

const SHARDS: usize = 16;

/// Streams by inode and handle.
type Shard = HashMap<(u64, u64), Stream>;

/// Read-ahead for all handles of a mount.
pub(crate) struct ReadAhead {
    shards: [Mutex<Shard>; SHARDS],
    budget: Arc<WindowBudget>,
    /// `cache=` in bytes.
    cache: usize,
    /// Longest window of one stream in bytes; 0 if nothing is read ahead.
    window_max: u64,
    workers: Workers,
    answered_bytes: Arc<AtomicU64>,
    begun: Instant,
}

/// Answer to a read.
pub(super) enum AnswerAhead {
    /// These bytes of a window.
    Window(Arc<Ahead>, Range<usize>),
    /// This many bytes of the room, from several windows.
    InPlace(usize),
}

/// Figures of reading, for reports.
#[derive(Clone, Debug)]
pub(crate) struct ReadFigures {
    /// Speed of the device; `None` if it is read through the page cache.
    pub(crate) speed: Option<DeviceSpeed>,
    /// Longest window of one handle in bytes; 0 if the daemon does not read ahead.
    pub(crate) window_bytes_max: u64,
    /// Number of bytes of reads that were answered from windows.
    pub(crate) answered_bytes: Arc<AtomicU64>,
}

impl ReadAhead {
    /// Returns the longest window of one handle in bytes, with a part of `cache` bytes and a device of this speed; 0 if nothing
    /// is read ahead. A device that is read through the page cache needs no read-ahead.
    pub(crate) fn window_max(cache: usize, speed: Option<DeviceSpeed>) -> u64 {
        let budget = (cache / CACHE_DIVISOR) as u64;
        speed.map_or(0, |speed| stream::window_max(budget, speed.bytes_per_second))
    }

    /// Reads ahead on `volume`; see [`ReadAhead::window_max`].
    pub(crate) fn new(volume: Arc<Volume>, cache: usize, speed: Option<DeviceSpeed>) -> Self {
        Self {
            shards: Default::default(),
            budget: Arc::new(WindowBudget::new(volume.clone(), cache / CACHE_DIVISOR)),
            cache,
            window_max: Self::window_max(cache, speed),
            workers: Workers::new(volume),
            answered_bytes: Arc::default(),
            begun: Instant::now(),
        }
    }

    /// Reads ahead on another state of the volume, with the same figures for reports.
    pub(super) fn on(&self, volume: Arc<Volume>) -> Self {
        let answered_bytes = self.answered_bytes.clone();
        let new = Self::new(volume, self.cache, None);
        Self { window_max: self.window_max, answered_bytes, ..new }
    }

    /// Returns the figures for reports, of a device of this speed.
    pub(crate) fn figures(&self, speed: Option<DeviceSpeed>) -> ReadFigures {
        let answered_bytes = self.answered_bytes.clone();
        ReadFigures { speed, window_bytes_max: self.window_max, answered_bytes }
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, Shard> {
        self.shards[number as usize % SHARDS].lock()
    }

    /// Notes a read of file `ino`, and answers it if its bytes were read ahead. They may be put into `room`.
    pub(super) fn answer(&self, ino: u64, read: &ReadArgs, room: &mut [u8]) -> Option<AnswerAhead> {
        let len = read.size as usize;
        // Whoever bypasses the kernel's cache for single blocks does not wait for the lists of windows.
        let is_direct = read.open_flags.cast_signed() & libc::O_DIRECT != 0;
        let is_single = is_direct && len <= BLOCK_SIZE;
        if self.window_max == 0 || len == 0 || is_single {
            return None;
        }
        let key = (ino, read.handle);
        let found = self.note(key, read.offset, len as u64);
        let answer = take(&found, read.offset, len, room);
        if answer.is_some() {
            self.budget.note_read(ino, read.offset, read.size);
            self.answered_bytes.fetch_add(len as u64, Ordering::Relaxed);
        } else if found.iter().any(|slot| slot.is_old()) {
            self.give_up(key);
        }
        answer
    }

    /// Closes a handle.
    pub(super) fn released(&self, ino: u64, handle: u64) {
        if self.window_max > 0 {
            // Dropped without the lock.
            let _stream = self.shard(handle).remove(&(ino, handle));
        }
    }

    /// Notes a read, has the next window read if one is due, and returns the windows with the bytes of the read.
    fn note(&self, key: (u64, u64), offset: u64, len: u64) -> Vec<Arc<Slot>> {
        let now = self.begun.elapsed();
        let mut shard = self.shard(key.1);
        let stream = shard.entry(key).or_default();
        let consumed = stream.note(offset, len, now);
        let found = stream.covering(offset, len);
        let due = stream.due(self.window_max);
        let Some(mut window) = due else {
            drop(shard);
            drop(consumed);
            return found;
        };
        let memory = consumed.into_iter().find_map(|slot| slot.into_memory(window.len));
        let mut memory = memory.or_else(|| self.budget.take(window.len));
        if memory.is_none() && stream.has_none() {
            window.len = WINDOW_FIRST;
            memory = self.budget.take(WINDOW_FIRST);
        }
        if let Some(memory) = memory {
            let slot = stream.add(window);
            drop(shard);
            self.workers.push(Job::new(key.0, window.start, memory, slot));
        } else {
            drop(shard);
            self.drop_idle(now);
        }
        found
    }

    /// Forgets the windows of a file that has changed; the next ones come after more reads in order.
    fn give_up(&self, key: (u64, u64)) {
        let windows = self.shard(key.1).get_mut(&key).map(Stream::give_up);
        drop(windows);
    }

    /// Drops the windows of handles that have not been read for some time.
    fn drop_idle(&self, now: Duration) {
        for shard in &self.shards {
            let Some(mut shard) = shard.try_lock() else { continue };
            let idle: Vec<_> =
                shard.values_mut().filter_map(|stream| stream.take_idle(now)).collect();
            drop(shard);
            drop(idle);
        }
    }
}

/// Returns the answer to a read, from one window or from several that follow each other.
fn take(found: &[Arc<Slot>], offset: u64, len: usize, room: &mut [u8]) -> Option<AnswerAhead> {
    let (first, others) = found.split_first()?;
    let ahead = first.wait()?;
    if let Some(range) = ahead.content().find(offset, len) {
        return Some(AnswerAhead::Window(ahead, range));
    }
    let room = room.get_mut(..len)?;
    let mut filled = copy(&ahead, offset, room)?;
    let mut used = vec![ahead];
    for slot in others {
        let ahead = slot.wait()?;
        filled += copy(&ahead, offset + filled as u64, &mut room[filled..])?;
        let is_end = ahead.content().is_end();
        used.push(ahead);
        if is_end {
            break;
        }
    }
    let is_whole = filled == len || used.last().is_some_and(|ahead| ahead.content().is_end());
    // A write between two waits has made the windows before it old: all have the bytes of one moment.
    let are_current = used.iter().all(|ahead| ahead.content().is_current());
    (is_whole && are_current).then_some(AnswerAhead::InPlace(filled))
}

/// Copies the bytes of a window from `offset` on to `room`; returns their number.
fn copy(ahead: &Ahead, offset: u64, room: &mut [u8]) -> Option<usize> {
    let content = ahead.content();
    let in_window = usize::try_from(offset.checked_sub(content.start())?).ok()?;
    let len = content.bytes().len().checked_sub(in_window)?.min(room.len());
    let range = content.find(offset, len)?;
    room[..len].copy_from_slice(&content.bytes()[range]);
    Some(len)
}

#[cfg(test)]
mod tests;
