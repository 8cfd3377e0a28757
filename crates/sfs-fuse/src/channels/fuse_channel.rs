//! The channel to the kernel through the device file `/dev/fuse`, which carries whole messages.
//!
//! [`MessageBuffer`] places a message so that the data of a WRITE, and the room for the data of a READ, begin at a
//! page.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::IntoBytes;

use crate::channels::fuse_syscalls;
use crate::channels::page::{PAGE_SIZE, Page};
use crate::protocol::abi::{InHeader, WriteIn};
use crate::protocol::message::Message;

const FUSE_DEVICE: &str = "/dev/fuse";

/// Number of bytes in front of the data of a WRITE.
const FIXED_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Smallest buffer that the kernel reads into.
const MESSAGE_LEN_MIN: usize = 8192;

/// Memory for one message: the end of its first page, and all following pages.
pub(crate) struct MessageBuffer(Box<[Page]>);

impl MessageBuffer {
    /// Allocates memory for writes of up to `max_write` bytes. Pages are not occupied before a message uses them.
    pub(crate) fn new(max_write: u32) -> io::Result<Self> {
        let payload = (max_write as usize).max(MESSAGE_LEN_MIN).div_ceil(PAGE_SIZE);
        Page::several(1 + payload).map(Self)
    }

    /// Occupies all pages now. A process that is killed while the kernel copies a request into a page that is absent takes the
    /// request with it.
    pub(crate) fn populate(&mut self) {
        self.0.as_mut_bytes().fill(0);
    }

    /// Returns a copy of the message of `len` bytes, in memory of about its length.
    pub(crate) fn copy(&mut self, len: usize) -> io::Result<Self> {
        let payload = u32::try_from(len.saturating_sub(FIXED_LEN)).unwrap_or(u32::MAX);
        let mut copy = Self::new(payload)?;
        copy.memory()[..len].copy_from_slice(&self.memory()[..len]);
        Ok(copy)
    }

    fn memory(&mut self) -> &mut [u8] {
        &mut self.0.as_mut_bytes()[PAGE_SIZE - FIXED_LEN..]
    }

    /// Returns the first `len` bytes as the message, and the pages after the first as room for the data of a READ.
    /// There is no room if the message is longer than the first page.
    pub(crate) fn message(&mut self, len: usize) -> (&[u8], &mut [u8]) {
        let memory = self.memory();
        if len > FIXED_LEN {
            return (&memory[..len], &mut []);
        }
        let (front, room) = memory.split_at_mut(FIXED_LEN);
        (&front[..len], room)
    }
}

/// Attempt to read that nobody ends.
struct ReadGuard(());

/// Open `/dev/fuse` of a mount.
#[derive(Debug)]
pub(crate) struct FuseChannel(File);

impl FuseChannel {
    pub(crate) fn new(file: File) -> Self {
        Self(file)
    }

    /// Opens another channel to the same mount. Requests that are read from the new channel are
    /// answered on it, without the locks of this channel. If the kernel cannot open another
    /// channel, returns one with a duplicate of the descriptor.
    pub(crate) fn another(&self) -> io::Result<Self> {
        self.separate().or_else(|_| self.0.try_clone().map(Self))
    }

    /// Opens another channel as [`FuseChannel::another`] does, or fails. Requests that are read from it end when it is closed, and
    /// those of this channel do not.
    pub(crate) fn separate(&self) -> io::Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(FUSE_DEVICE)?;
        fuse_syscalls::attach(&opened, &self.0)?;
        Ok(Self(opened))
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    /// Waits for a message. Returns its length, or `None` after an unmount.
    pub(crate) fn read(&self, buffer: &mut MessageBuffer) -> io::Result<Option<usize>> {
        self.read_between(buffer, || ReadGuard(()))
    }

    /// Reads as [`FuseChannel::read`] does. `begin` is called before each attempt, and its value dropped after it; a signal ends
    /// an attempt that has found no message.
    pub(crate) fn read_between<G>(
        &self,
        buffer: &mut MessageBuffer,
        begin: impl Fn() -> G,
    ) -> io::Result<Option<usize>> {
        loop {
            let attempt = begin();
            let outcome = (&self.0).read(buffer.memory());
            drop(attempt);
            match outcome {
                Ok(0) => return Ok(None),
                Ok(len) => return Ok(Some(len)),
                Err(error) => match error.raw_os_error() {
                    // ENOENT: the request was interrupted before it was read.
                    Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => {}
                    Some(libc::ENODEV) => return Ok(None),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Returns whether the filesystem was unmounted or the connection aborted. Does not wait.
    pub(crate) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        let ended = PollFlags::ERR | PollFlags::HUP;
        poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().intersects(ended)
    }

    /// Sends a message. A request that was interrupted, or an unmount, is no error.
    pub(crate) fn send(&self, message: &mut Message<'_>) -> io::Result<()> {
        self.send_parts(message.parts().ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// Sends the bytes of a message as [`FuseChannel::send`] does.
    pub(crate) fn send_parts(&self, [head, payload]: [&[u8]; 2]) -> io::Result<()> {
        let written = match payload {
            [] => (&self.0).write(head),
            _ => (&self.0).write_vectored(&[IoSlice::new(head), IoSlice::new(payload)]),
        };
        match written {
            // The kernel takes a message as a whole.
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::abi::ReadIn;

    #[test]
    fn the_data_of_a_write_begins_at_a_page() {
        let mut buffer = MessageBuffer::new(1).expect("memory");
        assert!(buffer.memory().len() >= FIXED_LEN + MESSAGE_LEN_MIN);
        let (message, room) = buffer.message(FIXED_LEN + 1);
        assert_eq!(message[FIXED_LEN..].as_ptr().addr() % PAGE_SIZE, 0);
        assert!(room.is_empty());
    }

    #[test]
    fn the_room_for_a_read_begins_at_a_page() {
        let mut buffer = MessageBuffer::new(1 << 20).expect("memory");
        let (message, room) = buffer.message(size_of::<InHeader>() + size_of::<ReadIn>());
        assert_eq!(message.len(), FIXED_LEN);
        assert_eq!((room.as_ptr().addr() % PAGE_SIZE, room.len()), (0, 1 << 20));
    }
}
