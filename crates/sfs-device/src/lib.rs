//! Block devices under SFS: the [`Device`] contract, its implementations, and aligned memory.
//!
//! [`FileDevice`] is the production device, on an image file or a block device. [`RamDevice`] holds
//! its blocks in memory. [`RecordingDevice`], [`FaultyDevice`] and [`GatedDevice`] wrap another device for
//! tests and the simulator. [`FaultRules`] select requests to fail, for devices that users can make fail. After a [`Device::flush`] succeeds, every write that was acknowledged before
//! the flush is durable. The crate does not interpret the content of blocks.

#![deny(unsafe_code)]

mod block;
mod copies;
mod device;
mod error;
mod fault_rules;
mod faulty;
mod file;
mod gated;
mod geometry;
#[expect(unsafe_code, reason = "memory mapped without the allocator")]
mod mmap_region;
mod pieces;
mod pointer;
mod ram;
#[expect(unsafe_code, reason = "requests that the kernel serves while the caller waits")]
mod read_ring;
mod recording;
#[expect(unsafe_code, reason = "memory that outlives the process")]
mod shared_window;
#[expect(unsafe_code, reason = "system calls that std does not offer")]
mod sys;
mod transfer;

pub use block::{BLOCK_SIZE, Block};
pub use copies::{Copies, Moment, WantedBlock};
pub use device::{Device, ReadPart, ReadRun, Stream};
pub use error::{DeviceError, Late, Operation};
pub use fault_rules::{FaultKind, FaultRule, FaultRules, Operations, RequestFaults};
pub use faulty::FaultyDevice;
pub use file::{Access, FileDevice, OpenError, OpenErrorKind};
pub use gated::GatedDevice;
pub use geometry::{BlockDeviceNumber, Geometry};
pub use mmap_region::MmapRegion;
pub use ram::RamDevice;
pub use recording::{BlockRange, Event, Keep, RecordingDevice, RequestCounts, image_after};
pub use shared_window::SharedWindow;
