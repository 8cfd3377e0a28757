//! Reading many pieces of the device at once.
//!
//! The pieces are sorted by address and merged to runs: over a gap, if reading it along costs less than a request of
//! its own would. The device gets all runs together.

use std::ops::Range;

use sfs_device::{Block, DeviceError, ReadPart, ReadRun};

use super::VolumeDevice;
use crate::Error;
use crate::format::ErrorKind;

/// Part of the wanted blocks that a call may read along in gaps, as a divisor. A single gap is always allowed.
const GAPS_DIVISOR: usize = 4;

/// Largest number of pieces that are merged.
const RUN_PIECES_MAX: usize = 256;

/// Turns of the device after which a call asks whether its blocks are still wanted.
const TURNS: usize = 2;

/// Adjacent blocks of the device, and the memory that they are read into.
pub(crate) struct Piece<'a> {
    /// Address of the first block.
    pub(crate) address: u64,
    /// At least one block.
    pub(crate) blocks: &'a mut [Block],
}

impl Piece<'_> {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.blocks.len() as u64)
    }
}

/// Outcome of [`VolumeDevice::read_pieces`].
#[derive(Debug, Default)]
pub(crate) struct PiecesRead {
    /// Number of requests to the device.
    pub(crate) requests: usize,
    /// Index of each piece that the device failed to read, in the new order, with the error, which is not counted yet.
    pub(crate) failed: Vec<(usize, Error)>,
    /// `true` if some pieces were not read, because nobody wanted them any more.
    pub(crate) is_given_up: bool,
}

impl VolumeDevice {
    /// Reads all `pieces`, and brings them into another order. Blocks in flight are read from memory. A failure to read a
    /// gap concerns no piece, and the failure of a piece no other. From time to time the call asks whether the pieces
    /// `are_wanted`, and ends if they are not.
    pub(crate) fn read_pieces(
        &self,
        pieces: &mut [Piece<'_>],
        are_wanted: &dyn Fn() -> bool,
    ) -> PiecesRead {
        if let [piece] = pieces {
            return self.read_piece(piece, are_wanted);
        }
        let mut read = PiecesRead::default();
        let stored = self.sort_stored_first(pieces);
        let (on_device, in_flight) = pieces.split_at_mut(stored);
        let groups = runs(on_device, self.gap_blocks_max(), self.run_blocks_max() as u64);
        let outcomes = {
            let mut rest = &mut *on_device;
            let run_of = |group: &Range<usize>| {
                let (pieces, after) = std::mem::take(&mut rest).split_at_mut(group.len());
                rest = after;
                run(pieces)
            };
            let mut runs: Vec<ReadRun<'_>> = groups.iter().map(run_of).collect();
            self.read_in_parts(&mut runs, are_wanted)
        };
        read.requests += outcomes.len();
        read.is_given_up = outcomes.len() < groups.len();
        if read.is_given_up {
            return read;
        }
        for (group, outcome) in groups.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => {}
                Err(error) if group.len() == 1 => read.failed.push((group.start, error.into())),
                Err(_) => self.read_each(on_device, group, &mut read),
            }
        }
        for (no, piece) in (stored..).zip(in_flight) {
            if let Err(error) = self.read_uncounted(piece.address, piece.blocks) {
                read.failed.push((no, error));
            }
        }
        read
    }

    /// Reads one piece, which takes no memory: most random reads are of one.
    fn read_piece(&self, piece: &mut Piece<'_>, are_wanted: &dyn Fn() -> bool) -> PiecesRead {
        if !are_wanted() {
            return PiecesRead { is_given_up: true, ..PiecesRead::default() };
        }
        let outcome = self.read_uncounted(piece.address, piece.blocks);
        let failed = outcome.err().map(|error| (0, error)).into_iter().collect();
        PiecesRead { requests: 1, failed, is_given_up: false }
    }

    /// Reads the runs, a few turns of the device together. Returns the outcomes, fewer than there are runs if they are not
    /// wanted any more.
    fn read_in_parts(
        &self,
        runs: &mut [ReadRun<'_>],
        are_wanted: &dyn Fn() -> bool,
    ) -> Vec<Result<(), DeviceError>> {
        let part_blocks = self.turn_blocks().saturating_mul(TURNS) as u64;
        let mut outcomes = Vec::with_capacity(runs.len());
        while outcomes.len() < runs.len() && are_wanted() {
            let rest = &mut runs[outcomes.len()..];
            let mut blocks = 0;
            let fits = |run: &&ReadRun<'_>| {
                let is_full = blocks >= part_blocks;
                blocks += run.block_count();
                !is_full
            };
            let count = rest.iter().take_while(fits).count();
            outcomes.extend(self.device.read_many(&mut rest[..count]));
        }
        outcomes
    }

    /// Reads the pieces of a run that failed one by one. If all can be read, the failure has done no harm.
    fn read_each(&self, pieces: &mut [Piece<'_>], group: Range<usize>, read: &mut PiecesRead) {
        let (address, failed) = (pieces[group.start].address, read.failed.len());
        for (no, piece) in group.clone().zip(&mut pieces[group]) {
            read.requests += 1;
            if let Err(error) = self.device.read(piece.address, piece.blocks) {
                read.failed.push((no, error.into()));
            }
        }
        if read.failed.len() == failed {
            self.health.note_error(ErrorKind::Retry, address);
        }
    }

    /// Sorts pieces by address, those with blocks in flight last. Returns the number of the others.
    fn sort_stored_first(&self, pieces: &mut [Piece<'_>]) -> usize {
        let in_flight = self.in_flight.read();
        if in_flight.is_empty() {
            pieces.sort_unstable_by_key(|piece| piece.address);
            return pieces.len();
        }
        let flies = |piece: &Piece<'_>| {
            (piece.address..piece.end()).any(|address| in_flight.get(address).is_some())
        };
        pieces.sort_by_cached_key(|piece| (flies(piece), piece.address));
        pieces.iter().position(flies).unwrap_or(pieces.len())
    }
}

/// Returns the run of pieces that are merged.
fn run<'a>(pieces: &'a mut [Piece<'_>]) -> ReadRun<'a> {
    let address = pieces.first().map_or(0, |piece| piece.address);
    let mut parts = Vec::with_capacity(2 * pieces.len());
    let mut at = address;
    for piece in pieces {
        if piece.address > at {
            parts.push(ReadPart::Skip((piece.address - at) as usize));
        }
        at = piece.end();
        parts.push(ReadPart::Into(piece.blocks));
    }
    ReadRun { address, parts }
}

/// Divides pieces, sorted by address, into those that are read by one request each. Of the gaps up to `gap_blocks_max` the
/// shortest are read along. A run of several pieces has up to `run_blocks_max` blocks.
fn runs(pieces: &[Piece<'_>], gap_blocks_max: usize, run_blocks_max: u64) -> Vec<Range<usize>> {
    let mut joins = joins(pieces, gap_blocks_max);
    let (mut count, mut start) = (1, 0);
    let mut runs = Vec::new();
    for no in 1..pieces.len() {
        let blocks = pieces[no].end().saturating_sub(pieces[start].address);
        joins[no] &= count < RUN_PIECES_MAX && blocks <= run_blocks_max;
        count += 1;
        if !joins[no] {
            runs.push(start..no);
            (count, start) = (1, no);
        }
    }
    if !pieces.is_empty() {
        runs.push(start..pieces.len());
    }
    runs
}

/// Returns for each piece whether the gap before it is read along.
fn joins(pieces: &[Piece<'_>], gap_blocks_max: usize) -> Vec<bool> {
    let mut joins = vec![false; pieces.len()];
    let mut gaps = Vec::new();
    for (no, pair) in (1..).zip(pieces.windows(2)) {
        // Two blocks at one address, which only damage causes, are read one after the other.
        let Some(gap) = pair[1].address.checked_sub(pair[0].end()) else { continue };
        match gap {
            0 => joins[no] = true,
            gap if gap <= gap_blocks_max as u64 => gaps.push((gap as usize, no)),
            _ => {}
        }
    }
    gaps.sort_unstable();
    let wanted: usize = pieces.iter().map(|piece| piece.blocks.len()).sum();
    let mut left = (wanted / GAPS_DIVISOR).max(gap_blocks_max);
    for (gap, no) in gaps {
        let Some(rest) = left.checked_sub(gap) else { break };
        left = rest;
        joins[no] = true;
    }
    joins
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Calls `check` with pieces of these addresses and lengths, sorted by address.
    fn with_pieces<T>(places: &[(u64, usize)], check: impl FnOnce(&[Piece<'_>]) -> T) -> T {
        let mut memory: Vec<_> = places.iter().map(|(_, len)| Block::zeroed(*len)).collect();
        let pieces = places.iter().zip(&mut memory);
        let mut pieces: Vec<Piece<'_>> =
            pieces.map(|((address, _), blocks)| Piece { address: *address, blocks }).collect();
        pieces.sort_unstable_by_key(|piece| piece.address);
        check(&pieces)
    }

    #[test]
    fn neighbours_and_near_pieces_are_merged() {
        let places = [(10, 2), (12, 1), (15, 4), (24, 2), (100, 1), (100, 1), (u64::MAX, 1)];
        let divide = |gap_max| with_pieces(&places, |pieces| runs(pieces, gap_max, 256));
        assert_eq!(divide(0), [0..2, 2..3, 3..4, 4..5, 5..6, 6..7]);
        assert_eq!(divide(2), [0..3, 3..4, 4..5, 5..6, 6..7], "the same address is read twice");
        assert_eq!(divide(5), [0..3, 3..4, 4..5, 5..6, 6..7], "2 and 5 blocks are more than 5");
        assert_eq!(divide(7), [0..4, 4..5, 5..6, 6..7]);
        let short = with_pieces(&places, |pieces| runs(pieces, 7, 9));
        assert_eq!(short, [0..3, 3..4, 4..5, 5..6, 6..7], "a run of nine blocks");
        assert_eq!(with_pieces(&[], |pieces| runs(pieces, 7, 256)), []);
    }

    #[test]
    fn the_shortest_gaps_take_a_quarter_of_the_wanted_blocks() {
        // Gaps of three blocks and of one in turn.
        let places: Vec<(u64, usize)> = (0..100).map(|no| (3 * no + no % 2, 1)).collect();
        with_pieces(&places, |pieces| {
            let gaps = |run: &Range<usize>| {
                pieces[run.end - 1].end() - pieces[run.start].address - run.len() as u64
            };
            let read_along: u64 = runs(pieces, 4, 256).iter().map(gaps).sum();
            assert_eq!(read_along, 25, "gaps of one block");
        });
    }

    proptest! {
        #[test]
        fn every_piece_is_in_one_run(
            places in vec((0_u64..3000, 1_usize..5), 0..60),
            gap_max in 0_usize..40,
        ) {
            let pieces_checked = with_pieces(&places, |pieces| {
                let runs = runs(pieces, gap_max, 256);
                let all: Vec<usize> = runs.iter().cloned().flatten().collect();
                let mut read_along = 0;
                for run in &runs {
                    for pair in pieces[run.clone()].windows(2) {
                        let gap = pair[1].address.checked_sub(pair[0].end());
                        let gap = gap.expect("pieces of a run do not overlap");
                        assert!(gap <= gap_max as u64);
                        read_along += gap;
                    }
                }
                let wanted: usize = pieces.iter().map(|piece| piece.blocks.len()).sum();
                assert!(read_along as usize <= (wanted / GAPS_DIVISOR).max(gap_max));
                all
            });
            prop_assert_eq!(pieces_checked, (0..places.len()).collect::<Vec<_>>());
        }
    }
}
