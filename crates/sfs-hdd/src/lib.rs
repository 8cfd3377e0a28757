//! A model of a hard drive, which times the requests of a host by the drive's mechanics.
//!
//! [`HardDrive`] has an arm whose seeks take time by their distance ([`SeekCurve`]), platters that rotate, tracks
//! of more sectors in the outer zones ([`DriveGeometry`]), a buffer that reads ahead, and a write cache that a
//! flush empties. [`CommandQueue`] reorders waiting requests as native command queueing does. [`DriveProfile`]
//! describes a drive by its data sheet. Requests, times and the block device over a model are those of
//! `sfs-ssd`; as there, times are virtual, nothing is random, and nothing reads a clock.
#![forbid(unsafe_code)]

mod cache;
mod counters;
mod drive;
mod geometry;
mod profile;
mod queue;
mod seek;

pub use counters::DriveCounters;
pub use drive::HardDrive;
pub use geometry::{DriveGeometry, SectorPlace, Zone};
pub use profile::{DataSheet, DriveProfile, profiles};
pub use queue::CommandQueue;
pub use seek::SeekCurve;

use sfs_device::BLOCK_SIZE;

/// Size of a sector in bytes.
pub const SECTOR_SIZE: u64 = 512;

/// Number of sectors of a block of 4 KiB.
pub const SECTORS_PER_BLOCK: u64 = BLOCK_SIZE as u64 / SECTOR_SIZE;

/// Block device over a hard drive.
pub type HddDevice = sfs_ssd::ModelDevice<HardDrive>;
