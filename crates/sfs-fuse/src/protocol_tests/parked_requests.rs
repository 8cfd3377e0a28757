//! Tests of requests that are parked, with one serving thread: each is answered once, in the order of its inode.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::{read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::{FromBytes, IntoBytes};

use crate::protocol::abi::{self, InHeader, InitExt, InitIn, OutHeader, opcode};
use crate::{
    Errno, FuseOperation, FuseRequest, FuseSession, Handler, InitFlags, Queue, Reply,
    SessionConfig, WaitingChange,
};

/// Number of a request that is no write.
const OTHER: u64 = 1 << 40;

/// Inode whose writes always have room.
const SMALL: u64 = 1000;

/// Inode whose writes have room, and are synced before their reply.
const SYNCED: u64 = 1001;

/// Handler whose changes wait until it is open, and whose syncs wait in the answer.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    is_open: bool,
    progress: u64,
    /// Numbers of the writes that were answered, by inode.
    answered: HashMap<u64, Vec<u64>>,
    syncs: usize,
    /// `true` if every write is synced before its reply.
    is_synced_late: bool,
    /// Number with which the present sync was parked.
    ticket: Option<u64>,
}

impl Gate {
    fn open(&self) {
        let mut state = self.state.lock();
        state.is_open = true;
        state.progress += 1;
        self.moved.notify_all();
    }

    fn has_room(&self, node: u64) -> bool {
        node == SMALL || node == SYNCED || self.state.lock().is_open
    }
}

impl Handler for Gate {
    type Bytes = Vec<u8>;

    fn answer(&self, request: &FuseRequest<'_>, _: &mut [u8]) -> Result<Reply<Vec<u8>>, Errno> {
        let mut state = self.state.lock();
        match &request.operation {
            FuseOperation::Write(write) => {
                assert!(
                    write.data.iter().all(|byte| *byte == request.unique as u8),
                    "its own data"
                );
                state.answered.entry(request.node).or_default().push(request.unique);
                // As a full volume does now and then.
                if request.unique.is_multiple_of(7) {
                    return Err(Errno::new(libc::ENOSPC));
                }
                if request.node == SYNCED || state.is_synced_late {
                    return Ok(Reply::Parked(Queue::Syncs([request.unique, 1])));
                }
                Ok(Reply::Written(write.data.len() as u32))
            }
            FuseOperation::Fsync { .. } => {
                assert_eq!(state.ticket.take(), Some(request.unique), "the number of the queue");
                while !state.is_open {
                    self.moved.wait(&mut state);
                }
                state.syncs += 1;
                Ok(Reply::Done)
            }
            FuseOperation::Read(read) => Ok(Reply::Data(vec![7; read.size as usize])),
            _ => Err(Errno::NOT_IMPLEMENTED),
        }
    }

    fn answer_parked(
        &self,
        request: &FuseRequest<'_>,
        queue: Queue,
        room: &mut [u8],
    ) -> Result<Reply<Vec<u8>>, Errno> {
        if let (Queue::Syncs(ticket), FuseOperation::Write(write)) = (queue, &request.operation) {
            assert_eq!(ticket, [request.unique, 1], "the numbers of the queue");
            let mut state = self.state.lock();
            while !state.is_open {
                self.moved.wait(&mut state);
            }
            state.syncs += 1;
            return Ok(Reply::Written(write.data.len() as u32));
        }
        if let Queue::Syncs([ticket, _]) = queue {
            self.state.lock().ticket = Some(ticket);
        }
        self.answer(request, room)
    }

    fn queue_for(&self, request: &FuseRequest<'_>) -> Option<Queue> {
        match &request.operation {
            FuseOperation::Write(_) => (!self.has_room(request.node)).then_some(Queue::Changes),
            FuseOperation::Fsync { .. } => Some(Queue::Syncs([request.unique, 0])),
            _ => None,
        }
    }

    fn may_go_on(&self, change: &WaitingChange) -> bool {
        self.has_room(change.node)
    }

    fn progress(&self) -> u64 {
        self.state.lock().progress
    }

    fn wait_for_progress(&self, seen: u64) {
        let mut state = self.state.lock();
        if state.progress == seen {
            self.moved.wait_for(&mut state, Duration::from_millis(5));
        }
    }
}

/// The kernel's end of a socket that keeps messages apart, as /dev/fuse does.
struct Kernel(OwnedFd);

impl Kernel {
    fn send(&self, opcode: u32, (unique, node): (u64, u64), arguments: &[u8]) {
        let len = (size_of::<InHeader>() + arguments.len()) as u32;
        let header = InHeader { len, opcode, unique, nodeid: node, ..InHeader::default() };
        let bytes = [header.as_bytes(), arguments].concat();
        assert_eq!(write(&self.0, &bytes).expect("the session listens"), bytes.len());
    }

    /// Reads the next reply: the number of its request, its error, and the number of bytes after the header.
    fn receive(&self) -> (u64, i32, usize) {
        let mut bytes = [0; 8192];
        let len = read(&self.0, &mut bytes).expect("the session replies");
        let (header, body) = OutHeader::read_from_prefix(&bytes[..len]).expect("a header");
        (header.unique, header.error, body.len())
    }

    fn init(&self) {
        let flags = InitFlags::all().bits();
        let init = InitIn { major: 7, minor: 45, max_readahead: 1 << 17, flags: flags as u32 };
        let ext = InitExt { flags2: (flags >> 32) as u32, unused: [0; 11] };
        self.send(opcode::INIT, (OTHER, 0), &[init.as_bytes(), ext.as_bytes()].concat());
        assert_eq!(self.receive().1, 0);
    }

    fn send_write(&self, unique: u64, node: u64, len: usize) {
        let write = abi::WriteIn { size: len as u32, ..abi::WriteIn::default() };
        let data = vec![unique as u8; len];
        self.send(opcode::WRITE, (unique, node), &[write.as_bytes(), &data[..]].concat());
    }

    /// Reads something, which the serving thread answers if it is free.
    fn expect_free_thread(&self) {
        let read = abi::ReadIn { size: 100, ..abi::ReadIn::default() };
        self.send(opcode::READ, (OTHER, 1), read.as_bytes());
        assert_eq!(self.receive(), (OTHER, 0, 100));
    }
}

/// A session with one serving thread, whose parked requests occupy up to `parked_bytes_max`.
fn session(parked_bytes_max: usize) -> (Kernel, Arc<Gate>, JoinHandle<io::Result<()>>) {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (theirs, ours) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair of sockets");
    let gate = Arc::new(Gate::default());
    let handler = gate.clone();
    let serving = std::thread::spawn(move || {
        let config = SessionConfig { threads: 1, parked_bytes_max, ..SessionConfig::default() };
        FuseSession::new(ours, &config)?.serve(&*handler, |_| {})
    });
    let kernel = Kernel(theirs);
    kernel.init();
    (kernel, gate, serving)
}

/// Returns the length of write `number`.
fn len_of(number: u64) -> usize {
    if number.is_multiple_of(10) { 100_000 } else { 3 }
}

fn error_of(number: u64) -> i32 {
    if number.is_multiple_of(7) { -libc::ENOSPC } else { 0 }
}

/// A thousand writes wait, and some are interrupted: reads and interrupts are answered meanwhile, and every write once, in the order
/// of its inode.
#[test]
fn requests_that_wait_hold_no_thread() {
    const WRITES: u64 = 1000;
    let (kernel, gate, serving) = session(64 << 20);
    for number in 1..=WRITES {
        kernel.send_write(number, number % 20 + 1, len_of(number));
        if number % 50 == 0 {
            kernel.expect_free_thread();
            kernel.send(opcode::INTERRUPT, (OTHER + 1, 0), (number / 2).as_bytes());
            assert_eq!(kernel.receive(), (OTHER + 1, -libc::ENOSYS, 0));
        }
    }
    assert!(gate.state.lock().answered.is_empty(), "nothing has room yet");
    gate.open();
    let mut errors = HashMap::new();
    for _ in 0..WRITES {
        let (unique, error, _) = kernel.receive();
        assert!(errors.insert(unique, error).is_none(), "{unique} was answered twice");
    }
    for number in 1..=WRITES {
        assert_eq!(errors.get(&number), Some(&error_of(number)), "write {number}");
    }
    // No reply comes before that of the next request.
    kernel.expect_free_thread();
    let state = gate.state.lock();
    assert_eq!(state.answered.values().map(Vec::len).sum::<usize>(), WRITES as usize);
    assert!(state.answered.values().all(|numbers| numbers.is_sorted()), "in order for each inode");
    drop(state);
    drop(kernel);
    serving.join().expect("no panic").expect("it was unmounted");
}

/// A write with room is answered although others wait, and waits itself behind an earlier one of its inode.
#[test]
fn a_write_with_room_passes_those_of_other_inodes_only() {
    let (kernel, gate, serving) = session(64 << 20);
    kernel.send_write(1, 5, 3);
    kernel.send_write(2, SMALL, 3);
    assert_eq!(kernel.receive().0, 2);
    gate.state.lock().answered.clear();
    gate.open();
    assert_eq!(kernel.receive().0, 1);
    drop(kernel);
    serving.join().expect("no panic").expect("it was unmounted");
}

/// A sync that waits lets the serving thread go on, and later syncs follow in order.
#[test]
fn syncs_wait_in_their_own_thread() {
    let (kernel, gate, serving) = session(64 << 20);
    let sync = abi::FsyncIn::default();
    for number in 1..=3 {
        kernel.send(opcode::FSYNC, (number, 5), sync.as_bytes());
    }
    kernel.expect_free_thread();
    assert_eq!(gate.state.lock().syncs, 0);
    gate.open();
    for number in 1..=3 {
        assert_eq!(kernel.receive(), (number, 0, 0));
    }
    drop(kernel);
    serving.join().expect("no panic").expect("it was unmounted");
}

/// A write that is synced before its reply is made at once, once, and waits for the sync without a thread; with or without
/// memory for its message.
#[test]
fn a_write_that_is_synced_waits_in_the_queue_of_the_syncs() {
    for memory in [64 << 20, 1] {
        let (kernel, gate, serving) = session(memory);
        for number in [1, 2] {
            kernel.send_write(number, SYNCED, 30_000);
        }
        if memory > 1 {
            kernel.expect_free_thread();
            assert_eq!(gate.state.lock().syncs, 0);
            gate.open();
            assert_eq!([kernel.receive().0, kernel.receive().0], [1, 2]);
        } else {
            let read = abi::ReadIn { size: 100, ..abi::ReadIn::default() };
            kernel.send(opcode::READ, (OTHER, 1), read.as_bytes());
            std::thread::sleep(Duration::from_millis(30));
            gate.open();
            let numbers: Vec<u64> = (0..3).map(|_| kernel.receive().0).collect();
            let place = |number| numbers.iter().position(|n| *n == number).expect("an answer");
            assert!(place(OTHER) > place(2), "the thread waited with the second: {numbers:?}");
        }
        drop(kernel);
        serving.join().expect("no panic").expect("it was unmounted");
        let state = gate.state.lock();
        assert_eq!((state.answered[&SYNCED].as_slice(), state.syncs), ([1, 2].as_slice(), 2));
    }
}

/// A write that waited for room, and is synced before its reply, waits once more; at the end of the session as well.
#[test]
fn a_write_waits_for_room_and_then_for_its_sync() {
    let (kernel, gate, serving) = session(64 << 20);
    kernel.send_write(1, 5, 3);
    // Behind a write of its own inode that has no room.
    gate.state.lock().is_synced_late = true;
    kernel.send_write(2, 5, 3);
    kernel.expect_free_thread();
    gate.open();
    let mut numbers = [kernel.receive().0, kernel.receive().0];
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    kernel.send_write(3, 5, 3);
    assert_eq!(kernel.receive().0, 3);
    drop(kernel);
    serving.join().expect("no panic").expect("it was unmounted");
    assert_eq!(gate.state.lock().syncs, 3);
}

/// Where parked requests have used their memory the serving thread waits, and nothing is lost.
#[test]
fn without_memory_the_serving_thread_waits() {
    // The only thread is the last one: it waits from four times the bound on.
    let (kernel, gate, serving) = session(20_000);
    for number in 1..=4 {
        kernel.send_write(number, number, 30_000);
    }
    let read = abi::ReadIn { size: 100, ..abi::ReadIn::default() };
    kernel.send(opcode::READ, (OTHER, 1), read.as_bytes());
    std::thread::sleep(Duration::from_millis(30));
    gate.open();
    let numbers: Vec<u64> = (0..5).map(|_| kernel.receive().0).collect();
    let place = |number| numbers.iter().position(|n| *n == number).expect("it was answered");
    assert!(place(OTHER) > place(4), "the thread waited with the fourth write: {numbers:?}");
    assert!((1..=4).all(|number| numbers.contains(&number)), "{numbers:?}");
    drop(kernel);
    serving.join().expect("no panic").expect("it was unmounted");
}

/// Messages count with their own length: a frozen mount with the smallest buffer still reads while a dozen programs write.
#[test]
fn parked_requests_count_with_their_length() {
    const WRITES: u64 = 12;
    let (kernel, gate, serving) = session(1 << 20);
    for number in 1..=WRITES {
        kernel.send_write(number, number, 100_000);
    }
    kernel.expect_free_thread();
    assert!(gate.state.lock().answered.is_empty());
    gate.open();
    let mut numbers: Vec<u64> = (0..WRITES).map(|_| kernel.receive().0).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=WRITES));
    drop(kernel);
    serving.join().expect("no panic").expect("it was unmounted");
}

/// The connection ends while a thousand requests wait, as by an abort or a killed session: each is taken up once without
/// room, and the session ends.
#[test]
fn a_session_that_ends_takes_up_what_waits() {
    const WRITES: u64 = 1000;
    let (kernel, gate, serving) = session(64 << 20);
    for number in 1..=WRITES {
        kernel.send_write(number, number % 20 + 1, len_of(number));
    }
    kernel.expect_free_thread();
    drop(kernel);
    let ended = serving.join().expect("no panic").expect_err("nobody reads the replies");
    assert_eq!(ended.kind(), io::ErrorKind::BrokenPipe, "the kernel's device has no such error");
    let state = gate.state.lock();
    let mut numbers: Vec<u64> = state.answered.values().flatten().copied().collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=WRITES), "each once");
    assert!(!state.is_open);
}
