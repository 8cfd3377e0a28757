//! The filesystems under measurement with their programs, and the load generator.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use serde::Deserialize;

use super::{
    super::medium::Medium,
    super::{Contestant, place_in_turn},
    options::TailOptions,
    report::Report,
};
use crate::{
    device::TestDevice,
    filesystem::FilesystemKind,
    machine::Rings,
    mount::Mount,
    run::Cmd,
    workspace::{Profile, Programs, Workspace},
};

/// A filesystem with the programs of one build.
pub(super) struct Entrant {
    pub(super) name: String,
    pub(super) kind: FilesystemKind,
    pub(super) programs: Programs,
}

/// All filesystems of the benchmark, with the load generator.
pub(super) struct Entrants {
    all: Vec<Entrant>,
    load: PathBuf,
    /// Programs of the laboratory, if a model is among the devices.
    lab: Option<Programs>,
    _rings: Option<Rings>,
}

/// Result of a load, as the load generator prints it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Outcome {
    pub(super) rounds: u64,
    pub(super) secs: f64,
    pub(super) background: BTreeMap<String, f64>,
    pub(super) calls: BTreeMap<String, CallLatency>,
}

/// Latency of the requests of one kind, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct CallLatency {
    pub(super) count: u64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p999_ns: u64,
    pub(super) longest_ns: u64,
}

impl Entrants {
    /// Builds everything. A filesystem that this machine lacks is noted in the report.
    pub(super) fn of(
        workspace: &Workspace,
        options: &TailOptions,
        profile: Profile,
        report: &mut Report,
    ) -> Result<Self> {
        let before = options.before.as_deref().map(Programs::of_build).transpose()?;
        let load = workspace.build(profile, &["sfs-bench"])?.path("tail-load");
        let lab =
            options.has_model().then(|| workspace.build(profile, &["sfs-lab"])).transpose()?;
        let rings = Rings::enable();
        if let Err(error) = &rings {
            eprintln!("{error:#}");
        }
        let mut all = Vec::new();
        for contestant in options.contestants()? {
            let is_sfs = contestant.kind == FilesystemKind::Sfs;
            if let Some(before) = before.clone().filter(|_| is_sfs) {
                let name = format!("{}, before", contestant.name());
                let programs = contestant.options_of(before);
                all.push(Entrant { name, kind: contestant.kind, programs });
            }
            match contestant.programs(workspace, profile) {
                Ok(programs) => all.push(Entrant::new(contestant, programs)),
                Err(error) => report.add_failure(&contestant.name(), "", &error),
            }
        }
        if all.is_empty() {
            bail!("there is nothing to measure");
        }
        Ok(Self { all, load, lab, _rings: rings.ok() })
    }

    /// Returns the programs of the laboratory.
    pub(super) fn lab(&self) -> Option<&Programs> {
        self.lab.as_ref()
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the filesystems in the order of the table.
    pub(super) fn all(&self) -> impl Iterator<Item = &Entrant> {
        self.all.iter()
    }

    /// Returns the indices of the filesystems in the order of run `run`.
    pub(super) fn in_turn(count: usize, run: u32) -> impl Iterator<Item = usize> {
        (0..count).map(move |turn| place_in_turn(turn, run as usize, count))
    }

    /// Runs the load generator on a directory, and returns its output.
    pub(super) fn load(&self, dir: &Path, arguments: &[String]) -> Result<String> {
        Cmd::new(&self.load).arg(dir).args(arguments).read()
    }

    /// Runs a load whose requests are timed.
    pub(super) fn timed_load(&self, dir: &Path, arguments: &[String]) -> Result<Outcome> {
        Ok(serde_json::from_str(&self.load(dir, arguments)?)?)
    }
}

impl Entrant {
    fn new(contestant: Contestant, programs: Programs) -> Self {
        Self { name: contestant.name(), kind: contestant.kind, programs }
    }

    /// Returns the name as a part of file names.
    pub(super) fn file_name(&self) -> String {
        self.name.replace([',', ' ', '='], "-")
    }

    /// Makes an empty filesystem, with segments of `segment_size` if it is SFS.
    pub(super) fn make(
        &self,
        device: &TestDevice,
        medium: Medium,
        segment_size: Option<&'static str>,
    ) -> Result<()> {
        let programs = self.programs.clone().with_segment_size(segment_size);
        self.kind.make(&programs, device, medium.blocks())
    }

    pub(super) fn mount(&self, device: &TestDevice, medium: Medium, dir: &Path) -> Result<Mount> {
        Mount::new(self.kind, &self.programs, device, dir, medium.cache())
    }
}
