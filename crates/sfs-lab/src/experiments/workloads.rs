//! The generators and traces of the tables of policies.

use std::path::Path;

use anyhow::{Error, Result, anyhow};
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

/// Which traces a table has. The others are left out, with a message.
pub(super) struct TraceSelection<'a> {
    /// Maximum number of different blocks.
    pub(super) blocks_max: u32,
    /// Returns an error, which is the message, for a trace that cannot be simulated.
    pub(super) can_run: &'a dyn Fn(&str, &Source) -> Result<()>,
}

impl TraceSelection<'_> {
    /// Selects all traces of at most `blocks_max` different blocks.
    pub(super) fn of_blocks(blocks_max: u32) -> Self {
        Self { blocks_max, can_run: &|_, _| Ok(()) }
    }

    /// Returns whether the table has this trace. Otherwise reports the reason on standard error.
    fn has(&self, name: &str, source: &Source) -> bool {
        let blocks_max = self.blocks_max;
        let checked = match source.block_count() {
            Some(count) if count > blocks_max => Err(anyhow!("more than {blocks_max} blocks")),
            _ => (self.can_run)(name, source),
        };
        let complain = |error: &Error| output::complain(format_args!("skipped: {name}: {error:#}"));
        checked.inspect_err(complain).is_ok()
    }
}

/// Returns the recorded traces in `folder`. Reports missing traces, and those that are not selected, on standard error.
pub(super) fn traces(
    folder: &TraceFolder,
    selection: &TraceSelection<'_>,
) -> Result<Vec<NamedSource>> {
    let mut traces = Vec::new();
    for name in TRACES {
        let Some(path) = folder.find(format!("{name}.csv.zst")) else { continue };
        let source = Source::open(&format!("trace:{}", path.display()))?;
        if selection.has(name, &source) {
            traces.push((name.to_owned(), source));
        }
    }
    Ok(traces)
}

/// Returns the traces in any folder. Reports files that are no trace, and traces that are not selected, on standard error.
pub(super) fn in_folder(folder: &Path, selection: &TraceSelection<'_>) -> Result<Vec<NamedSource>> {
    let mut traces = Source::open_folder(folder)?;
    traces.retain(|(name, source)| selection.has(name, source));
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
