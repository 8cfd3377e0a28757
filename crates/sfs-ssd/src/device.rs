//! A block device over a model.
//!
//! The data is in a memory device by logical address; the model receives the same requests, and
//! computes counts and times. With [`TimeMode::Virtual`], the requests of a single thread give the
//! same counts and times in every run. With [`TimeMode::RealTime`], requests also take the time
//! that the model computes. The mode can change at any time.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Geometry, Operation, RamDevice, Stream};

use crate::request::{HostRequest, RequestKind};
use crate::ssd::Ssd;

/// Relation of the model's time to real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMode {
    /// Each request arrives, in virtual time, when the request before has ended. Calls do not wait.
    Virtual,
    /// A request arrives at the real time of the call, and the call returns when the request ends in the
    /// model.
    RealTime,
}

/// Block device whose requests are timed and counted by a model.
pub struct SsdDevice {
    bytes: RamDevice,
    model: Mutex<ClockedSsd>,
}

struct ClockedSsd {
    ssd: Ssd,
    now_ns: u64,
    clock: Clock,
}

/// Clock of the model.
#[derive(Clone, Copy)]
enum Clock {
    Virtual,
    /// Real time, and the model's time at the moment of the change to real time.
    Real {
        began: Instant,
        began_ns: u64,
    },
}

impl Clock {
    /// Returns the clock of a mode, which shows `now_ns` at this moment.
    fn of(time_mode: TimeMode, now_ns: u64) -> Clock {
        match time_mode {
            TimeMode::Virtual => Clock::Virtual,
            TimeMode::RealTime => Clock::Real { began: Instant::now(), began_ns: now_ns },
        }
    }

    /// Returns the real time in the model's terms, or `None` if time is virtual.
    fn real_ns(&self) -> Option<u64> {
        match self {
            Clock::Virtual => None,
            Clock::Real { began, began_ns } => Some(began_ns + began.elapsed().as_nanos() as u64),
        }
    }
}

impl SsdDevice {
    /// Wraps a model.
    ///
    /// The device reports its erase size only if `erase_size_known` is set, as MMC and SD cards do.
    pub fn new(ssd: Ssd, time_mode: TimeMode, erase_size_known: bool) -> SsdDevice {
        let page_size = ssd.geometry().page_size();
        let geometry = Geometry {
            block_count: ssd.capacity() / BLOCK_SIZE as u64,
            logical_block_size: 512,
            physical_block_size: BLOCK_SIZE as u32,
            discard_granularity: page_size.max(BLOCK_SIZE as u64),
            preferred_erase_size: match erase_size_known {
                true => ssd.geometry().cluster_size(),
                false => 0,
            },
            ..Geometry::default()
        };
        SsdDevice {
            bytes: RamDevice::with_geometry(geometry),
            model: Mutex::new(ClockedSsd { ssd, now_ns: 0, clock: Clock::of(time_mode, 0) }),
        }
    }

    /// Returns the relation of the model's time to real time.
    pub fn time_mode(&self) -> TimeMode {
        match self.model.lock().clock {
            Clock::Virtual => TimeMode::Virtual,
            Clock::Real { .. } => TimeMode::RealTime,
        }
    }

    /// Changes the relation of the model's time to real time.
    ///
    /// Real time begins when all work of the requests so far has ended in the model, so that no
    /// request waits for virtual time that has passed. A sleeping call is not woken.
    pub fn set_time_mode(&self, time_mode: TimeMode) {
        let mut model = self.model.lock();
        if time_mode == TimeMode::RealTime && model.clock.real_ns().is_some() {
            return;
        }
        let idle_ns = model.ssd.idle_ns();
        model.now_ns = model.now_ns.max(idle_ns);
        model.clock = Clock::of(time_mode, model.now_ns);
    }

    /// Calls `look` with the model, to read or reset its counters.
    pub fn with_model<T>(&self, look: impl FnOnce(&mut Ssd) -> T) -> T {
        look(&mut self.model.lock().ssd)
    }

    /// Returns the model's time after the last request, in nanoseconds since the device was made.
    pub fn now_ns(&self) -> u64 {
        self.model.lock().now_ns
    }

    fn serve(&self, kind: RequestKind, address: u64, count: u64, stream: Stream) {
        let block = BLOCK_SIZE as u64;
        let request = HostRequest {
            stream: stream.0,
            ..HostRequest::new(kind, address * block, count * block)
        };
        let mut model = self.model.lock();
        let clock = model.clock;
        let arrival_ns = clock.real_ns().unwrap_or(model.now_ns);
        let ended_ns = model.ssd.serve(&HostRequest { arrival_ns, ..request }, arrival_ns).ended_ns;
        model.ssd.clean(false, ended_ns);
        model.now_ns = model.now_ns.max(ended_ns);
        drop(model);
        if let Some(now_ns) = clock.real_ns() {
            std::thread::sleep(Duration::from_nanos(ended_ns.saturating_sub(now_ns)));
        }
    }
}

impl Device for SsdDevice {
    fn geometry(&self) -> &Geometry {
        self.bytes.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.bytes.read(address, buffer)?;
        self.serve(RequestKind::Read, address, buffer.len() as u64, Stream::default());
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.bytes.write(address, parts, stream)?;
        let count = parts.iter().map(|part| part.len() as u64).sum();
        self.serve(RequestKind::Write, address, count, stream);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.serve(RequestKind::Flush, 0, 0, Stream::default());
        Ok(())
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.geometry().check_range(Operation::Discard, address, count)?;
        self.bytes.discard(address, count)?;
        self.serve(RequestKind::Trim, address, count, Stream::default());
        Ok(())
    }
}
