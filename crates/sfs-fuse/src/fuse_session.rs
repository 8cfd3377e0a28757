//! A session: serving one mount from the INIT request to the unmount.
//!
//! [`FuseSession::new`] agrees with the kernel on the protocol; [`FuseSession::run`] starts the
//! threads. Each thread reads a request from its channel or ring, calls the handler, and sends the
//! reply. A request that expects a reply gets the reply after the handler has returned. A request that the handler lets wait is
//! parked (`parked`) if it came through a channel; a ring has one request at a time, so its thread waits. Malformed
//! bytes get an error if their header can be read.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use crossbeam::channel;

use crate::channels::fuse_channel::{FuseChannel, MessageBuffer};
use crate::channels::notifier::Notifier;
use crate::channels::uring_slot::UringSlot;
use crate::channels::uring_slots::{self, NoUring};
use crate::channels::wake;
use crate::handler::{AtOnce, Handler};
use crate::parked::{EndOnDrop, Parked, QueueName};
use crate::pausing::{Pauser, Pausing, SessionChannels};
use crate::protocol::abi::{self, InitOut, opcode};
use crate::protocol::errno::Errno;
use crate::protocol::fuse_request::{FuseRequest, split_header};
use crate::protocol::init_features::{Agreed, InitFlags, Offer, SessionConfig};
use crate::protocol::message::Message;
use crate::protocol::reply::Reply;
use crate::server::{Server, invalid_data};

/// Session whose two sides have agreed on the protocol.
#[derive(Debug)]
pub struct FuseSession {
    channel: Arc<FuseChannel>,
    /// Further channels, one for each thread but the first, if there are no rings.
    others: Vec<Arc<FuseChannel>>,
    /// Channel that nobody reads, if requests end with the process that has read them. The others were made from it.
    unread: Option<Arc<FuseChannel>>,
    agreed: Agreed,
    slots: Result<Vec<UringSlot>, NoUring>,
    parked: Arc<Parked>,
    pausing: Arc<Pausing>,
    outlives_process: bool,
}

impl FuseSession {
    /// Agrees with the kernel over `channel`, the open /dev/fuse of a mount, which must be blocking (without
    /// O_NONBLOCK).
    ///
    /// # Errors
    ///
    /// Errors of the system; `Unsupported` for a kernel whose protocol is too old; `InvalidData` for bytes that no
    /// kernel sends; `NotConnected` if the filesystem was unmounted meanwhile.
    ///
    /// All files are opened and all rings are made here, so [`FuseSession::run`] opens none.
    pub fn new(channel: OwnedFd, config: &SessionConfig) -> io::Result<Self> {
        let channel = Arc::new(FuseChannel::new(File::from(channel)));
        let (agreed, slots) = negotiate(&channel, config)?;
        if config.outlives_process && slots.is_err() && !sends_again(&channel, &agreed, config) {
            return Self::beside(channel, agreed, slots, config);
        }
        let threads = config.threads.max(1);
        let more = if slots.is_ok() { 0 } else { threads - 1 };
        let others = (0..more).map(|_| channel.another().map(Arc::new));
        let others = others.collect::<io::Result<_>>()?;
        Self::over(channel, others, agreed, slots, config)
    }

    /// Goes on with the session of another program over its `channels`, which that program must not use any more. A thread
    /// serves each of them. `agreed` is what that program has agreed on with the kernel.
    ///
    /// # Errors
    ///
    /// `InvalidInput` without a channel; errors of the system.
    pub fn resume(
        channels: SessionChannels,
        agreed: Agreed,
        config: &SessionConfig,
    ) -> io::Result<Self> {
        let channel = |descriptor| Arc::new(FuseChannel::new(File::from(descriptor)));
        let slots = Err(NoUring::TakenOver);
        match channels {
            SessionChannels::Read(channels) => {
                let mut channels = channels.into_iter().map(channel);
                let first = channels.next().ok_or(io::ErrorKind::InvalidInput)?;
                Self::over(first, channels.collect(), agreed, slots, config)
            }
            SessionChannels::Unread(unread) => Self::beside(channel(unread), agreed, slots, config),
        }
    }

    /// Returns a session whose threads read from channels of their own, and nobody from `unread`.
    fn beside(
        unread: Arc<FuseChannel>,
        agreed: Agreed,
        slots: Result<Vec<UringSlot>, NoUring>,
        config: &SessionConfig,
    ) -> io::Result<Self> {
        let first = unread.separate().map(Arc::new)?;
        let others = (1..config.threads).map(|_| unread.separate().map(Arc::new));
        let others = others.collect::<io::Result<_>>()?;
        let session = Self::over(first, others, agreed, slots, config)?;
        Ok(Self { unread: Some(unread), ..session })
    }

    fn over(
        channel: Arc<FuseChannel>,
        others: Vec<Arc<FuseChannel>>,
        agreed: Agreed,
        slots: Result<Vec<UringSlot>, NoUring>,
        config: &SessionConfig,
    ) -> io::Result<Self> {
        wake::can_be_woken()?;
        let outlives_process = config.outlives_process;
        let mut parked = Parked::new(agreed.max_write, config.parked_bytes_max, 1 + others.len());
        parked.populates = outlives_process;
        let (parked, pausing) = (Arc::new(parked), Arc::default());
        let unread = None;
        Ok(Self { channel, others, unread, agreed, slots, parked, pausing, outlives_process })
    }

    /// Returns whether requests that a process has read and not answered are sent again to the next one. Otherwise they end with the
    /// process, by ECONNABORTED. Only for a session that outlives its process.
    pub fn sends_again(&self) -> bool {
        self.unread.is_none()
    }

    /// Returns a way to pause this session while it is served, for another program to take it over; `None` with rings, which
    /// belong to this process.
    pub fn pauser(&self) -> Option<Pauser> {
        let all = || [&self.channel].into_iter().chain(&self.others);
        self.slots.is_err().then(|| Pauser {
            pausing: self.pausing.clone(),
            parked: self.parked.clone(),
            channels: all().map(Arc::downgrade).collect(),
            unread: self.unread.as_ref().map(Arc::downgrade),
            agreed: self.agreed,
        })
    }

    /// Returns the protocol that both sides have agreed on.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Returns a sender of notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.channel.clone(), self.agreed.minor)
    }

    /// Returns the number of rings for all processors together, or the reason why requests come
    /// through the device file.
    ///
    /// # Errors
    ///
    /// The reason why there are no rings.
    pub fn rings(&self) -> Result<usize, &NoUring> {
        self.slots.as_ref().map(Vec::len)
    }

    /// Serves from several threads at once until the filesystem is unmounted. `handler` returns the
    /// reply to a request; the session drops a reply to a request that expects no reply.
    ///
    /// The second argument of `handler` is page-aligned memory for data that is read. The memory
    /// has as many whole pages as a READ may ask for, and is empty if the request itself occupies
    /// these pages. Data that the handler puts there, with a reply of [`Reply::InPlace`], is copied
    /// only by the kernel. The previous contents of the memory are undefined.
    ///
    /// Each ring has a thread, and memory for one request, of which only the pages that a request
    /// has used are allocated. Each processor has the same number of rings, at least two, and the
    /// number of all rings is at least twice [`SessionConfig::threads`]. A ring serves the requests
    /// of one processor, and its thread runs there while it serves requests that a process waits
    /// for. Requests without a reply come through the device file. The one exception is FORGET of
    /// an inode that the kernel could not keep after a READDIRPLUS.
    ///
    /// `lost` is called when the kernel rejects a ring or the reply in a ring, when no thread reads
    /// the device file any more although there are rings, and when `handler` panics. A process that
    /// waits for a lost reply waits until a forced unmount.
    ///
    /// # Errors
    ///
    /// The error of starting a thread; no thread has served a request then. Otherwise an error that
    /// the system gave to a thread; the other threads have served on. `ConnectionAborted`, with
    /// [`InitFlags::ABORT_ERROR`], if the connection was aborted while the filesystem was mounted.
    ///
    /// # Panics
    ///
    /// If `handler` has panicked, after the other threads have ended.
    pub fn run<B, F, L>(self, handler: F, lost: L) -> io::Result<()>
    where
        B: AsRef<[u8]>,
        F: Fn(&FuseRequest<'_>, &mut [u8]) -> Result<Reply<B>, Errno> + Sync,
        L: Fn(&io::Error) + Sync,
    {
        self.serve(&AtOnce(handler), lost)
    }

    /// Serves as [`FuseSession::run`] does, with a handler that may let requests wait. A request that waits is parked: its
    /// memory is kept, the serving thread goes on with the next request, and a thread of its queue answers it later. A
    /// ring, and a thread for which no memory is left, wait with their request.
    ///
    /// # Errors
    ///
    /// The errors of [`FuseSession::run`].
    ///
    /// # Panics
    ///
    /// If `handler` has panicked, after the other threads have ended.
    pub fn serve(self, handler: &impl Handler, lost: impl Fn(&io::Error) + Sync) -> io::Result<()> {
        let slots = self.slots.unwrap_or_default();
        let channels = self.others;
        let _unread = self.unread;
        let (parked, pausing) = (&*self.parked, &*self.pausing);
        let populates = self.outlives_process;
        let worker = Server { agreed: &self.agreed, handler, parked, pausing, populates };
        let has_rings = !slots.is_empty();
        // A thread that has lent memory to the kernel cannot be stopped, so no thread serves before
        // all threads exist. Each thread waits for one token; the channel closes without tokens if
        // a thread could not be started.
        let (start, started) = channel::unbounded();
        thread::scope(|scope| {
            let start = start;
            let mut queues = Vec::new();
            let end_queues = EndOnDrop(parked);
            for (name, queue) in QUEUES {
                let lost = &lost;
                let serve = move || {
                    let _on_panic = ReportPanic(lost);
                    worker.serve_queue(queue)
                };
                queues.push(named(name.into()).spawn_scoped(scope, serve)?);
            }
            let mut others = Vec::new();
            for (number, channel) in (1..).zip(channels) {
                let (lost, started) = (&lost, started.clone());
                let serve = move || {
                    let _on_panic = ReportPanic(lost);
                    if started.recv().is_ok() { worker.read(&channel) } else { Ok(()) }
                };
                others.push(named(format!("fuse-{number}")).spawn_scoped(scope, serve)?);
            }
            for (number, slot) in slots.into_iter().enumerate() {
                let (lost, started, channel) = (&lost, started.clone(), &self.channel);
                let serve = move || {
                    let _on_panic = ReportPanic(lost);
                    if started.recv().is_ok() {
                        worker.exchange(slot, channel).inspect_err(lost)
                    } else {
                        Ok(())
                    }
                };
                others.push(named(format!("fuse-ring-{number}")).spawn_scoped(scope, serve)?);
            }
            others.iter().for_each(|_| start.send(()).expect("a receiver exists"));
            let _on_panic = ReportPanic(&lost);
            let outcome = worker.read(&self.channel);
            if let Err(error) = &outcome
                && has_rings
            {
                lost(error);
            }
            // A thread that waits with its request does not read that the connection has ended.
            if outcome.is_ok() || self.channel.has_ended() {
                handler.end();
            }
            let (others, panic) = join_all(others);
            handler.end();
            // No thread adds to the queues any more.
            drop(end_queues);
            let (queues, panic_in_queue) = join_all(queues);
            if let Some(panic) = panic.or(panic_in_queue) {
                std::panic::resume_unwind(panic);
            }
            outcome.and(others).and(queues)
        })
    }
}

/// Names of the threads of the queues.
const QUEUES: [(&str, QueueName); 3] = [
    ("fuse-changes", QueueName::Changes),
    ("fuse-syncs", QueueName::Syncs),
    ("fuse-syncfs", QueueName::WholeSyncs),
];

/// Waits for all threads, and returns their first error and their first panic.
fn join_all(
    threads: Vec<thread::ScopedJoinHandle<'_, io::Result<()>>>,
) -> (io::Result<()>, Option<Box<dyn Any + Send>>) {
    let (mut outcome, mut panic) = (Ok(()), None);
    for thread in threads {
        match thread.join() {
            Ok(ended) => outcome = outcome.and(ended),
            Err(payload) => panic = panic.or(Some(payload)),
        }
    }
    (outcome, panic)
}

/// Calls the contained function when its thread panics, as a request then stays without a reply.
struct ReportPanic<'a, L: Fn(&io::Error)>(&'a L);

impl<L: Fn(&io::Error)> Drop for ReportPanic<'_, L> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)(&io::Error::other("a thread panicked"));
        }
    }
}

fn named(name: String) -> thread::Builder {
    thread::Builder::new().name(name)
}

fn negotiate(
    channel: &FuseChannel,
    config: &SessionConfig,
) -> io::Result<(Agreed, Result<Vec<UringSlot>, NoUring>)> {
    let mut buffer = MessageBuffer::new(0)?;
    loop {
        let len = channel.read(&mut buffer)?.ok_or(io::ErrorKind::NotConnected)?;
        let (header, arguments) = split_header(buffer.message(len).0).map_err(invalid_data)?;
        if header.opcode != opcode::INIT {
            channel.send(&mut Message::new(header.unique, -libc::EIO))?;
            continue;
        }
        let offer = Offer::decode(arguments).map_err(invalid_data)?;
        if offer.major > abi::MAJOR {
            // The kernel sends INIT again, with our version.
            let ours = InitOut { major: abi::MAJOR, minor: abi::MINOR, ..InitOut::default() };
            send_init(channel, header.unique, &ours)?;
        } else if (offer.major, offer.minor) < (abi::MAJOR, abi::MINOR_MIN) {
            channel.send(&mut Message::new(header.unique, -libc::EPROTO))?;
            return Err(too_old(&offer));
        } else {
            let mut agreed = offer.agree(config);
            let slots = uring_slots::open_all(channel, offer.flags, &agreed, config);
            let mut config = config.clone();
            if slots.is_ok() {
                agreed.flags |= InitFlags::OVER_IO_URING | InitFlags::INIT_EXT;
                if let Some((max_background, congestion_threshold)) = config.background_of_rings {
                    config = SessionConfig { max_background, congestion_threshold, ..config };
                }
            }
            send_init(channel, header.unique, &offer.answer(&agreed, &config))?;
            return Ok((agreed, slots));
        }
    }
}

/// Returns whether the kernel sends requests again over `channel`. It has read none yet.
fn sends_again(channel: &Arc<FuseChannel>, agreed: &Agreed, config: &SessionConfig) -> bool {
    !config.never_sent_again && Notifier::new(channel.clone(), agreed.minor).resend().is_ok()
}

fn send_init(channel: &FuseChannel, unique: u64, out: &InitOut) -> io::Result<()> {
    let mut message = Message::new(unique, 0);
    message.push(out);
    channel.send(&mut message)
}

fn too_old(offer: &Offer) -> io::Error {
    let Offer { major, minor, .. } = offer;
    let least = (abi::MAJOR, abi::MINOR_MIN);
    let text = format!("FUSE {major}.{minor} is too old; {}.{} is needed", least.0, least.1);
    io::Error::new(io::ErrorKind::Unsupported, text)
}
