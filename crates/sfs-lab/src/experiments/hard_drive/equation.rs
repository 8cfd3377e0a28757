//! Equation 1 of the FAST 2009 paper: T = Tpos / (f R) + S / B, the time of a block of 4 KiB if a sync writes R blocks, and f R
//! of them to each of 1 / f cylinders.

use sfs_hdd::{DriveProfile, HardDrive, SECTOR_SIZE};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Series, table};
use sfs_ssd::{HostRequest, RequestKind};

const BLOCK: u64 = 4096;

/// R: blocks of a sync.
const SYNC_BLOCKS: u64 = 256;

/// Number of syncs of a measurement.
const SYNCS: u32 = 200;

/// Values of f R.
const TOGETHER: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A point of the curve: f R, and the microseconds of a block by the drive and by the equation.
pub(super) struct Point {
    together: u64,
    drive_us: f64,
    equation_us: f64,
}

/// Returns the curve of a drive without a write cache. The equation gets its constants from the drive: the mean seek before a
/// write and half a revolution, and the mean bandwidth of all its sectors.
pub(super) fn points(profile: &DriveProfile, mean_seek_ms: f64) -> Vec<Point> {
    let geometry = &profile.geometry;
    let position_us = mean_seek_ms * 1e3
        + profile.write_settling_ns as f64 / 1e3
        + geometry.revolution_ns as f64 / 2e3;
    let track_sectors =
        geometry.sectors() as f64 / (f64::from(geometry.heads) * f64::from(geometry.cylinders()));
    let block_us =
        geometry.revolution_ns as f64 / 1e3 * (BLOCK / SECTOR_SIZE) as f64 / track_sectors;
    TOGETHER
        .map(|together| Point {
            together,
            drive_us: drive_us(profile, together),
            equation_us: position_us / together as f64 + block_us,
        })
        .into()
}

/// Returns the mean time of a block.
fn drive_us(profile: &DriveProfile, together: u64) -> f64 {
    let mut drive = HardDrive::new(profile.clone().with_write_cache(0));
    let places = (drive.capacity() / BLOCK - together) as u32;
    let mut random = WorkloadRng::new(1);
    let mut now_ns = 0;
    for _ in 0..SYNCS {
        for _ in 0..SYNC_BLOCKS / together {
            let offset = u64::from(random.below(places)) * BLOCK;
            let request = HostRequest::new(RequestKind::Write, offset, together * BLOCK);
            now_ns = drive.serve(&request, now_ns).ended_ns;
        }
    }
    now_ns as f64 / 1e3 / (u64::from(SYNCS) * SYNC_BLOCKS) as f64
}

pub(super) fn text(points: &[Point]) -> String {
    let heading = ["equation 1 (FAST 2009): f R", "drive, us a block", "equation", "ratio"];
    let rows: Vec<Vec<String>> = points
        .iter()
        .map(|point| {
            vec![
                point.together.to_string(),
                format!("{:.1}", point.drive_us),
                format!("{:.1}", point.equation_us),
                format!("{:.3}", point.drive_us / point.equation_us),
            ]
        })
        .collect();
    table(&heading.map(str::to_owned), &rows)
}

pub(super) fn series(points: &[Point]) -> Vec<Series> {
    let of = |value: fn(&Point) -> f64| {
        points.iter().map(|point| (point.together as f64, value(point) / 1e3)).collect()
    };
    vec![
        Series::new("drive", of(|point| point.drive_us)),
        Series::new("equation 1", of(|point| point.equation_us)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_takes_the_time_of_the_equation() {
        let profile = sfs_hdd::profiles().remove(0);
        // The mean seek of the data sheet is that of the model (docs/lab.md).
        for point in points(&profile, f64::from(profile.mean_seek_us) / 1e3) {
            let ratio = point.drive_us / point.equation_us;
            let most = if point.together <= 8 { 1.02 } else { 1.25 };
            assert!((0.98..most).contains(&ratio), "{}: {ratio}", point.together);
        }
    }
}
