//! Loops that complete a request although single system calls transfer less than requested.
//!
//! A request transfers all its bytes or returns an error. An interrupted call is repeated.

use std::io::{self, ErrorKind};

use crate::sys::{Gather, Scatter};

/// Fills `buffer` from byte `offset` on with calls of `read`.
///
/// The count that a call returns is rounded down to a multiple of `unit` bytes, so that the next call of
/// direct I/O is aligned.
pub(crate) fn fill(
    mut buffer: &mut [u8],
    mut offset: u64,
    unit: usize,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match whole_units(read(buffer, offset), unit)? {
            CallResult::Interrupted => {}
            CallResult::NoProgress => return Err(ErrorKind::UnexpectedEof.into()),
            CallResult::Transferred(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// Fills all of `parts` from byte `offset` on with calls of `read`. `unit` is used as in [`fill`].
pub(crate) fn fill_parts(
    mut parts: Scatter<'_>,
    mut offset: u64,
    unit: usize,
    mut read: impl FnMut(&mut Scatter<'_>, u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !parts.is_empty() {
        match whole_units(read(&mut parts, offset), unit)? {
            CallResult::Interrupted => {}
            CallResult::NoProgress => return Err(ErrorKind::UnexpectedEof.into()),
            CallResult::Transferred(count) => {
                parts.advance(count);
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// Writes all of `parts` from byte `offset` on with calls of `write`. `unit` is used as in [`fill`].
pub(crate) fn drain(
    mut parts: Gather<'_>,
    mut offset: u64,
    unit: usize,
    mut write: impl FnMut(&Gather<'_>, u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !parts.is_empty() {
        match whole_units(write(&parts, offset), unit)? {
            CallResult::Interrupted => {}
            CallResult::NoProgress => return Err(ErrorKind::WriteZero.into()),
            CallResult::Transferred(count) => {
                parts.advance(count);
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// Result of one system call that did not fail for good.
enum CallResult {
    Interrupted,
    /// Less than one unit was transferred.
    NoProgress,
    /// Number of bytes transferred, a multiple of the unit.
    Transferred(usize),
}

fn whole_units(result: io::Result<usize>, unit: usize) -> io::Result<CallResult> {
    match result {
        Ok(count) if count < unit => Ok(CallResult::NoProgress),
        Ok(count) => Ok(CallResult::Transferred(count - count % unit)),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(CallResult::Interrupted),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK_SIZE, Block};

    #[test]
    fn short_and_interrupted_reads_are_continued() {
        let source: Vec<u8> = (0..100).collect();
        let mut buffer = [0; 90];
        let mut calls = 0;
        fill(&mut buffer, 10, 1, |buffer, offset| {
            calls += 1;
            if calls % 2 == 0 {
                return Err(ErrorKind::Interrupted.into());
            }
            let count = buffer.len().min(7);
            buffer[..count].copy_from_slice(&source[offset as usize..][..count]);
            Ok(count)
        })
        .unwrap();
        assert_eq!(buffer[..], source[10..]);
    }

    #[test]
    fn an_incomplete_unit_is_read_again() {
        let mut offsets = vec![];
        fill(&mut [0; 1024], 0, 512, |buffer, offset| {
            offsets.push(offset);
            Ok(buffer.len().min(600))
        })
        .unwrap();
        assert_eq!(offsets, [0, 512]);
    }

    #[test]
    fn a_call_without_progress_is_an_error() {
        for (count, unit) in [(0, 1), (100, 512)] {
            let error = fill(&mut [0; 1024], 0, unit, |_, _| Ok(count)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
        let blocks = Block::zeroed(1);
        let error = drain(Gather::new(&[&blocks]), 0, 1, |_, _| Ok(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
    }

    #[test]
    fn short_and_interrupted_writes_are_continued() {
        let (one, two) = (Block::zeroed(1), Block::zeroed(2));
        // These parts are not adjacent in memory, wherever the allocator put them.
        let parts: [&[Block]; 3] = [&two[1..], &[], &one];
        let mut seen = vec![];
        drain(Gather::new(&parts), 0, 1, |parts, offset| {
            seen.push((offset, parts.lengths().iter().sum::<usize>()));
            match seen.len() {
                2 => Err(ErrorKind::Interrupted.into()),
                _ => Ok(5000.min(2 * BLOCK_SIZE - offset as usize)),
            }
        })
        .unwrap();
        assert_eq!(seen, [(0, 8192), (5000, 3192), (5000, 3192)]);
    }

    #[test]
    fn parts_adjacent_in_memory_are_merged() {
        let blocks = Block::zeroed(8);
        let parts: [&[Block]; 4] = [&blocks[0..2], &blocks[2..3], &blocks[4..6], &blocks[3..4]];
        assert_eq!(Gather::new(&parts).lengths(), [3 * 4096, 2 * 4096, 4096]);
    }
}
