//! Full volumes that are old: one file fills a part of the space and was overwritten
//! according to Zipf's law.

use anyhow::Result;

use super::{
    super::medium::{Medium, MediumDevice},
    entrant::{Entrant, Entrants, Outcome},
    options::TailOptions,
    report::Report,
};
use crate::{filesystem::FilesystemKind, mount::Mount, scratch::Scratch, volume_stat::VolumeStat};

/// Number of blocks in a MiB.
const MIB_BLOCKS: u64 = 256;

/// Size of the volume, and amount of overwrites.
pub(super) struct Scale {
    pub(super) device_len: u64,
    /// Overwrites before the measurement, in MiB.
    pub(super) aged_mib: u64,
}

const FULL: Scale = Scale { device_len: 1 << 30, aged_mib: 2 << 10 };
const QUICK: Scale = Scale { device_len: 256 << 20, aged_mib: 64 };

impl Scale {
    pub(super) fn of(options: &TailOptions) -> &'static Self {
        if options.quick { &QUICK } else { &FULL }
    }
}

/// A mounted filesystem with an old file. The mount is dropped before the device.
pub(super) struct FullVolume<'a> {
    pub(super) entrant: &'a Entrant,
    entrants: &'a Entrants,
    mount: Mount,
    device: MediumDevice,
    /// Number of overwrites so far.
    overwrites: u64,
}

/// Makes the volumes of all filesystems, and notes failures in the report.
pub(super) fn make_all<'a>(
    entrants: &'a Entrants,
    options: &TailOptions,
    medium: Medium,
    percent: u64,
    scratch: &Scratch,
    report: &mut Report,
) -> Vec<FullVolume<'a>> {
    let mut volumes = Vec::new();
    let place = format!("{percent}% full, {}", medium.name());
    // The null filesystem has no volume that could be full.
    for entrant in entrants.all().filter(|entrant| entrant.kind.is_persistent()) {
        println!("{place}: filling and overwriting {}", entrant.name);
        let scale = Scale::of(options);
        match FullVolume::new(entrants, entrant, scale, medium, percent, scratch) {
            Ok(volume) => volumes.push(volume),
            Err(error) => report.add_failure(&entrant.name, &place, &error),
        }
    }
    volumes
}

impl<'a> FullVolume<'a> {
    fn new(
        entrants: &'a Entrants,
        entrant: &'a Entrant,
        scale: &Scale,
        medium: Medium,
        percent: u64,
        scratch: &Scratch,
    ) -> Result<Self> {
        let name = entrant.file_name();
        let device = medium.make(entrants.lab(), &name, scale.device_len, scratch)?;
        entrant.make(device.device(), medium, Some(medium.segment_size()))?;
        let mount = entrant.mount(device.device(), medium, &scratch.dir.join(name))?;
        let fill = ["fill", "--percent", &percent.to_string()].map(str::to_owned);
        entrants.load(&mount.dir, &fill)?;
        let age = ["age", "--mib", &scale.aged_mib.to_string()].map(str::to_owned);
        entrants.load(&mount.dir, &age)?;
        let overwrites = scale.aged_mib * MIB_BLOCKS;
        Ok(Self { entrant, entrants, mount, device, overwrites })
    }

    /// Runs `requests` more overwrites, one after the other, or at random times with the mean rate
    /// `rate` per second.
    pub(super) fn overwrite(&mut self, requests: u64, rate: Option<f64>) -> Result<Outcome> {
        let command = if rate.is_some() { "arrivals" } else { "overwrite" };
        let (count, skipped) = (requests.to_string(), self.overwrites.to_string());
        let arguments = [command, "--requests", &count, "--skipped", &skipped];
        let mut arguments = arguments.map(str::to_owned).to_vec();
        arguments.extend(rate.iter().flat_map(|rate| ["--rate".to_owned(), rate.to_string()]));
        self.overwrites += requests;
        let run =
            || self.device.in_real_time(|| self.entrants.timed_load(&self.mount.dir, &arguments));
        if self.entrant.kind != FilesystemKind::Sfs {
            return run();
        }
        let programs = &self.entrant.programs;
        let before = VolumeStat::read(programs, &self.mount.dir)?;
        let mut outcome = run()?;
        let after = VolumeStat::read(programs, &self.mount.dir)?;
        for name in ["stalls", "segments_cleaned"] {
            let count = after.increase_since(&before, name)?;
            outcome.background.insert(name.to_owned(), count as f64);
        }
        Ok(outcome)
    }

    pub(super) fn unmount(self) -> Result<()> {
        self.mount.unmount()
    }
}
