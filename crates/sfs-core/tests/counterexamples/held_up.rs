//! What went wrong when something was done while a sync was under way, on a device that is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sfs_core::Volume;
use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{AttributeChanges, VolumeOptions, Work};
use sfs_device::Operation;

use crate::fixture::{NOW, Random, caller, open, read, set_size, write};
use crate::scene::{Scene, scene};

fn chmod(volume: &Volume, ino: u64, mode: u16) {
    let changes = AttributeChanges { mode: Some(mode.into()), ..AttributeChanges::default() };
    volume.set_attributes(ino, &changes, &caller()).unwrap();
}

fn later(secs: i64) -> Timestamp {
    Timestamp { secs: NOW.secs + secs, nanos: 0 }
}

/// Who waits for what is held up gets it after this time.
const HELD_UP: Duration = Duration::from_millis(500);

impl Scene {
    /// Holds flushes up, and lets them go on in a while, whatever happens.
    fn hold_up(&self) -> JoinHandle<()> {
        self.device.close(Operation::Flush);
        let device = self.device.clone();
        std::thread::spawn(move || {
            device.wait_until_reached();
            std::thread::sleep(HELD_UP);
            device.open();
        })
    }

    /// Does `then` while a sync is under way, which goes on after a while.
    fn during_a_sync(&self, then: impl FnOnce()) {
        let opening = self.hold_up();
        std::thread::scope(|scope| {
            write(&self.volume, self.large, 0, &[3; 4096]).unwrap();
            let syncing = scope.spawn(|| self.volume.sync_all());
            self.device.wait_until_reached();
            then();
            syncing.join().unwrap().expect("what was written before can be synced");
        });
        opening.join().unwrap();
    }
}

/// Nobody looked after the room that a checkpoint would need: attributes that were changed
/// meanwhile, each with success, could never be synced.
#[test]
fn what_is_changed_during_a_sync_can_be_synced() {
    let scene = scene(96, 12_000, 0, 7);
    scene.during_a_sync(|| scene.small.iter().for_each(|ino| chmod(&scene.volume, *ino, 0o600)));
    for secs in 0..200 {
        while scene.volume.work(later(secs)).unwrap() == Work::More {}
    }
    scene.volume.sync_all().expect("what was accepted can be synced");
}

/// What is Drained, and flushed, is enough for everything that waits: one block of log makes it
/// Clean. But that batch had to leave room for a checkpoint before what it gave counted.
#[test]
fn what_is_drained_is_used_before_there_is_no_room() {
    let scene = scene(96, 12_000, 300, 9);
    scene.volume.unlink(ROOT_INO, b"doomed", &caller()).unwrap();
    scene.during_a_sync(|| scene.small.iter().for_each(|ino| chmod(&scene.volume, *ino, 0o600)));
    scene.volume.sync_all().expect("what was accepted can be synced");
}

/// A checkpoint took along what has to go before it, and with that a record of segments that are
/// Clean; its nodes went to one of them, which it discarded when it was done.
#[test]
fn a_checkpoint_does_not_discard_itself() {
    for changes in [1000, 4000, 8000] {
        let scene = scene(96, 12_000, 300, 9);
        let Scene { device, volume, small, emptied, .. } = &scene;
        volume.unlink(ROOT_INO, b"doomed", &caller()).unwrap();
        scene.during_a_sync(|| {
            set_size(volume, *emptied, 0).unwrap();
            write(volume, *emptied, 0, &[4; 3 * 4096]).unwrap();
            small[..changes].iter().for_each(|ino| chmod(volume, *ino, 0o600));
        });
        while volume.work(later(100)).unwrap() == Work::More {}
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let mounted = Volume::open(Arc::new(device.inner().snapshot()), options, NOW)
            .unwrap_or_else(|e| panic!("{changes} changes: it does not mount: {e}"));
        for ino in small {
            mounted.attributes(*ino).unwrap_or_else(|e| panic!("{changes} changes: {ino}: {e}"));
        }
        assert_eq!(read(&mounted, *emptied, 0, 1 << 20), [4; 3 * 4096]);
    }
}

/// What goes ahead of a checkpoint took the room of the checkpoint itself, half of what was left
/// each time it was tried. Not even mounting the volume again helped.
#[test]
fn what_goes_ahead_of_a_checkpoint_leaves_room_for_it() {
    let before_checkpoint = {
        let Scene { volume, small, .. } = scene(128, 12_000, 1200, 20);
        let checkpoints = volume.counters().checkpoints;
        let leads_to_none = |ino: &&u64| {
            chmod(&volume, **ino, 0o600);
            volume.counters().checkpoints == checkpoints
        };
        small.iter().step_by(20).take_while(leads_to_none).count()
    };
    let scene = scene(128, 12_000, 1200, 20);
    let Scene { device, volume, small, emptied, large } = &scene;
    for ino in small.iter().step_by(20).take(before_checkpoint.saturating_sub(5)) {
        chmod(volume, *ino, 0o600);
    }
    volume.sync_all().unwrap();
    let opening = scene.hold_up();
    std::thread::scope(|scope| {
        write(volume, *large, 0, &[3; 4096]).unwrap();
        let syncing = scope.spawn(|| volume.sync_all());
        device.wait_until_reached();
        set_size(volume, *emptied, 0).unwrap();
        write(volume, *emptied, 0, &[4; 3 * 4096]).unwrap();
        // First comes the checkpoint that is due, then the rest of the file.
        let working = scope.spawn(|| volume.work(later(100)));
        std::thread::sleep(Duration::from_millis(100));
        let writing = scope.spawn(|| write(volume, *emptied, 3, &[4; 400 * 4096]));
        syncing.join().unwrap().expect("it can be synced");
        working.join().unwrap().expect("a checkpoint can be written");
        drop(writing.join().unwrap());
    });
    opening.join().unwrap();
    volume.sync_all().expect("what was accepted can be synced");
    let Scene { device, volume, large, .. } = scene;
    drop(volume);
    let volume = open(&device);
    write(&volume, large, 0, &[5; 4096]).unwrap();
    volume.sync_all().expect("after mounting again, too");
}

/// One program writes and syncs, another changes attributes, a third does the background work.
#[test]
fn a_sync_and_a_chmod_at_the_same_time() {
    let Scene { device, volume, small, large, .. } = scene(96, 12_000, 0, 9);
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
                volume.work(NOW).expect("work");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for mode in [0o600, 0o640] {
            small.iter().for_each(|ino| chmod(volume, *ino, mode));
        }
        done.store(true, Ordering::SeqCst);
    });
    volume.sync_all().expect("what was accepted can be synced");
}
