//! The loops of the threads of a session: reading, calling the handler, replying, and parking requests that wait.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channels::cpu_affinity::CpuAffinity;
use crate::channels::fuse_channel::{FuseChannel, MessageBuffer};
use crate::channels::uring_slot::UringSlot;
use crate::handler::{Handler, WaitingChange};
use crate::parked::{Parked, ParkedMessage, QueueName};
use crate::pausing::Pausing;
use crate::protocol::abi::{RESENT, opcode};
use crate::protocol::argument_reader::Malformed;
use crate::protocol::errno::Errno;
use crate::protocol::fuse_operation::FuseOperation;
use crate::protocol::fuse_request::{FuseRequest, split_header};
use crate::protocol::init_features::Agreed;
use crate::protocol::message::{Message, set_unique};
use crate::protocol::reply::{Queue, Reply};

/// Time between two looks of a waiting thread at the connection.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Result of a handler.
type HandlerResult<B> = Result<Reply<B>, Errno>;

/// Queue in which a request has to wait, its inode, and the length of its data.
type Waits = (Queue, u64, usize);

/// Outcome of a message.
enum Handled<B> {
    /// Number of the request, and its reply.
    Reply(u64, HandlerResult<B>),
    NoReply,
    Parked(Waits),
}

/// Code that every thread runs.
pub(crate) struct Server<'a, H> {
    pub(crate) agreed: &'a Agreed,
    pub(crate) handler: &'a H,
    pub(crate) parked: &'a Parked,
    pub(crate) pausing: &'a Pausing,
    /// `true` if the memory for requests is occupied at once.
    pub(crate) populates: bool,
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
        let outcome = self.read_to_end(channel);
        // Other threads may be busy with requests that wait for something else.
        if outcome.is_ok() || channel.has_ended() {
            self.handler.end();
        }
        outcome
    }

    fn read_to_end(&self, channel: &Arc<FuseChannel>) -> io::Result<()> {
        let mut buffer = MessageBuffer::new(self.agreed.max_write)?;
        if self.populates {
            buffer.populate();
        }
        let reader = self.pausing.reader();
        while let Some(len) = channel.read_between(&mut buffer, || reader.begin())? {
            let (bytes, room) = buffer.message(len);
            if self.reply_again(channel, bytes)? {
                continue;
            }
            let decoded = FuseRequest::decode(bytes, self.agreed.flags);
            let waits = match self.queue_for(&decoded) {
                None => self.reply(channel, decoded, None, bytes, room)?,
                waits => waits,
            };
            let Some((queue, node, data_len)) = waits else { continue };
            // Noted before the look at the memory, so that two threads do not both take the other for one that reads.
            let _waiting = self.parked.note_waiting_thread();
            if !self.parked.add(queue, (node, data_len), (&mut buffer, len), channel) {
                self.wait(queue, (node, data_len), channel);
                self.reply_in_place(channel, queue, (&mut buffer, len))?;
            }
        }
        Ok(())
    }

    /// Answers a request that the kernel sends again, if an earlier process has a reply to it. Returns whether it had.
    fn reply_again(&self, channel: &FuseChannel, bytes: &[u8]) -> io::Result<bool> {
        let Ok((header, _)) = split_header(bytes) else { return Ok(false) };
        if header.unique & RESENT == 0 {
            // These overtake others.
            if !matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
                self.handler.note_new_request();
            }
            return Ok(false);
        }
        let unique = header.unique & !RESENT;
        let Some(mut reply) = self.handler.earlier_reply(unique) else { return Ok(false) };
        set_unique(&mut reply, header.unique)?;
        let sent = channel.send_parts([&reply, &[]]);
        sent.or_else(|_| channel.send(&mut rejected(header.unique)))?;
        self.handler.replied(unique);
        Ok(true)
    }

    /// Serves the requests of a queue to its end.
    pub(crate) fn serve_queue(&self, queue: QueueName) -> io::Result<()> {
        let next = || match queue {
            QueueName::Changes => self.parked.next_change(self.handler),
            QueueName::Syncs => self.parked.next_sync(),
            QueueName::WholeSyncs => self.parked.next_whole_sync(),
        };
        let mut outcome = Ok(());
        while let Some(message) = next() {
            // The others are served after an error as well: their data would be lost.
            outcome = outcome.and(self.serve_parked(message));
        }
        outcome
    }

    /// Answers a message that was parked, or parks it in its next queue.
    fn serve_parked(&self, mut message: ParkedMessage) -> io::Result<()> {
        let (channel, len) = (message.channel.clone(), message.len);
        let parts = (&mut message.buffer, len);
        let outcome = match self.reply_parked(&channel, message.queue, parts) {
            Ok(Some((queue, ..))) => match self.parked.add_again(message, queue) {
                None => return Ok(()),
                // That queue has ended.
                Some(back) => {
                    message = back;
                    self.reply_in_place(&channel, queue, (&mut message.buffer, len))
                }
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.parked.recycle(message);
        outcome
    }

    /// Returns the queue in which a request has to wait, its inode, and the length of its data. A write waits behind those of the
    /// same inode that wait.
    fn queue_for(&self, decoded: &Decoded<'_>) -> Option<Waits> {
        let request = decoded.as_ref().ok()?;
        let target = request.data_target();
        let is_behind = target.is_some_and(|(node, _)| self.parked.has_changes_of(node));
        let queue = if is_behind { Some(Queue::Changes) } else { self.handler.queue_for(request) };
        Some(waits_in(queue?, request))
    }

    /// Waits until a change may go on, or the connection has ended: perhaps no other thread reads that it has.
    fn wait(&self, queue: Queue, (node, data_len): (u64, usize), channel: &FuseChannel) {
        let since = Instant::now();
        let mut look = LOOK_EVERY;
        loop {
            let seen = self.handler.progress();
            let waited = since.elapsed();
            let waiting = WaitingChange { node, data_len, waited };
            if queue != Queue::Changes || self.handler.may_go_on(&waiting) {
                return;
            }
            if waited >= look {
                look = waited + LOOK_EVERY;
                if channel.has_ended() {
                    return self.handler.end();
                }
            }
            self.handler.wait_for_progress(seen);
        }
    }

    /// Answers the message of `len` bytes in `buffer`, which has waited in `queue`. Returns where it has to wait once more.
    fn reply_parked(
        &self,
        channel: &FuseChannel,
        queue: Queue,
        (buffer, len): (&mut MessageBuffer, usize),
    ) -> io::Result<Option<Waits>> {
        let (bytes, room) = buffer.message(len);
        let decoded = FuseRequest::decode(bytes, self.agreed.flags);
        self.reply(channel, decoded, Some(queue), bytes, room)
    }

    /// Answers a message as [`Server::reply_parked`] does, and waits in this thread where it has to wait once more.
    fn reply_in_place(
        &self,
        channel: &FuseChannel,
        mut queue: Queue,
        (buffer, len): (&mut MessageBuffer, usize),
    ) -> io::Result<()> {
        while let Some((again, ..)) = self.reply_parked(channel, queue, (buffer, len))? {
            queue = again;
        }
        Ok(())
    }

    fn reply(
        &self,
        channel: &FuseChannel,
        decoded: Decoded<'_>,
        waited_in: Option<Queue>,
        bytes: &[u8],
        room: &mut [u8],
    ) -> io::Result<Option<Waits>> {
        match self.handle(decoded, waited_in, bytes, room)? {
            Handled::Parked(waits) => return Ok(Some(waits)),
            Handled::Reply(unique, outcome) => {
                let sent = channel.send(&mut Message::reply(unique, &outcome, room));
                sent.or_else(|_| channel.send(&mut rejected(unique)))?;
                self.handler.replied(unique & !RESENT);
            }
            Handled::NoReply => {}
        }
        Ok(None)
    }

    /// Serves the requests of one ring.
    pub(crate) fn exchange(&self, mut slot: UringSlot, channel: &FuseChannel) -> io::Result<()> {
        let mut affinity = CpuAffinity::of(slot.queue());
        while slot.fetch()? {
            let reply = match slot.message() {
                Ok((bytes, room)) => {
                    let decoded = FuseRequest::decode(bytes, self.agreed.flags);
                    if let (Some(affinity), Ok(request)) = (&mut affinity, &decoded) {
                        affinity.note(&request.operation);
                    }
                    let mut waits = self.queue_for(&decoded);
                    let mut decoded = Some(decoded);
                    loop {
                        if let Some((queue, node, data_len)) = waits {
                            self.wait(queue, (node, data_len), channel);
                        }
                        let again = || FuseRequest::decode(bytes, self.agreed.flags);
                        let decoded = decoded.take().unwrap_or_else(again);
                        let waited_in = waits.map(|(queue, ..)| queue);
                        match self.handle(decoded, waited_in, bytes, room)? {
                            Handled::Parked(queue) => waits = Some(queue),
                            handled => break handled,
                        }
                    }
                }
                Err(malformed) => return Err(invalid_data(malformed)),
            };
            match reply {
                Handled::Reply(unique, Ok(Reply::InPlace(len))) => slot.reply_in_place(unique, len),
                Handled::Reply(unique, outcome) => {
                    if !slot.store_reply(&mut Message::reply(unique, &outcome, &[])) {
                        slot.store_reply(&mut rejected(unique));
                    }
                }
                // A FORGET of an inode that the kernel could not keep. The ring still expects a reply.
                Handled::NoReply | Handled::Parked(_) => {
                    let unique = slot.unique();
                    slot.store_reply(&mut Message::new(unique, 0));
                }
            }
        }
        Ok(())
    }

    /// Gives the request of the message `bytes` to the handler. An in-place reply that claims more bytes than `room` has becomes EIO.
    fn handle(
        &self,
        decoded: Decoded<'_>,
        waited_in: Option<Queue>,
        bytes: &[u8],
        room: &mut [u8],
    ) -> io::Result<Handled<H::Bytes>> {
        let request = match decoded {
            Ok(request) => request,
            Err(malformed) => {
                let refused = refusal(bytes, malformed)?;
                return Ok(refused.map_or(Handled::NoReply, |(u, e)| Handled::Reply(u, Err(e))));
            }
        };
        let outcome = match waited_in {
            None => self.handler.answer(&request, room),
            Some(queue) => self.handler.answer_parked(&request, queue, room),
        };
        let outcome = match outcome {
            Ok(Reply::InPlace(len)) if len > room.len() => Err(Errno::new(libc::EIO)),
            Ok(Reply::Parked(queue)) => return Ok(Handled::Parked(waits_in(queue, &request))),
            outcome => outcome,
        };
        // An INTERRUPT has a reply only when it is refused.
        let is_refused_interrupt =
            matches!(request.operation, FuseOperation::Interrupt { .. }) && outcome.is_err();
        let is_answered = request.operation.is_answered() || is_refused_interrupt;
        Ok(if is_answered { Handled::Reply(request.unique, outcome) } else { Handled::NoReply })
    }
}

/// Returns `queue` with the inode of `request`, and the length of its data.
fn waits_in(queue: Queue, request: &FuseRequest<'_>) -> Waits {
    let (node, data_len) = request.data_target().unwrap_or((request.node, 0));
    (queue, node, data_len)
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
