//! Requests of other threads to the worker of a volume, and how long they wait for it.
//!
//! With a worker no thread that serves a request uploads by itself: an upload cannot be left in its middle, since names are bound to bytes, but
//! a wait for it can. Without a worker, as in the simulator, each thread does what it asks for.

use std::cell::Cell;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Failure, ObjectDevice};
use crate::store::{Found, ObjectStore, Part, Stopped};

/// Time between two looks at the store while a thread waits.
const LOOK: Duration = Duration::from_millis(100);

/// Reaction of requests that need a store which does not answer, or refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// Waiting.
    #[default]
    Block,
    /// Reads and flushes fail after this time; what was written stays, and is uploaded later.
    Fail(Duration),
}

thread_local! {
    static READS_MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Calls `request`, whose reads may fail in an outage if [`Outage::Fail`] says so. Others wait: a change that was begun cannot be left.
pub fn with_reads_that_fail<T>(request: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            READS_MAY_FAIL.set(self.0);
        }
    }
    let _restore = Restore(READS_MAY_FAIL.replace(true));
    request()
}

/// Returns whether this thread reads for a request: [`with_reads_that_fail`] has called it.
pub(super) fn is_request() -> bool {
    READS_MAY_FAIL.get()
}

/// Uploads that threads wait for.
#[derive(Debug, Default)]
pub(super) struct Demand {
    asked: Mutex<Asked>,
    /// Notified when an upload is asked for or done, and when the worker ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    has_worker: bool,
    has_ended: bool,
    /// Number of uploads that were asked for.
    last: u64,
    /// The last of them that the worker has seen.
    taken: u64,
    /// Those up to this one are done.
    done: u64,
    /// `true` if much was written: the worker is to upload it, though nobody waits.
    is_hastened: bool,
    /// `true` if one that was not seen yet is a join.
    joins: bool,
    /// Since when there is one that is not done.
    since: Option<Instant>,
    outage: Outage,
    ending: Option<Ending>,
}

/// The use ends, or perhaps does.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// Longest wait of writers for room in the cache.
    limit: Duration,
    /// `None` if it ends for certain.
    until: Option<Instant>,
}

impl Asked {
    /// Returns how long threads wait without a useful reply of the store.
    fn limit(&self, is_flush: bool) -> Option<Duration> {
        match self.outage {
            Outage::Fail(limit) if is_flush => Some(limit),
            // A flush waits for ever, unless the use ends for certain: then nobody waits for its outcome.
            _ if is_flush && !self.is_ending() => None,
            _ => self.ending_now().map(|ending| ending.limit),
        }
    }

    fn take(&mut self) -> Taken {
        self.taken = self.last;
        self.is_hastened = false;
        Taken {
            number: self.last,
            joins: std::mem::take(&mut self.joins),
            is_waited_for: self.done < self.last,
        }
    }

    /// Returns whether there is something that the worker has not seen.
    fn is_due(&self) -> bool {
        self.is_hastened || self.taken < self.last
    }

    /// Returns whether the use ends for certain.
    fn is_ending(&self) -> bool {
        self.ending.is_some_and(|ending| ending.until.is_none())
    }

    fn ending_now(&self) -> Option<Ending> {
        self.ending.filter(|ending| ending.until.is_none_or(|until| Instant::now() < until))
    }
}

/// Requests to the worker.
pub(super) struct Taken {
    number: u64,
    pub(super) joins: bool,
    /// `true` if a thread waits for one of them.
    pub(super) is_waited_for: bool,
}

impl Demand {
    /// Has the worker upload what was written, and waits for nothing.
    pub(super) fn hasten(&self) {
        self.asked.lock().is_hastened = true;
        self.changed.notify_all();
    }

    /// Takes what was asked for.
    pub(super) fn take(&self) -> Taken {
        self.asked.lock().take()
    }

    /// Takes what was asked for, if that is an upload without a join: much was written, or a thread waits.
    pub(super) fn take_upload(&self) -> Option<Taken> {
        let mut asked = self.asked.lock();
        (asked.is_due() && !asked.joins).then(|| asked.take())
    }

    /// Returns whether the worker is to end, after which nothing is written.
    pub(super) fn has_ended(&self) -> bool {
        self.asked.lock().has_ended
    }

    /// Returns whether the use ends for certain.
    pub(super) fn is_ending(&self) -> bool {
        self.asked.lock().is_ending()
    }

    /// Notes that it is done.
    pub(super) fn note_done(&self, taken: &Taken) {
        let mut asked = self.asked.lock();
        asked.done = asked.done.max(taken.number);
        // What was asked for since waits from now on: the store has just done something.
        asked.since = (asked.done < asked.last).then(Instant::now);
        self.changed.notify_all();
    }
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Sets what requests do that need a store which does not answer, or refuses. It counts once there is a worker.
    pub fn set_outage(&self, outage: Outage) {
        self.demand.asked.lock().outage = outage;
    }

    /// Begins to leave uploads to a worker: a thread that calls [`ObjectDevice::wait_for_demand`] and [`ObjectDevice::upload_due`] in turn.
    pub fn begin_worker(&self) {
        self.demand.asked.lock().has_worker = true;
    }

    /// Ends the worker. Threads that wait for it do themselves what they have asked for.
    pub fn end_worker(&self) {
        {
            let mut asked = self.demand.asked.lock();
            (asked.has_worker, asked.has_ended) = (false, true);
        }
        self.demand.changed.notify_all();
    }

    /// Waits until a thread asks for an upload, or much was written, at most for `interval`. Returns `false` once the worker is to end.
    pub fn wait_for_demand(&self, interval: Duration) -> bool {
        let end = Instant::now() + interval;
        let mut asked = self.demand.asked.lock();
        while asked.has_worker && !asked.is_due() {
            if self.demand.changed.wait_until(&mut asked, end).timed_out() {
                break;
            }
        }
        asked.has_worker
    }

    /// Announces that the use perhaps ends within `time`; `None` if it ends for certain, and nobody needs anything else any more. A writer waits no
    /// longer than `limit` for a store that does not answer: the cache takes more than its limit then, so that it has what was written.
    pub fn announce_end(&self, time: Option<Duration>, limit: Duration) {
        let until = time.map(|time| Instant::now() + time);
        self.demand.asked.lock().ending = Some(Ending { limit, until });
        self.demand.changed.notify_all();
    }

    /// Returns how long a read of this thread waits; `None` is for ever.
    pub(super) fn read_wait(&self) -> Option<Duration> {
        match self.demand.asked.lock().outage {
            Outage::Fail(limit) if is_request() => Some(limit),
            _ => None,
        }
    }

    /// Reads parts of objects from the store, no longer than `wait`.
    pub(super) fn read_parts(
        &self,
        parts: &[Part],
        wait: Option<Duration>,
    ) -> Result<Found, Failure> {
        let late = |stopped: Stopped| wait.map_or(stopped.into(), |_| Failure::Late);
        self.store.get_parts(parts, wait).map_err(late)
    }

    /// Has everything uploaded that was written before the call, and joined with `joins`.
    ///
    /// # Errors
    ///
    /// [`Failure::Late`] if the store does not answer: the upload goes on. Any other is final.
    pub(super) fn ask(&self, joins: bool) -> Result<(), Failure> {
        match self.wait_for_worker(joins)? {
            true => Ok(()),
            false if joins => self.join(),
            false => self.upload(),
        }
    }

    /// Asks the worker, and waits for it. Returns `false` if there is none, or it has ended.
    fn wait_for_worker(&self, joins: bool) -> Result<bool, Failure> {
        let mut asked = self.demand.asked.lock();
        if !asked.has_worker {
            return Ok(false);
        }
        asked.last += 1;
        asked.joins |= joins;
        asked.since.get_or_insert_with(Instant::now);
        let number = asked.last;
        self.demand.changed.notify_all();
        while asked.has_worker && asked.done < number {
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if let (Some(limit), Some(since)) = (asked.limit(!joins), asked.since) {
                let since = self.store.last_upload().map_or(since, |upload| upload.max(since));
                if since.elapsed() >= limit {
                    return Err(Failure::Late);
                }
            }
            self.demand.changed.wait_for(&mut asked, LOOK);
        }
        Ok(asked.done >= number)
    }
}
