//! A device that records the requests to another device.
//!
//! Requests that fail are neither listed nor counted. A flush is listed at the position where it began:
//! every write listed before a flush was acknowledged before the flush began, and is covered by it.

mod event;

use parking_lot::Mutex;

pub use self::event::{BlockRange, Event, image_after};

use crate::block::Block;
use crate::device::{Device, Stream};
use crate::error::DeviceError;
use crate::geometry::Geometry;

/// Details that a recording stores of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// [`RequestCounts`] only; a recording of any length takes constant memory.
    Counts,
    /// Addresses and lengths.
    Requests,
    /// Addresses, lengths and the written blocks, from which images can be made.
    Contents,
}

/// Numbers of requests that succeeded, and of the blocks of these requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Number of read requests.
    pub reads: u64,
    /// Number of blocks that were read.
    pub read_blocks: u64,
    /// Number of write requests.
    pub writes: u64,
    /// Number of blocks that were written.
    pub written_blocks: u64,
    /// Number of flush requests.
    pub flushes: u64,
    /// Number of discard requests.
    pub discards: u64,
    /// Number of blocks that were discarded.
    pub discarded_blocks: u64,
}

/// Device that forwards every request and records it.
pub struct RecordingDevice<D> {
    inner: D,
    keep: Keep,
    recording: Mutex<RequestLog>,
}

#[derive(Default)]
struct RequestLog {
    counts: RequestCounts,
    reads: Vec<BlockRange>,
    /// Events with a unique number, by which a failed flush is removed.
    events: Vec<(u64, Event)>,
    event_no_next: u64,
}

impl<D: Device> RecordingDevice<D> {
    /// Wraps `inner`, and records the requests to it from now on.
    pub fn new(inner: D, keep: Keep) -> RecordingDevice<D> {
        RecordingDevice { inner, keep, recording: Mutex::default() }
    }

    /// Returns the inner device. Requests to the inner device itself are not recorded.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the inner device and drops the recording.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Returns the counts since this device was made, or since the last [`RecordingDevice::reset`].
    pub fn counts(&self) -> RequestCounts {
        self.recording.lock().counts
    }

    /// Returns the recorded events, in order.
    pub fn events(&self) -> Vec<Event> {
        let recording = self.recording.lock();
        recording.events.iter().map(|(_, event)| event.clone()).collect()
    }

    /// Returns the number of recorded events.
    pub fn event_count(&self) -> usize {
        self.recording.lock().events.len()
    }

    /// Removes the events from the recording and returns them, in order.
    pub fn take_events(&self) -> Vec<Event> {
        let events = std::mem::take(&mut self.recording.lock().events);
        events.into_iter().map(|(_, event)| event).collect()
    }

    /// Removes the reads from the recording and returns them, in order.
    pub fn take_reads(&self) -> Vec<BlockRange> {
        std::mem::take(&mut self.recording.lock().reads)
    }

    /// Clears the recording, its counts included.
    pub fn reset(&self) {
        let mut recording = self.recording.lock();
        *recording = RequestLog { event_no_next: recording.event_no_next, ..RequestLog::default() };
    }

    /// Appends `event`, updates the counts by `count`, and returns the number of the event.
    fn record(&self, event: Event, count: impl FnOnce(&mut RequestCounts)) -> u64 {
        let mut recording = self.recording.lock();
        count(&mut recording.counts);
        let event_no = recording.event_no_next;
        recording.event_no_next += 1;
        if self.keep != Keep::Counts {
            recording.events.push((event_no, event));
        }
        event_no
    }
}

impl<D: Device> Device for RecordingDevice<D> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        self.inner.refresh_block_count()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.inner.read(address, buffer)?;
        let range = BlockRange::new(address, buffer.len());
        let mut recording = self.recording.lock();
        recording.counts.reads += 1;
        recording.counts.read_blocks += range.block_count;
        if self.keep != Keep::Counts {
            recording.reads.push(range);
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.inner.write(address, parts, stream)?;
        let range = BlockRange::new(address, parts.iter().map(|part| part.len()).sum());
        let event = Event::Write {
            range,
            stream,
            content: (self.keep == Keep::Contents).then(|| parts.concat().into()),
        };
        self.record(event, |counts| {
            counts.writes += 1;
            counts.written_blocks += range.block_count;
        });
        Ok(())
    }

    /// Records the flush at the position where it began. A write that is acknowledged during the flush is
    /// listed after it, because the flush may not cover this write.
    fn flush(&self) -> Result<(), DeviceError> {
        let event_no = self.record(Event::Flush, |_| {});
        let result = self.inner.flush();
        let mut recording = self.recording.lock();
        match result {
            Ok(()) => recording.counts.flushes += 1,
            Err(_) => recording.events.retain(|(no, _)| *no != event_no),
        }
        result
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.inner.discard(address, count)?;
        let range = BlockRange { address, block_count: count };
        self.record(Event::Discard { range }, |counts| {
            counts.discards += 1;
            counts.discarded_blocks += count;
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
