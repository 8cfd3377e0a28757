//! Tests of the state that operations share, over a volume in memory.

use std::path::Path;

use sfs_core::format::{DataLayout, Inode};
use sfs_device::RamDevice;
use sfs_fuse::{FuseOperation, Handler, Queue, Reply, RequestExtensions, WaitingChange, WriteArgs};
use sfs_testkit::ram_volume::{FILE_MODE, caller, format, open};

use super::*;
use crate::log_thread::LogThread;
use crate::log_thread::tests::{leave_work, wait_until};

#[test]
fn files_with_one_number_have_different_generations() {
    let root = sfs_core::root_directory(0, 0, Timestamp { secs: 7, nanos: 8 });
    let at = |ino, secs, nanos| {
        let btime = Timestamp { secs, nanos };
        generation(&FileEntry { ino, inode: Inode { btime, ..root } })
    };
    assert_ne!(at(20, 1_700_000_000, 5), at(20, 1_700_000_000, 6));
    assert_ne!(at(20, 1_700_000_000, 5), at(20, 1_700_000_001, 5));
    assert_eq!(at(20, -1, 999_999_999) >> 32, 0);
    assert_eq!(at(ROOT_INO, 1_700_000_000, 5), 0, "as the kernel has it");
}

/// Makes a new volume, and the shell of its mount.
fn shell(options: &MountOptions) -> FuseShell {
    let device = Arc::new(RamDevice::new(1 << 14));
    format(device.clone(), 256, DataLayout::Log);
    let volume = Arc::new(open(device, options.volume.clone()));
    let threads = (Arc::new(Waker::default()), Arc::new(LogWork::new(None)));
    FuseShell::new(volume, threads, Arc::default(), options, "device".into())
}

/// Makes a file, and returns its inode number.
fn make_file(shell: &FuseShell) -> u64 {
    shell.volume.make_node(ROOT_INO, b"f", FILE_MODE, 0, &caller()).expect("a file").ino
}

/// Returns a request for `operation` on `node`.
fn request(node: u64, operation: FuseOperation<'static>) -> FuseRequest<'static> {
    let extensions = RequestExtensions::default();
    FuseRequest { unique: 1, node, uid: 0, gid: 0, pid: 0, extensions, operation, message: &[] }
}

fn write_to(node: u64, args: WriteArgs<'static>) -> FuseRequest<'static> {
    request(node, FuseOperation::Write(args))
}

/// A write of 8 KiB, of which a test changes what it is about.
const WRITE: WriteArgs<'static> = WriteArgs {
    handle: 0,
    offset: 0,
    data: &[1; 8192],
    open_flags: 0,
    from_cache: false,
    kill_privileges: false,
};

#[test]
fn a_reader_is_not_refused_after_a_mapping_has_lost_data() {
    for writeback in [true, false] {
        let shell = shell(&MountOptions { writeback, ..MountOptions::default() });
        let file = make_file(&shell);
        let handle = shell.opened(file, libc::O_RDWR.cast_unsigned(), true).handle;
        shell.report_loss_to_writers(file, Errno::new(libc::ENOSPC));
        let refusal = shell.write_refusal(file, handle);
        assert_eq!(refusal, writeback.then_some(Errno::new(libc::ENOSPC)));
        assert_eq!(shell.write_refusal(file, handle), None, "the volume is empty");
    }
}

/// Regression: only data that did not fit counted as lost.
#[test]
fn data_of_every_failed_write_back_is_lost() {
    let shell = shell(&MountOptions::default());
    let file = make_file(&shell);
    let handle = shell.opened(file, libc::O_RDWR.cast_unsigned(), true).handle;
    let lost = |shell: &FuseShell| shell.lost_writeback.report(&shell.volume, Path::new("/"));
    let error = shell.lose(file, 0..4096, Error::NoMemory);
    assert!(matches!(error, Error::NoMemory));
    assert_eq!((lost(&shell).bytes, lost(&shell).unreported_count), (4096, 1));
    assert_eq!(shell.write_refusal(file, handle), Some(Errno::new(libc::ENOMEM)));
    assert_eq!(shell.write_refusal(file, handle), None);
    assert_eq!((lost(&shell).bytes, lost(&shell).unreported_count), (4096, 0));

    shell.volume.shut_down();
    let write = write_to(file, WriteArgs { handle, offset: 4096, from_cache: true, ..WRITE });
    let refused = shell.reply_to(&write, &mut []);
    assert_eq!(refused.expect_err("nothing is written any more").code(), libc::EIO);
    let report = lost(&shell);
    assert_eq!((report.bytes, report.unreported_count), (3 * 4096, 1));
    assert!(report.to_string().starts_with("could not take 12 KiB"), "{report}");
    assert_eq!(shell.write_refusal(file, handle), Some(Errno::new(libc::EIO)));
}

/// Regression: the kernel sends no fsync after a write with O_SYNC that bypasses its cache.
#[test]
fn a_synchronous_write_is_durable() {
    let shell = shell(&MountOptions { writeback: false, ..MountOptions::default() });
    let file = make_file(&shell);
    let syncs = || shell.volume.counters().syncs;
    for (flags, count) in [(0, 0), (libc::O_DSYNC, 1), (libc::O_SYNC, 2)] {
        let open_flags = (libc::O_WRONLY | flags).cast_unsigned();
        let write = write_to(file, WriteArgs { open_flags, ..WRITE });
        shell.reply_to(&write, &mut []).expect("there is room");
        assert_eq!(syncs(), count, "flags {flags:o}");
    }
}

/// Regression: a freeze that came between the look at the gate and the change kept the serving thread until the thaw.
#[test]
fn a_change_that_need_not_wait_is_not_kept_by_a_freeze_that_follows() {
    let shell = shell(&MountOptions { writeback: false, ..MountOptions::default() });
    let file = make_file(&shell);
    let write = write_to(file, WRITE);
    assert_eq!(shell.queue_for(&write), None, "the gate is open");
    std::thread::scope(|scope| {
        let freeze = scope.spawn(|| shell.freezer().freeze(Duration::from_secs(60), || true));
        while !shell.freezer.gate().is_closed() {
            std::thread::yield_now();
        }
        assert!(matches!(shell.answer(&write, &mut []), Ok(Reply::Written(8192))));
        freeze.join().expect("no panic").expect("the change is over");
    });
    assert_eq!(shell.queue_for(&write), Some(Queue::Changes));
    let waiting = WaitingChange { node: file, data_len: 8192, waited: Duration::ZERO };
    assert!(!shell.may_go_on(&waiting));
    shell.end();
    assert!(shell.may_go_on(&waiting) && !shell.freezer().is_frozen(), "the mount ends");
    shell.freezer().freeze(Duration::from_secs(60), || true).expect_err("it ends");
    let parked = shell.answer_parked(&write, Queue::Changes, &mut []);
    assert!(matches!(parked, Ok(Reply::Written(8192))));
    shell.freezer().thaw(crate::freeze::ThawReason::Asked);
}

#[test]
fn data_of_a_deleted_file_does_not_count_as_lost() {
    let shell = shell(&MountOptions::default());
    let file = make_file(&shell);
    shell.record_loss(file, 0..1 << 20, &Error::NoSpace);
    shell.volume.unlink(ROOT_INO, b"f", &caller()).expect("the file is removed");
    assert!(shell.lost_writeback.is_any(), "a process may have it open");
    shell.forget([(file, 1)]);
    assert!(!shell.lost_writeback.is_any());
}

/// Regression: work that a forgotten file left to the log's thread woke nobody, and waited for the next change.
#[test]
fn a_forgotten_file_wakes_the_logs_thread() {
    let mut options = MountOptions::default();
    options.volume.has_log_thread = true;
    let shell = shell(&options);
    let file = make_file(&shell);
    shell.volume.unlink(ROOT_INO, b"f", &caller()).expect("the file is removed");
    let FuseShell { volume, log_work, waker, .. } = &shell;
    let thread = LogThread::start(shell.mounted(), log_work.clone(), waker.clone());
    let thread = thread.expect("a thread");
    wait_until(|| log_work.progress() > 0);
    leave_work(volume);
    let forget = request(file, FuseOperation::Forget { count: 1 });
    shell.reply_to(&forget, &mut []).expect("a file is forgotten");
    wait_until(|| !volume.is_log_work_due());
    thread.stop();
}
