//! An entry of a ring: one request at a time, and its answer.
//!
//! Owns: where the parts of a request and of an answer are in an entry's memory.
//! Promises: a request is one piece, as from the device file; the data of a WRITE, and the room for what a READ
//! wants, begins a page.
//! Never: looks into a request.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, UringHeader, uring};
use crate::arguments::Malformed;
use crate::door::Door;
use crate::message::Message;
use crate::page::{PAGE_SIZE, Page};
use crate::sys::uring::Ring;

/// Bytes of the longest fixed part of a request.
const FIXED_LEN_MAX: usize = 128;

/// An entry, in a ring of its own. The memory begins with a page that has what the kernel writes
/// for us to its beginning, and to its end the fixed parts of a request, in front of the payload.
#[derive(Debug)]
pub(crate) struct Entry {
    ring: Ring,
    /// The request that is answered next; `None` before the first.
    commit_id: Option<u64>,
    queue: u16,
}

impl Entry {
    /// For requests of processor `queue` with payloads of up to `max_write` bytes. Memory that none
    /// has needed is not taken.
    pub(crate) fn new(door: &Door, queue: u16, max_write: u32) -> std::io::Result<Self> {
        let payload = (max_write as usize).div_ceil(PAGE_SIZE).max(2);
        let ring = Ring::new(door.file(), Page::several(1 + payload)?)?;
        Ok(Self { ring, commit_id: None, queue })
    }

    /// The processor whose requests it is for.
    pub(crate) fn queue(&self) -> u16 {
        self.queue
    }

    /// Hands over the answer to the last request, if there was one, and waits for the next. Returns
    /// whether there is one.
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

    /// The request that was fetched; and the pages behind it, for what a READ wants, where the request
    /// does not take more than the first page.
    pub(crate) fn message(&mut self) -> Result<(&[u8], &mut [u8]), Malformed> {
        assemble(self.ring.memory().as_mut_bytes())
    }

    /// Whose request that is, whatever else it says.
    pub(crate) fn unique(&mut self) -> u64 {
        let UringHeader { in_out, .. } = header(self.ring.memory().as_bytes());
        let (header, _) = InHeader::read_from_prefix(in_out.as_bytes()).expect("it is longer");
        header.unique
    }

    /// Puts an answer where the next fetch takes it from. Returns false, and puts nothing, if it is
    /// too long.
    pub(crate) fn put(&mut self, message: &mut Message<'_>) -> bool {
        put(self.ring.memory().as_mut_bytes(), message)
    }

    /// Makes an answer of the first `len` bytes of the room, where they are.
    pub(crate) fn keep(&mut self, unique: u64, len: usize) {
        keep(self.ring.memory().as_mut_bytes(), unique, len);
    }
}

/// Makes one piece of the parts of a request, and gives what is left of the memory behind the first page.
fn assemble(memory: &mut [u8]) -> Result<(&[u8], &mut [u8]), Malformed> {
    let UringHeader { in_out, op_in, payload_sz, .. } = header(memory);
    let (header, _) = InHeader::read_from_prefix(in_out.as_bytes()).expect("it is longer");
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

fn put(memory: &mut [u8], message: &mut Message<'_>) -> bool {
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

fn keep(memory: &mut [u8], unique: u64, len: usize) {
    assert!(len <= memory.len() - PAGE_SIZE, "it is in the room");
    let header = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: 0, unique };
    set_header(memory, header.as_bytes(), len);
}

/// Writes the header of an answer, with `len` bytes behind it.
fn set_header(memory: &mut [u8], header: &[u8], len: usize) {
    let (ours, _) = UringHeader::mut_from_prefix(memory).expect("it is shorter than a page");
    ours.in_out.as_mut_bytes()[..header.len()].copy_from_slice(header);
    ours.payload_sz = len as u32;
}

fn header(memory: &[u8]) -> UringHeader {
    let (header, _) = UringHeader::read_from_prefix(memory).expect("it is shorter than a page");
    header
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::Answer;
    use crate::Errno;

    const PAYLOAD_PAGES: usize = 2;

    fn memory() -> Box<[Page]> {
        Page::several(1 + PAYLOAD_PAGES).expect("memory")
    }

    /// What the kernel does with a request: its header, its first argument, and what follows.
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
        fn a_request_is_what_comes_through_the_device_file(
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
        fn no_bytes_make_it_panic(
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
    fn an_answer_is_a_header_and_what_is_behind_it() {
        let mut memory = memory();
        let bytes = memory.as_mut_bytes();
        for (outcome, error, payload) in [
            (Ok(Answer::Data(vec![7; 5000])), 0, vec![7; 5000]),
            (Ok(Answer::Written(3)), 0, vec![3, 0, 0, 0, 0, 0, 0, 0]),
            (Err(Errno::new(libc::ENOENT)), -libc::ENOENT, vec![]),
        ] {
            assert!(put(bytes, &mut Message::reply(42, &outcome, &[])));
            let ours = header(bytes);
            let (out, _) = OutHeader::read_from_prefix(ours.in_out.as_bytes()).expect("a header");
            assert_eq!((out.unique, out.error), (42, error));
            assert_eq!(out.len as usize, size_of::<OutHeader>() + payload.len());
            assert_eq!(bytes[PAGE_SIZE..][..ours.payload_sz as usize], payload);
        }
    }

    #[test]
    fn an_answer_in_the_room_is_kept_there() {
        let mut memory = memory();
        memory[1].as_mut_bytes().fill(7);
        let bytes = memory.as_mut_bytes();
        for len in [0, 5, PAYLOAD_PAGES * PAGE_SIZE] {
            keep(bytes, 42, len);
            let ours = header(bytes);
            let (out, _) = OutHeader::read_from_prefix(ours.in_out.as_bytes()).expect("a header");
            assert_eq!((out.unique, out.error), (42, 0));
            assert_eq!(out.len as usize, size_of::<OutHeader>() + len);
            assert_eq!(ours.payload_sz as usize, len);
            assert_eq!(bytes[PAGE_SIZE..][..PAGE_SIZE], [7; PAGE_SIZE]);
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_not_put() {
        let mut memory = memory();
        let outcome = Ok(Answer::Data(vec![7; PAYLOAD_PAGES * PAGE_SIZE + 1]));
        assert!(!put(memory.as_mut_bytes(), &mut Message::reply(42, &outcome, &[])));
        assert_eq!(memory.as_bytes(), vec![0; (1 + PAYLOAD_PAGES) * PAGE_SIZE]);
    }
}
