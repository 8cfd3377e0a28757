//! A device whose superblocks stay in memory until the volume on it is finished.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sfs_core::format::{LOCATOR_ADDRESS, Layout, SUPERBLOCK_ADDRESS};
use sfs_device::{Block, Device, DeviceError, Geometry, Stream};

/// Device with a volume that is not finished. Reads see what was written; the superblocks on the medium stay as they
/// were.
pub(super) struct UnfinishedDevice {
    inner: Arc<dyn Device>,
    /// The first superblock, the locator and the backup, once they were written.
    held: Mutex<BTreeMap<u64, Option<Block>>>,
}

impl UnfinishedDevice {
    /// Wraps the device of a volume with `layout`.
    pub(super) fn new(inner: Arc<dyn Device>, layout: &Layout) -> Self {
        let held = [LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, layout.backup].map(|at| (at, None));
        Self { inner, held: Mutex::new(held.into()) }
    }

    /// Writes the superblocks, after everything else is durable: the first copy last.
    pub(super) fn finish(&self) -> Result<(), DeviceError> {
        let held = self.held.lock().expect("no holder panics");
        self.inner.flush()?;
        // The backup has the highest address, the first copy the lowest.
        for (at, block) in held.iter().rev() {
            if let Some(block) = block {
                self.inner.write(*at, &[std::slice::from_ref(block)], Stream::default())?;
                self.inner.flush()?;
            }
        }
        Ok(())
    }
}

impl Device for UnfinishedDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.inner.read(address, buffer)?;
        let held = self.held.lock().expect("no holder panics");
        for (at, block) in held.range(address..address + buffer.len() as u64) {
            if let Some(block) = block {
                buffer[(at - address) as usize].clone_from(block);
            }
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let count: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut held = self.held.lock().expect("no holder panics");
        let mut is_held = false;
        for (at, kept) in held.range_mut(address..address + count) {
            *kept = parts.iter().copied().flatten().nth((at - address) as usize).cloned();
            is_held = true;
        }
        drop(held);
        // Nothing but a superblock is written to these addresses, each alone.
        if is_held { Ok(()) } else { self.inner.write(address, parts, stream) }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.inner.discard(address, count)
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::RamDevice;

    use super::*;

    #[test]
    fn superblocks_reach_the_medium_only_at_the_end() {
        let ram = Arc::new(RamDevice::new(5000));
        let layout = Layout::new(5000, 32, 0).expect("a layout");
        let device = UnfinishedDevice::new(ram.clone(), &layout);
        let block = |byte| [Block([byte; 4096])];
        let places = [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, layout.backup];
        for at in places.into_iter().chain([700]) {
            device.write(at, &[&block(at as u8)], Stream::default()).expect("a write");
        }
        let read = |device: &dyn Device, at| {
            let mut found = Block::zeroed(1);
            device.read(at, &mut found).expect("a read");
            found[0].0[0]
        };
        assert_eq!(read(&*ram, 700), 700u64 as u8);
        for at in places {
            assert_eq!((read(&device, at), read(&*ram, at)), (at as u8, 0));
        }
        device.finish().expect("the end");
        for at in places {
            assert_eq!(read(&*ram, at), at as u8);
        }
    }
}
