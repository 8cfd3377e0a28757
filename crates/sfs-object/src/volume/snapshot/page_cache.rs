//! Pages of objects in memory, up to a limit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block};

use crate::name::ObjectName;

/// Blocks of an object that are kept together, by the number of the page in the object.
pub(super) type PageKey = (ObjectName, u64);

/// Pages of the objects of a volume, of which those that were not read for long go first.
#[derive(Debug)]
pub struct PageCache {
    bytes_max: usize,
    pages: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    pages: HashMap<PageKey, Slot>,
    /// All keys, in the order in which they are looked at.
    queue: VecDeque<PageKey>,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    blocks: Arc<[Block]>,
    /// `true` if the page was read since it was looked at.
    was_used: bool,
}

impl PageCache {
    /// Returns an empty cache of at most `bytes_max` bytes of content.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, pages: Mutex::default() }
    }

    /// Returns the bytes of content that are kept.
    pub fn bytes(&self) -> usize {
        self.pages.lock().bytes
    }

    pub(super) fn get(&self, key: &PageKey) -> Option<Arc<[Block]>> {
        let mut kept = self.pages.lock();
        let slot = kept.pages.get_mut(key)?;
        slot.was_used = true;
        Some(slot.blocks.clone())
    }

    pub(super) fn put(&self, key: PageKey, blocks: &Arc<[Block]>) {
        let bytes = blocks.len() * BLOCK_SIZE;
        let mut kept = self.pages.lock();
        if bytes > self.bytes_max || kept.pages.contains_key(&key) {
            return;
        }
        while kept.bytes + bytes > self.bytes_max {
            kept.drop_one();
        }
        kept.bytes += bytes;
        kept.queue.push_back(key);
        kept.pages.insert(key, Slot { blocks: blocks.clone(), was_used: false });
    }
}

impl Kept {
    /// Drops the first page that was not read since it was looked at.
    fn drop_one(&mut self) {
        while let Some(key) = self.queue.pop_front() {
            let slot = self.pages.get_mut(&key).expect("each key in the queue has a page");
            if std::mem::take(&mut slot.was_used) {
                self.queue.push_back(key);
            } else {
                self.bytes -= slot.blocks.len() * BLOCK_SIZE;
                self.pages.remove(&key);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Epoch;

    #[test]
    fn the_limit_holds_and_what_is_read_stays() {
        let page = |blocks: usize| -> Arc<[Block]> { vec![Block::ZERO; blocks].into() };
        let cache = PageCache::new(4 * BLOCK_SIZE);
        let key = |number| (ObjectName::Data(Epoch(1), number), 0);
        for number in 1..=4 {
            cache.put(key(number), &page(1));
        }
        assert_eq!(cache.bytes(), 4 * BLOCK_SIZE);
        assert!(cache.get(&key(1)).is_some());
        cache.put(key(5), &page(2));
        let kept = (1..=5).filter(|number| cache.get(&key(*number)).is_some()).collect::<Vec<_>>();
        assert_eq!(kept, [1, 4, 5]);
        cache.put(key(6), &page(5));
        assert!(cache.get(&key(6)).is_none(), "larger than the cache");
        for number in 10..100 {
            cache.put(key(number), &page(1 + number as usize % 4));
            assert!(cache.bytes() <= 4 * BLOCK_SIZE);
        }
    }
}
