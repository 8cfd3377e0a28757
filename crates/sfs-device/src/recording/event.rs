//! What a recording is made of, and images made from parts of one.
//!
//! Owns: the meaning of each recorded request.
//! Promises: all events of a log, applied in order, give what the recorded device holds.
//! Never: looks at the recorded device.

use std::sync::Arc;

use crate::{BLOCK_SIZE, Block, Device, RamDevice, Stream};

/// Unit of a torn write in bytes: what a device writes wholly or not at all.
const SECTOR_SIZE: usize = 512;

/// A request that changed the medium, or made it durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks were written as one request.
    Write {
        /// Where.
        extent: Extent,
        /// The group they belong to.
        stream: Stream,
        /// Their content, under [`Keep::Contents`](crate::Keep::Contents).
        content: Option<Arc<[Block]>>,
    },
    /// Blocks were let go.
    Discard {
        /// Where.
        extent: Extent,
    },
    /// All writes before became durable.
    Flush,
}

/// Blocks that follow one another on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first block.
    pub address: u64,
    /// How many.
    pub block_count: u64,
}

impl Extent {
    pub(super) fn new(address: u64, block_count: usize) -> Extent {
        Extent { address, block_count: block_count as u64 }
    }
}

impl Event {
    /// Does to `image` what was done to the recorded device.
    ///
    /// # Panics
    ///
    /// When the recording kept no contents, or `image` is smaller than the recorded device.
    pub fn apply(&self, image: &RamDevice) {
        match self {
            Event::Write { extent, stream, .. } => image
                .write(extent.address, &[self.content()], *stream)
                .expect("an image as large as the recorded device"),
            Event::Discard { extent } => image
                .discard(extent.address, extent.block_count)
                .expect("an image as large as the recorded device"),
            Event::Flush => {}
        }
    }

    /// As [`Event::apply`], but of a write only those sectors of 512 bytes arrive that `survives`
    /// says, by their number in the request.
    ///
    /// # Panics
    ///
    /// As [`Event::apply`].
    pub fn apply_torn(&self, image: &RamDevice, mut survives: impl FnMut(u64) -> bool) {
        let Event::Write { extent, stream, .. } = self else {
            return self.apply(image);
        };
        let mut torn = Block::zeroed(extent.block_count as usize);
        image.read(extent.address, &mut torn).expect("an image as large as the recorded device");
        let old = Block::bytes_of_mut(&mut torn).chunks_exact_mut(SECTOR_SIZE);
        let new = Block::bytes_of(self.content()).chunks_exact(SECTOR_SIZE);
        for (sector_no, (old, new)) in old.zip(new).enumerate() {
            if survives(sector_no as u64) {
                old.copy_from_slice(new);
            }
        }
        image
            .write(extent.address, &[&torn], *stream)
            .expect("an image as large as the recorded device");
    }

    /// Sectors of 512 bytes that a write has; zero for other events.
    pub fn sector_count(&self) -> u64 {
        match self {
            Event::Write { extent, .. } => extent.block_count * (BLOCK_SIZE / SECTOR_SIZE) as u64,
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

/// What a device that held `base` holds after `events`: `&log[..n]` for the first `n`, or any
/// subset, in the order given. `base` stays as it is.
///
/// # Panics
///
/// As [`Event::apply`].
pub fn image_after<'a>(base: &RamDevice, events: impl IntoIterator<Item = &'a Event>) -> RamDevice {
    let image = base.snapshot();
    for event in events {
        event.apply(&image);
    }
    image
}
