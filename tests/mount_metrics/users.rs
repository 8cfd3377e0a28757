//! The users who may read the metrics of a mount, and record its requests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use super::harness::{TestVolume, can_mount, copy_program, stderr};
use super::{REQUEST, ask};

/// Environment variable with the path of a socket, for [`helper_that_asks_a_socket`].
const SOCKET: &str = "SFS_TEST_SOCKET";

/// Asks the socket that the environment names, as the user of this process, and prints the response. Another test runs
/// this one as another user.
#[test]
#[ignore = "a helper of mounted_metrics_are_hidden_from_other_users"]
fn helper_that_asks_a_socket() {
    let path = std::env::var(SOCKET).expect("a socket");
    match UnixStream::connect(path) {
        Ok(stream) => println!("answer:{}:", ask(stream, REQUEST)),
        Err(error) => println!("error:{error}:"),
    }
}

/// Root mounts, and opens the directory and the sockets to everyone. `/run` is one of this test.
const OPENED: &str = r#"
    set -e
    mount -t tmpfs -o mode=755 tmpfs /run
    "$1/sfs-mount" "$1/image" "$1/mount"
    user="setpriv --reuid 65534 --regid 65534 --clear-groups"
    socket="$(echo /run/sfs/*.metrics)"
    export SFS_TEST_SOCKET="$socket"
    $user "$1/asker" --ignored --exact users::helper_that_asks_a_socket --nocapture
    $user "$1/sfs-ctl" metrics "$1/mount" || true
    chmod 755 /run/sfs; chmod 666 /run/sfs/*
    $user "$1/asker" --ignored --exact users::helper_that_asks_a_socket --nocapture
    $user "$1/sfs-ctl" metrics "$1/mount" || true
    $user "$1/sfs-ctl" trace "$1/mount" -o "$1/open/trace" --seconds 1 || true
    "$1/asker" --ignored --exact users::helper_that_asks_a_socket --nocapture
    "$1/sfs-umount" "$1/mount"
"#;

#[test]
fn mounted_metrics_are_hidden_from_other_users() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let Some((said, wrong)) = run_in_namespace(&volume, OPENED) else { return };
    let answers = answers(&said);
    assert!(answers[0].starts_with("error:Permission denied"), "{said}");
    assert_eq!(answers[1], "answer::", "the daemon closes the connection: {said}");
    assert!(answers[2].starts_with("answer:HTTP/1.1 200 OK"), "root is served: {said}");
    assert_eq!(said.matches("sfs_files{").count(), 1, "only root sees numbers: {said}");
    let refused = wrong.lines().filter(|line| line.starts_with("sfs-ctl: ")).count();
    assert_eq!(refused, 3, "{wrong}");
    assert!(wrong.contains("only root and the user who mounted it may query it"), "{wrong}");
    assert!(!volume.scratch.path().join("open/trace").exists(), "nothing was recorded");
    volume.check();
}

/// Runs a script in a mount namespace of its own, with the programs beside `volume`. Returns its output; `None` with a
/// message if the machine lacks something.
fn run_in_namespace(volume: &TestVolume, script: &str) -> Option<(String, String)> {
    let scratch = volume.scratch.path();
    let this = std::env::current_exe().expect("this program");
    for (program, name) in [
        (Path::new(env!("CARGO_BIN_EXE_sfs-mount")), "sfs-mount"),
        (Path::new(env!("CARGO_BIN_EXE_sfs-umount")), "sfs-umount"),
        (Path::new(env!("CARGO_BIN_EXE_sfs-ctl")), "sfs-ctl"),
        (&this, "asker"),
    ] {
        copy_program(program, &scratch.join(name));
    }
    fs::create_dir(scratch.join("open")).expect("a directory");
    for path in [scratch, &scratch.join("open")] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("a mode");
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(scratch);
    let Ok(output) = command.output() else {
        eprintln!("skipped: unshare is not installed");
        return None;
    };
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
    let is_missing = |line: &str| {
        ["unshare:", "mount:", "mknod:", "mkdir:", "sh:"].iter().any(|no| line.starts_with(no))
            || line.contains("setpriv:")
    };
    if wrong.lines().any(is_missing) {
        eprintln!("skipped: {wrong}");
        return None;
    }
    assert!(output.status.success(), "{said}{wrong}");
    Some((said, wrong))
}

/// Returns the lines of [`helper_that_asks_a_socket`].
fn answers(said: &str) -> Vec<&str> {
    let is_answer = |line: &&str| line.starts_with("answer:") || line.starts_with("error:");
    said.lines().filter(is_answer).collect()
}

/// An ordinary user mounts; the same user, root and another user ask. `/dev/fuse` is open to users in a namespace of
/// this test.
const OF_USER: &str = r#"
    set -e
    mount -t tmpfs tmpfs /mnt; mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse
    mkdir /mnt/user; mount --bind /mnt/user /run/user; mkdir -m 700 /run/user/65534
    chown 65534:65534 /run/user/65534 "$1/mount" "$1/image"
    user="setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR"
    other="setpriv --reuid 65533 --regid 65533 --clear-groups"
    $user "$1/sfs-mount" "$1/image" "$1/mount"
    export SFS_TEST_SOCKET="$(echo /run/user/65534/sfs/*.metrics)"
    for who in "$user" "" "$other"; do
        $who "$1/asker" --ignored --exact users::helper_that_asks_a_socket --nocapture
    done
    $user "$1/sfs-ctl" trace "$1/mount" -o "$1/open/trace" --seconds 1
    $other "$1/sfs-ctl" trace "$1/mount" -o "$1/open/other" --seconds 1 || true
    $user "$1/sfs-umount" "$1/mount"
"#;

#[test]
fn mounted_metrics_are_shown_to_the_mounting_user_and_root() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let Some((said, wrong)) = run_in_namespace(&volume, OF_USER) else { return };
    let answers = answers(&said);
    for served in &answers[..2] {
        assert!(served.starts_with("answer:HTTP/1.1 200 OK"), "{said}");
    }
    assert!(answers[2].starts_with("error:Permission denied"), "{said}");
    assert!(wrong.contains("only root and the user who mounted it may query it"), "{wrong}");
    let open = volume.scratch.path().join("open");
    let trace = fs::read_to_string(open.join("trace")).expect("the user's trace");
    assert!(trace.starts_with("# sfs-trace 1") && trace.contains("# end "), "{trace}");
    assert!(!open.join("other").exists(), "nothing was recorded for another user");
    volume.check();
}
