//! Tests of a mount that goes on to newer states, over volumes in memory.

use std::sync::atomic::AtomicBool;

use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::{VolumeOptions, WriteMode};
use sfs_device::{Block, Device, DeviceError, Geometry, Operation, RamDevice, ReadRun, Stream};
use sfs_fuse::{ReadArgs, RequestExtensions};
use sfs_testkit::ram_volume::{FILE_MODE, caller, format, open};

use super::*;
use crate::background::Waker;
use crate::log_thread::LogWork;
use crate::mount_options::MountOptions;

/// Contents of a file, which is not small enough to be read with its metadata.
const FIRST: [u8; 4096] = [1; 4096];
const SECOND: [u8; 4096] = [2; 4096];

/// A state of a volume, of which objects are deleted at some time.
struct StateDevice {
    device: RamDevice,
    is_deleted: AtomicBool,
}

impl Device for StateDevice {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        if self.is_deleted.load(Ordering::Relaxed) {
            let source = std::io::ErrorKind::StaleNetworkFileHandle.into();
            let count = buffer.len() as u64;
            return Err(DeviceError::of_blocks(Operation::Read, address, count, source));
        }
        self.device.read(address, buffer)
    }

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        runs.iter_mut().map(|run| run.read_by(|address, to| self.read(address, to))).collect()
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.device.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.device.discard(address, count)
    }
}

/// Writes a state in which the file `kept` has `content`, from the state before. Without one, the volume is new, and has the file `gone`
/// as well, which the next state has not.
fn state(before: Option<&RamDevice>, content: &[u8]) -> RamDevice {
    let device = Arc::new(match before {
        Some(before) => before.snapshot(),
        None => RamDevice::new(1 << 14),
    });
    if before.is_none() {
        format(device.clone(), 256, DataLayout::Log);
    }
    let volume = open(device.clone(), VolumeOptions::default());
    let kept = match before {
        Some(_) => {
            volume.unlink(ROOT_INO, b"gone", &caller()).expect("the file is there");
            volume.lookup(ROOT_INO, b"kept").expect("the file is there").ino
        }
        None => {
            let make = |name| volume.make_node(ROOT_INO, name, FILE_MODE, 0, &caller());
            make(b"gone").expect("room");
            make(b"kept").expect("room").ino
        }
    };
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    volume.write(kept, 0, content, mode, &caller()).expect("room");
    volume.close().expect("the device works");
    device.snapshot()
}

/// A mount that begins on a state with the content `first`, and goes on to one with the content `second`.
struct Scene {
    first: Arc<StateDevice>,
    volume: Weak<Volume>,
    handler: FollowingShell,
}

fn read_only(device: Arc<dyn Device>) -> Arc<Volume> {
    Arc::new(open(device, VolumeOptions { read_only: true, ..VolumeOptions::default() }))
}

impl Scene {
    fn new() -> Self {
        let first = state(None, &FIRST);
        let second = Arc::new(state(Some(&first), &SECOND));
        let first = Arc::new(StateDevice { device: first, is_deleted: AtomicBool::new(false) });
        let volume = read_only(first.clone());
        let of_first = Arc::downgrade(&volume);
        let threads = (Arc::new(Waker::default()), Arc::new(LogWork::new(None)));
        let options = MountOptions::default();
        let mut shell = FuseShell::new(volume, threads, Arc::default(), &options, "device".into());
        shell.cache_shortly();
        let next = Mutex::new(Some(second));
        let open = Box::new(move || Ok(next.lock().take().map(|device| read_only(device))));
        let opener = Arc::new(StateOpener::new("device".into(), open));
        let handler = FollowingShell::new(shell, opener, Box::new(|| ()));
        Self { first, volume: of_first, handler }
    }

    fn go_on(&self) -> bool {
        self.handler.go_on(&self.handler.opener.open())
    }

    fn ask(&self, node: u64, operation: FuseOperation<'static>) -> ReplyResult {
        let request = FuseRequest {
            unique: 1,
            node,
            uid: 0,
            gid: 0,
            pid: 0,
            extensions: RequestExtensions::default(),
            operation,
            message: &[],
        };
        assert_eq!(self.handler.queue_for(&request), None);
        self.handler.answer(&request, &mut [])
    }

    /// Returns the number of an inode, 0 if the name is absent.
    fn lookup(&self, name: &'static [u8]) -> u64 {
        match self.ask(ROOT_INO, FuseOperation::Lookup { name }) {
            Ok(Reply::Entry(entry)) => {
                assert_eq!(entry.name_ttl.as_secs(), 1);
                entry.node
            }
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, node: u64) -> Result<Vec<u8>, i32> {
        let args = ReadArgs { handle: 0, offset: 0, size: 4096, open_flags: 0 };
        match self.ask(node, FuseOperation::Read(args)) {
            Ok(Reply::Data(bytes)) => Ok(bytes.as_ref().to_vec()),
            Err(errno) => Err(errno.code()),
            other => panic!("{other:?}"),
        }
    }

    fn keeps_cache(&self, node: u64) -> Result<bool, i32> {
        match self.ask(node, FuseOperation::Open { open_flags: 0, kill_privileges: false }) {
            Ok(Reply::Opened(opened)) => Ok(opened.flags.contains(OpenReplyFlags::KEEP_CACHE)),
            Err(errno) => Err(errno.code()),
            other => panic!("{other:?}"),
        }
    }

    fn invalidated(&self) -> (bool, Vec<u64>) {
        let sent = Mutex::new(Vec::new());
        let is_last = self.handler.invalidate(|ino| sent.lock().push(ino));
        let mut sent = sent.into_inner();
        sent.sort_unstable();
        (is_last, sent)
    }
}

#[test]
fn a_mount_goes_on_to_a_newer_state_and_drops_the_one_before() {
    let scene = Scene::new();
    let [kept, gone] = [scene.lookup(b"kept"), scene.lookup(b"gone")];
    assert_eq!(scene.read(kept).expect("content"), FIRST);
    assert_eq!(scene.keeps_cache(kept), Ok(true));
    assert!(scene.go_on());
    assert!(scene.volume.upgrade().is_none(), "nobody keeps the state before");
    assert_eq!(scene.handler.now().volume.referenced_files(), 2);
    assert_eq!(scene.keeps_cache(kept), Ok(false), "the kernel may have the first content");
    assert_eq!(scene.read(kept).expect("content"), SECOND);
    assert_eq!(scene.invalidated(), (true, vec![ROOT_INO, gone, kept]));
    assert_eq!(scene.keeps_cache(kept), Ok(true));
    assert_eq!(scene.lookup(b"gone"), 0);
    assert_eq!(scene.invalidated(), (true, vec![]), "the kernel has nothing old");
    // The kernel opens what it knows without looking it up.
    for refused in [scene.read(gone).map(drop), scene.keeps_cache(gone).map(drop)] {
        assert_eq!(refused, Err(libc::ESTALE));
    }
    let opened = scene.handler.now().handles.opened_now();
    assert!(opened.iter().all(|(ino, ..)| *ino != gone), "nobody closes it");
    let looked_up = scene.ask(gone, FuseOperation::Lookup { name: b"x" });
    assert_eq!(looked_up.expect_err("no inode").code(), libc::ESTALE);
    let forgotten = scene.ask(kept, FuseOperation::Forget { count: 1 });
    assert!(matches!(forgotten, Ok(Reply::Done)));
    assert_eq!(scene.handler.now().volume.referenced_files(), 1);
    assert!(!scene.go_on(), "there is no third one");
}

/// The kernel may get old content from such a request, which is invalidated when the request has ended.
#[test]
fn a_request_ends_on_the_state_that_it_began_on() {
    let scene = Scene::new();
    let kept = scene.lookup(b"kept");
    let under_way = scene.handler.now();
    assert!(scene.go_on());
    assert_eq!(scene.invalidated(), (false, vec![ROOT_INO, kept]));
    assert_eq!(scene.keeps_cache(kept), Ok(false));
    let read = under_way.volume.read(kept, 0, 4096).expect("the state is whole");
    assert_eq!(read.as_bytes(), FIRST);
    scene.handler.references.tell(kept, 1);
    drop((read, under_way));
    assert!(scene.volume.upgrade().is_none());
    assert_eq!(scene.invalidated(), (true, vec![kept]));
    assert_eq!(scene.keeps_cache(kept), Ok(true));
}

#[test]
fn a_request_on_a_deleted_state_is_repeated_on_the_newest() {
    let scene = Scene::new();
    let kept = scene.lookup(b"kept");
    scene.first.is_deleted.store(true, Ordering::Relaxed);
    assert_eq!(scene.read(kept).expect("the newest state is whole"), SECOND);
    assert!(scene.volume.upgrade().is_none());
    let scene = Scene::new();
    let gone = scene.lookup(b"gone");
    let kept = scene.lookup(b"kept");
    scene.first.is_deleted.store(true, Ordering::Relaxed);
    // Its content is not looked for: the file is empty.
    assert_eq!(scene.read(kept).expect("the newest state is whole"), SECOND);
    assert_eq!(scene.read(gone), Err(libc::ESTALE));
}

#[test]
fn a_mount_keeps_its_state_while_no_newer_one_can_be_opened() {
    let scene = Scene::new();
    let kept = scene.lookup(b"kept");
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let open = Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Err("the store is away".to_owned())
    });
    let opener = Arc::new(StateOpener::new("device".into(), open));
    let shell = FuseShell::clone(&scene.handler.now());
    let handler = FollowingShell::new(shell, opener, Box::new(|| panic!("nothing is swapped")));
    let scene = Scene { handler, ..scene };
    assert!(!scene.go_on());
    assert_eq!(scene.read(kept).expect("the state is whole"), FIRST);
    scene.first.is_deleted.store(true, Ordering::Relaxed);
    let deleted = scene.handler.now().volume.read(kept, 0, 4096);
    deleted.map(drop).expect_err("it is deleted");
    assert_eq!(scene.read(kept), Err(libc::ESTALE));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
