//! What users do: a stream of writes and deletions of numbered blocks.
//!
//! Owns: the workloads by name.
//! Promises: the same stream for the same name, size and seed.
//! Never: ends; a trace begins again.

mod generators;
mod tpcc;
mod trace;
mod zipf;

use std::path::Path;

use anyhow::{Context, Result, bail};

pub use generators::{HotCold, Sequential, Shift};
pub use tpcc::TpccLike;
pub use trace::{Replay, TraceFile};
pub use zipf::Zipf;

use crate::random::Random;

/// An operation on a block: its number, and the highest bit if it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(u32);

impl Operation {
    const DELETE: u32 = 1 << 31;

    /// A user writes this block.
    pub fn write(block: u32) -> Self {
        Self(block)
    }

    /// A user deletes this block.
    pub fn delete(block: u32) -> Self {
        Self(block | Self::DELETE)
    }

    /// The block.
    pub fn block(self) -> u32 {
        self.0 & !Self::DELETE
    }

    /// The same to a block whose number is higher by `count`.
    pub fn behind(self, count: u32) -> Self {
        Self(self.0 + count)
    }

    /// It is deleted.
    pub fn is_delete(self) -> bool {
        self.0 & Self::DELETE != 0
    }
}

/// A stream of operations.
pub trait Workload {
    /// The next one.
    fn next(&mut self) -> Operation;
}

/// Which workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Rank r is written with probability proportional to r^-theta.
    Zipf(f64),
    /// Every block alike.
    Uniform,
    /// A fraction of the writes goes to a fraction of the blocks.
    HotCold {
        /// Of the writes.
        writes: f64,
        /// Of the blocks.
        blocks: f64,
    },
    /// Hot and cold, and the hot blocks change.
    Shift,
    /// A mixture like that of an order-entry database.
    Tpcc,
    /// One after the other, again and again.
    Sequential,
    /// A recorded stream.
    Trace(TraceFile),
}

impl Source {
    /// The source of a name as the command line has it.
    pub fn open(name: &str) -> Result<Self> {
        let (kind, argument) = name.split_once(':').unwrap_or((name, ""));
        Ok(match (kind, argument) {
            ("zipf", theta) => {
                let theta = theta.parse().with_context(|| format!("theta of {name}"))?;
                Self::Zipf(theta)
            }
            ("uniform", "") => Self::Uniform,
            ("hotcold", parts) => {
                let wrong = || format!("{name}: not of the form hotcold:90/10");
                let (writes, blocks) = parts.split_once('/').with_context(wrong)?;
                let percent = |text: &str| -> Result<f64> {
                    let percent: f64 = text.parse().with_context(wrong)?;
                    if !(0.0 < percent && percent < 100.0) {
                        bail!(wrong());
                    }
                    Ok(percent / 100.0)
                };
                Self::HotCold { writes: percent(writes)?, blocks: percent(blocks)? }
            }
            ("shift", "") => Self::Shift,
            ("tpcc", "") => Self::Tpcc,
            ("sequential", "") => Self::Sequential,
            ("trace", file) => Self::Trace(TraceFile::open(Path::new(file))?),
            _ => bail!(
                "no workload {name}: there are zipf:THETA, uniform, hotcold:R/F, shift, tpcc, \
                 sequential, trace:FILE"
            ),
        })
    }

    /// Blocks that it needs to have; a generator takes any number.
    pub fn block_count(&self) -> Option<u32> {
        match self {
            Self::Trace(trace) => Some(trace.block_count()),
            _ => None,
        }
    }

    /// The stream over `blocks` blocks.
    pub fn stream(&self, blocks: u32, seed: u64) -> Box<dyn Workload + '_> {
        let random = Random::new(seed);
        match self {
            Self::Zipf(theta) => Box::new(Zipf::new(*theta, blocks, random)),
            Self::Uniform => Box::new(HotCold::new(0.5, 0.5, blocks, random)),
            Self::HotCold { writes, blocks: hot } => {
                Box::new(HotCold::new(*writes, *hot, blocks, random))
            }
            Self::Shift => Box::new(Shift::new(blocks, random)),
            Self::Tpcc => Box::new(TpccLike::new(blocks, random)),
            Self::Sequential => Box::new(Sequential::new(blocks)),
            Self::Trace(trace) => Box::new(Replay::new(trace)),
        }
    }
}
