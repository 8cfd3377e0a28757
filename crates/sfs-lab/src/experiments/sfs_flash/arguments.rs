//! The arguments of the comparison: filesystems, workloads and models.

use std::path::PathBuf;

use anyhow::{Context, Result};
use sfs_lab::block_trace::TraceFolder;
use sfs_lab::flash::{Comparison, scaled};
use sfs_lab::host::Filesystem;
use sfs_lab::workload::Source;
use sfs_mkfs::parse_size;
use sfs_ssd::ftl::Layer;
use sfs_ssd::{SsdConfig, SsdProfile};

use crate::experiments::installed::installed;

/// Utilization at which the paper compares filesystems.
pub(super) const FULL: f64 = 0.85;

/// Trace in place of the paper's RES, which is not available.
const TRACE: &str = "cloudphysics-vm.csv.zst";

/// Divisor of the size of the erase blocks of H, M and L, as the device is smaller.
pub(super) const ERASE_BLOCK_DIVISOR: u32 = 16;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Size of the device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    pub(super) size: u64,
    /// Size of a segment of SFS; by default the erase block of ssd-m, scaled.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2M")]
    pub(super) segment_size: u64,
    /// Grouping policies of SFS; the paper's LFS, one group with cost-benefit, is measured beside them.
    #[arg(long, value_delimiter = ',', default_value = "sfs,sfs-fast12")]
    policies: Vec<String>,
    /// Part of the device that is overwritten; the rest of the data is written once.
    #[arg(long, default_value_t = 0.21)]
    pub(super) working_set: f64,
    /// Number of overwrites before counting, in multiples of the working set.
    #[arg(long, default_value_t = 1.0)]
    pub(super) warm_up: f64,
    /// Number of overwrites that are counted, in multiples of the working set.
    #[arg(long, default_value_t = 1.0)]
    pub(super) measure: f64,
    /// Number of random log blocks of the FAST model.
    #[arg(long, default_value_t = 64)]
    pub(super) log_blocks: u32,
    /// Leave out throughput by utilization.
    #[arg(long)]
    pub(super) no_sweep: bool,
    #[command(flatten)]
    traces: TraceFolder,
    /// Folder of lab/flash.md, whose section is replaced.
    #[arg(long)]
    pub(super) docs: Option<PathBuf>,
}

/// The configurations of all models.
pub(super) struct FlashModels {
    /// Page-mapped and FAST, as in the paper's simulator, first without discards, then with
    /// discards.
    pub(super) simulator: [SsdConfig; 4],
    /// SSD-H, SSD-M and SSD-L, without discards.
    pub(super) devices: [SsdConfig; 3],
}

impl Arguments {
    pub(super) fn models(&self) -> Result<FlashModels> {
        let layers = [Layer::GREEDY, Layer::Fast { log_blocks: self.log_blocks }];
        let fast12 = SsdProfile::by_name("fast12").context("the profile of the SFS paper")?;
        let on = |layer: Layer, informed: bool| {
            let profile = fast12.clone().with_layer(layer).with_capacity(self.size);
            SsdConfig { informed, ..profile.config() }
        };
        let device = |name: &str| -> Result<SsdConfig> {
            let profile = SsdProfile::by_name(name).context("a profile")?;
            let config = scaled(profile, self.size, ERASE_BLOCK_DIVISOR).config();
            Ok(SsdConfig { informed: false, ..config })
        };
        Ok(FlashModels {
            simulator: [
                on(layers[0], false),
                on(layers[1], false),
                on(layers[0], true),
                on(layers[1], true),
            ],
            devices: [device("ssd-h")?, device("ssd-m")?, device("ssd-l")?],
        })
    }

    pub(super) fn comparison(&self) -> Comparison {
        Comparison {
            size: self.size,
            working_set: self.working_set,
            warm_up: self.warm_up,
            measured: self.measure,
            seed: 1,
        }
    }

    pub(super) fn ours(&self) -> Vec<Filesystem> {
        let segment_size = self.segment_size;
        let sfs = |policy: &str, victims| Filesystem::Sfs {
            policy: policy.to_owned(),
            victims,
            segment_size,
            layout: "log",
        };
        let lfs = sfs("none", Some("cost-benefit"));
        self.policies.iter().map(|policy| sfs(policy, None)).chain([lfs]).collect()
    }

    /// Returns the filesystems that this machine can run. Reports the others on standard error.
    pub(super) fn filesystems(&self) -> Vec<Filesystem> {
        let theirs =
            [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs, Filesystem::BtrfsNodatacow];
        installed(self.ours().into_iter().chain(theirs))
    }

    pub(super) fn workloads(&self) -> Result<Vec<(&'static str, Source)>> {
        let mut workloads = Vec::new();
        for name in ["zipf:0.99", "uniform", "tpcc"] {
            workloads.push((name, Source::open(name)?));
        }
        if let Some(path) = self.traces.find(TRACE) {
            let source = Source::open(&format!("trace:{}", path.display()))?;
            workloads.push(("cloudphysics-vm", source));
        }
        Ok(workloads)
    }
}
