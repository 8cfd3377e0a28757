//! Drives by their data sheets.

use serde::Serialize;

use crate::geometry::{DriveGeometry, Zone};
use crate::seek::SeekCurve;
use crate::{SECTOR_SIZE, SECTORS_PER_BLOCK};

/// Figures that the manufacturer states of a drive, to be compared with the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DataSheet {
    /// Mean time of a read seek, in milliseconds.
    pub mean_seek_ms: f64,
    /// Sustained transfer rate of the outermost zone, in MB/s (1,000,000 bytes).
    pub outer_mb_per_s: f64,
    /// The same of the innermost zone.
    pub inner_mb_per_s: f64,
    /// Seconds for a read of 16 MiB from the outermost zone by 128 commands, as typical.
    pub outer_16mib_s: f64,
    /// The same for the innermost zone.
    pub inner_16mib_s: f64,
    /// Seconds for 4,096 reads of one random sector each, one at a time, as typical.
    pub random_4096_s: f64,
    /// Factor of the manufacturer's "typical" over its own formula.
    pub typical: f64,
}

/// Profile of a commercial drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveProfile {
    /// Name of the profile in this project.
    pub name: &'static str,
    /// Name of the product.
    pub device: &'static str,
    /// Source of the figures.
    pub source: &'static str,
    /// Arrangement of the sectors.
    pub geometry: DriveGeometry,
    /// Time of a seek to the next cylinder, in microseconds.
    pub single_seek_us: u32,
    /// Mean time of all read seeks, in microseconds.
    pub mean_seek_us: u32,
    /// Time of the longest seek, in microseconds.
    pub full_seek_us: u32,
    /// Additional time of a seek before a write, in nanoseconds.
    pub write_settling_ns: u64,
    /// Time of a command without mechanics, in nanoseconds.
    pub command_ns: u64,
    /// Transfer time of a kibibyte over the host interface, in nanoseconds.
    pub link_kib_ns: u64,
    /// Number of bytes that the drive reads ahead.
    pub read_ahead_bytes: u64,
    /// Size of the write cache in bytes; zero if it is off.
    pub write_cache_bytes: u64,
    /// Depth of the command queue.
    pub queue_depth: usize,
    /// The manufacturer's figures.
    pub data_sheet: DataSheet,
}

/// Number of zones of the Deskstar, as in its specification.
const DESKSTAR_ZONES: u32 = 30;
/// Sectors of a track in the outermost and the innermost zone: 76.3 and 36.5 MB/s at 120 revolutions a second.
const DESKSTAR_TRACKS: (u32, u32) = (1242, 594);
/// Heads: five platters.
const DESKSTAR_HEADS: u32 = 10;
/// Sectors of the drive: 500 GB.
const DESKSTAR_SECTORS: u64 = 976_773_168;

/// Returns the profiles.
pub fn profiles() -> Vec<DriveProfile> {
    vec![deskstar_7k500()]
}

/// Hitachi Deskstar 7K500.
///
/// Instantaneous and sustained rates of the outermost and innermost zone, the number of zones and the times of
/// reads are in its specification (tables 10 to 12). 8.33 ms of each of ten tracks and the two rates give 14.8
/// ms for nine head switches and a cylinder switch. The number of cylinders is that of 500 GB. The times of a
/// single and of a full seek are those of an older Deskstar of 7,200 revolutions (60GXP: cylinder switch 1.8
/// ms, full stroke 14.7 ms, 1 ms more before writes). Zones of equally many cylinders, an even decline of the
/// sectors by track, the division of the 16 MB buffer and the command time of 0.1 ms are assumptions.
fn deskstar_7k500() -> DriveProfile {
    DriveProfile {
        name: "deskstar",
        device: "Hitachi Deskstar 7K500, 500 GB, 7,200 rpm",
        source: "Hitachi, Deskstar 7K500 and E7K500 Hard Disk Drive Specification, tables 10-12",
        geometry: DriveGeometry {
            zones: even_zones(DESKSTAR_ZONES, DESKSTAR_TRACKS, DESKSTAR_HEADS, DESKSTAR_SECTORS),
            heads: DESKSTAR_HEADS,
            revolution_ns: 8_333_333,
            head_switch_ns: 1_440_000,
            cylinder_switch_ns: 1_830_000,
        },
        single_seek_us: 1_800,
        mean_seek_us: 8_500,
        full_seek_us: 14_700,
        write_settling_ns: 1_000_000,
        command_ns: 100_000,
        link_kib_ns: 3_413,
        read_ahead_bytes: 2 << 20,
        write_cache_bytes: 8 << 20,
        queue_depth: 32,
        data_sheet: DataSheet {
            mean_seek_ms: 8.5,
            outer_mb_per_s: 64.8,
            inner_mb_per_s: 31.0,
            outer_16mib_s: 0.29,
            inner_16mib_s: 0.59,
            random_4096_s: 55.5,
            typical: 1.05,
        },
    }
}

/// Returns zones of equally many cylinders, in which the sectors of a track decline evenly, for at least
/// `sectors` sectors.
fn even_zones(count: u32, (outer, inner): (u32, u32), heads: u32, sectors: u64) -> Vec<Zone> {
    let track = |no: u32| outer - (outer - inner) * no / (count - 1).max(1);
    let per_cylinder: u64 = (0..count).map(|no| u64::from(track(no) * heads)).sum();
    let cylinders = sectors.div_ceil(per_cylinder).max(1) as u32;
    (0..count).map(|no| Zone { cylinders, track_sectors: track(no) }).collect()
}

impl DriveProfile {
    /// Returns the profile of this name.
    pub fn by_name(name: &str) -> Option<DriveProfile> {
        profiles().into_iter().find(|profile| profile.name == name)
    }

    /// Returns a smaller or larger drive of at least `bytes` bytes, with fewer or more cylinders in each zone. The
    /// three seek times stay, so the small drive behaves like the whole one.
    pub fn with_capacity(mut self, bytes: u64) -> DriveProfile {
        let sectors = bytes.div_ceil(SECTOR_SIZE);
        let zones = self.geometry.zones.iter();
        let heads = u64::from(self.geometry.heads);
        let per_cylinder: u64 = zones.map(|zone| u64::from(zone.track_sectors) * heads).sum();
        let cylinders = sectors.div_ceil(per_cylinder).max(1) as u32;
        for zone in &mut self.geometry.zones {
            zone.cylinders = cylinders;
        }
        self
    }

    /// Returns the profile with a write cache of this size; zero turns the cache off.
    pub fn with_write_cache(mut self, bytes: u64) -> DriveProfile {
        self.write_cache_bytes = bytes;
        self
    }

    /// Returns the capacity in bytes, of whole blocks of 4 KiB.
    pub fn capacity(&self) -> u64 {
        self.geometry.sectors() / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK * SECTOR_SIZE
    }

    /// Returns the seek times.
    pub fn seek_curve(&self) -> SeekCurve {
        let cylinders = self.geometry.cylinders();
        SeekCurve::fit(cylinders, self.single_seek_us, self.mean_seek_us, self.full_seek_us)
    }

    pub(crate) fn link_ns(&self, bytes: u64) -> u64 {
        bytes * self.link_kib_ns / 1024
    }

    pub(crate) fn read_ahead_sectors(&self) -> u64 {
        self.read_ahead_bytes / SECTOR_SIZE
    }

    pub(crate) fn cache_sectors(&self) -> u64 {
        self.write_cache_bytes / SECTOR_SIZE
    }
}
