//! Every answer comes back from its bytes.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::FromBytes;

use super::{Sample, names, samples};
use crate::abi::{self, OutHeader};
use crate::answer::{Answer, Attributes, Entry, Opened, OpenedFlags, Statfs};
use crate::arguments::Arguments;
use crate::directory::{Directory, DirectoryEntry};
use crate::errno::Errno;
use crate::message::Message;
use crate::time::Time;

/// The bytes of a reply behind its header, which is checked.
fn reply(outcome: &Result<Answer<Vec<u8>>, Errno>) -> Vec<u8> {
    let mut message = Message::reply(42, outcome, &[]);
    let bytes = message.parts().expect("a length").concat();
    let (header, body) = OutHeader::read_from_prefix(&bytes).expect("a header");
    let error = outcome.as_ref().err().map_or(0, |errno| -errno.code());
    assert_eq!(header, OutHeader { len: bytes.len() as u32, error, unique: 42 });
    body.to_vec()
}

fn time(secs: u64, nanos: u32) -> Time {
    Time { secs: secs.cast_signed(), nanos }
}

fn duration(secs: u64, nanos: u32) -> Duration {
    Duration::new(secs, nanos)
}

fn attributes(attr: &abi::Attr) -> Attributes {
    Attributes {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime, attr.atimensec),
        mtime: time(attr.mtime, attr.mtimensec),
        ctime: time(attr.ctime, attr.ctimensec),
        mode: attr.mode,
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_size: attr.blksize,
    }
}

fn entry(out: &abi::EntryOut) -> Entry {
    Entry {
        node: out.nodeid,
        generation: out.generation,
        name_ttl: duration(out.entry_valid, out.entry_valid_nsec),
        attributes_ttl: duration(out.attr_valid, out.attr_valid_nsec),
        attributes: attributes(&out.attr),
    }
}

fn opened(out: &abi::OpenOut) -> Opened {
    Opened { handle: out.fh, flags: OpenedFlags::from_bits_retain(out.open_flags) }
}

/// What the kernel reads out of `bytes` where it expects an answer like `like`.
fn read_as(like: &Answer<Vec<u8>>, bytes: &[u8]) -> Answer<Vec<u8>> {
    let mut from = Arguments::new(bytes);
    let read = take(like, &mut from);
    from.end().expect("it is the whole answer");
    read
}

fn take(like: &Answer<Vec<u8>>, from: &mut Arguments<'_>) -> Answer<Vec<u8>> {
    match like {
        Answer::Done => Answer::Done,
        Answer::Entry(_) => Answer::Entry(entry(&fixed(from))),
        Answer::Created(..) => Answer::Created(entry(&fixed(from)), opened(&fixed(from))),
        Answer::Attributes(..) => {
            let out: abi::AttrOut = fixed(from);
            let ttl = duration(out.attr_valid, out.attr_valid_nsec);
            Answer::Attributes(attributes(&out.attr), ttl)
        }
        Answer::Statx(..) => statx(&fixed(from)),
        Answer::Opened(_) => Answer::Opened(opened(&fixed(from))),
        Answer::Data(_) | Answer::Filled(_) => Answer::Data(from.rest().to_vec()),
        Answer::Length(_) => Answer::Length(fixed::<abi::GetxattrOut>(from).size),
        Answer::Written(_) => Answer::Written(fixed::<abi::WriteOut>(from).size),
        Answer::Copied(_) => Answer::Copied(fixed(from)),
        Answer::Offset(_) => Answer::Offset(fixed(from)),
        Answer::Block(_) => Answer::Block(fixed(from)),
        Answer::Events(_) => Answer::Events(fixed::<abi::PollOut>(from).revents),
        Answer::Statfs(_) => Answer::Statfs(statfs(&fixed(from))),
        Answer::Lock { .. } => {
            let abi::FileLock { start, end, kind, pid } = fixed(from);
            Answer::Lock { start, end, kind, pid }
        }
        Answer::Ioctl(..) => {
            let result = fixed::<abi::IoctlOut>(from).result;
            Answer::Ioctl(result, from.rest().to_vec())
        }
        Answer::Directory(_) => unreachable!("it has a test of its own"),
    }
}

fn fixed<T: FromBytes>(from: &mut Arguments<'_>) -> T {
    from.fixed().expect("it is long enough")
}

fn statx(out: &abi::StatxOut) -> Answer<Vec<u8>> {
    let stat = &out.stat;
    let time = |time: abi::SxTime| Time { secs: time.tv_sec, nanos: time.tv_nsec };
    let (major, minor) = (stat.rdev_major, stat.rdev_minor);
    let all = Attributes {
        ino: stat.ino,
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        mode: stat.mode.into(),
        links: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: minor & 0xff | major << 8 | (minor & !0xff) << 12,
        block_size: stat.blksize,
    };
    assert_eq!(stat.mask & 0x7ff, 0x7ff, "what every file has");
    let btime = (stat.mask & 0x800 != 0).then(|| time(stat.btime));
    Answer::Statx(all, btime, duration(out.attr_valid, out.attr_valid_nsec))
}

fn statfs(out: &abi::StatfsOut) -> Statfs {
    Statfs {
        blocks: out.blocks,
        blocks_free: out.bfree,
        blocks_available: out.bavail,
        files: out.files,
        files_free: out.ffree,
        block_size: out.bsize,
        name_len_max: out.namelen,
        fragment_size: out.frsize,
    }
}

fn answers(sample: &Sample) -> Vec<Answer<Vec<u8>>> {
    let [a, b, c, d, e, f, g] = sample.wide;
    let [p, q, r, s, t] = sample.narrow;
    let at = |secs: u64, nanos: u32| time(secs, nanos % 1_000_000_000);
    let ttl = Duration::new(a, p % 1_000_000_000);
    let (atime, mtime, ctime) = (at(d, p), at(e, q), at(f, r));
    let all = Attributes {
        ino: a,
        size: b,
        blocks: c,
        atime,
        mtime,
        ctime,
        mode: p & 0xffff,
        links: q,
        uid: r,
        gid: s,
        rdev: t,
        block_size: p,
    };
    let file =
        Entry { node: g, generation: b, name_ttl: ttl, attributes_ttl: ttl, attributes: all };
    let opened = Opened { handle: c, flags: OpenedFlags::from_bits_retain(q) };
    let statfs = Statfs {
        blocks: a,
        blocks_free: b,
        blocks_available: c,
        files: d,
        files_free: e,
        block_size: p,
        name_len_max: q,
        fragment_size: r,
    };
    vec![
        Answer::Done,
        Answer::Entry(file),
        Answer::Created(file, opened),
        Answer::Attributes(all, ttl),
        Answer::Statx(all, sample.flag.then_some(at(g, s)), ttl),
        Answer::Opened(opened),
        Answer::Data(sample.data.clone()),
        Answer::Length(p),
        Answer::Written(p),
        Answer::Copied(a),
        Answer::Offset(a),
        Answer::Block(a),
        Answer::Events(p),
        Answer::Statfs(statfs),
        Answer::Lock { start: a, end: b, kind: p, pid: q },
        Answer::Ioctl(p.cast_signed(), sample.data.clone()),
    ]
}

/// The entries in the bytes of a directory: with what is before each, which has `before` bytes.
fn entries(mut bytes: &[u8], before: usize) -> Vec<(Vec<u8>, abi::Dirent, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (file, rest) = bytes.split_at(before);
        let (dirent, rest) = abi::Dirent::read_from_prefix(rest).expect("a whole entry");
        let name = &rest[..dirent.namelen as usize];
        let len = before + size_of::<abi::Dirent>() + name.len();
        found.push((file.to_vec(), dirent, name.to_vec()));
        bytes = &bytes[len.next_multiple_of(8)..];
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_come_back(sample in samples()) {
        for answer in answers(&sample) {
            let bytes = reply(&Ok(answer.clone()));
            prop_assert_eq!(read_as(&answer, &bytes), answer);
        }
    }

    #[test]
    fn directories_come_back(
        listed in vec((any::<u64>(), any::<u64>(), any::<u32>(), names()), 0..20),
        len_max in 0_u32..2000,
        plus in any::<bool>(),
    ) {
        let mut directory = Directory::new(len_max);
        let mut taken = 0;
        for (ino, cookie, mode, name) in &listed {
            let entry = DirectoryEntry { ino: *ino, cookie: *cookie, mode: *mode, name };
            let file = Entry { node: *ino, ..Entry::default() };
            let dots = (name.len() == 1).then_some(&file);
            let room = if plus { directory.add_with(&entry, dots) } else { directory.add(&entry) };
            if !room {
                break;
            }
            taken += 1;
        }
        let bytes = reply(&Ok(Answer::Directory(directory)));
        prop_assert!(bytes.len() <= len_max as usize);
        let before = if plus { size_of::<abi::EntryOut>() } else { 0 };
        let read = entries(&bytes, before);
        prop_assert_eq!(read.len(), taken);
        for ((file, dirent, name), (ino, cookie, mode, expected)) in read.iter().zip(&listed) {
            let kind = mode >> 12 & 15;
            prop_assert_eq!((dirent.ino, dirent.off, dirent.kind), (*ino, *cookie, kind));
            prop_assert_eq!(name, expected);
            if plus {
                let node = abi::EntryOut::read_from_bytes(file).expect("attributes").nodeid;
                prop_assert_eq!(node, if name.len() == 1 { *ino } else { 0 });
            }
        }
        // What was left out would not have fitted in.
        if let Some((.., name)) = listed.get(taken) {
            let len = before + size_of::<abi::Dirent>() + name.len();
            prop_assert!(bytes.len() + len.next_multiple_of(8) > len_max as usize);
        }
    }
}

#[test]
fn errors_are_below_zero_and_alone() {
    assert_eq!(reply(&Err(Errno::new(libc::ENOENT))), []);
}
