//! The handler of requests: the side of a session that its user writes.

use std::time::Duration;

use crate::protocol::errno::Errno;
use crate::protocol::fuse_request::FuseRequest;
use crate::protocol::reply::{Queue, Reply};

/// Change that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingChange {
    /// Inode that is changed.
    pub node: u64,
    /// Length of the data in bytes as [`FuseRequest::data_target`] has it; 0 for a request without data.
    pub data_len: usize,
    /// Time for which the request has waited as the first of its inode.
    pub waited: Duration,
}

/// Handler of the requests of a session: see [`FuseSession::serve`](crate::FuseSession::serve).
pub trait Handler: Sync {
    /// Memory that holds the data of a reply.
    type Bytes: AsRef<[u8]>;

    /// Returns the reply to `request`. Data that is read may be put into `room`, as
    /// [`FuseSession::run`](crate::FuseSession::run) describes. A change that has to be synced before its reply may wait for
    /// that in another queue: [`Reply::Parked`].
    ///
    /// # Errors
    ///
    /// The error number to reply with.
    fn answer(
        &self,
        request: &FuseRequest<'_>,
        room: &mut [u8],
    ) -> Result<Reply<Self::Bytes>, Errno>;

    /// Returns the reply to `request`, which has waited in `queue`.
    ///
    /// # Errors
    ///
    /// The error number to reply with.
    fn answer_parked(
        &self,
        request: &FuseRequest<'_>,
        queue: Queue,
        room: &mut [u8],
    ) -> Result<Reply<Self::Bytes>, Errno> {
        let _ = queue;
        self.answer(request, room)
    }

    /// Returns the queue in which `request` has to wait; `None` if it can be answered at once: then, and only then,
    /// [`Handler::answer`] follows in the same thread. Not called for a change that waits behind another of its inode.
    fn queue_for(&self, request: &FuseRequest<'_>) -> Option<Queue>;

    /// Returns whether a change can be answered now. Called with a lock of the queue held, so it must not wait.
    fn may_go_on(&self, change: &WaitingChange) -> bool;

    /// Returns a number that another thread makes larger whenever [`Handler::may_go_on`] may have become true.
    fn progress(&self) -> u64;

    /// Waits until [`Handler::progress`] is no longer `seen`, or for some time.
    fn wait_for_progress(&self, seen: u64);

    /// Returns the whole reply of an earlier process to request `unique`, which the kernel sends again; `None` if it has to be
    /// answered. The request is not executed once more.
    fn earlier_reply(&self, unique: u64) -> Option<Vec<u8>> {
        let _ = unique;
        None
    }

    /// Notes that a request was read that the kernel has never sent before, after all that it has sent again.
    fn note_new_request(&self) {}

    /// Notes that the kernel has the reply to request `unique`, and does not send the request again.
    fn replied(&self, unique: u64) {
        let _ = unique;
    }

    /// Notes that the connection has ended: no change may wait any more. May be called several times.
    fn end(&self) {}
}

/// Handler whose requests are all answered at once.
pub(crate) struct AtOnce<F>(pub(crate) F);

impl<F, B> Handler for AtOnce<F>
where
    B: AsRef<[u8]>,
    F: Fn(&FuseRequest<'_>, &mut [u8]) -> Result<Reply<B>, Errno> + Sync,
{
    type Bytes = B;

    fn answer(&self, request: &FuseRequest<'_>, room: &mut [u8]) -> Result<Reply<B>, Errno> {
        (self.0)(request, room)
    }

    fn queue_for(&self, _: &FuseRequest<'_>) -> Option<Queue> {
        None
    }

    fn may_go_on(&self, _: &WaitingChange) -> bool {
        true
    }

    fn progress(&self) -> u64 {
        0
    }

    fn wait_for_progress(&self, _: u64) {}
}
