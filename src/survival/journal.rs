//! The journal: records of changes, references and handles, in the order in which they happen.
//!
//! Changes are executed one at a time, so their records are in the order of their execution. A change is recorded before it is
//! executed, and its reply afterwards: a change whose reply is missing is the last one. A number that the kernel gets is recorded
//! before its reply is sent, and one that it gives back before it is forgotten, so the records have too many references rather than
//! too few.

mod earlier_replies;
mod ending;
mod references;
mod resting;
mod syncs;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use parking_lot::{Condvar, Mutex, MutexGuard};
use sfs_core::format::Timestamp;
use sfs_core::{FileReferences, Volume};
use sfs_fuse::{FuseOperation, FuseRequest, Reply, with_reply};

use super::areas::Areas;
use super::record::{self, Before, Begun, EarlierReply, Given, Outcome};
use crate::file_clock::{self, FixedTime};

/// Bytes of an area that a change leaves to its reply and to references.
const LEFT_BY_CHANGES: usize = 256 << 10;

/// Bytes of an area that references leave to replies.
const LEFT_BY_REFERENCES: usize = 64 << 10;

/// Seconds by which the clock may be behind the last change. Times are counted on until it has caught up; a clock that was set back by
/// more is followed, once no change is recorded any more.
const CLOCK_BEHIND_MAX: i64 = 1;

/// Number of references in a record of all of them.
const REFERENCES_AT_ONCE: usize = 4096;

/// Longest wait for replies that are on their way.
const SENDING_WAIT: Duration = Duration::from_millis(5);

/// Handle that is open: inode, number, and flags of open(2).
pub(crate) type OpenedHandle = (u64, u64, u32);

/// Function that returns the handles that are open now.
pub(crate) type OpenedNow = dyn Fn() -> Vec<OpenedHandle> + Send + std::marker::Sync;

/// Records of a mount.
pub(crate) struct Journal {
    volume: Arc<Volume>,
    opened: Box<OpenedNow>,
    /// Path of the device, for messages.
    name: String,
    /// Held while a change is executed; the time of the last change. Like the state it has cache lines of its own: every request reads
    /// the other fields, and most write to neither.
    changes: CachePadded<Mutex<Timestamp>>,
    state: CachePadded<Mutex<State>>,
    /// Time of the first request that the kernel has not sent to an earlier process; set only once.
    first_new: OnceLock<Instant>,
    /// Notified when an area is full, a reply was sent, and at the end.
    full: Condvar,
    /// Notified when an area was discarded.
    discarded: Condvar,
}

struct State {
    areas: Areas,
    /// Replies that the kernel may not have yet, at most a few: by the numbers of their requests, with the area that has the record.
    unsent: Vec<(u64, u64)>,
    /// Replies of an earlier process, by the numbers of their requests.
    earlier: HashMap<u64, EarlierReply>,
    /// Number of the last request whose change is done; 0 for none.
    last_done: u64,
    /// The same when each sync began that waits, by the numbers of their requests.
    waiting_syncs: HashMap<u64, u64>,
    /// `true` if the current area has a change.
    has_change: bool,
    /// `true` if the older area has one.
    has_older_change: bool,
    /// `true` if nothing may be written.
    is_resting: bool,
    has_given_up: bool,
    is_volume_stopped: bool,
    /// `true` at the end of the thread that commits.
    is_stopped: bool,
}

/// Change that is being executed.
pub(crate) struct Changing<'a> {
    journal: &'a Journal,
    /// `true` if the process that asks may leave suid, sgid and capabilities of the file.
    pub(crate) keeps_privileges: bool,
    _changes: MutexGuard<'a, Timestamp>,
    _time: FixedTime,
}

impl State {
    /// Returns whether no area is discarded any more.
    fn has_ended(&self) -> bool {
        self.has_given_up || self.is_stopped
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Journal {
    /// Returns a journal in `areas`. `last` is the time of the last change that they have, and the number of the last request whose
    /// change is done, or 0.
    pub(crate) fn new(
        (volume, opened): (Arc<Volume>, Box<OpenedNow>),
        name: String,
        areas: Areas,
        (last, last_done): (Timestamp, u64),
    ) -> Self {
        let (unsent, earlier) = (Vec::new(), HashMap::new());
        let has_change = last != Timestamp::default();
        let state = State {
            areas,
            unsent,
            earlier,
            last_done,
            waiting_syncs: HashMap::new(),
            has_change,
            has_older_change: has_change,
            is_resting: false,
            has_given_up: false,
            is_volume_stopped: false,
            is_stopped: false,
        };
        let (full, discarded) = (Condvar::new(), Condvar::new());
        let (changes, state) = (Mutex::new(last).into(), Mutex::new(state).into());
        let first_new = OnceLock::new();
        Self { volume, opened, name, changes, state, first_new, full, discarded }
    }

    /// Returns a duplicate of the descriptor of the memory.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.state.lock().areas.file().try_clone().map(OwnedFd::from)
    }

    /// Begins the change that `message` asks for: waits for the others, and records it with what `before` returns; no other change
    /// comes in between.
    pub(crate) fn begin(&self, message: &[u8], before: impl FnOnce() -> Before) -> Changing<'_> {
        let mut last = self.changes.lock();
        self.leave_rest();
        let before = before();
        // A new file gets the time of the kernel's clock, or the kernel would send another one after the first write. Its number
        // tells whether the log has it, so its time need not.
        let now = if before.new_ino > 0 {
            self.shared_time(&mut last)
        } else {
            self.next_time(&mut last)
        };
        let mut state = self.make_room(message.len() + LEFT_BY_CHANGES);
        let (kind, head) = record::request_head(Begun { now, before });
        self.append(&mut state, kind, [&head, message]);
        state.has_change = true;
        drop(state);
        let time = file_clock::fix(now);
        let keeps_privileges = before.keeps_privileges;
        Changing { journal: self, keeps_privileges, _changes: last, _time: time }
    }

    /// Begins a change that is executed again if the kernel sends it again, between two calls of [`Changing::settle`].
    pub(crate) fn begin_unrecorded(&self) -> Changing<'_> {
        let mut last = self.changes.lock();
        self.leave_rest();
        let time = file_clock::fix(self.next_time(&mut last));
        Changing { journal: self, keeps_privileges: true, _changes: last, _time: time }
    }

    /// Returns the time of the next change, another one than those of all that are recorded.
    fn next_time(&self, last: &mut Timestamp) -> Timestamp {
        let clock = self.clock_now(last);
        *last = clock.max(after(*last));
        *last
    }

    /// Returns the time of the clock for the next change, which others before it may have as well. None after it has.
    fn shared_time(&self, last: &mut Timestamp) -> Timestamp {
        let clock = self.clock_now(last);
        *last = clock.max(*last);
        clock
    }

    /// Returns the time of the clock. If it was set back, no change with a later time is recorded any more, and `last` is reset.
    fn clock_now(&self, last: &mut Timestamp) -> Timestamp {
        let clock = file_clock::now();
        if clock.secs.saturating_add(CLOCK_BEHIND_MAX) < last.secs {
            self.settle(false);
            *last = Timestamp::default();
        }
        clock
    }

    /// Returns the state with room for a record of `len` bytes. The caller executes a change, or keeps others from doing so.
    fn make_room(&self, len: usize) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while !state.has_ended() && !state.areas.has_room(len) {
            if state.areas.has_older() {
                self.discarded.wait(&mut state);
            } else {
                self.switch(&mut state);
            }
        }
        state
    }

    /// Goes on in the other area, which begins with everything that no change tells.
    fn switch(&self, state: &mut State) {
        let references = self.volume.references();
        let mut records = vec![record::all_follow()];
        records.extend(references.chunks(REFERENCES_AT_ONCE).map(|some| {
            let count = |of: &FileReferences| i64::try_from(of.count).unwrap_or(i64::MAX);
            record::references(some.iter().map(|of| (of.ino, count(of))))
        }));
        let linkable = references.iter().filter(|of| of.is_linkable);
        records.push(record::linkable(linkable.map(|of| of.ino)));
        let opened = (self.opened)();
        records.extend(
            opened
                .into_iter()
                .map(|(ino, number, flags)| record::opened(ino, number, flags))
                .map(|(kind, bytes)| (kind, bytes.to_vec())),
        );
        records.extend(state.is_resting.then(|| record::resting(true)));
        if let Err(error) = state.areas.switch(&records) {
            return self.give_up(state, &error);
        }
        state.has_older_change = std::mem::take(&mut state.has_change);
        self.full.notify_one();
    }

    /// Waits until every recorded change is in the log, and no record of one is left; `always` also if there is none now.
    fn settle(&self, always: bool) {
        let mut state = self.state.lock();
        let wait = |state: &mut MutexGuard<'_, State>| {
            while !state.has_ended() && state.areas.has_older() {
                self.discarded.wait(state);
            }
        };
        wait(&mut state);
        state.has_change |= always;
        if !state.has_ended() && state.has_change {
            self.switch(&mut state);
            wait(&mut state);
        }
    }

    fn append<const N: usize>(&self, state: &mut State, kind: u32, parts: [&[u8]; N]) {
        if self.volume.has_failed() {
            self.note_stopped(state);
        }
        if state.has_given_up {
            return;
        }
        if let Err(error) = state.areas.append(kind, parts) {
            self.give_up(state, &error);
        }
    }

    /// Notes that the kernel has the reply to request `unique`.
    pub(crate) fn replied(&self, unique: u64) {
        let mut state = self.state.lock();
        if !state.earlier.is_empty() {
            state.earlier.remove(&unique);
        }
        let before = state.unsent.len();
        state.unsent.retain(|(of, _)| *of != unique);
        if state.unsent.len() < before && state.areas.has_older() {
            self.full.notify_one();
        }
    }

    /// Appends the reply `result` to `request`, with all that the kernel gets by it. There is always room. Inode `synced` has to be
    /// synced before it is sent, unless it is 0.
    fn append_reply(
        &self,
        state: &mut State,
        request: &FuseRequest<'_>,
        (result, synced): (&Outcome<impl AsRef<[u8]>>, u64),
    ) -> Given {
        let given = Given { synced, ..Given::of(number_of(request), result) };
        let (flags, is_unnamed) = match &request.operation {
            FuseOperation::Create(create) => (create.open_flags, false),
            FuseOperation::Tmpfile(create) => (create.open_flags, true),
            FuseOperation::Open { open_flags, .. } => (*open_flags, false),
            _ => (0, false),
        };
        if given.handle > 0 {
            let ino = if given.node > 0 { given.node } else { request.node };
            let (kind, bytes) = record::opened(ino, given.handle, flags);
            self.append(state, kind, [&bytes]);
        }
        if is_unnamed && given.node > 0 {
            let (kind, bytes) = record::linkable([given.node]);
            self.append(state, kind, [&bytes]);
        }
        // Last: without it the change is not complete, whatever else is there.
        let (kind, head) = record::reply_head(given);
        with_reply(given.unique, result, |[fixed, data]| {
            self.append(state, kind, [&head, fixed, data]);
        });
        state.last_done = given.unique;
        given
    }

    /// Waits until an area is full. Returns its number, and whether it has a change; `None` at the end.
    pub(super) fn wait_for_full(&self) -> Option<(u64, bool)> {
        let mut state = self.state.lock();
        while !state.is_stopped && (state.has_given_up || !state.areas.has_older()) {
            self.full.wait(&mut state);
        }
        (!state.is_stopped).then(|| (state.areas.number() - 1, state.has_older_change))
    }

    /// Discards area `number`, whose changes are in the log, once the kernel has its replies.
    pub(super) fn discard(&self, number: u64) {
        let mut state = self.state.lock();
        let is_sending = |state: &State| state.unsent.iter().any(|(_, area)| *area <= number);
        while !state.is_stopped && is_sending(&state) {
            self.full.wait_for(&mut state, SENDING_WAIT);
        }
        self.keep_earlier(&mut state);
        state.areas.discard_older();
        self.discarded.notify_all();
    }

    /// Ends the waits of the thread that commits.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.full.notify_all();
        self.discarded.notify_all();
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }
}

impl Changing<'_> {
    /// Records the reply `result` to `request`, which is not sent yet.
    pub(crate) fn end(self, request: &FuseRequest<'_>, result: &Outcome<impl AsRef<[u8]>>) {
        self.end_with(request, (result, 0));
    }

    /// Records that `request`, a write of `len` bytes, is done but for its sync, of which another record tells.
    pub(crate) fn end_unsynced(self, request: &FuseRequest<'_>, len: u32) {
        let written: Outcome<[u8; 0]> = Ok(Reply::Written(len));
        self.end_with(request, (&written, request.node));
    }

    fn end_with(self, request: &FuseRequest<'_>, result: (&Outcome<impl AsRef<[u8]>>, u64)) {
        let mut state = self.journal.state.lock();
        let unique = self.journal.append_reply(&mut state, request, result).unique;
        let area = state.areas.number();
        state.unsent.push((unique, area));
    }

    /// Waits until every recorded change is in the log, and no record of one is left.
    pub(crate) fn settle(&self) {
        self.journal.settle(false);
    }

    /// Does the same, after a change that was not recorded.
    pub(crate) fn commit(&self) {
        self.journal.settle(true);
    }
}

/// Returns the number of `request`, without the mark of a request that the kernel sends again.
fn number_of(request: &FuseRequest<'_>) -> u64 {
    request.unique & (u64::MAX >> 1)
}

/// Returns the time just after `time`.
fn after(time: Timestamp) -> Timestamp {
    match time.nanos {
        999_999_999.. => Timestamp { secs: time.secs + 1, nanos: 0 },
        nanos => Timestamp { nanos: nanos + 1, ..time },
    }
}
