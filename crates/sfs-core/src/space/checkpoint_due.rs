//! Thresholds at which a checkpoint is due.
//!
//! A checkpoint is also ordered by a mount, an unmount, `sfs-mkfs` and `sfs-fsck`, and by
//! [`CheckpointReason::Shortage`] and [`CheckpointReason::PinnedSegments`]. For the former see `SpaceControl::reclaim` and
//! `SpaceControl::commit_moves`, for the latter `SpaceControl::release_if_due`.

use std::time::Duration;

use sfs_device::BLOCK_SIZE;

use crate::writeback::CheckpointReason;

/// Number of blocks of log after which a checkpoint is due: 512 MiB, or more with many nodes to
/// write.
const LOG_BLOCKS: u64 = 512 << 20 >> 12;

/// Number of blocks of log for each dirty node: a checkpoint that writes many nodes has to be
/// worthwhile.
const LOG_BLOCKS_PER_NODE: u64 = 48;

/// Maximum number of blocks of log, however many nodes are dirty: 1.5 GiB.
const LOG_BLOCKS_MAX: u64 = 3 * LOG_BLOCKS;

/// Number of blocks of log from which on a checkpoint is due after its interval: 1 MiB. A mount after a crash reads
/// less in a moment, and a log of a line a second would cost more for checkpoints than for lines.
const LOG_BLOCKS_MIN: u64 = 1 << 20 >> 12;

/// Shortest interval that a shorter log extends: a user who chose less wants frequent checkpoints.
const INTERVAL_EXTENDED_MIN: Duration = Duration::from_secs(30);

/// Age at which a checkpoint is due although the log is shorter.
const INTERVAL_EXTENDED: Duration = Duration::from_secs(300);

/// Number of dirty nodes up to which no operation writes a checkpoint, however small the cache: the
/// background has time to write it.
const FOREGROUND_NODES: usize = 256;

/// Number of changes in memory at which an operation commits them in a delta.
pub(super) const DELTA_CHANGES_MAX: usize = 16_384;

/// State of the volume since the last checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct SinceCheckpoint {
    pub(super) log_blocks: u64,
    pub(super) dirty_nodes: usize,
    pub(super) has_new_error_kind: bool,
    /// `true` if segments or victims wait for a checkpoint.
    pub(super) is_awaited: bool,
    /// Milliseconds; negative after the clock was set back.
    pub(super) age_ms: i64,
}

/// Returns the reason for which the background should write a checkpoint now; `None` if no
/// checkpoint is due. The node cache has `cache_bytes`.
pub(super) fn in_background(
    since: SinceCheckpoint,
    cache_bytes: usize,
    interval: Duration,
) -> Option<CheckpointReason> {
    let SinceCheckpoint { log_blocks, dirty_nodes, has_new_error_kind, is_awaited, age_ms } = since;
    if log_blocks == 0 && !has_new_error_kind {
        return None;
    }
    let log_blocks_due =
        (dirty_nodes as u64 * LOG_BLOCKS_PER_NODE).clamp(LOG_BLOCKS, LOG_BLOCKS_MAX);
    let age_due = age_due_ms(log_blocks, is_awaited || has_new_error_kind, interval);
    if log_blocks >= log_blocks_due {
        Some(CheckpointReason::LogLength)
    } else if dirty_nodes >= dirty_nodes_max(cache_bytes) {
        Some(CheckpointReason::DirtyNodes)
    } else if age_ms < 0 {
        Some(CheckpointReason::ClockSetBack)
    } else if age_ms >= age_due {
        let has_log = log_blocks > 0;
        Some(if has_log { CheckpointReason::Interval } else { CheckpointReason::NewErrorKind })
    } else {
        None
    }
}

/// Returns the age in milliseconds at which a checkpoint is due with `log_blocks` of log.
fn age_due_ms(log_blocks: u64, is_awaited: bool, interval: Duration) -> i64 {
    let is_extended =
        log_blocks < LOG_BLOCKS_MIN && !is_awaited && interval >= INTERVAL_EXTENDED_MIN;
    let age = if is_extended { interval.max(INTERVAL_EXTENDED) } else { interval };
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the reason for which an operation should write a checkpoint before it changes more
/// metadata; `None` if no checkpoint is due.
pub(super) fn before_change(dirty_nodes: usize, cache_bytes: usize) -> Option<CheckpointReason> {
    let is_due = dirty_nodes > dirty_nodes_max(cache_bytes) + FOREGROUND_NODES;
    is_due.then_some(CheckpointReason::DirtyNodes)
}

/// Returns whether an operation must not change more metadata before a checkpoint, even if it has to wait for the log:
/// dirty nodes take three quarters of the cache. Content that was read ahead may have the rest.
pub(super) fn must_precede_change(dirty_nodes: usize, cache_bytes: usize) -> bool {
    dirty_nodes > dirty_nodes_max(cache_bytes) / 2 * 3 + FOREGROUND_NODES
}

/// Returns the number of dirty nodes that half of the cache holds.
fn dirty_nodes_max(cache_bytes: usize) -> usize {
    cache_bytes / BLOCK_SIZE / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: usize = 128 << 20;
    const INTERVAL: Duration = Duration::from_secs(30);
    const NOTHING: SinceCheckpoint = SinceCheckpoint {
        log_blocks: 0,
        dirty_nodes: 0,
        has_new_error_kind: false,
        is_awaited: false,
        age_ms: 0,
    };

    fn due(since: SinceCheckpoint) -> Option<CheckpointReason> {
        in_background(since, CACHE, INTERVAL)
    }

    #[test]
    fn each_threshold_makes_a_checkpoint_due() {
        let some = SinceCheckpoint { log_blocks: LOG_BLOCKS_MIN - 1, ..NOTHING };
        let more = SinceCheckpoint { log_blocks: LOG_BLOCKS_MIN, ..NOTHING };
        let cases = [
            (NOTHING, None),
            (SinceCheckpoint { age_ms: 30_000, ..NOTHING }, None),
            (some, None),
            (SinceCheckpoint { age_ms: 299_999, ..some }, None),
            (SinceCheckpoint { age_ms: 300_000, ..some }, Some(CheckpointReason::Interval)),
            (SinceCheckpoint { age_ms: 29_999, ..more }, None),
            (SinceCheckpoint { age_ms: 30_000, ..more }, Some(CheckpointReason::Interval)),
            (SinceCheckpoint { age_ms: -1, ..some }, Some(CheckpointReason::ClockSetBack)),
            (SinceCheckpoint { log_blocks: LOG_BLOCKS - 1, ..some }, None),
            (SinceCheckpoint { log_blocks: LOG_BLOCKS, ..some }, Some(CheckpointReason::LogLength)),
            (SinceCheckpoint { dirty_nodes: 16_383, ..some }, None),
            (SinceCheckpoint { dirty_nodes: 16_384, ..some }, Some(CheckpointReason::DirtyNodes)),
        ];
        for (since, reason) in cases {
            assert_eq!(due(since), reason, "{since:?}");
        }
        let error = SinceCheckpoint { has_new_error_kind: true, age_ms: 30_000, ..NOTHING };
        assert_eq!(due(error), Some(CheckpointReason::NewErrorKind));
    }

    #[test]
    fn a_short_log_extends_the_interval_unless_a_checkpoint_is_awaited() {
        let some = SinceCheckpoint { log_blocks: 1, age_ms: 30_000, ..NOTHING };
        assert_eq!(due(some), None);
        let awaited = SinceCheckpoint { is_awaited: true, ..some };
        assert_eq!(due(awaited), Some(CheckpointReason::Interval));
        let error = SinceCheckpoint { has_new_error_kind: true, ..some };
        assert_eq!(due(error), Some(CheckpointReason::Interval));
        let short = Duration::from_secs(1);
        assert_eq!(in_background(some, CACHE, short), Some(CheckpointReason::Interval));
    }

    #[test]
    fn many_dirty_nodes_allow_more_log() {
        let some = SinceCheckpoint { log_blocks: LOG_BLOCKS, dirty_nodes: 4000, ..NOTHING };
        assert_eq!(due(some), None);
        let most = SinceCheckpoint { log_blocks: LOG_BLOCKS_MAX, dirty_nodes: 16_000, ..NOTHING };
        assert_eq!(due(most), Some(CheckpointReason::LogLength));
    }
}
