//! Syncs: each is recorded before its reply is sent.
//!
//! A sync covers the changes that were done when it began. One that is done while it is under way may be in the log, or not.

use sfs_fuse::{FuseOperation, FuseRequest};

use super::{Journal, LEFT_BY_REFERENCES, number_of};
use crate::survival::finished_syncs::{ALL_FILES, FinishedSync};
use crate::survival::record;

impl Journal {
    /// Notes that the sync of `request` begins, and waits for its turn.
    pub(crate) fn begin_waiting_sync(&self, request: &FuseRequest<'_>) {
        let mut state = self.state.lock();
        let last = state.last_done;
        state.waiting_syncs.insert(number_of(request), last);
    }

    /// Returns what the sync that `request` asks for covers once it has finished; `None` if it asks for none. A write that asks has
    /// been done.
    pub(crate) fn sync_of(&self, request: &FuseRequest<'_>) -> Option<FinishedSync> {
        let (ino, data_only) = match &request.operation {
            FuseOperation::Fsync { data_only, .. } => (request.node, *data_only),
            FuseOperation::Fsyncdir { .. } => (request.node, false),
            FuseOperation::Syncfs | FuseOperation::Destroy => (ALL_FILES, false),
            FuseOperation::Write(_) => {
                return Some(FinishedSync {
                    ino: request.node,
                    last: number_of(request),
                    data_only: false,
                });
            }
            _ => return None,
        };
        let mut state = self.state.lock();
        let waited = state.waiting_syncs.remove(&number_of(request));
        Some(FinishedSync { ino, last: waited.unwrap_or(state.last_done), data_only })
    }

    /// Returns what a sync of file `ino` that begins now covers once it has finished.
    pub(crate) fn begin_sync(&self, ino: u64) -> FinishedSync {
        FinishedSync { ino, last: self.state.lock().last_done, data_only: false }
    }

    /// Returns what a sync of all files that begins now covers once it has finished.
    pub(crate) fn begin_sync_all(&self) -> FinishedSync {
        self.begin_sync(ALL_FILES)
    }

    /// Records that `sync` has finished. A full area takes the record as well: a reply must not wait for a change here, which may
    /// wait for the reply.
    pub(crate) fn end_sync(&self, sync: FinishedSync) {
        if sync.last == 0 {
            return;
        }
        let (kind, bytes) = record::synced(sync);
        // No area is changed under a change. Without one nobody else would begin the next area.
        let changes = self.changes.try_lock();
        let mut state = self.state.lock();
        let is_full = !state.areas.has_room(bytes.len() + LEFT_BY_REFERENCES);
        let may_switch = changes.is_some() && !state.has_given_up && !state.areas.has_older();
        if is_full && may_switch {
            self.switch(&mut state);
        }
        self.append(&mut state, kind, [&bytes]);
    }
}
