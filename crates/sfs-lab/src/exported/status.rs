//! The contents of a control file, as JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sfs_hdd::{DriveCounters, HardDrive};
use sfs_mkfs::Human;
use sfs_ssd::{Ssd, SsdCounters, TimedModel};

use super::control::FaultStatus;

/// The common part of the status of all exported disks.
pub struct CommonStatus {
    pub(super) model: String,
    pub(super) virtual_ns: u64,
    pub(super) real_time: bool,
    pub(super) recorded: u64,
    pub(super) faults: Vec<FaultStatus>,
}

/// Model that can be exported.
pub trait Exportable: TimedModel + Send + 'static {
    /// The status of the disk.
    type Status: Serialize + DeserializeOwned;

    /// Returns the status.
    fn status(&self, common: CommonStatus) -> Self::Status;

    /// Sets the counters to zero.
    fn reset_counters(&mut self);

    /// Returns what the disk has done, in words.
    fn summary(&self) -> String;
}

/// Status of an exported flash device.
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
    /// Faults that are switched on.
    pub faults: Vec<FaultStatus>,
    /// Counters of the model, since their last reset.
    pub counters: SsdCounters,
}

/// Status of an exported hard drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedHddStatus {
    /// Name of the profile.
    pub model: String,
    /// Capacity for the host, in bytes.
    pub capacity: u64,
    /// Virtual time since the drive was made, in nanoseconds.
    pub virtual_ns: u64,
    /// `true` if requests take as long as on the drive.
    pub real_time: bool,
    /// Number of requests in the record; zero without a record.
    pub recorded: u64,
    /// Number of bytes in the write cache that are not on the platters.
    pub cached_bytes: u64,
    /// Faults that are switched on.
    pub faults: Vec<FaultStatus>,
    /// Counters of the model, since their last reset.
    pub counters: DriveCounters,
}

impl Exportable for Ssd {
    type Status = ExportedStatus;

    fn status(&self, common: CommonStatus) -> ExportedStatus {
        ExportedStatus {
            model: common.model,
            capacity: self.capacity(),
            erase_block: Ssd::geometry(self).cluster_size(),
            virtual_ns: common.virtual_ns,
            real_time: common.real_time,
            recorded: common.recorded,
            write_amplification: self.write_amplification(),
            faults: common.faults,
            counters: *self.counters(),
        }
    }

    fn reset_counters(&mut self) {
        Ssd::reset_counters(self);
    }

    fn summary(&self) -> String {
        let counters = self.counters();
        format!(
            "written {}, write amplification {:.3}, {} erases, {} discards",
            Human(counters.host_bytes_written),
            self.write_amplification(),
            counters.erases,
            counters.trim_requests
        )
    }
}

impl Exportable for HardDrive {
    type Status = ExportedHddStatus;

    fn status(&self, common: CommonStatus) -> ExportedHddStatus {
        ExportedHddStatus {
            model: common.model,
            capacity: self.capacity(),
            virtual_ns: common.virtual_ns,
            real_time: common.real_time,
            recorded: common.recorded,
            cached_bytes: self.cached_bytes(),
            faults: common.faults,
            counters: *self.counters(),
        }
    }

    fn reset_counters(&mut self) {
        HardDrive::reset_counters(self);
    }

    fn summary(&self) -> String {
        let counters = self.counters();
        format!(
            "read {}, written {}, {} seeks",
            Human(counters.host_bytes_read),
            Human(counters.host_bytes_written),
            counters.seeks
        )
    }
}
