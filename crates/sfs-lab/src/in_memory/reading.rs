//! Reading a file from end to end: the runs of blocks that it has on the device, and the requests that read them.

use anyhow::Result;
use sfs_core::Volume;

/// Number of blocks of the file that are looked up together, and read in the order of their addresses: 4 MiB.
const WINDOW_BLOCKS: u32 = 1024;

/// Largest number of blocks between two blocks of the file that one request reads along: 64 KiB.
const GAP_BLOCKS: u64 = 16;

/// Figures of reading a file once from end to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadingCounts {
    /// Number of blocks of the file.
    pub blocks: u64,
    /// Number of runs: blocks that follow one another in the file and on the device.
    pub runs: u64,
    /// Number of requests, if windows of 4 MiB are sorted by address, and gaps of at most 64 KiB are read along.
    pub requests: u64,
    /// Number of blocks that these requests read, the gaps included.
    pub read_blocks: u64,
}

impl ReadingCounts {
    /// Counts the runs of file `ino`, and the requests that read it.
    ///
    /// # Errors
    ///
    /// Those of [`Volume::file_blocks`].
    pub fn of(volume: &Volume, ino: u64) -> Result<Self> {
        let (mut counts, mut window, mut next) = (Self::default(), Vec::new(), Some(0));
        let mut last: Option<(u32, u64)> = None;
        while let Some(from) = next {
            let part = volume.file_blocks(ino, from, 0)?;
            for run in &part.runs {
                for (block, address) in (run.block..).zip(run.address..).take(run.count as usize) {
                    let follows = last.is_some_and(|(b, a)| b + 1 == block && a + 1 == address);
                    counts.runs += u64::from(!follows);
                    if last.is_some_and(|(b, _)| b / WINDOW_BLOCKS != block / WINDOW_BLOCKS) {
                        counts.read(&mut window);
                    }
                    window.push(address);
                    last = Some((block, address));
                }
            }
            next = part.next;
        }
        counts.read(&mut window);
        Ok(counts)
    }

    /// Counts the requests of a window, and empties it.
    fn read(&mut self, window: &mut Vec<u64>) {
        window.sort_unstable();
        self.blocks += window.len() as u64;
        for near in window.chunk_by(|a, b| b - a <= GAP_BLOCKS + 1) {
            self.requests += 1;
            self.read_blocks += near[near.len() - 1] - near[0] + 1;
        }
        window.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_64_kib_are_read_along() {
        let mut counts = ReadingCounts::default();
        counts.read(&mut vec![100, 50, 51, 118, 135]);
        let expected = ReadingCounts { blocks: 5, requests: 3, read_blocks: 2 + 1 + 18, runs: 0 };
        assert_eq!(counts, expected);
    }
}
