//! The shell as the handler of a session: which requests are parked, and until when.
//!
//! A WRITE, and the first piece of a copy, waits for room in the write buffer, and is parked where its writer would have to clean. A change waits while the mount
//! is frozen. An FSYNC waits while another thread holds the log; it is announced first, so that the next sync by any thread
//! serves all that wait; so does a WRITE that has to be durable before its reply, once its data is in the buffer. No other
//! request waits: names and reads need neither the log nor room.

use std::time::Duration;

use sfs_core::COPY_PIECE_LEN_MAX;
use sfs_device::BLOCK_SIZE;
use sfs_fuse::{FuseOperation, FuseRequest, Handler, Queue, Reply, WaitingChange};

use super::dispatch::is_change;
use super::fuse_shell::FuseShell;
use super::reply_result::{OperationResult, ReplyBytes, ReplyResult};

impl FuseShell {
    /// Waits as long as `request` would be parked, for a transport that cannot park.
    pub(crate) fn wait_in_place(&self, request: &FuseRequest<'_>) {
        let is_barred = is_change(&request.operation) && self.freezer.gate().is_closed();
        if !is_barred && self.queue_beyond_gate(request) != Some(Queue::Changes) {
            return;
        }
        let (node, data_len) = data_target(request).unwrap_or((request.node, 0));
        let since = std::time::Instant::now();
        loop {
            let seen = self.progress();
            let waited = since.elapsed();
            if self.may_go_on(&WaitingChange { node, data_len, waited }) {
                return;
            }
            self.wait_for_progress(seen);
        }
    }

    /// Returns the queue in which `request` waits that has passed the gate, if it is a change.
    fn queue_beyond_gate(&self, request: &FuseRequest<'_>) -> Option<Queue> {
        match &request.operation {
            FuseOperation::Write(_) | FuseOperation::CopyFileRange(_) => {
                let (node, data_len) = data_target(request)?;
                self.queue_for_write(node, data_len)
            }
            FuseOperation::Fsync { .. } | FuseOperation::Fsyncdir { .. } => {
                self.note_waiting_sync(request);
                self.queue_for_sync(request.node)
            }
            FuseOperation::Syncfs => {
                self.note_waiting_sync(request);
                self.log_work.note_sync(&self.volume);
                Some(Queue::WholeSyncs(self.volume.announce_sync_all().into()))
            }
            _ => None,
        }
    }

    /// Notes what is done before a sync is announced: a later change need not be in the log when it has finished.
    fn note_waiting_sync(&self, request: &FuseRequest<'_>) {
        if let Some(journal) = &self.journal {
            journal.begin_waiting_sync(request);
        }
    }

    /// Returns the queue of a write of `data_len` bytes to file `ino`.
    fn queue_for_write(&self, ino: u64, data_len: usize) -> Option<Queue> {
        let has_room = self.log_work.may_write(&self.volume, (ino, data_len), Duration::ZERO);
        let blocks = data_len.div_ceil(BLOCK_SIZE) as u64;
        (!has_room || self.volume.owes_cleaning(blocks)).then_some(Queue::Changes)
    }

    /// Returns the queue of a sync of file `ino`, which is announced then.
    fn queue_for_sync(&self, ino: u64) -> Option<Queue> {
        if self.volume.is_read_only() {
            return None;
        }
        self.log_work.note_sync(&self.volume);
        // A sync serves all that were announced, however long they take.
        let is_long = self.volume.is_sync_long(ino) || self.volume.is_sync_announced();
        if !is_long && !self.volume.is_log_busy() {
            return None;
        }
        Some(Queue::Syncs([self.volume.announce_sync(ino), 0]))
    }

    /// Makes a write to file `ino` durable before its reply `written`: in this thread, or in the queue of the syncs.
    pub(super) fn sync_written(&self, ino: u64, written: Reply<ReplyBytes>) -> OperationResult {
        // Data that is lost while the write waits is reported to it, although another sync may be told first.
        let losses = self.volume.losses_of(ino);
        let Some(Queue::Syncs([generation, _])) = self.queue_for_sync(ino) else {
            self.volume.sync_file(ino)?;
            return Ok(written);
        };
        Ok(Reply::Parked(Queue::Syncs([generation, losses])))
    }
}

/// Returns the inode whose data `request` writes, with the number of bytes that must have room: the first piece of a copy.
fn data_target(request: &FuseRequest<'_>) -> Option<(u64, usize)> {
    let (node, len) = request.data_target()?;
    Some((node, len.min(COPY_PIECE_LEN_MAX as usize)))
}

impl Handler for FuseShell {
    type Bytes = ReplyBytes;

    fn answer(&self, request: &FuseRequest<'_>, room: &mut [u8]) -> ReplyResult {
        // `queue_for` has let a change pass.
        let _change = is_change(&request.operation).then(|| self.freezer.gate().admitted());
        self.reply_beyond_gate(request, None, room)
    }

    fn answer_parked(
        &self,
        request: &FuseRequest<'_>,
        queue: Queue,
        room: &mut [u8],
    ) -> ReplyResult {
        let is_barred = queue == Queue::Changes && is_change(&request.operation);
        let _change = is_barred.then(|| self.freezer.gate().enter());
        self.reply_beyond_gate(request, Some(queue), room)
    }

    fn queue_for(&self, request: &FuseRequest<'_>) -> Option<Queue> {
        if !is_change(&request.operation) {
            return self.queue_beyond_gate(request);
        }
        // A change that has found the gate open must not meet it closed afterwards: its thread could not read or unmount.
        let Some(change) = self.freezer.gate().try_enter() else { return Some(Queue::Changes) };
        let queue = self.queue_beyond_gate(request);
        if queue.is_none() {
            std::mem::forget(change);
        }
        queue
    }

    fn may_go_on(&self, change: &WaitingChange) -> bool {
        !self.freezer.gate().is_closed()
            && (change.data_len == 0
                || self.log_work.may_write(
                    &self.volume,
                    (change.node, change.data_len.min(COPY_PIECE_LEN_MAX as usize)),
                    change.waited,
                ))
    }

    fn progress(&self) -> u64 {
        self.log_work.progress()
    }

    fn wait_for_progress(&self, seen: u64) {
        self.log_work.wait_for_progress(&self.volume, seen);
    }

    fn earlier_reply(&self, unique: u64) -> Option<Vec<u8>> {
        self.earlier_reply_of(self.journal.as_ref()?, unique)
    }

    fn note_new_request(&self) {
        if let Some(journal) = &self.journal {
            journal.note_new_request();
        }
    }

    fn replied(&self, unique: u64) {
        self.note_sent(unique);
    }

    fn end(&self) {
        // A thaw may wait for what nobody needs any more.
        self.at_end.iter().for_each(|at_end| at_end());
        self.freezer.end_for_good();
    }
}
