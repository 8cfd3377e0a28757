//! State of the metadata under its lock.

mod policies;

use std::sync::Arc;

use super::access_times::AccessTimes;
use super::changes::{PendingChanges, Unmap};
use super::metadata_error::MetadataError;
use super::owners::{Owner, owners};
use crate::format::{
    Change, DecodeError, FIRST_INO, FileCount, Inode, ItemKind, Key, Layout, Mapping, MappingRun,
    Reservation, ReservationTotals, Tolerance, run_key,
};
use crate::mutant::{Mutant, mutated};
use crate::policy::{GroupingPolicy, Tournament, VictimPolicy};
use crate::segments::UsageTable;
use crate::tree::{NodeNotCached, Tree};

/// Reason why an edit of a prepared item cannot fail.
const PREPARED: &str = "a prepared item is in memory";

/// Changes of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// New value of each item; `None` if it is deleted. Mapping runs are in `runs`.
    pub(crate) items: Vec<(Key, Option<Vec<u8>>)>,
    /// Mapping runs as the unmaps leave them; `None` for an empty run.
    pub(crate) runs: Vec<(Key, Option<Vec<u8>>)>,
    pub(crate) unmaps: Vec<Unmap>,
    /// Mappings that the unmaps removed.
    pub(crate) freed: Vec<Mapping>,
    pub(crate) next_ino: u64,
    /// `true` if only times of files change.
    pub(crate) are_only_times: bool,
}

/// Metadata of a volume, as guarded by [`MetadataStore`].
pub(crate) struct Metadata {
    pub(crate) tree: Tree,
    pub(crate) usage: UsageTable,
    pub(crate) next_ino: u64,
    pub(crate) grouping: Box<dyn GroupingPolicy>,
    pub(crate) victim_policy: Box<dyn VictimPolicy>,
    /// Scores of the segments by the victim policy.
    victims: Tournament,
    /// Times of access that wait in memory.
    pub(crate) access_times: Arc<AccessTimes>,
    /// Structures of a newer program that the tree may hold.
    pub(crate) tolerance: Tolerance,
    /// Number of nodes that the last checkpoint wrote.
    pub(crate) checkpoint_nodes: usize,
    /// Number of Clean segments that the last commits wanted: see
    /// [`Metadata::note_wanted_segments`].
    wanted_segments: usize,
    /// Write clock, in blocks, when the policies last looked at all segments.
    policies_looked_at: Option<u64>,
    /// Changes since the last delta.
    changes: PendingChanges,
    /// Number of inodes in the tree; `None` if the last checkpoint did not state it.
    file_count: Option<u64>,
    /// Totals of the reservations in the tree.
    reserved: ReservationTotals,
}

/// Returns a tournament of the segments in `usage`. If it is large, `usage` keeps the numbers of
/// changed segments from now on.
fn tournament_of(usage: &mut UsageTable) -> Tournament {
    let tournament = Tournament::new(usage.entries().len());
    if tournament.is_large() {
        usage.keep_changed();
    }
    tournament
}

impl Metadata {
    pub(crate) fn new(
        tree: Tree,
        mut usage: UsageTable,
        next_ino: u64,
        (grouping, victim_policy): (Box<dyn GroupingPolicy>, Box<dyn VictimPolicy>),
    ) -> Self {
        Self {
            victims: tournament_of(&mut usage),
            tree,
            usage,
            next_ino,
            grouping,
            victim_policy,
            access_times: Arc::default(),
            tolerance: Tolerance::Exact,
            checkpoint_nodes: 0,
            wanted_segments: 0,
            policies_looked_at: None,
            changes: PendingChanges::new(next_ino),
            file_count: None,
            reserved: ReservationTotals::default(),
        }
    }

    /// Notes that a commit wanted `count` Clean segments, so that no two groups share one. Each
    /// call reduces the number that earlier commits wanted by one.
    pub(crate) fn note_wanted_segments(&mut self, count: usize) {
        self.wanted_segments = self.wanted_segments.saturating_sub(1).max(count);
    }

    /// Returns the number of Clean segments that the last commits wanted.
    pub(crate) fn wanted_segments(&self) -> usize {
        self.wanted_segments
    }

    /// Replaces the usage table, and with it the scores of the segments.
    pub(crate) fn set_usage(&mut self, mut usage: UsageTable) {
        self.victims = tournament_of(&mut usage);
        self.usage = usage;
    }

    /// Takes over a layout with other segments at the end, and policies for it, which continue with the state of the
    /// present ones as after a remount.
    pub(crate) fn resize(
        &mut self,
        layout: Layout,
        (grouping, victim_policy): (Box<dyn GroupingPolicy>, Box<dyn VictimPolicy>),
    ) {
        let state = self.save_policies();
        (self.grouping, self.victim_policy) = (grouping, victim_policy);
        self.restore_policies(&state);
        self.policies_looked_at = None;
        self.usage.resize(layout);
        self.victims = tournament_of(&mut self.usage);
    }

    /// Sets the number of inodes in the tree, if it is known.
    pub(crate) fn set_file_count(&mut self, count: Option<FileCount>) {
        self.file_count = count.map(|count| count.0);
    }

    /// Returns the number of inodes in the tree, if it is known.
    pub(crate) fn known_file_count(&self) -> Option<FileCount> {
        self.file_count.map(FileCount)
    }

    /// Returns the number of inodes in the tree or, if that is not known, the number of inodes that
    /// ever existed.
    pub(crate) fn file_count(&self) -> u64 {
        self.file_count.unwrap_or(self.next_ino.saturating_sub(FIRST_INO) + 1)
    }

    /// Sets the totals of the reservations in the tree.
    pub(crate) fn set_reserved(&mut self, totals: ReservationTotals) {
        self.reserved = totals;
    }

    /// Returns the totals of the reservations in the tree.
    pub(crate) fn reserved(&self) -> ReservationTotals {
        self.reserved
    }

    /// Counts a reservation that recovery or repair has put into the tree, where it was not before.
    pub(crate) fn count_new_reservation(&mut self, range: Reservation) {
        self.reserved.add(range);
    }

    /// Updates the totals of the reservations before the item at `key`, which is in memory, gets a new value.
    fn count_reservation(&mut self, key: &Key, value: Option<&[u8]>) -> Result<(), NodeNotCached> {
        if key.kind != ItemKind::Reservation as u8 {
            return Ok(());
        }
        // A damaged range counts as none, before and after.
        let range = |value: Option<&[u8]>| Reservation::decode(key, value?).ok();
        if let Some(old) = range(self.tree.get(key)?) {
            self.reserved.remove(old);
        }
        if let Some(new) = range(value) {
            self.reserved.add(new);
        }
        Ok(())
    }

    /// Updates the number of inodes after a change of an item that was in the tree before if
    /// `existed`, and is in the tree now if `exists`.
    fn count_file(&mut self, existed: bool, exists: bool) {
        if let Some(count) = &mut self.file_count {
            let before = count.saturating_sub(u64::from(existed));
            *count = before.saturating_add(u64::from(exists));
        }
    }

    /// Counts an inode that recovery or repair has put into the tree, where it was not before.
    pub(crate) fn count_new_file(&mut self) {
        self.count_file(false, true);
    }

    /// Sets or removes an item, as stated in a delta.
    pub(crate) fn replay_item(
        &mut self,
        key: &Key,
        value: Option<&[u8]>,
    ) -> Result<(), NodeNotCached> {
        let existed = self.tree.get(key)?.is_some();
        self.count_reservation(key, value)?;
        match value {
            Some(value) => self.tree.put(key, value)?,
            None => drop(self.tree.remove(key)?),
        }
        if key.kind == ItemKind::Inode as u8 {
            self.count_file(existed, value.is_some());
        }
        Ok(())
    }

    /// Returns whether the next delta would hold any change.
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.count() > 0 || self.changes.has_next_ino(self.next_ino)
    }

    /// Returns whether the next delta would hold a change other than of times.
    pub(crate) fn has_more_than_times(&self) -> bool {
        self.changes.has_more_than_times() || self.changes.has_next_ino(self.next_ino)
    }

    /// Returns the number of tree nodes that are live on the device once the dirty ones are written.
    pub(crate) fn node_count(&self) -> u64 {
        self.tree.count_after_write_out(self.usage.live_nodes())
    }

    /// Returns the number of blocks that are live on the device once the dirty nodes are written. A checkpoint, which
    /// is written when segments are short, frees the old addresses of nodes that were changed or removed.
    pub(crate) fn live_blocks_after_write_out(&self) -> u64 {
        self.tree.count_after_write_out(self.usage.live_blocks())
    }

    /// Returns the number of changes in the next delta.
    pub(crate) fn change_count(&self) -> usize {
        self.changes.count()
    }

    /// Applies a transaction. The chunk with its delta will have sequence number `sequence` or a later one.
    pub(crate) fn apply(&mut self, effects: Effects, sequence: u64) -> Result<(), NodeNotCached> {
        for (key, _) in effects.items.iter().chain(&effects.runs) {
            self.tree.prepare(key)?;
        }
        if !effects.are_only_times {
            self.changes.note_more_than_times();
        }
        for (key, value) in &effects.items {
            self.write_item(key, value.as_deref());
            self.changes.note_item(*key, value.is_some());
        }
        for (key, value) in &effects.runs {
            self.write_item(key, value.as_deref());
        }
        for unmap in effects.unmaps {
            self.changes.note_unmap(unmap);
        }
        for mapping in &effects.freed {
            self.unmap_block(mapping, sequence);
        }
        self.next_ino = self.next_ino.max(effects.next_ino);
        self.tree.prune();
        Ok(())
    }

    /// Sets or removes a prepared item. An inode keeps the bytes that a newer program has appended to it.
    fn write_item(&mut self, key: &Key, value: Option<&[u8]>) {
        let is_inode = key.kind == ItemKind::Inode as u8;
        if is_inode {
            self.access_times.forget(key.ino);
        }
        self.count_reservation(key, value).expect(PREPARED);
        let existed = match value {
            Some(value) if is_inode => {
                let old = self.tree.get(key).expect(PREPARED);
                let (existed, value) = (old.is_some(), Inode::keep_rest(value, old));
                self.tree.put(key, &value).expect(PREPARED);
                existed
            }
            Some(value) => {
                self.tree.put(key, value).expect(PREPARED);
                return;
            }
            None => self.tree.remove(key).expect(PREPARED),
        };
        if is_inode {
            self.count_file(existed, value.is_some());
        }
    }

    /// Sets a prepared item; the next delta encodes it.
    pub(crate) fn put_item(&mut self, key: &Key, value: &[u8]) {
        self.write_item(key, Some(value));
        self.changes.note_more_than_times();
        self.changes.note_item(*key, true);
    }

    /// Removes a prepared item; the next delta encodes the removal.
    pub(crate) fn remove_item(&mut self, key: &Key) {
        self.write_item(key, None);
        self.changes.note_more_than_times();
        self.changes.note_item(*key, false);
    }

    /// Returns the length of [`Metadata::delta`] in bytes, without its maps and releases, and
    /// without encoding.
    pub(crate) fn delta_len(&self) -> usize {
        self.changes.encoded_len(&self.tree, self.next_ino)
    }

    /// Encodes the changes since the last delta, the mappings in `maps`, and the release of the segments
    /// `released`. Items are in the order of their keys.
    pub(crate) fn delta(&self, maps: &[Change], released: &[u32]) -> Vec<u8> {
        let mut bytes = self.changes.encode(&self.tree, self.next_ino);
        maps.iter().for_each(|map| map.append(&mut bytes));
        for &segment in released {
            let stamp = self.usage.entry(segment).stamp;
            Change::Release { segment, stamp }.append(&mut bytes);
        }
        bytes
    }

    /// Continues with inode number `next`, which roll-forward has found in a delta.
    pub(crate) fn restore_next_ino(&mut self, next: u64) {
        self.next_ino = self.next_ino.max(next);
        self.changes.set_encoded(self.next_ino);
    }

    /// Forgets the changes that a delta or a checkpoint has encoded.
    pub(crate) fn clear_changes(&mut self) {
        self.changes.clear(self.next_ino);
    }

    /// Returns the mappings of a run. Afterwards the run is prepared: its leaf is in memory.
    pub(crate) fn run(&self, key: &Key) -> Result<MappingRun, MetadataError> {
        match self.tree.get(key)? {
            Some(value) => Ok(MappingRun::decode(value, key, self.tolerance)?),
            None => Ok(MappingRun::default()),
        }
    }

    /// Returns the owners of a block that is about to be moved, and checks that their whole runs
    /// decode. See [`owners`].
    pub(crate) fn owners(
        &self,
        address: u64,
        named: (u64, u32),
    ) -> Result<Vec<Owner>, MetadataError> {
        let owners = owners(&self.tree, self.tolerance, address, named)?;
        for owner in &owners {
            self.run(&run_key(owner.ino, owner.block))?;
        }
        Ok(owners)
    }

    /// Returns the mapping of block `block` of `ino`.
    #[cfg(test)]
    pub(crate) fn mapping(&self, ino: u64, block: u32) -> Result<Option<Mapping>, MetadataError> {
        super::owners::find_mapping(&self.tree, self.tolerance, ino, block)
    }

    /// Counts a block as dead after its mapping was removed.
    pub(crate) fn unmap_block(&mut self, mapping: &Mapping, sequence: u64) {
        let now = self.usage.clock.now();
        self.note_death(mapping, now);
        self.grouping.note_write(Some(mapping.history), None, now);
        self.usage.remove(mapping, sequence);
    }

    /// Maps blocks of one prepared run of `ino`, and updates the usage table and the policies.
    pub(crate) fn map_run(
        &mut self,
        ino: u64,
        blocks: &[(u32, Mapping)],
        sequence: u64,
    ) -> Result<(), DecodeError> {
        let key = run_key(ino, blocks[0].0);
        let value = self.tree.get(&key).expect("a prepared run is in memory");
        let decode = |value| MappingRun::decode(value, &key, self.tolerance);
        let mut run = value.map_or_else(|| Ok(MappingRun::default()), decode)?;
        for (block, mapping) in blocks {
            debug_assert_eq!(run_key(ino, *block), key);
            let old = run.set(*block, Some(*mapping));
            self.note_mapped(old.as_ref(), mapping);
            // Added before the old mapping is removed: a forged delta may map a block to its own address, and its
            // segment must not be empty in between.
            self.usage.add(mapping);
            if let Some(old) = old
                && !mutated(Mutant::DeathUncounted)
            {
                self.usage.remove(&old, sequence);
            }
        }
        let mut value = Vec::new();
        run.encode(&mut value);
        self.write_item(&key, Some(&value));
        Ok(())
    }
}
