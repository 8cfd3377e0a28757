//! Requests of a mount that survives its daemon: each goes through the [`Journal`].

use std::cell::Cell;
use std::sync::Arc;

use sfs_fuse::{Errno, FuseOperation, FuseRequest, Queue, Reply, reply_bytes};

use super::dispatch::is_change;
use super::fuse_shell::FuseShell;
use super::held_notices::HeldNotices;
use super::reply_result::{ReplyBytes, ReplyResult};
use super::{inode_flags, privileges};
use crate::survival::{Before, Journal, is_durable_write};

thread_local! {
    /// Whether the records keep the reply to the last request of this thread, until the kernel has it.
    static IS_KEPT: Cell<bool> = const { Cell::new(false) };
}

impl FuseShell {
    /// Records every request from now on.
    pub(crate) fn set_journal(&mut self, journal: Arc<Journal>) {
        self.journal = Some(journal);
    }

    /// Returns whether the mount survives the death of this process.
    pub(crate) fn survives(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns what the change that `request` asks for depends on.
    pub(super) fn before(&self, request: &FuseRequest<'_>) -> Before {
        let size = || self.volume.attributes(request.node).map_or(0, |inode| inode.size);
        let before = Before { keeps_privileges: true, size: 0, new_ino: 0 };
        match &request.operation {
            FuseOperation::Fallocate { .. } => {
                let kills = self.must_kill_privileges(request.node, request.pid).unwrap_or(false);
                Before { keeps_privileges: !kills, size: size(), ..before }
            }
            FuseOperation::Setattr(asked) if asked.size.is_some() => {
                Before { size: size(), ..before }
            }
            FuseOperation::Create(_)
            | FuseOperation::Mknod { .. }
            | FuseOperation::Mkdir { .. }
            | FuseOperation::Symlink { .. }
            | FuseOperation::Tmpfile(_) => {
                let new_ino = self.volume.next_inode_number().unwrap_or(0);
                Before { new_ino, ..before }
            }
            _ => before,
        }
    }

    /// Returns the reply of an earlier process to request `unique`, which this thread sends.
    pub(super) fn earlier_reply_of(&self, journal: &Journal, unique: u64) -> Option<Vec<u8>> {
        let earlier = journal.earlier_reply(unique)?;
        IS_KEPT.set(true);
        if earlier.synced == 0 {
            return Some(earlier.reply);
        }
        let sync = journal.begin_sync(earlier.synced);
        if let Err(error) = self.volume.sync_file(earlier.synced) {
            let code = self.errno(earlier.synced, &error);
            return Some(reply_bytes(unique, &Err::<Reply<ReplyBytes>, _>(code)));
        }
        journal.end_sync(sync);
        Some(earlier.reply)
    }

    /// Notes that this thread has sent the reply to request `unique`.
    pub(super) fn note_sent(&self, unique: u64) {
        if let Some(journal) = &self.journal
            && IS_KEPT.take()
        {
            journal.replied(unique);
        }
    }

    /// Serves `request` by `pass`, and records what must survive.
    pub(super) fn serve_journaled(
        &self,
        journal: &Journal,
        request: &FuseRequest<'_>,
        queue: Option<Queue>,
        pass: impl FnOnce() -> ReplyResult,
    ) -> ReplyResult {
        let node = request.node;
        IS_KEPT.set(is_change(&request.operation));
        match &request.operation {
            FuseOperation::Forget { count } => journal.forget(node, *count),
            FuseOperation::BatchForget(forgets) => journal.forget_all(forgets.iter()),
            // The kernel copies through its cache instead. A copy could not be repeated: its source may have changed since.
            FuseOperation::CopyFileRange(_) => return Err(Errno::new(libc::ENOSYS)),
            FuseOperation::Ioctl(ioctl) if is_change(&request.operation) => {
                if !matches!(ioctl.command, inode_flags::SET_FLAGS | inode_flags::SET_XATTR) {
                    return pass();
                }
                let changing = journal.begin_unrecorded();
                // A change of nothing would hide others by the time of the directory as well.
                match self.would_change_flags(request, ioctl) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Reply::Ioctl(0, ReplyBytes::Value(Vec::new()))),
                    Err(refusal) => return Err(self.code_of(node, &refusal)),
                }
                // Repeated changes of data would meet the new flags, and the time of the directory would hide those before.
                changing.settle();
                let result = pass();
                changing.commit();
                return result;
            }
            operation if is_change(operation) && is_first(queue) => {
                let changing = journal.begin(request.message, || self.before(request));
                // What is recorded is done, also if the process changes meanwhile.
                let decision = privileges::decide(changing.keeps_privileges);
                let notices = HeldNotices::begin();
                let result = pass();
                drop(decision);
                match (&result, operation) {
                    // It waits for a sync, and is not written again.
                    (Ok(Reply::Parked(_)), FuseOperation::Write(write)) => {
                        changing.end_unsynced(request, write.data.len() as u32);
                    }
                    (Ok(Reply::Written(len)), _) if is_durable_write(request) => {
                        changing.end_unsynced(request, *len);
                        journal
                            .sync_of(request)
                            .into_iter()
                            .for_each(|sync| journal.end_sync(sync));
                    }
                    (Ok(Reply::Parked(_)), _) => drop(changing),
                    _ => changing.end(request, &result),
                }
                notices.send(|ino| self.attributes_changed(ino));
                return result;
            }
            _ => {}
        }
        let sync = journal.sync_of(request);
        let result = pass();
        if let (Ok(Reply::Done | Reply::Written(_)), Some(sync)) = (&result, sync) {
            journal.end_sync(sync);
        }
        match (&result, &request.operation) {
            // Afterwards: the kernel sends it again if nobody has executed it, and an area that begins in between has no closed handle.
            (_, FuseOperation::Release(release)) => journal.released(node, release.handle),
            (Ok(Reply::Entry(entry)), _) if entry.node > 0 => journal.refer(entry.node),
            (Ok(Reply::Opened(opened)), FuseOperation::Open { open_flags, .. }) => {
                journal.opened(node, opened.handle, *open_flags);
            }
            (Ok(Reply::Directory(listing)), FuseOperation::Readdirplus(_)) => {
                journal.refer_all(listing.nodes());
            }
            _ => {}
        }
        result
    }
}

/// Returns whether a request that has waited in `queue` has not been executed yet.
fn is_first(queue: Option<Queue>) -> bool {
    matches!(queue, None | Some(Queue::Changes))
}
