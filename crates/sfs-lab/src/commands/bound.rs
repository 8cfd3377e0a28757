//! `sfs-lab bound`: prints the log write amplification of a cleaner that knows the rate of every block.

use anyhow::{Context as _, Result, ensure};
use sfs_lab::closed_form;
use sfs_lab::workload::Source;
use sfs_mkfs::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Workload with constant rates: zipf:THETA, uniform or hotcold:90/10.
    #[arg(long, default_value = "zipf:0.99")]
    workload: String,
    /// Number of users' blocks.
    #[arg(long)]
    live_blocks: u32,
    /// Number of blocks that the log has room for, without segments that are withheld.
    #[arg(long)]
    space_blocks: f64,
    /// Part of users' writes, 0 to 1 (exclusive), that are overwritten in a buffer and do not reach the log.
    #[arg(long, default_value_t = 0.0)]
    coalesced: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    output::print(format_args!("{:.4}\n", arguments.bound()?))?;
    Ok(())
}

impl Arguments {
    fn bound(&self) -> Result<f64> {
        let Self { workload, live_blocks, space_blocks, coalesced } = self;
        ensure!(
            (0.0..1.0).contains(coalesced),
            "--coalesced {coalesced}: choose 0 to 1, without 1"
        );
        ensure!(
            f64::from(*live_blocks) < *space_blocks && *live_blocks > 0,
            "--live-blocks {live_blocks}: choose 1 to less than the {space_blocks} of --space-blocks"
        );
        let rates = Source::open(workload)?.rates(*live_blocks);
        let rates = rates.with_context(|| {
            format!("{workload} has no constant rates; choose zipf:THETA, uniform or hotcold:90/10")
        })?;
        Ok(closed_form::known_rates_in_log(&rates, *coalesced, *space_blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(workload: &str, space_blocks: f64, coalesced: f64) -> Result<f64> {
        let workload = workload.to_owned();
        Arguments { workload, live_blocks: 85_000, space_blocks, coalesced }.bound()
    }

    #[test]
    fn the_bound_is_that_of_the_closed_form() {
        let uniform = bound("uniform", 98_000.0, 0.0).expect("uniform has constant rates");
        assert!((uniform - 3.952).abs() < 0.01, "{uniform}");
        let skewed = bound("hotcold:90/10", 98_000.0, 0.0).expect("both rates are constant");
        assert!((skewed - 1.91).abs() < 0.01, "{skewed}");
        let behind_buffer = bound("zipf:0.99", 98_000.0, 0.4).expect("all rates are constant");
        let all = bound("zipf:0.99", 98_000.0, 0.0).expect("all rates are constant");
        assert!(
            behind_buffer > all,
            "a buffer takes the blocks that cost least: {behind_buffer}, {all}"
        );
    }

    #[test]
    fn arguments_without_a_bound_are_refused() {
        for (workload, space_blocks, coalesced, named) in [
            ("shift", 98_000.0, 0.0, "shift has no constant rates"),
            ("uniform", 85_000.0, 0.0, "--live-blocks 85000"),
            ("uniform", 98_000.0, 1.0, "--coalesced 1"),
        ] {
            let error = bound(workload, space_blocks, coalesced).expect_err("no bound");
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
