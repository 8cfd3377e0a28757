//! `sfs-lab ssd`: exports the model of a flash device as a block device of this machine.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sfs_lab::exported::ExportedSsd;
use sfs_mkfs::{Human, parse_size};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{Ssd, SsdConfig, SsdProfile, profiles};

use super::export::{OneModel, empty_dir};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An empty directory, in which the files `disk` (the device's bytes) and `control` (its
    /// counters) appear.
    dir: PathBuf,
    /// Device: ssd-h, ssd-m, ssd-l, sandisk, samsung, mtron, sd, emmc, fast12.
    #[arg(long, default_value = "ssd-m")]
    profile: String,
    /// Translation layer: page-mapped[:STREAMS], page-mapped-fifo, fast[:LOG_BLOCKS],
    /// bast[:LOG_BLOCKS], superblock[:LOG_BLOCKS[:WIDTH]]; by default the profile's.
    #[arg(long)]
    ftl: Option<Layer>,
    /// Size of the device; written data is kept in memory.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Size of the erase blocks; by default the profile's.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    erase_block: Option<u64>,
    /// Begin with a device whose pages were all written before.
    #[arg(long)]
    filled: bool,
    /// Ignore discards.
    #[arg(long)]
    no_trim: bool,
    #[command(flatten)]
    model: OneModel,
}

impl Arguments {
    fn config(&self) -> Result<(String, SsdConfig)> {
        let profile = SsdProfile::by_name(&self.profile).with_context(|| {
            let names: Vec<&str> = profiles().iter().map(|profile| profile.name).collect();
            format!("no profile {}: there are {}", self.profile, names.join(", "))
        })?;
        let layer = self.ftl.unwrap_or(profile.layer);
        let profile = profile.with_layer(layer);
        let profile = match self.erase_block {
            Some(size) => profile.with_cluster_size(size),
            None => profile,
        };
        let erase_block = profile.geometry.cluster_size();
        if self.size < erase_block {
            bail!("--size {}: smaller than an erase block of {}", self.size, Human(erase_block));
        }
        let config =
            SsdConfig { informed: !self.no_trim, ..profile.with_capacity(self.size).config() };
        Ok((format!("{} {layer}", self.profile), config))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (name, config) = arguments.config()?;
    let dir = empty_dir(&arguments.dir)?;
    let ssd = Ssd::new(&config).context("too few spare blocks; try a larger --size")?;
    let erase_block = Human(ssd.geometry().cluster_size());
    let shown = format!("{name}, erase blocks of {erase_block}");
    let (mode, is_recorded) = (arguments.model.time_mode(), arguments.model.is_recorded());
    let disk = ExportedSsd::new(ssd, name, mode, arguments.filled, is_recorded);
    arguments.model.run(dir, &Arc::new(disk), shown)
}
