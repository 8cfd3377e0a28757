//! The generators and traces of the tables of policies.

use std::path::Path;

use anyhow::Result;
use sfs_lab::block_trace::TraceFolder;
use sfs_lab::workload::Source;
use sfs_mkfs::output;

pub(super) const GENERATORS: [&str; 7] =
    ["uniform", "zipf:0.8", "zipf:0.99", "zipf:1.2", "hotcold:90/10", "shift", "tpcc"];

const TRACES: [&str; 6] = [
    "cloudphysics-vm",
    "opencas-rocksdb-ycsb-a-xfs",
    "disksim-postmark",
    "msr-rsrch_1-full-week",
    "tpcc-small",
    "msr-mds_0-first1000w",
];

/// A workload and its name.
pub(super) type NamedSource = (String, Source);

/// Returns the generators.
pub(super) fn generators() -> Result<Vec<NamedSource>> {
    GENERATORS.iter().map(|name| Ok(((*name).to_owned(), Source::open(name)?))).collect()
}

/// Returns the traces in `folder` that have at most `blocks_max` different blocks. Reports missing
/// and larger traces on standard error.
pub(super) fn traces(folder: &TraceFolder, blocks_max: u32) -> Result<Vec<NamedSource>> {
    let mut traces = Vec::new();
    for name in TRACES {
        let Some(path) = folder.find(format!("{name}.csv.zst")) else { continue };
        let source = Source::open(&format!("trace:{}", path.display()))?;
        if source.block_count().is_some_and(|count| count > blocks_max) {
            output::complain(format_args!("skipped: {name} has more than {blocks_max} blocks"));
            continue;
        }
        traces.push((name.to_owned(), source));
    }
    Ok(traces)
}

/// Returns the traces in any folder that have at most `blocks_max` different blocks. Reports the other files on standard
/// error.
pub(super) fn in_folder(folder: &Path, blocks_max: u32) -> Result<Vec<NamedSource>> {
    let mut traces = Source::open_folder(folder)?;
    traces.retain(|(name, source)| {
        let fits = source.block_count().is_none_or(|count| count <= blocks_max);
        if !fits {
            output::complain(format_args!("skipped: {name} has more than {blocks_max} blocks"));
        }
        fits
    });
    Ok(traces)
}

/// Returns the number of segments that users' blocks fill. A small trace fills fewer segments, but
/// so many that the open segments are only a small part.
pub(super) fn live_segments(source: &Source) -> u32 {
    source.block_count().map_or(512, |blocks| (blocks / 16).clamp(128, 512))
}

/// Returns the part of the segments that is kept clean: 2%, and at least ten segments of a volume
/// that is 85% full.
pub(super) fn reserve(live_segments: u32) -> f64 {
    0.02_f64.max(10.0 * 0.85 / f64::from(live_segments))
}
