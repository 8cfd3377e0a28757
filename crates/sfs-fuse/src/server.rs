//! The loops of the threads of a session: reading, calling the handler, replying, and parking requests that wait.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::channels::cpu_affinity::CpuAffinity;
use crate::channels::fuse_channel::{FuseChannel, MessageBuffer};
use crate::channels::uring_slot::UringSlot;
use crate::handler::{Handler, Queue, WaitingChange};
use crate::parked::{Parked, QueueName};
use crate::pausing::Pausing;
use crate::protocol::abi::opcode;
use crate::protocol::argument_reader::Malformed;
use crate::protocol::errno::Errno;
use crate::protocol::fuse_operation::FuseOperation;
use crate::protocol::fuse_request::{FuseRequest, split_header};
use crate::protocol::init_features::Agreed;
use crate::protocol::message::Message;
use crate::protocol::reply::Reply;

/// Result of a handler.
type HandlerResult<B> = Result<Reply<B>, Errno>;

/// Code that every thread runs.
pub(crate) struct Server<'a, H> {
    pub(crate) agreed: &'a Agreed,
    pub(crate) handler: &'a H,
    pub(crate) parked: &'a Parked,
    pub(crate) pausing: &'a Pausing,
}

impl<H> Clone for Server<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> std::marker::Copy for Server<'_, H> {}

/// Request of a message, or the reason why there is none.
type Decoded<'a> = Result<FuseRequest<'a>, Malformed>;

impl<H: Handler> Server<'_, H> {
    /// Serves the requests of the device file.
    pub(crate) fn read(&self, channel: &Arc<FuseChannel>) -> io::Result<()> {
        let mut buffer = MessageBuffer::new(self.agreed.max_write)?;
        let reader = self.pausing.reader();
        while let Some(len) = channel.read_between(&mut buffer, || reader.begin())? {
            let (bytes, room) = buffer.message(len);
            let decoded = FuseRequest::decode(bytes, self.agreed.flags);
            let Some((queue, node, data_len)) = self.queue_for(&decoded) else {
                self.reply(channel, decoded, bytes, room)?;
                continue;
            };
            // Noted before the look at the memory, so that two threads do not both take the other for one that reads.
            let _waiting = self.parked.note_waiting_thread();
            if !self.parked.add(queue, (node, data_len), (&mut buffer, len), channel) {
                self.wait(queue, node, data_len);
                self.reply_parked(channel, queue, (&mut buffer, len))?;
            }
        }
        Ok(())
    }

    /// Serves the requests of a queue to its end.
    pub(crate) fn serve_queue(&self, queue: QueueName) -> io::Result<()> {
        let next = || match queue {
            QueueName::Changes => self.parked.next_change(self.handler),
            QueueName::Syncs => self.parked.next_sync(),
            QueueName::WholeSyncs => self.parked.next_whole_sync(),
        };
        let mut outcome = Ok(());
        while let Some(mut message) = next() {
            let (channel, queue, len) = (message.channel.clone(), message.queue, message.len);
            // The others are served after an error as well: their data would be lost.
            outcome = outcome.and(self.reply_parked(&channel, queue, (&mut message.buffer, len)));
            self.parked.recycle(message);
        }
        outcome
    }

    /// Returns the queue in which a request has to wait, its inode, and the length of its data. A write waits behind those of the
    /// same inode that wait.
    fn queue_for(&self, decoded: &Decoded<'_>) -> Option<(Queue, u64, usize)> {
        let request = decoded.as_ref().ok()?;
        let target = request.data_target();
        let is_behind = || target.is_some_and(|(node, _)| self.parked.has_changes_of(node));
        let queue =
            self.handler.queue_for(request).or_else(|| is_behind().then_some(Queue::Changes));
        let (node, data_len) = target.unwrap_or((request.node, 0));
        Some((queue?, node, data_len))
    }

    /// Waits until a change may go on.
    fn wait(&self, queue: Queue, node: u64, data_len: usize) {
        let since = Instant::now();
        loop {
            let seen = self.handler.progress();
            let waiting = WaitingChange { node, data_len, waited: since.elapsed() };
            if queue != Queue::Changes || self.handler.may_go_on(&waiting) {
                return;
            }
            self.handler.wait_for_progress(seen);
        }
    }

    /// Answers the message of `len` bytes in `buffer`, which has waited in `queue`.
    fn reply_parked(
        &self,
        channel: &FuseChannel,
        queue: Queue,
        (buffer, len): (&mut MessageBuffer, usize),
    ) -> io::Result<()> {
        let (bytes, room) = buffer.message(len);
        let decoded = FuseRequest::decode(bytes, self.agreed.flags);
        let handled = self.handle(decoded, Some(queue), bytes, room)?;
        send(channel, handled, room)
    }

    fn reply(
        &self,
        channel: &FuseChannel,
        decoded: Decoded<'_>,
        bytes: &[u8],
        room: &mut [u8],
    ) -> io::Result<()> {
        let handled = self.handle(decoded, None, bytes, room)?;
        send(channel, handled, room)
    }

    /// Serves the requests of one ring.
    pub(crate) fn exchange(&self, mut slot: UringSlot) -> io::Result<()> {
        let mut affinity = CpuAffinity::of(slot.queue());
        while slot.fetch()? {
            let reply = match slot.message() {
                Ok((bytes, room)) => {
                    let decoded = FuseRequest::decode(bytes, self.agreed.flags);
                    if let (Some(affinity), Ok(request)) = (&mut affinity, &decoded) {
                        affinity.note(&request.operation);
                    }
                    let waits = self.queue_for(&decoded);
                    if let Some((queue, node, data_len)) = waits {
                        self.wait(queue, node, data_len);
                    }
                    self.handle(decoded, waits.map(|(queue, ..)| queue), bytes, room)?
                }
                Err(malformed) => return Err(invalid_data(malformed)),
            };
            match reply {
                Some((unique, Ok(Reply::InPlace(len)))) => slot.reply_in_place(unique, len),
                Some((unique, outcome)) => {
                    if !slot.store_reply(&mut Message::reply(unique, &outcome, &[])) {
                        slot.store_reply(&mut rejected(unique));
                    }
                }
                // A FORGET of an inode that the kernel could not keep. The ring still expects a reply.
                None => {
                    let unique = slot.unique();
                    slot.store_reply(&mut Message::new(unique, 0));
                }
            }
        }
        Ok(())
    }

    /// Gives the request of the message `bytes` to the handler. Returns the number of the request and the reply; `None` if
    /// the request has no reply. An in-place reply that claims more bytes than `room` has becomes EIO.
    fn handle(
        &self,
        decoded: Decoded<'_>,
        waited_in: Option<Queue>,
        bytes: &[u8],
        room: &mut [u8],
    ) -> io::Result<Option<(u64, HandlerResult<H::Bytes>)>> {
        let request = match decoded {
            Ok(request) => request,
            Err(malformed) => return Ok(refusal(bytes, malformed)?.map(|(u, e)| (u, Err(e)))),
        };
        let outcome = match waited_in {
            None => self.handler.answer(&request, room),
            Some(queue) => self.handler.answer_parked(&request, queue, room),
        };
        let outcome = match outcome {
            Ok(Reply::InPlace(len)) if len > room.len() => Err(Errno::new(libc::EIO)),
            outcome => outcome,
        };
        // An INTERRUPT has a reply only when it is refused.
        let is_refused_interrupt =
            matches!(request.operation, FuseOperation::Interrupt { .. }) && outcome.is_err();
        let is_answered = request.operation.is_answered() || is_refused_interrupt;
        Ok(is_answered.then_some((request.unique, outcome)))
    }
}

/// Sends the reply of a request that has one.
fn send<B: AsRef<[u8]>>(
    channel: &FuseChannel,
    handled: Option<(u64, HandlerResult<B>)>,
    room: &[u8],
) -> io::Result<()> {
    if let Some((unique, outcome)) = handled {
        let sent = channel.send(&mut Message::reply(unique, &outcome, room));
        sent.or_else(|_| channel.send(&mut rejected(unique)))?;
    }
    Ok(())
}

/// Returns the reply in place of a reply that the kernel rejects, for example because of its
/// length.
fn rejected(unique: u64) -> Message<'static> {
    Message::new(unique, -libc::EIO)
}

/// Returns number and error of a request that could not be decoded; `None` if it expects no reply.
fn refusal(bytes: &[u8], malformed: Malformed) -> io::Result<Option<(u64, Errno)>> {
    let Ok((header, _)) = split_header(bytes) else { return Err(invalid_data(malformed)) };
    if matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
        return Ok(None);
    }
    let errno = match malformed {
        Malformed::Opcode(_) => Errno::NOT_IMPLEMENTED,
        _ => Errno::new(libc::EINVAL),
    };
    Ok(Some((header.unique, errno)))
}

pub(crate) fn invalid_data(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}
