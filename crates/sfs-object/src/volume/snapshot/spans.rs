//! Ranges of blocks with the objects that hold them, and the pages of those objects.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use sfs_device::{BLOCK_SIZE, Block};

use super::page_cache::{PageCache, PageKey};
use crate::error::ObjectError;
use crate::mutant::{Mutant, mutated};
use crate::name::ObjectName;
use crate::store::Part;
use crate::volume::shape::PAGE_BLOCKS;

/// Pages of a data object that are read at once at least, if it has them: 256 KiB. Those of a log object belong to different regions.
const PAGES_AT_ONCE: u64 = 4;

/// Blocks of the volume that one object holds in this order, or that are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) blocks: Range<u64>,
    pub(super) source: Option<Source>,
}

/// A run of blocks in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: ObjectName,
    /// Offset of the object's first block, in bytes.
    pub(super) base: u64,
    /// Number of blocks in the object.
    pub(super) object_blocks: u64,
    /// First block of the run, counted from the object's first one.
    pub(super) first: u64,
}

/// Pages of an object that are read by one request.
pub(super) struct PageRun {
    pub(super) source: Source,
    pages: Range<u64>,
}

impl Source {
    /// Returns the pages of the next `count` blocks.
    fn pages(&self, count: u64) -> Range<u64> {
        self.first / PAGE_BLOCKS..(self.first + count).div_ceil(PAGE_BLOCKS)
    }

    /// Returns the blocks of pages, as the object has them.
    fn blocks_of(&self, pages: &Range<u64>) -> Range<u64> {
        pages.start * PAGE_BLOCKS..(pages.end * PAGE_BLOCKS).min(self.object_blocks)
    }

    fn key(&self, page: u64) -> PageKey {
        let name = match self.name {
            ObjectName::Log(epoch, number) if mutated(Mutant::PagesConfused) => {
                ObjectName::Data(epoch, number)
            }
            name => name,
        };
        (name, page)
    }

    /// Returns the pages that are read if these are missing.
    fn widened(&self, pages: Range<u64>) -> Range<u64> {
        if !matches!(self.name, ObjectName::Data(..)) {
            return pages;
        }
        let end = pages.end.next_multiple_of(PAGES_AT_ONCE);
        let all = self.object_blocks.div_ceil(PAGE_BLOCKS);
        pages.start / PAGES_AT_ONCE * PAGES_AT_ONCE..end.min(all)
    }
}

impl Span {
    /// Returns the bytes that are read if the cache has nothing.
    pub(super) fn fetched_bytes(&self) -> u64 {
        self.source.map_or(0, |source| {
            let pages = source.widened(source.pages(self.blocks.end - self.blocks.start));
            (pages.end - pages.start) * PAGE_BLOCKS * BLOCK_SIZE as u64
        })
    }
}

impl PageRun {
    /// Returns the request for the pages.
    pub(super) fn request(&self) -> Part {
        let blocks = self.source.blocks_of(&self.pages);
        Part {
            name: self.source.name,
            offset: self.source.base + blocks.start * BLOCK_SIZE as u64,
            len: (blocks.end - blocks.start) * BLOCK_SIZE as u64,
        }
    }
}

/// Pages that one step needs.
#[derive(Default)]
pub(super) struct Pages(HashMap<PageKey, Arc<[Block]>>);

impl Pages {
    /// Takes from `cache` what `spans` need, and returns what it lacks, as runs of pages.
    pub(super) fn missing(&mut self, spans: &[Span], cache: &PageCache) -> Vec<PageRun> {
        let mut wanted = BTreeSet::new();
        let mut runs: Vec<PageRun> = Vec::new();
        for span in spans {
            let Some(source) = span.source else { continue };
            let mut lacking = source.pages(span.blocks.end - span.blocks.start).filter(|page| {
                let key = source.key(*page);
                if !self.0.contains_key(&key)
                    && let Some(blocks) = cache.get(&key)
                {
                    self.0.insert(key, blocks);
                }
                !self.0.contains_key(&key)
            });
            let Some(first) = lacking.next() else { continue };
            let last = lacking.next_back().unwrap_or(first);
            for page in source.widened(first..last + 1) {
                if !wanted.insert((source.name, page)) {
                    continue;
                }
                match runs.last_mut() {
                    Some(run) if run.source.name == source.name && run.pages.end == page => {
                        run.pages.end += 1;
                    }
                    _ => runs.push(PageRun { source, pages: page..page + 1 }),
                }
            }
        }
        runs
    }

    /// Adds what the store has for a run of pages, also to `cache`. Returns `None` if that is not all of it.
    pub(super) fn add(&mut self, run: &PageRun, bytes: &[u8], cache: &PageCache) -> Option<()> {
        if bytes.len() as u64 != run.request().len {
            return None;
        }
        let pages = bytes.chunks(PAGE_BLOCKS as usize * BLOCK_SIZE);
        for (page, bytes) in run.pages.clone().zip(pages) {
            let mut blocks = Block::zeroed(bytes.len() / BLOCK_SIZE);
            Block::bytes_of_mut(&mut blocks).copy_from_slice(bytes);
            let (key, blocks) = (run.source.key(page), Arc::from(blocks));
            cache.put(key, &blocks);
            self.0.insert(key, blocks);
        }
        Some(())
    }

    /// Copies a run of blocks, whose pages are here.
    pub(super) fn copy(&mut self, from: &Source, to: &mut [Block]) -> Result<(), ObjectError> {
        let damaged = ObjectError::Damaged(from.name);
        let mut copied = 0;
        while copied < to.len() {
            let at = from.first + copied as u64;
            let page = self.0.get(&from.key(at / PAGE_BLOCKS)).ok_or(damaged)?;
            let page = page.get((at % PAGE_BLOCKS) as usize..).ok_or(damaged)?;
            let count = page.len().min(to.len() - copied);
            if count == 0 {
                return Err(damaged);
            }
            to[copied..copied + count].clone_from_slice(&page[..count]);
            copied += count;
        }
        Ok(())
    }
}
