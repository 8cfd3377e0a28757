//! Threads that read windows. They start with the first window, and end with the mount.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use sfs_core::Volume;

use super::window::{Memory, Slot};

/// Number of threads. Each waits for the device most of the time, or copies as fast as the memory allows.
const THREADS: usize = 2;

/// A window to be read.
pub(super) struct Job {
    ino: u64,
    start: u64,
    memory: Option<Memory>,
    slot: Arc<Slot>,
}

impl Job {
    pub(super) fn new(ino: u64, start: u64, memory: Memory, slot: Arc<Slot>) -> Self {
        Self { ino, start, memory: Some(memory), slot }
    }

    /// Reads the window, unless its handle has gone, or goes meanwhile, or the mount ends.
    fn run(mut self, volume: &Volume, is_over: &AtomicBool) {
        let is_wanted = || Arc::strong_count(&self.slot) > 1 && !is_over.load(Ordering::Relaxed);
        let Some(memory) = self.memory.take() else { return };
        if is_wanted() {
            self.slot.fill(memory, volume, (self.ino, self.start), &is_wanted);
        } else {
            self.slot.abandon();
        }
    }
}

impl Drop for Job {
    /// A job that nobody has run leaves no reader waiting.
    fn drop(&mut self) {
        self.slot.abandon();
    }
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    /// Set while `jobs` is locked.
    is_over: AtomicBool,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
}

impl Queue {
    /// Waits for the next job; `None` at the end of the mount.
    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        let is_over = || self.is_over.load(Ordering::Relaxed);
        self.changed.wait_while(&mut jobs, |jobs| jobs.waiting.is_empty() && !is_over());
        if is_over() { None } else { jobs.waiting.pop_front() }
    }
}

/// The threads.
pub(super) struct Workers {
    volume: Arc<Volume>,
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    pub(super) fn new(volume: Arc<Volume>) -> Self {
        Self { volume, queue: Arc::default(), threads: Mutex::default() }
    }

    /// Has a thread run `job`. Without a thread the job is dropped.
    pub(super) fn push(&self, job: Job) {
        if !self.has_threads() {
            return;
        }
        self.queue.jobs.lock().waiting.push_back(job);
        self.queue.changed.notify_one();
    }

    /// Starts the threads, if there are none; returns whether there is one.
    fn has_threads(&self) -> bool {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            let start = |number| {
                let (queue, volume) = (self.queue.clone(), self.volume.clone());
                let work = move || {
                    while let Some(job) = queue.next() {
                        job.run(&volume, &queue.is_over);
                    }
                };
                std::thread::Builder::new().name(format!("sfs-ahead-{number}")).spawn(work)
            };
            threads.extend((0..THREADS).map_while(|number| start(number).ok()));
        }
        !threads.is_empty()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let waiting = {
            let mut jobs = self.queue.jobs.lock();
            self.queue.is_over.store(true, Ordering::Relaxed);
            std::mem::take(&mut jobs.waiting)
        };
        drop(waiting);
        self.queue.changed.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // A thread that has panicked has ended the process.
            let _ = thread.join();
        }
    }
}
