//! Several reads of a file at a time, through io_uring.
//!
//! A device has a few rings, made before its threads start, since the daemon's sandbox allows none later. A thread borrows one for
//! a call. A call hands memory to the kernel, and returns only after the kernel has given all of it back. Filters of system calls do
//! not see into a ring, so these take nothing but reads of the device's file. Where the kernel refuses a ring, as in many
//! containers, and where none is free, callers read run by run.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;

use crate::block::{BLOCK_SIZE, Block};
use crate::device::{ReadPart, ReadRun};
use crate::mmap_region::MmapRegion;
use crate::sys::Scatter;

/// Largest number of requests of one thread that are under way.
const DEPTH: u32 = 64;

/// Number of blocks of a ring for those that are read along and not wanted. Each gap has its own: layers that verify what a device
/// has read would see another gap's bytes otherwise.
const SCRAP_BLOCKS: usize = 256;

/// Pause before the next call after the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(10);

/// `IORING_REGISTER_ENABLE_RINGS` of `<linux/io_uring.h>`.
const ENABLE_RINGS: u8 = 12;

/// `IOSQE_FIXED_FILE` of `<linux/io_uring.h>`: the file is one that was registered with the ring.
const FIXED_FILE: u8 = 1;

/// Bytes of one call that are under way at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// As long as these are under way, no request is added.
    pub(crate) bytes: usize,
    /// Bytes that a request costs beside its own.
    pub(crate) request_bytes: usize,
}

/// Rings of a device.
#[derive(Default)]
pub(crate) struct ReadRings {
    free: Mutex<Vec<ReadRing>>,
    requests: AtomicU64,
}

impl std::fmt::Debug for ReadRings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadRings").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl ReadRings {
    /// Makes up to `count` rings for reads of `file`, which the rings keep open. Returns their number: as many as the kernel
    /// allows.
    pub(crate) fn make(&self, file: &File, count: usize) -> usize {
        let made = (0..count).map_while(|_| ReadRing::new(file).ok());
        let mut free = self.free.lock();
        free.extend(made);
        free.len()
    }

    /// Returns the number of requests that rings have served.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Makes one call for each of `runs`, all together. Returns the number of bytes that each call has read. A call that has
    /// failed counts as interrupted: the caller tries again without the ring. `None`, without a call, where no ring is free.
    pub(crate) fn read(
        &self,
        runs: &mut [ReadRun<'_>],
        turn: Turn,
    ) -> Option<Vec<io::Result<usize>>> {
        let mut ring = self.free.lock().pop()?;
        let results = ring.read(runs, turn);
        if !ring.is_broken {
            self.free.lock().push(ring);
        }
        let served = results.iter().filter(|result| result.is_ok()).count();
        self.requests.fetch_add(served as u64, Ordering::Relaxed);
        Some(results)
    }
}

/// A ring, which one thread uses at a time.
struct ReadRing {
    uring: IoUring,
    scrap: MmapRegion,
    is_broken: bool,
}

impl ReadRing {
    /// Makes a ring for reads of `file`, and tries it.
    fn new(file: &File) -> io::Result<Self> {
        let uring = build(file)?;
        let mut ring = Self { uring, scrap: MmapRegion::new(SCRAP_BLOCKS)?, is_broken: false };
        let mut block = Block::zeroed(1);
        let mut runs = [ReadRun { address: 0, parts: vec![ReadPart::Into(&mut block)] }];
        let result = ring.read(&mut runs, Turn { bytes: usize::MAX, request_bytes: 0 }).pop();
        result.unwrap_or(Err(ErrorKind::Unsupported.into()))?;
        Ok(ring)
    }

    /// Reads the runs, as many at a time as there is memory for their gaps.
    fn read(&mut self, runs: &mut [ReadRun<'_>], turn: Turn) -> Vec<io::Result<usize>> {
        let mut results = Vec::with_capacity(runs.len());
        while let Some(rest) = runs.get_mut(results.len()..).filter(|rest| !rest.is_empty()) {
            let count = fitting(rest, self.scrap.len());
            if count == 0 || self.is_broken {
                results.push(Err(ErrorKind::Interrupted.into()));
                continue;
            }
            let group = &mut rest[..count];
            match exchange(&mut self.uring, &mut self.scrap, group, turn) {
                Ok(group) => results.extend(group),
                Err(_) => self.is_broken = true,
            }
        }
        results
    }
}

/// Returns the number of the first runs that skip no more than `scrap_blocks` blocks.
fn fitting(runs: &[ReadRun<'_>], scrap_blocks: usize) -> usize {
    let mut left = scrap_blocks;
    let fits = |run: &&ReadRun<'_>| {
        let rest = left.checked_sub(run.skipped_blocks());
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    runs.iter().take_while(fits).count()
}

fn build(file: &File) -> io::Result<IoUring> {
    let disabled = |is_cooperative| {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled();
        if is_cooperative {
            // Completions are processed by the thread that waits for them; kernels before 5.19 interrupt it.
            builder.setup_coop_taskrun();
        }
        builder.build(DEPTH)
    };
    let ring: IoUring = disabled(true).or_else(|_| disabled(false))?;
    let submitter = ring.submitter();
    submitter.register_files(&[file.as_raw_fd()])?;
    submitter.register_restrictions(&mut [
        Restriction::sqe_op(opcode::Readv::CODE),
        Restriction::sqe_flags_required(FIXED_FILE),
        Restriction::register_op(ENABLE_RINGS),
    ])?;
    submitter.register_enable_rings()?;
    Ok(ring)
}

/// Submits the runs and waits for all of them.
///
/// # Errors
///
/// Errors of io_uring_enter(2) with nothing under way; the ring is not used again.
fn exchange(
    ring: &mut IoUring,
    scrap: &mut [Block],
    runs: &mut [ReadRun<'_>],
    turn: Turn,
) -> io::Result<Vec<io::Result<usize>>> {
    let offsets: Vec<u64> = runs.iter().map(|run| run.address * BLOCK_SIZE as u64).collect();
    let cost = |run: &ReadRun<'_>| {
        (run.block_count() as usize * BLOCK_SIZE).saturating_add(turn.request_bytes)
    };
    let costs: Vec<usize> = runs.iter().map(cost).collect();
    let mut scrap = scrap;
    let list = |run| {
        let run: &mut ReadRun<'_> = run;
        let (own, rest) = std::mem::take(&mut scrap).split_at_mut(run.skipped_blocks());
        scrap = rest;
        Scatter::new(&mut run.parts, own)
    };
    let mut lists: Vec<Scatter<'_>> = runs.iter_mut().map(list).collect();
    let mut results: Vec<io::Result<usize>> = lists.iter().map(|_| Ok(0)).collect();
    let (mut submitted, mut under_way, mut turn_left) = (0, 0, turn.bytes.max(1) as i128);
    while submitted < lists.len() || under_way > 0 {
        while submitted < lists.len() && under_way < DEPTH && turn_left > 0 {
            let vectors = lists[submitted].next_vectors();
            let entry = opcode::Readv::new(types::Fixed(0), vectors.as_ptr(), vectors.len() as u32)
                .offset(offsets[submitted])
                .build()
                .user_data(submitted as u64);
            // SAFETY: the vectors are those of `lists`, and cover memory that `lists` borrows exclusively. Neither is touched
            // before this function returns, which it does not while the kernel has taken a request and not completed it:
            // the loop ends with `under_way` 0, nothing in it panics, and `wait` returns an error only if the kernel has
            // none of the requests that are under way. The ring keeps the file open.
            if unsafe { ring.submission().push(&entry) }.is_err() {
                break;
            }
            turn_left -= costs[submitted] as i128;
            submitted += 1;
            under_way += 1;
        }
        wait(ring, under_way)?;
        for completion in ring.completion() {
            under_way -= 1;
            let no = completion.user_data() as usize;
            if let (Some(result), Some(cost)) = (results.get_mut(no), costs.get(no)) {
                *result = outcome(completion.result());
                turn_left += *cost as i128;
            }
        }
    }
    Ok(results)
}

/// Submits what is queued, and waits for a completion of the requests that are `under_way`.
fn wait(ring: &mut IoUring, under_way: u32) -> io::Result<()> {
    while let Err(error) = ring.submit_and_wait(1) {
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::sleep(PAUSE),
            // The kernel has taken none of them, and takes none without a further call.
            _ if ring.submission().len() == under_way as usize => return Err(error),
            // The kernel may own memory of the caller, which must not get it back: no answer to this error is safe.
            _ => std::process::abort(),
        }
    }
    Ok(())
}

/// Returns the result of a call. What a ring cannot read is read again without it, as after an interruption; a block that the
/// device cannot read is not: it may have tried for half a minute.
fn outcome(result: i32) -> io::Result<usize> {
    match (usize::try_from(result), result.saturating_neg()) {
        (Ok(count), _) if count > 0 => Ok(count),
        (_, number @ (libc::EIO | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ)) => {
            Err(io::Error::from_raw_os_error(number))
        }
        _ => Err(ErrorKind::Interrupted.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_the_device_cannot_read_is_not_read_again() {
        assert_eq!(outcome(4096).ok(), Some(4096));
        let kind = |result| outcome(result).expect_err("an error").kind();
        for refused in [0, -libc::EAGAIN, -libc::EINVAL, -libc::ENOMEM, i32::MIN] {
            assert_eq!(kind(refused), ErrorKind::Interrupted, "{refused}");
        }
        let error = outcome(-libc::EIO).expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn a_ring_takes_reads_of_its_file_only() {
        let file = File::open("/proc/self/exe").expect("a file");
        let mut ring = match build(&file) {
            Ok(ring) => ring,
            Err(error) => return println!("skip: no ring: {error}"),
        };
        let mut byte = [0_u8];
        let vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let own = opcode::Readv::new(types::Fixed(0), &raw const vector, 1).build();
        let other = File::open("/dev/zero").expect("a file");
        let others = opcode::Readv::new(types::Fd(other.as_raw_fd()), &raw const vector, 1).build();
        let written = opcode::Writev::new(types::Fixed(0), &raw const vector, 1).build();
        for (entry, expected) in [
            (own, 1),
            (others, -libc::EACCES),
            (written, -libc::EACCES),
            (opcode::Nop::new().build(), -libc::EACCES),
        ] {
            // SAFETY: the memory outlives the completion.
            unsafe { ring.submission().push(&entry) }.expect("the queue has room");
            ring.submit_and_wait(1).expect("the refusal is a completion");
            let completion = ring.completion().next().expect("a completion");
            assert_eq!(completion.result(), expected);
        }
        let registered = ring.submitter().register_files(&[other.as_raw_fd()]);
        let refused = registered.expect_err("the ring takes no more files").raw_os_error();
        assert_eq!(refused, Some(libc::EACCES));
    }

    #[test]
    fn a_ring_serves_as_many_runs_as_there_is_memory_for_their_gaps() {
        let run = |blocks| ReadRun { address: 0, parts: vec![ReadPart::Skip(blocks)] };
        let runs = [run(3), run(0), run(4), run(2)];
        assert_eq!([9, 8, 7, 3, 2, 0].map(|blocks| fitting(&runs, blocks)), [4, 3, 3, 2, 0, 0]);
    }
}
