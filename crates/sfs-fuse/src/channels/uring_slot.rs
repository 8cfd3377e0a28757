//! Slots: each has a ring of io_uring of its own, and carries one request at a time and its reply.
//!
//! The kernel splits a request over the memory of a slot; [`UringSlot::message`] joins it to the same bytes as on
//! the device file. The data of a WRITE, and the memory for the data of a READ, begin at a page.

use zerocopy::{FromBytes, IntoBytes};

use crate::channels::fuse_channel::FuseChannel;
use crate::channels::fuse_syscalls::uring::Ring;
use crate::channels::page::{PAGE_SIZE, Page};
use crate::protocol::abi::{InHeader, OutHeader, UringHeader, uring};
use crate::protocol::argument_reader::Malformed;
use crate::protocol::message::Message;

/// Length of the longest fixed part of a request, in bytes.
const FIXED_LEN_MAX: usize = 128;

/// Slot in a ring of its own. The first page of its memory begins with the kernel's header. The
/// fixed parts of a request are copied to the end of that page, in front of the payload.
#[derive(Debug)]
pub(crate) struct UringSlot {
    ring: Ring,
    /// Request to which the next reply belongs; `None` before the first request.
    commit_id: Option<u64>,
    queue: u16,
}

impl UringSlot {
    /// Allocates a slot for requests of processor `queue` with payloads of up to `max_write` bytes. Pages are not
    /// occupied before a request uses them.
    pub(crate) fn new(channel: &FuseChannel, queue: u16, max_write: u32) -> std::io::Result<Self> {
        let payload = (max_write as usize).div_ceil(PAGE_SIZE).max(2);
        let ring = Ring::new(channel.file(), Page::several(1 + payload)?)?;
        Ok(Self { ring, commit_id: None, queue })
    }

    /// Returns the processor whose requests the slot serves.
    pub(crate) fn queue(&self) -> u16 {
        self.queue
    }

    /// Hands over the reply to the last request, if there was one, and waits for the next request.
    /// Returns `false` after an unmount.
    pub(crate) fn fetch(&mut self) -> std::io::Result<bool> {
        let (command, commit_id) = match self.commit_id {
            None => (uring::REGISTER, 0),
            Some(commit_id) => (uring::COMMIT_AND_FETCH, commit_id),
        };
        if !self.ring.exchange(command, commit_id, self.queue)? {
            return Ok(false);
        }
        self.commit_id = Some(header(self.ring.memory().as_bytes()).commit_id);
        Ok(true)
    }

    /// Returns the fetched request, and the pages after it as room for the data of a READ. There is no room if the
    /// request is longer than the first page.
    pub(crate) fn message(&mut self) -> Result<(&[u8], &mut [u8]), Malformed> {
        assemble(self.ring.memory().as_mut_bytes())
    }

    /// Returns the number of the fetched request, whose other parts may be malformed.
    pub(crate) fn unique(&mut self) -> u64 {
        let UringHeader { in_out, .. } = header(self.ring.memory().as_bytes());
        let (header, _) =
            InHeader::read_from_prefix(in_out.as_bytes()).expect("the memory is longer");
        header.unique
    }

    /// Stores a reply for the next fetch. Returns `false`, and stores nothing, if the reply is too
    /// long.
    pub(crate) fn store_reply(&mut self, message: &mut Message<'_>) -> bool {
        store_reply(self.ring.memory().as_mut_bytes(), message)
    }

    /// Makes a reply of the first `len` bytes of the room, without copying them.
    pub(crate) fn reply_in_place(&mut self, unique: u64, len: usize) {
        reply_in_place(self.ring.memory().as_mut_bytes(), unique, len);
    }
}

/// Joins the parts of a request, and returns the request with the unused memory after the first
/// page.
fn assemble(memory: &mut [u8]) -> Result<(&[u8], &mut [u8]), Malformed> {
    let UringHeader { in_out, op_in, payload_sz, .. } = header(memory);
    let (header, _) = InHeader::read_from_prefix(in_out.as_bytes()).expect("the memory is longer");
    let payload_len = payload_sz as usize;
    let fixed_len = (header.len as usize)
        .checked_sub(size_of::<InHeader>() + payload_len)
        .filter(|len| *len <= FIXED_LEN_MAX)
        .ok_or(Malformed::Length)?;
    let (front, behind) =
        memory.split_at_mut_checked(PAGE_SIZE + payload_len).ok_or(Malformed::Length)?;
    let fixed = PAGE_SIZE - fixed_len;
    let start = fixed - size_of::<InHeader>();
    front[start..fixed].copy_from_slice(header.as_bytes());
    front[fixed..PAGE_SIZE].copy_from_slice(&op_in.as_bytes()[..fixed_len]);
    let room = if payload_len == 0 { behind } else { &mut [] };
    Ok((&front[start..], room))
}

fn store_reply(memory: &mut [u8], message: &mut Message<'_>) -> bool {
    let Some([head, payload]) = message.parts() else { return false };
    let (header, fixed) = head.split_at(size_of::<OutHeader>());
    let (front, room) = memory.split_at_mut(PAGE_SIZE);
    let len = fixed.len() + payload.len();
    let Some(room) = room.get_mut(..len) else { return false };
    room[..fixed.len()].copy_from_slice(fixed);
    room[fixed.len()..].copy_from_slice(payload);
    set_header(front, header, len);
    true
}

fn reply_in_place(memory: &mut [u8], unique: u64, len: usize) {
    assert!(len <= memory.len() - PAGE_SIZE, "the data is in the room");
    let header = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: 0, unique };
    set_header(memory, header.as_bytes(), len);
}

/// Writes the header of a reply with `len` bytes of payload.
fn set_header(memory: &mut [u8], header: &[u8], len: usize) {
    let (ours, _) =
        UringHeader::mut_from_prefix(memory).expect("the header is shorter than a page");
    ours.in_out.as_mut_bytes()[..header.len()].copy_from_slice(header);
    ours.payload_sz = len as u32;
}

fn header(memory: &[u8]) -> UringHeader {
    let (header, _) =
        UringHeader::read_from_prefix(memory).expect("the header is shorter than a page");
    header
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::Errno;
    use crate::Reply;

    const PAYLOAD_PAGES: usize = 2;

    fn memory() -> Box<[Page]> {
        Page::several(1 + PAYLOAD_PAGES).expect("memory")
    }

    /// Stores a request as the kernel does: its header, its first argument, and its payload.
    fn lend(memory: &mut [u8], message: &[u8], fixed_len: usize) {
        let (head, payload) = message.split_at(size_of::<InHeader>() + fixed_len);
        let (header, fixed) = head.split_at(size_of::<InHeader>());
        let (ours, _) = UringHeader::mut_from_prefix(memory).expect("a page");
        ours.in_out.as_mut_bytes()[..header.len()].copy_from_slice(header);
        ours.op_in.as_mut_bytes()[..fixed.len()].copy_from_slice(fixed);
        ours.payload_sz = payload.len() as u32;
        memory[PAGE_SIZE..][..payload.len()].copy_from_slice(payload);
    }

    proptest! {
        #[test]
        fn a_joined_request_is_the_same_as_on_the_device_file(
            arguments in vec(any::<u8>(), 0..PAYLOAD_PAGES * PAGE_SIZE),
            split in 0..=FIXED_LEN_MAX,
        ) {
            let len = (size_of::<InHeader>() + arguments.len()) as u32;
            let header = InHeader { len, unique: 42, ..InHeader::default() };
            let message = [header.as_bytes(), &arguments].concat();
            let mut memory = memory();
            lend(memory.as_mut_bytes(), &message, split.min(arguments.len()));
            let (assembled, room) = assemble(memory.as_mut_bytes()).expect("a request");
            prop_assert_eq!(assembled, message);
            let left = if split >= arguments.len() { PAYLOAD_PAGES * PAGE_SIZE } else { 0 };
            prop_assert_eq!(room.len(), left);
        }

        #[test]
        fn no_header_makes_joining_panic(
            len in prop_oneof![any::<u32>(), 0..300_u32, 8000..9000_u32],
            payload_sz in prop_oneof![any::<u32>(), 0..300_u32, 8000..9000_u32],
        ) {
            let mut memory = memory();
            let bytes = memory.as_mut_bytes();
            let header = InHeader { len, ..InHeader::default() };
            let (ours, _) = UringHeader::mut_from_prefix(bytes).expect("a page");
            ours.in_out.as_mut_bytes()[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
            ours.payload_sz = payload_sz;
            match assemble(bytes) {
                Ok((message, _)) => prop_assert_eq!(message.len(), len as usize),
                Err(malformed) => prop_assert_eq!(malformed, Malformed::Length),
            }
        }
    }

    #[test]
    fn a_reply_is_a_header_and_a_payload() {
        let mut memory = memory();
        let bytes = memory.as_mut_bytes();
        for (outcome, error, payload) in [
            (Ok(Reply::Data(vec![7; 5000])), 0, vec![7; 5000]),
            (Ok(Reply::Written(3)), 0, vec![3, 0, 0, 0, 0, 0, 0, 0]),
            (Err(Errno::new(libc::ENOENT)), -libc::ENOENT, vec![]),
        ] {
            assert!(store_reply(bytes, &mut Message::reply(42, &outcome, &[])));
            let ours = header(bytes);
            let (out, _) = OutHeader::read_from_prefix(ours.in_out.as_bytes()).expect("a header");
            assert_eq!((out.unique, out.error), (42, error));
            assert_eq!(out.len as usize, size_of::<OutHeader>() + payload.len());
            assert_eq!(bytes[PAGE_SIZE..][..ours.payload_sz as usize], payload);
        }
    }

    #[test]
    fn a_reply_in_place_is_not_moved() {
        let mut memory = memory();
        memory[1].as_mut_bytes().fill(7);
        let bytes = memory.as_mut_bytes();
        for len in [0, 5, PAYLOAD_PAGES * PAGE_SIZE] {
            reply_in_place(bytes, 42, len);
            let ours = header(bytes);
            let (out, _) = OutHeader::read_from_prefix(ours.in_out.as_bytes()).expect("a header");
            assert_eq!((out.unique, out.error), (42, 0));
            assert_eq!(out.len as usize, size_of::<OutHeader>() + len);
            assert_eq!(ours.payload_sz as usize, len);
            assert_eq!(bytes[PAGE_SIZE..][..PAGE_SIZE], [7; PAGE_SIZE]);
        }
    }

    #[test]
    fn a_reply_that_is_too_long_is_not_stored() {
        let mut memory = memory();
        let outcome = Ok(Reply::Data(vec![7; PAYLOAD_PAGES * PAGE_SIZE + 1]));
        assert!(!store_reply(memory.as_mut_bytes(), &mut Message::reply(42, &outcome, &[])));
        assert_eq!(memory.as_bytes(), vec![0; (1 + PAYLOAD_PAGES) * PAGE_SIZE]);
    }
}
