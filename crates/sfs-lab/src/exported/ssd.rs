//! The exported model: serves reads, writes, flushes and discards, and keeps the record of requests.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdCounters, SsdDevice, TimeMode};

use crate::block_trace::{BlockTrace, TraceRecord};

/// Size of the requests that fill the device, in bytes.
const FILL_SIZE: u64 = 1 << 20;

/// A model with its contents, and the record of its requests.
pub struct ExportedSsd {
    device: SsdDevice,
    name: String,
    records: Option<Mutex<Vec<TraceRecord>>>,
}

/// Contents of the control file, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedStatus {
    /// Names of the profile and of the translation layer.
    pub model: String,
    /// Capacity for the host, in bytes.
    pub capacity: u64,
    /// Size of an erase block for the host, in bytes.
    pub erase_block: u64,
    /// Virtual time since the device was made, in nanoseconds.
    pub virtual_ns: u64,
    /// `true` if requests take as long as on the device.
    pub real_time: bool,
    /// Number of requests in the record; zero without a record.
    pub recorded: u64,
    /// Bytes programmed over bytes that the host wrote, since the last reset of the counters.
    pub write_amplification: f64,
    /// Counters of the model, since their last reset.
    pub counters: SsdCounters,
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
            let capacity = ssd.capacity();
            for offset in (0..capacity).step_by(FILL_SIZE as usize) {
                let len = FILL_SIZE.min(capacity - offset);
                ssd.serve(&HostRequest::new(RequestKind::Write, offset, len), 0);
            }
            ssd.reset_counters();
        }
        let records = record.then(Mutex::default);
        ExportedSsd { device: SsdDevice::new(ssd, pace, false), name, records }
    }

    /// Returns the capacity for the host, in bytes.
    pub fn capacity(&self) -> u64 {
        self.device.geometry().block_count * BLOCK_SIZE as u64
    }

    /// Returns the counters as they are now.
    pub fn status(&self) -> ExportedStatus {
        let virtual_ns = self.device.now_ns();
        let real_time = self.device.time_mode() == TimeMode::RealTime;
        let recorded = self.records.as_ref().map_or(0, |records| records.lock().len() as u64);
        self.device.with_model(|ssd| ExportedStatus {
            model: self.name.clone(),
            capacity: ssd.capacity(),
            erase_block: ssd.geometry().cluster_size(),
            virtual_ns,
            real_time,
            recorded,
            write_amplification: ssd.write_amplification(),
            counters: *ssd.counters(),
        })
    }

    /// Sets the counters of the model to zero.
    pub fn reset(&self) {
        self.device.with_model(Ssd::reset_counters);
    }

    /// Changes between virtual time and real time, in which requests take as long as on the device.
    pub fn set_time_mode(&self, time_mode: TimeMode) {
        self.device.set_time_mode(time_mode);
    }

    /// Returns the requests so far; none without a record.
    pub fn trace(&self) -> BlockTrace {
        let records = self.records.as_ref().map(|records| records.lock().clone());
        BlockTrace { records: records.unwrap_or_default() }
    }

    fn record(&self, kind: RequestKind, offset: u64, len: u64) {
        if let Some(records) = &self.records {
            records.lock().push(TraceRecord { at_us: 0, kind, offset, len, stream: 0 });
        }
    }

    /// Reads whole blocks. Offset and length are in bytes.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, DeviceError> {
        let mut blocks = Block::zeroed((len / BLOCK_SIZE as u64) as usize);
        self.device.read(offset / BLOCK_SIZE as u64, &mut blocks)?;
        self.record(RequestKind::Read, offset, len);
        Ok(blocks.iter().flat_map(|block| block.0).collect())
    }

    /// Writes whole blocks at an offset in bytes.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut blocks = Block::zeroed(bytes.len() / BLOCK_SIZE);
        for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(BLOCK_SIZE)) {
            block.0.copy_from_slice(bytes);
        }
        self.device.write(offset / BLOCK_SIZE as u64, &[&blocks], Stream::default())?;
        self.record(RequestKind::Write, offset, bytes.len() as u64);
        Ok(())
    }

    /// Flushes the device.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()?;
        self.record(RequestKind::Flush, 0, 0);
        Ok(())
    }

    /// Discards the whole blocks in a range of bytes.
    pub(super) fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let block = BLOCK_SIZE as u64;
        let (first, end) = (offset.div_ceil(block), (offset + len) / block);
        if first < end {
            self.device.discard(first, end - first)?;
            self.record(RequestKind::Trim, first * block, (end - first) * block);
        }
        Ok(())
    }

    /// Writes zeros to whole blocks, as a disk without a command for zeros does.
    pub(super) fn zero(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let zeros = vec![0; FILL_SIZE.min(len) as usize];
        for at in (offset..offset + len).step_by(zeros.len().max(1)) {
            let len = (offset + len - at).min(zeros.len() as u64);
            self.write(at, &zeros[..len as usize])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sfs_ssd::SsdProfile;

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
