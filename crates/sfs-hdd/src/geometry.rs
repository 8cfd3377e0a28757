//! Where a sector is: cylinder, head, and angle.
//!
//! Sectors are numbered track after track, head after head, cylinder after cylinder, from the outermost
//! cylinder on. Tracks of a zone have the same number of sectors. The first sector of each track is turned
//! against that of the track before by the time of the change (skew), so that a transfer goes on
//! without the loss of a revolution.

use serde::Serialize;

/// Cylinders with equally long tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// Number of cylinders.
    pub cylinders: u32,
    /// Number of sectors of a track.
    pub track_sectors: u32,
}

/// Arrangement of the sectors on the platters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriveGeometry {
    /// Zones, from the outermost on.
    pub zones: Vec<Zone>,
    /// Number of heads.
    pub heads: u32,
    /// Time of a revolution, in nanoseconds.
    pub revolution_ns: u64,
    /// Time from the last sector of a track to the first one under the next head, in nanoseconds.
    pub head_switch_ns: u64,
    /// The same to the next cylinder.
    pub cylinder_switch_ns: u64,
}

/// Place of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorPlace {
    /// Number of the zone.
    pub zone: usize,
    /// Number of the cylinder, from the outermost on.
    pub cylinder: u32,
    /// Number of the head.
    pub head: u32,
    /// Number of the sector in its track.
    pub sector: u32,
    /// Number of sectors of the track.
    pub track_sectors: u32,
    /// Time at which the sector begins to pass under the heads, in each revolution, in nanoseconds.
    pub angle_ns: u64,
}

impl DriveGeometry {
    /// Returns the number of cylinders.
    pub fn cylinders(&self) -> u32 {
        self.zones.iter().map(|zone| zone.cylinders).sum()
    }

    /// Returns the number of sectors.
    pub fn sectors(&self) -> u64 {
        self.zones.iter().map(|zone| self.zone_sectors(zone)).sum()
    }

    fn zone_sectors(&self, zone: &Zone) -> u64 {
        u64::from(zone.cylinders) * u64::from(self.heads) * u64::from(zone.track_sectors)
    }

    /// Returns the first sector of a zone.
    pub fn zone_start(&self, zone: usize) -> u64 {
        self.zones[..zone].iter().map(|zone| self.zone_sectors(zone)).sum()
    }

    /// Returns the place of a sector.
    ///
    /// # Panics
    ///
    /// If the drive has no such sector.
    pub fn place(&self, sector: u64) -> SectorPlace {
        let (mut left, mut cylinder, mut zone) = (sector, 0, 0);
        while left >= self.zone_sectors(&self.zones[zone]) {
            left -= self.zone_sectors(&self.zones[zone]);
            cylinder += self.zones[zone].cylinders;
            zone += 1;
        }
        let track_sectors = self.zones[zone].track_sectors;
        let (track, sector) =
            (left / u64::from(track_sectors), (left % u64::from(track_sectors)) as u32);
        cylinder += (track / u64::from(self.heads)) as u32;
        let head = (track % u64::from(self.heads)) as u32;
        let skew_ns = self.skew_ns(cylinder, head);
        let angle_ns = skew_ns + self.pass_ns(track_sectors, sector);
        let angle_ns = angle_ns % self.revolution_ns;
        SectorPlace { zone, cylinder, head, sector, track_sectors, angle_ns }
    }

    /// Returns the angle of the first sector of a track: the sum of all changes of track before it.
    fn skew_ns(&self, cylinder: u32, head: u32) -> u64 {
        let cylinder_ns = u64::from(self.heads - 1) * self.head_switch_ns + self.cylinder_switch_ns;
        u64::from(cylinder) * (cylinder_ns % self.revolution_ns)
            + u64::from(head) * self.head_switch_ns
    }

    /// Returns the time in which `count` sectors of a track pass under the heads.
    pub fn pass_ns(&self, track_sectors: u32, count: u32) -> u64 {
        u64::from(count) * self.revolution_ns / u64::from(track_sectors)
    }

    /// Returns the time from `at_ns` until the angle is reached the next time.
    pub fn turn_ns(&self, at_ns: u64, angle_ns: u64) -> u64 {
        (angle_ns + self.revolution_ns - at_ns % self.revolution_ns) % self.revolution_ns
    }

    /// Returns the time of the transfer of `count` sectors from `first` on, once the first sector has reached
    /// the heads. Every change of track takes its skew.
    pub fn transfer_ns(&self, first: u64, count: u64) -> u64 {
        let (mut at, mut left, mut sum_ns) = (self.place(first), count, 0);
        let mut next = first;
        while left > 0 {
            let on_track = left.min(u64::from(at.track_sectors - at.sector));
            sum_ns += self.pass_ns(at.track_sectors, on_track as u32);
            left -= on_track;
            next += on_track;
            if left > 0 {
                let before = at.cylinder;
                at = self.place(next);
                sum_ns += match at.cylinder == before {
                    true => self.head_switch_ns,
                    false => self.cylinder_switch_ns,
                };
            }
        }
        sum_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> DriveGeometry {
        DriveGeometry {
            zones: vec![
                Zone { cylinders: 3, track_sectors: 100 },
                Zone { cylinders: 2, track_sectors: 50 },
            ],
            heads: 2,
            revolution_ns: 1_000_000,
            head_switch_ns: 200_000,
            cylinder_switch_ns: 300_000,
        }
    }

    #[test]
    fn every_sector_has_a_place_of_its_own() {
        let geometry = geometry();
        assert_eq!((geometry.sectors(), geometry.cylinders()), (800, 5));
        let mut places: Vec<(u32, u32, u32)> = (0..800)
            .map(|sector| geometry.place(sector))
            .map(|place| (place.cylinder, place.head, place.sector))
            .collect();
        assert!(places.is_sorted());
        places.dedup();
        assert_eq!(places.len(), 800);
        let last = geometry.place(799);
        assert_eq!((last.zone, last.cylinder, last.head, last.sector), (1, 4, 1, 49));
        assert_eq!(geometry.zone_start(1), 600);
    }

    #[test]
    fn a_change_of_track_loses_its_skew_and_no_revolution() {
        let geometry = geometry();
        assert_eq!(geometry.transfer_ns(0, 100), 1_000_000);
        assert_eq!(geometry.transfer_ns(0, 200), 2_200_000);
        assert_eq!(geometry.transfer_ns(50, 300), 3_700_000);
        assert_eq!(geometry.transfer_ns(590, 11), 100_000 + 300_000 + 20_000);
        // After a track and the change to the next, the first sector is just there.
        for (first, count) in [(0, 100), (100, 100), (500, 100), (0, 600)] {
            let began_ns = geometry.place(first).angle_ns;
            let next = geometry.place(first + count);
            let change_ns = match next.head {
                0 => geometry.cylinder_switch_ns,
                _ => geometry.head_switch_ns,
            };
            let ended_ns = began_ns + geometry.transfer_ns(first, count) + change_ns;
            assert_eq!(geometry.turn_ns(ended_ns, next.angle_ns), 0, "{first} {count}");
        }
    }
}
