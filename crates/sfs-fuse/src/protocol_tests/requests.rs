//! Round trips of requests: every operation is decoded from its bytes, and from no other bytes.

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::{RequestSample, ended, message, samples};
use crate::protocol::abi::{self, opcode};
use crate::protocol::fuse_operation::{
    CopyArgs, CreateArgs, Forgets, FuseOperation, IoctlArgs, LockArgs, ReadArgs, ReleaseArgs,
    SetattrArgs, WriteArgs,
};
use crate::protocol::timestamps::{SetTime, Time};
use crate::{Errno, FuseRequest, InitFlags, Malformed};

const BOTH: InitFlags = InitFlags::SETXATTR_EXT;

fn wire_time(time: Time) -> (u64, u32) {
    (time.secs.cast_unsigned(), time.nanos)
}

fn time(secs: u64, nanos: u32) -> Time {
    Time { secs: secs.cast_signed(), nanos: nanos % 1_000_000_000 }
}

/// Operations on names, with opcode and arguments.
fn of_names(sample: &RequestSample) -> Vec<(FuseOperation<'_>, u32, Vec<u8>)> {
    let RequestSample { name, other_name, wide, narrow, flag, .. } = sample;
    let [mode, rdev, umask, open_flags, flags] = *narrow;
    let (one, two) = (ended(name), ended(other_name));
    let new_parent = wide[0];
    let kill = u32::from(*flag) * abi::OPEN_KILL_SUIDGID;
    let create = abi::CreateIn { flags: open_flags, mode, umask, open_flags: kill };
    let create_of = |name| CreateArgs { name, mode, umask, open_flags, kill_privileges: *flag };
    let with = |fixed: &[u8], names: &[&[u8]]| [fixed, &names.concat()].concat();
    let mknod = abi::MknodIn { mode, rdev, umask, padding: 9 };
    let rename2 = abi::Rename2In { newdir: new_parent, flags, padding: 9 };
    let rename = |flags| FuseOperation::Rename { name, new_parent, new_name: other_name, flags };
    vec![
        (FuseOperation::Lookup { name }, opcode::LOOKUP, one.clone()),
        (
            FuseOperation::Symlink { name, target: other_name },
            opcode::SYMLINK,
            with(&[], &[&one, &two]),
        ),
        (
            FuseOperation::Mknod { name, mode, rdev, umask },
            opcode::MKNOD,
            with(mknod.as_bytes(), &[&one]),
        ),
        (
            FuseOperation::Mkdir { name, mode, umask },
            opcode::MKDIR,
            with(abi::MkdirIn { mode, umask }.as_bytes(), &[&one]),
        ),
        (FuseOperation::Unlink { name }, opcode::UNLINK, one.clone()),
        (FuseOperation::Rmdir { name }, opcode::RMDIR, one.clone()),
        (rename(0), opcode::RENAME, with(new_parent.as_bytes(), &[&one, &two])),
        (rename(flags), opcode::RENAME2, with(rename2.as_bytes(), &[&one, &two])),
        (
            FuseOperation::Link { target: wide[1], name },
            opcode::LINK,
            with(wide[1].as_bytes(), &[&one]),
        ),
        (FuseOperation::Create(create_of(name)), opcode::CREATE, with(create.as_bytes(), &[&one])),
        (
            FuseOperation::Tmpfile(create_of(b"")),
            opcode::TMPFILE,
            with(create.as_bytes(), &[b"/\0"]),
        ),
        (FuseOperation::Removexattr { name }, opcode::REMOVEXATTR, one.clone()),
    ]
}

/// Operations on attributes and operations without arguments, with opcode and arguments.
fn of_attributes(sample: &RequestSample) -> Vec<(FuseOperation<'_>, u32, Vec<u8>)> {
    let RequestSample { name, data, wide, narrow, flag, .. } = sample;
    let [size, flags, mask, mode, uid] = *narrow;
    let handle = flag.then_some(wide[0]);
    let getattr = abi::GetattrIn { getattr_flags: (*flag).into(), dummy: 9, fh: wide[0] };
    let statx = abi::StatxIn {
        getattr_flags: (*flag).into(),
        reserved: 9,
        fh: wide[0],
        sx_flags: flags,
        sx_mask: mask,
    };
    let getxattr = abi::GetxattrIn { size, padding: 9 };
    let fixed = abi::SetxattrIn { size: data.len() as u32, flags };
    let ext = abi::SetxattrExt { setxattr_flags: mask, padding: 9 };
    let clear_sgid = mask & abi::SETXATTR_ACL_KILL_SGID != 0;
    let setxattr = [fixed.as_bytes(), ext.as_bytes(), &ended(name), data];
    let (all, all_wire) = setattr(sample, mode, uid);
    let none = abi::SetattrIn { valid: 0, ..all_wire };
    vec![
        (FuseOperation::Forget { count: wide[0] }, opcode::FORGET, wide[0].as_bytes().to_vec()),
        (FuseOperation::Getattr { handle }, opcode::GETATTR, getattr.as_bytes().to_vec()),
        (FuseOperation::Statx { handle, flags, mask }, opcode::STATX, statx.as_bytes().to_vec()),
        (FuseOperation::Setattr(all), opcode::SETATTR, all_wire.as_bytes().to_vec()),
        (FuseOperation::Setattr(SetattrArgs::default()), opcode::SETATTR, none.as_bytes().to_vec()),
        (FuseOperation::Readlink, opcode::READLINK, Vec::new()),
        (FuseOperation::Statfs, opcode::STATFS, Vec::new()),
        (FuseOperation::Syncfs, opcode::SYNCFS, wide[0].as_bytes().to_vec()),
        (FuseOperation::Destroy, opcode::DESTROY, Vec::new()),
        (
            FuseOperation::Interrupt { unique: wide[0] },
            opcode::INTERRUPT,
            wide[0].as_bytes().to_vec(),
        ),
        (
            FuseOperation::Setxattr { name, value: data, flags, clear_sgid },
            opcode::SETXATTR,
            setxattr.concat(),
        ),
        (
            FuseOperation::Getxattr { name, size },
            opcode::GETXATTR,
            [getxattr.as_bytes(), &ended(name)].concat(),
        ),
        (FuseOperation::Listxattr { size }, opcode::LISTXATTR, getxattr.as_bytes().to_vec()),
        (
            FuseOperation::Access { mask },
            opcode::ACCESS,
            abi::AccessIn { mask, padding: 9 }.as_bytes().to_vec(),
        ),
    ]
}

/// Returns a change of every attribute, decoded and encoded.
fn setattr(sample: &RequestSample, mode: u32, uid: u32) -> (SetattrArgs, abi::SetattrIn) {
    let RequestSample { wide, narrow, flag, .. } = sample;
    let (at, then) = (time(wide[1], narrow[0]), time(wide[2], narrow[1]));
    let (atime, mtime, ctime) = (wire_time(at), wire_time(then), wire_time(at));
    let now = if *flag { abi::fattr::ATIME_NOW } else { 0 };
    // The bits of all values, one unknown bit, and perhaps the bit for the present time.
    let valid = 0b1100_0111_1111 | 1 << 30 | now;
    let asked = SetattrArgs {
        mode: Some(mode),
        uid: Some(uid),
        gid: Some(narrow[2]),
        size: Some(wide[3]),
        atime: Some(if *flag { SetTime::Now } else { SetTime::At(at) }),
        mtime: Some(SetTime::At(then)),
        ctime: Some(at),
        handle: Some(wide[4]),
        kill_privileges: true,
    };
    let wire = abi::SetattrIn {
        valid,
        fh: wide[4],
        size: wide[3],
        atime: atime.0,
        mtime: mtime.0,
        ctime: ctime.0,
        atimensec: atime.1,
        mtimensec: mtime.1,
        ctimensec: ctime.1,
        mode,
        uid,
        gid: narrow[2],
        ..abi::SetattrIn::default()
    };
    (asked, wire)
}

/// Operations on open files, with opcode and arguments.
fn of_handles(sample: &RequestSample) -> Vec<(FuseOperation<'_>, u32, Vec<u8>)> {
    let RequestSample { data, wide, narrow, flag, .. } = sample;
    let [handle, offset, lock_owner, len, to_node, to_handle, to_offset] = *wide;
    let [size, open_flags, mode, whence, events] = *narrow;
    let bit = |bit: u32| if *flag { bit } else { 0 };
    let open = abi::OpenIn { flags: open_flags, open_flags: bit(abi::OPEN_KILL_SUIDGID) };
    let read = abi::ReadIn {
        fh: handle,
        offset,
        size,
        read_flags: 2,
        lock_owner,
        flags: open_flags,
        padding: 9,
    };
    let read_of = ReadArgs { handle, offset, size, open_flags };
    let write = abi::WriteIn {
        size: data.len() as u32,
        fh: handle,
        offset,
        write_flags: bit(abi::WRITE_CACHE) | bit(abi::WRITE_KILL_SUIDGID),
        lock_owner,
        flags: open_flags,
        padding: 9,
    };
    let write_of =
        WriteArgs { handle, offset, data, open_flags, from_cache: *flag, kill_privileges: *flag };
    let release = abi::ReleaseIn {
        fh: handle,
        flags: open_flags,
        release_flags: bit(abi::RELEASE_FLOCK_UNLOCK),
        lock_owner,
    };
    let release_of = ReleaseArgs { handle, open_flags, lock_owner, unlock_flock: *flag };
    let fsync = abi::FsyncIn { fh: handle, fsync_flags: (*flag).into(), padding: 9 };
    let flush = abi::FlushIn { fh: handle, unused: 1, padding: 9, lock_owner };
    let lock = abi::LkIn {
        fh: handle,
        owner: lock_owner,
        lk: abi::FileLock { start: offset, end: len, kind: whence, pid: size },
        lk_flags: bit(abi::LK_FLOCK),
        padding: 9,
    };
    let lock_of = LockArgs {
        handle,
        owner: lock_owner,
        start: offset,
        end: len,
        kind: whence,
        pid: size,
        is_flock: *flag,
    };
    let copy = abi::CopyFileRangeIn {
        fh_in: handle,
        off_in: offset,
        nodeid_out: to_node,
        fh_out: to_handle,
        off_out: to_offset,
        len,
        flags: 3,
    };
    let copy_of = |is_wide| {
        FuseOperation::CopyFileRange(CopyArgs {
            handle,
            offset,
            to_node,
            to_handle,
            to_offset,
            len,
            flags: 3,
            is_wide,
        })
    };
    let fallocate = abi::FallocateIn { fh: handle, offset, length: len, mode, padding: 9 };
    let lseek = abi::LseekIn { fh: handle, offset, whence, padding: 9 };
    let poll = abi::PollIn { fh: handle, kh: offset, flags: mode, events };
    let bmap = abi::BmapIn { block: offset, blocksize: size, padding: 9 };
    let ioctl = abi::IoctlIn {
        fh: handle,
        flags: mode,
        cmd: whence,
        arg: offset,
        in_size: data.len() as u32,
        out_size: size,
    };
    let ioctl_of = IoctlArgs {
        handle,
        command: whence,
        argument: offset,
        input: data,
        output_len_max: size,
        flags: mode,
    };
    let bytes = |fixed: &[u8]| fixed.to_vec();
    vec![
        (
            FuseOperation::Open { open_flags, kill_privileges: *flag },
            opcode::OPEN,
            bytes(open.as_bytes()),
        ),
        (FuseOperation::Opendir { open_flags }, opcode::OPENDIR, bytes(open.as_bytes())),
        (FuseOperation::Read(read_of), opcode::READ, bytes(read.as_bytes())),
        (FuseOperation::Readdir(read_of), opcode::READDIR, bytes(read.as_bytes())),
        (FuseOperation::Readdirplus(read_of), opcode::READDIRPLUS, bytes(read.as_bytes())),
        (FuseOperation::Write(write_of), opcode::WRITE, [write.as_bytes(), data].concat()),
        (FuseOperation::Release(release_of), opcode::RELEASE, bytes(release.as_bytes())),
        (FuseOperation::Releasedir(release_of), opcode::RELEASEDIR, bytes(release.as_bytes())),
        (FuseOperation::Fsync { handle, data_only: *flag }, opcode::FSYNC, bytes(fsync.as_bytes())),
        (
            FuseOperation::Fsyncdir { handle, data_only: *flag },
            opcode::FSYNCDIR,
            bytes(fsync.as_bytes()),
        ),
        (FuseOperation::Flush { handle, lock_owner }, opcode::FLUSH, bytes(flush.as_bytes())),
        (FuseOperation::Getlk(lock_of), opcode::GETLK, bytes(lock.as_bytes())),
        (FuseOperation::Setlk(lock_of), opcode::SETLK, bytes(lock.as_bytes())),
        (FuseOperation::Setlkw(lock_of), opcode::SETLKW, bytes(lock.as_bytes())),
        (copy_of(false), opcode::COPY_FILE_RANGE, bytes(copy.as_bytes())),
        (copy_of(true), opcode::COPY_FILE_RANGE_64, bytes(copy.as_bytes())),
        (
            FuseOperation::Fallocate { handle, offset, len, mode },
            opcode::FALLOCATE,
            bytes(fallocate.as_bytes()),
        ),
        (FuseOperation::Lseek { handle, offset, whence }, opcode::LSEEK, bytes(lseek.as_bytes())),
        (
            FuseOperation::Poll { handle, events, wakeup: offset, flags: mode },
            opcode::POLL,
            bytes(poll.as_bytes()),
        ),
        (
            FuseOperation::Bmap { block: offset, block_size: size },
            opcode::BMAP,
            bytes(bmap.as_bytes()),
        ),
        (FuseOperation::Ioctl(ioctl_of), opcode::IOCTL, [ioctl.as_bytes(), data].concat()),
    ]
}

/// All operations but BATCH_FORGET, with opcode and arguments.
pub(super) fn operations(sample: &RequestSample) -> Vec<(FuseOperation<'_>, u32, Vec<u8>)> {
    let mut all = of_names(sample);
    all.append(&mut of_attributes(sample));
    all.append(&mut of_handles(sample));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_survive_a_round_trip(sample in samples(), node in any::<u64>()) {
        for (operation, opcode, arguments) in operations(&sample) {
            let bytes = message(opcode, node, &arguments, &[]);
            let request = FuseRequest::decode(&bytes, BOTH).expect("a request");
            prop_assert_eq!(&request.operation, &operation);
            prop_assert_eq!((request.node, request.unique), (node, 42));
            prop_assert_eq!((request.uid, request.gid, request.pid), (1000, 100, 7));
            // One byte more, or any number of bytes less, is an error.
            let more = [&arguments[..], &[1]].concat();
            let longer = message(opcode, node, &more, &[]);
            prop_assert!(FuseRequest::decode(&longer, BOTH).is_err(), "{operation:?}");
            for len in 0..arguments.len() {
                let shorter = message(opcode, node, &arguments[..len], &[]);
                prop_assert!(FuseRequest::decode(&shorter, BOTH).is_err(), "{operation:?} of {len}");
            }
        }
    }

    #[test]
    fn batches_of_forgets_survive_a_round_trip(forgets in proptest::collection::vec(any::<(u64, u64)>(), 0..9)) {
        let fixed = abi::BatchForgetIn { count: forgets.len() as u32, dummy: 0 };
        let mut arguments = fixed.as_bytes().to_vec();
        for (nodeid, nlookup) in forgets.iter().copied() {
            arguments.extend_from_slice(abi::ForgetOne { nodeid, nlookup }.as_bytes());
        }
        let bytes = message(opcode::BATCH_FORGET, 0, &arguments, &[]);
        let request = FuseRequest::decode(&bytes, BOTH).expect("a request");
        let FuseOperation::BatchForget(decoded) = request.operation else { panic!("{request:?}") };
        prop_assert_eq!(decoded.iter().collect::<Vec<_>>(), forgets);
        prop_assert!(!request.operation.is_answered());
    }

    #[test]
    fn groups_survive_a_round_trip(groups in proptest::collection::vec(any::<u32>(), 0..5)) {
        let mut body = [&[groups.len() as u32][..], &groups].concat();
        body.resize(body.len().next_multiple_of(2), 0);
        let header = abi::ExtHeader { size: 8 + body.len() as u32 * 4, kind: abi::EXT_GROUPS };
        let other = abi::ExtHeader { size: 8, kind: 1 };
        let extensions = [other.as_bytes(), header.as_bytes(), body.as_bytes()].concat();
        let bytes = message(opcode::UNLINK, 1, b"name\0", &extensions);
        let request = FuseRequest::decode(&bytes, BOTH).expect("a request");
        prop_assert_eq!(request.extensions.groups().collect::<Vec<_>>(), groups);
        prop_assert_eq!(request.operation, FuseOperation::Unlink { name: b"name" });
    }
}

#[test]
fn the_short_form_of_setxattr_is_decoded_without_the_feature() {
    let fixed = abi::SetxattrIn { size: 3, flags: 1 };
    let arguments = [fixed.as_bytes(), b"user.a\0", b"xyz"].concat();
    let bytes = message(opcode::SETXATTR, 1, &arguments, &[]);
    let request = FuseRequest::decode(&bytes, InitFlags::empty()).expect("a request");
    let expected =
        FuseOperation::Setxattr { name: b"user.a", value: b"xyz", flags: 1, clear_sgid: false };
    assert_eq!(request.operation, expected);
    assert!(FuseRequest::decode(&bytes, InitFlags::SETXATTR_EXT).is_err());
}

#[test]
fn each_defect_of_a_message_has_its_error() {
    let reason =
        |bytes: &[u8]| FuseRequest::decode(bytes, BOTH).expect_err("the bytes are no request");
    let good = message(opcode::LOOKUP, 1, b"name\0", &[]);
    assert_eq!(reason(&good[..39]), Malformed::Length);
    assert_eq!(reason(&good[..44]), Malformed::Length);
    assert_eq!(reason(&message(opcode::LOOKUP, 1, b"a/b\0", &[])), Malformed::Name);
    assert_eq!(reason(&message(opcode::LOOKUP, 1, b"a\0b\0", &[])), Malformed::Long);
    assert_eq!(reason(&message(opcode::READ, 1, &[0; 39], &[])), Malformed::Short);
    for unknown in [0, 7, 19, 41, 48, 49, 54, 4096, u32::MAX] {
        assert_eq!(reason(&message(unknown, 1, &[], &[])), Malformed::Opcode(unknown));
    }
    let header = abi::ExtHeader { size: 24, kind: abi::EXT_GROUPS };
    let cut = [header.as_bytes(), &[0; 8]].concat();
    assert_eq!(reason(&message(opcode::UNLINK, 1, b"a\0", &cut)), Malformed::Extension);
    let endless = abi::ExtHeader { size: 0, kind: 1 };
    assert_eq!(
        reason(&message(opcode::UNLINK, 1, b"a\0", endless.as_bytes())),
        Malformed::Extension
    );
    assert_eq!(Errno::NOT_IMPLEMENTED.code(), libc::ENOSYS);
}

#[test]
fn an_empty_batch_is_a_batch() {
    let bytes = message(opcode::BATCH_FORGET, 0, &[0; 8], &[]);
    let request = FuseRequest::decode(&bytes, BOTH).expect("a request");
    assert!(
        matches!(request.operation, FuseOperation::BatchForget(batch) if batch.iter().count() == 0)
    );
    fn assert_is_copy<T: std::marker::Copy>() {}
    assert_is_copy::<Forgets<'_>>();
}
