//! The thread that writes to the log, and the room that writes wait for.
//!
//! Threads that serve requests leave batches to this thread, and wake it ([`LogWork::note`]). A write for which there is no room
//! waits for the progress of the thread ([`LogWork::wait_for_progress`]). After a step that should have written back and has written nothing no write
//! waits: the volume itself refuses a write that would overrun its memory. While the background thread rests, this one does, too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use sfs_core::Volume;
use sfs_device::{BLOCK_SIZE, FileDevice};

use crate::background::Waker;
use crate::mounted_volume::MountedVolume;

/// Time that a batch may take while programs sync: a sync waits for one batch at most.
const BATCH_TIME: Duration = Duration::from_millis(20);

/// Time that a batch may take otherwise: the first sync after a long time waits for no more.
const BATCH_TIME_IDLE: Duration = Duration::from_millis(100);

/// Smallest bound of a batch in blocks: 256 KiB. With less, a slow device would write more summaries than data.
const BATCH_BLOCKS_MIN: usize = 64;

/// Time after a sync for which batches are as short as for [`BATCH_TIME`].
const SYNC_TIME: Duration = Duration::from_secs(10);

/// Pause after a step that has written nothing; each further one doubles it.
const PAUSE_STUCK: Duration = Duration::from_millis(100);

/// Longest pause: a step on a full volume looks for room in vain.
const PAUSE_STUCK_MAX: Duration = Duration::from_secs(1);

/// Longest wait of a write before it looks for room again: a batch that is built, a thaw, and the end of a file give room without
/// notice.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// State that the thread shares with those that serve requests.
#[derive(Debug)]
pub(crate) struct LogWork {
    state: Mutex<State>,
    /// Wakes the thread.
    wake: Condvar,
    /// Wakes writes that wait.
    moved: Condvar,
    /// `true` while the thread waits for work, or is about to.
    is_idle: AtomicBool,
    /// `true` after a step that should have written back and has written nothing, and when the thread has ended.
    is_stuck: AtomicBool,
    /// Number of steps, which is also larger after each change of `is_stuck`.
    progress: AtomicU64,
    pace: BatchPace,
    /// Held during a step.
    step: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
}

impl LogWork {
    /// Returns the state of a thread that is about to start, for a volume on `device`.
    pub(crate) fn new(device: Option<Arc<FileDevice>>) -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            moved: Condvar::new(),
            is_idle: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            pace: BatchPace::new(device),
            step: Mutex::default(),
        }
    }

    /// Keeps the thread from beginning a step as long as the returned value lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.step.lock()
    }

    /// Does the same, unless the present step is not over at `end`.
    pub(crate) fn hold_by(&self, end: Instant) -> Option<MutexGuard<'_, ()>> {
        self.step.try_lock_until(end)
    }

    /// Wakes the thread if there is work. Called after everything that may leave work: a change, a file that is forgotten, and a
    /// step of the background thread.
    pub(crate) fn note(&self, volume: &Volume) {
        if !volume.is_log_work_due() {
            return;
        }
        // The thread looks for work after it says that it is idle: either it sees this change, or this sees it idle.
        fence(Ordering::SeqCst);
        if self.is_idle.load(Ordering::Relaxed) {
            let _state = self.state.lock();
            self.wake.notify_one();
        }
    }

    /// Notes a sync: batches are short for some time from now on.
    pub(crate) fn note_sync(&self, volume: &Volume) {
        self.pace.note_sync();
        self.pace.apply(volume);
    }

    /// Lets batches be longer again some time after the last sync.
    pub(crate) fn adjust(&self, volume: &Volume) {
        self.pace.apply(volume);
    }

    /// Returns whether a write of `data_len` bytes to file `ino` that has waited for `waited` may go on.
    pub(crate) fn may_write(
        &self,
        volume: &Volume,
        (ino, data_len): (u64, usize),
        waited: Duration,
    ) -> bool {
        self.is_stuck.load(Ordering::Acquire) || volume.has_write_room(ino, data_len, waited)
    }

    /// Returns a number that is larger after each step of the thread.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// Waits until the progress is not `seen` any more, or for some time.
    pub(crate) fn wait_for_progress(&self, volume: &Volume, seen: u64) {
        self.note(volume);
        let mut state = self.state.lock();
        if self.progress() == seen && !state.is_stopped {
            self.moved.wait_for(&mut state, WAIT_MAX);
        }
    }

    fn run(&self, mounted: &MountedVolume, waker: &Waker) {
        let mut pause = PAUSE_STUCK;
        let mut state = self.state.lock();
        while !state.is_stopped {
            self.is_idle.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let volume = mounted.now();
            if waker.is_resting() || !volume.is_log_work_due() {
                // A wait keeps no state of the volume.
                drop(volume);
                self.set_stuck(false);
                self.wake.wait(&mut state);
                continue;
            }
            self.is_idle.store(false, Ordering::Relaxed);
            drop(state);
            self.pace.apply(&volume);
            // Errors are reported by the background's commit, by syncs, and by writes that overrun the memory.
            let step = self.step.lock();
            // A rest may have begun meanwhile. Whoever begins one waits for the present step.
            let has_written = waker.is_resting() || volume.log_step().unwrap_or(false);
            drop(step);
            state = self.state.lock();
            // Work for changes that fails lets writes wait for no longer than before.
            let is_stuck = !has_written && volume.is_write_back_due();
            self.set_stuck(is_stuck);
            if has_written {
                pause = PAUSE_STUCK;
            } else if !state.is_stopped {
                self.pause(&volume, &mut state, pause, is_stuck);
                pause = PAUSE_STUCK_MAX.min(2 * pause);
            }
        }
        self.set_stuck(true);
    }

    /// Pauses after a step that has written nothing. Where only work for changes has failed, data that is to be written back
    /// ends the pause.
    fn pause(
        &self,
        volume: &Volume,
        state: &mut MutexGuard<'_, State>,
        pause: Duration,
        is_stuck: bool,
    ) {
        let end = Instant::now() + pause;
        while !state.is_stopped && (is_stuck || !volume.is_write_back_due()) {
            let look = if is_stuck { end } else { end.min(Instant::now() + WAIT_MAX) };
            self.wake.wait_until(state, look);
            if Instant::now() >= end {
                break;
            }
        }
    }

    /// Notes a step, and whether writes wait from now on. The caller holds the state.
    fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Release);
        self.progress.fetch_add(1, Ordering::AcqRel);
        self.moved.notify_all();
    }
}

/// Length of batches: short while programs sync.
#[derive(Debug)]
struct BatchPace {
    device: Option<Arc<FileDevice>>,
    start: Instant,
    /// Time of the last sync, in milliseconds since `start` and one; 0 without a sync.
    last_sync: AtomicU64,
}

impl BatchPace {
    fn new(device: Option<Arc<FileDevice>>) -> Self {
        Self { device, start: Instant::now(), last_sync: AtomicU64::new(0) }
    }

    fn note_sync(&self) {
        let now = self.start.elapsed().as_millis() as u64;
        self.last_sync.store(now + 1, Ordering::Relaxed);
    }

    fn apply(&self, volume: &Volume) {
        let now = self.start.elapsed().as_millis() as u64;
        let has_synced = match self.last_sync.load(Ordering::Relaxed) {
            0 => false,
            last => now.saturating_sub(last) < SYNC_TIME.as_millis() as u64,
        };
        let speed = self.device.as_ref().and_then(|device| device.write_speed());
        volume.bound_batches(batch_blocks(has_synced, speed));
    }
}

/// Returns the bound of a batch in blocks, on a device that writes `speed` bytes in a second, if that is known.
fn batch_blocks(has_synced: bool, speed: Option<u64>) -> usize {
    let Some(speed) = speed else { return usize::MAX };
    let time = if has_synced { BATCH_TIME } else { BATCH_TIME_IDLE };
    let bytes = u128::from(speed) * time.as_millis() / 1000;
    usize::try_from(bytes / BLOCK_SIZE as u128).unwrap_or(usize::MAX).max(BATCH_BLOCKS_MIN)
}

/// The thread, running.
pub(crate) struct LogThread {
    work: Arc<LogWork>,
    thread: JoinHandle<()>,
}

impl LogThread {
    /// Starts the thread, which rests while `waker` lets the background thread rest.
    pub(crate) fn start(
        volume: Arc<MountedVolume>,
        work: Arc<LogWork>,
        waker: Arc<Waker>,
    ) -> io::Result<Self> {
        let shared = work.clone();
        let thread = std::thread::Builder::new().name("sfs-log-writer".into());
        let thread = thread.spawn(move || shared.run(&volume, &waker))?;
        Ok(Self { work, thread })
    }

    /// Ends the thread after its current step. No write waits from then on.
    pub(crate) fn stop(self) {
        let mut state = self.work.state.lock();
        state.is_stopped = true;
        self.work.wake.notify_one();
        drop(state);
        self.thread.join().expect("a panic ends the process");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sfs_core::format::{DataLayout, ROOT_INO};
    use sfs_core::request::VolumeOptions;
    use sfs_device::RamDevice;
    use sfs_testkit::ram_volume::{FILE_MODE, caller, format, open};

    use super::*;

    /// Makes names until changes of metadata ask the log's thread for work, and wakes nobody.
    pub(crate) fn leave_work(volume: &Volume) {
        let mut no = 0;
        while !volume.is_log_work_due() {
            let name = format!("name-{no}");
            let made = volume.make_node(ROOT_INO, name.as_bytes(), FILE_MODE, 0, &caller());
            made.expect("there is room");
            no += 1;
        }
    }

    /// Waits until another thread has made `condition` true.
    pub(crate) fn wait_until(condition: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < end, "nothing has happened for a minute");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Regression: a remount to read-only reported rest, and then the thread wrote what was left to it.
    #[test]
    fn nothing_is_written_during_a_rest() {
        let device = Arc::new(RamDevice::new(1 << 14));
        format(device.clone(), 256, DataLayout::Log);
        let options = VolumeOptions { has_log_thread: true, ..VolumeOptions::default() };
        let volume = Arc::new(open(device, options));
        let (work, waker) = (Arc::new(LogWork::new(None)), Arc::new(Waker::default()));
        let mounted = Arc::new(MountedVolume::new(volume.clone()));
        let thread = LogThread::start(mounted, work.clone(), waker.clone());
        let thread = thread.expect("a thread");
        wait_until(|| work.progress() > 0);
        leave_work(&volume);
        drop((waker.rest(), work.hold()));
        let written = || volume.counters().device_bytes_written;
        let (before, seen) = (written(), work.progress());
        work.note(&volume);
        wait_until(|| work.progress() > seen);
        assert_eq!(written(), before);
        waker.note();
        work.note(&volume);
        wait_until(|| written() > before);
        thread.stop();
    }

    #[test]
    fn batches_are_short_while_programs_sync_on_a_slow_device() {
        assert_eq!(batch_blocks(false, Some(10 << 20)), 256, "100 ms");
        assert_eq!(batch_blocks(false, Some(1 << 20)), BATCH_BLOCKS_MIN);
        assert_eq!(batch_blocks(true, None), usize::MAX, "nothing is known of the device");
        assert_eq!(batch_blocks(true, Some(1 << 20)), BATCH_BLOCKS_MIN);
        assert_eq!(batch_blocks(true, Some(100 << 20)), 512, "20 ms");
    }
}
