//! Content of a log object: what has changed since the one before.
//!
//! Number of records, the records, and then the blocks of all pieces in their order. A log object is one step: all of it, or nothing.

use sfs_device::{BLOCK_SIZE, Block};

use super::shape::Shape;
use crate::name::{Epoch, NUMBER_MAX};
use crate::wire::{Decoder, Encoder};

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Blocks within one region were written.
    Piece { address: u64, blocks: u64 },
    /// A data object holds the region from now on.
    Whole { region: u64, data: (Epoch, u64) },
    /// The region is zero from now on.
    Zero { region: u64 },
}

/// Records, and the blocks of their pieces.
#[derive(Debug, Default)]
pub(crate) struct LogContent {
    pub(crate) records: Vec<Record>,
    pub(crate) blocks: Vec<u8>,
}

impl LogContent {
    pub(crate) fn piece(&mut self, address: u64, blocks: &[Block]) {
        self.records.push(Record::Piece { address, blocks: blocks.len() as u64 });
        self.blocks.extend(Block::bytes_of(blocks));
    }

    /// Returns the number of blocks of all pieces.
    pub(crate) fn block_count(&self) -> u64 {
        (self.blocks.len() / BLOCK_SIZE) as u64
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.number(self.records.len() as u64);
        for record in &self.records {
            let (kind, values) = match *record {
                Record::Piece { address, blocks } => (1, [address, blocks, 0]),
                Record::Whole { region, data: (epoch, number) } => (2, [region, epoch.0, number]),
                Record::Zero { region } => (3, [region, 0, 0]),
            };
            to.byte(kind);
            values.into_iter().for_each(|value| to.number(value));
        }
        to.0.extend(self.blocks);
        to.0
    }

    /// Reads the content of a log object of a volume of this shape.
    pub(crate) fn decode(bytes: &[u8], shape: Shape) -> Option<Self> {
        let (records, blocks) = Self::decode_parts(bytes, shape)?;
        Some(Self { records, blocks: blocks.to_vec() })
    }

    /// Reads the records of a log object. Returns them and the blocks of their pieces.
    pub(crate) fn decode_parts(bytes: &[u8], shape: Shape) -> Option<(Vec<Record>, &[u8])> {
        let mut from = Decoder(bytes);
        let mut records = Vec::new();
        let mut blocks_all = 0u64;
        for _ in 0..from.number()? {
            let kind = from.byte()?;
            let [one, two, three] = [from.number()?, from.number()?, from.number()?];
            let record = match kind {
                1 if three == 0 => {
                    let end = one.checked_add(two).filter(|end| *end <= shape.volume_blocks)?;
                    let is_one =
                        two > 0 && one / shape.region_blocks == (end - 1) / shape.region_blocks;
                    blocks_all += if is_one { two } else { return None };
                    Record::Piece { address: one, blocks: two }
                }
                2 if one < shape.regions() && two.max(three) <= NUMBER_MAX => {
                    Record::Whole { region: one, data: (Epoch(two), three) }
                }
                3 if one < shape.regions() && two == 0 && three == 0 => {
                    Record::Zero { region: one }
                }
                _ => return None,
            };
            records.push(record);
        }
        if from.0.len() as u64 != blocks_all.checked_mul(BLOCK_SIZE as u64)? {
            return None;
        }
        Some((records, from.0))
    }
}
