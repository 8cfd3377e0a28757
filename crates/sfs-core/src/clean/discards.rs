//! Discards: tells the device which segments are Clean, so that it need not preserve their content (informed cleaning;
//! Rajimwale et al., section 3.5).
//!
//! Only Clean segments are discarded, in short requests, so that no sync waits long. A discard is a hint and
//! never fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::BLOCK_SIZE;

use crate::format::SegmentState;
use crate::health::OpenSuperblock;
use crate::io::VolumeDevice;
use crate::log::LogState;
use crate::metadata::MetadataStore;

/// Maximum length of one request in bytes, or one segment if that is longer: the log waits for the request.
const DISCARD_LEN_MAX: usize = 64 << 20;

/// Queue of the Clean segments that have not been discarded.
pub(crate) struct Discards {
    /// Segments that became Clean and were not discarded yet.
    segments: Mutex<BTreeSet<u32>>,
    is_enabled: bool,
    superblock: Arc<OpenSuperblock>,
    metadata: Arc<MetadataStore>,
    io: Arc<VolumeDevice>,
}

impl Discards {
    /// Returns an empty queue. Unless `is_enabled`, no segment is ever discarded.
    pub(crate) fn new(
        is_enabled: bool,
        superblock: Arc<OpenSuperblock>,
        metadata: Arc<MetadataStore>,
        io: Arc<VolumeDevice>,
    ) -> Self {
        Self { segments: Mutex::default(), is_enabled, superblock, metadata, io }
    }

    /// Queues segments that have become Clean.
    pub(crate) fn add(&self, segments: &[u32]) {
        if self.is_enabled {
            self.segments.lock().extend(segments);
        }
    }

    /// Discards the next run of neighbouring segments; returns whether there was one. The caller holds the log, so the
    /// segments stay Clean.
    pub(crate) fn discard_run(&self, _log: &mut LogState) -> bool {
        let Some((first, count)) = self.take_run() else { return false };
        self.io.discard_segments(&self.superblock.layout(), first, count);
        true
    }

    /// Takes the first run of queued segments that are still Clean. A segment that was opened since
    /// then is overwritten anyway.
    fn take_run(&self) -> Option<(u32, u32)> {
        let segment_len = self.superblock.layout().segment_blocks as usize * BLOCK_SIZE;
        let count_max = (DISCARD_LEN_MAX / segment_len) as u32;
        let metadata = self.metadata.read();
        let mut segments = self.segments.lock();
        // The volume may have shrunk since.
        let entry = |segment: u32| metadata.usage.entries().get(segment as usize);
        let is_clean = |segment| entry(segment).is_some_and(|e| e.state == SegmentState::Clean);
        let first = std::iter::from_fn(|| segments.pop_first()).find(|first| is_clean(*first))?;
        let mut count = 1;
        while count < count_max && segments.contains(&(first + count)) && is_clean(first + count) {
            segments.remove(&(first + count));
            count += 1;
        }
        Some((first, count))
    }
}
