//! Replays on a volume that is nearly full.

use super::*;

/// Free space of the volume, and length of a file that takes most of it, in bytes.
const FREE: u64 = 8 << 20;
const LEN: usize = 5 << 20;

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
            let mut scene = Scene::new();
            scene.fill(FREE);
            let nodes = ["f", "g"].map(|name| scene.make(CREATE, name, 0o100_644).0);
            scene.settle();
            let content = SeededRng::new(3).bytes(LEN);
            scene.write(nodes[0], &content);
            lose(&mut scene, nodes[0]);
            scene.write(nodes[1], &content);
            scene.shell.volume.sync_file(nodes[1]).expect("RAM does not fail");
            if is_in_log {
                scene.make(CREATE, "later", 0o100_644);
                scene.sync();
            }
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

/// Regression: an attribute that was removed later had no room beside the one in the log that had taken its place.
#[test]
fn an_attribute_that_is_gone_takes_no_room() {
    for removes in [true, false] {
        let mut scene = Scene::new();
        let node = scene.make(CREATE, "file", 0o100_644).0;
        scene.settle();
        let value = vec![7; 40_000];
        let set = |scene: &mut Scene, name: &[u8], value: &[u8], flags| {
            let head = words([value.len() as u32, flags]);
            scene.ask((SETXATTR, node), &[&head, name, value]).expect("there is room");
        };
        let create = libc::XATTR_CREATE.cast_unsigned();
        set(&mut scene, b"user.x\0", &value, create);
        match removes {
            true => drop(scene.ask((REMOVEXATTR, node), &[b"user.x\0"]).expect("it is there")),
            false => set(&mut scene, b"user.x\0", b"short", 0),
        }
        set(&mut scene, b"user.y\0", &value, create);
        scene.sync();
        let revived = scene.die();
        assert!(revived.volume.xattr(node, b"user.y").expect("it is there") == value);
        let short = revived.volume.xattr(node, b"user.x").ok();
        assert_eq!(short.as_deref(), (!removes).then_some(&b"short"[..]));
    }
}

/// Blocks that were reserved are so after a death.
#[test]
fn reservations_stay() {
    for is_in_log in [false, true] {
        let mut scene = Scene::new();
        scene.fill(FREE);
        let node = scene.make(CREATE, "file", 0o100_644).0;
        scene.settle();
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
