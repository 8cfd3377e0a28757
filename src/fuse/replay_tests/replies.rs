//! Replies of a daemon that has died.

use super::*;

/// Bytes of the head of a reply, of an entry, and of an open file, in `<linux/fuse.h>`.
const CREATED_LEN: usize = 16 + 128 + 16;

/// Regression: a file without a name that was in the log, and whose reply was missing, got a reply without a file, which the kernel
/// rejects.
#[test]
fn an_interrupted_file_without_a_name_is_made() {
    for is_in_log in [false, true] {
        let mut scene = Scene::new();
        let bytes = scene.message((TMPFILE, ROOT_INO), &[&words([2, 0o100_600, 0, 0]), b"\0"]);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let changing = scene.journal.begin(request.message, || scene.shell.before(&request));
        scene.shell.pass(&request, None, &mut []).expect("room");
        if is_in_log {
            scene.sync();
        }
        drop(changing);
        let unique = scene.unique;
        let revived = scene.die();
        let reply = revived.earlier_reply(unique).expect("it is done");
        assert_eq!(reply.len(), CREATED_LEN, "{is_in_log}");
        let node = u64::from_ne_bytes(reply[16..24].try_into().expect("8 bytes"));
        revived.volume.attributes(node).expect("a file");
    }
}

/// Regression: the replies that were kept filled each area, so that each change waited for a commit.
#[test]
fn many_replies_leave_room_for_changes() {
    let mut scene = Scene::new();
    // Nobody commits, so that both areas fill.
    let (mut made, mut len) = (0, 0);
    while len < 30 << 20 {
        let name = format!("{made:0200}\0");
        let mode = words([0o100_644, 0, 0, 0]);
        scene.ask((MKNOD, ROOT_INO), &[&mode, name.as_bytes()]).expect("there is room");
        len += 300 + name.len();
        made += 1;
        if made % 10_000 == 0 {
            scene.sync();
        }
    }
    let revived = scene.die();
    let journal = revived.journal.clone().expect("it survives");
    let commits = survival::CommitThread::start(journal.clone()).expect("a thread");
    journal.note_new_request();
    let before = revived.volume.counters().commits;
    for number in 0..50 {
        let unique = (1 << 40) | (number * 2);
        let name = format!("x{number}\0");
        let bytes = message(unique, (MKDIR, ROOT_INO), &[&words([0o755, 0]), name.as_bytes()]);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        revived.answer(&request, &mut []).expect("there is room");
        journal.replied(unique);
    }
    commits.stop();
    let commits = revived.volume.counters().commits - before;
    assert!(commits <= 3, "{commits} commits for 50 directories");
}
