//! The descriptor that requests come out of and answers go into.
//!
//! Owns: reading and writing whole messages, and what the kernel says instead of one.
//! Promises: a message is in one piece; the data of a WRITE, and the room for what a READ wants, begins a page.
//! Never: looks into a message.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};

use zerocopy::IntoBytes;

use crate::abi::{InHeader, WriteIn};
use crate::message::Message;
use crate::page::{PAGE_SIZE, Page};
use crate::sys;

const DOOR: &str = "/dev/fuse";

/// Before the data of a WRITE there are so many bytes.
const FIXED_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// The kernel wants room for at least so much.
const MESSAGE_LEN_MIN: usize = 8192;

/// Memory for one message: the last bytes of its first page, and all that follow.
pub(crate) struct Buffer(Box<[Page]>);

impl Buffer {
    /// For writes of up to `max_write` bytes. Memory that no message has needed is not taken.
    pub(crate) fn new(max_write: u32) -> io::Result<Self> {
        let payload = (max_write as usize).max(MESSAGE_LEN_MIN).div_ceil(PAGE_SIZE);
        Page::several(1 + payload).map(Self)
    }

    fn memory(&mut self) -> &mut [u8] {
        &mut self.0.as_mut_bytes()[PAGE_SIZE - FIXED_LEN..]
    }

    /// The first `len` bytes of what was read; and the pages behind them, for what a READ wants, where the
    /// message does not take more than the first page.
    pub(crate) fn message(&mut self, len: usize) -> (&[u8], &mut [u8]) {
        let memory = self.memory();
        if len > FIXED_LEN {
            return (&memory[..len], &mut []);
        }
        let (front, room) = memory.split_at_mut(FIXED_LEN);
        (&front[..len], room)
    }
}

/// An open /dev/fuse that something is mounted with.
#[derive(Debug)]
pub(crate) struct Door(File);

impl Door {
    pub(crate) fn new(file: File) -> Self {
        Self(file)
    }

    /// Another one to the same mount. Requests that are read from it are answered there, past the
    /// locks of this one, if the kernel can do that.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(DOOR);
        let cloned = opened.and_then(|file| sys::attach(&file, &self.0).map(|()| file));
        cloned.or_else(|_| self.0.try_clone()).map(Self)
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    /// Waits for a message; gives its length, or `None` when nothing is mounted any more.
    pub(crate) fn read(&self, buffer: &mut Buffer) -> io::Result<Option<usize>> {
        loop {
            match (&self.0).read(buffer.memory()) {
                Ok(0) => return Ok(None),
                Ok(len) => return Ok(Some(len)),
                Err(error) => match error.raw_os_error() {
                    // ENOENT: who asked has gone before we could read what.
                    Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => {}
                    Some(libc::ENODEV) => return Ok(None),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Sends a message. That nobody waits for it any more, or that nothing is mounted any more, is
    /// no error.
    pub(crate) fn send(&self, message: &mut Message<'_>) -> io::Result<()> {
        let [head, payload] = message.parts().ok_or(io::ErrorKind::InvalidInput)?;
        let written = match payload {
            [] => (&self.0).write(head),
            _ => (&self.0).write_vectored(&[IoSlice::new(head), IoSlice::new(payload)]),
        };
        match written {
            // The kernel takes a message whole or not at all.
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
    use crate::abi::ReadIn;

    #[test]
    fn the_data_of_a_write_begins_a_page() {
        let mut buffer = Buffer::new(1).expect("memory");
        assert!(buffer.memory().len() >= FIXED_LEN + MESSAGE_LEN_MIN);
        let (message, room) = buffer.message(FIXED_LEN + 1);
        assert_eq!(message[FIXED_LEN..].as_ptr().addr() % PAGE_SIZE, 0);
        assert!(room.is_empty());
    }

    #[test]
    fn what_a_read_wants_begins_a_page() {
        let mut buffer = Buffer::new(1 << 20).expect("memory");
        let (message, room) = buffer.message(size_of::<InHeader>() + size_of::<ReadIn>());
        assert_eq!(message.len(), FIXED_LEN);
        assert_eq!((room.as_ptr().addr() % PAGE_SIZE, room.len()), (0, 1 << 20));
    }
}
