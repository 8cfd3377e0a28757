//! The handler of a read-only mount of a volume that another machine writes: it goes on from one state of the volume to newer ones.
//!
//! Each state is a volume with a shell of its own, and [`FollowingShell`] passes each request to the shell of now. A request ends on the
//! state that it began on, which lives as long as its last request; no reply has parts of two states. A request that misses an object,
//! because the writer has deleted it, is repeated on the newest state, which is opened for it. What a state does not have answers ESTALE,
//! so that the kernel looks the path up anew.
//!
//! The kernel has cached attributes and content of the state before. After a swap, never before, a thread invalidates all of which an
//! earlier state has told the kernel ([`FollowingShell::invalidate`]), and once more when the last request on such a state has ended.
//! Before that is done, a file that is opened loses its cached content. Names are valid for a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard, RwLock};
use sfs_core::{Error, Volume};
use sfs_fuse::{
    Errno, FuseOperation, FuseRequest, Handler, OpenReplyFlags, Queue, Reply, WaitingChange,
};

use super::dispatch::is_change;
use super::fuse_shell::FuseShell;
use super::kernel_references::KernelReferences;
use super::reply_result::{ReplyBytes, ReplyResult};

/// Largest number of earlier states that serve requests when another one is opened: each has memory of its own.
const STATES_BEFORE_MAX: usize = 2;

/// Opens the newest state of a volume, unless it is the one that was opened last. An error is a line for the user.
pub(crate) type OpenNewer = dyn Fn() -> Result<Option<Arc<Volume>>, String> + Send + Sync;

/// Opens states, one at a time.
pub(crate) struct StateOpener {
    /// The failure that was logged last, until a state is opened.
    logged: Mutex<Option<String>>,
    name: String,
    open: Box<OpenNewer>,
}

/// The newest state, if it is not the one that was opened last. Nobody else opens one as long as this value lives.
pub(crate) struct NewerState<'a> {
    volume: Option<Arc<Volume>>,
    _alone: MutexGuard<'a, Option<String>>,
}

impl StateOpener {
    /// Returns what opens states of the volume `name` by `open`.
    pub(crate) fn new(name: String, open: Box<OpenNewer>) -> Self {
        Self { logged: Mutex::default(), name, open }
    }

    /// Opens the newest state, and logs a failure, unless it is the one before.
    pub(crate) fn open(&self) -> NewerState<'_> {
        let alone = self.logged.lock();
        self.open_alone(alone)
    }

    fn open_alone<'a>(&'a self, mut logged: MutexGuard<'a, Option<String>>) -> NewerState<'a> {
        let (volume, failure) = match (self.open)() {
            Ok(volume) => (volume, None),
            Err(failure) => (None, Some(failure)),
        };
        if failure != *logged {
            match &failure {
                Some(failure) => tracing::warn!(
                    "{}: the newest state cannot be opened: {failure}; the mount goes on with the one that it has",
                    self.name
                ),
                None => tracing::info!("{}: the newest state can be opened again", self.name),
            }
            *logged = failure;
        }
        NewerState { volume, _alone: logged }
    }
}

/// The shells of the states, and what these have in common.
pub(crate) struct FollowingShell {
    states: RwLock<States>,
    opener: Arc<StateOpener>,
    references: KernelReferences,
    /// The last state for which everything was invalidated that the kernel had from those before.
    invalidated: AtomicU64,
    /// Called after each swap; must not wait.
    swapped: Box<dyn Fn() + Send + Sync>,
}

struct States {
    now: Arc<FuseShell>,
    /// Number of the state, from 1 on.
    number: u64,
    /// Earlier ones, which may serve requests to the end.
    before: Vec<Weak<FuseShell>>,
}

impl FollowingShell {
    /// Begins with `shell`, and goes on with the states of `opener`. Calls `swapped` after each swap.
    pub(crate) fn new(
        shell: FuseShell,
        opener: Arc<StateOpener>,
        swapped: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let states = States { now: Arc::new(shell), number: 1, before: Vec::new() };
        Self {
            states: RwLock::new(states),
            opener,
            references: KernelReferences::default(),
            invalidated: AtomicU64::new(1),
            swapped,
        }
    }

    /// Returns the shell of now.
    pub(crate) fn now(&self) -> Arc<FuseShell> {
        self.states.read().now.clone()
    }

    /// Goes on to a newer state, if there is one.
    pub(crate) fn go_on(&self, newer: &NewerState<'_>) -> bool {
        let Some(volume) = &newer.volume else { return false };
        volume.adopt_references(&self.references.all());
        // Nobody else swaps as long as `newer` lives. The one before is dropped without the lock.
        let before = self.now();
        let next = Arc::new(before.on(volume.clone()));
        let mut states = self.states.write();
        states.now = next;
        states.number += 1;
        states.before.push(Arc::downgrade(&before));
        drop(states);
        before.mounted().replace(volume.clone());
        (self.swapped)();
        true
    }

    /// Invalidates by `send` the attributes and the content of all inodes of which the kernel may have something of an earlier state. The
    /// caller holds no lock: the kernel waits for reads that are under way. Returns `false` if requests on an earlier state are under way,
    /// which may tell the kernel more, or reads that may take long: then this is to be called again.
    pub(crate) fn invalidate(&self, send: impl Fn(u64)) -> bool {
        let (number, is_last) = {
            let mut states = self.states.write();
            states.before.retain(|shell| shell.strong_count() > 0);
            (states.number, states.before.is_empty())
        };
        let (told, are_all) = self.references.take_told(number);
        told.into_iter().for_each(send);
        let is_done = is_last && are_all;
        if is_done {
            self.invalidated.fetch_max(number, Ordering::AcqRel);
        }
        is_done
    }

    /// Returns whether so few earlier states serve requests that there is memory for another one.
    pub(crate) fn may_go_on(&self) -> bool {
        let states = self.states.read();
        states.before.iter().filter(|shell| shell.strong_count() > 0).count() < STATES_BEFORE_MAX
    }

    /// Returns the newest state if it is not that of `shell`, of which objects are deleted.
    fn newer_than(&self, shell: &Arc<FuseShell>) -> Option<(Arc<FuseShell>, u64)> {
        let alone = self.opener.logged.lock();
        if Arc::ptr_eq(&self.now(), shell) {
            let newer = self.opener.open_alone(alone);
            if !self.go_on(&newer) {
                return None;
            }
            tracing::info!(
                "{}: the writer has deleted objects of the state that was mounted; the mount goes on with the newest one",
                self.opener.name
            );
        }
        Some(self.chosen())
    }

    /// Returns the shell of now, and the number of its state.
    fn chosen(&self) -> (Arc<FuseShell>, u64) {
        let states = self.states.read();
        (states.now.clone(), states.number)
    }

    /// Serves a request on the state of now, or on the newest one if that of now is deleted in part.
    fn serve(
        &self,
        request: &FuseRequest<'_>,
        mut serve: impl FnMut(&FuseShell) -> ReplyResult,
    ) -> ReplyResult {
        let reads_content = matches!(request.operation, FuseOperation::Read(_));
        let _reading = reads_content.then(|| self.references.read(request.node));
        let (mut shell, mut number) = self.chosen();
        let mut result = serve(&shell);
        // Nothing of a change was done, as the mount is read-only. It has passed the gate, and does not do so twice.
        if is_stale(&result)
            && !is_change(&request.operation)
            && let Some(newest) = self.newer_than(&shell)
        {
            (shell, number) = newest;
            result = serve(&shell);
        }
        if is_missing(&shell, request, &result) {
            if let (FuseOperation::Open { .. }, Ok(Reply::Opened(opened))) =
                (&request.operation, &result)
            {
                // The kernel never closes what it was not given.
                shell.handles.released(request.node, opened.handle);
            }
            result = Err(Errno::new(libc::ESTALE));
        }
        if let Ok(Reply::Opened(opened)) = &mut result
            && self.invalidated.load(Ordering::Acquire) < number
        {
            // The kernel may have content of a state before.
            opened.flags.remove(OpenReplyFlags::KEEP_CACHE);
        }
        self.note(request, &result, number);
        // Not before: what the kernel gets from an old state is noted before the last call of `invalidate` for that state.
        drop(shell);
        result
    }

    /// Notes what the kernel learns from a reply in state `number`.
    fn note(&self, request: &FuseRequest<'_>, result: &ReplyResult, number: u64) {
        match (&request.operation, result) {
            (FuseOperation::Forget { count }, _) => {
                return self.references.forget([(request.node, *count)]);
            }
            (FuseOperation::BatchForget(forgets), _) => {
                return self.references.forget(forgets.iter());
            }
            (FuseOperation::Release(_) | FuseOperation::Releasedir(_), _) | (_, Err(_)) => return,
            (_, Ok(Reply::Entry(entry))) if entry.node > 0 => {
                self.references.refer([entry.node], number);
            }
            (FuseOperation::Readdirplus(_), Ok(Reply::Directory(listing))) => {
                self.references.refer(listing.nodes(), number);
            }
            _ => {}
        }
        self.references.tell(request.node, number);
    }
}

fn is_stale(result: &ReplyResult) -> bool {
    matches!(result, Err(errno) if errno.code() == libc::ESTALE)
}

/// Returns whether the state of `shell` lacks the inode of a request, which the kernel has from another state.
fn is_missing(shell: &FuseShell, request: &FuseRequest<'_>, result: &ReplyResult) -> bool {
    let may_be = match result {
        Err(errno) => errno.code() == libc::ENOENT,
        Ok(Reply::Entry(entry)) => entry.node == 0,
        // The shell opens what it does not look at.
        Ok(Reply::Opened(_)) => true,
        Ok(_) => false,
    };
    may_be && matches!(shell.volume.attributes(request.node), Err(Error::NotFound))
}

impl Handler for FollowingShell {
    type Bytes = ReplyBytes;

    fn answer(&self, request: &FuseRequest<'_>, room: &mut [u8]) -> ReplyResult {
        self.serve(request, |shell| shell.answer(request, room))
    }

    fn answer_parked(
        &self,
        request: &FuseRequest<'_>,
        queue: Queue,
        room: &mut [u8],
    ) -> ReplyResult {
        self.serve(request, |shell| shell.answer_parked(request, queue, room))
    }

    /// Only changes are parked, while the mount is frozen: a read-only volume refuses them in each state. It has nothing to sync.
    fn queue_for(&self, request: &FuseRequest<'_>) -> Option<Queue> {
        if is_change(&request.operation) { self.now().queue_for(request) } else { None }
    }

    fn may_go_on(&self, change: &WaitingChange) -> bool {
        self.now().may_go_on(change)
    }

    fn progress(&self) -> u64 {
        self.now().progress()
    }

    fn wait_for_progress(&self, seen: u64) {
        self.now().wait_for_progress(seen);
    }

    fn end(&self) {
        self.now().end();
    }
}

#[cfg(test)]
mod tests;
