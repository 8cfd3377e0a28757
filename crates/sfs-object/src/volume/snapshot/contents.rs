//! Which object holds each block of a state: the map of its manifest, and the log objects behind it.

use std::collections::BTreeMap;
use std::ops::Range;

use sfs_device::BLOCK_SIZE;

use super::spans::{Source, Span};
use crate::error::ObjectError;
use crate::frame::{HEADER_LEN, Manifest};
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::reader::{Place, for_each_data, newest, newest_of};
use crate::store::ObjectStore;
use crate::takeover::{LogSize, for_each_log_object};
use crate::thinning::Thinning;
use crate::volume::OpenError;
use crate::volume::log_record::{LogContent, Record};
use crate::volume::state::VolumeState;

const THINNING: Thinning = Thinning::OF_VOLUMES;

/// A state: a manifest, and the log up to one object.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    place: Place,
    /// The first log object that the state does not contain.
    log_end: u64,
    log_size: LogSize,
    /// The state of the manifest, with the map as the log has left it.
    pub(super) state: VolumeState,
    /// Runs of blocks in log objects, by their first block: these are newer than the map.
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    count: u64,
    source: Source,
}

impl Contents {
    /// Reads the newest state.
    pub(super) fn newest(store: &impl ObjectStore) -> Result<Self, OpenError> {
        loop {
            let mut contents = Self::of_manifest(newest(store, THINNING)?)?;
            let read = contents.read_earlier_log(store).and_then(|()| contents.read_log(store));
            // A log object that was deleted meanwhile looks like the end, or is missing. It is deleted only after a newer manifest.
            if mutated(Mutant::SnapshotUnchecked) || contents.is_newest(store)? {
                return read.map(|()| contents);
            }
        }
    }

    /// Reads the last state of the first of these epochs that has one.
    pub(super) fn of_epochs(
        store: &impl ObjectStore,
        epochs: [Epoch; 2],
    ) -> Result<Option<Self>, OpenError> {
        let Some(found) = newest_of(store, epochs, THINNING)? else { return Ok(None) };
        let mut contents = Self::of_manifest(found)?;
        contents.read_earlier_log(store)?;
        contents.read_log(store)?;
        Ok(Some(contents))
    }

    /// Returns the state of a manifest, without any log object.
    fn of_manifest((place, manifest): (Place, Manifest)) -> Result<Self, OpenError> {
        let state = VolumeState::decode(&manifest.state).ok_or(OpenError::State)?;
        let (log_end, log_size) = (manifest.log_start, LogSize::default());
        Ok(Self { place, log_end, log_size, state, pieces: BTreeMap::new() })
    }

    /// Reads the newest state, unless it is this one.
    pub(super) fn newer(&self, store: &impl ObjectStore) -> Result<Option<Self>, OpenError> {
        let mut longer = self.clone();
        let read = longer.read_log(store);
        if longer.is_newest(store)? || mutated(Mutant::ManifestPassed) {
            return read.map(|()| (longer.log_end > self.log_end).then_some(longer));
        }
        Self::newest(store).map(Some)
    }

    /// Returns the epoch and the number of the manifest.
    pub(super) fn manifest(&self) -> (Epoch, u64) {
        self.place.manifest()
    }

    /// Returns whether no manifest is newer.
    pub(super) fn is_newest(&self, store: &impl ObjectStore) -> Result<bool, ObjectError> {
        self.place.is_newest(store, THINNING)
    }

    /// Adds the log objects of earlier epochs, which the manifest names.
    fn read_earlier_log(&mut self, store: &impl ObjectStore) -> Result<(), OpenError> {
        let names = std::mem::take(&mut self.state.log);
        for_each_data(store, &names, |name, content| self.add(name, &content))
    }

    /// Adds the log objects behind those of the state, up to the first missing number or a seal.
    fn read_log(&mut self, store: &impl ObjectStore) -> Result<(), OpenError> {
        for_each_log_object(store, (self.place.epoch, self.log_end), |name, content| {
            self.add(name, &content)?;
            self.log_end += 1;
            Ok(())
        })
    }

    /// Adds a log object.
    fn add(&mut self, name: ObjectName, content: &[u8]) -> Result<(), OpenError> {
        self.log_size.add(name, content)?;
        let shape = self.state.shape;
        let (records, blocks) = LogContent::decode_parts(content, shape).ok_or(OpenError::State)?;
        let base = (HEADER_LEN + content.len() - blocks.len()) as u64;
        let object_blocks = (blocks.len() / BLOCK_SIZE) as u64;
        let mut first = 0;
        for record in records {
            match record {
                Record::Piece { address, blocks: count } => {
                    self.cut(address..address + count);
                    let source = Source { name, base, object_blocks, first };
                    self.pieces.insert(address, Piece { count, source });
                    first += count;
                }
                Record::Whole { region, data } => {
                    self.state.map.set(region, data);
                    if !mutated(Mutant::PiecesOutlived) {
                        self.cut(shape.blocks(region));
                    }
                }
                Record::Zero { region } => {
                    self.state.map.remove(region);
                    self.cut(shape.blocks(region));
                }
            }
        }
        Ok(())
    }

    /// Forgets pieces in a range of blocks.
    fn cut(&mut self, blocks: Range<u64>) {
        let before = self.pieces.range(..blocks.start).next_back();
        let first = before.filter(|(at, piece)| **at + piece.count > blocks.start);
        let begin = first.map_or(blocks.start, |(at, _)| *at);
        let touched = self.pieces.range(begin..blocks.end).map(|(at, piece)| (*at, *piece));
        for (at, piece) in touched.collect::<Vec<_>>() {
            self.pieces.remove(&at);
            let end = at + piece.count;
            if at < blocks.start {
                self.pieces.insert(at, Piece { count: blocks.start - at, ..piece });
            }
            if end > blocks.end {
                let rest = piece.without(blocks.end - at);
                self.pieces.insert(blocks.end, rest);
            }
        }
    }

    /// Returns what holds a range of blocks, in order and without a gap.
    pub(super) fn spans(&self, blocks: Range<u64>) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let before = self.pieces.range(..=at).next_back();
            let (end, source) = match before.filter(|(begin, piece)| **begin + piece.count > at) {
                Some((begin, piece)) => {
                    (begin + piece.count, Some(piece.without(at - begin).source))
                }
                None => self.in_region(at),
            };
            let end = end.min(blocks.end);
            spans.push(Span { blocks: at..end, source });
            at = end;
        }
        spans
    }

    /// Returns what holds a block that is in no piece, and the end of the range for which that is so.
    fn in_region(&self, at: u64) -> (u64, Option<Source>) {
        let shape = self.state.shape;
        let region = at / shape.region_blocks;
        let of = shape.blocks(region);
        let next = self.pieces.range(at..of.end).next();
        let source = self.state.map.get(region).map(|name| Source {
            name,
            base: HEADER_LEN as u64,
            object_blocks: of.end - of.start,
            first: at - of.start,
        });
        (next.map_or(of.end, |(begin, _)| *begin), source)
    }
}

impl Piece {
    /// Returns the piece without its first `count` blocks.
    fn without(&self, count: u64) -> Self {
        let source = Source { first: self.source.first + count, ..self.source };
        Self { count: self.count - count, source }
    }
}
