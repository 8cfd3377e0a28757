//! Several reads of a file at a time, through io_uring.
//!
//! Each thread that reads so has a ring of its own, made by its first call and used by one call at a time. A call hands
//! memory to the kernel, and returns only after the kernel has given all of it back. Where the kernel refuses a ring, as
//! in many containers, callers read run by run.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::block::BLOCK_SIZE;
use crate::device::ReadRun;
use crate::sys::Scatter;

/// Largest number of requests of one thread that are under way.
const DEPTH: u32 = 64;

/// Pause before the next call after the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(10);

/// `true` after the kernel has refused a ring.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// Makes one call for each of `runs`, all together. Returns the number of bytes that each call has read, or its error, as
/// `preadv` would; `None`, without a call, where there is no ring. As long as `turn_bytes` are under way, no call is added.
pub(crate) fn read_together(
    file: &File,
    runs: &mut [ReadRun<'_>],
    turn_bytes: usize,
) -> Option<Vec<io::Result<usize>>> {
    if IS_REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    // Without thread-local storage the thread is ending.
    let read = RING.try_with(|ring| {
        let mut ring = ring.try_borrow_mut().ok()?;
        if ring.is_none() {
            match build() {
                Ok(made) => *ring = Some(made),
                Err(_) => IS_REFUSED.store(true, Ordering::Relaxed),
            }
        }
        Some(exchange(ring.as_mut()?, file, runs, turn_bytes))
    });
    read.ok().flatten()
}

fn build() -> io::Result<IoUring> {
    // Completions are processed by the thread that waits for them; kernels before 6.1 cannot do that.
    let fast = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(DEPTH);
    fast.or_else(|_| IoUring::new(DEPTH))
}

/// Submits the runs and waits for all of them.
fn exchange(
    ring: &mut IoUring,
    file: &File,
    runs: &mut [ReadRun<'_>],
    turn_bytes: usize,
) -> Vec<io::Result<usize>> {
    let offsets: Vec<u64> = runs.iter().map(|run| run.address * BLOCK_SIZE as u64).collect();
    let lengths = runs.iter().map(|run| run.block_count() as usize * BLOCK_SIZE);
    let lengths: Vec<usize> = lengths.collect();
    let mut lists: Vec<Scatter<'_>> =
        runs.iter_mut().map(|run| Scatter::new(&mut run.parts)).collect();
    let mut results: Vec<io::Result<usize>> = lists.iter().map(|_| Ok(0)).collect();
    let (mut submitted, mut under_way, mut bytes_under_way) = (0, 0, 0);
    while submitted < lists.len() || under_way > 0 {
        while submitted < lists.len() && under_way < DEPTH && bytes_under_way < turn_bytes.max(1) {
            let vectors = lists[submitted].next_vectors();
            let entry = opcode::Readv::new(
                types::Fd(file.as_raw_fd()),
                vectors.as_ptr(),
                vectors.len() as u32,
            )
            .offset(offsets[submitted])
            .build()
            .user_data(submitted as u64);
            // SAFETY: the vectors are those of `lists`, and cover memory that `lists` borrows exclusively. Neither is touched
            // before this function returns, which it does not before the completion of every request: the loop ends
            // with `under_way` 0, nothing in it panics, and `wait` does not return an error. `file` stays open as long.
            if unsafe { ring.submission().push(&entry) }.is_err() {
                break;
            }
            bytes_under_way += lengths[submitted];
            submitted += 1;
            under_way += 1;
        }
        wait(ring);
        for completion in ring.completion() {
            under_way -= 1;
            let no = completion.user_data() as usize;
            if let (Some(result), Some(len)) = (results.get_mut(no), lengths.get(no)) {
                *result = outcome(completion.result());
                bytes_under_way -= len;
            }
        }
    }
    results
}

/// Submits what is queued, and waits for a completion.
fn wait(ring: &IoUring) {
    while let Err(error) = ring.submit_and_wait(1) {
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::sleep(PAUSE),
            // The kernel may own memory of the caller, which must not get it back: no answer to this error is safe.
            _ => std::process::abort(),
        }
    }
}

/// Returns the result of a call. A kernel that could not take the call now has read nothing: the caller tries again, as
/// after an interruption.
fn outcome(result: i32) -> io::Result<usize> {
    match result {
        count if count >= 0 => Ok(count as usize),
        error if -error == libc::EAGAIN => Err(ErrorKind::Interrupted.into()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
