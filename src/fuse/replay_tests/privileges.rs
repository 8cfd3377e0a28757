//! suid bits of files whose content a finished sync covers.

use super::*;

/// Flag of an open file that is emptied.
const TRUNCATES: u32 = (libc::O_TRUNC | libc::O_RDWR).cast_unsigned();

const SUID: u32 = 0o4755;

fn set_mode(scene: &mut Scene, node: u64, mode: u32) {
    let mut body = [words([1, 0]), vec![0; 60], words([mode])].concat();
    body.resize(88, 0);
    scene.ask((SETATTR, node), &[&body]).expect("it is a file");
}

/// Sets the length, and nothing else, as truncate(2) to the present length does.
fn set_size(scene: &mut Scene, node: u64, size: u64) {
    let mut body = [words([1 << 3, 0]), longs([0, size])].concat();
    body.resize(88, 0);
    scene.ask((SETATTR, node), &[&body]).expect("it is a file");
}

fn mode_of(shell: &FuseShell, node: u64) -> u32 {
    shell.volume.attributes(node).expect("a file").mode & 0o7777
}

/// Makes a file that is in the log, and then gets its suid bit.
fn with_suid() -> (Scene, u64, u64) {
    let mut scene = Scene::new();
    let (node, handle) = scene.make(CREATE, "file", 0o100_644);
    scene.write(node, &[1; 9000]);
    scene.settle();
    set_mode(&mut scene, node, SUID);
    (scene, node, handle)
}

/// Calls fdatasync(2), lets the daemon die, and returns the mode afterwards, with that before.
fn modes((mut scene, node, handle): (Scene, u64, u64)) -> (u32, u32) {
    let before = mode_of(&scene.shell, node);
    let body = [longs([handle]), words([1, 0])].concat();
    scene.ask((FSYNC, node), &[&body]).expect("RAM does not fail");
    let revived = scene.die();
    (mode_of(&revived, node), before)
}

/// Regression: the mode was set once more, and the write that had cleared its suid bit was left as it was.
#[test]
fn a_synced_write_has_cleared_suid() {
    let (mut scene, node, handle) = with_suid();
    let data = [6; 9000];
    let head = [longs([0, 0]), words([9000, 4]), longs([0]), words([2, 0])].concat();
    scene.ask((WRITE, node), &[&head, &data]).expect("there is room");
    assert_eq!(modes((scene, node, handle)), (0o755, 0o755));
}

/// Regression: so it was with a file that was emptied when it was opened.
#[test]
fn a_synced_truncation_has_cleared_suid() {
    let (mut scene, node, handle) = with_suid();
    scene.ask((OPEN, node), &[&words([TRUNCATES, 1])]).expect("it is a file");
    assert_eq!(modes((scene, node, handle)), (0o755, 0o755));
}

/// Regression: without its length, a truncation was taken for a request to clear the suid bit.
#[test]
fn a_truncation_that_is_there_keeps_suid() {
    let (mut scene, node, handle) = with_suid();
    set_size(&mut scene, node, 9000);
    assert_eq!(modes((scene, node, handle)), (SUID, SUID));
    let (mut scene, node, _) = with_suid();
    set_size(&mut scene, node, 12_000);
    assert_eq!(mode_of(&scene.shell, node), SUID);
    scene.sync();
    assert_eq!(mode_of(&scene.die(), node), SUID);
}
