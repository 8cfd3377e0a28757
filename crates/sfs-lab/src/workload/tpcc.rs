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
    /// Page after page, each several times while it fills.
    Appended,
}

/// Warehouses and districts; stock; customers; orders, their lines and the history; items and all else.
const TABLES: [Table; 5] = [
    Table { blocks: 0.005, writes: 0.14, spread: Spread::Even },
    Table { blocks: 0.34, writes: 0.36, spread: Spread::Skewed },
    Table { blocks: 0.20, writes: 0.12, spread: Spread::Skewed },
    Table { blocks: 0.305, writes: 0.38, spread: Spread::Appended },
    Table { blocks: 0.15, writes: 0.0, spread: Spread::Even },
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
    /// One in so many appends begins a new page.
    const APPENDS_PER_PAGE: u32 = 2;

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
                let mask = (count / 3).next_power_of_two() - 1;
                (self.random.below(mask + 1) | self.random.below(count)) % count
            }
            Spread::Appended => {
                if self.random.below(Self::APPENDS_PER_PAGE) == 0 {
                    self.page = (self.page + 1) % count;
                }
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
