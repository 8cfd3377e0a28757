//! Mounts of images by an ordinary user, through `fusermount3`: everything works without root, and a machine that is not set up
//! for it gets an error with the remedy.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::process::Command;

use harness::{TestVolume, can_mount, copy_program, stderr};

/// A user with a group and a home of its own, whom `fusermount3` finds in the table of users of this namespace. `/dev/fuse` is open to users in a namespace of
/// this test, and /etc/fuse.conf has no `user_allow_other`. `attempt NAME COMMAND...` prints the exit status of the
/// command, and its message.
const AS_USER: &str = r#"
    set -e
    home=$1
    mount -t tmpfs tmpfs /mnt; mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse
    mkdir /mnt/user; mount --bind /mnt/user /run/user
    { cat /etc/passwd; echo "sfs-test:x:54321:54321::/nonexistent:/bin/sh"; } >/mnt/passwd
    mount --bind /mnt/passwd /etc/passwd
    : >/mnt/conf; touch /etc/fuse.conf; mount --bind /mnt/conf /etc/fuse.conf
    chown 54321:54321 "$home" "$home/mount" "$home/image"
    user="setpriv --reuid 54321 --regid 54321 --clear-groups env -u XDG_RUNTIME_DIR HOME=$home"
    attempt() { name=$1; shift; status=0; text=$("$@" 2>&1) || status=$?; echo "$name: $status $text"; }
    mount="$home/mount"

    $user "$home/sfs-mount" "$home/image" "$mount"
    $user sh -c "echo mine >$mount/file && mkdir $mount/dir && ln -s file $mount/link && cat $mount/link"
    $user "$home/sfs-ctl" stat "$mount" >/dev/null
    attempt root cat "$mount/file"
    attempt other setpriv --reuid 54322 --regid 54322 --clear-groups cat "$mount/file"
    attempt twice $user "$home/sfs-mount" "$home/image" "$mount"
    $user "$home/sfs-umount" "$mount"
    $user "$home/sfs-mount" -o ro "$home/image" "$mount"
    attempt again $user cat "$mount/file"
    $user "$home/sfs-umount" "$mount"

    attempt allow $user "$home/sfs-mount" -o allow_other "$home/image" "$mount"
    attempt helper $user env PATH=/nowhere "$home/sfs-mount" "$home/image" "$mount"
    chmod 600 /dev/fuse
    attempt device $user "$home/sfs-mount" "$home/image" "$mount"
    chmod 666 /dev/fuse
    mkdir /mnt/bin; cp "$(command -v fusermount3)" /mnt/bin/fusermount3; chmod 755 /mnt/bin/fusermount3
    attempt setuid $user env PATH=/mnt/bin:/usr/bin:/bin "$home/sfs-mount" "$home/image" "$mount"
    attempt foreign $user "$home/sfs-mount" "$home/image" /usr
"#;

#[test]
fn mounted_images_of_a_user_need_no_root_and_errors_name_the_remedy() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    // The root directory of a volume belongs to who may write there first.
    let mount = volume.mount("rw");
    std::os::unix::fs::chown(&mount.dir, Some(54321), Some(54321)).expect("root gives it away");
    mount.unmount();
    for (program, name) in [
        (env!("CARGO_BIN_EXE_sfs-mount"), "sfs-mount"),
        (env!("CARGO_BIN_EXE_sfs-umount"), "sfs-umount"),
        (env!("CARGO_BIN_EXE_sfs-ctl"), "sfs-ctl"),
    ] {
        copy_program(program.as_ref(), &volume.scratch.path().join(name));
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", AS_USER, "sh"]).arg(volume.scratch.path());
    let Ok(output) = command.output() else {
        return eprintln!("skipped: unshare is not installed");
    };
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), stderr(&output));
    let programs = ["unshare:", "mknod:", "mount:", "setpriv:"];
    if wrong.lines().any(|line| programs.iter().any(|program| line.starts_with(program))) {
        return eprintln!("skipped: {wrong}");
    }
    assert!(output.status.success(), "{said}{wrong}");
    assert!(said.starts_with("mine\n"), "{said}");
    for (name, expected) in [
        ("root", "1 cat:"),
        ("other", "1 cat:"),
        ("twice", "32 "),
        ("again", "0 mine"),
        ("allow", "32 "),
        ("helper", "2 "),
        ("device", "1 "),
        ("setuid", "32 "),
        ("foreign", "32 "),
    ] {
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        let line = line.unwrap_or_else(|| panic!("{name}: {said}"));
        assert!(line.starts_with(expected), "{name}: {line}");
        let remedy = match name {
            "twice" => "is mounted there already",
            "allow" => "'user_allow_other' is set in /etc/fuse.conf",
            "helper" => "install the package fuse3",
            "device" => "chmod 666 /dev/fuse",
            "setuid" => "is fusermount3 set-uid root?",
            _ => "",
        };
        assert!(line.contains(remedy), "{name}: {line}");
    }
    volume.check();
}
