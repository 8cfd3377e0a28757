//! One connection to the program that reaches the object store.
//!
//! There is no thread that receives: of those who wait for replies one receives, for all.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::receiver::Receiver;
use super::spares::Spares;
use crate::store_protocol::{Foreign, GREETING, Reply, Request};

/// Longest time that the program may take to say whether it can serve.
const GREETING_WAIT: Duration = Duration::from_secs(60);
/// Longest time for which the program may read nothing while a request is sent to it.
const WRITE_WAIT: Duration = Duration::from_secs(300);
/// Longest time without any reply while one is waited for. The program answers each request earlier.
const SILENCE_MAX: Duration = Duration::from_secs(240);
/// Time between two looks whether a wait is over.
const LOOK: Duration = Duration::from_millis(200);

/// Replies that have come, and those that are waited for.
struct Inbox {
    /// By number of the request; `None` has not come yet.
    replies: BTreeMap<u64, Option<Reply>>,
    /// Why no reply will come any more.
    broken: Option<String>,
    next_number: u64,
    /// When the last reply has come, or the wait for one has begun.
    last_reply: Instant,
}

/// A connection whose other side has said that it can serve.
pub(super) struct Connection {
    socket: UnixStream,
    /// Held while a request is written.
    writer: Mutex<UnixStream>,
    /// Held by the one who receives. Only tried while `inbox` is held.
    receiver: Mutex<Receiver>,
    inbox: Mutex<Inbox>,
    /// Notified when replies have come, and when nobody receives any more.
    changed: Condvar,
}

/// Why a wait for replies is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The store was stopped.
    Stopped,
    /// The time for a reply is over.
    Late,
}

impl Over {
    fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "nobody waits any more",
            Self::Late => "no answer in time",
        }
    }
}

/// Why a connection cannot be used.
pub(super) enum Failure {
    /// The program cannot serve, and says why.
    Refused(String),
    /// The connection has ended, or is not what it should be.
    Broken(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl Connection {
    /// Waits until the other side can serve, at most for `wait`.
    pub(super) fn new(
        mut socket: UnixStream,
        wait: Duration,
        spares: Arc<Spares>,
    ) -> Result<Self, Failure> {
        socket.set_read_timeout(Some(wait.min(GREETING_WAIT)))?;
        let mut greeting = [0; GREETING.len()];
        socket.read_exact(&mut greeting)?;
        if greeting != GREETING {
            return Err(Failure::Broken(Foreign.into()));
        }
        let mut receiver = Receiver::new(socket.try_clone()?, spares);
        match receiver.receive()? {
            Some((0, Reply::Done)) => {}
            Some((0, Reply::Refused(reason))) => return Err(Failure::Refused(reason)),
            Some(_) => return Err(Failure::Broken(Foreign.into())),
            None => return Err(Failure::Broken(io::ErrorKind::TimedOut.into())),
        }
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(WRITE_WAIT))?;
        let last_reply = Instant::now();
        let inbox = Inbox { replies: BTreeMap::new(), broken: None, next_number: 1, last_reply };
        Ok(Self {
            writer: Mutex::new(socket.try_clone()?),
            socket,
            receiver: Mutex::new(receiver),
            inbox: Mutex::new(inbox),
            changed: Condvar::new(),
        })
    }

    /// Returns whether requests may still be answered.
    pub(super) fn is_usable(&self) -> bool {
        self.inbox.lock().broken.is_none()
    }

    /// Ends the connection. Whoever waits for a reply learns that none will come.
    fn end(&self, why: &str) {
        self.inbox.lock().broken.get_or_insert_with(|| why.to_owned());
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Sends all requests, and waits for their replies until `is_over` says so, which is asked some times in a second. Calls `replied` for
    /// each. A request that is not answered is unknown. A connection on which no reply has come for [`SILENCE_MAX`] ends then.
    pub(super) fn exchange(
        &self,
        requests: &[(Request, &[u8])],
        is_over: impl Fn() -> Option<Over>,
        mut replied: impl FnMut(&Request, &Reply),
    ) -> Vec<Reply> {
        let numbers = requests.iter().map(|(request, body)| self.send(request, body));
        let numbers = numbers.collect::<Vec<_>>();
        let replies = numbers.into_iter().zip(requests).map(|(number, (request, _))| {
            let reply = self.wait(number, &is_over);
            replied(request, &reply);
            reply
        });
        replies.collect()
    }

    /// Sends a request, and returns its number. The reply tells whether it could be sent.
    pub(super) fn send(&self, request: &Request, body: &[u8]) -> u64 {
        let mut writer = self.writer.lock();
        let number = {
            let mut inbox = self.inbox.lock();
            let number = inbox.next_number;
            inbox.next_number += 1;
            if inbox.replies.is_empty() {
                // Nobody has waited until now.
                inbox.last_reply = Instant::now();
            }
            inbox.replies.insert(number, None);
            number
        };
        let head = request.encode(number, body.len() as u64);
        if let Err(error) = writer.write_all(&head).and_then(|()| writer.write_all(body)) {
            // Half a request may have been sent.
            self.end(&ended(&error));
        }
        number
    }

    /// Waits for the reply to a request that was sent, until `is_over` says so.
    pub(super) fn wait(&self, number: u64, is_over: &impl Fn() -> Option<Over>) -> Reply {
        let mut inbox = self.inbox.lock();
        loop {
            if let Some(reply) = inbox.replies.get_mut(&number).and_then(Option::take) {
                inbox.replies.remove(&number);
                return reply;
            }
            let over = is_over();
            let why = inbox.broken.clone().or_else(|| over.map(|over| over.reason().to_owned()));
            if let Some(why) = why {
                inbox.replies.remove(&number);
                let is_stopped = over == Some(Over::Stopped);
                let is_silent = inbox.last_reply.elapsed() >= SILENCE_MAX || is_stopped;
                drop(inbox);
                // What is sent from now on does not wait behind this request.
                if is_silent {
                    self.end(&why);
                }
                return Reply::Unknown(why);
            }
            match self.receiver.try_lock() {
                Some(mut receiver) => {
                    drop(inbox);
                    let received = receiver.receive();
                    inbox = self.inbox.lock();
                    inbox.take(received);
                    // Another one receives next, unless this one goes on.
                    drop(receiver);
                    self.changed.notify_all();
                }
                None => {
                    self.changed.wait_for(&mut inbox, LOOK);
                }
            }
        }
    }
}

impl Inbox {
    /// Keeps a reply that somebody waits for.
    fn take(&mut self, received: io::Result<Option<(u64, Reply)>>) {
        match received {
            Ok(None) => {}
            Ok(Some((number, reply))) => {
                self.last_reply = Instant::now();
                if let Some(place) = self.replies.get_mut(&number) {
                    *place = Some(reply);
                }
            }
            Err(error) => {
                self.broken.get_or_insert_with(|| ended(&error));
            }
        }
    }
}

/// Returns why a connection has ended.
fn ended(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => {
            "the program that reaches the object store has ended".to_owned()
        }
        _ => format!("the program that reaches the object store: {error}"),
    }
}
