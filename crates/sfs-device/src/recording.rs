//! A device that remembers what it was asked.
//!
//! Owns: the log of requests to the device inside.
//! Promises: what stands before a flush in the log was acknowledged before the flush began.
//! Never: changes a request; lists or counts one that failed.

mod event;

use parking_lot::Mutex;

pub use self::event::{Event, Extent, image_after};

use crate::{Block, Device, DeviceError, Geometry, Stream};

/// How much a recording keeps of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only [`Counts`]: for runs without end.
    Counts,
    /// Addresses and lengths.
    Requests,
    /// What was written, too; images can be made from it.
    Contents,
}

/// How many requests succeeded, and how many blocks they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Blocks that were read.
    pub read_blocks: u64,
    /// Write requests.
    pub writes: u64,
    /// Blocks that were written.
    pub written_blocks: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Discard requests.
    pub discards: u64,
    /// Blocks that were let go.
    pub discarded_blocks: u64,
}

/// A device that passes every request on, and remembers it.
pub struct RecordingDevice<D> {
    inner: D,
    keep: Keep,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    counts: Counts,
    reads: Vec<Extent>,
    /// Each with a number by which a flush that fails is taken out again.
    events: Vec<(u64, Event)>,
    event_no_next: u64,
}

impl<D: Device> RecordingDevice<D> {
    /// Records the requests to `inner` from now on.
    pub fn new(inner: D, keep: Keep) -> RecordingDevice<D> {
        RecordingDevice { inner, keep, log: Mutex::default() }
    }

    /// The device inside. What is asked of it directly is not recorded.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device inside; the recording is dropped.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Requests since the beginning, or the last [`RecordingDevice::reset`].
    pub fn counts(&self) -> Counts {
        self.log.lock().counts
    }

    /// The events so far, in order.
    pub fn events(&self) -> Vec<Event> {
        let log = self.log.lock();
        log.events.iter().map(|(_, event)| event.clone()).collect()
    }

    /// How many events there are so far.
    pub fn event_count(&self) -> usize {
        self.log.lock().events.len()
    }

    /// Takes the events so far out of the recording.
    pub fn take_events(&self) -> Vec<Event> {
        let events = std::mem::take(&mut self.log.lock().events);
        events.into_iter().map(|(_, event)| event).collect()
    }

    /// Takes the reads so far out of the recording, in order.
    pub fn take_reads(&self) -> Vec<Extent> {
        std::mem::take(&mut self.log.lock().reads)
    }

    /// Forgets everything, counts too.
    pub fn reset(&self) {
        let mut log = self.log.lock();
        *log = Log { event_no_next: log.event_no_next, ..Log::default() };
    }

    /// Puts `event` into the log and does `count`; returns the event's number.
    fn record(&self, event: Event, count: impl FnOnce(&mut Counts)) -> u64 {
        let mut log = self.log.lock();
        count(&mut log.counts);
        let event_no = log.event_no_next;
        log.event_no_next += 1;
        if self.keep != Keep::Counts {
            log.events.push((event_no, event));
        }
        event_no
    }
}

impl<D: Device> Device for RecordingDevice<D> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.inner.read(address, buffer)?;
        let extent = Extent::new(address, buffer.len());
        let mut log = self.log.lock();
        log.counts.reads += 1;
        log.counts.read_blocks += extent.block_count;
        if self.keep != Keep::Counts {
            log.reads.push(extent);
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.inner.write(address, parts, stream)?;
        let extent = Extent::new(address, parts.iter().map(|part| part.len()).sum());
        let event = Event::Write {
            extent,
            stream,
            content: (self.keep == Keep::Contents).then(|| parts.concat().into()),
        };
        self.record(event, |counts| {
            counts.writes += 1;
            counts.written_blocks += extent.block_count;
        });
        Ok(())
    }

    /// Stands in the log where it began: a write that was acknowledged meanwhile comes after it,
    /// as the flush may have missed it.
    fn flush(&self) -> Result<(), DeviceError> {
        let event_no = self.record(Event::Flush, |_| {});
        let result = self.inner.flush();
        let mut log = self.log.lock();
        match result {
            Ok(()) => log.counts.flushes += 1,
            Err(_) => log.events.retain(|(no, _)| *no != event_no),
        }
        result
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.inner.discard(address, count)?;
        let extent = Extent { address, block_count: count };
        self.record(Event::Discard { extent }, |counts| {
            counts.discards += 1;
            counts.discarded_blocks += count;
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
