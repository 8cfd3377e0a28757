//! Metadata in memory: the tree, the usage table, and what the next delta has to say.
//!
//! Owns: everything that one lock guards while an operation takes effect.
//! Promises: a set of changes takes effect whole or not at all; what changed is remembered until a
//! delta or checkpoint has said it.
//! Never: waits for the device; a node that is not in memory is reported as [`NodeNotCached`].

use rustc_hash::FxHashMap;

use crate::format::{
    Change, Corruption, DecodeError, Inode, ItemKind, Key, Mapping, MappingRun, PolicyRecord,
    Tolerance, run_key,
};
use crate::mutant::{Mutant, mutated};
use crate::owners::{Owner, owners};
use crate::policy::{self, GroupingPolicy, VictimPolicy};
use crate::segments::UsageTable;
use crate::tree::{NodeNotCached, Tree};

/// How often the policies look at all segments: so many times while a segment is written.
const LOOKS_PER_SEGMENT: u32 = 8;

/// Bytes of an encoded [`Change::Unmap`].
const UNMAP_LEN: usize = Change::HEADER_LEN + 16;

/// Why an operation could not be done right away.
#[derive(Debug)]
pub(crate) enum MetadataError {
    /// A node is needed; load it and try again.
    NodeNotCached(NodeNotCached),
    /// It cannot be done.
    Error(crate::Error),
}

impl From<NodeNotCached> for MetadataError {
    fn from(missing: NodeNotCached) -> Self {
        Self::NodeNotCached(missing)
    }
}

impl From<crate::Error> for MetadataError {
    fn from(error: crate::Error) -> Self {
        Self::Error(error)
    }
}

impl From<DecodeError> for MetadataError {
    fn from(error: DecodeError) -> Self {
        Self::Error(error.into())
    }
}

impl From<Corruption> for MetadataError {
    fn from(corruption: Corruption) -> Self {
        Self::Error(corruption.into())
    }
}

/// Blocks of a file that lost their mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmap {
    pub(crate) ino: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// What a transaction does.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// New value of each item, or that it is gone. No mappings.
    pub(crate) items: Vec<(Key, Option<Vec<u8>>)>,
    /// Mapping runs, as the unmaps leave them.
    pub(crate) runs: Vec<(Key, Option<Vec<u8>>)>,
    pub(crate) unmaps: Vec<Unmap>,
    /// Mappings that the unmaps let go.
    pub(crate) freed: Vec<Mapping>,
    pub(crate) next_ino: u64,
}

/// The metadata of a volume.
pub(crate) struct Meta {
    pub(crate) tree: Tree,
    pub(crate) usage: UsageTable,
    pub(crate) next_ino: u64,
    pub(crate) grouping: Box<dyn GroupingPolicy>,
    pub(crate) victims: Box<dyn VictimPolicy>,
    /// What of the tree may be unknown.
    pub(crate) tolerance: Tolerance,
    /// Nodes that the last checkpoint wrote.
    pub(crate) nodes_written: usize,
    /// Blocks written when the policies last looked at all segments.
    looked: Option<u64>,
    /// Items that changed since the last delta, and whether they exist.
    changed: FxHashMap<Key, bool>,
    /// Blocks unmapped since the last delta, in order.
    unmaps: Vec<Unmap>,
    /// Inode number at the last delta.
    said_ino: u64,
}

impl Meta {
    pub(crate) fn new(
        tree: Tree,
        usage: UsageTable,
        next_ino: u64,
        (grouping, victims): (Box<dyn GroupingPolicy>, Box<dyn VictimPolicy>),
    ) -> Self {
        Self {
            tree,
            usage,
            next_ino,
            grouping,
            victims,
            tolerance: Tolerance::Exact,
            nodes_written: 0,
            looked: None,
            changed: FxHashMap::default(),
            unmaps: Vec::new(),
            said_ino: next_ino,
        }
    }

    /// Whether the next delta has anything to say.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.unmaps.is_empty() || self.next_ino != self.said_ino
    }

    /// Tree nodes that will live on the device when the dirty ones are there.
    pub(crate) fn node_count(&self) -> u64 {
        self.usage.live_nodes() + self.tree.new_count()
    }

    /// Items that the next delta will name.
    pub(crate) fn change_count(&self) -> usize {
        self.changed.len() + self.unmaps.len()
    }

    /// Carries out a transaction whose chunk will have sequence number `sequence` or a later one.
    pub(crate) fn apply(&mut self, effects: Effects, sequence: u64) -> Result<(), NodeNotCached> {
        for (key, _) in effects.items.iter().chain(&effects.runs) {
            self.tree.prepare(key)?;
        }
        for (key, value) in &effects.items {
            self.write_item(key, value.as_deref());
            self.changed.insert(*key, value.is_some());
        }
        for (key, value) in &effects.runs {
            self.write_item(key, value.as_deref());
        }
        for unmap in effects.unmaps {
            self.note_unmap(unmap);
        }
        for mapping in &effects.freed {
            self.let_go(mapping, sequence);
        }
        self.next_ino = self.next_ino.max(effects.next_ino);
        self.tree.prune();
        Ok(())
    }

    /// Sets or removes a prepared item. Attributes keep what a later program has appended to them.
    fn write_item(&mut self, key: &Key, value: Option<&[u8]>) {
        match value {
            Some(value) if key.kind == ItemKind::Inode as u8 => {
                let old = self.tree.get(key).expect("a prepared item is in memory");
                let value = Inode::keep_rest(value, old);
                self.tree.put(key, &value)
            }
            Some(value) => self.tree.put(key, value),
            None => self.tree.remove(key).map(drop),
        }
        .expect("a prepared item is in memory");
    }

    /// Sets a prepared item that the next delta will say.
    pub(crate) fn put_item(&mut self, key: &Key, value: &[u8]) {
        self.write_item(key, Some(value));
        self.changed.insert(*key, true);
    }

    /// Removes a prepared item; the next delta will say so.
    pub(crate) fn remove_item(&mut self, key: &Key) {
        self.write_item(key, None);
        self.changed.insert(*key, false);
    }

    fn note_unmap(&mut self, unmap: Unmap) {
        if mutated(Mutant::UnmapForgotten) {
            return;
        }
        match self.unmaps.last_mut() {
            Some(last)
                if last.ino == unmap.ino && unmap.last.checked_add(1) == Some(last.first) =>
            {
                last.first = unmap.first;
            }
            _ => self.unmaps.push(unmap),
        }
    }

    /// Bytes of [`Meta::delta`] beside what it maps and releases, without encoding it.
    pub(crate) fn delta_len(&self) -> usize {
        let item_len = |(key, exists): (&Key, &bool)| {
            if !exists {
                return Change::HEADER_LEN + Key::LEN;
            }
            let value = self.tree.get(key).expect("a changed item is in memory");
            Change::HEADER_LEN + Key::LEN + size_of::<u64>() + value.map_or(0, <[u8]>::len)
        };
        let next_ino =
            usize::from(self.next_ino != self.said_ino) * (Change::HEADER_LEN + size_of::<u64>());
        next_ino + self.unmaps.len() * UNMAP_LEN + self.changed.iter().map(item_len).sum::<usize>()
    }

    /// The delta since the last one, which also says what is in `maps`, and that segments are `released`.
    /// Deterministic: items in the order of their keys.
    pub(crate) fn delta(&self, maps: &[Change], released: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.next_ino != self.said_ino && !mutated(Mutant::NextInoUnsaid) {
            Change::NextIno(self.next_ino).append(&mut bytes);
        }
        for unmap in &self.unmaps {
            let Unmap { ino, first, last } = *unmap;
            Change::Unmap { ino, first, last }.append(&mut bytes);
        }
        let mut changed: Vec<(&Key, &bool)> = self.changed.iter().collect();
        changed.sort_unstable();
        for (key, exists) in changed {
            let change = if *exists {
                // Its leaf has been dirty since it was put there, and dirty nodes stay in memory.
                let value = self.tree.get(key).expect("a changed item is in memory");
                let value = value.expect("a changed item is in the tree").to_vec();
                Change::Put { key: key.encode(), value }
            } else {
                Change::Delete { key: key.encode() }
            };
            change.append(&mut bytes);
        }
        maps.iter().for_each(|map| map.append(&mut bytes));
        for &segment in released {
            let stamp = self.usage.entry(segment).stamp;
            Change::Release { segment, stamp }.append(&mut bytes);
        }
        bytes
    }

    /// Roll-forward found that inode numbers below `next` have been given out.
    pub(crate) fn restore_next_ino(&mut self, next: u64) {
        self.next_ino = self.next_ino.max(next);
        self.said_ino = self.next_ino;
    }

    /// The delta has been said.
    pub(crate) fn clear_changes(&mut self) {
        self.changed.clear();
        if !mutated(Mutant::UnmapRepeated) {
            self.unmaps.clear();
        }
        self.said_ino = self.next_ino;
    }

    /// The mappings of a run; it is prepared afterwards.
    pub(crate) fn run(&self, key: &Key) -> Result<MappingRun, MetadataError> {
        match self.tree.get(key)? {
            Some(value) => Ok(MappingRun::decode(value, key, self.tolerance)?),
            None => Ok(MappingRun::default()),
        }
    }

    /// As [`owners`], for those that may be moved: their whole runs are sound.
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

    /// Where block `block` of `ino` is.
    #[cfg(test)]
    pub(crate) fn mapping(&self, ino: u64, block: u32) -> Result<Option<Mapping>, MetadataError> {
        find_mapping(&self.tree, self.tolerance, ino, block)
    }

    /// A block has lost its mapping for good.
    pub(crate) fn let_go(&mut self, mapping: &Mapping, sequence: u64) {
        let now = self.usage.clock.now();
        self.note_death(mapping, now);
        self.grouping.note_write(Some(mapping.history), None, now);
        self.usage.remove(mapping, sequence);
    }

    /// Tells the policies that `mapping` has taken the place of `old`.
    fn note_mapped(&mut self, old: Option<&Mapping>, mapping: &Mapping) {
        // A block that the cleaner moves keeps its history.
        if old.is_some_and(|old| old.history == mapping.history) {
            self.grouping.note_move(mapping.history, self.usage.clock.now());
            return;
        }
        let now = mapping.history.modified;
        if let Some(old) = old {
            self.note_death(old, now);
        }
        let before = old.map(|old| old.history);
        self.grouping.note_write(before, Some(mapping.history), now);
    }

    fn note_death(&mut self, mapping: &Mapping, now: u32) {
        if let Some(segment) = self.usage.segment_of(mapping.address) {
            self.victims.note_death(self.usage.entry(segment), now);
        }
    }

    /// The group that the block of `mapping` is in.
    pub(crate) fn group_of(&self, mapping: &Mapping) -> Option<u8> {
        let segment = self.usage.segment_of(mapping.address)?;
        self.usage.entry(segment).data_group()
    }

    /// A segment writing begins: the policies may look at all segments. What is written meanwhile
    /// in small pieces counts as one, so that a single block does not pay for the look.
    pub(crate) fn begin_writing(&mut self, segment_blocks: u32) {
        let written = self.usage.clock.blocks();
        let due = self
            .looked
            .is_none_or(|looked| written - looked >= u64::from(segment_blocks / LOOKS_PER_SEGMENT));
        if due {
            self.looked = Some(written);
            let (entries, now) = (self.usage.entries(), self.usage.clock.now());
            self.grouping.begin(entries, segment_blocks, now);
            self.victims.begin(entries, segment_blocks, now);
        }
    }

    /// The best segment to clean by `policy` among those that are `fit`.
    pub(crate) fn choose_victim(
        &self,
        policy: &dyn VictimPolicy,
        segment_blocks: u32,
        fit: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let now = self.usage.clock.now();
        policy::best_victim(policy, self.usage.entries(), segment_blocks, now, fit)
    }

    /// `segment` is going to be cleaned.
    pub(crate) fn note_cleaning(&mut self, segment: u32) {
        let now = self.usage.clock.now();
        self.grouping.note_cleaning(self.usage.entry(segment), now);
    }

    /// What the policies want to find again.
    pub(crate) fn save_policies(&self) -> Vec<PolicyRecord> {
        let record = |name: &str, len_max: usize, save: &dyn Fn(&mut Vec<u8>)| {
            let mut state = Vec::new();
            save(&mut state);
            assert!(state.len() <= len_max, "{name} keeps {} bytes", state.len());
            PolicyRecord { name: name.to_owned(), state }
        };
        let (grouping, victims) = (&self.grouping, &self.victims);
        let records = [
            record(grouping.name(), grouping.state_len_max(), &|state| grouping.save(state)),
            record(victims.name(), victims.state_len_max(), &|state| victims.save(state)),
        ];
        records.into_iter().filter(|record| !record.state.is_empty()).collect()
    }

    /// What they wanted to find again.
    pub(crate) fn restore_policies(&mut self, records: &[PolicyRecord]) {
        for PolicyRecord { name, state } in records {
            if name == self.grouping.name() {
                self.grouping.restore(state);
            } else if name == self.victims.name() {
                self.victims.restore(state);
            }
        }
    }

    /// Maps blocks of one run of `ino` (prepared), and keeps the usage table and the policies in
    /// step.
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
            // First, or a segment would be empty in between if a forged delta maps what is mapped.
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

/// Where block `block` of `ino` is.
pub(crate) fn find_mapping(
    tree: &Tree,
    tolerance: Tolerance,
    ino: u64,
    block: u32,
) -> Result<Option<Mapping>, MetadataError> {
    let key = run_key(ino, block);
    match tree.get(&key)? {
        Some(value) => Ok(MappingRun::find(value, &key, block, tolerance)?),
        None => Ok(None),
    }
}
