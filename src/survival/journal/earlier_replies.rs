//! Replies of an earlier process: to requests that the kernel may send again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sfs_fuse::{FuseRequest, reply_bytes};

use super::{Journal, State};
use crate::survival::finished_syncs::is_durable_write;
use crate::survival::record::{self, EarlierReply, Outcome};

/// Time for which the replies of an earlier process are kept after a first request that the kernel had not sent before. It sends
/// those again that it has no reply to before all others, so every one was read by then; a thread may have to look for the reply yet.
const LOOKING_TIME: Duration = Duration::from_secs(10);

impl Journal {
    /// Sets the replies of an earlier process.
    pub(in crate::survival) fn set_earlier(&self, replies: HashMap<u64, EarlierReply>) {
        self.state.lock().earlier.extend(replies);
    }

    /// Returns the reply of an earlier process to request `unique`.
    pub(crate) fn earlier_reply(&self, unique: u64) -> Option<EarlierReply> {
        self.state.lock().earlier.get(&unique).cloned()
    }

    /// Notes that a request was read that the kernel has not sent to an earlier process.
    pub(crate) fn note_new_request(&self) {
        if self.first_new.get().is_none() {
            let _ = self.first_new.set(Instant::now());
        }
    }

    /// Drops the replies of an earlier process that the kernel cannot ask for any more, and records the others in the current area.
    pub(super) fn keep_earlier(&self, state: &mut State) {
        if self.first_new.get().is_some_and(|since| since.elapsed() >= LOOKING_TIME) {
            state.earlier = HashMap::new();
        }
        let records: Vec<_> = state.earlier.values().map(record::earlier).collect();
        let before = state.areas.mark();
        for (kind, bytes) in records {
            self.append(state, kind, [&bytes]);
        }
        // However many they are, the area has room for changes.
        let len = state.areas.mark() - before;
        state.areas.add_first(len);
    }

    /// Keeps the reply `result` to `request`, a change that an earlier process has begun, and records it.
    pub(crate) fn complete(&self, request: &FuseRequest<'_>, result: &Outcome<impl AsRef<[u8]>>) {
        let mut state = self.state.lock();
        // Like any sync, that of the write is recorded before the reply is sent.
        let is_durable = is_durable_write(request) && result.is_ok();
        let synced = if is_durable { request.node } else { 0 };
        let unique = self.append_reply(&mut state, request, (result, synced)).unique;
        let reply = reply_bytes(unique, result);
        state.earlier.insert(unique, EarlierReply { unique, synced, reply });
    }
}
