//! A message to the kernel: a reply or a notification.
//!
//! Owns: its bytes, in two parts.
//! Promises: an answer is one message; its payload is not copied.
//! Never: sends it.

use zerocopy::{Immutable, IntoBytes};

use crate::abi::{self, OutHeader};
use crate::answer::{Answer, attr_out, statx_out};
use crate::errno::Errno;

/// Bytes of the longest answer without a payload.
const HEAD_LEN_MAX: usize = size_of::<OutHeader>() + size_of::<abi::StatxOut>();

/// A message to the kernel: a head, and behind it what is written from where it is.
pub(crate) struct Message<'a> {
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Nothing but a header.
    pub(crate) fn new(unique: u64, error: i32) -> Self {
        let mut message = Self { head: [0; HEAD_LEN_MAX], head_len: 0, payload: &[] };
        message.push(&OutHeader { len: 0, error, unique });
        message
    }

    /// The reply to request `unique`, whose handler was given `room`.
    ///
    /// # Panics
    ///
    /// When the answer is said to be in the room, and longer.
    pub(crate) fn reply<B: AsRef<[u8]>>(
        unique: u64,
        outcome: &'a Result<Answer<B>, Errno>,
        room: &'a [u8],
    ) -> Self {
        match outcome {
            Ok(answer) => Self::new(unique, 0).with(answer, room),
            Err(errno) => Self::new(unique, -errno.code()),
        }
    }

    /// With a fixed part behind what there is.
    ///
    /// # Panics
    ///
    /// When it is longer than every answer has it.
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

    fn with<B: AsRef<[u8]>>(self, answer: &'a Answer<B>, room: &'a [u8]) -> Self {
        match answer {
            Answer::Done => self,
            Answer::Entry(entry) => self.with_fixed(&entry.to_wire()),
            Answer::Created(entry, opened) => {
                self.with_fixed(&entry.to_wire()).with_fixed(&opened.to_wire())
            }
            Answer::Attributes(attributes, ttl) => self.with_fixed(&attr_out(*attributes, *ttl)),
            Answer::Statx(attributes, btime, ttl) => {
                self.with_fixed(&statx_out(*attributes, *btime, *ttl))
            }
            Answer::Opened(opened) => self.with_fixed(&opened.to_wire()),
            Answer::Data(data) => self.with_payload(data.as_ref()),
            Answer::Filled(len) => self.with_payload(&room[..*len]),
            Answer::Length(size) => self.with_fixed(&abi::GetxattrOut { size: *size, padding: 0 }),
            Answer::Written(size) => self.with_fixed(&abi::WriteOut { size: *size, padding: 0 }),
            Answer::Copied(len) => self.with_fixed(&abi::CopyFileRangeOut { bytes_copied: *len }),
            Answer::Directory(directory) => self.with_payload(directory.as_bytes()),
            Answer::Statfs(statfs) => self.with_fixed(&statfs.to_wire()),
            Answer::Offset(offset) => self.with_fixed(&abi::LseekOut { offset: *offset }),
            Answer::Block(block) => self.with_fixed(&abi::BmapOut { block: *block }),
            Answer::Lock { start, end, kind, pid } => {
                let lk = abi::FileLock { start: *start, end: *end, kind: *kind, pid: *pid };
                self.with_fixed(&abi::LkOut { lk })
            }
            Answer::Ioctl(result, data) => {
                let fixed = abi::IoctlOut { result: *result, ..abi::IoctlOut::default() };
                self.with_fixed(&fixed).with_payload(data.as_ref())
            }
            Answer::Events(revents) => {
                self.with_fixed(&abi::PollOut { revents: *revents, padding: 0 })
            }
        }
    }

    /// The two parts, now that the length is known. `None` if the kernel could not count it.
    pub(crate) fn parts(&mut self) -> Option<[&[u8]; 2]> {
        let len = u32::try_from(self.head_len.checked_add(self.payload.len())?).ok()?;
        self.head[..size_of::<u32>()].copy_from_slice(len.as_bytes());
        Some([&self.head[..self.head_len], self.payload])
    }
}
