//! Writes like those of an order-entry database, in outline: TPC-C's tables, not its transactions.
//!
//! Four groups of tables have shares of the blocks and of the writes, and an access pattern each.
//! Appends are cyclic, because a table that is purged of its oldest rows reuses its pages.

use super::operation::{BlockOperation, Workload};
use crate::random::WorkloadRng;

/// Shares of a group of tables in the blocks and in the writes, and its access pattern.
struct TableShare {
    blocks: f64,
    writes: f64,
    pattern: AccessPattern,
}

enum AccessPattern {
    Even,
    /// TPC-C's NURand, A | x, which prefers numbers with many bits set.
    Skewed,
    /// Pages in order, cyclically.
    Appended,
}

/// Warehouses and districts; stock; customers; orders with their lines and the history.
///
/// TPC-C does not give these shares, because its pages go through a buffer pool. The shares were fitted
/// to the published figures of policies other than `sfs` (docs/lab.md, "How far to trust this").
const TABLES: [TableShare; 4] = [
    TableShare { blocks: 0.006, writes: 0.17, pattern: AccessPattern::Even },
    TableShare { blocks: 0.375, writes: 0.46, pattern: AccessPattern::Skewed },
    TableShare { blocks: 0.255, writes: 0.095, pattern: AccessPattern::Even },
    TableShare { blocks: 0.364, writes: 0.275, pattern: AccessPattern::Appended },
];

/// The generator of the four groups of tables.
pub struct TpccLike {
    random: WorkloadRng,
    /// First block of each table, and the end of the last.
    starts: [u32; TABLES.len() + 1],
    /// Page of the last append.
    page: u32,
}

impl TpccLike {
    /// Returns a generator with `blocks` blocks, divided among the tables.
    pub fn new(blocks: u32, random: WorkloadRng) -> Self {
        let mut starts = [0; TABLES.len() + 1];
        let mut share = 0.0;
        for (start, table) in starts[1..].iter_mut().zip(&TABLES) {
            share += table.blocks;
            *start = ((f64::from(blocks) * share).round() as u32).min(blocks);
        }
        Self { random, starts, page: 0 }
    }

    fn block_of(&mut self, table: usize) -> u32 {
        let count = (self.starts[table + 1] - self.starts[table]).max(1);
        let offset = match TABLES[table].pattern {
            AccessPattern::Even => self.random.below(count),
            AccessPattern::Skewed => {
                let mask = (1 << count.ilog2()) - 1;
                (self.random.below(mask + 1) | self.random.below(count)) % count
            }
            AccessPattern::Appended => {
                self.page = (self.page + 1) % count;
                self.page
            }
        };
        self.starts[table] + offset
    }
}

impl Workload for TpccLike {
    fn next(&mut self) -> BlockOperation {
        let mut draw = self.random.unit();
        let table = TABLES.iter().position(|table| {
            draw -= table.writes;
            draw < 0.0
        });
        BlockOperation::write(self.block_of(table.unwrap_or(1)))
    }
}
