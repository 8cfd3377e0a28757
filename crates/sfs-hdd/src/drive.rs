//! The drive: serves requests, one mechanical operation after the other.
//!
//! A read is served from the read-ahead buffer as far as it goes, and otherwise by a seek, a turn and a
//! transfer. A write ends when the write cache has taken it; without a write cache, when it is on the platters.
//! Data in the write cache is written to the platters in the time between requests, nearest first. After a read of the
//! platters the drive goes on reading into its buffer until the next mechanical operation, which is not delayed by
//! it.

use sfs_ssd::{Completion, HostRequest, RequestKind};

use crate::cache::{Extent, WriteCache};
use crate::counters::DriveCounters;
use crate::geometry::DriveGeometry;
use crate::profile::DriveProfile;
use crate::{SECTOR_SIZE, SECTORS_PER_BLOCK, SeekCurve};

/// Largest number of sectors that leave the write cache in one mechanical operation: 256 KiB.
const PIECE_SECTORS: u64 = 512;

/// Number of extents of the write cache among which the nearest is chosen, in the order of sectors from the arm on.
const NEAR_EXTENTS: usize = 32;

/// Model of a hard drive, without the data.
pub struct HardDrive {
    profile: DriveProfile,
    seek: SeekCurve,
    counters: DriveCounters,
    /// Cylinder of the arm.
    cylinder: u32,
    /// Time from which the mechanics are free.
    free_ns: u64,
    /// Time from which the host interface is free.
    link_free_ns: u64,
    ahead: Option<ReadAhead>,
    cache: WriteCache,
}

/// Sectors that are, or will be, in the read-ahead buffer.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    /// First sector in the buffer.
    first: u64,
    /// First sector that was not requested, which begins to pass under the heads at `from_ns`.
    from: u64,
    from_ns: u64,
    /// First sector that the drive does not read ahead.
    limit: u64,
}

impl HardDrive {
    /// Makes a drive of this profile, whose arm is at the outermost cylinder at time zero.
    pub fn new(profile: DriveProfile) -> HardDrive {
        let seek = profile.seek_curve();
        HardDrive {
            profile,
            seek,
            counters: DriveCounters::default(),
            cylinder: 0,
            free_ns: 0,
            link_free_ns: 0,
            ahead: None,
            cache: WriteCache::default(),
        }
    }

    /// Returns the profile of the drive.
    pub fn profile(&self) -> &DriveProfile {
        &self.profile
    }

    /// Returns the arrangement of the sectors.
    pub fn geometry(&self) -> &DriveGeometry {
        &self.profile.geometry
    }

    /// Returns the seek times.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.seek
    }

    /// Returns the capacity in bytes, of whole blocks of 4 KiB.
    pub fn capacity(&self) -> u64 {
        self.profile.capacity()
    }

    /// Returns the counts since the drive was made, or since the last [`HardDrive::reset_counters`].
    pub fn counters(&self) -> &DriveCounters {
        &self.counters
    }

    /// Resets the counters to zero.
    pub fn reset_counters(&mut self) {
        self.counters = DriveCounters::default();
    }

    /// Returns the number of bytes that would be lost if the power failed now.
    pub fn cached_bytes(&self) -> u64 {
        self.cache.sectors() * SECTOR_SIZE
    }

    /// Returns the time from which the mechanics and the interface are free, in nanoseconds. What is in the
    /// write cache then stays there.
    pub fn idle_ns(&self) -> u64 {
        self.free_ns.max(self.link_free_ns)
    }

    /// Returns the time from which the mechanics are free.
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// Returns the time from `at_ns` until the first sector of a request would be under a head: the seek and the
    /// turn after it. Zero for what the buffer or the write cache holds, and for writes that the cache takes.
    pub fn positioning_ns(&self, request: &HostRequest, at_ns: u64) -> u64 {
        let (first, count) = sectors(request);
        let is_quick = match request.kind {
            RequestKind::Read => self.is_ahead(first, at_ns) || self.cache.contains(first, count),
            RequestKind::Write => self.takes(count),
            RequestKind::Trim | RequestKind::Flush => true,
        };
        if is_quick { 0 } else { self.reach(first, request.kind, at_ns).0 }
    }

    /// Serves a request from `at_ns` on, which must not be before its arrival.
    ///
    /// # Panics
    ///
    /// If the request does not lie wholly on the drive, or is not of whole sectors.
    pub fn serve(&mut self, request: &HostRequest, at_ns: u64) -> Completion {
        assert!(request.end() <= self.capacity(), "{request:?} ends beyond the drive");
        assert!(
            (request.offset | request.len).is_multiple_of(SECTOR_SIZE),
            "{request:?}: parts of sectors"
        );
        self.write_back_until(at_ns);
        let from_ns = at_ns + self.profile.command_ns;
        let ended_ns = match request.kind {
            RequestKind::Read => self.read(request, from_ns),
            RequestKind::Write => self.write(request, from_ns),
            RequestKind::Flush => {
                self.counters.flush_requests += 1;
                self.flush(from_ns)
            }
            RequestKind::Trim => {
                self.counters.trim_requests += 1;
                from_ns
            }
        };
        Completion { arrived_ns: request.arrival_ns, begun_ns: at_ns, ended_ns }
    }

    fn read(&mut self, request: &HostRequest, from_ns: u64) -> u64 {
        self.counters.read_requests += 1;
        self.counters.host_bytes_read += request.len;
        let (first, count) = sectors(request);
        if count == 0 {
            return from_ns;
        }
        let read_ns = if self.cache.contains(first, count) {
            self.counters.buffer_hits += 1;
            from_ns
        } else if self.is_ahead(first, from_ns) {
            self.counters.buffer_hits += 1;
            self.read_on(first + count, from_ns)
        } else {
            let ended_ns = self.operate(first, count, RequestKind::Read, from_ns);
            self.start_ahead(first, first + count, ended_ns);
            ended_ns
        };
        // The first bytes leave the buffer while the last ones arrive, so only the last block is added.
        let tail = request.len.min(SECTORS_PER_BLOCK * SECTOR_SIZE);
        let link_ns = self.send(request.len, from_ns);
        link_ns.max(read_ns + self.profile.link_ns(tail))
    }

    /// Returns whether the buffer holds the sector, or the drive is about to read it.
    fn is_ahead(&self, sector: u64, at_ns: u64) -> bool {
        let holds = |ahead: &ReadAhead| (ahead.first..ahead.limit).contains(&sector);
        self.ahead.filter(holds).is_some_and(|ahead| {
            let waits_ns = self.ahead_ns(&ahead, sector + 1).saturating_sub(at_ns);
            waits_ns < self.geometry().revolution_ns
        })
    }

    /// Returns the time at which the read-ahead has read all sectors before `end`.
    fn ahead_ns(&self, ahead: &ReadAhead, end: u64) -> u64 {
        match end.checked_sub(ahead.from) {
            Some(count) => ahead.from_ns + self.geometry().transfer_ns(ahead.from, count),
            None => 0,
        }
    }

    /// Serves a read up to `end` from the read-ahead buffer, and returns when its last sector is there. Past the
    /// limit of the buffer the drive goes on reading, if it has not stopped yet.
    fn read_on(&mut self, end: u64, from_ns: u64) -> u64 {
        let ahead = self.ahead.expect("the buffer holds the first sector");
        let stopped_ns = self.ahead_ns(&ahead, ahead.limit);
        if end <= ahead.from {
            return from_ns;
        }
        if end > ahead.limit && stopped_ns < from_ns {
            let ended_ns = self.operate(ahead.limit, end - ahead.limit, RequestKind::Read, from_ns);
            self.start_ahead(ahead.first, end, ended_ns);
            return ended_ns;
        }
        let ended_ns = self.ahead_ns(&ahead, end);
        if stopped_ns < from_ns {
            // The buffer is full, and everything is there.
            return from_ns;
        }
        self.free_ns = self.free_ns.max(ended_ns);
        self.cylinder = self.geometry().place(end - 1).cylinder;
        self.start_ahead(ahead.first, end, ended_ns);
        ended_ns.max(from_ns)
    }

    fn start_ahead(&mut self, first: u64, end: u64, ended_ns: u64) {
        let limit = (end + self.profile.read_ahead_sectors()).min(self.geometry().sectors());
        let first = first.max(end.saturating_sub(self.profile.read_ahead_sectors()));
        self.ahead = (limit > end).then(|| ReadAhead {
            first,
            from: end,
            // The next sector may be on another track.
            from_ns: ended_ns + self.change_ns(end),
            limit,
        });
    }

    /// Returns the time of the change to the track of a sector, if the sector is the first of its track.
    fn change_ns(&self, sector: u64) -> u64 {
        let place = self.geometry().place(sector);
        match (place.sector, place.head) {
            (0, 0) => self.geometry().cylinder_switch_ns,
            (0, _) => self.geometry().head_switch_ns,
            _ => 0,
        }
    }

    fn write(&mut self, request: &HostRequest, from_ns: u64) -> u64 {
        self.counters.write_requests += 1;
        self.counters.host_bytes_written += request.len;
        let (first, count) = sectors(request);
        if count == 0 {
            return from_ns;
        }
        self.forget_ahead(first, count);
        let arrived_ns = self.send(request.len, from_ns);
        if count > self.profile.cache_sectors() {
            let flushed_ns =
                if self.cache.is_empty() { arrived_ns } else { self.flush(arrived_ns) };
            return self.operate(first, count, RequestKind::Write, flushed_ns);
        }
        let mut ended_ns = arrived_ns;
        while !self.takes(count) {
            ended_ns = ended_ns.max(self.write_back());
        }
        self.cache.add(first, count, arrived_ns);
        ended_ns
    }

    /// Returns whether the write cache has room.
    fn takes(&self, count: u64) -> bool {
        self.cache.sectors() + count <= self.profile.cache_sectors()
    }

    /// Drops a read-ahead buffer with an old copy of these sectors.
    fn forget_ahead(&mut self, first: u64, count: u64) {
        let overlaps = |ahead: &ReadAhead| first < ahead.limit && ahead.first < first + count;
        if self.ahead.as_ref().is_some_and(overlaps) {
            self.ahead = None;
        }
    }

    /// Writes all of the cache to the platters, and returns when it is there.
    fn flush(&mut self, from_ns: u64) -> u64 {
        let mut ended_ns = from_ns;
        while !self.cache.is_empty() {
            ended_ns = ended_ns.max(self.write_back());
        }
        ended_ns
    }

    /// Writes pieces of the cache while the mechanics are free before `until_ns`.
    fn write_back_until(&mut self, until_ns: u64) {
        while !self.cache.is_empty() && self.write_back_ns() < until_ns {
            self.write_back();
        }
    }

    /// Returns when the mechanics can begin with the next piece of the cache.
    fn write_back_ns(&self) -> u64 {
        let first_ns = self.cache.extents().map(|extent| extent.arrived_ns).min();
        self.free_ns.max(first_ns.unwrap_or(0))
    }

    /// Writes the nearest piece of the cache as soon as the mechanics are free, and returns when it is on the platters.
    /// While the drive decodes a command its arm goes on: a pause would cost a revolution.
    fn write_back(&mut self) -> u64 {
        let begin_ns = self.write_back_ns();
        let nearest = self
            .near_extents()
            .into_iter()
            .min_by_key(|extent| {
                let ready_ns = extent.arrived_ns.max(begin_ns);
                ready_ns + self.reach(extent.first, RequestKind::Write, ready_ns).0
            })
            .expect("the cache is not empty");
        let count = nearest.count.min(PIECE_SECTORS);
        self.counters.cache_writes += 1;
        let from_ns = begin_ns.max(nearest.arrived_ns);
        let ended_ns = self.operate(nearest.first, count, RequestKind::Write, from_ns);
        self.cache.take(nearest.first, count);
        ended_ns
    }

    /// Returns the extents on both sides of the arm.
    fn near_extents(&self) -> Vec<Extent> {
        let extents: Vec<Extent> = self.cache.extents().collect();
        let arm = extents
            .partition_point(|extent| self.geometry().place(extent.first).cylinder < self.cylinder);
        let from = arm.saturating_sub(NEAR_EXTENTS / 2);
        let to = (arm + NEAR_EXTENTS / 2).min(extents.len());
        extents[from..to].to_vec()
    }

    /// Returns the time of the seek and of the turn until a sector is under a head, and the time of the
    /// seek alone.
    fn reach(&self, first: u64, kind: RequestKind, at_ns: u64) -> (u64, u64) {
        let place = self.geometry().place(first);
        let distance = place.cylinder.abs_diff(self.cylinder);
        let settling_ns =
            if kind == RequestKind::Write { self.profile.write_settling_ns } else { 0 };
        let seek_ns = match distance {
            0 => 0,
            _ => self.seek.ns(distance) + settling_ns,
        };
        let turn_ns = self.geometry().turn_ns(at_ns + seek_ns, place.angle_ns);
        (seek_ns + turn_ns, seek_ns)
    }

    /// Reads or writes sectors on the platters from `at_ns` on, or as soon as the mechanics are free, and returns
    /// the time of the end. Reading ahead ends.
    fn operate(&mut self, first: u64, count: u64, kind: RequestKind, at_ns: u64) -> u64 {
        let begin_ns = at_ns.max(self.free_ns);
        let (reach_ns, seek_ns) = self.reach(first, kind, begin_ns);
        let transfer_ns = self.geometry().transfer_ns(first, count);
        let place = self.geometry().place(first);
        let distance = place.cylinder.abs_diff(self.cylinder);
        self.counters.seeks += u64::from(distance > 0);
        self.counters.seek_cylinders += u64::from(distance);
        self.counters.seek_ns += seek_ns;
        self.counters.rotation_ns += reach_ns - seek_ns;
        self.counters.transfer_ns += transfer_ns;
        self.cylinder = self.geometry().place(first + count - 1).cylinder;
        self.free_ns = begin_ns + reach_ns + transfer_ns;
        self.ahead = None;
        self.free_ns
    }

    /// Transfers bytes over the host interface, and returns the time of the end.
    fn send(&mut self, bytes: u64, at_ns: u64) -> u64 {
        self.link_free_ns = self.link_free_ns.max(at_ns) + self.profile.link_ns(bytes);
        self.link_free_ns
    }
}

impl sfs_ssd::TimedModel for HardDrive {
    fn geometry(&self) -> sfs_device::Geometry {
        sfs_device::Geometry {
            block_count: self.capacity() / sfs_device::BLOCK_SIZE as u64,
            logical_block_size: SECTOR_SIZE as u32,
            physical_block_size: SECTOR_SIZE as u32,
            ..sfs_device::Geometry::default()
        }
    }

    fn serve(&mut self, request: &HostRequest, at_ns: u64) -> Completion {
        HardDrive::serve(self, request, at_ns)
    }

    fn idle_ns(&self) -> u64 {
        HardDrive::idle_ns(self)
    }

    fn free_ns(&self) -> Option<u64> {
        Some(self.free_ns)
    }

    fn positioning_ns(&self, request: &HostRequest, at_ns: u64) -> u64 {
        HardDrive::positioning_ns(self, request, at_ns)
    }
}

/// Returns the first sector and the number of sectors of a request.
fn sectors(request: &HostRequest) -> (u64, u64) {
    (request.offset / SECTOR_SIZE, request.len / SECTOR_SIZE)
}
