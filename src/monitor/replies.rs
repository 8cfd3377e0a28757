//! Replies to the requests of one program about its mount, in the order of the requests.
//!
//! An unmount may wait for the daemon, and so may reading a program from its mount. The thread that takes requests must see the end of
//! the daemon meanwhile, so each such act has a thread of its own, and another thread sends the replies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use super::messages::{self, MonitorReply, REQUESTS_MAX};
use super::trial::TRIAL_HAS_ENDED;
use crate::exit_error::ExitError;

/// Largest number of acts that are under way, those of programs that have ended included.
const ACTS_MAX: usize = 2 * REQUESTS_MAX;

/// Reason why an act is not done.
const TOO_MANY: &str = "too many requests to the monitor wait for the daemon";

/// Outcome of a request, with a descriptor if there is one.
pub(super) type Outcome = Result<Option<OwnedFd>, ExitError>;

/// Acts that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<()>);

impl UnderWay {
    /// Returns a mark of one more, which lasts as long as the act; `None` if there are too many.
    fn begin(&self) -> Option<Self> {
        (Arc::strong_count(&self.0) <= ACTS_MAX).then(|| self.clone())
    }
}

/// Replies to one program.
pub(super) struct Replies {
    /// The outcomes of its requests, each of which comes at some time.
    queue: SyncSender<Receiver<Outcome>>,
    thread: JoinHandle<()>,
    /// Place for the outcome of the last start of a program.
    trial: Option<SyncSender<Outcome>>,
}

impl Replies {
    /// Starts the thread that replies through `socket`.
    pub(super) fn start(socket: &OwnedFd) -> io::Result<Self> {
        let socket = socket.try_clone()?;
        let (queue, outcomes) = mpsc::sync_channel::<Receiver<Outcome>>(REQUESTS_MAX);
        let reply = move || {
            for outcome in outcomes {
                let ended = |_| Err(ExitError::system("a thread of the monitor has ended"));
                let (reply, descriptor) = match outcome.recv().unwrap_or_else(ended) {
                    Ok(descriptor) => (MonitorReply::Done, descriptor),
                    Err(failure) => (MonitorReply::failed(&failure), None),
                };
                // A program that has ended gets none.
                let _ = messages::send(&socket, &reply, descriptor.as_ref().map(AsFd::as_fd));
            }
        };
        Ok(Self { queue, thread: thread::Builder::new().spawn(reply)?, trial: None })
    }

    /// Replies what was `done`. `false` if the program makes requests without waiting for replies.
    pub(super) fn give(&self, done: Result<(), ExitError>) -> bool {
        let (outcome, later) = mpsc::sync_channel(1);
        let _ = outcome.send(done.map(|()| None));
        self.queue.try_send(later).is_ok()
    }

    /// Replies the outcome of `act`, which has a thread of its own. `false` as [`Replies::give`].
    pub(super) fn give_later(
        &self,
        under_way: &UnderWay,
        act: impl FnOnce() -> Outcome + Send + 'static,
    ) -> bool {
        self.begin(under_way, act).is_some()
    }

    /// Replies the outcome of `start`, which starts a program, or [`Replies::end_trial`]. `false` as [`Replies::give`].
    pub(super) fn give_trial(
        &mut self,
        under_way: &UnderWay,
        start: impl FnOnce() -> Outcome + Send + 'static,
    ) -> bool {
        self.end_trial();
        self.trial = self.begin(under_way, start);
        self.trial.is_some()
    }

    /// Replies to the last start of a program that it was given up, unless its outcome is there.
    pub(super) fn end_trial(&mut self) {
        if let Some(outcome) = self.trial.take() {
            let _ = outcome.try_send(Err(ExitError::system(TRIAL_HAS_ENDED)));
        }
    }

    /// Does `act` in a thread of its own. Returns the place for its outcome; `None` if the queue is full.
    fn begin(
        &self,
        under_way: &UnderWay,
        act: impl FnOnce() -> Outcome + Send + 'static,
    ) -> Option<SyncSender<Outcome>> {
        let (outcome, later) = mpsc::sync_channel(1);
        self.queue.try_send(later).ok()?;
        let Some(mark) = under_way.begin() else {
            let _ = outcome.try_send(Err(ExitError::system(TOO_MANY)));
            return Some(outcome);
        };
        let of_act = outcome.clone();
        let acting = thread::Builder::new().spawn(move || {
            let done = act();
            drop(mark);
            let _ = of_act.try_send(done);
        });
        if let Err(error) = acting {
            let _ = outcome.try_send(Err(ExitError::system(error)));
        }
        Some(outcome)
    }

    /// Waits until all replies are given.
    pub(super) fn finish(self) {
        drop((self.queue, self.trial));
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn failure(socket: &OwnedFd) -> Option<String> {
        match messages::receive(socket).expect("a packet").expect("a reply").0 {
            MonitorReply::Failed { line, .. } => Some(line),
            _ => None,
        }
    }

    #[test]
    fn replies_come_in_the_order_of_requests_and_none_waits_for_a_trial_that_has_ended() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("sockets");
        let mut replies = Replies::start(&ours).expect("a thread");
        let under_way = UnderWay::default();
        let (end, ended) = mpsc::sync_channel::<()>(0);
        assert!(replies.give_later(&under_way, move || {
            ended.recv().expect("the end");
            Err(ExitError::system("first"))
        }));
        assert!(replies.give(Err(ExitError::system("second"))));
        end.send(()).expect("the thread waits");
        assert_eq!(failure(&theirs).as_deref(), Some("first"));
        assert_eq!(failure(&theirs).as_deref(), Some("second"));
        // A trial that ends is replied to, although what it reads never comes.
        let (never, stuck) = mpsc::sync_channel::<()>(0);
        let wait = move || {
            let _ = stuck.recv();
            Ok(None)
        };
        assert!(replies.give_trial(&under_way, wait));
        replies.end_trial();
        assert!(replies.give(Ok(())));
        assert_eq!(failure(&theirs).as_deref(), Some(TRIAL_HAS_ENDED));
        assert_eq!(failure(&theirs), None);
        drop(never);
        replies.finish();
    }

    #[test]
    fn acts_and_requests_have_a_bound() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("sockets");
        let under_way = UnderWay::default();
        let mut ends = Vec::new();
        let mut stuck = || {
            let (end, ended) = mpsc::sync_channel::<()>(0);
            ends.push(end);
            move || {
                let _ = ended.recv();
                Ok(None)
            }
        };
        // Programs that end leave their acts.
        let ended: Vec<_> = (0..ACTS_MAX)
            .map(|_| {
                let replies = Replies::start(&ours).expect("a thread");
                assert!(replies.give_later(&under_way, stuck()));
                replies
            })
            .collect();
        let replies = Replies::start(&ours).expect("a thread");
        assert!(replies.give_later(&under_way, stuck()));
        assert_eq!(failure(&theirs).as_deref(), Some(TOO_MANY));
        drop(ends.split_off(ACTS_MAX - 1));
        assert_eq!(failure(&theirs), None, "one has come to its end");
        assert!(replies.give_later(&under_way, || Ok(None)));
        assert_eq!(failure(&theirs), None);
        // One reply waits, and as many as the queue holds.
        let accepted = (0..2 * REQUESTS_MAX).filter(|_| ended[0].give(Ok(()))).count();
        assert!((REQUESTS_MAX..=REQUESTS_MAX + 1).contains(&accepted), "{accepted}");
        drop(ends);
        ended.into_iter().for_each(Replies::finish);
    }
}
