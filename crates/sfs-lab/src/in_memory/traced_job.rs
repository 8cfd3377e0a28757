//! The load of a mounted volume on a volume in RAM.
//!
//! The content that the load overwrites is written first, and a file that is never touched fills the volume as much as
//! it was. The load is repeated until enough was written; reads cost no writes and are left out. The background works in
//! the pauses of the load.

use anyhow::{Context, Result, bail, ensure};
use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{
    AllocateMode, Allocation, AttributeChanges, Caller, Counters, VolumeOptions, Work,
};
use sfs_core::{Error, Volume};

use crate::ram_volume::{self, START_SECS, increase};
use crate::request_load::{LoadAction, RequestLoad};

/// Content of every write. Zeros would be no different.
static CONTENT: [u8; 1 << 20] = [3; 1 << 20];

/// Microseconds that the background takes for a step, which reads and writes up to 1 MiB: about those of an SD card.
const STEP_US: u64 = 20_000;

/// Largest number of steps in a pause.
const STEPS_MAX: u64 = 10_000;

/// A volume, and how much of a load runs on it.
#[derive(Clone, Debug)]
pub struct TracedJob {
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// Size of a segment in bytes; `None` for the choice of `sfs-mkfs`.
    pub segment_bytes: Option<u64>,
    /// Part of the volume that is in use when the load has its most files, in 0..1; 0 for no file before the load begins,
    /// so that every first write is new.
    pub full: f64,
    /// Number of bytes that the load writes before counting.
    pub warm_up_bytes: u64,
    /// Number of bytes that the load writes while counting; the operation that reaches it is the last one.
    pub measured_bytes: u64,
    /// Options of the mount.
    pub options: VolumeOptions,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedCounts {
    /// Number of segments of the volume.
    pub segments: u32,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Number of bytes that the load wrote while counting.
    pub written_bytes: u64,
    /// Number of times that the load began again.
    pub repetitions: u64,
    /// Increase of the volume's counters while counting.
    pub counters: Counters,
}

impl TracedJob {
    /// Runs `load`.
    ///
    /// # Errors
    ///
    /// If the load writes nothing, if the volume cannot be made or opened, is too small for the files, or fails.
    pub fn run(&self, load: &RequestLoad) -> Result<TracedCounts> {
        ensure!(load.written_bytes() > 0, "the load writes nothing");
        let volume = ram_volume::open(self.device_bytes, self.segment_bytes, &self.options)?;
        let mut run = Run::new(volume, load);
        if self.full > 0.0 {
            run.prepare(self.full)?;
        }
        let mut counted_from = (self.warm_up_bytes == 0).then(|| (0, run.volume.counters()));
        let until = self.warm_up_bytes.saturating_add(self.measured_bytes);
        let mut repetitions = 0;
        let mut operations = load.operations.iter();
        while run.written_bytes < until {
            let Some(operation) = operations.next() else {
                operations = load.operations.iter();
                repetitions += 1;
                run.begin_again();
                continue;
            };
            run.wait_until(operation.at_us)?;
            run.operate(operation.file as usize, operation.action)?;
            if counted_from.is_none() && run.written_bytes >= self.warm_up_bytes {
                // What waits in memory belongs to the warm-up; at the end, to what is counted.
                run.volume.sync_all()?;
                counted_from = Some((run.written_bytes, run.volume.counters()));
            }
        }
        run.volume.sync_all()?;
        let (start, before) = counted_from.context("nothing was counted")?;
        let layout = &run.volume.superblock().layout;
        Ok(TracedCounts {
            segments: layout.segment_count,
            segment_blocks: layout.segment_blocks,
            written_bytes: run.written_bytes - start,
            repetitions,
            counters: increase(run.volume.counters(), before),
        })
    }
}

/// A load on its way.
struct Run<'a> {
    volume: Volume,
    load: &'a RequestLoad,
    /// Inodes of the files of the load that exist.
    inodes: Vec<Option<u64>>,
    /// Virtual microseconds since the start of the run.
    now_us: u64,
    /// Virtual time at which the present repetition of the load began.
    began_us: u64,
    /// Time that the background has not yet used.
    idle_us: u64,
    written_bytes: u64,
}

impl<'a> Run<'a> {
    fn new(volume: Volume, load: &'a RequestLoad) -> Self {
        let inodes = vec![None; load.files.len()];
        Self { volume, load, inodes, now_us: 0, began_us: 0, idle_us: 0, written_bytes: 0 }
    }

    /// Writes the content that the load overwrites, and a file that fills the volume up to the part `full`, without what
    /// the load's new files will need.
    fn prepare(&mut self, full: f64) -> Result<()> {
        for (file, offset, len) in self.load.overwritten_ranges() {
            self.write(file as usize, offset, len)?;
        }
        let space = self.volume.space();
        let used = space.total_blocks - space.free_blocks;
        let block = sfs_device::BLOCK_SIZE as u64;
        let kept = used + self.load.new_bytes_max() / block;
        let wanted = (space.total_blocks as f64 * full) as u64;
        let cold = self.make(b"cold")?;
        self.write_to(cold, 0, wanted.saturating_sub(kept) * block)?;
        self.volume.sync_all()?;
        while self.volume.work(self.now())? == Work::More {}
        self.written_bytes = 0;
        Ok(())
    }

    fn now(&self) -> Timestamp {
        let secs = START_SECS + (self.now_us / 1_000_000) as i64;
        Timestamp { secs, nanos: (self.now_us % 1_000_000) as u32 * 1000 }
    }

    fn caller(&self) -> Caller {
        Caller { uid: 0, gid: 0, umask: None, now: self.now() }
    }

    fn begin_again(&mut self) {
        // At least a second, so that a trace without times makes progress, too.
        self.began_us = self.began_us.saturating_add(self.load.duration_us() + 1_000_000);
    }

    /// Lets the background work until the load goes on at `at_us`.
    fn wait_until(&mut self, at_us: u64) -> Result<()> {
        let until = self.began_us.saturating_add(at_us);
        self.idle_us = self.idle_us.saturating_add(until.saturating_sub(self.now_us));
        self.now_us = self.now_us.max(until);
        let mut steps = (self.idle_us / STEP_US).min(STEPS_MAX);
        self.idle_us %= STEP_US;
        while steps > 0 && self.volume.work(self.now())? == Work::More {
            steps -= 1;
        }
        Ok(())
    }

    fn operate(&mut self, file: usize, action: LoadAction) -> Result<()> {
        match action {
            LoadAction::Read { .. } => {}
            LoadAction::Make => drop(self.inode(file)?),
            LoadAction::Write { offset, len } => self.write(file, offset, len)?,
            LoadAction::SyncAll => self.volume.sync_all()?,
            LoadAction::Sync => {
                if let Some(ino) = self.inodes[file] {
                    self.volume.sync_file(ino)?;
                }
            }
            LoadAction::Truncate { size } => {
                let ino = self.inode(file)?;
                let changes = AttributeChanges { size: Some(size), ..Default::default() };
                self.volume.set_attributes(ino, &changes, &self.caller())?;
            }
            LoadAction::Punch { offset, len } => {
                let Some(ino) = self.inodes[file] else { return Ok(()) };
                let allocation = Allocation {
                    mode: AllocateMode::PunchHole,
                    keep_size: true,
                    keep_times: false,
                    kill_privileges: false,
                };
                self.volume.allocate(ino, (offset, len), &allocation, &self.caller())?;
            }
            LoadAction::Delete => {
                let Some(ino) = self.inodes[file].take() else { return Ok(()) };
                self.volume.unlink(ROOT_INO, &name(file), &self.caller())?;
                self.volume.forget(ino, 1);
            }
        }
        Ok(())
    }

    /// Returns the inode of a file, which is made if it does not exist.
    fn inode(&mut self, file: usize) -> Result<u64> {
        match self.inodes[file] {
            Some(ino) => Ok(ino),
            None => {
                let ino = self.make(&name(file))?;
                self.inodes[file] = Some(ino);
                Ok(ino)
            }
        }
    }

    fn make(&self, name: &[u8]) -> Result<u64> {
        Ok(self.volume.make_node(ROOT_INO, name, 0o100_644, 0, &self.caller())?.ino)
    }

    fn write(&mut self, file: usize, offset: u64, len: u64) -> Result<()> {
        let ino = self.inode(file)?;
        self.write_to(ino, offset, len)
    }

    fn write_to(&mut self, ino: u64, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).context("offset and length of a write")?;
        let mut at = offset;
        while at < end {
            let part = (end - at).min(CONTENT.len() as u64);
            let content = &CONTENT[..part as usize];
            match self.volume.write(ino, at, content, Default::default(), &self.caller()) {
                Err(Error::NoSpace) => bail!("the volume is full"),
                written => written?,
            }
            at += part;
            self.written_bytes += part;
        }
        Ok(())
    }
}

fn name(file: usize) -> Vec<u8> {
    file.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(lines: &str) -> RequestLoad {
        let heading = sfs_trace::TraceProperties::default();
        RequestLoad::parse(&format!("{heading}{lines}")).expect("a trace")
    }

    fn job() -> TracedJob {
        TracedJob {
            device_bytes: 64 << 20,
            segment_bytes: Some(256 << 10),
            full: 0.0,
            warm_up_bytes: 0,
            measured_bytes: 1,
            options: VolumeOptions::default(),
        }
    }

    #[test]
    fn a_load_writes_its_bytes_once() {
        let load = load(
            "1,create,9,0,0,0,0,1\n2,write,9,0,8192,0,0,0\n3,fsync,9,0,0,0,0,0\n\
             4,write,9,4096,4096,0,0,0\n5,truncate,9,4096,0,0,0,0\n6,write,9,0,100,0,0,0\n\
             7,syncfs,1,0,0,0,0,0\n8,unlink,9,0,0,0,0,1\n",
        );
        let job = TracedJob { measured_bytes: load.written_bytes(), ..job() };
        let counts = job.run(&load).expect("the load runs");
        assert_eq!(counts.written_bytes, 8192 + 4096 + 100);
        assert_eq!(counts.counters.user_bytes_written, counts.written_bytes);
        assert_eq!(counts.repetitions, 0);
        assert_eq!(job.run(&load).expect("the load runs"), counts, "a run is exact");
        let writes = load.block_writes();
        assert_eq!((writes[&(0, 0)], writes[&(0, 1)]), (2, 2));
    }

    #[test]
    fn a_full_volume_is_cleaned_and_an_empty_load_is_refused() {
        let mut lines = String::new();
        for write in 0_u64..2000 {
            // Some blocks are written twice in a repetition, and others not at all.
            let hash = write.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let offset =
                ((hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) % 2048 * 4096;
            lines += &format!("{},write,9,{offset},4096,0,0,0\n", write * 1000);
            if write % 64 == 0 {
                lines += &format!("{},fsync,9,0,0,0,0,0\n", write * 1000);
            }
        }
        // Less room is free than a repetition overwrites.
        let (full, warm_up_bytes) = (0.97, 32 << 20);
        let job = TracedJob { full, warm_up_bytes, measured_bytes: 64 << 20, ..job() };
        let counts = job.run(&load(&lines)).expect("the load runs");
        assert!(counts.repetitions >= 10 && counts.counters.segments_cleaned > 0, "{counts:?}");
        assert_eq!(counts.counters.user_bytes_written, counts.written_bytes, "{counts:?}");
        assert!(counts.counters.cleaning_bytes > 0, "{counts:?}");
        assert!(
            counts.counters.data_bytes <= counts.written_bytes,
            "the warm-up counts: {counts:?}"
        );
        let error = job.run(&load("1,read,9,0,4096,0,0,0\n")).expect_err("no load");
        assert_eq!(error.to_string(), "the load writes nothing");
        let job = TracedJob { full: 2.0, ..job };
        assert_eq!(
            job.run(&load(&lines)).expect_err("too small").to_string(),
            "the volume is full"
        );
    }
}
