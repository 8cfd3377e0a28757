//! Synced overwrites on a full volume that is old.
//!
//! One file fills a part of the space and is overwritten by Zipf's law before the measurement. All
//! filesystems are mounted at once, and take turns.

use anyhow::Result;

use super::{
    super::counters,
    entrant::{Entrant, Entrants, Outcome},
    options::TailOptions,
    report::{Report, Unit},
};
use crate::{device::Device, filesystem::FilesystemKind, mount::Mount, scratch::Scratch};

/// Segment size of SFS.
const SEGMENT_SIZE: &str = "4M";

/// Blocks in a MiB.
const MIB_BLOCKS: u64 = 256;

/// Sizes of the volume and the load.
struct Scale {
    device_len: u64,
    /// Overwrites before the measurement, in MiB.
    aged_mib: u64,
    /// Requests of a run.
    requests: u64,
}

const FULL: Scale = Scale { device_len: 1 << 30, aged_mib: 2 << 10, requests: 10_000 };
const QUICK: Scale = Scale { device_len: 256 << 20, aged_mib: 64, requests: 500 };

/// A mounted filesystem with an old file. The mount is dropped before the device.
struct Aged<'a> {
    entrant: &'a Entrant,
    mount: Mount,
    _device: Device,
}

/// Runs this part.
pub(super) fn run(entrants: &Entrants, options: &TailOptions, report: &mut Report) -> Result<()> {
    let scale = if options.quick { &QUICK } else { &FULL };
    let scratch = Scratch::in_ram(scale.device_len * entrants.count() as u64)?;
    report.begin(
        "cleaning",
        Unit::Microseconds,
        format!(
            "cleaning: {} runs of {} requests, a write of 4 KiB and fsync, after {} MiB of overwrites by \
             Zipf 0.99; on loop devices of {} MiB {}, SFS with segments of 4 MiB",
            options.runs(),
            scale.requests,
            scale.aged_mib,
            scale.device_len >> 20,
            scratch.place()
        ),
    );
    for &percent in &options.full {
        let title = format!("{percent}% full");
        let mut volumes = Vec::new();
        for entrant in entrants.all() {
            println!("{title}: filling and overwriting {}", entrant.name);
            match Aged::new(entrants, entrant, scale, percent, &scratch) {
                Ok(aged) => volumes.push(aged),
                Err(error) => report.add_failure(&entrant.name, &title, &error),
            }
        }
        for run in 0..options.runs() {
            for index in Entrants::in_turn(volumes.len(), run) {
                let aged = &volumes[index];
                match aged.measure(entrants, scale, run) {
                    Ok(outcome) => report.add(&title, &aged.entrant.name, run, outcome),
                    Err(error) => report.add_failure(&aged.entrant.name, &title, &error),
                }
            }
        }
        volumes.into_iter().try_for_each(|aged| aged.mount.unmount())?;
    }
    Ok(())
}

impl<'a> Aged<'a> {
    fn new(
        entrants: &Entrants,
        entrant: &'a Entrant,
        scale: &Scale,
        percent: u64,
        scratch: &Scratch,
    ) -> Result<Self> {
        let name = entrant.file_name();
        let device = Device::allocated(&scratch.dir.join(format!("{name}.img")), scale.device_len)?;
        entrant.make(&device, Some(SEGMENT_SIZE))?;
        let dir = scratch.dir.join(name);
        let mount = entrant.mount(&device, &dir)?;
        let fill = ["fill", "--percent", &percent.to_string()].map(str::to_owned);
        entrants.load(&dir, &fill)?;
        let age = ["age", "--mib", &scale.aged_mib.to_string()].map(str::to_owned);
        entrants.load(&dir, &age)?;
        Ok(Self { entrant, mount, _device: device })
    }

    fn measure(&self, entrants: &Entrants, scale: &Scale, run: u32) -> Result<Outcome> {
        let skipped = scale.aged_mib * MIB_BLOCKS + u64::from(run) * scale.requests;
        let requests = scale.requests.to_string();
        let arguments = ["overwrite", "--requests", &requests, "--skipped", &skipped.to_string()];
        let Self { entrant, mount, .. } = self;
        if entrant.kind != FilesystemKind::Sfs {
            return entrants.timed_load(&mount.dir, &arguments.map(str::to_owned));
        }
        let before = counters::read(&entrant.programs, &mount.dir)?;
        let mut outcome = entrants.timed_load(&mount.dir, &arguments.map(str::to_owned))?;
        let after = counters::read(&entrant.programs, &mount.dir)?;
        for name in ["stalls", "segments_cleaned"] {
            let count = counters::increase(&before, &after, name)?;
            outcome.background.insert(name.to_owned(), count as f64);
        }
        Ok(outcome)
    }
}
