//! A device that lies: it acknowledges what it does not do, or does elsewhere.
//!
//! Owns: the one lie to come, and how much of the device is left.
//! Promises: nothing but the lie goes wrong.
//! Never: fails a request, but one beyond what is left, or for want of space beneath.

use std::io;

use parking_lot::Mutex;
use sfs_device::{Block, Device, DeviceError, Geometry, Operation, Stream};

use crate::image::Image;

/// What becomes of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It is acknowledged and not done.
    Lost,
    /// Only its first half is done.
    Half,
    /// It goes so many blocks further on; wraps around at the end of the device.
    Misdirected(u64),
    /// It is done, and done again so many blocks further on.
    Duplicated(u64),
}

/// An image that lies once.
pub struct LyingDevice {
    inner: Image,
    state: Mutex<State>,
}

struct State {
    /// The lie, and the writes until then: 1 for the next.
    coming: Option<(u64, Lie)>,
    /// Blocks that there still are.
    left: u64,
    /// Blocks that may still be written for the first time since the file beneath is full.
    room: u64,
}

impl LyingDevice {
    /// An honest device that holds what `inner` does.
    pub fn new(inner: Image) -> Self {
        let left = inner.geometry().block_count;
        Self { inner, state: Mutex::new(State { coming: None, left, room: u64::MAX }) }
    }

    /// What it holds.
    pub fn image(&self) -> Image {
        self.inner.clone()
    }

    /// The `nth` write from now on is a lie; 1 is the next.
    pub fn lie(&self, nth: u64, lie: Lie) {
        self.state.lock().coming = Some((nth, lie));
    }

    /// From now on there are only `blocks` blocks, whatever the geometry says.
    pub fn shrink(&self, blocks: u64) {
        self.state.lock().left = blocks;
    }

    /// The filesystem beneath has room for so many blocks more: then writes fail with ENOSPC.
    pub fn fill(&self, blocks: u64) {
        self.state.lock().room = blocks;
    }

    /// Fails what lies beyond what is left.
    fn reach(&self, operation: Operation, address: u64, count: u64) -> Result<(), DeviceError> {
        let left = self.state.lock().left;
        Geometry { block_count: left, ..Geometry::default() }
            .check_range(operation, address, count)
            .map_err(|error| error_of(error, io::ErrorKind::Other))
    }

    fn take_room(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        match state.room.checked_sub(count) {
            Some(room) => {
                state.room = room;
                Ok(())
            }
            None => {
                let full = io::Error::from(io::ErrorKind::StorageFull);
                Err(DeviceError::of_blocks(Operation::Write, address, count, full))
            }
        }
    }

    /// The lie that the present write is.
    fn next_lie(&self) -> Option<Lie> {
        let mut state = self.state.lock();
        let (nth, lie) = state.coming?;
        state.coming = (nth > 1).then_some((nth - 1, lie));
        (nth == 1).then_some(lie)
    }
}

/// As the kernel answers for a device that has gone.
fn error_of(error: DeviceError, kind: io::ErrorKind) -> DeviceError {
    DeviceError { source: io::Error::from(kind), ..error }
}

impl Device for LyingDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.reach(Operation::Read, address, buffer.len() as u64)?;
        self.inner.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let content = parts.concat();
        let count = content.len() as u64;
        self.reach(Operation::Write, address, count)?;
        self.take_room(address, count)?;
        let end = self.inner.geometry().block_count;
        let elsewhere = |by: u64| (address + by) % (end - count);
        let put = |at, content: &[Block]| self.inner.write(at, &[content], stream);
        match self.next_lie() {
            None => put(address, &content),
            Some(Lie::Lost) => Ok(()),
            Some(Lie::Half) => put(address, &content[..content.len() / 2]),
            Some(Lie::Misdirected(by)) => put(elsewhere(by), &content),
            Some(Lie::Duplicated(by)) => {
                put(address, &content)?;
                put(elsewhere(by), &content)
            }
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.reach(Operation::Discard, address, count)?;
        self.inner.discard(address, count)
    }
}
