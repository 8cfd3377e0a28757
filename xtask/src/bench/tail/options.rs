//! The arguments of `cargo xtask bench tail`, and their check.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};

use super::super::{Contestant, medium::Medium};
use crate::filesystem::FilesystemKind;

/// Filesystems by the names that `--filesystems` takes.
const FILESYSTEMS: [(&str, Contestant); 8] = [
    ("sfs-dev", Contestant::over(FilesystemKind::Sfs, "dev")),
    ("sfs-uring", Contestant::over(FilesystemKind::Sfs, "uring")),
    ("sfs-fuser", Contestant::over(FilesystemKind::Sfs, "fuser")),
    ("null-dev", Contestant::over(FilesystemKind::NullDevice, "dev")),
    ("null-uring", Contestant::over(FilesystemKind::NullDevice, "uring")),
    ("ext4", Contestant::of(FilesystemKind::Ext4)),
    ("xfs", Contestant::of(FilesystemKind::Xfs)),
    ("btrfs", Contestant::of(FilesystemKind::Btrfs)),
];

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Small requests beside a stream of writes.
    Stream,
    /// Synced overwrites on a volume that is 50%, 85% and 93% full and was overwritten twice.
    Cleaning,
    /// Small requests beside the copy of a tree, `ls -l` beside a stream, a database beside both.
    Others,
    /// Synced overwrites on full volumes, at half the rate that the slowest filesystem sustains.
    Arrivals,
}

#[derive(Args)]
pub(crate) struct TailOptions {
    /// Parts to run.
    #[arg(long, value_delimiter = ',', default_value = "stream,cleaning,others,arrivals")]
    pub(super) parts: Vec<Part>,
    /// Filesystems to measure: sfs-dev, sfs-uring, sfs-fuser, ext4, xfs, btrfs, by default; and null-dev and null-uring,
    /// which make one request to the device for each request of the kernel: what FUSE costs.
    #[arg(long, value_delimiter = ',')]
    filesystems: Vec<String>,
    /// Devices: models of flash take turns between virtual time, in which they age, and real time. The
    /// part `cleaning` is for RAM alone.
    #[arg(long, value_delimiter = ',', default_value = "ram")]
    devices: Vec<Medium>,
    /// Number of samples of each figure; the median is shown. By default 5, and 1 in `arrivals`.
    #[arg(long)]
    runs: Option<u32>,
    /// Number of requests of a sample in `arrivals`; by default 10,000, and 1,000 on cards.
    #[arg(long)]
    requests: Option<u64>,
    /// Duration of each load beside another program, in seconds.
    #[arg(long)]
    seconds: Option<f64>,
    /// Full volumes to measure, in percent of the space for files.
    #[arg(long, value_delimiter = ',', default_value = "50,85,93")]
    pub(super) full: Vec<u64>,
    /// Directory with the programs of an earlier build of SFS, which is measured in turn, too.
    #[arg(long, value_name = "DIR")]
    pub(super) before: Option<PathBuf>,
    /// Overwrite the files of the stream in place, instead of truncating them first.
    #[arg(long)]
    pub(super) in_place: bool,
    /// Run less of everything, once.
    #[arg(long)]
    pub(super) quick: bool,
    /// Write every sample to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write the tables into `docs/benchmarks.md`.
    #[arg(long, conflicts_with = "quick")]
    pub(super) publish: bool,
}

impl TailOptions {
    /// Returns the options of a test of the benchmark itself.
    pub(super) fn smoke() -> Self {
        Self {
            parts: vec![Part::Stream, Part::Others, Part::Arrivals],
            filesystems: vec!["sfs-dev".into(), "ext4".into()],
            devices: vec![Medium::Ram],
            runs: Some(1),
            requests: None,
            seconds: Some(0.3),
            full: vec![85],
            before: None,
            in_place: false,
            quick: true,
            csv: None,
            publish: false,
        }
    }

    /// Checks the values of all options.
    pub(super) fn check(&self) -> Result<()> {
        self.contestants()?;
        ensure!(self.runs() > 0, "--runs 0: at least one run is needed");
        ensure!(self.requests != Some(0), "--requests 0: at least one request is needed");
        let secs = self.seconds();
        ensure!((0.1..=3600.0).contains(&secs), "--seconds {secs}: not from 0.1 to 3600");
        if let Some(percent) = self.full.iter().find(|percent| !(1..=95).contains(*percent)) {
            bail!("--full {percent}: not from 1 to 95 percent");
        }
        Ok(())
    }

    /// Returns the chosen filesystems, in the order of the table.
    pub(super) fn contestants(&self) -> Result<Vec<Contestant>> {
        let known = |name: &String| FILESYSTEMS.iter().any(|(known, _)| known == name);
        if let Some(unknown) = self.filesystems.iter().find(|name| !known(name)) {
            let names: Vec<&str> = FILESYSTEMS.iter().map(|(name, _)| *name).collect();
            bail!("--filesystems {unknown}: not one of {}", names.join(", "));
        }
        let is_chosen = |(name, contestant): &&(&str, Contestant)| match &self.filesystems[..] {
            [] => contestant.kind.is_persistent(),
            names => names.iter().any(|chosen| chosen == name),
        };
        let chosen = FILESYSTEMS.iter().filter(is_chosen);
        Ok(chosen.map(|(_, contestant)| *contestant).collect())
    }

    pub(super) fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 1 } else { 5 })
    }

    /// Returns the devices of a part.
    pub(super) fn devices_of(&self, part: Part) -> &[Medium] {
        if part == Part::Cleaning { &[Medium::Ram] } else { &self.devices }
    }

    /// Returns whether a part needs a model.
    pub(super) fn has_model(&self) -> bool {
        let mut devices = self.parts.iter().flat_map(|&part| self.devices_of(part));
        devices.any(|medium| medium.is_model())
    }

    /// Returns the number of samples of each figure in the part `arrivals`.
    pub(super) fn arrival_runs(&self) -> u32 {
        self.runs.unwrap_or(1)
    }

    /// Returns the number of requests of a sample in the part `arrivals`.
    pub(super) fn requests(&self, medium: Medium) -> u64 {
        let requests = if medium.is_card() { 1_000 } else { 10_000 };
        self.requests.unwrap_or(if self.quick { 200 } else { requests })
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 1.0 } else { 15.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &TailOptions) -> String {
        options.check().expect_err("the options are wrong").to_string()
    }

    #[test]
    fn wrong_options_are_refused_in_one_line() {
        let options = TailOptions { filesystems: vec!["zfs".into()], ..TailOptions::smoke() };
        let expected = "--filesystems zfs: not one of sfs-dev, sfs-uring, sfs-fuser, null-dev, null-uring, ext4, xfs, btrfs";
        assert_eq!(refusal(&options), expected);
        let options = TailOptions { runs: Some(0), ..TailOptions::smoke() };
        assert_eq!(refusal(&options), "--runs 0: at least one run is needed");
        let options = TailOptions { seconds: Some(f64::NAN), ..TailOptions::smoke() };
        assert_eq!(refusal(&options), "--seconds NaN: not from 0.1 to 3600");
        let options = TailOptions { full: vec![50, 99], ..TailOptions::smoke() };
        assert_eq!(refusal(&options), "--full 99: not from 1 to 95 percent");
        assert!(TailOptions::smoke().check().is_ok());
    }

    #[test]
    fn all_but_the_null_filesystems_are_measured_unless_some_are_chosen() {
        let options = TailOptions { filesystems: Vec::new(), ..TailOptions::smoke() };
        assert_eq!(options.contestants().expect("the default").len(), FILESYSTEMS.len() - 2);
        let names = vec!["ext4".to_owned(), "null-dev".to_owned()];
        let options = TailOptions { filesystems: names, ..TailOptions::smoke() };
        let two = options.contestants().expect("two contestants");
        assert_eq!(two, [FILESYSTEMS[3].1, FILESYSTEMS[5].1]);
    }
}
