//! The slides' plots of the places that a filesystem writes to.

use anyhow::Result;
use sfs_lab::block_trace::BlockTrace;
use sfs_lab::report::{Document, Series};
use sfs_ssd::RequestKind;

/// Maximum number of writes that a plot shows, at equal distances in the order of the writes.
const SHOWN: usize = 1000;

const MIB: f64 = (1 << 20) as f64;

/// Writes the plot of `trace` as the figure of this filesystem.
pub(super) fn draw(document: &Document, filesystem: &str, trace: &BlockTrace) -> Result<()> {
    let name = filesystem.split(',').next().unwrap_or(filesystem).to_lowercase();
    document.figure(&format!("shin-pattern-{name}"), &[Series::new(filesystem, points(trace))])
}

/// Returns the bytes written before each shown write, and its offset, in MiB.
fn points(trace: &BlockTrace) -> Vec<(f64, f64)> {
    let mut before = 0;
    let writes = trace.records.iter().filter(|record| record.kind == RequestKind::Write);
    let all: Vec<(f64, f64)> = writes
        .map(|write| {
            let point = (before as f64 / MIB, write.offset as f64 / MIB);
            before += write.len;
            point
        })
        .collect();
    let every = all.len().div_ceil(SHOWN).max(1);
    all.into_iter().step_by(every).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_the_writes_in_order_and_not_too_many() {
        let text = "op,offset,len\nW,1048576,524288\nF,0,0\nW,0,4096\nR,0,4096\n";
        let trace = BlockTrace::parse(text).expect("a trace");
        assert_eq!(points(&trace), [(0.0, 1.0), (0.5, 0.0)]);
        let long = BlockTrace { records: trace.records.repeat(2 * SHOWN) };
        assert_eq!(points(&long).len(), SHOWN);
    }
}
