//! The workloads and their names on the command line.

use std::path::Path;

use anyhow::{Context, Result, bail};
use sfs_mkfs::output;

use super::generators::{HotCold, Pieces, Sequential, Shift, Streams};
use super::operation::Workload;
use super::tpcc::TpccLike;
use super::trace::{TraceFile, TraceReplay};
use super::zipf::{self, Zipf};
use crate::block_trace;
use crate::random::WorkloadRng;

/// Largest exponent of a Zipf distribution.
const THETA_MAX: f64 = 10.0;

/// A workload, without its number of blocks and its seed.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Rank r is written with probability proportional to r^-theta.
    Zipf(f64),
    /// Every block is equally likely.
    Uniform,
    /// A fraction of the writes goes to a fraction of the blocks.
    HotCold {
        /// Fraction of the writes.
        writes: f64,
        /// Fraction of the blocks.
        blocks: f64,
    },
    /// Hot and cold blocks; the set of hot blocks changes.
    Shift,
    /// A mixture of access patterns like that of an order-entry database.
    Tpcc,
    /// Blocks in order, from the first to the last, over and over.
    Sequential,
    /// This number of blocks in order, each time at another place.
    Pieces(u32),
    /// A log and an archive, each in order, and random writes.
    Streams,
    /// A recorded trace.
    Trace(TraceFile),
}

impl Source {
    /// Returns the workload of a name such as `zipf:0.99` or `trace:FILE`. Reads the trace.
    pub fn open(name: &str) -> Result<Self> {
        let (kind, argument) = name.split_once(':').unwrap_or((name, ""));
        Ok(match (kind, argument) {
            ("zipf", theta) => {
                let theta: f64 = theta.parse().with_context(|| format!("theta of {name}"))?;
                if !(0.0..=THETA_MAX).contains(&theta) {
                    bail!("{name}: theta is not from 0 to {THETA_MAX}");
                }
                Self::Zipf(theta)
            }
            ("uniform", "") => Self::Uniform,
            ("hotcold", parts) => {
                let (writes, blocks) = hot_fractions(parts)
                    .with_context(|| format!("{name}: not of the form hotcold:90/10"))?;
                Self::HotCold { writes, blocks }
            }
            ("shift", "") => Self::Shift,
            ("tpcc", "") => Self::Tpcc,
            ("sequential", "") => Self::Sequential,
            ("pieces", len) => {
                let len = len.parse().ok().filter(|len| *len > 0);
                Self::Pieces(len.with_context(|| format!("{name}: not of the form pieces:BLOCKS"))?)
            }
            ("streams", "") => Self::Streams,
            ("trace", file) => Self::Trace(TraceFile::open(Path::new(file))?),
            _ => bail!(
                "no workload {name}: there are zipf:THETA, uniform, hotcold:R/F, shift, tpcc, \
                 sequential, pieces:BLOCKS, streams, trace:FILE"
            ),
        })
    }

    /// Reads every trace in a folder, in any format of [`BlockTrace::open`](crate::block_trace::BlockTrace::open). Returns
    /// each with the name of its file. Reports the other files on standard error, with the reason.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read, or no file in it is a trace that writes.
    pub fn open_folder(folder: &Path) -> Result<Vec<(String, Self)>> {
        let mut traces = Vec::new();
        for path in block_trace::files_in(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match TraceFile::open(&path) {
                Ok(trace) => traces.push((name, Self::Trace(trace))),
                Err(error) => output::complain(format_args!("skipped: {error:#}")),
            }
        }
        if traces.is_empty() {
            bail!("{}: no file in this folder is a trace that writes", folder.display());
        }
        Ok(traces)
    }

    /// Returns the number of blocks of a trace; `None` for a generator, which takes any number.
    pub fn block_count(&self) -> Option<u32> {
        match self {
            Self::Trace(trace) => Some(trace.block_count()),
            _ => None,
        }
    }

    /// Returns the stream over `blocks` blocks.
    pub fn stream(&self, blocks: u32, seed: u64) -> Box<dyn Workload + '_> {
        let random = WorkloadRng::new(seed);
        match self {
            Self::Zipf(theta) => Box::new(Zipf::new(*theta, blocks, random)),
            Self::Uniform => Box::new(HotCold::new(0.5, 0.5, blocks, random)),
            Self::HotCold { writes, blocks: hot } => {
                Box::new(HotCold::new(*writes, *hot, blocks, random))
            }
            Self::Shift => Box::new(Shift::new(blocks, random)),
            Self::Tpcc => Box::new(TpccLike::new(blocks, random)),
            Self::Sequential => Box::new(Sequential::new(blocks)),
            Self::Pieces(len) => Box::new(Pieces::new(*len, blocks, random)),
            Self::Streams => Box::new(Streams::new(blocks, random)),
            Self::Trace(trace) => Box::new(TraceReplay::new(trace)),
        }
    }

    /// Returns classes of blocks with about the same constant rate: the number of blocks of each
    /// class, and its share of the writes. `None` if rates change or are unknown.
    pub fn rates(&self, blocks: u32) -> Option<Vec<(f64, f64)>> {
        let blocks = f64::from(blocks);
        match self {
            Self::Uniform => Some(vec![(blocks, 1.0)]),
            Self::HotCold { writes, blocks: hot } => {
                Some(vec![(hot * blocks, *writes), ((1.0 - hot) * blocks, 1.0 - writes)])
            }
            Self::Zipf(theta) => Some(zipf::classes(*theta, blocks as u32)),
            _ => None,
        }
    }
}

/// Returns the fractions that a text such as `90/10` has: of the writes, and of the blocks.
fn hot_fractions(parts: &str) -> Option<(f64, f64)> {
    let (writes, blocks) = parts.split_once('/')?;
    let fraction = |text: &str| -> Option<f64> {
        let percent: f64 = text.parse().ok()?;
        (0.0 < percent && percent < 100.0).then_some(percent / 100.0)
    };
    Some((fraction(writes)?, fraction(blocks)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_its_traces_by_name_whatever_their_formats() {
        let folder = tempfile::tempdir().expect("a directory");
        let error = Source::open_folder(folder.path()).expect_err("nothing").to_string();
        assert!(error.ends_with("no file in this folder"), "{error}");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("a file");
        };
        write("README.md", "About these traces\n");
        write("wrong.csv", "us,op,offset,len\n1,X,0,0\n");
        write(".hidden", "us,op,offset,len\n1,W,0,4096\n");
        let error = Source::open_folder(folder.path()).expect_err("no trace").to_string();
        assert!(error.ends_with("is a trace that writes"), "{error}");
        write("d.csv", "us,op,offset,len\n1,W,0,8192\n");
        write("b.iolog", "fio version 2 iolog\n/b add\n/b write 0 4096\n");
        write("c.blkparse", "  8,0 1 1 0.000000000 697 Q W 8 + 24 [fio]\n");
        write("a.syscalls", "1 0 open \"/a\" O_RDWR 3\n1 1 write 3 16384\n");
        let volume = sfs_trace::TraceProperties::default();
        write("e.trace", &format!("{volume}1,write,5,0,20480,0,0,0\n"));
        let traces = Source::open_folder(folder.path()).expect("traces");
        let found: Vec<_> =
            traces.iter().map(|(name, source)| (name.as_str(), source.block_count())).collect();
        let expected =
            [("a.syscalls", 4), ("b.iolog", 1), ("c.blkparse", 3), ("d.csv", 2), ("e.trace", 5)]
                .map(|(name, blocks)| (name, Some(blocks)));
        assert_eq!(found, expected);
    }

    #[test]
    fn hot_and_cold_fractions_are_percentages_between_0_and_100() {
        let source = Source::open("hotcold:90/10").expect("a workload");
        assert_eq!(source, Source::HotCold { writes: 0.9, blocks: 0.1 });
        for wrong in ["hotcold:90", "hotcold:0/10", "hotcold:90/100", "hotcold:a/b"] {
            let error = Source::open(wrong).expect_err("no workload").to_string();
            assert_eq!(error, format!("{wrong}: not of the form hotcold:90/10"));
        }
    }
}
