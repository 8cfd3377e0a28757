//! Loads beside other programs, on a volume with room.
//!
//! The filesystems use one device in turn. Each run makes a new filesystem and fills it; before each
//! load the filesystem is mounted anew, so that no cache has its files and names. The null filesystem, which would be
//! empty then, stays mounted while the caches are dropped.

use std::path::Path;

use anyhow::Result;

use super::{
    super::medium::{Medium, MediumDevice},
    entrant::{Entrant, Entrants, Outcome},
    options::TailOptions,
    report::{Report, Unit},
};
use crate::{machine, scratch::Scratch};

/// A load, and the programs beside it.
struct Load {
    title: &'static str,
    /// Command of the load generator.
    command: &'static str,
    beside: &'static [&'static str],
}

/// A part of the benchmark that this module runs.
pub(super) struct PlaygroundPart {
    name: &'static str,
    loads: &'static [Load],
}

/// Small requests beside a stream.
pub(super) const STREAM: PlaygroundPart = PlaygroundPart {
    name: "stream",
    loads: &[Load { title: "beside a stream", command: "rounds", beside: &["stream"] }],
};

/// The other pairs of loads.
pub(super) const OTHERS: PlaygroundPart = PlaygroundPart {
    name: "others",
    loads: &[
        Load { title: "beside a copy", command: "rounds", beside: &["copy"] },
        Load { title: "ls -l beside a stream", command: "listing", beside: &["stream"] },
        Load {
            title: "database beside a stream and a copy",
            command: "database",
            beside: &["stream", "copy"],
        },
    ],
};

/// Sizes of the volume and its files.
struct Scale {
    device_len: u64,
    amounts: [(&'static str, u64); 5],
    warm_up_secs: f64,
}

const FULL: Scale = Scale {
    device_len: 2 << 30,
    amounts: [
        ("--cold-mib", 256),
        ("--names", 32_768),
        ("--stream-mib", 768),
        ("--database-mib", 64),
        ("--tree-files", 2_000),
    ],
    warm_up_secs: 3.0,
};

const QUICK: Scale = Scale {
    device_len: 512 << 20,
    amounts: [
        ("--cold-mib", 32),
        ("--names", 2_048),
        ("--stream-mib", 128),
        ("--database-mib", 8),
        ("--tree-files", 200),
    ],
    warm_up_secs: 0.3,
};

/// Runs a part.
pub(super) fn run(
    entrants: &Entrants,
    options: &TailOptions,
    medium: Medium,
    part: &PlaygroundPart,
    report: &mut Report,
) -> Result<()> {
    let scale = if options.quick { &QUICK } else { &FULL };
    let scratch = Scratch::in_ram(scale.device_len)?;
    let device = medium.make(entrants.lab(), "image", scale.device_len, &scratch)?;
    report.begin(
        part.name,
        medium,
        Unit::Milliseconds,
        format!(
            "{} runs of {} s, on {}",
            options.runs(),
            options.seconds(),
            medium.describe(scale.device_len, &scratch),
        ),
    );
    for run in 0..options.runs() {
        for index in Entrants::in_turn(entrants.count(), run) {
            let Some(entrant) = entrants.all().nth(index) else { continue };
            let place = format!("{} on {}", part.name, medium.name());
            println!("{place}, run {} of {}: {}", run + 1, options.runs(), entrant.name);
            let (device, scratch) = (&device, &scratch);
            let session = Session { entrants, entrant, device, medium, scratch, scale };
            if let Err(error) = session.measure(part, options, run, report) {
                report.add_failure(&entrant.name, &place, &error);
            }
        }
    }
    Ok(())
}

/// One run of one filesystem.
struct Session<'a> {
    entrants: &'a Entrants,
    entrant: &'a Entrant,
    device: &'a MediumDevice,
    medium: Medium,
    scratch: &'a Scratch,
    scale: &'a Scale,
}

impl Session<'_> {
    fn measure(
        &self,
        part: &PlaygroundPart,
        options: &TailOptions,
        run: u32,
        report: &mut Report,
    ) -> Result<()> {
        let segment_size = self.medium.is_model().then(|| self.medium.segment_size());
        self.entrant.make(self.device.device(), self.medium, segment_size)?;
        let seed = u64::from(run);
        if !self.entrant.kind.is_persistent() {
            return self.on_new_mount(|session, dir| {
                session.prepare(dir, seed)?;
                for load in part.loads {
                    machine::drop_caches()?;
                    session.run(load, dir, options, run, report)?;
                }
                Ok(())
            });
        }
        self.on_new_mount(|session, dir| session.prepare(dir, seed))?;
        for load in part.loads {
            self.on_new_mount(|session, dir| session.run(load, dir, options, run, report))?;
        }
        Ok(())
    }

    fn prepare(&self, dir: &Path, seed: u64) -> Result<()> {
        self.entrants.load(dir, &self.arguments("prepare", seed)).map(drop)
    }

    fn run(
        &self,
        load: &Load,
        dir: &Path,
        options: &TailOptions,
        run: u32,
        report: &mut Report,
    ) -> Result<()> {
        let arguments = self.timed_arguments(load, options, u64::from(run));
        let timed = || self.entrants.timed_load(dir, &arguments);
        let outcome: Outcome = self.device.in_real_time(timed)?;
        report.add(load.title, &self.entrant.name, run, outcome);
        Ok(())
    }

    /// Mounts, calls `work` with the mount point, and unmounts.
    fn on_new_mount<T>(&self, work: impl FnOnce(&Self, &Path) -> Result<T>) -> Result<T> {
        let dir = self.scratch.dir.join(self.entrant.file_name());
        // A filesystem may measure its device when it is mounted.
        let mount = || self.entrant.mount(self.device.device(), self.medium, &dir);
        let mount = self.device.in_real_time(mount)?;
        let result = work(self, &dir)?;
        mount.unmount()?;
        Ok(result)
    }

    fn arguments(&self, command: &str, seed: u64) -> Vec<String> {
        let mut arguments = vec![command.to_owned(), "--seed".into(), (seed + 1).to_string()];
        for (option, amount) in self.scale.amounts {
            arguments.extend([option.to_owned(), amount.to_string()]);
        }
        arguments
    }

    fn timed_arguments(&self, load: &Load, options: &TailOptions, seed: u64) -> Vec<String> {
        let mut arguments = self.arguments(load.command, seed);
        arguments.extend(["--seconds".into(), options.seconds().to_string()]);
        arguments.extend(["--warm-up".into(), self.scale.warm_up_secs.to_string()]);
        for &program in load.beside {
            let in_place = program == "stream" && options.in_place;
            let program = if in_place { "stream-in-place" } else { program };
            arguments.extend(["--beside".to_owned(), program.to_owned()]);
        }
        arguments
    }
}
