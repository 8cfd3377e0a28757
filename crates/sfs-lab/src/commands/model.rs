//! `sfs-lab model`: what sfs-mkfs would measure on a model, and the write cost model that fits it.
//!
//! Owns: the probe of a model in virtual time; its options.
//! Promises: the same figures every time.
//! Never: measures a real device: sfs-mkfs does.

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_device::DeviceError;
use sfs_lab::cost_model::{CostModel, block_us};
use sfs_mkfs::measure::{Budget, Probe, Region, Row, measure, sweep};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdConfig, SsdProfile};

const BLOCK: u64 = 4096;

/// Virtual time costs nothing: a day.
pub(crate) const BUDGET: Budget = Budget { total_ns: 86_400_000_000_000, ..Budget::DEFAULT };

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Device: ssd-h, ssd-m, ssd-l, sandisk, samsung, mtron, sd, emmc.
    #[arg(long, default_value = "mtron")]
    profile: String,
    /// Translation layer: as for replay; by default the profile's.
    #[arg(long)]
    ftl: Option<Layer>,
    /// Size of the device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Smallest request.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    smallest: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Report {
    rows: Vec<Row>,
    logical_block: Option<u64>,
    model: Option<CostModel>,
}

/// A model in virtual time.
pub(crate) struct ModelProbe {
    ssd: Ssd,
    now_ns: u64,
}

impl Probe for ModelProbe {
    fn write(&mut self, address: u64, count: u64) -> Result<u64, DeviceError> {
        let request = HostRequest::new(RequestKind::Write, address * BLOCK, count * BLOCK);
        let began_ns = self.now_ns;
        self.now_ns = self.ssd.serve(&request, began_ns).ended_ns;
        Ok(self.now_ns - began_ns)
    }
}

impl ModelProbe {
    pub(crate) fn new(config: &SsdConfig) -> Result<(ModelProbe, Region)> {
        let ssd = Ssd::new(config).context("too few spare blocks")?;
        let region = Region { block_count: ssd.capacity() / BLOCK, partition_start: 0 };
        Ok((ModelProbe { ssd, now_ns: 0 }, region))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let profile = SsdProfile::by_name(&arguments.profile)
        .with_context(|| format!("no profile {}", arguments.profile))?;
    let layer = arguments.ftl.unwrap_or(profile.layer);
    let config = profile.with_layer(layer).with_capacity(arguments.size).config();
    let (mut probe, region) = ModelProbe::new(&config)?;
    let logical_block = measure(&mut probe, region, BUDGET, &mut |_| ())?.segment_size;
    let (mut probe, region) = ModelProbe::new(&config)?;
    let rows = sweep(&mut probe, region, BUDGET, arguments.smallest.max(BLOCK))?;
    let model = logical_block.and_then(|size| CostModel::fit(&rows, size));
    let report = Report { rows, logical_block, model };
    match arguments.json {
        true => output::print(format_args!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => output::print(report.text())?,
    }
    Ok(())
}

impl Report {
    fn text(&self) -> String {
        let mut text = match self.logical_block {
            Some(size) => format!("logical block  {}\n", Human(size)),
            None => "logical block  could not tell\n".to_owned(),
        };
        if let Some(model) = &self.model {
            text += &format!(
                "T = {:.3} ms / (f R) {:+.1} us for a block of 4 KiB; off by {:.0}% (root mean square)\n",
                model.merge_us / 1000.0,
                model.block_us,
                model.error * 100.0
            );
        }
        text += "request     sequential    random     block     by the model\n";
        for row in &self.rows {
            text += &self.line(row);
        }
        text
    }

    fn line(&self, row: &Row) -> String {
        let mb = |kb_per_s: u64| kb_per_s as f64 / 1000.0;
        let fitted = self.model.filter(|_| self.logical_block.is_some_and(|size| row.size <= size));
        let fitted = fitted.map_or(String::new(), |model| {
            format!("{:9.1} us", model.block_time_us(row.size as f64 / BLOCK as f64))
        });
        format!(
            "{:<10} {:>6.1} MB/s {:>6.1} MB/s {:>9.1} us {fitted}\n",
            Human(row.size).to_string(),
            mb(row.sequential_kb_per_s),
            mb(row.random_kb_per_s),
            block_us(row.random_kb_per_s),
        )
    }
}
