//! Tests of a mounted filesystem, on every transport that the kernel offers.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sfs_fuse::{
    DirectoryListing, Errno, FuseOperation, FuseRequest, FuseSession, InitFlags, ListingEntry,
    NodeAttributes, NodeEntry, OpenReply, Reply, SessionConfig,
};

const TTL: Duration = Duration::from_secs(1);
const FILE: u64 = 2;

/// Parameter by which the kernel's fuse module offers io_uring.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// Directory with a file whose listing states wrong attributes: the kernel cannot keep the
/// reference, and returns the reference at once.
struct Lister {
    references: AtomicU64,
}

impl Lister {
    fn answer(&self, request: &FuseRequest<'_>) -> Result<Reply<Vec<u8>>, Errno> {
        let root =
            NodeAttributes { ino: 1, mode: 0o040_755, links: 2, ..NodeAttributes::default() };
        match &request.operation {
            FuseOperation::Getattr { .. } if request.node == 1 => Ok(Reply::Attributes(root, TTL)),
            FuseOperation::Opendir { .. } => Ok(Reply::Opened(OpenReply::default())),
            FuseOperation::Readdirplus(read) => {
                let mut directory = DirectoryListing::new(read.size);
                if read.offset == 0 {
                    let mode = 0o100_644;
                    let shown = ListingEntry { ino: FILE, cookie: 1, mode, name: b"file" };
                    let no_type = NodeAttributes { ino: FILE, ..NodeAttributes::default() };
                    let file =
                        NodeEntry { node: FILE, attributes: no_type, ..NodeEntry::default() };
                    assert!(directory.add_with(&shown, Some(&file)));
                    self.references.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Reply::Directory(directory))
            }
            FuseOperation::Forget { count } => {
                self.references.fetch_sub(*count, Ordering::Relaxed);
                Ok(Reply::Done)
            }
            FuseOperation::Releasedir(_) | FuseOperation::Destroy => Ok(Reply::Done),
            _ => Err(Errno::NOT_IMPLEMENTED),
        }
    }
}

/// Mounts at `dir`. Returns `None` if mounting is not possible.
fn mount_at(dir: &Path) -> Option<File> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let mounted = opened.and_then(|channel| {
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", channel.as_raw_fd());
        let data = CString::new(data).expect("no NUL");
        mount("test", dir, "fuse.test", MountFlags::empty(), data.as_c_str())?;
        Ok(channel)
    });
    mounted.inspect_err(|error| eprintln!("skipped: no mount: {error}")).ok()
}

fn expect_references_to_return(dir: &Path, rings: bool) -> io::Result<()> {
    let Some(channel) = mount_at(dir) else { return Ok(()) };
    let flags = InitFlags::BIG_WRITES | InitFlags::DO_READDIRPLUS;
    let config = SessionConfig { flags, threads: 2, rings, ..SessionConfig::default() };
    let session = FuseSession::new(channel.into(), &config)?;
    println!("rings: {:?}", session.rings());
    let lister = Lister { references: AtomicU64::new(0) };
    let serve = || {
        let lost = |error: &io::Error| {
            eprintln!("lost: {error}");
            let _ = unmount(dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
        };
        session.run(|request, _| lister.answer(request), lost)
    };
    std::thread::scope(|scope| {
        let serving = scope.spawn(serve);
        for _ in 0..20 {
            // The kernel may report the wrong entry as an error or not; the next listing is served.
            let listed = fs::read_dir(dir).map(|entries| entries.filter_map(Result::ok).count());
            println!("{listed:?}");
        }
        let gone = unmount(dir, UnmountFlags::empty());
        let served = serving.join().expect("no panic");
        gone.expect("the filesystem was still mounted");
        served
    })?;
    assert_eq!(lister.references.into_inner(), 0);
    Ok(())
}

/// Checks that a handler which panics at the first listing leaves no process waiting.
fn expect_no_wait_for_a_panic(dir: &Path, rings: bool) -> io::Result<()> {
    let Some(channel) = mount_at(dir) else { return Ok(()) };
    let flags = InitFlags::BIG_WRITES | InitFlags::DO_READDIRPLUS;
    let config = SessionConfig { flags, threads: 2, rings, ..SessionConfig::default() };
    let session = FuseSession::new(channel.into(), &config)?;
    let lister = Lister { references: AtomicU64::new(0) };
    let told = AtomicU64::new(0);
    let serve = || {
        let lost = |_: &io::Error| {
            told.fetch_add(1, Ordering::Relaxed);
            let _ = unmount(dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
        };
        let handler = |request: &FuseRequest<'_>, _: &mut [u8]| match request.operation {
            FuseOperation::Readdirplus(_) => panic!("the test expects this"),
            _ => lister.answer(request),
        };
        session.run(handler, lost)
    };
    std::thread::scope(|scope| {
        let serving = scope.spawn(serve);
        let listed = fs::read_dir(dir).map(|entries| entries.map(|entry| entry.map(drop)));
        let listed = listed.and_then(|entries| entries.collect::<io::Result<Vec<()>>>());
        assert!(listed.is_err(), "the listing has no reply");
        assert!(serving.join().is_err(), "the session panics, too");
    });
    assert!(told.into_inner() > 0);
    Ok(())
}

/// Runs `test` with the device file and with io_uring.
fn on_both(test: fn(&Path, bool) -> io::Result<()>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = tempfile::tempdir().expect("a directory");
    let before = fs::read_to_string(RINGS);
    for rings in [false, true] {
        if rings {
            let _ = fs::write(RINGS, "Y");
        }
        let outcome = test(scratch.path(), rings);
        if let Ok(before) = &before {
            let _ = fs::write(RINGS, before.trim());
        }
        outcome.expect("the filesystem was unmounted");
    }
}

#[test]
fn mounted_requests_fail_after_the_handler_panicked() {
    on_both(expect_no_wait_for_a_panic);
}

#[test]
fn mounted_references_that_the_kernel_cannot_keep_are_returned() {
    on_both(expect_references_to_return);
}
