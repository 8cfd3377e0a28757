//! Flags of files, which have no records, and times of changes.

use super::*;

/// Regression: after the clock was set back, all files got the time at which it was.
#[test]
fn a_clock_that_is_set_back_is_followed() {
    let mut scene = Scene::new();
    scene.make(CREATE, "a", 0o100_644);
    scene.journal.replied(scene.unique);
    let commits = survival::CommitThread::start(scene.journal.clone()).expect("a thread");
    let mut times = Vec::new();
    for (names, secs) in [("a\0b\0", 5000), ("b\0a\0", 4999), ("a\0b\0", 4000), ("b\0a\0", 4001)] {
        let time = file_clock::fix(Timestamp { secs, nanos: 0 });
        let arguments = [longs([ROOT_INO]), words([0, 0])].concat();
        let renamed = scene.ask((RENAME, ROOT_INO), &[&arguments, names.as_bytes()]);
        assert!(matches!(renamed, Ok(Reply::Done)), "{names}");
        drop(time);
        scene.journal.replied(scene.unique);
        times.push(scene.shell.volume.attributes(ROOT_INO).expect("a directory").ctime.secs);
    }
    commits.stop();
    assert_eq!(times, [5000, 5000, 4000, 4001], "by less than two seconds it is waited for");
    let records = scene.journal.descriptor().expect("one");
    let (device, unique) = (scene.device.clone(), scene.unique);
    drop(scene);
    let (revived, changes) = revive(device, records.into(), false);
    assert_eq!(changes.len(), 2, "those after the clock was set");
    let root = revived.volume.attributes(ROOT_INO).expect("a directory");
    assert_eq!(root.ctime.secs, 4001);
    assert!(revived.earlier_reply(unique).is_some());
}

/// Regression: the first write to each new file was followed by a request that set its time to that of the clock.
#[test]
fn new_files_get_the_time_of_the_clock() {
    let mut scene = Scene::new();
    let clock = Timestamp { secs: 5000, nanos: 7 };
    let time = file_clock::fix(clock);
    let time_of = |scene: &Scene, node: u64| {
        let inode = scene.shell.volume.attributes(node).expect("a file");
        (inode.btime, inode.mtime, inode.ctime)
    };
    let (first, handle) = scene.make(CREATE, "first", 0o100_644);
    assert_eq!(time_of(&scene, first), (clock, clock, clock));
    scene.release(first, handle);
    scene.ask((UNLINK, ROOT_INO), &[b"first\0"]).expect("a file");
    let root = time_of(&scene, ROOT_INO).2;
    assert!(root > clock, "the log could not tell whether it has the removal");
    let second = scene.make(CREATE, "second", 0o100_644).0;
    assert_eq!(time_of(&scene, second), (clock, clock, clock));
    scene.ask((UNLINK, ROOT_INO), &[b"second\0"]).expect("a file");
    assert!(
        time_of(&scene, ROOT_INO).2 > root,
        "the log could not tell one removal from the other"
    );
    drop(time);
}

/// Regression: each command wrote everything to the log twice, also one that changed nothing or was refused.
#[test]
fn flags_that_stay_write_nothing() {
    let mut scene = Scene::new();
    let commits = survival::CommitThread::start(scene.journal.clone()).expect("a thread");
    let node = scene.make(CREATE, "file", 0o100_644).0;
    scene.journal.replied(scene.unique);
    let written = |scene: &Scene| scene.shell.volume.counters().commits;
    // A change that no record has, and that a commit would write.
    let change = |scene: &mut Scene, at: usize| {
        let bytes =
            scene.message((WRITE, node), &[&write_head(at << 12, &[1; 4096], 0), &[1; 4096]]);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        scene.shell.pass(&request, None, &mut []).expect("there is room");
    };
    for (at, (flags, before, after, is_set)) in
        [(0x40, 1, 1, true), (0x40, 0, 0, true), (0x4000_0000, 0, 0, false), (0x80, 0, 1, true)]
            .into_iter()
            .enumerate()
    {
        change(&mut scene, at);
        let head = [longs([0]), words([0, inode_flags::SET_FLAGS]), longs([0]), words([4, 0])];
        let bytes = scene.message((IOCTL, node), &[&head.concat(), &words([flags])]);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let (begun, mut until_set) = (written(&scene), 0);
        let set = || {
            until_set = written(&scene) - begun;
            scene.shell.pass(&request, None, &mut [])
        };
        let result = scene.shell.serve_journaled(&scene.journal, &request, None, set);
        assert_eq!(result.is_ok(), is_set, "{flags:x}");
        assert_eq!(until_set, before, "{flags:x}");
        let since = written(&scene) - begun - until_set;
        assert_eq!(since > 0, after > 0, "{flags:x}");
    }
    commits.stop();
}
