//! `sfs-lab model`: measures a model of a device as `sfs-mkfs` measures a real one, in virtual time, and fits
//! the write cost model of the FAST 2009 paper.

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_lab::flash::{BUDGET, CostModel, ModelProbe, block_us};
use sfs_mkfs::measure::{ThroughputRow, measure, sweep};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::SsdProfile;
use sfs_ssd::ftl::Layer;

const BLOCK: u64 = 4096;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Device: ssd-h, ssd-m, ssd-l, sandisk, samsung, mtron, sd, emmc.
    #[arg(long, default_value = "mtron")]
    profile: String,
    /// Translation layer, as for `sfs-lab replay`; by default the profile's.
    #[arg(long)]
    ftl: Option<Layer>,
    /// Size of the device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Size of the smallest request.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    smallest: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Measured throughputs and the fitted model, as text or JSON.
#[derive(Serialize)]
struct ModelReport {
    rows: Vec<ThroughputRow>,
    /// Size of the logical block in bytes, if one was found.
    logical_block: Option<u64>,
    model: Option<CostModel>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let profile = SsdProfile::by_name(&arguments.profile)
        .with_context(|| format!("no profile {}; --help lists the profiles", arguments.profile))?;
    let layer = arguments.ftl.unwrap_or(profile.layer);
    let config = profile.with_layer(layer).with_capacity(arguments.size).config();
    let (mut probe, region) = ModelProbe::new(&config)?;
    let logical_block = measure(&mut probe, region, BUDGET, &mut |_| ())?.segment_size;
    let (mut probe, region) = ModelProbe::new(&config)?;
    let rows = sweep(&mut probe, region, BUDGET, arguments.smallest.max(BLOCK))?;
    let model = logical_block.and_then(|size| CostModel::fit(&rows, size));
    let report = ModelReport { rows, logical_block, model };
    match arguments.json {
        true => output::print(format_args!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => output::print(report.text())?,
    }
    Ok(())
}

impl ModelReport {
    fn text(&self) -> String {
        let mut text = match self.logical_block {
            Some(size) => format!("logical block  {}\n", Human(size)),
            None => "logical block  not found\n".to_owned(),
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

    /// Returns the line of one request size.
    fn line(&self, row: &ThroughputRow) -> String {
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
