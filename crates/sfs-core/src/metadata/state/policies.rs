//! The policies: reports of changes to them, questions about groups and victims, and their state in a checkpoint.

use super::Metadata;
use crate::format::{Group, Mapping, PolicyRecord};
use crate::policy::{self, Greedy};

/// Number of times that the policies look at all segments while one segment is written.
const POLICY_LOOKS_PER_SEGMENT: u32 = 8;

impl Metadata {
    /// Informs the policies that `mapping` replaces `old`.
    pub(super) fn note_mapped(&mut self, old: Option<&Mapping>, mapping: &Mapping) {
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

    pub(super) fn note_death(&mut self, mapping: &Mapping, now: u32) {
        if let Some(segment) = self.usage.segment_of(mapping.address) {
            self.victim_policy.note_death(self.usage.entry(segment), now);
        }
    }

    /// Returns the group of the segment that `mapping` points to.
    pub(crate) fn group_of(&self, mapping: &Mapping) -> Option<Group> {
        let segment = self.usage.segment_of(mapping.address)?;
        self.usage.entry(segment).data_group()
    }

    /// Lets the policies look at all segments before a batch is planned (SFS, section 3.3). Small
    /// batches share one look, because it takes too long for a single block.
    pub(crate) fn begin_writing(&mut self, segment_blocks: u32) {
        let written = self.usage.clock.blocks();
        let due = self.policies_looked_at.is_none_or(|last| {
            written - last >= u64::from(segment_blocks / POLICY_LOOKS_PER_SEGMENT)
        });
        if due {
            self.policies_looked_at = Some(written);
            let (entries, now) = (self.usage.entries(), self.usage.clock.now());
            self.grouping.begin(entries, segment_blocks, now);
            self.victim_policy.begin(entries, segment_blocks, now);
        }
    }

    /// Updates the scores of the segments before victims are chosen.
    pub(crate) fn score_segments(&mut self, segment_blocks: u32) {
        let (changed, now) = (self.usage.take_changed(), self.usage.clock.now());
        let (policy, entries) = (&mut *self.victim_policy, self.usage.entries());
        self.victims.refresh(policy, entries, &changed, (segment_blocks, now));
    }

    /// Returns the segment with the highest score by the victim policy among the segments that
    /// are `fit`.
    pub(crate) fn best_victim(
        &self,
        segment_blocks: u32,
        fit: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let at = (segment_blocks, self.usage.clock.now());
        self.victims.best(&*self.victim_policy, self.usage.entries(), at, fit)
    }

    /// Returns the segment with the fewest live blocks among the segments that are `fit`.
    pub(crate) fn emptiest_victim(
        &self,
        segment_blocks: u32,
        fit: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let at = (segment_blocks, self.usage.clock.now());
        policy::full_scan(&Greedy, self.usage.entries(), at, fit)
    }

    /// Informs the grouping policy that `segment` is about to be cleaned.
    pub(crate) fn note_cleaning(&mut self, segment: u32) {
        let now = self.usage.clock.now();
        self.grouping.note_cleaning(self.usage.entry(segment), now);
    }

    /// Returns the state of the policies for a checkpoint.
    pub(crate) fn save_policies(&self) -> Vec<PolicyRecord> {
        let record = |name: &str, len_max: usize, save: &dyn Fn(&mut Vec<u8>)| {
            let mut state = Vec::new();
            save(&mut state);
            assert!(state.len() <= len_max, "the state of {name} has {} bytes", state.len());
            PolicyRecord { name: name.to_owned(), state }
        };
        let (grouping, victim) = (&self.grouping, &self.victim_policy);
        let records = [
            record(grouping.name(), grouping.state_len_max(), &|state| grouping.save(state)),
            record(victim.name(), victim.state_len_max(), &|state| victim.save(state)),
        ];
        records.into_iter().filter(|record| !record.state.is_empty()).collect()
    }

    /// Restores the state of the policies from a checkpoint.
    pub(crate) fn restore_policies(&mut self, records: &[PolicyRecord]) {
        for PolicyRecord { name, state } in records {
            if policy::current_name(name) == self.grouping.name() {
                self.grouping.restore(state);
            } else if name == self.victim_policy.name() {
                self.victim_policy.restore(state);
            }
        }
    }
}
