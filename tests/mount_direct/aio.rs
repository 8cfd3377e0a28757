//! Asynchronous requests by io_submit(2), one at a time.
//!
//! A request has completed when the call returns, so its memory is not borrowed any longer.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// `IOCB_CMD_PWRITE` of `linux/aio_abi.h`.
const WRITE: u16 = 1;

/// `struct iocb`, with the low word of each pair first.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    flags: u32,
    command: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_file: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// A context for one request.
pub(crate) struct Context(libc::c_ulong);

impl Context {
    pub(crate) fn new() -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the number of a new context to the target of the pointer.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        checked(made).map(|_| Self(context))
    }

    /// Writes all of `bytes` at `offset`, and waits for the completion.
    pub(crate) fn write_all_at(&self, file: &File, bytes: &[u8], offset: i64) -> io::Result<()> {
        let request = Iocb {
            command: WRITE,
            file: u32::try_from(file.as_raw_fd()).expect("the file is open"),
            buffer: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
            offset,
            ..Iocb::default()
        };
        let requests = [&raw const request];
        // SAFETY: the request is well-formed, and the request and its memory stay valid until the
        // request has completed.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, requests.as_ptr()) })?;
        let mut event = Event::default();
        let no_limit = ptr::null::<libc::timespec>();
        let mut wait = || {
            // SAFETY: there is room for one event.
            checked(unsafe {
                libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut event, no_limit)
            })
        };
        let mut ended = wait();
        while matches!(&ended, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
            ended = wait();
        }
        ended?;
        match checked(event.result)? {
            len if len == bytes.len() as i64 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: no request is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Converts the result of a system call or of a request.
fn checked(result: i64) -> io::Result<i64> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        negative @ ..0 => Err(io::Error::from_raw_os_error((-negative) as i32)),
        result => Ok(result),
    }
}
