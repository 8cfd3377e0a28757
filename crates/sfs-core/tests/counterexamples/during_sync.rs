//! Operations during a sync, on a nearly full volume and a slow device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sfs_core::Volume;
use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{AttributeChanges, VolumeOptions, Work};
use sfs_device::Operation;

use crate::fixture::{NOW, Random, caller, open, read, set_size, write};
use crate::nearly_full::{NearlyFull, nearly_full};

fn chmod(volume: &Volume, ino: u64, mode: u16) {
    let changes = AttributeChanges { mode: Some(mode.into()), ..AttributeChanges::default() };
    volume.set_attributes(ino, &changes, &caller()).unwrap();
}

fn later(secs: i64) -> Timestamp {
    Timestamp { secs: NOW.secs + secs, nanos: 0 }
}

/// Time for which flushes are blocked.
const BLOCKED: Duration = Duration::from_millis(500);

impl NearlyFull {
    /// Blocks flushes. The returned thread unblocks them [`BLOCKED`] after the first one.
    fn block_flushes(&self) -> JoinHandle<()> {
        self.device.close(Operation::Flush);
        let device = self.device.clone();
        std::thread::spawn(move || {
            device.wait_until_reached();
            std::thread::sleep(BLOCKED);
            device.open();
        })
    }

    /// Runs `then` while a sync waits for its blocked flush.
    fn during_a_sync(&self, then: impl FnOnce()) {
        let opening = self.block_flushes();
        std::thread::scope(|scope| {
            write(&self.volume, self.large, 0, &[3; 4096]).unwrap();
            let syncing = scope.spawn(|| self.volume.sync_all());
            self.device.wait_until_reached();
            then();
            syncing.join().unwrap().expect("earlier writes can be synced");
        });
        opening.join().unwrap();
    }
}

/// The space for the next checkpoint was not reserved: attributes that were changed during the sync, each with success,
/// could never be synced.
#[test]
fn attributes_changed_during_a_sync_can_be_synced() {
    let full = nearly_full(96, 12_000, 0, 7);
    full.during_a_sync(|| full.small.iter().for_each(|ino| chmod(&full.volume, *ino, 0o600)));
    for secs in 0..200 {
        while full.volume.work(later(secs)).unwrap() == Work::More {}
    }
    full.volume.sync_all().expect("accepted changes can be synced");
}

/// The Drained segments are enough for all dirty data, and one block of log makes them Clean. But that batch had to
/// reserve the space of a checkpoint before the segments that it frees counted as free.
#[test]
fn drained_segments_are_used_before_a_sync_fails_for_space() {
    let full = nearly_full(96, 12_000, 300, 9);
    full.volume.unlink(ROOT_INO, b"doomed", &caller()).unwrap();
    full.during_a_sync(|| full.small.iter().for_each(|ino| chmod(&full.volume, *ino, 0o600)));
    full.volume.sync_all().expect("accepted changes can be synced");
}

/// The batch before a checkpoint recorded segments as Clean. The nodes of the checkpoint went to one of these segments,
/// which the checkpoint then discarded.
#[test]
fn a_checkpoint_does_not_discard_its_own_nodes() {
    for changes in [1000, 4000, 8000] {
        let full = nearly_full(96, 12_000, 300, 9);
        let NearlyFull { device, volume, small, emptied, .. } = &full;
        volume.unlink(ROOT_INO, b"doomed", &caller()).unwrap();
        full.during_a_sync(|| {
            set_size(volume, *emptied, 0).unwrap();
            write(volume, *emptied, 0, &[4; 3 * 4096]).unwrap();
            small[..changes].iter().for_each(|ino| chmod(volume, *ino, 0o600));
        });
        while volume.work(later(100)).unwrap() == Work::More {}
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let mounted = Volume::open(Arc::new(device.inner().snapshot()), options, NOW)
            .unwrap_or_else(|e| panic!("{changes} changes: the volume does not mount: {e}"));
        for ino in small {
            mounted.attributes(*ino).unwrap_or_else(|e| panic!("{changes} changes: {ino}: {e}"));
        }
        assert_eq!(read(&mounted, *emptied, 0, 1 << 20), [4; 3 * 4096]);
    }
}

/// Data that has to be written before a checkpoint took the space of the checkpoint itself, half of the remaining space
/// at each attempt. A new mount did not help either.
#[test]
fn data_written_before_a_checkpoint_leaves_space_for_it() {
    let before_checkpoint = {
        let NearlyFull { volume, small, .. } = nearly_full(128, 12_000, 1200, 20);
        let checkpoints = volume.counters().checkpoints;
        let leads_to_none = |ino: &&u64| {
            chmod(&volume, **ino, 0o600);
            volume.counters().checkpoints == checkpoints
        };
        small.iter().step_by(20).take_while(leads_to_none).count()
    };
    let full = nearly_full(128, 12_000, 1200, 20);
    let NearlyFull { device, volume, small, emptied, large } = &full;
    for ino in small.iter().step_by(20).take(before_checkpoint.saturating_sub(5)) {
        chmod(volume, *ino, 0o600);
    }
    volume.sync_all().unwrap();
    let opening = full.block_flushes();
    std::thread::scope(|scope| {
        write(volume, *large, 0, &[3; 4096]).unwrap();
        let syncing = scope.spawn(|| volume.sync_all());
        device.wait_until_reached();
        set_size(volume, *emptied, 0).unwrap();
        write(volume, *emptied, 0, &[4; 3 * 4096]).unwrap();
        // The checkpoint that is due starts first; the write of the rest of the file follows.
        let working = scope.spawn(|| volume.work(later(100)));
        std::thread::sleep(Duration::from_millis(100));
        let writing = scope.spawn(|| write(volume, *emptied, 3, &[4; 400 * 4096]));
        syncing.join().unwrap().expect("the sync succeeds");
        working.join().unwrap().expect("a checkpoint can be written");
        drop(writing.join().unwrap());
    });
    opening.join().unwrap();
    volume.sync_all().expect("accepted changes can be synced");
    let NearlyFull { device, volume, large, .. } = full;
    drop(volume);
    let volume = open(&device);
    write(&volume, large, 0, &[5; 4096]).unwrap();
    volume.sync_all().expect("a sync succeeds after a remount, too");
}

/// One thread writes and syncs, another changes attributes, a third does the background work.
#[test]
fn a_sync_and_a_chmod_at_the_same_time_both_succeed() {
    let NearlyFull { device, volume, small, large, .. } = nearly_full(96, 12_000, 0, 9);
    device.slow_down(Operation::Flush, Duration::from_millis(20));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (volume, done) = (&volume, &done);
        scope.spawn(move || {
            let mut random = Random(3);
            while !done.load(Ordering::SeqCst) {
                write(volume, large, random.below(1000), &[3; 4096]).expect("a write");
                volume.sync_file(large).expect("a sync");
            }
        });
        scope.spawn(move || {
            while !done.load(Ordering::SeqCst) {
                volume.work(NOW).expect("background work succeeds");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for mode in [0o600, 0o640] {
            small.iter().for_each(|ino| chmod(volume, *ino, mode));
        }
        done.store(true, Ordering::SeqCst);
    });
    volume.sync_all().expect("accepted changes can be synced");
}
