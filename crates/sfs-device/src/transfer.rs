//! Transfers that the system cuts short.
//!
//! Owns: the loops that carry a request to its end.
//! Promises: all bytes or an error; an interrupted call is made again.
//! Never: knows what is read or written.

use std::io::{self, ErrorKind};

use crate::sys::Gather;

/// Fills `buffer` from byte `offset` on with calls of `read`. What a call returns is taken in
/// whole `unit`s of bytes, so that direct I/O stays aligned.
pub(crate) fn fill(
    mut buffer: &mut [u8],
    mut offset: u64,
    unit: usize,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match whole_units(read(buffer, offset), unit)? {
            Progress::Again => {}
            Progress::None => return Err(ErrorKind::UnexpectedEof.into()),
            Progress::Bytes(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// Writes all of `parts` from byte `offset` on with calls of `write`. `unit` as in [`fill`].
pub(crate) fn drain(
    mut parts: Gather<'_>,
    mut offset: u64,
    unit: usize,
    mut write: impl FnMut(&Gather<'_>, u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !parts.is_empty() {
        match whole_units(write(&parts, offset), unit)? {
            Progress::Again => {}
            Progress::None => return Err(ErrorKind::WriteZero.into()),
            Progress::Bytes(count) => {
                parts.advance(count);
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// How far one call came.
enum Progress {
    Again,
    None,
    Bytes(usize),
}

fn whole_units(result: io::Result<usize>, unit: usize) -> io::Result<Progress> {
    match result {
        Ok(count) if count < unit => Ok(Progress::None),
        Ok(count) => Ok(Progress::Bytes(count - count % unit)),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Progress::Again),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK_SIZE, Block};

    #[test]
    fn short_reads_and_interruptions_still_fill() {
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
    fn a_part_of_a_unit_is_read_again() {
        let mut offsets = vec![];
        fill(&mut [0; 1024], 0, 512, |buffer, offset| {
            offsets.push(offset);
            Ok(buffer.len().min(600))
        })
        .unwrap();
        assert_eq!(offsets, [0, 512]);
    }

    #[test]
    fn the_end_of_the_medium_is_an_error_and_ends() {
        for (count, unit) in [(0, 1), (100, 512)] {
            let error = fill(&mut [0; 1024], 0, unit, |_, _| Ok(count)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
        let blocks = Block::zeroed(1);
        let error = drain(Gather::new(&[&blocks]), 0, 1, |_, _| Ok(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
    }

    #[test]
    fn short_writes_go_on_where_they_stopped() {
        let (one, two) = (Block::zeroed(1), Block::zeroed(2));
        // A gap between the parts, whatever the allocator did.
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
    fn neighbours_in_memory_are_one_part() {
        let blocks = Block::zeroed(8);
        let parts: [&[Block]; 4] = [&blocks[0..2], &blocks[2..3], &blocks[4..6], &blocks[3..4]];
        assert_eq!(Gather::new(&parts).lengths(), [3 * 4096, 2 * 4096, 4096]);
    }
}
