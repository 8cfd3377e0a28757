//! `sfs-lab advise`: compares the settings of a volume under a load that `sfs-ctl trace` has recorded on it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use sfs_core::policy;
use sfs_lab::advice::{Candidate, VolumeModel, advise};
use sfs_lab::request_load::RequestLoad;
use sfs_mkfs::{output, parse_size};

/// Segment size for a trace that does not state it, in bytes.
const SEGMENT_BYTES: u64 = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Trace that sfs-ctl trace has recorded, plain or zstd.
    trace: PathBuf,
    /// Size of the device; by default as the trace states it.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Part of the volume that is in use when the load has its most files, 0..1; by default as the trace states it.
    #[arg(long, value_name = "PART")]
    full: Option<f64>,
    /// Smallest segment to try, the size of the device's erase blocks; by default the present segment size.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    erase_block: Option<u64>,
    /// Largest volume in memory. A larger volume is scaled down to this size, and the load with it.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    model_size: u64,
    /// Seconds after which no further candidate is tried.
    #[arg(long, value_name = "N", default_value_t = 300)]
    seconds: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let load = RequestLoad::open(&arguments.trace)?;
    let properties = &load.properties;
    if let Some(end) = load.end.filter(|end| end.lost > 0) {
        output::complain(format_args!("the trace lacks {} requests that were lost", end.lost));
    }
    let segments = properties.segments.saturating_mul(properties.segment_bytes);
    let size = arguments.size.unwrap_or(segments.max(properties.size_bytes));
    let is_sized = size > 0 && (arguments.full.is_some() || properties.size_bytes > 0);
    ensure!(is_sized, "the trace does not state the size of its volume: give --size and --full");
    let full = match arguments.full {
        Some(full) => full,
        None => {
            let used = properties.used_bytes as f64 + load.new_bytes_max() as f64;
            used / properties.size_bytes.max(1) as f64
        }
    };
    ensure!((0.0..1.0).contains(&full), "{full:.2} of the volume in use: give --full, below 1");
    let model = VolumeModel::new(&load, size, full, arguments.model_size)?;
    let segment_bytes = match properties.segment_bytes {
        0 => SEGMENT_BYTES,
        bytes => bytes,
    };
    let default = Candidate::default_of(segment_bytes);
    let known = |name: &str, names: &[&str]| names.contains(&name).then(|| name.to_owned());
    let present = Candidate {
        policy: known(&properties.policy, &policy::GROUPING_POLICIES).unwrap_or(default.policy),
        victim: known(&properties.victim, &policy::VICTIM_POLICIES).unwrap_or(default.victim),
        write_buffer_bytes: match properties.write_buffer_bytes {
            0 => default.write_buffer_bytes,
            bytes => bytes,
        },
        ..default
    };
    let least = arguments.erase_block.unwrap_or(segment_bytes);
    let time = Duration::from_secs(arguments.seconds);
    let mut progress = |count| output::complain(format_args!("{count} candidates were run"));
    let advice = advise(&model, &present, least, time, &mut progress)?;
    match arguments.json {
        true => {
            let mut json = serde_json::to_value(&advice)?;
            json["conclusion"] = advice.conclusion().into();
            output::print(format_args!("{json:#}\n"))?;
        }
        false => output::print(&advice)?,
    }
    Ok(())
}
