//! An SSD that a test lets fail, lie, or do something else while it reads.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sfs_device::{Block, Device, DeviceError, Geometry, Operation, RecordingDevice, Stream};

use crate::image::CowImage;

/// Fault of the SSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Requests of this kind fail.
    Fails(Operation),
    /// Reads return wrong data.
    Lies,
    /// Reads return a wrong bit in the bytes that the checksum of a node leaves out.
    LiesInHead,
    /// Writes are acknowledged and lost.
    Loses,
}

type OnRead = Box<dyn FnOnce() + Send>;

/// An SSD in memory, whose requests are recorded.
pub(super) struct Ssd {
    inner: RecordingDevice<CowImage>,
    fault: Mutex<Fault>,
    /// Called by the next read, before it reads.
    on_read: Mutex<Option<OnRead>>,
    has_lied: AtomicBool,
}

impl Ssd {
    pub(super) fn new(inner: RecordingDevice<CowImage>) -> Self {
        let (fault, on_read) = (Mutex::default(), Mutex::default());
        Self { inner, fault, on_read, has_lied: AtomicBool::new(false) }
    }

    pub(super) fn recording(&self) -> &RecordingDevice<CowImage> {
        &self.inner
    }

    pub(super) fn break_down(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    pub(super) fn fault(&self) -> Fault {
        *self.fault.lock()
    }

    pub(super) fn on_next_read(&self, act: OnRead) {
        *self.on_read.lock() = Some(act);
    }

    /// Forgets what the next read was to call.
    pub(super) fn forget_act(&self) {
        *self.on_read.lock() = None;
    }

    /// Returns whether the SSD has returned wrong data, or lost a write.
    pub(super) fn has_lied(&self) -> bool {
        self.has_lied.load(Ordering::Relaxed)
    }

    fn admit(&self, operation: Operation, address: u64, count: u64) -> Result<(), DeviceError> {
        match self.fault() {
            Fault::Fails(failing) if failing == operation => {
                let error = io::Error::other("the SSD fails");
                Err(DeviceError::of_blocks(operation, address, count, error))
            }
            _ => Ok(()),
        }
    }
}

impl Device for Ssd {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let act = self.on_read.lock().take();
        if let Some(act) = act {
            act();
        }
        self.admit(Operation::Read, address, buffer.len() as u64)?;
        self.inner.read(address, buffer)?;
        let at = match self.fault() {
            Fault::Lies => 4000,
            Fault::LiesInHead => 2,
            _ => return Ok(()),
        };
        self.has_lied.store(true, Ordering::Relaxed);
        buffer.iter_mut().for_each(|block| block.0[at] ^= 1);
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let count = parts.iter().map(|part| part.len() as u64).sum();
        self.admit(Operation::Write, address, count)?;
        if self.fault() == Fault::Loses {
            self.has_lied.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.admit(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.inner.discard(address, count)
    }
}
