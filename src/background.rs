//! The thread that does the volume's background work: write-back, checkpoints, cleaning.
//!
//! The volume decides what is due in [`Volume::work`]; this thread calls it after every change, and at least once a
//! second. Shell threads announce changes through a [`Waker`], a channel of one token, at the cost of one atomic
//! load for a change that is announced already. After [`Waker::rest`] the thread does nothing until the next
//! change. Between two steps it adjusts how much dirty data the kernel may hold ([`BackingDevice`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, Sender, TryRecvError};
use crossbeam::select;
use parking_lot::{Mutex, MutexGuard};
use sfs_core::Volume;
use sfs_core::request::Work;

use crate::bdi::BackingDevice;
use crate::file_clock;
use crate::mounted_volume::MountedVolume;
use crate::unsafe_calls;

/// Longest time between two steps.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time between two returns of free memory to the system. The return of memory that is needed again
/// soon would cost more than it saves.
const RETURN_MEMORY_AFTER: Duration = Duration::from_secs(10);

/// Time between two returns while the allocator has much free memory.
const RETURN_MUCH_AFTER: Duration = Duration::from_secs(1);

/// Number of free bytes of the allocator that counts as much free memory.
const MUCH_FREE_BYTES: usize = 4 << 20;

/// Time between a step that failed and the next.
const PAUSE_FAILED: Duration = Duration::from_secs(5);

/// Wakes the background thread, and lets it rest.
#[derive(Debug)]
pub(crate) struct Waker {
    has_changed: AtomicBool,
    /// `true` if no work is due before the next change.
    is_resting: AtomicBool,
    /// Held while the two flags change together.
    flags: Mutex<()>,
    /// Held during a step.
    step: Mutex<()>,
    wake: Sender<()>,
    woken: Receiver<()>,
}

impl Default for Waker {
    fn default() -> Self {
        let (wake, woken) = channel::bounded(1);
        let (has_changed, is_resting) = (AtomicBool::default(), AtomicBool::default());
        Self {
            has_changed,
            is_resting,
            flags: Mutex::default(),
            step: Mutex::default(),
            wake,
            woken,
        }
    }
}

impl Waker {
    /// Announces a change. An announcement is cheap while an earlier change is not yet handled.
    pub(crate) fn note(&self) {
        if !self.has_changed.load(Ordering::Relaxed)
            && !self.has_changed.swap(true, Ordering::Relaxed)
        {
            let flags = self.flags.lock();
            self.is_resting.store(false, Ordering::Relaxed);
            drop(flags);
            // A full channel wakes the thread as well.
            let _ = self.wake.try_send(());
        }
    }

    /// Announces work that is not worth ending a rest for.
    pub(crate) fn note_idle(&self) {
        if !self.is_resting() {
            self.note();
        }
    }

    /// Begins a rest, which ends with the next change. No step begins while the returned guard lives.
    pub(crate) fn rest(&self) -> MutexGuard<'_, ()> {
        let step = self.step.lock();
        self.begin_rest();
        step
    }

    /// Does the same, unless the present step is not over at `end`.
    pub(crate) fn rest_by(&self, end: Instant) -> Option<MutexGuard<'_, ()>> {
        let step = self.step.try_lock_until(end)?;
        self.begin_rest();
        Some(step)
    }

    fn begin_rest(&self) {
        let _flags = self.flags.lock();
        self.is_resting.store(true, Ordering::Relaxed);
        self.has_changed.store(false, Ordering::Relaxed);
    }

    /// Returns whether no change was announced since [`Waker::rest`].
    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::Relaxed)
    }

    /// Waits for `pause` or the next announcement. With `until_change`, an earlier announcement
    /// that is not yet handled ends the wait as well. Returns whether `stopped` was closed.
    fn wait(&self, pause: Duration, until_change: bool, stopped: &Receiver<()>) -> bool {
        // A token of a change that was handled meanwhile must not shorten the pause. A token that
        // is taken here by mistake leaves `has_changed` set, for the check below.
        while self.woken.try_recv().is_ok() {}
        if until_change && self.has_changed.load(Ordering::Relaxed) {
            return is_closed(stopped);
        }
        select! {
            recv(stopped) -> _ => true,
            recv(self.woken) -> _ => is_closed(stopped),
            default(pause) => is_closed(stopped),
        }
    }
}

/// Running background thread.
pub(crate) struct Background {
    /// Closed to end the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts the thread, which also calls `look` after each step.
    pub(crate) fn start(
        volume: Arc<MountedVolume>,
        waker: Arc<Waker>,
        bdi: Arc<BackingDevice>,
        device: String,
        mut look: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel::bounded(0);
        let thread = std::thread::Builder::new()
            .name("sfs-background".into())
            .spawn(move || run(&volume, &waker, &bdi, (&device, &mut look), &stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread after its current step.
    pub(crate) fn stop(self) {
        drop(self.stop);
        self.thread.join().expect("a panic ends the process");
    }
}

fn is_closed(stopped: &Receiver<()>) -> bool {
    matches!(stopped.try_recv(), Err(TryRecvError::Disconnected))
}

fn run(
    mounted: &MountedVolume,
    waker: &Waker,
    bdi: &BackingDevice,
    (device, look): (&str, &mut dyn FnMut()),
    stopped: &Receiver<()>,
) {
    let mut last_reported = LastReported::default();
    let mut is_listening = false;
    let mut memory_returned = MemoryReturned::default();
    loop {
        let volume = mounted.now();
        bdi.adjust(volume.certain_space().available_bytes());
        let outcome = step(&volume, waker);
        look();
        let (pause, until_change) = match outcome {
            None => (Some(PAUSE_MAX), true),
            Some(Ok(Work::More)) => {
                last_reported.clear();
                (None, false)
            }
            // The volume states when its next work is due.
            Some(Ok(Work::Idle(pause))) if pause < PAUSE_MAX => (Some(pause), false),
            // A change during the step did not wake this thread. Changes from here on do, so one more step is needed.
            Some(Ok(Work::Idle(_))) if !is_listening => {
                waker.has_changed.store(false, Ordering::Relaxed);
                is_listening = true;
                continue;
            }
            Some(Ok(Work::Idle(_))) => {
                last_reported.clear();
                (Some(PAUSE_MAX), true)
            }
            Some(Err(error)) => {
                if last_reported.is_news(&error) {
                    let consequence = match volume.has_failed() {
                        true => "the volume is read-only from now on",
                        false => "the remaining data is retried; after damage, run sfs-fsck",
                    };
                    tracing::error!("{device}: {error}; {consequence}");
                }
                (Some(PAUSE_FAILED), false)
            }
        };
        // A pause keeps no state of the volume.
        drop(volume);
        is_listening = false;
        // Memory is also returned between two steps without a pause, because a heavy load leaves
        // the most free memory.
        if !waker.is_resting() {
            memory_returned.return_if_due();
        }
        if let Some(pause) = pause
            && waker.wait(pause, until_change, stopped)
        {
            return;
        }
        if is_closed(stopped) {
            return;
        }
    }
}

/// Time of the last return of free memory to the system.
struct MemoryReturned(Instant);

impl Default for MemoryReturned {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl MemoryReturned {
    fn return_if_due(&mut self) {
        let ago = self.0.elapsed();
        let is_due = ago >= RETURN_MEMORY_AFTER
            || ago >= RETURN_MUCH_AFTER && unsafe_calls::free_memory_bytes() >= MUCH_FREE_BYTES;
        if is_due {
            unsafe_calls::return_free_memory();
            self.0 = Instant::now();
        }
    }
}

/// Failure that was logged last. The same failure is not logged again until a step succeeds.
#[derive(Debug, Default)]
struct LastReported(Option<String>);

impl LastReported {
    fn is_news(&mut self, error: &sfs_core::Error) -> bool {
        let error = Some(error.to_string());
        let is_news = self.0 != error;
        self.0 = error;
        is_news
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}

/// Does one step; returns `None` while the thread rests.
fn step(volume: &Volume, waker: &Waker) -> Option<sfs_core::Result<Work>> {
    let _step = waker.step.lock();
    (!waker.is_resting()).then(|| volume.work(file_clock::now()))
}

#[cfg(test)]
mod tests {
    use sfs_core::Error;
    use sfs_core::format::{DataLayout, ROOT_INO};
    use sfs_core::request::VolumeOptions;
    use sfs_device::RamDevice;
    use sfs_testkit::ram_volume::{FILE_MODE, caller, format, open};

    use super::*;

    const SHORT: Duration = Duration::from_millis(30);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_failure_is_logged_again_only_after_another_or_a_success() {
        let mut last = LastReported::default();
        assert!(last.is_news(&Error::NoSpace));
        assert!(!last.is_news(&Error::NoSpace));
        assert!(last.is_news(&Error::ReadOnly), "another failure is logged");
        last.clear();
        assert!(last.is_news(&Error::ReadOnly));
    }

    #[test]
    fn a_change_before_or_during_the_wait_ends_it() {
        let (_stop, stopped) = channel::bounded(0);
        let waker = Waker::default();
        waker.note();
        let start = Instant::now();
        assert!(!waker.wait(LONG, true, &stopped));
        waker.has_changed.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SHORT);
                waker.note();
            });
            assert!(!waker.wait(LONG, true, &stopped));
        });
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_change_that_was_announced_before_does_not_shorten_a_pause() {
        let (_stop, stopped) = channel::bounded(0);
        let waker = Waker::default();
        waker.note();
        let start = Instant::now();
        assert!(!waker.wait(SHORT, false, &stopped));
        assert!(start.elapsed() >= SHORT);
    }

    #[test]
    fn stopping_ends_every_wait() {
        let (stop, stopped) = channel::bounded(0);
        drop(stop);
        let waker = Waker::default();
        let start = Instant::now();
        assert!(waker.wait(LONG, true, &stopped) && waker.wait(LONG, false, &stopped));
        assert!(start.elapsed() < LONG);
    }

    /// Regression: the log's thread was woken for what a step had left to it only before the next step, a second later.
    #[test]
    fn the_look_follows_the_step() {
        let device = Arc::new(RamDevice::new(1 << 14));
        format(device.clone(), 256, DataLayout::Log);
        let options = VolumeOptions { commit_interval: Duration::ZERO, ..VolumeOptions::default() };
        let volume = Arc::new(open(device, options));
        volume.make_node(ROOT_INO, b"f", FILE_MODE, 0, &caller()).expect("there is room");
        let before = volume.counters().commits;
        let (sender, looks) = channel::unbounded();
        let looked_at = volume.clone();
        let look = move || _ = sender.send(looked_at.counters().commits);
        let device = "device".to_owned();
        let volume = Arc::new(MountedVolume::new(volume));
        let background = Background::start(volume, Arc::default(), Arc::default(), device, look);
        let background = background.expect("a thread");
        assert!(looks.recv().expect("a look") > before, "the step has committed");
        background.stop();
    }

    #[test]
    fn a_rest_ends_with_a_change_but_not_with_idle_work() {
        let waker = Waker::default();
        drop(waker.rest());
        waker.note_idle();
        assert!(waker.is_resting());
        waker.note();
        assert!(!waker.is_resting());
    }
}
