//! The common part of all programs of the benchmark: a place, a limit, and timed units of work.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use super::{camera, dpkg, git, image, journal, materials::Materials, postgres, sqlite, together};
use crate::cleanup;

/// A program of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Program {
    /// PostgreSQL under pgbench, transactions like TPC-B's and select-only ones mixed.
    Postgres,
    /// SQLite as the recorder of Home Assistant uses it: WAL, a commit for each reading of a sensor.
    Recorder,
    /// SQLite with a rollback journal, which is SQLite's default.
    Rollback,
    /// dpkg unpacks fifty packages.
    Dpkg,
    /// git clones this repository, and checks revisions out.
    Git,
    /// A log like journald's, synced after ten entries.
    Journal,
    /// A camera that writes files of 2 MB, and deletes the oldest at 90 %.
    Camera,
    /// A container image, unpacked layer by layer.
    Image,
    /// All of them at once.
    Together,
}

/// Directories of one program, and the bounds of its work.
pub(super) struct Place<'a> {
    /// An empty directory on the volume.
    pub(super) dir: PathBuf,
    /// An empty directory outside of it.
    pub(super) outside: PathBuf,
    pub(super) materials: &'a Materials,
    /// Bytes of files beyond which the camera deletes the oldest.
    pub(super) ring_bytes: u64,
}

impl Place<'_> {
    /// Makes a place within this one.
    pub(super) fn within(&self, name: &str) -> Result<Self> {
        let place = Self { dir: self.dir.join(name), outside: self.outside.join(name), ..*self };
        for dir in [&place.dir, &place.outside] {
            fs::create_dir(dir).with_context(|| format!("making {}", dir.display()))?;
        }
        Ok(place)
    }
}

/// End of a load.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Time(Duration),
    /// Number of units of work of each program.
    Units(u64),
}

/// Work of one program in one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// Duration of each unit of work, in nanoseconds, in any order.
    pub(super) unit_ns: Vec<u64>,
}

/// Work of each program in one run.
pub(super) type Works = Vec<(Program, Work)>;

/// A prepared program.
pub(super) trait Load: Send {
    /// Works until the limit.
    fn run(&mut self, limit: Limit) -> Result<Works>;

    /// Ends what the preparation has started.
    fn end(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A load whose units are single calls of a method.
pub(super) trait UnitLoad: Send {
    const PROGRAM: Program;

    /// Does a unit of work, and returns its duration.
    fn unit(&mut self) -> Result<Duration>;
}

impl<L: UnitLoad> Load for L {
    fn run(&mut self, limit: Limit) -> Result<Works> {
        let mut stopwatch = Stopwatch::new(limit);
        while stopwatch.goes_on() {
            let took = self.unit()?;
            stopwatch.add(took);
        }
        Ok(vec![(L::PROGRAM, stopwatch.into_work())])
    }
}

/// Counts units until the limit.
pub(super) struct Stopwatch {
    limit: Limit,
    begun: Instant,
    work: Work,
}

impl Stopwatch {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, begun: Instant::now(), work: Work::default() }
    }

    /// Returns whether the limit is not reached, and no signal has asked for the end.
    pub(super) fn goes_on(&self) -> bool {
        let goes_on = match self.limit {
            Limit::Time(time) => self.begun.elapsed() < time,
            Limit::Units(units) => (self.work.unit_ns.len() as u64) < units,
        };
        goes_on && !cleanup::is_stopping()
    }

    pub(super) fn add(&mut self, took: Duration) {
        self.work.unit_ns.push(took.as_nanos() as u64);
    }

    pub(super) fn into_work(self) -> Work {
        self.work
    }
}

/// Calls `work`, and returns its duration.
pub(super) fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

/// Writes all data of the filesystem that holds `dir`.
pub(super) fn sync_filesystem(dir: &Path) -> Result<()> {
    let file = File::open(dir).with_context(|| format!("{}", dir.display()))?;
    rustix::fs::syncfs(file).with_context(|| format!("syncfs of {}", dir.display()))
}

/// Returns the part of the space for files that is used, in percent, as df(1) does.
pub(super) fn used_percent(dir: &Path) -> Result<f64> {
    let space = rustix::fs::statvfs(dir)?;
    let used = (space.f_blocks - space.f_bfree) as f64;
    let all = used + space.f_bavail as f64;
    ensure!(all > 0.0, "{} has no space", dir.display());
    Ok(used * 100.0 / all)
}

impl Program {
    /// All programs that can run at once.
    pub(super) const SINGLE: [Self; 8] = [
        Self::Postgres,
        Self::Recorder,
        Self::Rollback,
        Self::Dpkg,
        Self::Git,
        Self::Journal,
        Self::Camera,
        Self::Image,
    ];

    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Recorder => "recorder",
            Self::Rollback => "rollback",
            Self::Dpkg => "dpkg",
            Self::Git => "git",
            Self::Journal => "journal",
            Self::Camera => "camera",
            Self::Image => "image",
            Self::Together => "together",
        }
    }

    /// Returns the unit of work.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Postgres => "transaction",
            Self::Recorder | Self::Rollback => "commit",
            Self::Dpkg => "package",
            Self::Git => "clone or checkout",
            Self::Journal => "sync of ten entries",
            Self::Camera => "file of 2 MB",
            Self::Image => "layer",
            Self::Together => "thousandth of a day's use",
        }
    }

    /// Returns the assumed number of units that a day's use has.
    pub(super) fn units_a_day(self) -> f64 {
        match self {
            Self::Postgres => 100_000.0,
            // Twenty sensors, a reading a second.
            Self::Recorder => 20.0 * 86_400.0,
            Self::Rollback | Self::Journal => 86_400.0,
            Self::Dpkg => 50.0,
            Self::Git => 20.0,
            // A file in ten seconds.
            Self::Camera => 8_640.0,
            Self::Image => 4.0,
            Self::Together => 1_000.0,
        }
    }

    /// Returns the space that the program needs on the volume at most, in MiB.
    pub(super) fn need_mib(self) -> u64 {
        match self {
            Self::Postgres => 320,
            Self::Recorder | Self::Rollback => 48,
            Self::Dpkg => 140,
            Self::Git => 80,
            Self::Journal => 136,
            Self::Camera => 40,
            Self::Image => 80,
            Self::Together => Self::SINGLE.iter().map(|program| program.need_mib()).sum(),
        }
    }

    /// Installs what the program needs, or names what is missing.
    pub(super) fn need(self) -> Result<()> {
        match self {
            Self::Postgres => postgres::need(),
            Self::Recorder | Self::Rollback => sqlite::need(),
            Self::Dpkg => dpkg::need(),
            Self::Git => git::need(),
            Self::Journal | Self::Camera => Ok(()),
            Self::Image => image::need(),
            Self::Together => Self::SINGLE.iter().try_for_each(|program| program.need()),
        }
    }

    /// Prepares the program at a place.
    pub(super) fn prepare(self, place: &Place<'_>) -> Result<Box<dyn Load>> {
        Ok(match self {
            Self::Postgres => Box::new(postgres::prepare(place)?),
            Self::Recorder => Box::new(sqlite::prepare_recorder(place)?),
            Self::Rollback => Box::new(sqlite::prepare_rollback(place)?),
            Self::Dpkg => Box::new(dpkg::prepare(place)?),
            Self::Git => Box::new(git::prepare(place)?),
            Self::Journal => Box::new(journal::prepare(place)?),
            Self::Camera => Box::new(camera::prepare(place)?),
            Self::Image => Box::new(image::prepare(place)?),
            Self::Together => Box::new(together::prepare(place)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_units_is_exact_and_one_of_time_ends() {
        let mut stopwatch = Stopwatch::new(Limit::Units(3));
        while stopwatch.goes_on() {
            stopwatch.add(Duration::from_millis(2));
        }
        assert_eq!(stopwatch.into_work().unit_ns, [2_000_000; 3]);
        let stopwatch = Stopwatch::new(Limit::Time(Duration::ZERO));
        assert!(!stopwatch.goes_on());
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for program in Program::value_variants() {
            let value = program.to_possible_value().expect("no program is hidden");
            assert_eq!(value.get_name(), program.name());
        }
    }
}
