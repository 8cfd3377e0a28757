//! An object store behind a pair of sockets: the network is in another process.
//!
//! [`SocketStore`] sends requests through a [`Connection`], many at once. If the connection breaks, a PUT that was not answered is unknown, and others
//! are repeated through a new connection, which the caller's function makes. Attempts that tell nothing are followed by a pause, which
//! grows. [`Patience`] says how long that goes on.

mod connection;
mod counts;
mod patience;
mod program;
mod receiver;
mod requests;
mod spares;
mod stream;
mod trouble;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::ObjectError;
use crate::name::{Epoch, ObjectName};
use crate::store::{ObjectStore, Stopped};
use crate::store_protocol::{Reply, Request};
use crate::volume::{Failure as VolumeFailure, OpenError};
use connection::{Connection, Failure, Over};
pub use counts::StoreCounts;
use patience::Limit;
pub use patience::Patience;
pub use program::{StoreProgram, is_store_url, shown_url};
use spares::Spares;
pub use trouble::Trouble;
use trouble::{News, Troubles};

/// Longest time for a reply. The program gives up earlier.
const REPLY_WAIT: Duration = Duration::from_secs(300);
/// Requests that are under way at once for one caller.
const AT_ONCE: usize = 64;
/// Shortest time for a reply at the end of a mount, however long the store has not answered: it may be back.
const REPLY_WAIT_MIN: Duration = Duration::from_secs(2);
/// Number of times its longest wait after which a request is given up that tells nothing while others of its kind are answered.
const WAITS_ALONE: u32 = 4;
/// Shortest time for making a connection.
const CONNECT_WAIT_MIN: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Makes a connection to a program that reaches the store. The program that had the connection before has ended, or has to.
pub type Connect = dyn Fn() -> io::Result<UnixStream> + Send + Sync;

/// Told what goes wrong when something begins to, or for another reason, and `None` when nothing does any more.
pub type Observer = dyn Fn(Option<&Trouble>) + Send;

/// An object store that is reached by another process. It is shared by `Arc`.
pub struct SocketStore {
    connect: Box<Connect>,
    connection: Mutex<Option<Arc<Connection>>>,
    status: Mutex<Status>,
    /// Notified when the store is stopped.
    stopped: Condvar,
    observer: Mutex<Option<Box<Observer>>>,
    /// An object that the store has for ever, once the volume is known.
    witness: Mutex<Option<(ObjectName, Vec<u8>)>>,
    spares: Arc<Spares>,
}

struct Status {
    is_stopped: bool,
    patience: Patience,
    troubles: Troubles,
    /// PUTs in a row of which nothing is known, and the time of the first.
    lost_puts: Option<(u32, Instant)>,
    counts: StoreCounts,
    /// How long parts of objects are read.
    reads: Option<Limit>,
}

impl Status {
    /// Returns what is left of the time for requests like `request`.
    fn left(&self, limit: Limit, request: &Request) -> Duration {
        let useful = self.troubles.last_useful(request);
        let begun = useful.map_or(limit.begun, |useful| useful.max(limit.begun));
        limit.wait.saturating_sub(begun.elapsed())
    }
}

impl SocketStore {
    /// Returns the store behind the connections that `connect` makes. It is called for the first request, and after each connection
    /// that broke.
    pub fn new(connect: Box<Connect>, patience: Patience) -> Self {
        Self {
            connect,
            connection: Mutex::default(),
            status: Mutex::new(Status {
                is_stopped: false,
                patience,
                troubles: Troubles::default(),
                lost_puts: None,
                counts: StoreCounts::default(),
                reads: None,
            }),
            stopped: Condvar::new(),
            observer: Mutex::default(),
            witness: Mutex::default(),
            spares: Arc::default(),
        }
    }

    /// Has later connections be used only if they lead to the volume that this one leads to. A directory that was unmounted is another
    /// one, and what is put there is lost. A store that cannot be opened any more counts as one that does not answer.
    pub fn remember_volume(&self) -> Result<(), Stopped> {
        // The first claim is never deleted, and has random bits.
        let name = ObjectName::Claim(Epoch(1));
        if let Some(bytes) = self.get(name)? {
            *self.witness.lock() = Some((name, bytes));
        }
        Ok(())
    }

    /// Sets how long the store is tried from now on.
    pub fn set_patience(&self, patience: Patience) {
        self.status.lock().patience = patience;
    }

    /// Has parts of objects be read only until the store has not answered for `wait`, from now on, whatever its patience is. The time is the
    /// same for all such requests together.
    pub fn bound_reads(&self, wait: Duration) {
        let begun = Instant::now();
        let reply_wait = REPLY_WAIT_MIN.min(wait);
        self.status.lock().reads.get_or_insert(Limit { begun, wait, reply_wait });
    }

    /// Ends all requests, and those to come.
    pub fn stop(&self) {
        self.status.lock().is_stopped = true;
        self.stopped.notify_all();
    }

    /// Returns what goes wrong at the moment; after an error, what has led to it.
    pub fn trouble(&self) -> Option<Trouble> {
        self.status.lock().troubles.oldest().cloned()
    }

    /// Returns what was sent and received.
    pub fn counts(&self) -> StoreCounts {
        self.status.lock().counts
    }

    /// Calls `observer` from now on when something begins to go wrong, or for another reason, and when nothing does any more.
    pub fn observe(&self, observer: Box<Observer>) {
        *self.observer.lock() = Some(observer);
    }

    /// Returns the reason of an error for the user: what the store has answered, if the error says only that it was given up.
    pub fn explain(&self, error: &OpenError) -> String {
        let is_given_up =
            matches!(error, OpenError::Failure(VolumeFailure::Object(ObjectError::Stopped(_))));
        match self.trouble().filter(|_| is_given_up) {
            Some(trouble) => trouble.reason,
            None => error.to_string(),
        }
    }

    /// Tries whether the first PUT of a name decides its content in this store.
    ///
    /// # Errors
    ///
    /// A line for the user: the store does not honour the condition, refuses, or cannot be reached.
    pub fn probe(&self) -> Result<(), String> {
        let is_useful = |reply: &Reply| matches!(reply, Reply::Done);
        let result = self.repeat(&[(Request::Probe, &[])], is_useful, None);
        result.map(|_| ()).map_err(|stopped| match self.trouble() {
            Some(trouble) => trouble.reason,
            None => stopped.to_string(),
        })
    }

    /// Returns the connection, or makes one. One caller makes it, and the others wait. `left` is the time for that, if it is limited.
    fn connected(&self, left: Option<Duration>) -> Result<Arc<Connection>, Reply> {
        let connection = match left {
            Some(left) => self.connection.try_lock_for(left),
            None => Some(self.connection.lock()),
        };
        let Some(mut connection) = connection else {
            return Err(Reply::Unknown("the object store cannot be reached".into()));
        };
        if let Some(connection) = connection.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(connection.clone());
        }
        *connection = None;
        let witness = self.witness.lock().clone();
        let socket = (self.connect)().map_err(|error| {
            let reason = format!("cannot start the program that reaches the object store: {error}");
            // What has never started is not waited for.
            if witness.is_some() { Reply::Unknown(reason) } else { Reply::Refused(reason) }
        })?;
        let wait = left.map_or(REPLY_WAIT, |left| left.max(CONNECT_WAIT_MIN));
        match Connection::new(socket, wait, self.spares.clone()) {
            Ok(new) => {
                if let Some((name, bytes)) = witness {
                    self.check_volume(&new, (name, bytes), wait)?;
                }
                Ok(connection.insert(Arc::new(new)).clone())
            }
            Err(Failure::Refused(reason)) if witness.is_some() => Err(Reply::Unknown(reason)),
            Err(Failure::Refused(reason)) => Err(Reply::Refused(reason)),
            Err(Failure::Broken(error)) => Err(Reply::Unknown(format!(
                "the program that reaches the object store cannot be used: {error}"
            ))),
        }
    }

    /// Checks that a connection leads to the store with the object `name`.
    fn check_volume(
        &self,
        connection: &Connection,
        (name, bytes): (ObjectName, Vec<u8>),
        wait: Duration,
    ) -> Result<(), Reply> {
        let (asked, sent) = ([(Request::Get(name), &[][..])], Instant::now());
        let is_over = || match self.status.lock().is_stopped {
            true => Some(Over::Stopped),
            false => (sent.elapsed() >= wait).then_some(Over::Late),
        };
        match connection.exchange(&asked, is_over, |_, _| {}).pop() {
            Some(Reply::Found(found)) if found == bytes => Ok(()),
            Some(reply @ (Reply::Unknown(_) | Reply::Refused(_))) => Err(reply),
            _ => Err(Reply::Unknown("the volume is not in the object store any more".into())),
        }
    }

    /// Sends each request once, and returns their replies. All are of the kind of the first.
    fn attempt(
        &self,
        requests: &[(Request, &[u8])],
        limit: Option<Limit>,
    ) -> Result<Vec<Reply>, Stopped> {
        let Some((first, _)) = requests.first() else { return Ok(Vec::new()) };
        let left = limit.map(|limit| self.status.lock().left(limit, first).max(limit.reply_wait));
        let replies = match self.connected(left) {
            Ok(connection) => {
                let sent = Instant::now();
                let is_over = || self.is_over(sent, limit, first);
                let replied = |request: &_, reply: &_| {
                    self.status.lock().troubles.note_reply(request, reply);
                };
                let replies = connection.exchange(requests, is_over, replied);
                let counts = &mut self.status.lock().counts;
                requests.iter().zip(&replies).for_each(|(sent, got)| counts.add(sent, got));
                replies
            }
            Err(reply) => vec![reply; requests.len()],
        };
        self.note(first, &replies)?;
        Ok(replies)
    }

    /// Notes replies to requests of the kind of `first`, and tells the observer what is new.
    fn note(&self, first: &Request, replies: &[Reply]) -> Result<(), Stopped> {
        let mut status = self.status.lock();
        let news = status.troubles.note(first, replies);
        let is_stopped = status.is_stopped;
        drop(status);
        if let (Some(news), Some(observer)) = (news, &*self.observer.lock()) {
            match news {
                News::Trouble(trouble) => observer(Some(&trouble)),
                News::Over => observer(None),
            }
        }
        if is_stopped { Err(Stopped) } else { Ok(()) }
    }

    /// Returns whether replies to requests like `request`, which were sent at `sent`, are not waited for any more.
    fn is_over(&self, sent: Instant, limit: Option<Limit>, request: &Request) -> Option<Over> {
        let status = self.status.lock();
        let waited = sent.elapsed();
        let is_late = waited >= REPLY_WAIT
            || limit.is_some_and(|limit| {
                waited >= limit.reply_wait && status.left(limit, request).is_zero()
            });
        if status.is_stopped { Some(Over::Stopped) } else { is_late.then_some(Over::Late) }
    }

    /// Returns the limit of requests like `request`, of which the caller waits no longer than `wait` for an answer.
    fn limit_of(&self, request: &Request, wait: Option<Duration>) -> Option<Limit> {
        // An outage that lasts is not waited for anew by each request.
        let begun = || self.status.lock().troubles.since(request).unwrap_or_else(Instant::now);
        wait.map(|wait| Limit { begun: begun(), wait, reply_wait: wait })
    }

    /// Returns `limit`, or that of reads at the end of a mount if less is left of it.
    fn tighter(&self, limit: Option<Limit>, request: &Request) -> Option<Limit> {
        let status = self.status.lock();
        let of_reads = status.reads.filter(|_| matches!(request, Request::GetPart(_)));
        limit.into_iter().chain(of_reads).min_by_key(|limit| status.left(*limit, request))
    }

    /// Sends requests until each has a useful reply, or the store has told nothing for `wait`, if that is not `None`. All are of one kind.
    fn repeat(
        &self,
        requests: &[(Request, &[u8])],
        is_useful: impl Fn(&Reply) -> bool,
        wait: Option<Duration>,
    ) -> Result<Vec<Reply>, Stopped> {
        let Some((first, _)) = requests.first() else { return Ok(Vec::new()) };
        let of_caller = self.limit_of(first, wait);
        // Since when nothing was useful.
        let (mut since, mut was_refused, mut attempts) = (Instant::now(), false, 0);
        let mut replies = vec![None; requests.len()];
        loop {
            // While the store refuses, one request tells when it does not any more.
            let at_once = if was_refused { 1 } else { AT_ONCE };
            let open = (0..requests.len()).filter(|at| replies[*at].is_none()).take(at_once);
            let open = open.collect::<Vec<_>>();
            if open.is_empty() {
                return Ok(replies.into_iter().flatten().collect());
            }
            let sent = open.iter().map(|at| requests[*at]).collect::<Vec<_>>();
            // The mount may have begun to end meanwhile.
            let limit = self.tighter(of_caller, first);
            let mut worst = None;
            for (at, reply) in open.into_iter().zip(self.attempt(&sent, limit)?) {
                match is_useful(&reply) {
                    true => replies[at] = Some(reply),
                    false => worst = Some(reply),
                }
            }
            match worst {
                None => (since, attempts, was_refused) = (Instant::now(), 0, false),
                Some(reply) => {
                    was_refused = matches!(reply, Reply::Refused(_));
                    let left = match limit {
                        Some(limit) => {
                            // Others of the kind may be answered, and this one never.
                            let alone = if was_refused { 1 } else { WAITS_ALONE };
                            let of_this = (limit.wait * alone).saturating_sub(since.elapsed());
                            self.status.lock().left(limit, first).min(of_this)
                        }
                        None => {
                            self.check_patience(since, was_refused)?;
                            PAUSE_MAX
                        }
                    };
                    if left.is_zero() {
                        return Err(Stopped);
                    }
                    self.pause(attempts, left)?;
                    attempts += 1;
                }
            }
        }
    }

    /// Gives up what has gone wrong since `since`, if it is to be given up.
    fn check_patience(&self, since: Instant, is_refused: bool) -> Result<(), Stopped> {
        let patience = self.status.lock().patience;
        let limit = if is_refused { Some(patience.refusing) } else { patience.unreachable };
        if limit.is_some_and(|limit| since.elapsed() >= limit) { Err(Stopped) } else { Ok(()) }
    }

    /// Waits before another attempt, after `attempts` others that told nothing, at most for `left`.
    fn pause(&self, attempts: u32, left: Duration) -> Result<(), Stopped> {
        let longest = PAUSE_MAX.min(PAUSE_MIN * 2_u32.pow(attempts.min(10)));
        // Many machines that lost a store do not come back at once.
        let part = 0.5 + (RandomState::new().hash_one(attempts) >> 48) as f64 / f64::from(1 << 17);
        let end = Instant::now() + longest.mul_f64(part).min(left);
        let mut status = self.status.lock();
        while !status.is_stopped {
            if self.stopped.wait_until(&mut status, end).timed_out() {
                return Ok(());
            }
        }
        Err(Stopped)
    }
}
