//! Power cuts in the middle of a replay: no file is older than its last sync.

use sfs_device::{Event, Keep, RecordingDevice, image_after};

use super::*;

const LEN: usize = 256 << 10;

/// Write buffer of a daemon that commits while it repeats changes, in bytes.
const BUFFER: usize = 1 << 20;

pub(super) fn fdatasync_or_fsync(scene: &mut Scene, node: u64, handle: u64, data_only: bool) {
    let body = [longs([handle]), words([u32::from(data_only), 0])].concat();
    scene.ask((FSYNC, node), &[&body]).expect("RAM does not fail");
}

fn set_mode(scene: &mut Scene, node: u64, mode: u32) {
    let mut body = [words([1, 0]), vec![0; 60], words([mode])].concat();
    body.resize(88, 0);
    scene.ask((SETATTR, node), &[&body]).expect("it is a file");
}

pub(super) fn set_size(scene: &mut Scene, node: u64, size: u64) {
    let mut body = [words([1 << 3, 0]), longs([0, size])].concat();
    body.resize(88, 0);
    scene.ask((SETATTR, node), &[&body]).expect("it is a file");
}

/// Replays the records of `scene` with a small write buffer. Returns the device before it, and everything that was written.
pub(super) fn replay_in_parts(scene: Scene) -> (RamDevice, Vec<Event>) {
    let records = scene.journal.descriptor().expect("a descriptor");
    let base = scene.device.snapshot();
    let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
    drop(scene);
    let options = VolumeOptions { write_buffer: BUFFER, ..VolumeOptions::default() };
    drop(revive_with((device.clone(), options), records.into(), false));
    (base, device.take_events())
}

/// Calls `check` with the volume as the power may leave it after each write of the replay.
fn cut_power(base: &RamDevice, events: &[Event], check: impl Fn(&Volume, usize)) {
    let writes = events.iter().filter(|event| matches!(event, Event::Write { .. })).count();
    assert!(writes > 4, "the replay commits before its end: {writes} writes");
    for count in 0..=events.len() {
        let image: Arc<dyn Device> = Arc::new(image_after(base, &events[..count]));
        let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("it opens");
        check(&volume, count);
    }
}

/// Writes much to other files, so that the replay of it commits what is before.
fn write_others(scene: &mut Scene, names: [&str; 3]) {
    for name in names {
        let other = scene.make(CREATE, name, 0o100_644).0;
        scene.write(other, &SeededRng::new(9).bytes(2 * BUFFER));
    }
}

/// Way in which a program makes a file durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    File,
    Data,
    Whole,
    Write,
    WriteThatWaited,
    EarlierReply,
}

fn make_durable(scene: &mut Scene, (node, handle): (u64, u64), way: Way, last: &[u8]) {
    let dsync = libc::O_DSYNC.cast_unsigned();
    let piece = &last[..4096];
    match way {
        Way::File | Way::Data => fdatasync_or_fsync(scene, node, handle, way == Way::Data),
        Way::Whole => drop(scene.ask((SYNCFS, ROOT_INO), &[&longs([0])]).expect("RAM")),
        Way::Write => {
            let head = write_head(0, piece, dsync);
            scene.ask((WRITE, node), &[&head, piece]).expect("there is room");
        }
        Way::WriteThatWaited | Way::EarlierReply => {
            let bytes = scene.message((WRITE, node), &[&write_head(0, piece, dsync), piece]);
            let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
            let changing = scene.journal.begin(request.message, || BEFORE);
            let plain = write_head(0, piece, 0);
            let first = message(request.unique, (WRITE, node), &[&plain, piece]);
            let first = FuseRequest::decode(&first, FLAGS).expect("a request");
            scene.shell.pass(&first, None, &mut []).expect("there is room");
            changing.end_unsynced(&request, 4096);
            if way == Way::WriteThatWaited {
                let queue = sfs_fuse::Queue::Syncs([scene.shell.volume.announce_sync(node), 0]);
                scene.shell.answer_parked(&request, queue, &mut []).expect("RAM");
            }
        }
    }
}

/// Regression: a replay wrote older content first, and a commit in its middle made it durable.
#[test]
fn a_power_cut_in_a_replay_leaves_what_was_synced() {
    for way in [Way::File, Way::Data, Way::Whole, Way::Write, Way::WriteThatWaited] {
        let mut scene = Scene::new();
        let (node, handle) = scene.make(CREATE, "file", 0o100_644);
        scene.settle();
        scene.write(node, &[1; LEN]);
        set_mode(&mut scene, node, 0o600);
        write_others(&mut scene, ["a", "b", "c"]);
        set_size(&mut scene, node, 100);
        let last = SeededRng::new(4).bytes(LEN);
        scene.write(node, &last);
        set_mode(&mut scene, node, 0o640);
        make_durable(&mut scene, (node, handle), way, &last);
        write_others(&mut scene, ["x", "y", "z"]);
        let (base, events) = replay_in_parts(scene);
        cut_power(&base, &events, |volume, count| {
            let read = volume.read(node, 0, 2 * LEN).expect("a file");
            assert!(read.as_bytes() == last, "{way:?}: after {count} of {}", events.len());
            let mode = volume.attributes(node).expect("a file").mode & 0o777;
            // fdatasync(2) promises no more than the content.
            assert!(way == Way::Data || mode == 0o640, "{way:?}: after {count}: {mode:o}");
        });
    }
}

/// A reply that was sent only by the second daemon is a promise as well, also after its own death.
#[test]
fn a_power_cut_in_a_second_replay_leaves_what_the_second_daemon_has_synced() {
    let mut scene = Scene::new();
    let (node, handle) = scene.make(CREATE, "file", 0o100_644);
    scene.settle();
    scene.write(node, &[1; LEN]);
    write_others(&mut scene, ["x", "y", "z"]);
    let last = SeededRng::new(4).bytes(LEN);
    scene.write(node, &last);
    make_durable(&mut scene, (node, handle), Way::EarlierReply, &last);
    let (unique, device) = (scene.unique, scene.device.clone());
    let revived = scene.die();
    revived.earlier_reply(unique).expect("it is done");
    let journal = revived.journal.clone().expect("one");
    drop(revived);
    let shell = shell(Volume::open(new_device(), VolumeOptions::default(), NOW).expect("it opens"));
    let (base, events) = replay_in_parts(Scene { device, shell, journal, unique });
    cut_power(&base, &events, |volume, count| {
        let read = volume.read(node, 0, 2 * LEN).expect("a file");
        assert!(read.as_bytes() == last, "after {count} of {}", events.len());
    });
}

/// A sync says nothing of later changes, or of the content of other files.
#[test]
fn what_no_sync_covers_is_repeated() {
    for data_only in [false, true] {
        let mut scene = Scene::new();
        let (node, handle) = scene.make(CREATE, "file", 0o100_644);
        let other = scene.make(CREATE, "other", 0o100_644).0;
        scene.write(node, &[1; 9000]);
        scene.write(other, &[2; 9000]);
        let waits =
            scene.message((FSYNC, node), &[&longs([handle]), &words([u32::from(data_only), 0])]);
        let request = FuseRequest::decode(&waits, FLAGS).expect("a request");
        // The sync was announced before the next change, and answered after it.
        scene.journal.begin_waiting_sync(&request);
        scene.shell.volume.sync_file(node).expect("RAM does not fail");
        scene.write(node, &[3; 5000]);
        let later = scene.make(CREATE, "later", 0o100_644).0;
        let sync = scene.journal.sync_of(&request).expect("a sync");
        scene.journal.end_sync(sync);
        let revived = scene.die();
        let read = |node| revived.volume.read(node, 0, 9000).expect("a file").as_bytes().to_vec();
        assert_eq!(read(node)[..5000], [3; 5000]);
        assert_eq!(read(node)[5000..], [1; 4000]);
        assert_eq!(read(other), [2; 9000]);
        assert_eq!(revived.volume.lookup(ROOT_INO, b"later").expect("a name").ino, later);
    }
}

/// Regression: a file that was written anew was empty in the middle of a replay, though the log had its new content.
#[test]
fn a_power_cut_in_a_replay_leaves_no_file_empty() {
    let mut scene = Scene::new();
    let node = scene.make(CREATE, "file", 0o100_644).0;
    scene.write(node, &[1; LEN]);
    scene.settle();
    set_size(&mut scene, node, 0);
    write_others(&mut scene, ["x", "y", "z"]);
    let last = SeededRng::new(4).bytes(LEN);
    scene.write(node, &last);
    scene.make(CREATE, "later", 0o100_644);
    scene.sync();
    let (base, events) = replay_in_parts(scene);
    cut_power(&base, &events, |volume, count| {
        let read = volume.read(node, 0, 2 * LEN).expect("a file");
        assert!(read.as_bytes() == last, "after {count} of {}", events.len());
    });
}
