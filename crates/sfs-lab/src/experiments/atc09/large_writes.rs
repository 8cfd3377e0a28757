//! Table 4: writes that are aligned to the pages of the device, under recorded traces and under large writes in order.

use anyhow::Result;
use sfs_lab::block_trace::{BlockTrace, TraceFolder, TraceRecord};
use sfs_lab::report::table;
use sfs_ssd::{Arrivals, RequestKind, RequestQueue, SsdConfig};

use super::device::{cells, filled};

/// Traces, and the number of bytes by which their partition is off the grid of blocks.
const TRACES: [(&str, u64); 4] = [
    ("disksim-postmark", 0),
    ("tpcc-small", 0),
    ("cloudphysics-vm", OLD_PARTITION),
    ("opencas-rocksdb-ycsb-a-xfs", 0),
];

/// Offset of a partition that begins at sector 63, from the grid of blocks of 4 KiB.
const OLD_PARTITION: u64 = 7 * 512;

/// Length of the stand-in's file, and the lengths of its writes: IOzone's automatic mode takes records up to 16 MiB, which a
/// kernel of 2009 sent in requests of 512 KiB at most.
const FILE: u64 = 64 << 20;
const REQUESTS: [u64; 4] = [16 << 10, 64 << 10, 128 << 10, 512 << 10];

/// Sectors at which the partition of the stand-in begins: on a page of the device, and as in 2009.
const BEGINNINGS: [u64; 2] = [64, 63];

/// Returns the table: the gain by alignment, with 32 requests in flight.
pub(super) fn table4(traces: &TraceFolder) -> Result<String> {
    let mut rows = vec![
        cells(&["paper: Postmark", "1.15%"]),
        cells(&["paper: TPC-C", "3.08%"]),
        cells(&["paper: Exchange", "4.89%"]),
        cells(&["paper: IOzone", "36.54%"]),
    ];
    let mut add = |name: String, trace: &BlockTrace| -> Result<()> {
        rows.push(vec![name, format!("{:.2}%", gain(trace)? * 100.0)]);
        Ok(())
    };
    for (name, shift) in TRACES {
        let Some(path) = traces.find(format!("{name}.csv.zst")) else { continue };
        let trace = BlockTrace::open(&path)?;
        add(name.to_owned(), &trace)?;
        if shift > 0 {
            let moved = |record: &TraceRecord| TraceRecord {
                offset: record.offset.saturating_sub(shift),
                ..*record
            };
            let records = trace.records.iter().map(moved).collect();
            add(format!("{name}, moved to the grid of blocks"), &BlockTrace { records })?;
        }
    }
    for beginning in BEGINNINGS {
        let trace = large_writes(beginning * 512);
        add(format!("large writes in order, partition at sector {beginning}"), &trace)?;
    }
    Ok(format!(
        "Ours: less time for the whole trace, with 32 requests in flight. The large writes stand in for IOzone, whose trace \
         we do not have: a file of {} MiB, written in requests of 16, 64, 128 and 512 KiB.\n\n{}\n",
        FILE >> 20,
        table(&cells(&["table 4", "improvement by aligned writes"]), &rows)
    ))
}

/// Returns the writes of a file from `first` on, once in each length of request.
fn large_writes(first: u64) -> BlockTrace {
    let writes = |len: u64| {
        let offsets = (first..first + FILE).step_by(len as usize);
        offsets.map(move |offset| TraceRecord {
            at_us: 0,
            kind: RequestKind::Write,
            offset,
            len,
            stream: 0,
        })
    };
    BlockTrace { records: REQUESTS.into_iter().flat_map(writes).collect() }
}

/// Returns the part of the time that merging and aligning saves.
fn gain(trace: &BlockTrace) -> Result<f64> {
    let config = SsdConfig::eight_packages(8, 8, 1);
    let cluster = config.geometry.cluster_size();
    let trace = trace.compact(cluster);
    let geometry = config.geometry.with_capacity(trace.end().next_multiple_of(cluster));
    let config = SsdConfig { geometry, ..config };
    let time = |merging: bool| -> Result<f64> {
        let mut ssd = filled(&config)?;
        let queue =
            RequestQueue { depth: 32, arrivals: Arrivals::Eager, merging, ..RequestQueue::FCFS };
        let began_ns = ssd.idle_ns();
        let requests = trace.records.iter().map(|record| record.request());
        let ended_ns = queue.run(&mut ssd, began_ns, requests, |_, _| {});
        Ok((ended_ns - began_ns) as f64)
    };
    Ok(1.0 - time(true)? / time(false)?)
}
