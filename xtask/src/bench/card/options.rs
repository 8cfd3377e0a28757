//! The arguments of `cargo xtask bench card`, their check, and the estimate of the time.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum as _};

use super::{
    load::{Limit, Program},
    medium::CardModel,
    state::State,
    variant::{VARIANTS, Variant},
};

/// Time that a run takes beside its measurement, in seconds: a new volume, the preparation, the clean-up.
const PREPARE_SECS: f64 = 15.0;

/// Time to age a MiB of a volume in virtual time, in seconds.
const AGEING_SECS_MIB: f64 = 0.15;

/// Speed at which the ageing of a real card is expected, in bytes a second.
const CARD_BYTES_SECS: f64 = 2e6;

/// Smallest volume, in MiB: PostgreSQL alone needs 320, and a volume that is 90 % full needs room.
const SIZE_MIN: u64 = 256;

#[derive(Args)]
pub(crate) struct CardOptions {
    /// Programs to run; all by default.
    #[arg(long, value_delimiter = ',')]
    pub(super) programs: Vec<Program>,
    /// Models of devices.
    #[arg(long, value_delimiter = ',', default_value = "sd,emmc,ssd-m,ssd-h")]
    pub(super) models: Vec<CardModel>,
    /// Filesystems; all by default, and those with `-set` have the options that users would set.
    #[arg(long, value_delimiter = ',')]
    pub(super) filesystems: Vec<String>,
    /// States of the volume: `new`, or `used-PERCENT`, aged and full up to so many percent. By default new,
    /// used-60 and used-90; on a real device new.
    #[arg(long, value_delimiter = ',')]
    pub(super) states: Vec<State>,
    /// Duration of a run, in seconds.
    #[arg(long, default_value_t = 60.0)]
    pub(super) seconds: f64,
    /// Number of samples of each figure; the median is shown.
    #[arg(long, default_value_t = 3)]
    pub(super) runs: u32,
    /// Do so many units of work in virtual time instead: exact counts, and no times.
    #[arg(long, conflicts_with = "device")]
    pub(super) units: Option<u64>,
    /// Size of the models, in MiB.
    #[arg(long, default_value_t = 1500)]
    pub(super) size_mib: u64,
    /// Measure on this block device instead of models, and erase it.
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<PathBuf>,
    /// Erase the device without asking.
    #[arg(long, requires = "device")]
    pub(super) yes: bool,
    /// File with all results of a real device, to be sent in; by default a name with the date.
    #[arg(long, value_name = "FILE", requires = "device")]
    pub(super) report: Option<PathBuf>,
    /// Print the names of programs, models, filesystems and states, and the estimated time.
    #[arg(long)]
    pub(super) list: bool,
    /// Run the small form that `cargo xtask test` runs: two programs on one model, counts alone.
    #[arg(long)]
    pub(super) small: bool,
    /// Write every figure of every run to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Replace the tables in `docs/bench-card.md`, the figures in `docs/bench-card.csv`, and the picture.
    #[arg(long, conflicts_with = "device")]
    pub(super) publish: bool,
    /// Draw `docs/images/cards.svg` from the figures in this file, which `--csv` has written, and measure nothing.
    #[arg(long, value_name = "FILE")]
    pub(super) draw: Option<PathBuf>,
}

impl CardOptions {
    /// Returns the options of the test in CI: counts of two programs on one model, in virtual time.
    pub(super) fn smoke(units: u64) -> Self {
        Self {
            programs: vec![Program::Rollback, Program::Journal],
            models: vec![CardModel::Sd],
            filesystems: vec!["sfs".into(), "ext4".into()],
            states: vec![State::New],
            seconds: 1.0,
            runs: 1,
            units: Some(units),
            size_mib: SIZE_MIN,
            device: None,
            yes: false,
            report: None,
            list: false,
            small: false,
            csv: None,
            publish: false,
            draw: None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.variants()?;
        ensure!(self.runs > 0, "--runs 0: at least one run is needed");
        ensure!(self.units != Some(0), "--units 0: at least one unit is needed");
        let secs = self.seconds;
        ensure!((1.0..=86_400.0).contains(&secs), "--seconds {secs}: not from 1 to 86400");
        let mib = self.size_mib;
        ensure!(mib >= SIZE_MIN, "--size-mib {mib}: at least {SIZE_MIN} are needed");
        let Some(percent) = self.states().iter().filter_map(|state| state.percent()).min() else {
            return Ok(());
        };
        let need = self.programs().iter().map(|program| program.need_mib()).max().unwrap_or(0);
        let room = mib * u64::from(percent) / 100;
        ensure!(
            self.device.is_some() || need < room,
            "--size-mib {mib}: the programs need {need} MiB, more than {percent} percent of it"
        );
        Ok(())
    }

    pub(super) fn variants(&self) -> Result<Vec<Variant>> {
        Variant::chosen(&self.filesystems)
    }

    /// Returns the chosen programs in the order of the table, `together` last.
    pub(super) fn programs(&self) -> Vec<Program> {
        let is_chosen =
            |program: &&Program| self.programs.is_empty() || self.programs.contains(program);
        Program::value_variants().iter().filter(is_chosen).copied().collect()
    }

    pub(super) fn states(&self) -> Vec<State> {
        match (self.states.is_empty(), &self.device) {
            (false, _) => self.states.clone(),
            (true, Some(_)) => vec![State::New],
            (true, None) => vec![State::New, State::Used(60), State::Used(90)],
        }
    }

    pub(super) fn limit(&self) -> Limit {
        match self.units {
            Some(units) => Limit::Units(units),
            None => Limit::Time(Duration::from_secs_f64(self.seconds)),
        }
    }

    /// Returns the expected time of all runs, in seconds. `device_len` is the size of a real device.
    fn expected_secs(&self, device_len: Option<u64>) -> Result<f64> {
        let filesystems = self.variants()?.len() as f64;
        let devices = if self.device.is_some() { 1 } else { self.models.len() } as f64;
        let measured = if self.units.is_some() { 10.0 } else { self.seconds };
        let states = self.states();
        let cells = devices * filesystems * (states.len() * self.programs().len()) as f64;
        let used = states.iter().filter(|state| state.percent().is_some()).count() as f64;
        let ageing = match device_len {
            Some(len) => len as f64 * super::ageing::TIMES as f64 / CARD_BYTES_SECS,
            None => self.size_mib as f64 * AGEING_SECS_MIB,
        };
        let runs = cells * f64::from(self.runs) * (measured + PREPARE_SECS);
        Ok(runs + devices * filesystems * used * ageing)
    }

    /// Describes the number of runs and their expected time.
    pub(super) fn estimate(&self, device_len: Option<u64>) -> Result<String> {
        let secs = self.expected_secs(device_len)?;
        let minutes = (secs / 60.0).ceil();
        let time = if minutes < 120.0 {
            format!("{minutes:.0} minutes")
        } else {
            format!("{:.1} hours", secs / 3600.0)
        };
        let programs = self.programs().len();
        let filesystems = self.variants()?.len();
        let states = self.states().len();
        Ok(format!(
            "{programs} programs, {filesystems} filesystems, {states} states, {} runs: about {time}",
            self.runs
        ))
    }

    /// Prints the names that options take.
    pub(super) fn print_names(&self) -> Result<()> {
        println!("programs:");
        for program in Program::value_variants() {
            println!("    {:10} {}, {} MiB", program.name(), program.unit(), program.need_mib());
        }
        let models: Vec<String> = CardModel::value_variants()
            .iter()
            .filter_map(|model| Some(model.to_possible_value()?.get_name().to_owned()))
            .collect();
        println!("models: {}", models.join(", "));
        println!("filesystems:");
        for variant in VARIANTS {
            println!("    {:10} {}", variant.name, variant.title());
        }
        println!("states: new, used-60, used-90, used-PERCENT");
        println!("chosen: {}", self.estimate(None)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &CardOptions) -> String {
        options.check().expect_err("the options are wrong").to_string()
    }

    #[test]
    fn wrong_options_are_refused_in_one_line() {
        let options = CardOptions { runs: 0, ..CardOptions::smoke(1) };
        assert_eq!(refusal(&options), "--runs 0: at least one run is needed");
        let options = CardOptions { seconds: f64::NAN, ..CardOptions::smoke(1) };
        assert_eq!(refusal(&options), "--seconds NaN: not from 1 to 86400");
        let options = CardOptions {
            programs: vec![Program::Together],
            states: vec![State::Used(60)],
            ..CardOptions::smoke(1)
        };
        assert!(refusal(&options).contains("the programs need"), "{}", refusal(&options));
        assert!(CardOptions::smoke(1).check().is_ok());
    }

    #[test]
    fn the_default_volume_has_room_for_everything() {
        let options = CardOptions {
            programs: Vec::new(),
            states: Vec::new(),
            size_mib: 1500,
            ..CardOptions::smoke(1)
        };
        options.check().expect("all programs fit");
        assert_eq!(options.programs().last(), Some(&Program::Together));
        assert_eq!(options.states().len(), 3);
    }

    #[test]
    fn the_estimate_grows_with_the_runs() {
        let one = CardOptions::smoke(1).expected_secs(None).expect("chosen");
        let options = CardOptions { runs: 3, ..CardOptions::smoke(1) };
        assert_eq!(options.expected_secs(None).expect("chosen"), 3.0 * one);
        assert!(one < 120.0);
    }
}
