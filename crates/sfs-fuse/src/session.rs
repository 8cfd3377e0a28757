//! Serving a mount from its first request to its last.
//!
//! Owns: shaking hands, the threads, and the loop of reading, calling and answering.
//! Promises: every request that waits for an answer gets one, after the handler has returned;
//! bytes that are no request are answered with an error, as far as it is known for whom.
//! Never: mounts or unmounts.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use crate::abi::{self, InitOut, opcode};
use crate::answer::Answer;
use crate::arguments::Malformed;
use crate::door::{Buffer, Door};
use crate::entry::Entry;
use crate::errno::Errno;
use crate::home::Home;
use crate::init::{Agreed, Config, InitFlags, Offer};
use crate::message::Message;
use crate::notify::Notifier;
use crate::operation::Operation;
use crate::request::{Request, split_header};
use crate::rings::{self, NoRings};

/// A mount whose two sides have agreed on how to speak.
#[derive(Debug)]
pub struct Session {
    door: Arc<Door>,
    agreed: Agreed,
    threads: usize,
    entries: Result<Vec<Entry>, NoRings>,
}

impl Session {
    /// Shakes hands over `door`, a /dev/fuse that something was mounted with. Reading it has to
    /// wait: without O_NONBLOCK.
    ///
    /// # Errors
    ///
    /// What the system says; `Unsupported` for a kernel whose protocol is too old; `InvalidData`
    /// for what is no kernel; `NotConnected` if it was unmounted meanwhile.
    pub fn new(door: OwnedFd, config: &Config) -> io::Result<Self> {
        let door = Arc::new(Door::new(File::from(door)));
        let (agreed, entries) = shake_hands(&door, config)?;
        Ok(Self { door, agreed, threads: config.threads.max(1), entries })
    }

    /// What the two sides have agreed on.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// For what has to be said without being asked.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.door.clone())
    }

    /// How many rings requests come by, the same number for each processor; or why they come through
    /// the device file.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn rings(&self) -> Result<usize, &NoRings> {
        self.entries.as_ref().map(Vec::len)
    }

    /// Serves until it is unmounted, from several threads at once. `handler` gives the answer to a
    /// request; what it gives for one that has none is dropped.
    ///
    /// With a request it is given room, which begins a page and is whole pages: as many as a READ may ask for, none
    /// where the request takes them. A READ that is answered with [`Answer::Filled`] is copied by nobody but
    /// the kernel. What is in the room before is undefined.
    ///
    /// Each ring has a thread, and memory for one request, of which only what a request has needed is
    /// taken. They are twice as many as [`Config::threads`] says, but at least two for each processor, whose
    /// requests go to no others, and where they run while they serve what somebody waits for. What has no
    /// answer comes through the device file, but for a FORGET of what the kernel could not keep of a
    /// READDIRPLUS.
    ///
    /// `lost` is told when the kernel does not take a ring, or the answer in it, or nobody reads the device
    /// file any more though there are rings, or `handler` panics: who waits for what is lost waits until the
    /// mount is taken away by force.
    ///
    /// # Errors
    ///
    /// That there are not so many threads, before any serves. The first error that the system gave a
    /// thread; the others have served on. `ConnectionAborted`, with [`InitFlags::ABORT_ERROR`], when the
    /// connection was cut off while something is mounted.
    ///
    /// # Panics
    ///
    /// When `handler` has, and the others have ended.
    pub fn run<B, F, L>(self, handler: F, lost: L) -> io::Result<()>
    where
        B: AsRef<[u8]>,
        F: Fn(&Request<'_>, &mut [u8]) -> Result<Answer<B>, Errno> + Sync,
        L: Fn(&io::Error) + Sync,
    {
        let worker = Worker { agreed: &self.agreed, handler: &handler };
        let entries = self.entries.unwrap_or_default();
        let more = if entries.is_empty() { self.threads - 1 } else { 0 };
        let doors = (0..more).map(|_| self.door.another()).collect::<io::Result<Vec<_>>>()?;
        let has_rings = !entries.is_empty();
        // Who has lent memory to the kernel cannot be called back: nobody begins before all are here.
        let may_begin = RwLock::new(false);
        let begins = || *may_begin.read().unwrap_or_else(PoisonError::into_inner);
        thread::scope(|scope| {
            let mut gate = may_begin.write().unwrap_or_else(PoisonError::into_inner);
            let mut others = Vec::new();
            for (number, door) in (1..).zip(doors) {
                let lost = &lost;
                let serve = move || {
                    let _tells = Unanswered(lost);
                    if begins() { worker.read(&door) } else { Ok(()) }
                };
                others.push(named(format!("fuse-{number}")).spawn_scoped(scope, serve)?);
            }
            for (number, entry) in entries.into_iter().enumerate() {
                let lost = &lost;
                let serve = move || {
                    let _tells = Unanswered(lost);
                    if begins() { worker.exchange(entry).inspect_err(lost) } else { Ok(()) }
                };
                others.push(named(format!("fuse-ring-{number}")).spawn_scoped(scope, serve)?);
            }
            *gate = true;
            drop(gate);
            let _tells = Unanswered(&lost);
            let mut outcome = worker.read(&self.door);
            if let Err(error) = &outcome
                && has_rings
            {
                lost(error);
            }
            for other in others {
                match other.join() {
                    Ok(ended) => outcome = outcome.and(ended),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            outcome
        })
    }
}

/// Tells, where a thread panics, that a request stays without an answer.
struct Unanswered<'a, L: Fn(&io::Error)>(&'a L);

impl<L: Fn(&io::Error)> Drop for Unanswered<'_, L> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)(&io::Error::other("a thread has panicked"));
        }
    }
}

/// What a handler gives.
type Outcome<B> = Result<Answer<B>, Errno>;

fn named(name: String) -> thread::Builder {
    thread::Builder::new().name(name)
}

/// What every thread does.
struct Worker<'a, F> {
    agreed: &'a Agreed,
    handler: &'a F,
}

impl<F> Clone for Worker<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> std::marker::Copy for Worker<'_, F> {}

impl<F> Worker<'_, F> {
    /// Serves what comes through the device file.
    fn read<B>(&self, door: &Door) -> io::Result<()>
    where
        B: AsRef<[u8]>,
        F: Fn(&Request<'_>, &mut [u8]) -> Outcome<B>,
    {
        let mut buffer = Buffer::new(self.agreed.max_write)?;
        while let Some(len) = door.read(&mut buffer)? {
            let (bytes, room) = buffer.message(len);
            if let Some((unique, outcome)) = self.answer(bytes, room, |_| {})? {
                let sent = door.send(&mut Message::reply(unique, &outcome, room));
                sent.or_else(|_| door.send(&mut not_taken(unique)))?;
            }
        }
        Ok(())
    }

    /// Serves one entry of a ring.
    fn exchange<B>(&self, mut entry: Entry) -> io::Result<()>
    where
        B: AsRef<[u8]>,
        F: Fn(&Request<'_>, &mut [u8]) -> Outcome<B>,
    {
        let mut home = Home::of(entry.queue());
        let mut note = |operation: &Operation<'_>| {
            if let Some(home) = &mut home {
                home.note(operation);
            }
        };
        while entry.fetch()? {
            let answer = match entry.message() {
                Ok((bytes, room)) => self.answer(bytes, room, &mut note)?,
                Err(malformed) => return Err(garbage(malformed)),
            };
            match answer {
                Some((unique, Ok(Answer::Filled(len)))) => entry.keep(unique, len),
                Some((unique, outcome)) => {
                    if !entry.put(&mut Message::reply(unique, &outcome, &[])) {
                        entry.put(&mut not_taken(unique));
                    }
                }
                // A reference that the kernel could not keep: a FORGET for which a ring waits.
                None => {
                    let unique = entry.unique();
                    entry.put(&mut Message::new(unique, 0));
                }
            }
        }
        Ok(())
    }

    /// The answer to a message, and to whom. `None` if it has none. No answer is longer than the room
    /// that it is said to be in. `note` is told what is asked for.
    fn answer<B>(
        &self,
        bytes: &[u8],
        room: &mut [u8],
        note: impl FnOnce(&Operation<'_>),
    ) -> io::Result<Option<(u64, Outcome<B>)>>
    where
        B: AsRef<[u8]>,
        F: Fn(&Request<'_>, &mut [u8]) -> Outcome<B>,
    {
        let request = match Request::decode(bytes, self.agreed.flags) {
            Ok(request) => request,
            Err(malformed) => return Ok(refusal(bytes, malformed)?.map(|(u, e)| (u, Err(e)))),
        };
        note(&request.operation);
        let outcome = match (self.handler)(&request, room) {
            Ok(Answer::Filled(len)) if len > room.len() => Err(Errno::new(libc::EIO)),
            outcome => outcome,
        };
        // Only the refusal of an interrupt is an answer to it.
        let is_refused_interrupt =
            matches!(request.operation, Operation::Interrupt { .. }) && outcome.is_err();
        let is_answered = request.operation.is_answered() || is_refused_interrupt;
        Ok(is_answered.then_some((request.unique, outcome)))
    }
}

/// Instead of an answer that the kernel does not take, as when it is longer than what was asked for.
fn not_taken(unique: u64) -> Message<'static> {
    Message::new(unique, -libc::EIO)
}

/// What is said to what cannot be understood, and to whom; `None` if it has no answer.
fn refusal(bytes: &[u8], malformed: Malformed) -> io::Result<Option<(u64, Errno)>> {
    let Ok((header, _)) = split_header(bytes) else { return Err(garbage(malformed)) };
    if matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
        return Ok(None);
    }
    let errno = match malformed {
        Malformed::Opcode(_) => Errno::NOT_IMPLEMENTED,
        _ => Errno::new(libc::EINVAL),
    };
    Ok(Some((header.unique, errno)))
}

fn garbage(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

fn shake_hands(door: &Door, config: &Config) -> io::Result<(Agreed, Result<Vec<Entry>, NoRings>)> {
    let mut buffer = Buffer::new(0)?;
    loop {
        let len = door.read(&mut buffer)?.ok_or(io::ErrorKind::NotConnected)?;
        let (header, arguments) = split_header(buffer.message(len).0).map_err(garbage)?;
        if header.opcode != opcode::INIT {
            door.send(&mut Message::new(header.unique, -libc::EIO))?;
            continue;
        }
        let offer = Offer::decode(arguments).map_err(garbage)?;
        if offer.major > abi::MAJOR {
            // It asks again, with what we know.
            let ours = InitOut { major: abi::MAJOR, minor: abi::MINOR, ..InitOut::default() };
            send_init(door, header.unique, &ours)?;
        } else if (offer.major, offer.minor) < (abi::MAJOR, abi::MINOR_MIN) {
            door.send(&mut Message::new(header.unique, -libc::EPROTO))?;
            return Err(too_old(&offer));
        } else {
            let mut agreed = offer.agree(config);
            let entries = rings::entries(door, offer.flags, &agreed, config);
            if entries.is_ok() {
                agreed.flags |= InitFlags::OVER_IO_URING | InitFlags::INIT_EXT;
            }
            send_init(door, header.unique, &offer.answer(&agreed, config))?;
            return Ok((agreed, entries));
        }
    }
}

fn send_init(door: &Door, unique: u64, out: &InitOut) -> io::Result<()> {
    let mut message = Message::new(unique, 0);
    message.push(out);
    door.send(&mut message)
}

fn too_old(offer: &Offer) -> io::Error {
    let Offer { major, minor, .. } = offer;
    let least = (abi::MAJOR, abi::MINOR_MIN);
    let text = format!("FUSE {major}.{minor} is too old; {}.{} is needed", least.0, least.1);
    io::Error::new(io::ErrorKind::Unsupported, text)
}
