//! A device whose flushes can be held up, and a volume on it that is nearly full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_device::{Block, Device, DeviceError, Geometry, RamDevice, Stream};

use crate::rig::{Random, blocks_for, caller, create, format, open, write};

/// How long a slow flush takes.
const SLOW: Duration = Duration::from_millis(20);

/// Who waits for something else meanwhile gets it after this time.
const HELD_UP: Duration = Duration::from_millis(500);

pub(crate) struct Gate {
    pub(crate) inner: RamDevice,
    /// Every flush takes its time.
    pub(crate) slow: AtomicBool,
    closed: Mutex<bool>,
    opened: Condvar,
    waits: AtomicBool,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
    }

    /// Opens in a while, whatever happens.
    pub(crate) fn open_later(self: &Arc<Self>) {
        let gate = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(HELD_UP);
            gate.open();
        });
    }

    pub(crate) fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }

    pub(crate) fn wait_for_flush(&self) {
        while !self.waits.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

impl Device for Gate {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.inner.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut closed = self.closed.lock();
        self.waits.store(*closed, Ordering::SeqCst);
        while *closed {
            self.opened.wait(&mut closed);
        }
        self.waits.store(false, Ordering::SeqCst);
        drop(closed);
        if self.slow.load(Ordering::SeqCst) {
            std::thread::sleep(SLOW);
        }
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.inner.discard(address, count)
    }
}

/// Many small files, one that can be emptied, and one that fills the rest and has been overwritten
/// until few segments are Clean. A file "doomed" can be deleted.
pub(crate) struct Scene {
    pub(crate) device: Arc<Gate>,
    pub(crate) volume: Volume,
    pub(crate) small: Vec<u64>,
    pub(crate) emptied: u64,
    pub(crate) large: u64,
}

/// A volume of `segments` segments with so many small `files`, and `doomed` blocks of the file that
/// can be deleted; no more than `clean` segments are Clean.
pub(crate) fn scene(segments: u64, files: usize, doomed: u64, clean: u32) -> Scene {
    let device = Arc::new(Gate {
        inner: RamDevice::new(blocks_for(segments)),
        slow: AtomicBool::new(false),
        closed: Mutex::new(false),
        opened: Condvar::new(),
        waits: AtomicBool::new(false),
    });
    format(&device, 32);
    let volume = open(&device);
    let small: Vec<u64> = (0..files).map(|i| create(&volume, &format!("s{i}"))).collect();
    let doomed_file = create(&volume, "doomed");
    for at in 0..doomed {
        write(&volume, doomed_file, at, &[1; 4096]).unwrap();
    }
    volume.sync_all().unwrap();
    let emptied = create(&volume, "emptied");
    write(&volume, emptied, 0, &[1; 3 * 4096]).unwrap();
    let large = create(&volume, "large");
    let mut count = 0;
    while write(&volume, large, count, &[1; 4 * 4096]).is_ok() {
        count += 4;
        if count % 64 == 0 {
            volume.sync_all().unwrap();
        }
    }
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device);
    if doomed > 300 {
        volume.unlink(ROOT_INO, b"doomed", &caller()).unwrap();
        volume.forget(doomed_file, 1);
        volume.sync_all().unwrap();
    }
    let mut random = Random(7);
    for _ in 0..200_000 {
        write(&volume, large, random.below(count), &[2; 4096]).unwrap();
        volume.sync_file(large).unwrap();
        if volume.status().segments.clean <= clean {
            break;
        }
    }
    Scene { device, volume, small, emptied, large }
}
