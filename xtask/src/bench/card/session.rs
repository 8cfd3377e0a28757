//! The order of the runs: within each run the filesystems take turns.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::{
    super::place_in_turn,
    load::Program,
    materials::Materials,
    medium::{CardModel, Disk},
    options::CardOptions,
    real::RealDevice,
    report::{Report, Sample},
    state::State,
    variant::Variant,
    volume::{Volume, VolumePlan},
};
use crate::{
    cleanup,
    scratch::Scratch,
    workspace::{Profile, Programs, Workspace},
};

/// Everything that all runs share.
pub(super) struct Session<'a> {
    options: &'a CardOptions,
    /// Filesystems that this machine has, with their programs.
    variants: Vec<(Variant, Programs)>,
    /// Programs that this machine has.
    programs: Vec<Program>,
    materials: Materials,
    lab: Programs,
    scratch: Scratch,
}

/// A kind of device.
#[derive(Clone, Copy)]
enum Medium {
    Model(CardModel),
    Real,
}

impl<'a> Session<'a> {
    /// Builds and installs everything. Programs and filesystems that this machine lacks are noted in the report.
    pub(super) fn new(
        workspace: &Workspace,
        options: &'a CardOptions,
        profile: Profile,
        report: &mut Report,
    ) -> Result<Self> {
        let mut variants = Vec::new();
        for variant in options.variants()? {
            let kind = variant.kind;
            match kind.need().and_then(|()| kind.build(workspace, profile)) {
                Ok(programs) => variants.push((variant, programs)),
                Err(error) => report.add_failure(&variant.title(), &error),
            }
        }
        let scratch = Scratch::in_ram(1 << 30)?;
        let mut materials = Materials::default();
        let mut programs = Vec::new();
        for program in options.programs() {
            let added = program.need().and_then(|()| materials.add(program, workspace, &scratch));
            match added {
                Ok(()) => programs.push(program),
                Err(error) => report.add_failure(program.name(), &error),
            }
        }
        if variants.is_empty() || programs.is_empty() {
            bail!("there is nothing to measure");
        }
        let lab = workspace.build(profile, &["sfs-lab"])?;
        Ok(Self { options, variants, programs, materials, lab, scratch })
    }

    /// Measures everything.
    pub(super) fn run(&self, report: &mut Report) -> Result<()> {
        let media: Vec<Medium> = match &self.options.device {
            Some(_) => vec![Medium::Real],
            None => self.options.models.iter().copied().map(Medium::Model).collect(),
        };
        for medium in media {
            for state in self.options.states() {
                match state {
                    State::New => self.measure_new(medium, report),
                    State::Used(_) => self.measure_used(medium, state, report),
                }
                if cleanup::is_stopping() {
                    bail!("stopped");
                }
            }
        }
        Ok(())
    }

    /// Measures each run on a volume of its own.
    fn measure_new(&self, medium: Medium, report: &mut Report) {
        for &program in &self.programs {
            for run in 0..self.options.runs {
                for turn in 0..self.variants.len() {
                    let index = place_in_turn(turn, run as usize, self.variants.len());
                    let result = self.make(medium, index, State::New).and_then(|volume| {
                        self.sample(medium, &volume, index, program, run, report)?;
                        volume.unmount()
                    });
                    self.note(medium, State::New, index, program, result, report);
                }
            }
        }
    }

    /// Measures all runs on one volume for each filesystem, aged once. On a real device, which holds only one
    /// volume, the filesystems do not take turns.
    fn measure_used(&self, medium: Medium, state: State, report: &mut Report) {
        let all: Vec<usize> = (0..self.variants.len()).collect();
        let groups: Vec<Vec<usize>> = match medium {
            Medium::Model(_) => vec![all],
            Medium::Real => all.into_iter().map(|index| vec![index]).collect(),
        };
        for group in groups {
            if cleanup::is_stopping() {
                return;
            }
            let mut volumes = Vec::new();
            for index in group {
                let title = self.variants[index].0.title();
                println!("{}, {}: ageing {title}", medium.title(), state.title());
                match self.make(medium, index, state) {
                    Ok(volume) => volumes.push((index, volume)),
                    Err(error) => {
                        let place = format!("{title}, {}, {}", medium.title(), state.title());
                        report.add_failure(&place, &error);
                    }
                }
            }
            self.measure_in_turn(medium, state, &volumes, report);
            for (index, volume) in volumes {
                if let Err(error) = volume.unmount() {
                    report.add_failure(&self.variants[index].0.title(), &error);
                }
            }
        }
    }

    fn measure_in_turn(
        &self,
        medium: Medium,
        state: State,
        volumes: &[(usize, Volume)],
        report: &mut Report,
    ) {
        for &program in &self.programs {
            for run in 0..self.options.runs {
                for turn in 0..volumes.len() {
                    let at = place_in_turn(turn, run as usize, volumes.len());
                    let (index, volume) = &volumes[at];
                    let result = self.sample(medium, volume, *index, program, run, report);
                    self.note(medium, state, *index, program, result, report);
                }
            }
        }
    }

    fn make(&self, medium: Medium, index: usize, state: State) -> Result<Volume> {
        let (variant, programs) = &self.variants[index];
        let len = self.options.size_mib << 20;
        let (disk, segment_size) = match medium {
            Medium::Model(model) => {
                let filled = state != State::New;
                (model.start(&self.lab, len, filled, &self.scratch)?, model.segment_size())
            }
            Medium::Real => {
                let path = self.options.device.as_ref().context("no device")?;
                (Disk::Real(RealDevice::open(path)?), None)
            }
        };
        let need_mib = self.programs.iter().map(|program| program.need_mib()).max();
        let need_bytes = need_mib.unwrap_or(0) << 20;
        let plan = VolumePlan { variant: *variant, programs, segment_size, state, need_bytes };
        plan.make(disk, &self.mount_point(index))
    }

    fn mount_point(&self, index: usize) -> PathBuf {
        self.scratch.dir.join(format!("mount-{}", self.variants[index].0.name))
    }

    fn sample(
        &self,
        medium: Medium,
        volume: &Volume,
        index: usize,
        program: Program,
        run: u32,
        report: &mut Report,
    ) -> Result<()> {
        if cleanup::is_stopping() {
            bail!("stopped");
        }
        let outside = Scratch::in_ram(0)?;
        let outcome = volume.measure(program, self.options.limit(), &self.materials, &outside)?;
        let filesystem = self.variants[index].0.title();
        let state = volume.state();
        let sample = Sample {
            medium: medium.title().to_owned(),
            state,
            program,
            filesystem,
            place: index,
            run,
            outcome,
        };
        println!("{}", sample.line(self.options.units.is_none()));
        report.add(sample);
        Ok(())
    }

    /// Notes a failure, because of which a cell lacks a sample.
    fn note(
        &self,
        medium: Medium,
        state: State,
        index: usize,
        program: Program,
        result: Result<()>,
        report: &mut Report,
    ) {
        let Err(error) = result else { return };
        let filesystem = self.variants[index].0.title();
        let (medium, state) = (medium.title(), state.title());
        let place = format!("{}, {filesystem}, {medium}, {state}", program.name());
        report.add_failure(&place, &error);
    }
}

impl Medium {
    fn title(self) -> &'static str {
        match self {
            Self::Model(model) => model.title(),
            Self::Real => "the device",
        }
    }
}
