//! Freezing a mount, so that its device can be copied: `sfs-ctl freeze`.
//!
//! While the mount is frozen, requests that change something are parked or wait at the gate (`FreezeGate`), reading goes on, the background thread
//! rests, and the device holds a clean volume. A freeze ends by `sfs-ctl thaw`, by its time-out, and when the mount
//! ends. The thread of the time-out belongs to the freeze, and no client has to live on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::background::Waker;
use crate::exit_error::ExitError;
use crate::mounted_volume::MountedVolume;

/// Time-out of a freeze without a given one, in seconds.
pub const FREEZE_SECS_DEFAULT: u64 = 60;

/// Longest time-out of a freeze, in seconds: programs that write hang as long.
pub const FREEZE_SECS_MAX: u64 = 600;

/// Time between two looks whether a frozen mount is still mounted.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Longest wait for the changes that are under way.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Gate of the requests that change the volume.
#[derive(Debug, Default)]
pub(crate) struct FreezeGate {
    is_closed: AtomicBool,
    /// Number of requests beyond the gate.
    inside: AtomicUsize,
    lock: Mutex<()>,
    /// Notified when the gate opens, and when a request leaves while the gate is closed.
    moved: Condvar,
}

/// Request beyond the gate.
pub(crate) struct Change<'a>(&'a FreezeGate);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl FreezeGate {
    /// Waits until the gate is open, and lets the caller make a change as long as the returned value lives.
    pub(crate) fn enter(&self) -> Change<'_> {
        loop {
            if let Some(change) = self.try_enter() {
                return change;
            }
            let mut lock = self.lock.lock();
            while self.is_closed.load(Ordering::SeqCst) {
                self.moved.wait(&mut lock);
            }
        }
    }

    /// Lets the caller make a change as long as the returned value lives, unless the gate is closed.
    pub(crate) fn try_enter(&self) -> Option<Change<'_>> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        // Dropped, and so counted out, if the gate is closed.
        let change = Change(self);
        (!self.is_closed.load(Ordering::SeqCst)).then_some(change)
    }

    /// Returns the change of a caller that was let in, and whose value was forgotten since.
    pub(crate) fn admitted(&self) -> Change<'_> {
        Change(self)
    }

    /// Returns whether changes wait at the gate.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        if self.is_closed.load(Ordering::SeqCst) {
            drop(self.lock.lock());
            self.moved.notify_all();
        }
    }

    /// Closes the gate and waits until no request is beyond it. Returns `false`, with the gate open, if that takes too
    /// long.
    fn close(&self, wait_max: Duration) -> bool {
        self.is_closed.store(true, Ordering::SeqCst);
        let end = Instant::now() + wait_max;
        let mut lock = self.lock.lock();
        while self.inside.load(Ordering::SeqCst) > 0 {
            if self.moved.wait_until(&mut lock, end).timed_out() {
                drop(lock);
                self.open();
                return false;
            }
        }
        true
    }

    fn open(&self) {
        let _lock = self.lock.lock();
        self.is_closed.store(false, Ordering::SeqCst);
        self.moved.notify_all();
    }
}

/// Freezes and thaws one mount.
#[derive(Clone)]
pub(crate) struct Freezer {
    volume: Arc<MountedVolume>,
    waker: Arc<Waker>,
    gate: Arc<FreezeGate>,
    state: Arc<FreezeState>,
    /// Name of the device, for messages.
    device: String,
}

#[derive(Debug, Default)]
struct FreezeState {
    /// Number of the present freeze, from 1 on; `None` if the mount is not frozen.
    frozen: Mutex<Option<u64>>,
    /// Notified when a freeze ends.
    ended: Condvar,
    /// Number of freezes so far.
    count: AtomicUsize,
    /// `true` once the mount ends: it is frozen no more.
    is_over: AtomicBool,
}

/// Reason for the end of a freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThawReason {
    /// A client asked for it.
    Asked,
    /// The time is over.
    TimeOut,
    /// The mount ends.
    Unmount,
}

impl Freezer {
    pub(crate) fn new(volume: Arc<MountedVolume>, waker: Arc<Waker>, device: String) -> Self {
        Self { volume, waker, gate: Arc::default(), state: Arc::default(), device }
    }

    /// Returns the gate that requests for changes have to pass.
    pub(crate) fn gate(&self) -> &FreezeGate {
        &self.gate
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.state.frozen.lock().is_some()
    }

    /// Freezes the mount for at most `timeout`, and no longer than `is_mounted`, which is asked now and then.
    pub(crate) fn freeze(
        &self,
        timeout: Duration,
        is_mounted: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), ExitError> {
        let device = &self.device;
        let mut frozen = self.state.frozen.lock();
        if frozen.is_some() {
            return Err(ExitError::mount(format_args!("{device}: is frozen already")));
        }
        if self.state.is_over.load(Ordering::SeqCst) {
            return Err(ExitError::mount(format_args!("{device}: is being unmounted")));
        }
        if !self.gate.close(CLOSE_WAIT_MAX) {
            return Err(ExitError::mount(format_args!(
                "{device}: a change takes too long; not frozen"
            )));
        }
        let step = self.waker.rest();
        let written = self.volume.now().freeze();
        drop(step);
        let number = self.state.count.fetch_add(1, Ordering::Relaxed) as u64 + 1;
        let started = written
            .map_err(|error| ExitError::mount(format_args!("{device}: {error}")))
            .and_then(|()| {
                let this = self.clone();
                let wait = move || this.thaw_after(number, timeout, is_mounted);
                let thread = std::thread::Builder::new().name("sfs-thaw".into()).spawn(wait);
                thread.map(drop).map_err(|error| {
                    ExitError::system(format_args!("cannot start a thread: {error}"))
                })
            });
        if started.is_err() {
            let _ = self.volume.now().thaw();
            self.gate.open();
            self.waker.note();
            return started;
        }
        *frozen = Some(number);
        tracing::info!("{device}: frozen for at most {} s", timeout.as_secs());
        Ok(())
    }

    /// Thaws the mount. Returns `false` if it was not frozen.
    pub(crate) fn thaw(&self, reason: ThawReason) -> bool {
        let mut frozen = self.state.frozen.lock();
        frozen.is_some() && {
            self.end(&mut frozen, reason);
            true
        }
    }

    /// Thaws the mount, which ends, for good: its last changes must not wait.
    pub(crate) fn end_for_good(&self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.thaw(ThawReason::Unmount);
    }

    fn end(&self, frozen: &mut Option<u64>, reason: ThawReason) {
        let device = &self.device;
        *frozen = None;
        // The volume records the failure, and changes are refused from now on.
        if let Err(error) = self.volume.now().thaw() {
            tracing::error!("{device}: no checkpoint after the freeze: {error}");
        }
        self.gate.open();
        self.waker.note();
        self.state.ended.notify_all();
        match reason {
            ThawReason::Asked => tracing::info!("{device}: thawed"),
            ThawReason::TimeOut => {
                tracing::warn!("{device}: thawed, because the time-out of the freeze has passed");
            }
            ThawReason::Unmount => tracing::warn!("{device}: thawed, because the mount ends"),
        }
    }

    /// Thaws the mount after `timeout`, or once it is not mounted any more, unless freeze `number` ends before. A mount that
    /// was detached ends only when the programs end that wait for the thaw.
    fn thaw_after(&self, number: u64, timeout: Duration, is_mounted: impl Fn() -> bool) {
        let end = Instant::now() + timeout;
        let mut frozen = self.state.frozen.lock();
        while *frozen == Some(number) {
            let look = end.min(Instant::now() + LOOK_EVERY);
            if !self.state.ended.wait_until(&mut frozen, look).timed_out()
                || *frozen != Some(number)
            {
                continue;
            }
            if Instant::now() >= end {
                self.end(&mut frozen, ThawReason::TimeOut);
            } else if !is_mounted() {
                self.end(&mut frozen, ThawReason::Unmount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_keeps_changes_out_until_it_opens() {
        let gate = FreezeGate::default();
        let change = gate.enter();
        assert!(!gate.close(Duration::from_millis(10)), "a change is under way");
        drop(change);
        assert!(gate.close(Duration::from_secs(10)));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _change = gate.enter();
                done.store(true, Ordering::SeqCst);
            });
            assert!(!done.load(Ordering::SeqCst));
            gate.open();
        });
        assert!(done.load(Ordering::SeqCst));
        assert_eq!(gate.inside.load(Ordering::SeqCst), 0);
    }

    /// A change that was let in stays inside until the thread that makes it has done so.
    #[test]
    fn a_change_that_was_let_in_does_not_meet_the_gate_again() {
        let gate = FreezeGate::default();
        std::mem::forget(gate.try_enter().expect("the gate is open"));
        assert!(!gate.close(Duration::from_millis(10)), "a change is under way");
        drop(gate.admitted());
        assert!(gate.close(Duration::from_secs(10)));
        assert!(gate.try_enter().is_none());
        assert_eq!(gate.inside.load(Ordering::SeqCst), 0);
    }
}
