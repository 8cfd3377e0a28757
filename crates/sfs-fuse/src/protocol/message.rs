//! Messages to the kernel: replies and notifications.
//!
//! A message has two parts, a head of at most `HEAD_LEN_MAX` bytes and a payload that is not copied. The
//! length of the message is filled in when both parts are known.

use zerocopy::{Immutable, IntoBytes};

use crate::protocol::abi::{self, OutHeader};
use crate::protocol::errno::Errno;
use crate::protocol::node_reply::{attr_out, statx_out};
use crate::protocol::reply::Reply;

/// Length of the longest head, in bytes.
const HEAD_LEN_MAX: usize = size_of::<OutHeader>() + size_of::<abi::StatxOut>();

/// Returns the bytes of the reply to request `unique`, to be sent later; without what is put in place.
pub fn reply_bytes<B: AsRef<[u8]>>(unique: u64, outcome: &Result<Reply<B>, Errno>) -> Vec<u8> {
    with_reply(unique, outcome, |parts| parts.concat())
}

/// Passes the same bytes to `then`, in two parts, and returns its result.
pub fn with_reply<B: AsRef<[u8]>, T>(
    unique: u64,
    outcome: &Result<Reply<B>, Errno>,
    then: impl FnOnce([&[u8]; 2]) -> T,
) -> T {
    let mut message = match outcome {
        Ok(Reply::InPlace(_)) => Message::new(unique, -libc::EIO),
        outcome => Message::reply(unique, outcome, &[]),
    };
    then(message.parts().unwrap_or_default())
}

/// Sets the number of the request in the bytes of a reply.
pub(crate) fn set_unique(reply: &mut [u8], unique: u64) -> std::io::Result<()> {
    let at = std::mem::offset_of!(OutHeader, unique);
    let place = reply.get_mut(at..at + size_of::<u64>()).ok_or(std::io::ErrorKind::InvalidData)?;
    place.copy_from_slice(unique.as_bytes());
    Ok(())
}

/// Message to the kernel: a head, and a payload by reference.
pub(crate) struct Message<'a> {
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Makes a message of a header only.
    pub(crate) fn new(unique: u64, error: i32) -> Self {
        let mut message = Self { head: [0; HEAD_LEN_MAX], head_len: 0, payload: &[] };
        message.push(&OutHeader { len: 0, error, unique });
        message
    }

    /// Makes the reply to request `unique`, whose handler was given the buffer `room`.
    ///
    /// # Panics
    ///
    /// If the reply is in place and longer than `room`.
    pub(crate) fn reply<B: AsRef<[u8]>>(
        unique: u64,
        outcome: &'a Result<Reply<B>, Errno>,
        room: &'a [u8],
    ) -> Self {
        match outcome {
            // The session parks the request instead.
            Ok(Reply::Parked(_)) => Self::new(unique, -libc::EIO),
            Ok(answer) => Self::new(unique, 0).with(answer, room),
            Err(errno) => Self::new(unique, -errno.code()),
        }
    }

    /// Appends a fixed part to the head.
    ///
    /// # Panics
    ///
    /// If the head becomes longer than the head of any reply.
    pub(crate) fn push<T: IntoBytes + Immutable>(&mut self, part: &T) {
        let end = self.head_len + size_of::<T>();
        self.head[self.head_len..end].copy_from_slice(part.as_bytes());
        self.head_len = end;
    }

    pub(crate) fn with_payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    fn with_fixed<T: IntoBytes + Immutable>(mut self, part: &T) -> Self {
        self.push(part);
        self
    }

    fn with<B: AsRef<[u8]>>(self, answer: &'a Reply<B>, room: &'a [u8]) -> Self {
        match answer {
            Reply::Done | Reply::Parked(_) => self,
            Reply::Entry(entry) => self.with_fixed(&entry.to_wire()),
            Reply::Created(entry, opened) => {
                self.with_fixed(&entry.to_wire()).with_fixed(&opened.to_wire())
            }
            Reply::Attributes(attributes, ttl) => self.with_fixed(&attr_out(*attributes, *ttl)),
            Reply::Statx(attributes, btime, ttl) => {
                self.with_fixed(&statx_out(*attributes, *btime, *ttl))
            }
            Reply::Opened(opened) => self.with_fixed(&opened.to_wire()),
            Reply::Data(data) => self.with_payload(data.as_ref()),
            Reply::InPlace(len) => self.with_payload(&room[..*len]),
            Reply::Length(size) => self.with_fixed(&abi::GetxattrOut { size: *size, padding: 0 }),
            Reply::Written(size) => self.with_fixed(&abi::WriteOut { size: *size, padding: 0 }),
            Reply::Copied(len) => self.with_fixed(&abi::CopyFileRangeOut { bytes_copied: *len }),
            Reply::Directory(directory) => self.with_payload(directory.as_bytes()),
            Reply::Statfs(statfs) => self.with_fixed(&statfs.to_wire()),
            Reply::Offset(offset) => self.with_fixed(&abi::LseekOut { offset: *offset }),
            Reply::Block(block) => self.with_fixed(&abi::BmapOut { block: *block }),
            Reply::Lock { start, end, kind, pid } => {
                let lk = abi::FileLock { start: *start, end: *end, kind: *kind, pid: *pid };
                self.with_fixed(&abi::LkOut { lk })
            }
            Reply::Ioctl(result, data) => {
                let fixed = abi::IoctlOut { result: *result, ..abi::IoctlOut::default() };
                self.with_fixed(&fixed).with_payload(data.as_ref())
            }
            Reply::Events(revents) => {
                self.with_fixed(&abi::PollOut { revents: *revents, padding: 0 })
            }
        }
    }

    /// Returns both parts, with the length in the header; `None` if the length exceeds 32 bits.
    pub(crate) fn parts(&mut self) -> Option<[&[u8]; 2]> {
        let len = u32::try_from(self.head_len.checked_add(self.payload.len())?).ok()?;
        self.head[..size_of::<u32>()].copy_from_slice(len.as_bytes());
        Some([&self.head[..self.head_len], self.payload])
    }
}
