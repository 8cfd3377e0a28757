//! Replays on a volume that is nearly full.

use super::*;

/// Free space of the volume, and length of a file that takes most of it, in bytes.
const FREE: u64 = 8 << 20;
const LEN: usize = 5 << 20;

/// Makes these files on a volume that is nearly full. No record tells of them.
fn nearly_full(names: &[&str]) -> (Scene, Vec<u64>) {
    let mut scene = Scene::new();
    scene.fill(FREE);
    let nodes = names.iter().map(|name| scene.make(CREATE, name, 0o100_644).0).collect();
    scene.settle();
    (scene, nodes)
}

/// Writes `content` to a file, and syncs it. Then all changes before are in the log if `is_in_log`.
fn write_synced(scene: &mut Scene, node: u64, content: &[u8], is_in_log: bool) {
    scene.write(node, content);
    scene.shell.volume.sync_file(node).expect("RAM does not fail");
    if is_in_log {
        scene.make(CREATE, "later", 0o100_644);
        scene.sync();
    }
}

fn set_size(scene: &mut Scene, node: u64, size: u64) {
    let mut body = [words([1 << 3, 0]), longs([0, size])].concat();
    body.resize(88, 0);
    scene.ask((SETATTR, node), &[&body]).expect("it is a file");
}

fn punch(scene: &mut Scene, node: u64, from: u64, len: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let arguments = [longs([0, from, len]), words([mode.cast_unsigned(), 0])].concat();
    scene.ask((FALLOCATE, node), &[&arguments]).expect("it is a file");
}

/// Regression: what a file had lost again was written beside the file that had taken its space.
#[test]
fn content_that_is_gone_takes_no_space() {
    type Lose = fn(&mut Scene, u64);
    let ways: [(Lose, usize, u64); 4] = [
        (|scene, node| set_size(scene, node, 0), 0, 0),
        (|scene, node| set_size(scene, node, 4096), 4096, 4096),
        (|scene, node| punch(scene, node, 8192, LEN as u64), 8192, LEN as u64),
        (
            |scene, node| {
                set_size(scene, node, 100);
                set_size(scene, node, 9000);
            },
            100,
            9000,
        ),
    ];
    for (lose, kept, size) in ways {
        for is_in_log in [false, true] {
            let (mut scene, nodes) = nearly_full(&["f", "g"]);
            let content = SeededRng::new(3).bytes(LEN);
            scene.write(nodes[0], &content);
            lose(&mut scene, nodes[0]);
            write_synced(&mut scene, nodes[1], &content, is_in_log);
            let revived = scene.die();
            let read = |node| revived.volume.read(node, 0, LEN).expect("a file");
            assert!(read(nodes[1]).as_bytes() == content, "{kept} {is_in_log}");
            let mut expected = content[..kept].to_vec();
            expected.resize(size as usize, 0);
            assert_eq!(revived.volume.attributes(nodes[0]).expect("a file").size, size);
            assert!(read(nodes[0]).as_bytes() == expected, "{kept} {is_in_log}");
            revived.volume.sync_all().expect("there is room");
        }
    }
}

/// Bytes of names of attributes that a file may have.
const NAMES_MAX: usize = 64 << 10;

/// Regression: an attribute that was removed later had no room beside the one in the log that had taken its place.
#[test]
fn an_attribute_that_is_gone_takes_no_room() {
    let mut scene = Scene::new();
    let node = scene.make(CREATE, "file", 0o100_644).0;
    let set = |scene: &mut Scene, number: usize| {
        let name = format!("user.{number:0249}\0");
        let create = libc::XATTR_CREATE.cast_unsigned();
        scene.ask((SETXATTR, node), &[&words([1, create]), name.as_bytes(), b"x"])
    };
    let room = (0..NAMES_MAX).find(|number| set(&mut scene, *number).is_err()).expect("a limit");
    let name = |number: usize| format!("user.{number:0249}\0");
    let remove = |scene: &mut Scene, number: usize| {
        scene.ask((REMOVEXATTR, node), &[name(number).as_bytes()]).expect("it is there");
    };
    remove(&mut scene, 0);
    scene.settle();
    set(&mut scene, room).expect("there is room for one");
    remove(&mut scene, room);
    set(&mut scene, room + 1).expect("there is room for one");
    scene.sync();
    let revived = scene.die();
    let has = |number: usize| {
        revived.volume.xattr(node, name(number).trim_end_matches('\0').as_bytes()).is_ok()
    };
    assert_eq!((has(room), has(room + 1), has(1)), (false, true, true));
}

/// Regression: a change that was in the log got an error for its reply, as earlier ones were repeated over it.
#[test]
fn an_attribute_in_the_log_is_not_there_twice() {
    for removes in [false, true] {
        let mut scene = Scene::new();
        let made = scene.ask((SYMLINK, ROOT_INO), &[b"link\0", b"target\0"]).expect("room");
        let Reply::Entry(entry) = made else { panic!("a link") };
        let create = words([1, libc::XATTR_CREATE.cast_unsigned()]);
        let set = [&create[..], b"user.x\0", b"1"].concat();
        if removes {
            scene.ask((SETXATTR, entry.node), &[&set]).expect("room");
        }
        scene.settle();
        let mut body = [words([1, 0]), vec![0; 60], words([0o700])].concat();
        body.resize(88, 0);
        scene.ask((SETATTR, entry.node), &[&body]).expect("a link");
        let bytes = match removes {
            true => scene.message((REMOVEXATTR, entry.node), &[b"user.x\0"]),
            false => scene.message((SETXATTR, entry.node), &[&set]),
        };
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let changing = scene.journal.begin(request.message, || BEFORE);
        scene.shell.pass(&request, None, &mut []).expect("room");
        scene.sync();
        drop(changing);
        let (unique, before) = (scene.unique, scene.shell.volume.attributes(entry.node));
        let revived = scene.die();
        let reply = revived.earlier_reply(unique).expect("it is done");
        assert_eq!(reply[4..8], [0; 4], "no error: {removes}");
        let after = revived.volume.attributes(entry.node).expect("a link");
        assert_eq!(after.ctime, before.expect("a link").ctime, "{removes}");
        assert_eq!(revived.volume.xattr(entry.node, b"user.x").is_err(), removes);
    }
}

/// Blocks that were reserved are so after a death.
#[test]
fn reservations_stay() {
    for is_in_log in [false, true] {
        let (mut scene, nodes) = nearly_full(&["file"]);
        let node = nodes[0];
        let range = longs([0, 0, LEN as u64]);
        scene.ask((FALLOCATE, node), &[&range, &words([0, 0])]).expect("there is room");
        set_size(&mut scene, node, 1 << 20);
        if is_in_log {
            scene.sync();
        }
        let inode = scene.shell.volume.attributes(node).expect("a file");
        let revived = scene.die().volume.attributes(node).expect("a file");
        assert_eq!((revived.size, revived.blocks), (inode.size, inode.blocks), "{is_in_log}");
        assert!(revived.flags.contains(InodeFlags::RESERVED));
    }
}

/// Regression: a truncation that had made the file longer was repeated on the longer file, where it gives reservations back.
#[test]
fn reservations_stay_when_the_file_grows() {
    for (is_in_log, writes_later) in [(false, false), (true, false), (false, true), (true, true)] {
        for is_named_later in [false, true] {
            let mut scene = Scene::new();
            let node = scene.make(CREATE, "file", 0o100_644).0;
            scene.settle();
            let range = longs([0, 0, LEN as u64]);
            let keep_size = words([libc::FALLOC_FL_KEEP_SIZE.cast_unsigned(), 0]);
            scene.ask((FALLOCATE, node), &[&range, &keep_size]).expect("there is room");
            set_size(&mut scene, node, 5000);
            if writes_later {
                scene.write(node, &[3; 9000]);
            }
            if is_named_later {
                scene.make(CREATE, "later", 0o100_644);
            }
            if is_in_log {
                scene.sync();
            }
            let inode = scene.shell.volume.attributes(node).expect("a file");
            let revived = scene.die().volume.attributes(node).expect("a file");
            let of = |inode: &Inode| (inode.size, inode.blocks, inode.mtime, inode.ctime);
            assert_eq!(of(&revived), of(&inode), "{is_in_log} {writes_later} {is_named_later}");
            assert!(revived.blocks * 4096 >= LEN as u64, "{} blocks", revived.blocks);
        }
    }
}

/// Regression: a reservation that a hole had undone found no space once more, beside the file that had taken it.
#[test]
fn a_reservation_that_is_gone_takes_no_space() {
    for is_in_log in [false, true] {
        let (mut scene, nodes) = nearly_full(&["f", "g"]);
        let range = longs([0, 0, LEN as u64]);
        scene.ask((FALLOCATE, nodes[0]), &[&range, &words([0, 0])]).expect("there is room");
        punch(&mut scene, nodes[0], 0, LEN as u64);
        let content = SeededRng::new(3).bytes(LEN);
        write_synced(&mut scene, nodes[1], &content, is_in_log);
        let revived = scene.die();
        let inode = revived.volume.attributes(nodes[0]).expect("a file");
        assert_eq!((inode.size, inode.blocks), (LEN as u64, 0), "{is_in_log}");
        assert!(revived.volume.read(nodes[1], 0, LEN).expect("a file").as_bytes() == content);
        revived.volume.sync_all().expect("there is room");
    }
}

/// Regression: a first attempt that had no space was reported to programs, and what they knew already once more.
#[test]
fn a_replay_is_no_loss() {
    for is_refused in [false, true] {
        let mut scene = Scene::new();
        scene.fill(FREE);
        let content = SeededRng::new(3).bytes(LEN);
        let node = scene.make(CREATE, "a", 0o100_644).0;
        scene.write(node, &content);
        scene.unlink("a");
        scene.forget(node, 1);
        let node = scene.make(CREATE, "b", 0o100_644).0;
        scene.write(node, &content);
        if is_refused {
            let more = vec![5; 2 * LEN];
            let head = write_head(LEN, &more, 0);
            scene.ask((WRITE, node), &[&head, &more]).expect_err("it does not fit");
            assert!(scene.shell.handles.has_unreported_loss(node), "the handle has to learn of it");
        }
        let revived = scene.die();
        assert!(!revived.handles.has_unreported_loss(node), "{is_refused}");
        assert_eq!(revived.lost_writeback().is_any(), is_refused);
        assert!(revived.volume.read(node, 0, LEN).expect("a file").as_bytes() == content);
    }
}

/// Regression: each write that had been durable before its reply was synced by itself.
#[test]
fn a_replay_syncs_once() {
    let mut scene = Scene::new();
    let node = scene.make(CREATE, "file", 0o100_644).0;
    scene.settle();
    let dsync = libc::O_DSYNC.cast_unsigned();
    for at in 0..100 {
        let head = write_head(at << 12, &[1; 4096], dsync);
        scene.ask((WRITE, node), &[&head, &[1; 4096]]).expect("there is room");
    }
    let commits = |shell: &FuseShell| shell.volume.counters().commits;
    assert!(commits(&scene.shell) > 100);
    let revived = scene.die();
    assert!(commits(&revived) < 10, "{}", commits(&revived));
}
