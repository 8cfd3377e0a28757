//! Facts that docs/decisions/0045 and 0046 rely on: how the kernel treats requests whose reader goes away.
//!
//! The tests speak the protocol themselves, as a session hides what they look at.
#![expect(clippy::host_endian_bytes, reason = "the protocol has the byte order of the machine")]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// `FUSE_DEV_IOC_CLONE` of <linux/fuse.h>.
const CLONE: libc::Ioctl = libc::_IOR::<u32>(229, 0);

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;

/// Feature of INIT: the kernel's cache writes data back.
const WRITEBACK_CACHE: u32 = 1 << 16;

/// Code of the notification FUSE_NOTIFY_RESEND.
const RESEND: i32 = 7;

/// Bit of `unique` in a request that is sent again.
const RESENT: u64 = 1 << 63;

/// Mount whose requests the test reads itself.
struct RawMount {
    scratch: TempDir,
    channel: File,
    minor: u32,
}

impl RawMount {
    /// Mounts, and answers what comes before the first look-up; `None` if mounting is not possible.
    fn new() -> Option<Self> {
        Self::with_features(0)
    }

    fn with_features(flags: u32) -> Option<Self> {
        let scratch = tempfile::tempdir().expect("a directory");
        let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let mounted = opened.and_then(|channel| {
            let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", channel.as_raw_fd());
            let data = CString::new(data).expect("no NUL");
            mount("test", scratch.path(), "fuse.test", MountFlags::empty(), data.as_c_str())?;
            Ok(channel)
        });
        let channel = mounted.inspect_err(|error| eprintln!("skipped: no mount: {error}")).ok()?;
        let init = read(&channel);
        assert_eq!(init.opcode, INIT);
        let number = |at: usize| u32::from_ne_bytes(init.body[at..at + 4].try_into().expect("4"));
        let minor = number(4);
        let mut reply = Vec::new();
        for value in [7, minor.min(45), number(8), flags, 12 | 9 << 16, 128 << 10, 1] {
            reply.extend_from_slice(&u32::to_ne_bytes(value));
        }
        reply.resize(64, 0);
        answer(&channel, init.unique, 0, &reply).expect("the kernel takes the reply");
        Some(Self { scratch, channel, minor })
    }

    /// Looks a name up in a thread of its own, which gets the number of the error.
    fn look_up(&self, name: &str) -> JoinHandle<Option<i32>> {
        let path: PathBuf = self.scratch.path().join(name);
        std::thread::spawn(move || fs::metadata(path).expect_err("no file exists").raw_os_error())
    }

    fn another(&self) -> File {
        let clone = OpenOptions::new().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let descriptor = self.channel.as_raw_fd().cast_unsigned();
        // SAFETY: the call reads one u32, from `descriptor`, which outlives the call.
        let made = unsafe { libc::ioctl(clone.as_raw_fd(), CLONE, &raw const descriptor) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        clone
    }

    /// Returns whether the kernel takes FUSE_NOTIFY_RESEND.
    fn resend(&self) -> bool {
        match answer(&self.channel, 0, -RESEND, &[]) {
            Ok(()) => true,
            Err(error) => {
                println!("skip: protocol 7.{}: no RESEND: {error}", self.minor);
                false
            }
        }
    }
}

impl Drop for RawMount {
    fn drop(&mut self) {
        let _ = unmount(self.scratch.path(), UnmountFlags::DETACH | UnmountFlags::FORCE);
    }
}

struct Request {
    opcode: u32,
    unique: u64,
    node: u64,
    body: Vec<u8>,
}

fn parse(message: &[u8]) -> Request {
    let opcode = u32::from_ne_bytes(message[4..8].try_into().expect("4 bytes"));
    let unique = u64::from_ne_bytes(message[8..16].try_into().expect("8 bytes"));
    let node = u64::from_ne_bytes(message[16..24].try_into().expect("8 bytes"));
    Request { opcode, unique, node, body: message[40..].to_vec() }
}

fn read(mut channel: &File) -> Request {
    let mut message = vec![0; 256 << 10];
    let len = channel.read(&mut message).expect("a request");
    parse(&message[..len])
}

/// Reads until a look-up comes.
fn read_look_up(channel: &File) -> Request {
    loop {
        let request = read(channel);
        match request.opcode {
            LOOKUP => return request,
            GETATTR => answer(channel, request.unique, 0, &root()).expect("an answer"),
            _ => {}
        }
    }
}

/// Attributes of the root, valid for a long time.
fn root() -> Vec<u8> {
    attributes(1, 0o040_755, 2)
}

fn attributes(ino: u64, mode: u32, links: u32) -> Vec<u8> {
    let mut reply = vec![0; 104];
    reply[0..8].copy_from_slice(&u64::to_ne_bytes(1000));
    reply[16..24].copy_from_slice(&u64::to_ne_bytes(ino));
    reply[16 + 60..16 + 64].copy_from_slice(&u32::to_ne_bytes(mode));
    reply[16 + 64..16 + 68].copy_from_slice(&u32::to_ne_bytes(links));
    reply
}

/// Inode of the file in [`serve_file`].
const FILE: u64 = 2;

/// Serves an empty file over `channel`, until a request of the operation `ends`, which stays without an answer, or one of the
/// operation `last`, which is answered.
fn serve_file(channel: &File, ends: u32, last: u32) {
    let file = attributes(FILE, 0o100_644, 1);
    loop {
        let request = read(channel);
        if request.opcode == ends {
            return;
        }
        let body = match request.opcode {
            LOOKUP => {
                // Inode, generation, and how long the name is valid.
                let mut entry = [FILE, 0, 1000].map(u64::to_ne_bytes).concat();
                entry.extend_from_slice(&1000u64.to_ne_bytes());
                entry.extend_from_slice(&[0; 8]);
                entry.extend_from_slice(&file[16..]);
                entry
            }
            GETATTR if request.node == 1 => root(),
            GETATTR | SETATTR => file.clone(),
            OPEN => vec![0; 16],
            WRITE => {
                let len = u32::from_ne_bytes(request.body[16..20].try_into().expect("4 bytes"));
                [len, 0].map(u32::to_ne_bytes).concat()
            }
            FLUSH | RELEASE | FSYNC => Vec::new(),
            _ => {
                let _ = answer(channel, request.unique, libc::ENOSYS, &[]);
                continue;
            }
        };
        answer(channel, request.unique, 0, &body).expect("the kernel takes the answer");
        if request.opcode == last {
            return;
        }
    }
}

fn answer(mut channel: &File, unique: u64, errno: i32, body: &[u8]) -> io::Result<()> {
    let len = 16 + body.len() as u32;
    let mut message = len.to_ne_bytes().to_vec();
    message.extend_from_slice(&(-errno).to_ne_bytes());
    message.extend_from_slice(&unique.to_ne_bytes());
    message.extend_from_slice(body);
    channel.write(&message).map(drop)
}

fn no_entry(channel: &File, unique: u64) -> Result<(), Option<i32>> {
    answer(channel, unique, libc::ENOENT, &[]).map_err(|error| error.raw_os_error())
}

fn waits<T>(caller: &JoinHandle<T>) -> bool {
    std::thread::sleep(Duration::from_millis(50));
    !caller.is_finished()
}

#[test]
fn requests_end_with_the_last_duplicate_of_their_channel() {
    let Some(mount) = RawMount::new() else { return };
    let clone = mount.another();
    let caller = mount.look_up("a");
    let request = read_look_up(&clone);
    let duplicate = clone.try_clone().expect("a descriptor");
    drop(clone);
    assert!(waits(&caller), "a duplicate is open");
    let elsewhere = no_entry(&mount.channel, request.unique);
    assert_eq!(elsewhere, Err(Some(libc::ENOENT)), "only its own channel takes the answer");
    assert!(waits(&caller));
    drop(duplicate);
    assert_eq!(caller.join().expect("no panic"), Some(libc::ECONNABORTED));
    let caller = mount.look_up("b");
    no_entry(&mount.channel, read_look_up(&mount.channel).unique).expect("it serves on");
    assert_eq!(caller.join().expect("no panic"), Some(libc::ENOENT));
}

#[test]
fn a_request_whose_reader_was_killed_is_sent_again() {
    let Some(mount) = RawMount::new() else { return };
    let clone = mount.another();
    // The first look-up has the root's attributes fetched.
    let caller = mount.look_up("first");
    no_entry(&mount.channel, read_look_up(&mount.channel).unique).expect("an answer");
    caller.join().expect("no panic");
    let read_by_other = mount.scratch.path().with_extension("request");
    let caller = mount.look_up("a");
    let mut reader = Command::new("sh");
    reader.arg("-c").arg("dd bs=256k count=1 of=\"$0\" status=none; exec sleep 1000");
    reader.arg(&read_by_other).stdin(Stdio::from(clone.try_clone().expect("a descriptor")));
    let mut reader = reader.spawn().expect("sh runs");
    while fs::metadata(&read_by_other).map_or(0, |file| file.len()) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    reader.kill().expect("it runs");
    reader.wait().expect("it was killed");
    let first = parse(&fs::read(&read_by_other).expect("the request"));
    fs::remove_file(&read_by_other).expect("the request");
    assert_eq!(first.opcode, LOOKUP);
    assert!(waits(&caller), "this process has a duplicate");
    if mount.resend() {
        // Another channel reads it.
        let second = read_look_up(&mount.channel);
        assert_eq!(second.unique, first.unique | RESENT);
        assert_eq!(second.body, first.body);
        let without = no_entry(&mount.channel, first.unique);
        assert_eq!(without, Err(Some(libc::ENOENT)), "the answer needs the bit");
        assert!(mount.resend());
        let third = read_look_up(&mount.channel);
        assert_eq!(third.unique, second.unique);
        no_entry(&mount.channel, third.unique).expect("the kernel takes the answer");
    } else {
        no_entry(&clone, first.unique).expect("the kernel takes the answer");
    }
    assert_eq!(caller.join().expect("no panic"), Some(libc::ENOENT));
}

#[test]
fn a_request_that_is_read_into_absent_memory_is_lost() {
    let Some(mount) = RawMount::new() else { return };
    let caller = mount.look_up("first");
    no_entry(&mount.channel, read_look_up(&mount.channel).unique).expect("an answer");
    caller.join().expect("no panic");
    let caller = mount.look_up("a");
    let absent = std::ptr::without_provenance_mut(4096);
    // SAFETY: nothing is mapped at this address, so the kernel writes nowhere.
    let len = unsafe { libc::read(mount.channel.as_raw_fd(), absent, 256 << 10) };
    let error = io::Error::last_os_error();
    assert_eq!((len, error.raw_os_error()), (-1, Some(libc::EFAULT)));
    assert_eq!(caller.join().expect("no panic"), Some(libc::EIO));
}

/// Data of the kernel's cache that was being written back when its reader went away is reported by fsync(2), once for each handle.
#[test]
fn write_back_that_ends_with_its_channel_is_reported_by_fsync() {
    let Some(mount) = RawMount::with_features(WRITEBACK_CACHE) else { return };
    let path = mount.scratch.path().join("file");
    let caller = std::thread::spawn(move || {
        let opened = || File::options().read(true).write(true).open(&path).expect("it is served");
        let (mut file, other) = (opened(), opened());
        file.write_all(&[1; 4096]).expect("the cache takes it");
        let outcomes = [&file, &file, &other, &other]
            .map(|file| file.sync_all().err().and_then(|error| error.raw_os_error()));
        drop((file, other));
        outcomes
    });
    let (first, second) = (mount.another(), mount.another());
    serve_file(&first, WRITE, INIT);
    // As when the process that has read it dies.
    drop(first);
    serve_file(&second, INIT, FLUSH);
    serve_file(&second, INIT, FLUSH);
    let outcomes = caller.join().expect("no panic");
    println!("outcomes of fsync: {outcomes:?}");
    let [first, again, other, other_again] = outcomes;
    for code in [first, other] {
        assert!(matches!(code, Some(libc::EIO | libc::ECONNABORTED)), "{outcomes:?}");
    }
    assert_eq!((again, other_again), (None, None), "{outcomes:?}");
}
