//! Defragmentation of a file, with a write to the file between two of its steps.

use std::collections::BTreeMap;

use sfs_core::format::Key;
use sfs_core::request::{Caller, WriteHistory};
use sfs_core::{Error, Result, Volume};

/// A write of one block, which becomes durable between two steps of a defragmentation.
#[derive(Clone, Debug)]
pub struct WriteMeanwhile {
    /// Number of the step before which the block is written, from 1 on. After the last step at the latest.
    pub step: u32,
    /// First byte of the block.
    pub offset: u64,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Puts `ino` in order, and calls `before_step` before each step. Returns the results of the defragmentation and of the
/// write meanwhile, if there is one.
///
/// # Panics
///
/// If a part does not come nearer to the end of the file.
pub fn defragment(
    volume: &Volume,
    ino: u64,
    meanwhile: Option<&WriteMeanwhile>,
    caller: &Caller,
    mut before_step: impl FnMut(),
) -> (Result<()>, Option<Result<()>>) {
    let (mut steps, mut written) = (0, None);
    let write = |meanwhile: &WriteMeanwhile| {
        let WriteMeanwhile { offset, bytes, .. } = meanwhile;
        let written = volume.write(ino, *offset, bytes, Default::default(), caller);
        // Without room for a commit the block stays dirty.
        let _ = volume.sync_file(ino);
        written
    };
    let mut goes_on = || {
        before_step();
        steps += 1;
        if let Some(meanwhile) = meanwhile.filter(|meanwhile| meanwhile.step == steps) {
            written = Some(write(meanwhile));
        }
        true
    };
    let done = defragment_all(volume, ino, &mut goes_on);
    (done, written.or_else(|| meanwhile.map(write)))
}

fn defragment_all(volume: &Volume, ino: u64, goes_on: &mut dyn FnMut() -> bool) -> Result<()> {
    let mut next = Some(0);
    while let Some(from) = next {
        next = volume.defragment(ino, from, goes_on)?.next;
        assert!(next.is_none_or(|next| next > from), "no progress from block {from}");
    }
    Ok(())
}

/// Number of mapped blocks, sum of their write counts, and sum of the times of their last writes, by the first of 32
/// blocks.
pub(super) type RangeHistories = BTreeMap<u32, (u32, u64, u64)>;

/// Returns the histories of the blocks of `ino`; `None` if a node is damaged.
pub(super) fn histories(volume: &Volume, ino: u64) -> Option<RangeHistories> {
    let (mut found, mut next) = (RangeHistories::new(), Some(Key::MIN));
    while let Some(from) = next {
        let step =
            volume.write_histories(&from, &mut |history| {
                if let WriteHistory::Range {
                    ino: owner,
                    block,
                    mapped,
                    write_count_sum,
                    modified_sum,
                } = history
                    && owner == ino
                {
                    found.insert(block, (mapped, write_count_sum, modified_sum));
                }
            });
        if step.is_damaged {
            return None;
        }
        next = step.next;
    }
    Some(found)
}

/// Returns whether `error` is one that a defragmentation of a regular file may return on a sound volume.
pub(super) fn is_refusal(volume: &Volume, error: &Error) -> bool {
    let is_in_place = volume.superblock().data_layout != sfs_core::format::DataLayout::Log;
    match error {
        Error::NoSpace => true,
        Error::NotSupported => is_in_place,
        _ => false,
    }
}
