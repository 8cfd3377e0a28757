//! Replays of changes after the death of a daemon.
#![expect(clippy::host_endian_bytes, reason = "the protocol has the byte order of the machine")]

mod flags_and_times;
mod full;
mod notices;
mod privileges;
mod random;
mod random_syncs;
mod replies;
mod scene;
mod space;
mod synced;

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{Inode, InodeFlags, Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{VolumeOptions, Work};
use sfs_device::{Device, RamDevice};
use sfs_fuse::{FuseRequest, Handler, InitFlags, Reply};
use sfs_testkit::{SeededRng, number_from_env};

use self::scene::Scene;
use super::fuse_shell::{FuseShell, caller};
use super::inode_flags;
use super::reply_result::ReplyResult;
use crate::background::Waker;
use crate::file_clock;
use crate::log_thread::LogWork;
use crate::mount_options::MountOptions;
use crate::survival::{self, Before, Journal};

const BLOCKS: u64 = 1 << 14;
const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };
const FLAGS: InitFlags = InitFlags::empty();
/// State before a change that does not depend on it.
const BEFORE: Before = Before { keeps_privileges: true, size: 0, new_ino: 0 };

const FORGET: u32 = 2;
const SETATTR: u32 = 4;
const SYMLINK: u32 = 6;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
const LINK: u32 = 13;
const OPEN: u32 = 14;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const SETXATTR: u32 = 21;
const REMOVEXATTR: u32 = 24;
const CREATE: u32 = 35;
const IOCTL: u32 = 39;
const FALLOCATE: u32 = 43;
const RENAME: u32 = 45;
const SYNCFS: u32 = 50;
const TMPFILE: u32 = 51;

fn new_device() -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let layout = Layout::new(BLOCKS, 256, 0).expect("the layout fits");
    let superblock = Superblock { uuid: [7; 16], label: Label::NONE, ..Superblock::new(layout) };
    let root = sfs_core::root_directory(0, 0, NOW);
    sfs_core::make(device.clone(), &superblock, &root).expect("a volume");
    device
}

fn shell(volume: Volume) -> FuseShell {
    let threads = (Arc::new(Waker::default()), Arc::new(LogWork::new(None)));
    let options = MountOptions::default();
    FuseShell::new(Arc::new(volume), threads, Arc::default(), &options, "device".into())
}

/// Bytes of a request.
fn message(unique: u64, (opcode, node): (u32, u64), parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut bytes = (40 + body.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn longs<const N: usize>(longs: [u64; N]) -> Vec<u8> {
    longs.into_iter().flat_map(u64::to_ne_bytes).collect()
}

fn revive(
    device: Arc<RamDevice>,
    records: std::fs::File,
    spares: bool,
) -> (FuseShell, Vec<survival::RecordedRequest>) {
    revive_with((device, VolumeOptions::default()), records, spares)
}

fn revive_with(
    volume: (Arc<dyn Device>, VolumeOptions),
    records: std::fs::File,
    spares: bool,
) -> (FuseShell, Vec<survival::RecordedRequest>) {
    let (shell, journal, revival) = adopt(volume, records);
    shell
        .replay_sparing(&revival, FLAGS, &journal, spares)
        .expect("the changes have the same outcome");
    let changes = revival.changes().to_vec();
    revival.end(&journal);
    (shell, changes)
}

/// Goes on with what a process has left, up to the replay.
fn adopt(
    (device, options): (Arc<dyn Device>, VolumeOptions),
    records: std::fs::File,
) -> (FuseShell, Arc<Journal>, survival::Revival) {
    let volume = Volume::open_to_write_later(device, options, NOW, &mut |_| {}).expect("it opens");
    let mut shell = shell(volume);
    let handles = shell.handles();
    let opened: Box<survival::OpenedNow> = Box::new(move || handles.opened_now());
    let parts = (shell.volume.clone(), opened);
    let (journal, revival) = survival::revive(Some(records), parts, "device").expect("records");
    let (journal, revival): (Arc<Journal>, _) = (journal.expect("one"), revival.expect("one"));
    shell.set_journal(journal.clone());
    revival.adopt_references(&shell.volume);
    shell.handles.adopt_opened(revival.handles());
    shell.volume.begin_writing(NOW, &mut |_| {}).expect("RAM does not fail");
    (shell, journal, revival)
}

fn parts_of(shell: &FuseShell) -> (Arc<Volume>, Box<survival::OpenedNow>) {
    let handles = shell.handles();
    (shell.volume.clone(), Box::new(move || handles.opened_now()))
}

fn write_head(at: usize, data: &[u8], open_flags: u32) -> Vec<u8> {
    let cached = u32::from(open_flags == 0);
    let lens = words([data.len() as u32, cached]);
    [longs([0, at as u64]), lens, longs([0]), words([open_flags, 0])].concat()
}

/// Regression: the log knew the number of a file, and not the file, which was deleted; it was made with another number.
#[test]
fn a_file_without_a_name_that_is_gone_is_not_made_again() {
    let mut scene = Scene::new();
    let (node, handle) = scene.make(TMPFILE, "", 0o100_600);
    scene.release(node, handle);
    scene.forget(node, 1);
    scene.sync();
    let revived = scene.die();
    assert!(revived.volume.attributes(node).is_err());
    assert_eq!(revived.volume.next_inode_number().ok(), Some(node + 1));
}

/// Regression: the file was deleted before it got its name for the second time.
#[test]
fn a_file_without_a_name_gets_one_and_loses_it_again() {
    for is_made_in_log in [false, true] {
        let mut scene = Scene::new();
        let (node, handle) = scene.make(TMPFILE, "", 0o100_600);
        scene.write(node, b"content");
        if is_made_in_log {
            scene.sync();
        }
        for name in [b"a\0", b"b\0"] {
            scene.ask((LINK, ROOT_INO), &[&longs([node]), name]).expect("it gets a name");
        }
        scene.unlink("a");
        scene.release(node, handle);
        scene.forget(node, 3);
        let revived = scene.die();
        let found = revived.volume.lookup(ROOT_INO, b"b").expect("the name is there");
        assert_eq!(found.ino, node);
        assert_eq!(revived.volume.read(node, 0, 9).expect("a file").as_bytes(), b"content");
        revived.volume.lookup(ROOT_INO, b"a").expect_err("the name is gone");
    }
}

/// Regression: new flags of a directory hid by their time that changes in it were in the log.
#[test]
fn nothing_is_recorded_while_flags_change() {
    let mut scene = Scene::new();
    let commits = survival::CommitThread::start(scene.journal.clone()).expect("a thread");
    scene.make(CREATE, "file", 0o100_644);
    let head = [longs([0]), words([0, inode_flags::SET_FLAGS]), longs([0]), words([4, 0])];
    let bytes = scene.message((IOCTL, ROOT_INO), &[&head.concat(), &words([0x40])]);
    let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
    let changes = || {
        let records = scene.journal.descriptor().expect("a descriptor");
        let parts = parts_of(&scene.shell);
        let (_, revival) =
            survival::revive(Some(records.into()), parts, "device").expect("records");
        revival.expect("one").changes().len()
    };
    assert_eq!(changes(), 1);
    let set = || {
        assert_eq!(changes(), 0, "what is before is in the log");
        scene.shell.pass(&request, None, &mut [])
    };
    let replied = scene.journal.clone();
    // The kernel has its reply to all before.
    (0..scene.unique).for_each(|unique| replied.replied(unique));
    scene.shell.serve_journaled(&scene.journal, &request, None, set).expect("it is set");
    commits.stop();
    let root = scene.die().volume.attributes(ROOT_INO).expect("a directory");
    assert!(root.flags.contains(InodeFlags::NO_DUMP));
}

/// Regression: files that were gone took the space of those that were written after them.
#[test]
fn a_full_volume_goes_on() {
    for is_in_log in [false, true] {
        let mut scene = Scene::new();
        scene.fill(8 << 20);
        let content = SeededRng::new(3).bytes(5 << 20);
        let mut node = 0;
        for name in ["a", "b"] {
            node = scene.make(CREATE, name, 0o100_644).0;
            scene.write(node, &content);
            if name == "a" {
                scene.unlink(name);
                scene.forget(node, 1);
            }
        }
        if is_in_log {
            scene.sync();
        }
        let revived = scene.die();
        let read = revived.volume.read(node, 0, content.len()).expect("a file");
        assert!(read.as_bytes() == content, "{is_in_log}");
        revived.volume.sync_all().expect("there is room");
    }
}

/// Regression: a change that was refused for want of space was done by the next daemon.
#[test]
fn what_was_refused_stays_so() {
    let mut scene = Scene::new();
    scene.fill(2 << 20);
    let node = scene.make(CREATE, "file", 0o100_644).0;
    let range = longs([0, 0, 8 << 20]);
    scene.ask((FALLOCATE, node), &[&range, &words([0, 0])]).expect_err("it is too much");
    let filler = scene.shell.volume.lookup(ROOT_INO, b"filler").expect("it is there").ino;
    let bytes = scene.message((UNLINK, ROOT_INO), &[b"filler\0"]);
    let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
    scene.ask((MKDIR, ROOT_INO), &[&words([0o755, 0]), b"later\0"]).expect("room");
    scene.shell.pass(&request, None, &mut []).expect("it is there");
    scene.shell.volume.forget(filler, 2);
    scene.work();
    // The last change in the log is a recorded one.
    scene.ask((RMDIR, ROOT_INO), &[b"later\0"]).expect("it is there");
    scene.sync();
    let revived = scene.die();
    assert_eq!(revived.volume.attributes(node).expect("a file").size, 0);
}

/// Regression: a write past the cache that was refused for want of space was done by the next daemon, over later data.
#[test]
fn a_write_past_the_cache_that_was_refused_stays_so() {
    let mut scene = Scene::new();
    scene.fill(2 << 20);
    let node = scene.make(CREATE, "file", 0o100_644).0;
    let direct = libc::O_DIRECT.cast_unsigned();
    scene.write(node, &[1; 4096]);
    let much = vec![2; 4 << 20];
    let refused = scene.ask((WRITE, node), &[&write_head(0, &much, direct), &much]);
    assert_eq!(refused.err().map(sfs_fuse::Errno::code), Some(libc::ENOSPC));
    let filler = scene.shell.volume.lookup(ROOT_INO, b"filler").expect("it is there").ino;
    let bytes = scene.message((UNLINK, ROOT_INO), &[b"filler\0"]);
    let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
    scene.shell.pass(&request, None, &mut []).expect("it is there");
    scene.shell.volume.forget(filler, 2);
    scene.work();
    scene.sync();
    let revived = scene.die();
    assert_eq!(revived.volume.attributes(node).expect("a file").size, 4096);
    assert!(revived.volume.read(node, 0, 4096).expect("a file").as_bytes() == [1; 4096]);
}

/// Regression: the process that had asked was gone, so the file lost its suid.
#[test]
fn a_file_keeps_what_the_process_may_keep() {
    for (keeps, is_in_log, mode) in
        [(true, false, 0o4755), (true, true, 0o4755), (false, false, 0o755)]
    {
        let mut scene = Scene::new();
        let node = scene.make(CREATE, "file", 0o104_755).0;
        let bytes = scene.message((FALLOCATE, node), &[&longs([0, 0, 9000]), &words([0, 0])]);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let changing =
            scene.journal.begin(request.message, || Before { keeps_privileges: keeps, ..BEFORE });
        let result = scene.shell.allocate(&request, (0, 9000), 0, !keeps);
        changing.end(&request, &result.map_err(|_| sfs_fuse::Errno::new(libc::EIO)));
        if is_in_log {
            scene.sync();
        }
        let inode = scene.die().volume.attributes(node).expect("a file");
        assert_eq!((inode.mode & 0o7777, inode.size), (mode, 9000), "{keeps} {is_in_log}");
    }
}

/// Regression: it was asked for twice, and what was recorded was not what was done.
#[test]
fn what_was_decided_is_done() {
    let mut scene = Scene::new();
    let node = scene.make(CREATE, "file", 0o104_755).0;
    let bytes = scene.message((FALLOCATE, node), &[&longs([0, 0, 9000]), &words([0, 0])]);
    let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
    let mode_after = |decision: Option<bool>| {
        let _decision = decision.map(super::privileges::decide);
        scene.shell.pass(&request, None, &mut []).expect("there is room");
        scene.shell.volume.attributes(node).expect("a file").mode & 0o7777
    };
    assert_eq!(mode_after(Some(true)), 0o4755);
    assert_eq!(mode_after(None), 0o755, "nobody has sent the request");
}

/// Regression: a truncation through a descriptor that was closed since was refused.
#[test]
fn an_immutable_file_is_truncated_through_a_descriptor_that_was_open() {
    let mut scene = Scene::new();
    let (node, handle) = scene.make(CREATE, "file", 0o100_644);
    scene.write(node, &[7; 9000]);
    let by = FuseRequest::decode(&message(0, (UNLINK, ROOT_INO), &[b"a\0"]), FLAGS)
        .map(|request| caller(&request))
        .expect("a request");
    scene.shell.volume.set_flags(node, InodeFlags::IMMUTABLE, &by).expect("a file");
    scene.sync();
    let mut body = [words([1 << 3 | 1 << 6, 0]), longs([handle, 100])].concat();
    body.resize(88, 0);
    scene.ask((SETATTR, node), &[&body]).expect("it is open for writing");
    scene.release(node, handle);
    assert_eq!(scene.die().volume.attributes(node).expect("a file").size, 100);
}

/// Regression: a write that had waited for its sync was executed again after later ones.
#[test]
fn a_write_that_waits_for_its_sync_is_not_written_again() {
    let mut scene = Scene::new();
    let node = scene.make(CREATE, "file", 0o100_644).0;
    let dsync = libc::O_DSYNC.cast_unsigned();
    let bytes = scene.message((WRITE, node), &[&write_head(0, b"first", dsync), b"first"]);
    let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
    let changing = scene.journal.begin(request.message, || BEFORE);
    scene.shell.pass(&request, None, &mut []).expect("there is room");
    changing.end_unsynced(&request, 5);
    let unique = scene.unique;
    scene.write(node, b"other");
    let revived = scene.die();
    let reply = revived.earlier_reply(unique).expect("it is done");
    assert_eq!(reply[16..20], 5u32.to_ne_bytes(), "the number of bytes");
    assert_eq!(revived.volume.read(node, 0, 5).expect("a file").as_bytes(), b"other");
}

/// Regression: replies were dropped after a second, whether the kernel had asked for them or not.
#[test]
fn replies_are_kept_across_areas_and_deaths() {
    let mut scene = Scene::new();
    scene.make(CREATE, "file", 0o100_644);
    let unique = scene.unique;
    let (device, records) = (scene.device.clone(), scene.journal.descriptor().expect("one"));
    let revived = scene.die();
    let journal = revived.journal.clone().expect("one");
    let commits = survival::CommitThread::start(journal.clone()).expect("a thread");
    journal.begin_unrecorded().commit();
    commits.stop();
    assert!(revived.earlier_reply(unique).is_some(), "the kernel may ask for it");
    drop((revived, journal));
    let (again, changes) = revive(device, records.into(), false);
    assert_eq!(changes.len(), 0);
    assert!(again.earlier_reply(unique).is_some(), "the kernel may still ask for it");
}
