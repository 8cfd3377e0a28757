//! A model that others can use as a disk: a directory with its bytes and its counters.
//!
//! Owns: the disk that is served, the record of its requests, and what the control file says.
//! Promises: one request at a time, in the order in which the kernel sends them; every request that
//! is answered with success is counted, and recorded if that was wanted.
//! Never: makes a loop device: the command does.

mod shell;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdCounters, SsdDevice, TimeMode};

use crate::block_trace::{BlockTrace, Record};

pub use shell::{CONTROL, DISK, serve};

/// Bytes of a request that fills the device.
const FILL_SIZE: u64 = 1 << 20;

/// A model with its bytes, and a record of what it was asked.
pub struct Exported {
    device: SsdDevice,
    name: String,
    records: Option<Mutex<Vec<Record>>>,
}

/// What the control file says, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// SsdProfile and translation layer.
    pub model: String,
    /// Bytes that the host sees.
    pub capacity: u64,
    /// Bytes of an erase block, as the host sees it.
    pub erase_block: u64,
    /// Virtual time since the device was made, in nanoseconds.
    pub virtual_ns: u64,
    /// Requests in the record; zero without one.
    pub recorded: u64,
    /// Bytes programmed over bytes that the host wrote, since the last reset.
    pub write_amplification: f64,
    /// Since the last reset.
    pub counters: SsdCounters,
}

impl Exported {
    /// The model as a disk. `filled` writes every page once before, and counts from then on.
    pub fn new(mut ssd: Ssd, name: String, pace: TimeMode, filled: bool, record: bool) -> Exported {
        if filled {
            let capacity = ssd.capacity();
            for offset in (0..capacity).step_by(FILL_SIZE as usize) {
                let len = FILL_SIZE.min(capacity - offset);
                ssd.serve(&HostRequest::new(RequestKind::Write, offset, len), 0);
            }
            ssd.reset_counters();
        }
        let records = record.then(Mutex::default);
        Exported { device: SsdDevice::new(ssd, pace, false), name, records }
    }

    /// Bytes that the host sees.
    pub fn capacity(&self) -> u64 {
        self.device.geometry().block_count * BLOCK_SIZE as u64
    }

    /// What there is to say now.
    pub fn status(&self) -> Status {
        let virtual_ns = self.device.now_ns();
        let recorded = self.records.as_ref().map_or(0, |records| records.lock().len() as u64);
        self.device.with_model(|ssd| Status {
            model: self.name.clone(),
            capacity: ssd.capacity(),
            erase_block: ssd.geometry().cluster_size(),
            virtual_ns,
            recorded,
            write_amplification: ssd.write_amplification(),
            counters: *ssd.counters(),
        })
    }

    /// Counts from zero again.
    pub fn reset(&self) {
        self.device.with_model(Ssd::reset_counters);
    }

    /// The requests so far; none without a record.
    pub fn trace(&self) -> BlockTrace {
        let records = self.records.as_ref().map(|records| records.lock().clone());
        BlockTrace { records: records.unwrap_or_default() }
    }

    fn record(&self, kind: RequestKind, offset: u64, len: u64) {
        if let Some(records) = &self.records {
            records.lock().push(Record { at_us: 0, kind, offset, len, stream: 0 });
        }
    }

    /// Reads whole blocks.
    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, DeviceError> {
        let mut blocks = Block::zeroed((len / BLOCK_SIZE as u64) as usize);
        self.device.read(offset / BLOCK_SIZE as u64, &mut blocks)?;
        self.record(RequestKind::Read, offset, len);
        Ok(blocks.iter().flat_map(|block| block.0).collect())
    }

    /// Writes whole blocks.
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

    /// Lets go of the whole blocks in a range.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let block = BLOCK_SIZE as u64;
        let (first, end) = (offset.div_ceil(block), (offset + len) / block);
        if first < end {
            self.device.discard(first, end - first)?;
            self.record(RequestKind::Trim, first * block, (end - first) * block);
        }
        Ok(())
    }

    /// Writes zeros: what a disk does that has no command for it.
    fn zero(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
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

    fn disk(filled: bool) -> Exported {
        let config =
            SsdProfile::by_name("fast12").expect("a profile").with_capacity(16 << 20).config();
        let ssd = Ssd::new(&config).expect("a device");
        Exported::new(ssd, "fast12".into(), TimeMode::Virtual, filled, true)
    }

    #[test]
    fn what_is_written_is_read_counted_and_recorded() {
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
    fn a_filled_device_starts_counting_full() {
        let disk = disk(true);
        assert_eq!(disk.status().counters, SsdCounters::default());
        disk.discard(0, 1 << 20).expect("discarded");
        assert_eq!(disk.status().counters.host_pages_trimmed, 256);
    }

    #[test]
    fn past_the_end_is_an_error() {
        let disk = disk(false);
        assert!(disk.write(disk.capacity(), &[0; 4096]).is_err());
        assert_eq!(disk.status().recorded, 0);
    }
}
