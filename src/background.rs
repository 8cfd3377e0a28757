//! The thread that finds the time for the volume's background work.
//!
//! Owns: one thread, waking it, and letting it rest. Between two steps it looks at how much the kernel may hold.
//! Promises: work is asked for at least once a second, and right after something has changed; never
//! while it rests, which the next change ends.
//! Never: decides what is due; the volume does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sfs_core::Volume;
use sfs_core::request::Work;

use crate::attributes::now;
use crate::backing::Backing;

/// Longest time between two steps.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// After a step failed, the next is this far away.
const PAUSE_FAILED: Duration = Duration::from_secs(5);

/// Wakes the thread.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    changed: AtomicBool,
    /// Nothing is to be done before something changes.
    rests: AtomicBool,
    /// Held during a step.
    step: Mutex<()>,
    ended: Mutex<bool>,
    bell: Condvar,
}

impl Alarm {
    /// Something has changed; cheap when that is known already.
    pub(crate) fn note(&self) {
        if !self.changed.load(Ordering::Relaxed) && !self.changed.swap(true, Ordering::Relaxed) {
            let _ended = self.ended.lock();
            self.rests.store(false, Ordering::Relaxed);
            self.bell.notify_one();
        }
    }

    /// Something may be tidied up, for which a rest is not ended.
    pub(crate) fn note_idle(&self) {
        if !self.rests() {
            self.note();
        }
    }

    /// Begins a rest, which the next change ends. No step is taken while what is returned lives.
    pub(crate) fn rest(&self) -> MutexGuard<'_, ()> {
        let step = self.step.lock();
        let _ended = self.ended.lock();
        self.rests.store(true, Ordering::Relaxed);
        self.changed.store(false, Ordering::Relaxed);
        step
    }

    /// Whether nothing has changed since [`Alarm::rest`].
    pub(crate) fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed)
    }

    /// Waits for a change that is new, or for `pause`; says whether the thread is to end.
    fn wait(&self, pause: Duration, until_change: bool) -> bool {
        let mut ended = self.ended.lock();
        if !(*ended || until_change && self.changed.load(Ordering::Relaxed)) {
            self.bell.wait_for(&mut ended, pause);
        }
        *ended
    }
}

/// The running thread.
pub(crate) struct Background {
    alarm: Arc<Alarm>,
    thread: JoinHandle<()>,
}

impl Background {
    pub(crate) fn start(
        volume: Arc<Volume>,
        alarm: Arc<Alarm>,
        backing: Arc<Backing>,
        device: String,
    ) -> io::Result<Self> {
        let alarm_there = alarm.clone();
        let thread = std::thread::Builder::new()
            .name("sfs-background".into())
            .spawn(move || run(&volume, &alarm_there, &backing, &device))?;
        Ok(Self { alarm, thread })
    }

    /// Ends the thread after the step that it is doing.
    pub(crate) fn stop(self) {
        *self.alarm.ended.lock() = true;
        self.alarm.bell.notify_one();
        self.thread.join().expect("a panic ends the process");
    }
}

fn run(volume: &Volume, alarm: &Alarm, backing: &Backing, device: &str) {
    let mut said = Said::default();
    let mut is_listening = false;
    loop {
        backing.tend(volume.space().free_bytes());
        let (pause, until_change) = match step(volume, alarm) {
            None => (Some(PAUSE_MAX), true),
            Some(Ok(Work::More)) => {
                said.over();
                (None, false)
            }
            // Something waits: the volume says when it wants to be asked again.
            Some(Ok(Work::Idle(pause))) if pause < PAUSE_MAX => (Some(pause), false),
            // What changes from here on wakes this thread; what has changed during the step has not.
            Some(Ok(Work::Idle(_))) if !is_listening => {
                alarm.changed.store(false, Ordering::Relaxed);
                is_listening = true;
                continue;
            }
            Some(Ok(Work::Idle(_))) => {
                said.over();
                (Some(PAUSE_MAX), true)
            }
            Some(Err(error)) => {
                if said.is_news(&error) {
                    let since = match volume.has_failed() {
                        true => "the volume is read-only from now on",
                        false => "what waits is tried again; after damage, run sfs-fsck",
                    };
                    tracing::error!("{device}: {error}; {since}");
                }
                (Some(PAUSE_FAILED), false)
            }
        };
        is_listening = false;
        if let Some(pause) = pause
            && alarm.wait(pause, until_change)
        {
            return;
        }
        if *alarm.ended.lock() {
            return;
        }
    }
}

/// The failure that the log knows of. The same one again, step after step, is no news.
#[derive(Debug, Default)]
struct Said(Option<String>);

impl Said {
    fn is_news(&mut self, error: &sfs_core::Error) -> bool {
        let error = Some(error.to_string());
        let is_news = self.0 != error;
        self.0 = error;
        is_news
    }

    fn over(&mut self) {
        self.0 = None;
    }
}

/// One step, unless it is time to rest.
fn step(volume: &Volume, alarm: &Alarm) -> Option<sfs_core::Result<Work>> {
    let _step = alarm.step.lock();
    (!alarm.rests()).then(|| volume.work(now()))
}

#[cfg(test)]
mod tests {
    use sfs_core::Error;

    use super::*;

    #[test]
    fn what_differs_from_the_failure_before_is_said() {
        let mut said = Said::default();
        assert!(said.is_news(&Error::NoSpace));
        assert!(!said.is_news(&Error::NoSpace));
        assert!(said.is_news(&Error::ReadOnly), "the loss after the attempts");
        said.over();
        assert!(said.is_news(&Error::ReadOnly));
    }
}
