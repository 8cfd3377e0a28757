//! Admission: which writer may use the free blocks.
//!
//! A writer is admitted to a number of blocks before it puts data into the write buffer, and holds
//! the admission until the data counts as dirty. Several writers are admitted at a time while there
//! is space for all of them; the last blocks go to one writer at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::files::DirtyData;
use crate::health::OpenSuperblock;
use crate::lock_rank::{Rank, Ranked};
use crate::metadata::{Metadata, MetadataStore};
use crate::writeback::data_layout::{LayoutBehaviour, Withheld};

/// Guard of the free blocks: admits writers to them.
pub(super) struct Admission {
    /// Shared by admitted writers; taken alone for the last blocks.
    lock: RwLock<()>,
    /// Number of blocks that writers were admitted to and that are not dirty yet.
    admitted_blocks: AtomicU64,
    /// `true` while writers get what is withheld from them otherwise.
    spends_withheld: AtomicBool,
    superblock: Arc<OpenSuperblock>,
    behaviour: Arc<dyn LayoutBehaviour>,
    metadata: Arc<MetadataStore>,
    dirty: Arc<DirtyData>,
}

/// Admission of a writer to a number of blocks, until it is dropped.
pub(crate) struct Admitted<'a> {
    admission: &'a Admission,
    blocks: u64,
    /// Held so that a writer that needs the last blocks waits for this writer.
    _shared: Ranked<RwLockReadGuard<'a, ()>>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.admission.admitted_blocks.fetch_sub(self.blocks, Ordering::Release);
    }
}

impl Admission {
    /// Returns an admission to the free blocks of the volume.
    pub(super) fn new(
        superblock: Arc<OpenSuperblock>,
        behaviour: Arc<dyn LayoutBehaviour>,
        metadata: Arc<MetadataStore>,
        dirty: Arc<DirtyData>,
    ) -> Self {
        let (lock, admitted_blocks) = (RwLock::default(), AtomicU64::new(0));
        let spends_withheld = AtomicBool::new(false);
        Self { lock, admitted_blocks, spends_withheld, superblock, behaviour, metadata, dirty }
    }

    /// Gives writers what is withheld from them otherwise, or withholds it again.
    pub(super) fn spend_withheld(&self, spends: bool) {
        self.spends_withheld.store(spends, Ordering::Relaxed);
    }

    /// Admits a writer that needs no new block.
    pub(super) fn admit_without_blocks(&self) -> Admitted<'_> {
        self.add_shared(0).0
    }

    /// Admits a writer to `blocks` blocks if there is space beside all other admissions. If there
    /// is space only without them, waits until the other writers are done: writers may use fewer
    /// blocks than they were admitted to.
    pub(super) fn try_admit(&self, blocks: u64) -> Option<Admitted<'_>> {
        let others = match self.try_admit_shared(blocks) {
            Ok(admitted) => return Some(admitted),
            Err(others) => others,
        };
        if others == 0 || !self.has_space(blocks, 0) {
            return None;
        }
        let alone = Ranked::take(Rank::Admission, || self.lock.write());
        self.has_space(blocks, 0).then(|| self.add_alone(blocks, alone))
    }

    /// Admits a writer to `blocks` blocks without waiting, or returns the number of blocks that
    /// other writers were admitted to.
    pub(super) fn try_admit_shared(&self, blocks: u64) -> std::result::Result<Admitted<'_>, u64> {
        let (admitted, others) = self.add_shared(blocks);
        if self.has_space(blocks, others) { Ok(admitted) } else { Err(others) }
    }

    /// Adds a writer beside others; returns the number of blocks that the others were admitted to.
    fn add_shared(&self, blocks: u64) -> (Admitted<'_>, u64) {
        let shared = Ranked::take(Rank::Admission, || self.lock.read());
        // A block that is no longer counted here is dirty by then: both counters are read in this order.
        let others = self.admitted_blocks.fetch_add(blocks, Ordering::AcqRel);
        (Admitted { admission: self, blocks, _shared: shared }, others)
    }

    /// Adds a writer while there is no other. Later writers see its blocks.
    fn add_alone<'a>(
        &'a self,
        blocks: u64,
        alone: Ranked<RwLockWriteGuard<'a, ()>>,
    ) -> Admitted<'a> {
        self.admitted_blocks.fetch_add(blocks, Ordering::AcqRel);
        Admitted { admission: self, blocks, _shared: alone.map(RwLockWriteGuard::downgrade) }
    }

    /// Returns whether there is space for `blocks` beside the dirty blocks and the blocks of `others`.
    fn has_space(&self, blocks: u64, others: u64) -> bool {
        let metadata = self.metadata.read();
        let waiting = self.dirty.uncovered_count() as u64 + others;
        self.admits(&metadata, waiting, blocks)
    }

    /// Returns whether there would be space for `blocks` if `freed_blocks` of the dirty blocks were not counted, and
    /// other writers needed nothing.
    pub(super) fn would_have_space(&self, blocks: u64, freed_blocks: u64) -> bool {
        let metadata = self.metadata.read();
        let waiting = (self.dirty.uncovered_count() as u64).saturating_sub(freed_blocks);
        self.admits(&metadata, waiting, blocks)
    }

    fn admits(&self, metadata: &Metadata, waiting: u64, blocks: u64) -> bool {
        let spends = self.spends_withheld.load(Ordering::Relaxed);
        let withheld = if spends { Withheld::Least } else { Withheld::Usual };
        self.behaviour.admits(&self.superblock.layout(), metadata, waiting, blocks, withheld)
    }
}
