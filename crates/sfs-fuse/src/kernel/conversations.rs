//! Whole conversations, over a socket that keeps messages apart as /dev/fuse does.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use rustix::io::{read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::{FromBytes, IntoBytes};

use super::message;
use crate::abi::{self, InitExt, InitIn, InitOut, OutHeader, opcode};
use crate::{Agreed, Answer, Config, Errno, InitFlags, Operation, Request, Session};

/// The kernel's end.
struct Kernel(OwnedFd);

impl Kernel {
    fn say(&self, bytes: &[u8]) {
        assert_eq!(write(&self.0, bytes).expect("somebody listens"), bytes.len());
    }

    fn ask(&self, opcode: u32, arguments: &[u8]) -> (i32, Vec<u8>) {
        self.say(&message(opcode, 1, arguments, &[]));
        self.hear()
    }

    /// The next answer: its error and what is behind the header.
    fn hear(&self) -> (i32, Vec<u8>) {
        let mut bytes = [0; 8192];
        let len = read(&self.0, &mut bytes).expect("somebody answers");
        let (header, body) = OutHeader::read_from_prefix(&bytes[..len]).expect("a header");
        assert_eq!((header.len as usize, header.unique), (len, 42));
        (header.error, body.to_vec())
    }

    fn shake_hands(&self, major: u32, minor: u32) -> (i32, Vec<u8>) {
        let flags = InitFlags::all().bits();
        let init = InitIn { major, minor, max_readahead: 1 << 17, flags: flags as u32 };
        let ext = InitExt { flags2: (flags >> 32) as u32, unused: [0; 11] };
        self.ask(opcode::INIT, &[init.as_bytes(), ext.as_bytes()].concat())
    }
}

fn answer(request: &Request<'_>, room: &mut [u8]) -> Result<Answer<Vec<u8>>, Errno> {
    match &request.operation {
        // Into the room, as far as there is any, or more than that.
        Operation::Read(read) if read.offset > 0 => {
            let len = room.len().min(read.size as usize);
            room[..len].fill(8);
            Ok(Answer::Filled(read.size as usize))
        }
        Operation::Read(read) => Ok(Answer::Data(vec![7; read.size as usize])),
        Operation::Write(write) => Ok(Answer::Written(write.data.len() as u32)),
        Operation::Destroy | Operation::Forget { .. } => Ok(Answer::Done),
        Operation::Interrupt { unique: 1 } => Err(Errno::new(libc::EAGAIN)),
        Operation::Interrupt { .. } => Ok(Answer::Done),
        _ => Err(Errno::new(libc::ENOENT)),
    }
}

/// Both ends; ours is served in a thread.
fn open() -> (Kernel, JoinHandle<io::Result<Agreed>>) {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (theirs, ours) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair of sockets");
    let serving = std::thread::spawn(move || {
        let session = Session::new(ours, &Config::default())?;
        let agreed = *session.agreed();
        session.run(answer, |_| {}).map(|()| agreed)
    });
    (Kernel(theirs), serving)
}

fn end(kernel: Kernel, serving: JoinHandle<io::Result<Agreed>>) -> io::Result<Agreed> {
    drop(kernel);
    serving.join().expect("no panic")
}

#[test]
fn a_conversation_from_init_to_destroy() {
    let (kernel, serving) = open();
    let (error, body) = kernel.shake_hands(7, 45);
    let out = InitOut::read_from_bytes(&body).expect("a whole answer");
    assert_eq!((error, out.major, out.minor, out.max_write), (0, 7, 45, 128 << 10));

    let read = abi::ReadIn { size: 5000, ..abi::ReadIn::default() };
    assert_eq!(kernel.ask(opcode::READ, read.as_bytes()), (0, vec![7; 5000]));
    for (size, expected) in [(5000, (0, vec![8; 5000])), (u32::MAX, (-libc::EIO, vec![]))] {
        let read = abi::ReadIn { offset: 1, size, ..abi::ReadIn::default() };
        assert_eq!(kernel.ask(opcode::READ, read.as_bytes()), expected);
    }
    let write = abi::WriteIn { size: 3, ..abi::WriteIn::default() };
    let (error, body) = kernel.ask(opcode::WRITE, &[write.as_bytes(), b"abc"].concat());
    assert_eq!((error, &body[..]), (0, abi::WriteOut { size: 3, padding: 0 }.as_bytes()));
    assert_eq!(kernel.ask(opcode::LOOKUP, b"name\0"), (-libc::ENOENT, vec![]));
    assert_eq!(kernel.ask(opcode::DESTROY, &[]), (0, vec![]));

    let agreed = end(kernel, serving).expect("it was unmounted");
    assert_eq!((agreed.minor, agreed.max_write), (45, 128 << 10));
    assert_eq!(agreed.flags, InitFlags::BIG_WRITES | InitFlags::MAX_PAGES);
}

#[test]
fn what_has_no_answer_gets_none() {
    let (kernel, serving) = open();
    kernel.shake_hands(7, 45);
    for (opcode, arguments) in [
        (opcode::FORGET, &[1; 8][..]),
        (opcode::FORGET, &[1; 3]), // Malformed.
        (opcode::INTERRUPT, &[2; 8]),
    ] {
        kernel.say(&message(opcode, 1, arguments, &[]));
    }
    // An interrupt may be refused.
    let refused = kernel.ask(opcode::INTERRUPT, 1_u64.as_bytes());
    assert_eq!(refused, (-libc::EAGAIN, vec![]));
    end(kernel, serving).expect("it was unmounted");
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let (kernel, serving) = open();
    kernel.shake_hands(7, 45);
    assert_eq!(kernel.ask(4242, b"what?"), (-libc::ENOSYS, vec![]));
    assert_eq!(kernel.ask(opcode::LOOKUP, b"a/b\0"), (-libc::EINVAL, vec![]));
    assert_eq!(kernel.ask(opcode::READ, &[0; 7]), (-libc::EINVAL, vec![]));
    // For whom is an answer to what has no header?
    kernel.say(b"nothing");
    let error = end(kernel, serving).expect_err("it is no kernel");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn an_answer_that_is_not_taken_is_an_error() {
    let (kernel, serving) = open();
    kernel.shake_hands(7, 45);
    // More than a socket takes at once.
    let read = abi::ReadIn { size: 64 << 20, ..abi::ReadIn::default() };
    assert_eq!(kernel.ask(opcode::READ, read.as_bytes()), (-libc::EIO, vec![]));
    assert_eq!(kernel.ask(opcode::DESTROY, &[]), (0, vec![]));
    end(kernel, serving).expect("it was unmounted");
}

#[test]
fn a_newer_kernel_asks_again_and_an_old_one_is_refused() {
    let (kernel, serving) = open();
    let (error, body) = kernel.shake_hands(8, 1);
    let out = InitOut::read_from_bytes(&body).expect("a whole answer");
    assert_eq!((error, out.major), (0, 7));
    kernel.shake_hands(7, 50);
    assert_eq!(end(kernel, serving).expect("it was unmounted").minor, 45);

    let (kernel, serving) = open();
    assert_eq!(kernel.shake_hands(7, 30).0, -libc::EPROTO);
    let error = end(kernel, serving).expect_err("it is too old");
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "FUSE 7.30 is too old; 7.31 is needed");
}

#[test]
fn nothing_is_served_before_hands_are_shaken() {
    let (kernel, serving) = open();
    assert_eq!(kernel.ask(opcode::DESTROY, &[]), (-libc::EIO, vec![]));
    let error = end(kernel, serving).expect_err("it was unmounted too early");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}
