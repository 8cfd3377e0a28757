//! One load on one size of volume, and its measurement.

use std::{fmt, fs::File, io::Write as _, path::Path};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{
    cleanup::Undo,
    device::TestDevice,
    filesystem::{Blocks, FilesystemKind},
    scratch::Scratch,
    volume_stat::{self, AverageSegments, VolumeStat},
    workspace::Programs,
};

const BLOCK_LEN: u64 = 4096;

/// Bytes that the measurement overwrites, in sizes of the file.
const MEASURED_FILES: u64 = 2;

/// Number of background steps after a sync with which a run in RAM writes as much as a mount that is never idle: within
/// 4 % in the cells that were compared (docs/benchmarks.md).
const BUSY_STEPS: &str = "8";

/// Distribution of the overwrites over the blocks of the file, a workload of `sfs-lab`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Zipf's law with the exponent 0.99.
    Zipf99,
    /// Zipf's law with the exponent 1.2.
    Zipf120,
    /// 90 % of the writes go to 10 % of the blocks.
    HotCold,
    /// The same, and other blocks become hot.
    Shift,
    /// A mixture like that of an order-entry database.
    Tpcc,
    Uniform,
}

/// A load on a volume.
pub(super) struct Cell {
    volume_gib: u64,
    load: Load,
    /// Part of the space for files that is filled, in percent.
    full_percent: u64,
    /// Number of writes from one sync to the next.
    sync_writes: u32,
}

/// The measured cells: 24 on volumes of 2 GiB, and four on volumes of 16 GiB.
pub(super) const CELLS: [Cell; 28] = {
    let loads =
        [Load::Zipf99, Load::HotCold, Load::Tpcc, Load::Uniform, Load::Zipf120, Load::Shift];
    let shapes = [(85, 1024), (85, 4096), (93, 1024), (93, 4096)];
    let mut cells = [const { Cell::new(16, Load::Uniform, 85, 4096) }; 28];
    let mut index = 0;
    while index < 24 {
        let (full_percent, sync_writes) = shapes[index % shapes.len()];
        cells[index] = Cell::new(2, loads[index / shapes.len()], full_percent, sync_writes);
        index += 1;
    }
    while index < 28 {
        cells[index] = Cell::new(16, loads[index - 24], 85, 4096);
        index += 1;
    }
    cells
};

/// Figures of a measurement, for each byte that the program wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// All bytes on the device.
    pub(super) device: f64,
    /// Data that reached the log, without data that the cleaner moved.
    pub(super) data: f64,
    /// Data that the cleaner moved.
    pub(super) moved: f64,
    /// Number of blocks of the file.
    live_blocks: u64,
    /// Blocks of the log without withheld segments and summaries.
    space_blocks: f64,
    /// Part of the volume that was Clean, Drained, or the rest of an open segment.
    pub(super) withheld: f64,
}

impl Load {
    /// Returns the name of the workload in `sfs-lab`.
    fn name(self) -> &'static str {
        match self {
            Self::Zipf99 => "zipf:0.99",
            Self::Zipf120 => "zipf:1.2",
            Self::HotCold => "hotcold:90/10",
            Self::Shift => "shift",
            Self::Tpcc => "tpcc",
            Self::Uniform => "uniform",
        }
    }

    /// Returns whether the rate of each block is constant, so that there is a bound.
    fn has_constant_rates(self) -> bool {
        !matches!(self, Self::Shift | Self::Tpcc)
    }
}

impl Cell {
    const fn new(volume_gib: u64, load: Load, full_percent: u64, sync_writes: u32) -> Self {
        Self { volume_gib, load, full_percent, sync_writes }
    }

    pub(super) fn name(&self) -> String {
        let Self { volume_gib, load, full_percent, sync_writes } = self;
        format!("{volume_gib}G {} {full_percent}% sync {sync_writes}", load.name())
    }

    /// Measures the load on a new volume with the grouping policy `policy`. `lab` has `sfs-lab`.
    pub(super) fn measure(
        &self,
        (programs, lab): (&Programs, &Programs),
        policy: &str,
    ) -> Result<Figures> {
        let len = self.volume_gib << 30;
        let scratch = Scratch::in_ram(len)?;
        let device = TestDevice::best(&scratch.dir.join("image"), len)?;
        FilesystemKind::Sfs.make(programs, &device, Blocks::Discard)?;
        let dir = scratch.directory("mount")?;
        let guard = Undo::Unmount(dir.clone()).later();
        let policy = format!("policy={policy}");
        programs.mount_cmd("sfs-mount").args(["-o", &policy]).arg(&device.path).arg(&dir).run()?;
        let space = rustix::fs::statvfs(&dir)?;
        let file_len = (space.f_blocks * space.f_frsize * self.full_percent / 100) >> 20 << 20;
        let live_blocks = file_len / BLOCK_LEN;
        let file = dir.join("file");
        fill(&file, file_len)?;
        let overwrite = |skip: u64, writes: u64| {
            let lab = lab.cmd("sfs-lab").arg("overwrite").arg(&file);
            lab.args(["--workload", self.load.name()])
                .args(["--sync-interval", &self.sync_writes.to_string()])
                .args(["--skip", &skip.to_string(), "--writes", &writes.to_string()])
                .run()
        };
        overwrite(0, live_blocks)?;
        let before = VolumeStat::read(programs, &dir)?;
        let (_, average) = volume_stat::watch_segments(programs, &dir, || {
            overwrite(live_blocks, live_blocks * MEASURED_FILES)
        })?;
        let after = VolumeStat::read(programs, &dir)?;
        FilesystemKind::Sfs.unmount(programs, &dir)?;
        drop(guard);
        Figures::of((&before, &after), average, live_blocks)
    }

    /// Measures the load in one process on a device in RAM: exact, and five times as fast as on a mount.
    pub(super) fn measure_in_memory(&self, programs: &Programs, policy: &str) -> Result<Figures> {
        let text = programs
            .cmd("sfs-lab")
            .args(["in-memory", "--json", "--policy", policy, "--workload", self.load.name()])
            .args(["--mib", &(self.volume_gib << 10).to_string()])
            .args(["--full", &(self.full_percent as f64 / 100.0).to_string()])
            .args(["--sync-interval", &self.sync_writes.to_string()])
            .args(["--background-steps", BUSY_STEPS])
            .args(["--measure", &MEASURED_FILES.to_string()])
            .read()?;
        let run: InMemory = serde_json::from_str(&text)?;
        let used = run.segments as f64 - run.withheld_segments;
        let of_data = 1.0 - run.summaries / run.device;
        Ok(Figures {
            device: run.device,
            data: run.data,
            moved: run.moved,
            live_blocks: run.live_blocks,
            space_blocks: used * run.segment_blocks as f64 * of_data,
            withheld: run.withheld_segments / run.segments as f64,
        })
    }
}

/// Needed part of the output of `sfs-lab in-memory --json`.
#[derive(Deserialize)]
struct InMemory {
    device: f64,
    data: f64,
    moved: f64,
    summaries: f64,
    live_blocks: u64,
    segments: u64,
    segment_blocks: u64,
    withheld_segments: f64,
}

/// Writes `len` bytes, whole MiB, to a new file.
fn fill(path: &Path, len: u64) -> Result<()> {
    let mut file = File::create(path)?;
    for _ in 0..len >> 20 {
        file.write_all(&[1; 1 << 20])?;
    }
    Ok(file.sync_all()?)
}

impl Figures {
    fn of(
        (before, after): (&VolumeStat, &VolumeStat),
        average: AverageSegments,
        live_blocks: u64,
    ) -> Result<Self> {
        let written = (live_blocks * BLOCK_LEN * MEASURED_FILES) as f64;
        let per_byte = |name: &str| Ok(after.increase_since(before, name)? as f64 / written);
        let [device, data, moved, summaries]: [Result<f64>; 4] =
            ["device_bytes_written", "data_bytes", "cleaning_bytes", "summary_bytes"].map(per_byte);
        let (device, data, moved, summaries) = (device?, data?, moved?, summaries?);
        let segments = after.segments.count() as f64;
        // An open segment is half written on average.
        let withheld = average.empty + average.open / 2.0;
        let of_data = 1.0 - summaries / device;
        let space_blocks = (segments - withheld) * after.segments.blocks as f64 * of_data;
        let withheld = withheld / segments;
        Ok(Self { device, data, moved, live_blocks, space_blocks, withheld })
    }

    /// Returns the least bytes on the device for a cleaner that knows the rate of every block, with
    /// the metadata and summaries that were measured; `None` if rates change.
    pub(super) fn bound(&self, lab: &Programs, cell: &Cell) -> Result<Option<f64>> {
        if !cell.load.has_constant_rates() {
            return Ok(None);
        }
        let coalesced = (1.0 - self.data).max(0.0);
        let cmd = lab.cmd("sfs-lab").args(["bound", "--workload", cell.load.name()]);
        let text = cmd
            .args(["--live-blocks", &self.live_blocks.to_string()])
            .args(["--space-blocks", &self.space_blocks.to_string()])
            .args(["--coalesced", &coalesced.to_string()])
            .read()?;
        let amplification: f64 = text.trim().parse().context("sfs-lab bound printed no number")?;
        let metadata = self.device - self.data - self.moved;
        Ok(Some(self.data * amplification + metadata))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, data, moved, withheld, .. } = self;
        write!(f, "{device:.3} on the device (data {data:.3}, moved {moved:.3}), ")?;
        write!(f, "{:.1} % withheld", withheld * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let names: BTreeSet<String> = CELLS.iter().map(Cell::name).collect();
        assert_eq!(names.len(), CELLS.len());
        assert_eq!(CELLS.iter().filter(|cell| cell.volume_gib == 2).count(), 24);
        assert!(names.contains("2G hotcold:90/10 93% sync 4096"), "{names:?}");
    }
}
