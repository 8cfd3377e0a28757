//! Pausing a session under load, and going on with its channels in another one.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sfs_fuse::{
    Errno, FuseOperation, FuseRequest, FuseSession, InitFlags, NodeAttributes, Reply, SessionConfig,
};

const WAIT_MAX: Duration = Duration::from_secs(10);

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

/// Directory without files, which counts look-ups.
#[derive(Default)]
struct Empty {
    look_ups: AtomicU64,
}

impl Empty {
    fn answer(&self, request: &FuseRequest<'_>) -> Result<Reply<Vec<u8>>, Errno> {
        match &request.operation {
            FuseOperation::Getattr { .. } if request.node == 1 => {
                let root = NodeAttributes {
                    ino: 1,
                    mode: 0o040_755,
                    links: 2,
                    ..NodeAttributes::default()
                };
                Ok(Reply::Attributes(root, WAIT_MAX))
            }
            FuseOperation::Lookup { .. } => {
                self.look_ups.fetch_add(1, Ordering::SeqCst);
                Err(Errno::new(libc::ENOENT))
            }
            _ => Err(Errno::NOT_IMPLEMENTED),
        }
    }

    fn count(&self) -> u64 {
        self.look_ups.load(Ordering::SeqCst)
    }
}

#[test]
fn no_request_is_lost_or_answered_twice_by_pauses() {
    pause_and_go_on(&config());
}

/// The same where each session makes its channels from one that nobody reads.
#[test]
fn no_request_is_lost_where_each_session_has_channels_of_its_own() {
    let config = SessionConfig { outlives_process: true, never_sent_again: true, ..config() };
    pause_and_go_on(&config);
}

fn config() -> SessionConfig {
    SessionConfig {
        flags: InitFlags::BIG_WRITES | InitFlags::PARALLEL_DIROPS,
        threads: 3,
        ..SessionConfig::default()
    }
}

fn pause_and_go_on(config: &SessionConfig) {
    let scratch = tempfile::tempdir().expect("a directory");
    let Some(channel) = mount_at(scratch.path()) else { return };
    let session = FuseSession::new(channel.into(), config).expect("a session");
    assert_eq!(session.sends_again(), !config.never_sent_again);
    let agreed = *session.agreed();
    let pauser = session.pauser().expect("no rings");
    assert!(pauser.pause(WAIT_MAX).is_none(), "nothing serves yet");
    let (first, second) = (Empty::default(), Empty::default());
    let (is_over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let lost = |error: &io::Error| panic!("{error}");
    thread::scope(|scope| {
        let serving = scope.spawn(|| session.run(|request, _| first.answer(request), lost));
        let callers = [0, 1].map(|caller| {
            let (is_over, asked, dir) = (&is_over, &asked, scratch.path());
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let error = fs::metadata(dir.join(format!("{caller}-{number}")));
                    let error = error.expect_err("no file exists").raw_os_error();
                    assert_eq!(error, Some(libc::ENOENT));
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        let mut pauses = 0;
        while pauses < 200 {
            let Some(pause) = pauser.pause(WAIT_MAX) else { continue };
            pauses += 1;
            let count = first.count();
            thread::sleep(Duration::from_micros(200));
            assert_eq!(first.count(), count, "a request was answered in a pause");
            drop(pause);
            thread::sleep(Duration::from_micros(500));
        }
        // Another session goes on; the first one stays in its pause.
        let pause = pauser.pause(WAIT_MAX).expect("a pause");
        let (channels, before) = (pauser.duplicates().expect("descriptors"), first.count());
        let resumed = FuseSession::resume(channels, agreed, config).expect("a session");
        let going_on = scope.spawn(|| resumed.run(|request, _| second.answer(request), lost));
        while second.count() < 100 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(first.count(), before);
        is_over.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.join().expect("each look-up was answered");
        }
        assert_eq!(first.count() + second.count(), asked.load(Ordering::SeqCst));
        unmount(scratch.path(), UnmountFlags::empty()).expect("it was mounted");
        going_on.join().expect("no panic").expect("an unmount is no error");
        drop(pause);
        serving.join().expect("no panic").expect("an unmount is no error");
    });
    assert!(pauser.duplicates().is_err(), "the session has ended");
}

/// A session that is held starts all threads, and answers nothing before its release.
#[test]
fn a_held_session_answers_after_its_release() {
    let scratch = tempfile::tempdir().expect("a directory");
    let Some(channel) = mount_at(scratch.path()) else { return };
    let config = SessionConfig { threads: 3, ..SessionConfig::default() };
    let session = FuseSession::new(channel.into(), &config).expect("a session");
    let pauser = session.pauser().expect("no rings");
    let empty = Empty::default();
    let lost = |error: &io::Error| panic!("{error}");
    pauser.hold();
    assert!(!pauser.is_held(), "no thread has started");
    thread::scope(|scope| {
        let serving = scope.spawn(|| session.run(|request, _| empty.answer(request), lost));
        while !pauser.is_held() {
            thread::sleep(Duration::from_millis(1));
        }
        let caller = scope.spawn(|| fs::metadata(scratch.path().join("x")).map(drop));
        thread::sleep(Duration::from_millis(50));
        assert!(empty.count() == 0 && !caller.is_finished());
        pauser.release();
        caller.join().expect("no panic").expect_err("no file exists");
        assert_eq!(empty.count(), 1);
        unmount(scratch.path(), UnmountFlags::empty()).expect("it was mounted");
        serving.join().expect("no panic").expect("an unmount is no error");
    });
}
