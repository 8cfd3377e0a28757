//! A part of a load, for a volume that is smaller by the same factor.
//!
//! Files up to [`PART_BYTES`] are in the sample whole or not at all, with their syncs. Larger files are divided into
//! parts, and every so-many-th sync is kept, so that a sync makes as much data durable as before.

use rustc_hash::FxHashMap;

use super::{LoadAction, LoadOperation, RequestLoad};

/// Length of the parts of a large file, in bytes.
const PART_BYTES: u64 = 1 << 20;

impl RequestLoad {
    /// Returns one of `factor` parts of the load, the same for the same load.
    pub fn sampled(&self, factor: u64) -> Self {
        if factor <= 1 {
            return self.clone();
        }
        let mut sample = Self { operations: Vec::new(), ..self.clone() };
        let mut syncs = FxHashMap::default();
        let mut is_nth = |key: Option<u32>| {
            let count: &mut u64 = syncs.entry(key).or_default();
            *count += 1;
            count.is_multiple_of(factor)
        };
        for operation in &self.operations {
            let file = self.files[..].get(operation.file as usize);
            let (ino, end) = file.map_or((0, 0), |file| (file.ino, file.end));
            let is_small = end <= PART_BYTES;
            let has_part = |part: u64| is_chosen(ino, if is_small { 0 } else { part }, factor);
            let mut keep = |action| {
                sample.operations.push(LoadOperation { action, ..*operation });
            };
            match operation.action {
                LoadAction::SyncAll if is_nth(None) => keep(LoadAction::SyncAll),
                LoadAction::SyncAll => {}
                LoadAction::Sync if is_small && has_part(0) => keep(LoadAction::Sync),
                LoadAction::Sync if !is_small && is_nth(Some(operation.file)) => {
                    keep(LoadAction::Sync);
                }
                LoadAction::Sync => {}
                LoadAction::Read { offset, len } => parts(offset, len)
                    .filter(|(offset, _)| has_part(offset / PART_BYTES))
                    .for_each(|(offset, len)| keep(LoadAction::Read { offset, len })),
                LoadAction::Write { offset, len } => parts(offset, len)
                    .filter(|(offset, _)| has_part(offset / PART_BYTES))
                    .for_each(|(offset, len)| keep(LoadAction::Write { offset, len })),
                // A part of the file may be in the sample; without one there is nothing to do.
                LoadAction::Punch { .. }
                | LoadAction::Truncate { .. }
                | LoadAction::Delete
                | LoadAction::Make => {
                    if !is_small || has_part(0) {
                        keep(operation.action);
                    }
                }
            }
        }
        sample
    }
}

/// Divides a range at the ends of parts.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + len;
    let mut next = offset;
    std::iter::from_fn(move || {
        let start = next;
        next = (start / PART_BYTES * PART_BYTES).saturating_add(PART_BYTES).min(end);
        (start < end).then_some((start, next - start))
    })
}

/// Returns whether a part of a file is in the sample, by a hash (SplitMix64).
fn is_chosen(ino: u64, part: u64, factor: u64) -> bool {
    let mut hash = ino.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ part;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (hash ^ (hash >> 31)).is_multiple_of(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(lines: &str) -> RequestLoad {
        let heading = sfs_trace::TraceProperties::default();
        RequestLoad::parse(&format!("{heading}{lines}")).expect("a trace")
    }

    #[test]
    fn a_sample_has_its_part_of_the_bytes_and_syncs() {
        let mut lines = String::new();
        for part in 0..4096_u64 {
            // One large file, and a small file for each of its parts.
            let offset = part << 20;
            lines += &format!("0,write,5,{offset},1048576,0,0,0\n0,fsync,5,0,0,0,0,0\n");
            let small = 100 + part;
            lines += &format!("0,write,{small},0,4096,0,0,0\n0,fsync,{small},0,0,0,0,0\n");
        }
        let load = load(&lines);
        let sample = load.sampled(8);
        let of = |load: &RequestLoad, large: bool, action: fn(&LoadAction) -> bool| {
            let is_it = |one: &&LoadOperation| {
                (load.files[one.file as usize].ino == 5) == large && action(&one.action)
            };
            load.operations.iter().filter(is_it).count() as f64
        };
        for large in [false, true] {
            let is_write = |action: &LoadAction| matches!(action, LoadAction::Write { .. });
            let is_sync = |action: &LoadAction| *action == LoadAction::Sync;
            for kind in [is_write as fn(&LoadAction) -> bool, is_sync] {
                let part = of(&sample, large, kind) / of(&load, large, kind);
                assert!((0.11..0.14).contains(&part), "{part}");
            }
        }
        let small_writes = of(&sample, false, |one| matches!(one, LoadAction::Write { .. }));
        assert_eq!(small_writes, of(&sample, false, |one| *one == LoadAction::Sync));
        assert_eq!(load.sampled(1), load);
    }

    #[test]
    fn a_write_over_two_parts_is_divided() {
        let all: Vec<_> = parts(PART_BYTES - 10, PART_BYTES + 30).collect();
        let expected = [(PART_BYTES - 10, 10), (PART_BYTES, PART_BYTES), (2 * PART_BYTES, 20)];
        assert_eq!(all, expected);
        assert_eq!(parts(7, 0).count(), 0);
    }
}
