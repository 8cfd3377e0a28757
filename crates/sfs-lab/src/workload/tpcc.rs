//! What an order-entry database writes, in outline (TPC-C's tables, not its transactions).
//!
//! Owns: the shares of tables in blocks and in writes.
//! Promises: appends are cyclic, as a table that is purged of its oldest rows reuses its pages.
//! Never: replays a real database: `trace:` does.

use super::{Operation, Workload};
use crate::random::Random;

/// A table: how many of the blocks it has and of the writes it gets, and how they are spread.
struct Table {
    blocks: f64,
    writes: f64,
    spread: Spread,
}

enum Spread {
    Even,
    /// TPC-C's NURand: A | x, which prefers numbers with many bits set.
    Skewed,
    /// Page after page.
    Appended,
}

/// Warehouses and districts; stock; customers; orders, their lines and the history. Which shares is
/// not in TPC-C, as its pages go through a buffer pool: they are those with which eight policies other
/// than `lifetime`, and coalescing, come close to grouping.md (docs/lab.md).
const TABLES: [Table; 4] = [
    Table { blocks: 0.006, writes: 0.17, spread: Spread::Even },
    Table { blocks: 0.375, writes: 0.46, spread: Spread::Skewed },
    Table { blocks: 0.255, writes: 0.095, spread: Spread::Even },
    Table { blocks: 0.364, writes: 0.275, spread: Spread::Appended },
];

/// Writes of an order-entry database.
pub struct TpccLike {
    random: Random,
    /// First block of each table, and the end of the last.
    starts: [u32; TABLES.len() + 1],
    /// Page that appends fill.
    page: u32,
}

impl TpccLike {
    /// The tables in `blocks` blocks.
    pub fn new(blocks: u32, random: Random) -> Self {
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
        let offset = match TABLES[table].spread {
            Spread::Even => self.random.below(count),
            Spread::Skewed => {
                let mask = (1 << count.ilog2()) - 1;
                (self.random.below(mask + 1) | self.random.below(count)) % count
            }
            Spread::Appended => {
                self.page = (self.page + 1) % count;
                self.page
            }
        };
        self.starts[table] + offset
    }
}

impl Workload for TpccLike {
    fn next(&mut self) -> Operation {
        let mut draw = self.random.unit();
        let table = TABLES.iter().position(|table| {
            draw -= table.writes;
            draw < 0.0
        });
        Operation::write(self.block_of(table.unwrap_or(1)))
    }
}
