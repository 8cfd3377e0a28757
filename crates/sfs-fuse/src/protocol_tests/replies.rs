//! Round trips of replies: the kernel reads the values of the handler from the bytes.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::FromBytes;

use super::{RequestSample, names, samples};
use crate::protocol::abi::{self, OutHeader};
use crate::protocol::argument_reader::ArgumentReader;
use crate::protocol::directory_listing::{DirectoryListing, ListingEntry};
use crate::protocol::errno::Errno;
use crate::protocol::message::Message;
use crate::protocol::node_reply::{NodeAttributes, NodeEntry, OpenReply, OpenReplyFlags, Statfs};
use crate::protocol::reply::Reply;
use crate::protocol::timestamps::Time;

/// Encodes a reply, checks its header, and returns the bytes after it.
fn reply(outcome: &Result<Reply<Vec<u8>>, Errno>) -> Vec<u8> {
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

fn attributes(attr: &abi::Attr) -> NodeAttributes {
    NodeAttributes {
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

fn entry(out: &abi::EntryOut) -> NodeEntry {
    NodeEntry {
        node: out.nodeid,
        generation: out.generation,
        name_ttl: duration(out.entry_valid, out.entry_valid_nsec),
        attributes_ttl: duration(out.attr_valid, out.attr_valid_nsec),
        attributes: attributes(&out.attr),
    }
}

fn opened(out: &abi::OpenOut) -> OpenReply {
    OpenReply { handle: out.fh, flags: OpenReplyFlags::from_bits_retain(out.open_flags) }
}

/// Decodes `bytes` as the kernel does where it expects a reply of the form of `like`.
fn read_as(like: &Reply<Vec<u8>>, bytes: &[u8]) -> Reply<Vec<u8>> {
    let mut from = ArgumentReader::new(bytes);
    let read = take(like, &mut from);
    from.end().expect("the bytes are the whole reply");
    read
}

fn take(like: &Reply<Vec<u8>>, from: &mut ArgumentReader<'_>) -> Reply<Vec<u8>> {
    match like {
        Reply::Done => Reply::Done,
        Reply::Entry(_) => Reply::Entry(entry(&fixed(from))),
        Reply::Created(..) => Reply::Created(entry(&fixed(from)), opened(&fixed(from))),
        Reply::Attributes(..) => {
            let out: abi::AttrOut = fixed(from);
            let ttl = duration(out.attr_valid, out.attr_valid_nsec);
            Reply::Attributes(attributes(&out.attr), ttl)
        }
        Reply::Statx(..) => statx(&fixed(from)),
        Reply::Opened(_) => Reply::Opened(opened(&fixed(from))),
        Reply::Data(_) | Reply::InPlace(_) => Reply::Data(from.rest().to_vec()),
        Reply::Length(_) => Reply::Length(fixed::<abi::GetxattrOut>(from).size),
        Reply::Written(_) => Reply::Written(fixed::<abi::WriteOut>(from).size),
        Reply::Copied(_) => Reply::Copied(fixed(from)),
        Reply::Offset(_) => Reply::Offset(fixed(from)),
        Reply::Block(_) => Reply::Block(fixed(from)),
        Reply::Events(_) => Reply::Events(fixed::<abi::PollOut>(from).revents),
        Reply::Statfs(_) => Reply::Statfs(statfs(&fixed(from))),
        Reply::Lock { .. } => {
            let abi::FileLock { start, end, kind, pid } = fixed(from);
            Reply::Lock { start, end, kind, pid }
        }
        Reply::Ioctl(..) => {
            let result = fixed::<abi::IoctlOut>(from).result;
            Reply::Ioctl(result, from.rest().to_vec())
        }
        Reply::Directory(_) => unreachable!("directories have a test of their own"),
        Reply::Parked(_) => unreachable!("the kernel gets no such reply"),
    }
}

fn fixed<T: FromBytes>(from: &mut ArgumentReader<'_>) -> T {
    from.fixed().expect("the reply is long enough")
}

fn statx(out: &abi::StatxOut) -> Reply<Vec<u8>> {
    let stat = &out.stat;
    let time = |time: abi::SxTime| Time { secs: time.tv_sec, nanos: time.tv_nsec };
    let (major, minor) = (stat.rdev_major, stat.rdev_minor);
    let all = NodeAttributes {
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
    assert_eq!(stat.mask & 0x7ff, 0x7ff, "the attributes that every file has");
    let btime = (stat.mask & 0x800 != 0).then(|| time(stat.btime));
    Reply::Statx(all, btime, duration(out.attr_valid, out.attr_valid_nsec))
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

fn answers(sample: &RequestSample) -> Vec<Reply<Vec<u8>>> {
    let [a, b, c, d, e, f, g] = sample.wide;
    let [p, q, r, s, t] = sample.narrow;
    let at = |secs: u64, nanos: u32| time(secs, nanos % 1_000_000_000);
    let ttl = Duration::new(a, p % 1_000_000_000);
    let (atime, mtime, ctime) = (at(d, p), at(e, q), at(f, r));
    let all = NodeAttributes {
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
        NodeEntry { node: g, generation: b, name_ttl: ttl, attributes_ttl: ttl, attributes: all };
    let opened = OpenReply { handle: c, flags: OpenReplyFlags::from_bits_retain(q) };
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
        Reply::Done,
        Reply::Entry(file),
        Reply::Created(file, opened),
        Reply::Attributes(all, ttl),
        Reply::Statx(all, sample.flag.then_some(at(g, s)), ttl),
        Reply::Opened(opened),
        Reply::Data(sample.data.clone()),
        Reply::Length(p),
        Reply::Written(p),
        Reply::Copied(a),
        Reply::Offset(a),
        Reply::Block(a),
        Reply::Events(p),
        Reply::Statfs(statfs),
        Reply::Lock { start: a, end: b, kind: p, pid: q },
        Reply::Ioctl(p.cast_signed(), sample.data.clone()),
    ]
}

/// Decodes the entries of a listing, each with the `before` bytes in front of it.
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
    fn replies_survive_a_round_trip(sample in samples()) {
        for answer in answers(&sample) {
            let bytes = reply(&Ok(answer.clone()));
            prop_assert_eq!(read_as(&answer, &bytes), answer);
        }
    }

    #[test]
    fn listings_survive_a_round_trip(
        listed in vec((any::<u64>(), any::<u64>(), any::<u32>(), names()), 0..20),
        len_max in 0_u32..2000,
        plus in any::<bool>(),
    ) {
        let mut directory = DirectoryListing::new(len_max);
        let mut taken = 0;
        for (ino, cookie, mode, name) in &listed {
            let entry = ListingEntry { ino: *ino, cookie: *cookie, mode: *mode, name };
            let file = NodeEntry { node: *ino, ..NodeEntry::default() };
            let dots = (name.len() == 1).then_some(&file);
            let room = if plus { directory.add_with(&entry, dots) } else { directory.add(&entry) };
            if !room {
                break;
            }
            taken += 1;
        }
        let bytes = reply(&Ok(Reply::Directory(directory)));
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
        // The first entry that was refused would not have fitted.
        if let Some((.., name)) = listed.get(taken) {
            let len = before + size_of::<abi::Dirent>() + name.len();
            prop_assert!(bytes.len() + len.next_multiple_of(8) > len_max as usize);
        }
    }
}

#[test]
fn an_error_is_negative_and_has_no_payload() {
    assert_eq!(reply(&Err(Errno::new(libc::ENOENT))), []);
}
