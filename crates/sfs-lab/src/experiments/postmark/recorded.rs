//! Filesystems that this kernel cannot run, by the traces of another load: NILFS2 under random overwriting, beside the
//! filesystems of the same recording.

use anyhow::Result;
use sfs_lab::block_trace::{BlockTrace, Syncs, TraceFolder, TraceStatistics};
use sfs_lab::flash::{RecordedFilesystem, pages};
use sfs_lab::report::table;
use sfs_ssd::SsdConfig;

/// The names of the recordings; the first is the filesystem that Postmark cannot run on.
const RECORDED: [&str; 6] = ["nilfs2", "f2fs-lfs", "f2fs-default", "ext4", "xfs", "btrfs"];

/// Returns the table, and the random phase of NILFS2; `None` without the traces.
pub(super) fn text(
    traces: &TraceFolder,
    model: &SsdConfig,
    logical_block: u64,
) -> Result<Option<(String, BlockTrace)>> {
    let Some(folder) = traces.find("peers") else { return Ok(None) };
    let job_bytes = pages(&folder)?.len() as u64 * 4096;
    let heading = [
        "random overwriting, recorded (not Postmark)",
        "device time, s a GiB of the user",
        "device / user",
        "mean write, KiB",
        "segmented sequentiality",
        "flushes",
        "flash WA",
    ];
    let (mut rows, mut first) = (Vec::new(), None);
    for name in RECORDED {
        let recorded = RecordedFilesystem::open(&folder, name, job_bytes)?;
        let trace = recorded.random_phase();
        let statistics = TraceStatistics::of(trace, logical_block, Syncs::Flushes);
        let on = recorded.replay(model)?;
        rows.push(vec![
            name.to_owned(),
            format!("{:.0}", on.per_gib(on.elapsed_ns) / 1e9),
            format!("{:.2}", on.log_amplification()),
            format!("{:.1}", statistics.write_kib()),
            format!("{:.3}", statistics.segmented_sequentiality),
            statistics.flushes.to_string(),
            format!("{:.2}", on.flash_amplification),
        ]);
        first.get_or_insert_with(|| trace.clone());
    }
    Ok(first.map(|trace| (table(&heading.map(str::to_owned), &rows), trace)))
}
