//! Replays of random changes, after a death at each kind of moment: the volume is as if the daemon had lived.
#![expect(clippy::host_endian_bytes, reason = "the protocol has the byte order of the machine")]

mod flags_and_times;
mod space;

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{Inode, InodeFlags, Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{VolumeOptions, Work};
use sfs_device::RamDevice;
use sfs_fuse::{FuseRequest, Handler, InitFlags, Reply};
use sfs_testkit::{SeededRng, number_from_env};

use super::fuse_shell::{FuseShell, caller};
use super::inode_flags;
use super::reply_result::ReplyResult;
use crate::background::Waker;
use crate::file_clock;
use crate::log_thread::LogWork;
use crate::mount_options::MountOptions;
use crate::survival::{self, Journal};

const BLOCKS: u64 = 1 << 14;
const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };
const FLAGS: InitFlags = InitFlags::empty();
const NAMES: u64 = 6;

const FORGET: u32 = 2;
const SETATTR: u32 = 4;
const SYMLINK: u32 = 6;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
const LINK: u32 = 13;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const SETXATTR: u32 = 21;
const REMOVEXATTR: u32 = 24;
const CREATE: u32 = 35;
const IOCTL: u32 = 39;
const FALLOCATE: u32 = 43;
const RENAME: u32 = 45;
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

/// Random requests, to nodes that there may be.
struct Requests {
    random: SeededRng,
    unique: u64,
}

impl Requests {
    fn next(&mut self, nodes: &[u64]) -> Vec<u8> {
        self.unique += 2;
        let random = &mut self.random;
        let node = nodes[random.below(nodes.len() as u64) as usize];
        let other = nodes[random.below(nodes.len() as u64) as usize];
        let name = format!("name-{}\0", random.below(NAMES));
        let second = format!("name-{}\0", random.below(NAMES));
        let (name, second) = (name.as_bytes(), second.as_bytes());
        let (at, len) = (random.below(60_000), 1 + random.below(9000));
        let unique = self.unique;
        let of = |kind, parts: &[&[u8]]| message(unique, kind, parts);
        match random.below(16) {
            0 => of((MKDIR, node), &[&words([0o755, 0]), name]),
            1 => of((MKNOD, node), &[&words([0o100_644, 0, 0, 0]), name]),
            2 => of((CREATE, node), &[&words([2, 0o100_644, 0, 0]), name]),
            3 => of((SYMLINK, node), &[name, second]),
            4 => of((UNLINK, node), &[name]),
            5 => of((RMDIR, node), &[name]),
            6 => of((LINK, node), &[&longs([other]), name]),
            7 | 8 => {
                let flags = [0, 0, 1, 2][random.below(4) as usize];
                of((RENAME, node), &[&longs([other]), &words([flags, 0]), name, second])
            }
            9 => {
                let flags = random.below(3) as u32;
                of((SETXATTR, node), &[&words([3, flags]), b"user.x\0", &random.bytes(3)])
            }
            10 => of((REMOVEXATTR, node), &[b"user.x\0"]),
            11 => {
                let mut body = words([1 << 3, 0]);
                body.extend(longs([0, at]));
                body.resize(88, 0);
                of((SETATTR, node), &[&body])
            }
            12 => {
                let mut body = words([1, 0]);
                body.resize(68, 0);
                body.extend(words([0o640 + random.below(8) as u32]));
                body.resize(88, 0);
                of((SETATTR, node), &[&body])
            }
            13 if random.one_in(2) => {
                let mode = if random.one_in(2) { 3 } else { 0 };
                of((FALLOCATE, node), &[&longs([0, at, len]), &words([mode, 0])])
            }
            _ => {
                let data = random.bytes(len as usize);
                let head =
                    [longs([0, at]), words([data.len() as u32, 1]), longs([0]), words([0, 0])];
                of((WRITE, node), &[&head.concat(), &data])
            }
        }
    }
}

/// Inode with its number, content, and attribute of a file.
type SeenFile = (u64, Inode, Vec<u8>, Option<Vec<u8>>);

/// Everything that callers see of a volume, by path.
fn everything(volume: &Volume, spares: bool) -> BTreeMap<String, SeenFile> {
    volume.sync_all().expect("RAM does not fail");
    let mut found = BTreeMap::new();
    let mut left = vec![(String::new(), ROOT_INO)];
    while let Some((path, ino)) = left.pop() {
        let inode = volume.attributes(ino).expect("the file is there");
        let mut content = Vec::new();
        match inode.kind() {
            sfs_core::format::FileKind::Directory => {
                let mut add = |entry: &sfs_core::request::DirectoryEntry<'_>| {
                    if !matches!(entry.name, b"." | b"..") {
                        let name = String::from_utf8_lossy(entry.name);
                        left.push((format!("{path}/{name}"), entry.ino));
                    }
                    true
                };
                volume.read_directory(ino, 0, false, &mut add).expect("a directory");
            }
            sfs_core::format::FileKind::Regular => {
                let read = volume.read(ino, 0, inode.size as usize).expect("a file");
                content = read.as_bytes().to_vec();
            }
            _ => {}
        }
        let attribute = volume.xattr(ino, b"user.x").ok();
        // What was written twice counts twice, and a file may have no reservations in two ways: its blocks count them.
        let flags = InodeFlags::OF_USERS | InodeFlags::XATTRS | InodeFlags::INLINE;
        let flags = inode.flags.intersection(flags);
        let inode = Inode { write_count: 0, modified: 0, flags, ..inode };
        let inode = if spares { without_form(inode) } else { inode };
        found.insert(path, (ino, inode, content, attribute));
    }
    found
}

/// Returns an inode without what tells how its content is stored, which is another way if less is written.
fn without_form(inode: Inode) -> Inode {
    let flags = inode.flags.intersection(InodeFlags::OF_USERS | InodeFlags::XATTRS);
    Inode { blocks: 0, flags, ..inode }
}

/// Moment at which the daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Between,
    /// The last change was recorded, and not executed.
    Begun,
    /// The last change was executed, and its reply not recorded.
    Executed,
    /// As above, and it is in the log.
    Committed,
}

fn commit_some(random: &mut SeededRng, shell: &FuseShell, nodes: &[u64]) {
    match random.below(12) {
        0 => shell.volume.sync_all().expect("RAM does not fail"),
        1 | 2 => {
            let node = nodes[random.below(nodes.len() as u64) as usize];
            let _ = shell.volume.sync_file(node);
        }
        _ => {}
    }
}

/// Runs random changes to a death, goes on, and compares with a volume on which nobody died.
fn die(seed: u64, death: Death, spares: bool) {
    let device = new_device();
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("it opens");
    let mut shell = shell(volume);
    let handles = shell.handles();
    let opened: Box<survival::OpenedNow> = Box::new(move || handles.opened_now());
    let parts = (shell.volume.clone(), opened);
    let journal = survival::begin(parts, "device").expect("memory");
    shell.set_journal(journal.clone());
    let mut requests = Requests { random: SeededRng::new(seed), unique: 0 };
    let mut random = SeededRng::new(!seed);
    let mut nodes = vec![ROOT_INO];
    for _ in 0..random.below(120) {
        let bytes = requests.next(&nodes);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        if let Ok(Reply::Entry(entry) | Reply::Created(entry, _)) = shell.answer(&request, &mut [])
        {
            nodes.push(entry.node);
        }
        commit_some(&mut random, &shell, &nodes);
    }
    if death != Death::Between {
        let bytes = requests.next(&nodes);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let changing = journal.begin(request.message, || true);
        if death != Death::Begun {
            let _ = shell.pass(&request, None, &mut []);
        }
        if death == Death::Committed {
            shell.volume.sync_all().expect("RAM does not fail");
        }
        drop(changing);
    }
    let records = journal.descriptor().expect("a descriptor");
    drop((shell, journal));
    let (revived, changes) = revive(device, records.into(), spares);
    let oracle =
        self::shell(Volume::open(new_device(), VolumeOptions::default(), NOW).expect("it opens"));
    for change in &changes {
        let _time = file_clock::fix(change.begun.now);
        let request = FuseRequest::decode(&change.message, FLAGS).expect("a request");
        let _ = oracle.pass(&request, None, &mut []);
    }
    let (found, expected) =
        (everything(&revived.volume, spares), everything(&oracle.volume, spares));
    for (path, file) in &expected {
        assert!(
            found.get(path) == Some(file),
            "seed {seed}, {death:?}: {path}: {:?}\n{:?}",
            found.get(path).map(|f| (f.0, f.1)),
            (file.0, file.1)
        );
    }
    assert_eq!(found.len(), expected.len(), "seed {seed}, {death:?}");
}

fn revive(
    device: Arc<RamDevice>,
    records: std::fs::File,
    spares: bool,
) -> (FuseShell, Vec<survival::RecordedRequest>) {
    let options = VolumeOptions::default();
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
    shell
        .replay_sparing(&revival, FLAGS, &journal, spares)
        .expect("the changes have the same outcome");
    let changes = revival.changes().to_vec();
    revival.end(&journal);
    (shell, changes)
}

fn die_in_every_way(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for death in [Death::Between, Death::Begun, Death::Executed, Death::Committed] {
            die(seed, death, false);
            die(seed, death, true);
        }
    }
}

#[test]
fn a_volume_goes_on_as_if_the_daemon_had_lived() {
    die_in_every_way(0..24);
}

/// Takes six minutes in a debug build. `SFS_SEED` is the first seed.
#[test]
#[ignore = "long: `cargo test --release -p sfs --lib replay -- --ignored`"]
fn a_volume_goes_on_as_if_the_daemon_had_lived_in_many_cases() {
    die_in_every_way(number_from_env("SFS_SEED", 24)..1000);
}

/// Mount whose requests are chosen one by one.
struct Scene {
    device: Arc<RamDevice>,
    shell: FuseShell,
    journal: Arc<Journal>,
    unique: u64,
}

impl Scene {
    fn new() -> Self {
        let device = new_device();
        let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("it opens");
        let mut shell = shell(volume);
        let journal = survival::begin(parts_of(&shell), "device").expect("memory");
        shell.set_journal(journal.clone());
        Self { device, shell, journal, unique: 0 }
    }

    fn message(&mut self, kind: (u32, u64), parts: &[&[u8]]) -> Vec<u8> {
        self.unique += 2;
        message(self.unique, kind, parts)
    }

    fn ask(&mut self, kind: (u32, u64), parts: &[&[u8]]) -> ReplyResult {
        let bytes = self.message(kind, parts);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        self.shell.answer(&request, &mut [])
    }

    /// Makes a file, and returns its inode and its handle.
    fn make(&mut self, opcode: u32, name: &str, mode: u32) -> (u64, u64) {
        let name = format!("{name}\0");
        let made = self.ask((opcode, ROOT_INO), &[&words([2, mode, 0, 0]), name.as_bytes()]);
        let Ok(Reply::Created(entry, opened)) = made else { panic!("it is made") };
        (entry.node, opened.handle)
    }

    fn forget(&mut self, node: u64, count: u64) {
        let _ = self.ask((FORGET, node), &[&longs([count])]);
        self.work();
    }

    fn release(&mut self, node: u64, handle: u64) {
        self.ask((RELEASE, node), &[&longs([handle]), &words([0, 0]), &longs([0])]).expect("open");
    }

    fn unlink(&mut self, name: &str) {
        let name = format!("{name}\0");
        self.ask((UNLINK, ROOT_INO), &[name.as_bytes()]).expect("the file is there");
    }

    fn write(&mut self, node: u64, data: &[u8]) {
        for (at, piece) in data.chunks(1 << 17).enumerate() {
            let written = self.ask((WRITE, node), &[&write_head(at << 17, piece, 0), piece]);
            written.expect("there is room");
        }
    }

    fn sync(&self) {
        self.shell.volume.sync_all().expect("RAM does not fail");
    }

    /// Writes everything to the log, so that no record is left.
    fn settle(&self) {
        let commits = survival::CommitThread::start(self.journal.clone()).expect("a thread");
        // The kernel has all replies.
        (0..=self.unique).for_each(|unique| self.journal.replied(unique));
        self.journal.begin_unrecorded().commit();
        commits.stop();
    }

    fn work(&self) {
        while self.shell.volume.work(NOW).expect("RAM does not fail") == Work::More {}
    }

    /// Makes a file that no record tells of, which leaves `left` bytes of the volume.
    fn fill(&mut self, left: u64) {
        let bytes = self.message((CREATE, ROOT_INO), &[&words([2, 0o100_644, 0, 0]), b"filler\0"]);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let made = self.shell.pass(&request, None, &mut []);
        let Ok(Reply::Created(entry, _)) = made else { panic!("it is made") };
        let piece = vec![1; 1 << 17];
        for at in 0.. {
            if self.shell.volume.certain_space().available_bytes() < left {
                break;
            }
            let head = write_head(at << 17, &piece, 0);
            let bytes = self.message((WRITE, entry.node), &[&head, &piece]);
            let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
            self.shell.pass(&request, None, &mut []).expect("there is room");
            self.sync();
        }
    }

    fn die(self) -> FuseShell {
        let records = self.journal.descriptor().expect("a descriptor");
        let Self { device, shell, journal, .. } = self;
        drop((shell, journal));
        revive(device, records.into(), false).0
    }
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
        let changing = scene.journal.begin(request.message, || keeps);
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
    let changing = scene.journal.begin(request.message, || true);
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
