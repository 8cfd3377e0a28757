//! Recorded requests, and images made by applying them to a copy of the initial device.
//!
//! All events of a recording, applied in order, give the content of the recorded device. Crash states are
//! made from a prefix or any subset of the events, and from torn writes.

use std::sync::Arc;

use crate::block::{BLOCK_SIZE, Block};
use crate::device::{Device, Stream};
use crate::ram::RamDevice;

/// Unit of a torn write in bytes: a device writes each sector wholly or not at all.
const SECTOR_SIZE: usize = 512;

/// Request that changed the medium, or made earlier changes durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks were written as one request.
    Write {
        /// Blocks that were written.
        range: BlockRange,
        /// Group that the blocks belong to.
        stream: Stream,
        /// Content of the blocks, under [`Keep::Contents`](crate::Keep::Contents).
        content: Option<Arc<[Block]>>,
    },
    /// Blocks were discarded.
    Discard {
        /// Blocks that were discarded.
        range: BlockRange,
    },
    /// All earlier writes became durable.
    Flush,
}

/// Adjacent blocks on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// Address of the first block.
    pub address: u64,
    /// Number of blocks.
    pub block_count: u64,
}

impl BlockRange {
    pub(super) fn new(address: u64, block_count: usize) -> BlockRange {
        BlockRange { address, block_count: block_count as u64 }
    }
}

impl Event {
    /// Applies the request to `image`.
    ///
    /// # Panics
    ///
    /// If the recording has no contents, or `image` is smaller than the recorded device.
    pub fn apply(&self, image: &RamDevice) {
        match self {
            Event::Write { range, stream, .. } => image
                .write(range.address, &[self.content()], *stream)
                .expect("an image as large as the recorded device"),
            Event::Discard { range } => image
                .discard(range.address, range.block_count)
                .expect("an image as large as the recorded device"),
            Event::Flush => {}
        }
    }

    /// Applies the request to `image`, but writes only the sectors of 512 bytes that `survives` accepts.
    ///
    /// `survives` is called with the number of each sector within the request. Requests other than
    /// writes are applied whole.
    ///
    /// # Panics
    ///
    /// In the same cases as [`Event::apply`].
    pub fn apply_torn(&self, image: &RamDevice, mut survives: impl FnMut(u64) -> bool) {
        let Event::Write { range, stream, .. } = self else {
            return self.apply(image);
        };
        let mut torn = Block::zeroed(range.block_count as usize);
        image.read(range.address, &mut torn).expect("an image as large as the recorded device");
        let old = Block::bytes_of_mut(&mut torn).chunks_exact_mut(SECTOR_SIZE);
        let new = Block::bytes_of(self.content()).chunks_exact(SECTOR_SIZE);
        for (sector_no, (old, new)) in old.zip(new).enumerate() {
            if survives(sector_no as u64) {
                old.copy_from_slice(new);
            }
        }
        image
            .write(range.address, &[&torn], *stream)
            .expect("an image as large as the recorded device");
    }

    /// Returns the number of 512-byte sectors of a write, and zero for other events.
    pub fn sector_count(&self) -> u64 {
        match self {
            Event::Write { range, .. } => range.block_count * (BLOCK_SIZE / SECTOR_SIZE) as u64,
            Event::Discard { .. } | Event::Flush => 0,
        }
    }

    fn content(&self) -> &[Block] {
        match self {
            Event::Write { content: Some(content), .. } => content,
            _ => panic!("the recording was not made with Keep::Contents"),
        }
    }
}

/// Returns a copy of `base` with `events` applied in the order given: a prefix of a recording, or any
/// subset. `base` is not changed.
///
/// # Panics
///
/// In the same cases as [`Event::apply`].
pub fn image_after<'a>(base: &RamDevice, events: impl IntoIterator<Item = &'a Event>) -> RamDevice {
    let image = base.snapshot();
    for event in events {
        event.apply(&image);
    }
    image
}
