//! The time of a durable write, on a device or in a model.
//!
//! The written content looks random, so that a device that compresses gains nothing.

use std::time::Instant;

use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

/// Number of blocks of content; longer requests repeat these blocks.
const CONTENT_BLOCKS: usize = 256;

/// A medium whose writes are timed.
pub trait Probe {
    /// Writes `count` blocks from block `address` on as one request, and returns the nanoseconds
    /// until the blocks were durable.
    fn write(&mut self, address: u64, count: u64) -> Result<u64, DeviceError>;
}

/// A device, timed by the system's clock.
pub struct DeviceProbe<'a> {
    device: &'a dyn Device,
    content: Vec<Block>,
}

impl<'a> DeviceProbe<'a> {
    /// Creates a probe of `device`.
    pub fn new(device: &'a dyn Device) -> Self {
        let mut content = vec![Block([0; BLOCK_SIZE]); CONTENT_BLOCKS];
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for byte in content.iter_mut().flat_map(|block| &mut block.0) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
        Self { device, content }
    }
}

impl Probe for DeviceProbe<'_> {
    fn write(&mut self, address: u64, count: u64) -> Result<u64, DeviceError> {
        let mut parts: Vec<&[Block]> = Vec::new();
        let mut left = count as usize;
        while left > 0 {
            let part = left.min(CONTENT_BLOCKS);
            parts.push(&self.content[..part]);
            left -= part;
        }
        let began = Instant::now();
        self.device.write(address, &parts, Stream::default())?;
        self.device.flush()?;
        Ok(began.elapsed().as_nanos() as u64)
    }
}
