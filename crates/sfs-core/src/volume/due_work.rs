//! Background work: one bounded step at a time, whenever the caller finds the time.
//!
//! Written data becomes durable within the commit interval, and about half a second after writing has paused, unless
//! pauses have caused many commits already; sooner where sync(2) does not reach the volume.

use std::time::Duration;

use super::Volume;
use super::schedule::CommitPace;
use crate::Result;
use crate::format::Timestamp;
use crate::request::Work;

impl Volume {
    /// Does one bounded step of the work that is due: deletions, commits, checkpoints, discards, cleaning, defragmentation. The step
    /// may wait for the log. Returns when the next step is due.
    pub fn work(&self, now: Timestamp) -> Result<Work> {
        self.health.set_time(now);
        self.wear.set_time(now);
        if self.health.is_read_only() || self.log.is_frozen() {
            return Ok(Work::Idle(Duration::MAX));
        }
        self.superblocks.after(self.step(now))
    }

    fn step(&self, now: Timestamp) -> Result<Work> {
        self.health.check_running()?;
        self.write_access_times_if_due(now)?;
        // The commit precedes work that may fail: many files may be damaged.
        let mut committed = Ok(());
        if self.is_commit_due(now) {
            committed = self.commit_for_nobody();
            self.schedule.note_commit();
        }
        if self.schedule.is_sweep_due(now) {
            self.inodes.sweep(self.metadata.next_sequence());
        }
        if self.schedule.is_memory_release_due(now) {
            self.dirty.pool().release_idle();
        }
        // A deletion may make the space that the commit lacks, so it precedes the error of the commit.
        let deleted = self.space.delete_orphan_step();
        committed?;
        self.dirty.with_errors(|errors| errors.background.report_new())?;
        if deleted? {
            return Ok(Work::More);
        }
        if self.space.is_checkpoint_due(self.schedule.checkpoint_age_ms(now)) {
            self.write_access_times()?;
        }
        if self.space.checkpoint_if_due(self.schedule.checkpoint_age_ms(now))? {
            self.schedule.restart_checkpoint_interval(now);
        }
        if self.space.discard_step() {
            return Ok(Work::More);
        }
        if let Some(work) = self.space.clean_step(now.secs)? {
            return Ok(work);
        }
        if let Some(work) = self.space.defragment_idle_step(now.secs)? {
            return Ok(work);
        }
        let is_waiting = self.schedule.is_waiting();
        let soon = self.schedule.next_look(self.commit_pace(), now);
        Ok(Work::Idle(if is_waiting { soon } else { Duration::from_secs(1) }))
    }

    fn is_commit_due(&self, now: Timestamp) -> bool {
        let is_changed = !self.dirty.is_empty() || self.metadata.read().has_changes();
        // Data written back to shrink the buffer, or with blocks that the cleaner moved, is not durable yet.
        let is_unflushed = is_changed || self.log.try_lock().is_none_or(|log| log.unflushed);
        let changes = self.metadata.changes();
        self.schedule.is_commit_due((is_changed, is_unflushed), changes, self.commit_pace(), now)
    }

    fn commit_pace(&self) -> CommitPace {
        CommitPace { interval: self.options.commit_interval, is_soon: self.options.commits_soon }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::RamDevice;

    use super::*;
    use crate::fixture::{BLOCKS, NOW, create, new_volume, write};
    use crate::memory::DirtyBuf;
    use crate::request::VolumeOptions;

    /// A burst of writes is durable within 60 ms, four times in a row.
    #[test]
    fn a_burst_is_committed_after_a_short_pause() {
        let device = Arc::new(RamDevice::new(BLOCKS));
        drop(new_volume(device.clone()));
        let options = VolumeOptions { commits_soon: true, ..VolumeOptions::default() };
        let volume = Volume::open(device, options, NOW).expect("the volume opens");
        let work = |millis: u32| {
            let now = at(i64::from(millis / 1000), millis % 1000);
            while volume.work(now).expect("RAM does not fail") == Work::More {}
        };
        work(0);
        for burst in 0..4u32 {
            let start = 10 + burst * 100;
            create(&volume, &format!("file-{burst}"));
            work(start);
            let before = volume.counters().commits;
            work(start + 30);
            assert_eq!(volume.counters().commits, before, "burst {burst}");
            work(start + 60);
            assert_eq!(volume.counters().commits, before + 1, "burst {burst}");
        }
        create(&volume, "fifth");
        work(500);
        let before = volume.counters().commits;
        work(700);
        assert_eq!(volume.counters().commits, before, "the long pause counts again");
        work(999);
        work(1001);
        assert_eq!(volume.counters().commits, before + 1, "after the long pause");
    }

    /// A log that gets a line a second is committed every five seconds, and its checkpoints are rare, also where sync(2) does
    /// not arrive; `commit=` may ask for less.
    #[test]
    fn a_line_a_second_is_committed_every_five_seconds() {
        for (commits_soon, interval_secs, expected) in
            [(false, 5, 11..=14), (true, 5, 11..=14), (false, 30, 2..=4)]
        {
            let device = Arc::new(RamDevice::new(BLOCKS));
            drop(new_volume(device.clone()));
            let commit_interval = Duration::from_secs(interval_secs);
            let options =
                VolumeOptions { commits_soon, commit_interval, ..VolumeOptions::default() };
            let volume = Volume::open(device, options, NOW).expect("the volume opens");
            let file = create(&volume, "log");
            let mut before = volume.counters();
            for second in 0..360 {
                if second == 300 {
                    before = volume.counters();
                }
                let caller =
                    crate::request::Caller { now: at(second, 0), ..crate::fixture::CALLER };
                let offset = second as u64 * 80;
                let written = volume.write(file, offset, &[1; 80], Default::default(), &caller);
                written.expect("the line is written");
                for quarter in 0..4 {
                    while volume.work(at(second, quarter * 250)).expect("RAM") == Work::More {}
                }
            }
            let after = volume.counters();
            let commits = after.commits - before.commits;
            assert!(expected.contains(&commits), "{commits} commits in a minute");
            let bytes = after.device_bytes_written - before.device_bytes_written;
            assert!(bytes <= commits * 2 * 4096 + 10 * 4096, "{bytes} bytes in {commits} commits");
        }
    }

    fn at(secs: i64, millis: u32) -> Timestamp {
        Timestamp { secs: NOW.secs + secs, nanos: millis * 1_000_000 }
    }

    #[test]
    fn memory_is_kept_for_a_writer_that_returns_soon() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let pool = volume.dirty.pool();
        let work_at = |secs: i64| {
            let now = Timestamp { secs: NOW.secs + secs, ..NOW };
            while volume.work(now).expect("the work succeeds") == Work::More {}
            pool.cached_blocks()
        };
        let file = create(&volume, "file");
        write(&volume, file, &[1; 5000]);
        work_at(1);
        let used: Vec<DirtyBuf> =
            (0..4096).map(|_| DirtyBuf::new(1, pool).expect("memory")).collect();
        drop(used);
        assert!(work_at(2) >= 4096);
        assert!(work_at(9) >= 4096);
        assert!(work_at(11) >= 4096, "the memory was used");
        write(&volume, file, &[2; 5000]);
        assert!(work_at(20) >= 4096);
        assert!(work_at(22) < 10, "little memory was used");
        assert_eq!(work_at(33), 0);
    }
}
