//! The exported model: serves reads, writes, flushes and discards, and keeps the record of requests.

use anyhow::Result;
use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};
use sfs_hdd::HardDrive;
use sfs_ssd::{HostRequest, ModelClock, ModelDevice, RequestKind, Ssd, TimeMode};

use super::control::{ControlCommand, FaultStatus};
use super::status::{CommonStatus, Exportable};
use crate::block_trace::{BlockTrace, TraceRecord};

/// Size of the requests that fill the device, in bytes.
const FILL_SIZE: u64 = 1 << 20;

/// A model with its contents, and the record of its requests.
pub struct ExportedDisk<M> {
    device: ModelDevice<M>,
    name: String,
    records: Option<Mutex<Vec<TraceRecord>>>,
}

/// An exported flash device.
pub type ExportedSsd = ExportedDisk<Ssd>;

/// An exported hard drive.
pub type ExportedHdd = ExportedDisk<HardDrive>;

/// A disk of any model, as the FUSE directory needs it. Offsets and lengths are in bytes, and of whole blocks.
pub trait ServedDisk: Send + Sync {
    /// Returns the capacity in bytes.
    fn capacity(&self) -> u64;

    /// Returns whether requests gain by being served on several threads.
    fn serves_together(&self) -> bool;

    /// Returns the contents of the control file.
    fn status_text(&self) -> String;

    /// Carries out a command of the control file.
    ///
    /// # Errors
    ///
    /// If the text is no command.
    fn command(&self, text: &str) -> Result<()>;

    /// Reads blocks.
    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, DeviceError>;

    /// Writes blocks.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Flushes the device.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Discards the whole blocks in a range of bytes.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError>;

    /// Writes zeros to blocks, as a disk without a command for zeros does.
    fn zero(&self, offset: u64, len: u64) -> Result<(), DeviceError>;

    /// Returns the requests so far; none without a record.
    fn trace(&self) -> BlockTrace;

    /// Returns a sentence on what the disk has done.
    fn summary(&self) -> String;
}

impl ExportedSsd {
    /// Returns the model as a disk, with a record of requests if `record` is set. If `filled` is
    /// set, writes every page once before counting starts.
    pub fn new(
        mut ssd: Ssd,
        name: String,
        pace: TimeMode,
        filled: bool,
        record: bool,
    ) -> ExportedSsd {
        if filled {
            fill(&mut ssd);
        }
        ExportedDisk::with_clock(ssd, name, ModelClock::new(pace), record)
    }
}

/// Writes every page of a device once, and sets its counters to zero.
fn fill(ssd: &mut Ssd) {
    let capacity = ssd.capacity();
    for offset in (0..capacity).step_by(FILL_SIZE as usize) {
        let len = FILL_SIZE.min(capacity - offset);
        ssd.serve(&HostRequest::new(RequestKind::Write, offset, len), 0);
    }
    ssd.reset_counters();
}

impl<M: Exportable> ExportedDisk<M> {
    /// Returns a model as a disk whose clock may be that of other disks, with a record of requests if `record` is
    /// set.
    pub fn with_clock(model: M, name: String, clock: ModelClock, record: bool) -> ExportedDisk<M> {
        let records = record.then(Mutex::default);
        ExportedDisk { device: ModelDevice::with_clock(model, clock), name, records }
    }

    /// Returns the status as it is now.
    pub fn status(&self) -> M::Status {
        let faults = |rules: &mut sfs_device::FaultRules| -> Vec<FaultStatus> {
            rules.rules().iter().map(FaultStatus::of).collect()
        };
        let common = CommonStatus {
            model: self.name.clone(),
            virtual_ns: self.device.now_ns(),
            real_time: self.device.time_mode() == TimeMode::RealTime,
            recorded: self.records.as_ref().map_or(0, |records| records.lock().len() as u64),
            faults: self.device.with_faults(faults),
        };
        self.device.with_model(|model| model.status(common))
    }

    /// Sets the counters of the model to zero.
    pub fn reset(&self) {
        self.device.with_model(Exportable::reset_counters);
    }

    fn record(&self, kind: RequestKind, offset: u64, len: u64) {
        if let Some(records) = &self.records {
            records.lock().push(TraceRecord { at_us: 0, kind, offset, len, stream: 0 });
        }
    }
}

impl<M: Exportable> ServedDisk for ExportedDisk<M> {
    fn capacity(&self) -> u64 {
        self.device.geometry().block_count * BLOCK_SIZE as u64
    }

    fn serves_together(&self) -> bool {
        self.device.serves_together()
    }

    fn status_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.status()).expect("plain data");
        text.push('\n');
        text
    }

    fn command(&self, text: &str) -> Result<()> {
        match ControlCommand::parse(text)? {
            ControlCommand::Reset => self.reset(),
            ControlCommand::Time(mode) => self.device.set_time_mode(mode),
            ControlCommand::Fault(rule) => self.device.with_faults(|faults| faults.add(rule)),
            ControlCommand::Heal => self.device.with_faults(sfs_device::FaultRules::heal),
        }
        Ok(())
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, DeviceError> {
        let mut blocks = Block::zeroed((len / BLOCK_SIZE as u64) as usize);
        self.device.read(offset / BLOCK_SIZE as u64, &mut blocks)?;
        self.record(RequestKind::Read, offset, len);
        Ok(Block::bytes_of(&blocks).to_vec())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut blocks = Block::zeroed(bytes.len() / BLOCK_SIZE);
        for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(BLOCK_SIZE)) {
            block.0.copy_from_slice(bytes);
        }
        self.device.write(offset / BLOCK_SIZE as u64, &[&blocks], Stream::default())?;
        self.record(RequestKind::Write, offset, bytes.len() as u64);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()?;
        self.record(RequestKind::Flush, 0, 0);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let block = BLOCK_SIZE as u64;
        let (first, end) = (offset.div_ceil(block), (offset + len) / block);
        if first < end {
            self.device.discard(first, end - first)?;
            self.record(RequestKind::Trim, first * block, (end - first) * block);
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let zeros = vec![0; FILL_SIZE.min(len) as usize];
        for at in (offset..offset + len).step_by(zeros.len().max(1)) {
            let len = (offset + len - at).min(zeros.len() as u64);
            self.write(at, &zeros[..len as usize])?;
        }
        Ok(())
    }

    fn trace(&self) -> BlockTrace {
        let records = self.records.as_ref().map(|records| records.lock().clone());
        BlockTrace { records: records.unwrap_or_default() }
    }

    fn summary(&self) -> String {
        let time_s = self.device.now_ns() as f64 / 1e9;
        self.device.with_model(|model| format!("{}, {time_s:.3} s of device time", model.summary()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sfs_ssd::{SsdCounters, SsdProfile};

    fn disk(filled: bool) -> ExportedSsd {
        let config =
            SsdProfile::by_name("fast12").expect("a profile").with_capacity(16 << 20).config();
        let ssd = Ssd::new(&config).expect("a device");
        ExportedSsd::new(ssd, "fast12".into(), TimeMode::Virtual, filled, true)
    }

    #[test]
    fn writes_are_readable_counted_and_recorded() {
        let disk = disk(false);
        let bytes: Vec<u8> = (0..8192_u32).map(|no| (no % 251) as u8).collect();
        disk.write(4096, &bytes).expect("written");
        assert_eq!(disk.read(4096, 8192).expect("read"), bytes);
        disk.zero(4096, 4096).expect("zeroed");
        assert_eq!(disk.read(4096, 8192).expect("read")[..4096], [0; 4096]);
        assert_eq!(disk.read(8192, 4096).expect("read"), bytes[4096..]);
        disk.discard(8000, 8192).expect("discarded");
        disk.flush().expect("flushed");
        let status = disk.status();
        assert_eq!(status.counters.host_bytes_written, 12_288);
        assert_eq!((status.counters.trim_requests, status.counters.host_pages_trimmed), (1, 1));
        let kinds: Vec<_> = disk.trace().records.iter().map(|r| (r.kind, r.offset)).collect();
        use RequestKind::{Flush, Read, Trim, Write};
        let reads = [(Read, 4096), (Write, 4096), (Read, 4096), (Read, 8192)];
        assert_eq!(kinds[0], (Write, 4096));
        assert_eq!(kinds[1..5], reads);
        assert_eq!(kinds[5..], [(Trim, 8192), (Flush, 0)]);
        assert_eq!(status.recorded, 7);
        disk.reset();
        assert_eq!(disk.status().counters, SsdCounters::default());
    }

    #[test]
    fn a_filled_device_is_full_and_has_counted_nothing() {
        let disk = disk(true);
        assert_eq!(disk.status().counters, SsdCounters::default());
        disk.discard(0, 1 << 20).expect("discarded");
        assert_eq!(disk.status().counters.host_pages_trimmed, 256);
    }

    #[test]
    fn a_write_past_the_end_is_an_error_and_not_recorded() {
        let disk = disk(false);
        assert!(disk.write(disk.capacity(), &[0; 4096]).is_err());
        assert_eq!(disk.status().recorded, 0);
    }
}
