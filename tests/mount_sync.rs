//! Durability of syncfs(2) and of umount(2) on a block device: the power is cut right after either
//! call returns, and every write that was not flushed is lost.
//!
//! `SFS_SYNC_WINDOW_MS` is the time after which the power is cut where the kernel does not forward
//! syncfs(2).

#[expect(dead_code, reason = "every test program uses a part of the module")]
#[path = "mount_power_cut/cut.rs"]
mod cut;
#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

use cut::Recorded;
use harness::{CACHES, Mount, TestVolume, can_mount, content, transport, unmount_unused};
use rustix::fs::syncfs;
use sfs_testkit::mount_table::is_mounted;

const SIZE: &str = "64M";

/// Mount options with which data becomes durable by itself only long after the cut.
const LAZY: &str = "commit=3600,checkpoint=3600";

const ROUNDS: u64 = 5;

/// Lengths of files: inline in the tree, in blocks, in several requests.
const LENGTHS: [usize; 5] = [8, 100, 4096, 70_000, 3 << 20];

/// Returns whether the kernel forwards syncfs(2) and the unmount to the daemon; prints the reason
/// if not.
fn hears_of_syncs() -> bool {
    let hears = transport() != "fuser";
    if !hears {
        eprintln!("skipped: fuser cannot answer SYNCFS");
    }
    can_mount() && hears
}

/// Writes files in a directory of the round with the content of the round, and changes the files of
/// the round before.
fn change(dir: &Path, round: u64) {
    let dir = dir.join(format!("round-{round}"));
    fs::create_dir(&dir).expect("a directory");
    for len in LENGTHS {
        let name = format!("file-{len}");
        fs::write(dir.join(&name), content(&name, round, len)).expect("writing");
    }
    fs::rename(dir.join("file-4096"), dir.join("renamed")).expect("renaming");
    fs::remove_file(dir.join("file-100")).expect("removing");
    File::options()
        .write(true)
        .open(dir.join("file-70000"))
        .expect("a file")
        .set_len(5000)
        .expect("truncating");
}

/// Asserts that the changes of [`change`] are present.
fn verify(dir: &Path, round: u64) {
    let dir = dir.join(format!("round-{round}"));
    let read = |name: &str| fs::read(dir.join(name)).expect("reading");
    assert!(read("renamed") == content("file-4096", round, 4096));
    assert!(read("file-70000") == content("file-70000", round, 70_000)[..5000]);
    assert!(read("file-3145728") == content("file-3145728", round, 3 << 20));
    assert!(read("file-8") == content("file-8", round, 8));
    assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 4);
}

/// Asserts that the image in the file `image` is valid, and has all changes up to and in `round`.
fn examine(image: &Path, cache: &str, round: u64) {
    let left = TestVolume::existing(image.to_owned());
    left.check();
    let mount = left.mount(cache);
    (0..=round).for_each(|round| verify(&mount.dir, round));
    mount.unmount();
    left.check();
}

/// Runs `work` on a mount whose device is recorded, with each cache. The second argument of `work`
/// cuts the power and examines the image after the given number of rounds.
fn with_cuts(work: impl Fn(Mount, &mut dyn FnMut(u64))) {
    if hears_of_syncs() {
        with_cuts_of(TestVolume::looped, work);
    }
}

/// Runs `work` as [`with_cuts`] does, on the volume that `attach` makes of the recorded image.
fn with_cuts_of(
    attach: impl Fn(TestVolume) -> Option<TestVolume>,
    work: impl Fn(Mount, &mut dyn FnMut(u64)),
) {
    for cache in CACHES {
        let made = TestVolume::new(SIZE);
        let mut recorded = Recorded::new(&made.device);
        let existing = TestVolume::existing(recorded.path.clone());
        let Some(volume) = attach(existing) else { return };
        let to = made.scratch.path().join("cut");
        let mount = volume.mount(&format!("{cache},{LAZY}"));
        work(mount, &mut |round| {
            recorded.cut_to_last_flush(&to);
            examine(&to, cache, round);
        });
        let dir = recorded.path.parent().expect("a directory").to_owned();
        drop((volume, recorded));
        assert!(!is_mounted(&dir), "the device is still mounted");
    }
}

/// First kernel that forwards syncfs(2) to the daemon of a mount on a block device.
const SENT_SINCE: [u32; 2] = [6, 18];

/// Returns whether the kernel forwards syncfs(2) for a block device; prints the reason if not.
fn kernel_sends_syncfs() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let numbers: Vec<u32> = release.split('.').map_while(|number| number.parse().ok()).collect();
    let is_sent = numbers[..] >= SENT_SINCE[..];
    if !is_sent {
        eprintln!("skipped: Linux {} does not send SYNCFS", release.trim());
    }
    is_sent
}

#[test]
fn mounted_files_are_durable_after_syncfs() {
    if !kernel_sends_syncfs() {
        return;
    }
    with_cuts(|mount, cut| {
        for round in 0..ROUNDS {
            change(&mount.dir, round);
            syncfs(File::open(&mount.dir).expect("the root")).expect("syncing");
            if round + 1 == ROUNDS {
                mount.kill();
            }
            cut(round);
        }
        mount.detach();
    });
}

/// Milliseconds after syncfs(2) at which the power is cut if `SFS_SYNC_WINDOW_MS` is not set.
const WINDOW_MS: u64 = 200;

/// The kernel does not forward syncfs(2) for a mount of an image file, and older kernels do not
/// forward it for a mount of a block device. The daemon commits after a pause in writing.
#[test]
fn mounted_files_are_durable_soon_after_syncfs_that_is_not_sent() {
    if !can_mount() {
        return;
    }
    cut_soon_after_syncfs(Some);
    if !kernel_sends_syncfs() && hears_of_syncs() {
        cut_soon_after_syncfs(TestVolume::looped);
    }
}

/// Cuts the power of the volume that `attach` makes of a recorded image soon after each syncfs(2).
fn cut_soon_after_syncfs(attach: impl Fn(TestVolume) -> Option<TestVolume>) {
    let window = std::env::var("SFS_SYNC_WINDOW_MS")
        .map_or(WINDOW_MS, |millis| millis.parse().expect("milliseconds"));
    with_cuts_of(attach, |mount, cut| {
        for round in 0..3 {
            change(&mount.dir, round);
            syncfs(File::open(&mount.dir).expect("the root")).expect("syncing");
            thread::sleep(Duration::from_millis(window));
            cut(round);
        }
        mount.kill();
        mount.detach();
    });
}

#[test]
fn mounted_files_are_durable_after_umount() {
    with_cuts(|mount, cut| {
        change(&mount.dir, 0);
        unmount_unused(&mount.dir);
        cut(0);
        mount.wait_for_end();
    });
}
