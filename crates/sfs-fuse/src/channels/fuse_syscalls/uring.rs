//! A ring of io_uring with one entry, which exchanges commands with a FUSE queue.
//!
//! While a command is under way the kernel owns the ring's memory: [`Ring::memory`] panics, and dropping the ring
//! leaks the memory instead of freeing it.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue};
use zerocopy::{Immutable, IntoBytes};

use crate::channels::page::Page;
use crate::protocol::abi::{UringCmdReq, UringHeader};

/// `IORING_REGISTER_ENABLE_RINGS` of `<linux/io_uring.h>`.
const ENABLE_RINGS: u8 = 12;

/// Entry of the submission queue, `struct io_uring_sqe`, with the fields that a command uses. The crate io-uring
/// has no type for a command with a length.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    cmd_op: u32,
    padding: u32,
    addr: u64,
    len: u32,
    uring_cmd_flags: u32,
    user_data: u64,
    buf_index: u16,
    personality: u16,
    splice_fd_in: i32,
    request: UringCmdReq,
    rest: [u8; 56],
}

const _: () = assert!(size_of::<Submission>() == size_of::<squeue::Entry128>());

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// Ring with one entry, and its memory: a page for a [`UringHeader`], and pages for the payload.
pub(crate) struct Ring {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    // Kept open, as the ring refers to the file by the number of its descriptor.
    channel: File,
    lent: ManuallyDrop<LentMemory>,
    is_lent: bool,
    is_enabled: bool,
}

/// Memory whose addresses are known to the kernel.
struct LentMemory {
    memory: Box<[Page]>,
    parts: Box<[libc::iovec; 2]>,
}

// SAFETY: the addresses in `parts` are those of `memory`, which moves together with `parts`; only the kernel uses
// them.
unsafe impl Send for LentMemory {}

impl Ring {
    /// Makes a ring over `memory`, which must have more than one page. Only the thread that first calls
    /// [`Ring::exchange`] may use it.
    pub(crate) fn new(channel: &File, memory: Box<[Page]>) -> io::Result<Self> {
        let mut memory = memory;
        let (front, payload) = memory.as_mut_bytes().split_at_mut(size_of::<Page>());
        let parts = [&mut front[..size_of::<UringHeader>()], payload]
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        let lent = ManuallyDrop::new(LentMemory { memory, parts: Box::new(parts) });
        Ok(Self {
            uring: build()?,
            channel: channel.try_clone()?,
            lent,
            is_lent: false,
            is_enabled: false,
        })
    }

    /// Returns the memory of the ring.
    ///
    /// # Panics
    ///
    /// If the kernel owns the memory.
    pub(crate) fn memory(&mut self) -> &mut [Page] {
        assert!(!self.is_lent, "the kernel owns this memory");
        &mut self.lent.memory
    }

    /// Gives the memory to the kernel with a command, and waits until the kernel returns the
    /// memory. Returns `true` if the memory holds a request, `false` after an unmount.
    pub(crate) fn exchange(&mut self, command: u32, commit_id: u64, qid: u16) -> io::Result<bool> {
        assert!(!self.is_lent, "the kernel owns this memory");
        if !self.is_enabled {
            self.uring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        let parts = &self.lent.parts;
        let submission = Submission {
            opcode: opcode::UringCmd80::CODE,
            flags: 0,
            ioprio: 0,
            fd: self.channel.as_raw_fd(),
            cmd_op: command,
            padding: 0,
            addr: parts.as_ptr().expose_provenance() as u64,
            len: parts.len() as u32,
            uring_cmd_flags: 0,
            user_data: 0,
            buf_index: 0,
            personality: 0,
            splice_fd_in: 0,
            request: UringCmdReq { commit_id, qid, ..UringCmdReq::default() },
            rest: [0; 56],
        };
        // SAFETY: both types are `repr(C)` and have the same size, and any bytes are a valid
        // `Entry128`, the kernel's `struct io_uring_sqe`, which consists of integers and arrays of
        // integers.
        let submission: squeue::Entry128 = unsafe { mem::transmute(submission) };
        self.is_lent = true;
        // SAFETY: until there is a completion the kernel uses `parts`, and the memory to which
        // `parts` refers. While `is_lent` is set that memory cannot be reached through `self`, and
        // neither is freed. `channel` is open as long as the ring exists.
        unsafe { self.uring.submission().push(&submission) }
            .map_err(|_| io::Error::from(ErrorKind::QuotaExceeded))?;
        loop {
            enter(|| self.uring.submit_and_wait(1))?;
            let Some(completion) = self.uring.completion().next() else { continue };
            self.is_lent = false;
            return match -completion.result() {
                0 => Ok(true),
                libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED => Ok(false),
                error => Err(io::Error::from_raw_os_error(error)),
            };
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.is_lent {
            // SAFETY: the memory is dropped only here, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.lent) };
        }
    }
}

/// Pause before the next call after the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(10);

/// Calls `submit_and_wait` until the kernel accepts the call. A signal, or a kernel that lacks
/// memory for a moment, must not end the mount: io_uring_enter(2) then leaves the submission in its
/// queue.
fn enter(mut submit_and_wait: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    loop {
        match submit_and_wait() {
            Ok(_) => return Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::sleep(PAUSE),
                _ => return Err(error),
            },
        }
    }
}

fn build() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    // Completions are processed by the thread that waits for them, which is the thread that enables the ring.
    let ring: IoUring<squeue::Entry128, cqueue::Entry> = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_r_disabled()
        .build(1)?;
    // Filters of system calls do not see into a ring. This one takes nothing but commands, without flags, and once it is enabled
    // nothing can be registered with it.
    let mut allowed =
        [Restriction::sqe_op(opcode::UringCmd80::CODE), Restriction::register_op(ENABLE_RINGS)];
    ring.submitter().register_restrictions(&mut allowed)?;
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_takes_commands_only() {
        let mut ring = match build() {
            Ok(ring) => ring,
            Err(error) => return println!("skip: no ring: {error}"),
        };
        ring.submitter().register_enable_rings().expect("the ring was disabled");
        let nothing = opcode::Nop::new().build().into();
        // SAFETY: the operation uses no memory.
        unsafe { ring.submission().push(&nothing) }.expect("the queue has room");
        ring.submit_and_wait(1).expect("the refusal is a completion");
        let refused = ring.completion().next().expect("a completion");
        assert_eq!(refused.result(), -libc::EACCES);
        let file = File::open("/dev/null").expect("a file");
        let registered = ring.submitter().register_files(&[file.as_raw_fd()]);
        let refused = registered.expect_err("the ring takes no files").raw_os_error();
        assert_eq!(refused, Some(libc::EACCES));
    }

    #[test]
    fn a_kernel_that_lacks_memory_is_asked_again() {
        let mut answers = [libc::EAGAIN, libc::EINTR, libc::EBUSY, libc::ENOMEM].into_iter();
        let calls = answers.len() + 1;
        let mut count = 0;
        let entered = enter(|| {
            count += 1;
            answers.next().map_or(Ok(1), |errno| Err(io::Error::from_raw_os_error(errno)))
        });
        assert!(entered.is_ok() && count == calls, "{entered:?} after {count} calls");
        let refused = enter(|| Err(io::Error::from_raw_os_error(libc::EBADFD)));
        assert_eq!(refused.expect_err("an error").raw_os_error(), Some(libc::EBADFD));
    }
}
