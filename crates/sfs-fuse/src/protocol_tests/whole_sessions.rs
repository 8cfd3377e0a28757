//! Tests of whole sessions, over a socket that keeps messages apart as /dev/fuse does.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use rustix::io::{read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::{FromBytes, IntoBytes};

use super::message;
use crate::protocol::abi::{self, InitExt, InitIn, InitOut, OutHeader, opcode};
use crate::{
    Agreed, Errno, FuseOperation, FuseRequest, FuseSession, InitFlags, Reply, SessionConfig,
};

/// The kernel's end of the socket.
struct Kernel(OwnedFd);

impl Kernel {
    fn send(&self, bytes: &[u8]) {
        assert_eq!(write(&self.0, bytes).expect("the session listens"), bytes.len());
    }

    fn request(&self, opcode: u32, arguments: &[u8]) -> (i32, Vec<u8>) {
        self.send(&message(opcode, 1, arguments, &[]));
        self.receive()
    }

    /// Reads the next reply: its error, and the bytes after the header.
    fn receive(&self) -> (i32, Vec<u8>) {
        let mut bytes = [0; 8192];
        let len = read(&self.0, &mut bytes).expect("the session replies");
        let (header, body) = OutHeader::read_from_prefix(&bytes[..len]).expect("a header");
        assert_eq!((header.len as usize, header.unique), (len, 42));
        (header.error, body.to_vec())
    }

    fn init(&self, major: u32, minor: u32) -> (i32, Vec<u8>) {
        let flags = InitFlags::all().bits();
        let init = InitIn { major, minor, max_readahead: 1 << 17, flags: flags as u32 };
        let ext = InitExt { flags2: (flags >> 32) as u32, unused: [0; 11] };
        self.request(opcode::INIT, &[init.as_bytes(), ext.as_bytes()].concat())
    }
}

fn answer(request: &FuseRequest<'_>, room: &mut [u8]) -> Result<Reply<Vec<u8>>, Errno> {
    match &request.operation {
        // The reply in place claims as many bytes as the request asks for, even more than the buffer has.
        FuseOperation::Read(read) if read.offset > 0 => {
            let len = room.len().min(read.size as usize);
            room[..len].fill(8);
            Ok(Reply::InPlace(read.size as usize))
        }
        FuseOperation::Read(read) => Ok(Reply::Data(vec![7; read.size as usize])),
        FuseOperation::Write(write) => Ok(Reply::Written(write.data.len() as u32)),
        FuseOperation::Destroy | FuseOperation::Forget { .. } => Ok(Reply::Done),
        FuseOperation::Interrupt { unique: 1 } => Err(Errno::new(libc::EAGAIN)),
        FuseOperation::Interrupt { .. } => Ok(Reply::Done),
        _ => Err(Errno::new(libc::ENOENT)),
    }
}

/// Opens a pair of sockets, and starts a thread that runs the session at one of them. Returns the
/// kernel's end and the thread.
fn open() -> (Kernel, JoinHandle<io::Result<Agreed>>) {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (theirs, ours) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair of sockets");
    let serving = std::thread::spawn(move || {
        let session = FuseSession::new(ours, &SessionConfig::default())?;
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
fn requests_from_init_to_destroy_are_answered() {
    let (kernel, serving) = open();
    let (error, body) = kernel.init(7, 45);
    let out = InitOut::read_from_bytes(&body).expect("a whole reply");
    assert_eq!((error, out.major, out.minor, out.max_write), (0, 7, 45, 128 << 10));

    let read = abi::ReadIn { size: 5000, ..abi::ReadIn::default() };
    assert_eq!(kernel.request(opcode::READ, read.as_bytes()), (0, vec![7; 5000]));
    for (size, expected) in [(5000, (0, vec![8; 5000])), (u32::MAX, (-libc::EIO, vec![]))] {
        let read = abi::ReadIn { offset: 1, size, ..abi::ReadIn::default() };
        assert_eq!(kernel.request(opcode::READ, read.as_bytes()), expected);
    }
    let write = abi::WriteIn { size: 3, ..abi::WriteIn::default() };
    let (error, body) = kernel.request(opcode::WRITE, &[write.as_bytes(), b"abc"].concat());
    assert_eq!((error, &body[..]), (0, abi::WriteOut { size: 3, padding: 0 }.as_bytes()));
    assert_eq!(kernel.request(opcode::LOOKUP, b"name\0"), (-libc::ENOENT, vec![]));
    assert_eq!(kernel.request(opcode::DESTROY, &[]), (0, vec![]));

    let agreed = end(kernel, serving).expect("the filesystem was unmounted");
    assert_eq!((agreed.minor, agreed.max_write), (45, 128 << 10));
    assert_eq!(agreed.flags, InitFlags::BIG_WRITES | InitFlags::MAX_PAGES);
}

#[test]
fn requests_without_a_reply_get_none() {
    let (kernel, serving) = open();
    kernel.init(7, 45);
    for (opcode, arguments) in [
        (opcode::FORGET, &[1; 8][..]),
        (opcode::FORGET, &[1; 3]), // A malformed request.
        (opcode::INTERRUPT, &[2; 8]),
    ] {
        kernel.send(&message(opcode, 1, arguments, &[]));
    }
    // An interrupt may be refused.
    let refused = kernel.request(opcode::INTERRUPT, 1_u64.as_bytes());
    assert_eq!(refused, (-libc::EAGAIN, vec![]));
    end(kernel, serving).expect("the filesystem was unmounted");
}

#[test]
fn malformed_requests_are_refused() {
    let (kernel, serving) = open();
    kernel.init(7, 45);
    assert_eq!(kernel.request(4242, b"bytes"), (-libc::ENOSYS, vec![]));
    assert_eq!(kernel.request(opcode::LOOKUP, b"a/b\0"), (-libc::EINVAL, vec![]));
    assert_eq!(kernel.request(opcode::READ, &[0; 7]), (-libc::EINVAL, vec![]));
    // Bytes without a header have no sender to reply to.
    kernel.send(b"nothing");
    let error = end(kernel, serving).expect_err("the peer is not a kernel");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_reply_that_the_kernel_rejects_becomes_eio() {
    let (kernel, serving) = open();
    kernel.init(7, 45);
    // A reply longer than a socket takes at once.
    let read = abi::ReadIn { size: 64 << 20, ..abi::ReadIn::default() };
    assert_eq!(kernel.request(opcode::READ, read.as_bytes()), (-libc::EIO, vec![]));
    assert_eq!(kernel.request(opcode::DESTROY, &[]), (0, vec![]));
    end(kernel, serving).expect("the filesystem was unmounted");
}

#[test]
fn a_newer_kernel_negotiates_again_and_an_old_one_is_refused() {
    let (kernel, serving) = open();
    let (error, body) = kernel.init(8, 1);
    let out = InitOut::read_from_bytes(&body).expect("a whole reply");
    assert_eq!((error, out.major), (0, 7));
    kernel.init(7, 50);
    assert_eq!(end(kernel, serving).expect("the filesystem was unmounted").minor, 45);

    let (kernel, serving) = open();
    assert_eq!(kernel.init(7, 30).0, -libc::EPROTO);
    let error = end(kernel, serving).expect_err("the kernel is too old");
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "FUSE 7.30 is too old; 7.31 is needed");
}

#[test]
fn no_request_is_served_before_init() {
    let (kernel, serving) = open();
    assert_eq!(kernel.request(opcode::DESTROY, &[]), (-libc::EIO, vec![]));
    let error = end(kernel, serving).expect_err("the filesystem was unmounted too early");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}
