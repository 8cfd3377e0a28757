//! A volume under measurement, and one run of a program on it.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    ageing::{age, fill_up},
    load::{Limit, Place, Program, Works, sync_filesystem},
    materials::Materials,
    medium::{Disk, Wear},
    state::State,
    variant::Variant,
};
use crate::{
    filesystem::{Blocks, Cache},
    machine,
    mount::Mount,
    run::Cmd,
    scratch::Scratch,
    workspace::Programs,
};

/// Rest before the measurement, in which filesystems clean and discard in the background.
const REST: Duration = Duration::from_secs(2);

/// Bytes of files after which the camera deletes the oldest on a real device, which is not filled for it.
const RING_BYTES_REAL: u64 = 1 << 30;

/// A mounted filesystem. The mount is dropped before the disk.
pub(super) struct Volume {
    mount: Mount,
    disk: Disk,
    state: State,
}

/// Result of a run.
pub(super) struct Outcome {
    /// Duration with the final write-back, in seconds.
    pub(super) secs: f64,
    pub(super) works: Works,
    pub(super) wear: Wear,
}

/// Everything that a volume is made from.
pub(super) struct VolumePlan<'a> {
    pub(super) variant: Variant,
    pub(super) programs: &'a Programs,
    pub(super) segment_size: Option<&'static str>,
    pub(super) state: State,
    /// Largest space that a program needs on the volume, in bytes.
    pub(super) need_bytes: u64,
}

impl VolumePlan<'_> {
    /// Makes, mounts and ages the volume on `disk`; it is mounted on `dir`.
    pub(super) fn make(&self, disk: Disk, dir: &Path) -> Result<Volume> {
        let Self { variant, state, .. } = *self;
        let programs = self.programs.clone().with(variant.options.map(Into::into));
        let programs = programs.with_segment_size(self.segment_size);
        // The blocks of a used device all have data, until the filesystem discards them.
        let blocks = if state == State::New { Blocks::Discard } else { Blocks::Keep };
        variant.kind.make(&programs, disk.device(), blocks)?;
        let mount = Mount::new(variant.kind, &programs, disk.device(), dir, Cache::Writeback)?;
        let volume = Volume { mount, disk, state };
        if let Some(percent) = state.percent() {
            let len = rustix::fs::statvfs(dir).map(|space| space.f_blocks * space.f_frsize)?;
            let room = self.need_bytes as f64 * 100.0 / len as f64;
            let percent = f64::from(percent);
            age(&dir.join("aged"), len, percent, percent - room).context("ageing")?;
            if variant.options.is_some() {
                machine::need("fstrim", "util-linux")?;
                Cmd::new("fstrim").arg(dir).read()?;
            }
        }
        Ok(volume)
    }
}

impl Volume {
    /// Runs a program in a new directory, which is removed afterwards.
    pub(super) fn measure(
        &self,
        program: Program,
        limit: Limit,
        materials: &Materials,
        outside: &Scratch,
    ) -> Result<Outcome> {
        let ring_bytes = match self.disk {
            Disk::Model { .. } => u64::MAX,
            Disk::Real(_) => RING_BYTES_REAL,
        };
        let (dir, beside) = (self.mount.dir.clone(), outside.dir.clone());
        let parent = Place { dir, outside: beside, materials, ring_bytes };
        let place = parent.within(program.name())?;
        let ballast = self.mount.dir.join("ballast");
        let outcome = self.run(program, limit, &place, &ballast);
        // Also after a failure, since the volume of a used state is used again.
        let removed = remove(&place.dir).and(remove(&place.outside)).and(remove(&ballast));
        let outcome = outcome?;
        removed.and(sync_filesystem(&self.mount.dir)).context("cleaning up")?;
        Ok(outcome)
    }

    fn run(
        &self,
        program: Program,
        limit: Limit,
        place: &Place<'_>,
        ballast: &Path,
    ) -> Result<Outcome> {
        let mut load = program.prepare(place).context("preparing")?;
        if let Some(percent) = self.state.percent() {
            fill_up(ballast, f64::from(percent)).context("filling")?;
        }
        sync_filesystem(&place.dir)?;
        let real_time = matches!(limit, Limit::Time(_));
        if real_time {
            thread::sleep(REST);
        }
        self.disk.reset()?;
        let (works, secs) = self.disk.at_pace(real_time, || {
            let begun = Instant::now();
            let works = load.run(limit)?;
            sync_filesystem(&place.dir)?;
            Ok((works, begun.elapsed().as_secs_f64()))
        })?;
        let wear = self.disk.wear()?;
        load.end()?;
        Ok(Outcome { secs, works, wear })
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn unmount(self) -> Result<()> {
        self.mount.unmount()
    }
}

/// Removes a file, or a directory with its content, if it exists.
fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("removing {}", path.display())),
    }
}
