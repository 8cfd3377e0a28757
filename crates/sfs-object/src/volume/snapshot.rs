//! One state of a volume, as a device that cannot be written: what a reader beside the writer uses.
//!
//! A snapshot claims nothing and writes nothing, to the store or to a disk. It has the map of a manifest and an index of the pieces in
//! log objects in memory; content is read from the objects by pages, of which a [`PageCache`] keeps some. An object never changes, so
//! one cache serves all snapshots of a volume, whatever their state.
//!
//! The writer deletes what it does not need, a grace time later. A read that misses an object fails with
//! [`StaleNetworkFileHandle`](std::io::ErrorKind) if there is a newer manifest, and [`Snapshot::newer`] opens that. If there is none,
//! the volume is damaged.

mod contents;
mod page_cache;
mod spans;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sfs_device::{Block, Device, DeviceError, Geometry, Operation, ReadRun, Stream};

use super::state::VolumeState;
use super::{Failure, OpenError};
use crate::error::ObjectError;
use crate::name::Epoch;
use crate::store::ObjectStore;
use contents::Contents;
pub use page_cache::PageCache;
use spans::{Pages, Span};

/// Bytes of objects that one call reads at once, besides what its first page takes.
const BYTES_AT_ONCE: u64 = 8 << 20;

/// A state of a volume in a store.
///
/// Threads may call all methods at once.
pub struct Snapshot<S> {
    store: S,
    contents: Contents,
    geometry: Geometry,
    cache: Arc<PageCache>,
    is_old: AtomicBool,
    was_given_up: AtomicBool,
}

/// The state is an earlier one, and not all of its objects exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this state of the volume was replaced by a newer one, and an object of it is deleted")]
struct Replaced;

impl<S: ObjectStore + Clone> Snapshot<S> {
    /// Opens the newest state: everything that was acknowledged before the call by a flush with
    /// [`Durability::Remote`](super::Durability), or uploaded.
    ///
    /// # Errors
    ///
    /// [`ObjectError::NoVolume`] if there is none, [`ObjectError::Missing`] if the newest manifest names a log object that does not exist.
    pub fn open(store: S, cache: Arc<PageCache>) -> Result<Self, OpenError> {
        let contents = Contents::newest(&store)?;
        Ok(Self::of(store, contents, cache))
    }

    /// Opens the last state of the first of these epochs that has one, up to its first log object that is deleted.
    pub(super) fn of_epochs(
        store: S,
        epochs: [Epoch; 2],
        cache: Arc<PageCache>,
    ) -> Result<Option<Self>, OpenError> {
        let contents = Contents::of_epochs(&store, epochs)?;
        Ok(contents.map(|contents| Self::of(store, contents, cache)))
    }

    /// Opens the newest state, unless it is this one. What is common is not read again: this takes three requests if nothing is new.
    pub fn newer(&self) -> Result<Option<Self>, OpenError> {
        let newer = self.contents.newer(&self.store)?;
        Ok(newer.map(|contents| Self::of(self.store.clone(), contents, self.cache.clone())))
    }

    fn of(store: S, contents: Contents, cache: Arc<PageCache>) -> Self {
        let block_count = contents.state.shape.volume_blocks;
        let geometry = Geometry { block_count, ..Geometry::default() };
        Self {
            store,
            contents,
            geometry,
            cache,
            is_old: AtomicBool::default(),
            was_given_up: AtomicBool::default(),
        }
    }

    /// Returns what the last manifest says of the volume.
    pub fn state(&self) -> &VolumeState {
        &self.contents.state
    }

    /// Returns the epoch and the number of the last manifest.
    pub(super) fn manifest(&self) -> (Epoch, u64) {
        self.contents.manifest()
    }

    /// Returns whether a read has missed an object that a newer state does not need.
    pub fn is_old(&self) -> bool {
        self.is_old.load(Ordering::Acquire)
    }

    /// Returns whether a read has failed because the store did not answer, or refused: that tells nothing of the volume.
    pub fn was_given_up(&self) -> bool {
        self.was_given_up.load(Ordering::Acquire)
    }

    /// Fills `buffer`, some bytes of objects at a time.
    pub(super) fn fill(&self, address: u64, buffer: &mut [Block]) -> Result<(), ObjectError> {
        let spans = self.contents.spans(address..address + buffer.len() as u64);
        for spans in steps(&spans) {
            let mut pages = self.load(spans)?;
            for span in spans {
                let begin = (span.blocks.start - address) as usize;
                let len = (span.blocks.end - span.blocks.start) as usize;
                let to = &mut buffer[begin..begin + len];
                match &span.source {
                    Some(source) => pages.copy(source, to)?,
                    None => to.fill(Block::ZERO),
                }
            }
        }
        Ok(())
    }

    /// Returns the pages that hold these spans, from the cache or the store.
    fn load(&self, spans: &[Span]) -> Result<Pages, ObjectError> {
        let mut pages = Pages::default();
        let parts = pages.missing(spans, &self.cache);
        let requests = parts.iter().map(|part| part.request()).collect::<Vec<_>>();
        if requests.is_empty() {
            return Ok(pages);
        }
        for (part, bytes) in parts.iter().zip(self.store.get_parts(&requests, None)?) {
            let name = part.source.name;
            let bytes = bytes.ok_or(ObjectError::Missing(name))?;
            pages.add(part, &bytes, &self.cache).ok_or(ObjectError::Damaged(name))?;
        }
        Ok(pages)
    }

    /// Returns the error of a read.
    fn failed(&self, error: ObjectError, address: u64, count: u64) -> DeviceError {
        // Only this error says that the state may be old; the store may as well not answer.
        if matches!(error, ObjectError::Missing(_))
            && self.contents.is_newest(&self.store) == Ok(false)
        {
            self.is_old.store(true, Ordering::Release);
            let source = io::Error::new(io::ErrorKind::StaleNetworkFileHandle, Replaced);
            return DeviceError::of_blocks(Operation::Read, address, count, source);
        }
        if matches!(error, ObjectError::Stopped(_)) {
            self.was_given_up.store(true, Ordering::Release);
        }
        Failure::from(error).of(Operation::Read, address, count)
    }
}

/// Divides spans so that each part takes a bounded number of bytes of objects, or is one span.
fn steps(spans: &[Span]) -> impl Iterator<Item = &[Span]> {
    let mut bytes = 0;
    spans.chunk_by(move |_, next| {
        bytes += next.fetched_bytes();
        let fits = bytes <= BYTES_AT_ONCE;
        if !fits {
            bytes = 0;
        }
        fits
    })
}

impl<S: ObjectStore + Clone + Send + Sync> Device for Snapshot<S> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let count = buffer.len() as u64;
        self.geometry.check_range(Operation::Read, address, count)?;
        self.fill(address, buffer).map_err(|error| self.failed(error, address, count))
    }

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        let in_volume = |run: &&ReadRun<'_>| {
            self.geometry.check_range(Operation::Read, run.address, run.block_count()).is_ok()
        };
        let spans = runs
            .iter()
            .filter(in_volume)
            .flat_map(|run| self.contents.spans(run.address..run.address + run.block_count()));
        let spans = spans.collect::<Vec<_>>();
        // At once, so that the requests overlap. Each run has an outcome of its own.
        if let Some(first) = steps(&spans).next() {
            let _ = self.load(first);
        }
        runs.iter_mut().map(|run| run.read_by(|address, to| self.read(address, to))).collect()
    }

    fn write(&self, address: u64, parts: &[&[Block]], _: Stream) -> Result<(), DeviceError> {
        let count = parts.iter().map(|part| part.len() as u64).sum();
        Err(read_only(Operation::Write, address, count))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        Err(read_only(Operation::Discard, address, count))
    }
}

fn read_only(operation: Operation, address: u64, count: u64) -> DeviceError {
    let source = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
    DeviceError::of_blocks(operation, address, count, source)
}
