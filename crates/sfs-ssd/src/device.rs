//! A block device over a model.
//!
//! The data is in a memory device by logical address; the model receives the same requests, and
//! computes counts and times. With [`TimeMode::Virtual`], the requests of a single thread give the
//! same counts and times in every run. With [`TimeMode::RealTime`], requests also take the time
//! that the model computes. The mode can change at any time. In real time a request of another thread waits for the one before, and begins
//! in the model when that one ends, whenever its thread wakes. Requests that wait for a hard drive are served nearest first. The device has [`FaultRules`], so that it can be made to
//! fail.

use std::io;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sfs_device::{
    BLOCK_SIZE, Block, Device, DeviceError, FaultRules, Geometry, Operation, RamDevice,
    RequestFaults, Stream,
};

use crate::clock::{ModelClock, TimeMode};
use crate::model::TimedModel;
use crate::request::{HostRequest, RequestKind};
use crate::ssd::Ssd;

/// Error number of a request that a rule fails.
const EIO: i32 = 5;

/// Block device whose requests are timed and counted by a model.
pub struct ModelDevice<M> {
    bytes: RamDevice,
    clock: ModelClock,
    queue: Mutex<ModelQueue<M>>,
    /// Wakes the requests that wait for the model.
    free: Condvar,
    faults: Mutex<FaultRules>,
}

/// Block device over a flash device.
pub type SsdDevice = ModelDevice<Ssd>;

/// The model and the requests that wait for it.
struct ModelQueue<M> {
    model: M,
    waiting: Vec<(u64, HostRequest)>,
    /// Numbers of requests that were served, with the times of their ends.
    served: Vec<(u64, u64)>,
    /// End of the latest request, in nanoseconds.
    ended_ns: u64,
    next_no: u64,
}

impl ModelDevice<Ssd> {
    /// Wraps a flash device.
    ///
    /// The device reports its erase size only if `erase_size_known` is set, as MMC and SD cards do.
    pub fn new(ssd: Ssd, time_mode: TimeMode, erase_size_known: bool) -> SsdDevice {
        let preferred_erase_size = match erase_size_known {
            true => ssd.geometry().cluster_size(),
            false => 0,
        };
        let geometry = Geometry { preferred_erase_size, ..TimedModel::geometry(&ssd) };
        ModelDevice::with_geometry(ssd, geometry, ModelClock::new(time_mode))
    }
}

impl<M: TimedModel> ModelDevice<M> {
    /// Wraps a model. Devices of one experiment share their clock.
    pub fn with_clock(model: M, clock: ModelClock) -> ModelDevice<M> {
        let geometry = model.geometry();
        ModelDevice::with_geometry(model, geometry, clock)
    }

    fn with_geometry(model: M, geometry: Geometry, clock: ModelClock) -> ModelDevice<M> {
        let (waiting, served) = (Vec::new(), Vec::new());
        let queue = ModelQueue { model, waiting, served, ended_ns: 0, next_no: 0 };
        ModelDevice {
            bytes: RamDevice::with_geometry(geometry),
            clock,
            queue: Mutex::new(queue),
            free: Condvar::new(),
            faults: Mutex::default(),
        }
    }

    /// Returns the clock.
    pub fn clock(&self) -> &ModelClock {
        &self.clock
    }

    /// Returns the relation of the model's time to real time.
    pub fn time_mode(&self) -> TimeMode {
        self.clock.time_mode()
    }

    /// Changes the relation of the model's time to real time, for all devices with this clock.
    ///
    /// Real time begins when all work of the requests so far has ended in this model, so that no
    /// request waits for virtual time that has passed. A sleeping call is not woken.
    pub fn set_time_mode(&self, time_mode: TimeMode) {
        let queue = self.queue.lock();
        self.clock.set_time_mode(time_mode, queue.model.idle_ns());
    }

    /// Calls `look` with the model, to read or reset its counters.
    pub fn with_model<T>(&self, look: impl FnOnce(&mut M) -> T) -> T {
        look(&mut self.queue.lock().model)
    }

    /// Calls `change` with the rules of faults, to read, add or remove some.
    pub fn with_faults<T>(&self, change: impl FnOnce(&mut FaultRules) -> T) -> T {
        change(&mut self.faults.lock())
    }

    /// Returns the clock's time after the last request, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Returns whether a caller gains by serving requests that arrive together on several threads: in real time, as the time
    /// that a single thread takes to wake would come between two of them, and some models reorder them.
    pub fn serves_together(&self) -> bool {
        self.time_mode() == TimeMode::RealTime
    }

    /// Has the model serve a request, and waits for its end in real time.
    fn serve(
        &self,
        kind: RequestKind,
        (address, count): (u64, u64),
        stream: Stream,
        delay_ns: u64,
    ) {
        let block = BLOCK_SIZE as u64;
        let request = HostRequest {
            stream: stream.0,
            ..HostRequest::new(kind, address * block, count * block)
        };
        let (arrival_ns, is_real) = self.clock.arrival();
        let request = HostRequest { arrival_ns, ..request };
        let ended_ns = match is_real && self.queue.lock().model.free_ns().is_some() {
            true => self.serve_in_turn(request),
            false => self.queue.lock().serve_next(&request, is_real),
        };
        self.end(ended_ns.saturating_add(delay_ns), is_real);
    }

    /// Lets a request take time that the model does not see: a fault without work.
    fn delay(&self, delay_ns: u64) {
        let (now_ns, is_real) = self.clock.arrival();
        self.end(now_ns.saturating_add(delay_ns), is_real);
    }

    /// Advances the clock to the end of a request, and waits for it in real time.
    fn end(&self, ended_ns: u64, is_real: bool) {
        self.clock.advance(ended_ns);
        if is_real {
            thread::sleep(Duration::from_nanos(ended_ns.saturating_sub(self.clock.arrival().0)));
        }
    }

    /// Waits until the model has chosen the request among all that wait, and returns the time of its end.
    fn serve_in_turn(&self, request: HostRequest) -> u64 {
        let mut queue = self.queue.lock();
        let no = queue.next_no;
        queue.next_no += 1;
        queue.waiting.push((no, request));
        loop {
            if let Some(index) = queue.served.iter().position(|&(served, _)| served == no) {
                return queue.served.swap_remove(index).1;
            }
            let (now_ns, _) = self.clock.arrival();
            let free_ns = queue.model.free_ns().unwrap_or(0);
            if free_ns <= now_ns {
                queue.serve_nearest(now_ns);
                self.free.notify_all();
            } else {
                self.free.wait_for(&mut queue, Duration::from_nanos(free_ns - now_ns));
            }
        }
    }

    /// Returns the faults of a request, or the error that a rule wants.
    fn meet_faults(
        &self,
        operation: Operation,
        address: u64,
        count: u64,
    ) -> Result<RequestFaults, DeviceError> {
        let faults = self.faults.lock().decide(operation, address, count);
        if !faults.fails {
            return Ok(faults);
        }
        // A drive may take its time to give up.
        self.delay(faults.delay_ns);
        let source = io::Error::from_raw_os_error(EIO);
        Err(DeviceError::of_blocks(operation, address, count, source))
    }
}

impl<M: TimedModel> ModelQueue<M> {
    /// Serves a request after its arrival, in real time also after the request before, and returns the time of its end.
    fn serve_next(&mut self, request: &HostRequest, is_real: bool) -> u64 {
        let begun_ns =
            if is_real { request.arrival_ns.max(self.ended_ns) } else { request.arrival_ns };
        self.ended_ns = self.serve(request, begun_ns);
        self.ended_ns
    }

    /// Serves a request, and returns the time of its end.
    fn serve(&mut self, request: &HostRequest, at_ns: u64) -> u64 {
        let ended_ns = self.model.serve(request, at_ns).ended_ns;
        self.model.rest(ended_ns);
        ended_ns
    }

    /// Serves the nearest of the waiting requests.
    fn serve_nearest(&mut self, now_ns: u64) {
        let ns =
            |(no, request): &(u64, HostRequest)| (self.model.positioning_ns(request, now_ns), *no);
        let Some(index) = (0..self.waiting.len()).min_by_key(|&no| ns(&self.waiting[no])) else {
            return;
        };
        let (no, request) = self.waiting.swap_remove(index);
        let ended_ns = self.serve(&request, now_ns.max(request.arrival_ns));
        self.served.push((no, ended_ns));
    }
}

impl<M: TimedModel + Send> Device for ModelDevice<M> {
    fn geometry(&self) -> &Geometry {
        self.bytes.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let count = buffer.len() as u64;
        self.geometry().check_range(Operation::Read, address, count)?;
        let faults = self.meet_faults(Operation::Read, address, count)?;
        self.bytes.read(address, buffer)?;
        faults.corrupt(address, buffer);
        self.serve(RequestKind::Read, (address, count), Stream::default(), faults.delay_ns);
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let count = parts.iter().map(|part| part.len() as u64).sum();
        self.geometry().check_range(Operation::Write, address, count)?;
        let faults = self.meet_faults(Operation::Write, address, count)?;
        if faults.lost.is_empty() && faults.wrong.is_empty() {
            self.bytes.write(address, parts, stream)?;
        } else {
            let mut blocks: Vec<Block> = parts.concat();
            faults.corrupt(address, &mut blocks);
            for (address, block) in (address..).zip(&blocks) {
                if !faults.loses(address) {
                    self.bytes.write(address, &[std::slice::from_ref(block)], stream)?;
                }
            }
        }
        self.serve(RequestKind::Write, (address, count), stream, faults.delay_ns);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let faults = self.meet_faults(Operation::Flush, 0, 0)?;
        match faults.flush_lost {
            true => self.delay(faults.delay_ns),
            false => self.serve(RequestKind::Flush, (0, 0), Stream::default(), faults.delay_ns),
        }
        Ok(())
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.geometry().check_range(Operation::Discard, address, count)?;
        let faults = self.meet_faults(Operation::Discard, address, count)?;
        if faults.lost.is_empty() {
            self.bytes.discard(address, count)?;
            self.serve(RequestKind::Trim, (address, count), Stream::default(), faults.delay_ns);
        } else {
            self.discard_the_rest(address, count, &faults)?;
        }
        Ok(())
    }
}

impl<M: TimedModel + Send> ModelDevice<M> {
    /// Discards the blocks that no rule loses.
    fn discard_the_rest(
        &self,
        address: u64,
        count: u64,
        faults: &RequestFaults,
    ) -> Result<(), DeviceError> {
        for address in (address..address + count).filter(|&address| !faults.loses(address)) {
            self.bytes.discard(address, 1)?;
            self.serve(RequestKind::Trim, (address, 1), Stream::default(), 0);
        }
        self.delay(faults.delay_ns);
        Ok(())
    }
}
