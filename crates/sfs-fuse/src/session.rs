//! Serving a mount from its first request to its last.
//!
//! Owns: shaking hands, the threads, and the loop of reading, calling and answering.
//! Promises: every request that waits for an answer gets one, after the handler has returned;
//! bytes that are no request are answered with an error, as far as it is known for whom.
//! Never: mounts or unmounts.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use crate::abi::{self, InitOut, opcode};
use crate::answer::Answer;
use crate::arguments::Malformed;
use crate::door::{Buffer, Door};
use crate::errno::Errno;
use crate::init::{Agreed, Config, Offer};
use crate::message::Message;
use crate::notify::Notifier;
use crate::operation::Operation;
use crate::request::{Request, split_header};

/// A mount whose two sides have agreed on how to speak.
#[derive(Debug)]
pub struct Session {
    door: Arc<Door>,
    agreed: Agreed,
    threads: usize,
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
        let agreed = shake_hands(&door, config)?;
        Ok(Self { door, agreed, threads: config.threads.max(1) })
    }

    /// What the two sides have agreed on.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// For what has to be said without being asked.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.door.clone())
    }

    /// Serves until it is unmounted, from several threads at once. `handler` gives the answer to a
    /// request; what it gives for one that has none is dropped.
    ///
    /// # Errors
    ///
    /// The first error that the system gave a thread; the others have served on.
    pub fn run<B, F>(self, handler: F) -> io::Result<()>
    where
        B: AsRef<[u8]>,
        F: Fn(&Request<'_>) -> Result<Answer<B>, Errno> + Sync,
    {
        let serve = |door: &Door| Worker { door, agreed: &self.agreed, handler: &handler }.run();
        let doors = (1..self.threads).map(|_| self.door.another()).collect::<io::Result<Vec<_>>>();
        let doors = doors?;
        thread::scope(|scope| {
            let mut others = Vec::new();
            for (number, door) in (1..).zip(doors) {
                let named = thread::Builder::new().name(format!("fuse-{number}"));
                others.push(named.spawn_scoped(scope, move || serve(&door))?);
            }
            let mut outcome = serve(&self.door);
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

/// One thread.
struct Worker<'a, F> {
    door: &'a Door,
    agreed: &'a Agreed,
    handler: &'a F,
}

impl<F> Worker<'_, F> {
    fn run<B>(&self) -> io::Result<()>
    where
        B: AsRef<[u8]>,
        F: Fn(&Request<'_>) -> Result<Answer<B>, Errno>,
    {
        let mut buffer = Buffer::new(self.agreed.max_write)?;
        while let Some(len) = self.door.read(&mut buffer)? {
            self.serve(buffer.message(len))?;
        }
        Ok(())
    }

    fn serve<B>(&self, bytes: &[u8]) -> io::Result<()>
    where
        B: AsRef<[u8]>,
        F: Fn(&Request<'_>) -> Result<Answer<B>, Errno>,
    {
        let request = match Request::decode(bytes, self.agreed.flags) {
            Ok(request) => request,
            Err(malformed) => return self.refuse(bytes, malformed),
        };
        let outcome = (self.handler)(&request);
        // Only the refusal of an interrupt is an answer to it.
        let is_refused_interrupt =
            matches!(request.operation, Operation::Interrupt { .. }) && outcome.is_err();
        if !request.operation.is_answered() && !is_refused_interrupt {
            return Ok(());
        }
        self.reply(request.unique, &outcome)
    }

    /// Sends an answer; EIO instead of one that the kernel does not take, as when it is longer than
    /// what was asked for.
    fn reply<B: AsRef<[u8]>>(
        &self,
        unique: u64,
        outcome: &Result<Answer<B>, Errno>,
    ) -> io::Result<()> {
        let sent = self.door.send(&mut Message::reply(unique, outcome));
        sent.or_else(|_| self.door.send(&mut Message::new(unique, -libc::EIO)))
    }

    /// Answers what cannot be understood.
    fn refuse(&self, bytes: &[u8], malformed: Malformed) -> io::Result<()> {
        let Ok((header, _)) = split_header(bytes) else { return Err(garbage(malformed)) };
        if matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            return Ok(());
        }
        let errno = match malformed {
            Malformed::Opcode(_) => Errno::NOT_IMPLEMENTED,
            _ => Errno::new(libc::EINVAL),
        };
        self.door.send(&mut Message::new(header.unique, -errno.code()))
    }
}

fn garbage(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

fn shake_hands(door: &Door, config: &Config) -> io::Result<Agreed> {
    let mut buffer = Buffer::new(0)?;
    loop {
        let len = door.read(&mut buffer)?.ok_or(io::ErrorKind::NotConnected)?;
        let (header, arguments) = split_header(buffer.message(len)).map_err(garbage)?;
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
            let agreed = offer.agree(config);
            send_init(door, header.unique, &offer.answer(&agreed, config))?;
            return Ok(agreed);
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
