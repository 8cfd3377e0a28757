//! Devices that others have: daemons of earlier mounts, dead ones and one that still writes, and programs that inspect.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use sfs_testkit::{mount_table::is_mounted, wait_until};

use super::harness::{
    Mount, TestVolume, can_mount, sfs_ctl_stat, sfs_mount, sfs_umount, sfs_umount_unused, stderr,
    transport,
};
use super::{MOUNT, SIZE, expect_failure, first_line};

/// Stops the daemon, and unmounts as another program does, which waits for the daemon.
fn stop_and_unmount(mount: &Mount) -> Child {
    mount.signal(Signal::STOP);
    let mut command = Command::new("umount");
    command.args(["--lazy", "--internal-only"]).arg(&mount.dir);
    let unmounting = command.spawn().expect("umount runs");
    wait_until("the mount is gone", || !is_mounted(&mount.dir));
    unmounting
}

#[test]
fn mounted_volumes_whose_daemon_died_are_named() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    for (options, is_loss) in [("rw", true), ("ro", false)] {
        let mount = volume.mount(options);
        mount.kill();
        let asked = sfs_ctl_stat(&volume.dir, &[]);
        assert!(stderr(&asked).contains("its daemon has died"), "{}", stderr(&asked));
        let output = sfs_umount_unused(&volume.dir);
        if is_loss {
            expect_failure(&output, "its daemon had died before");
        } else {
            assert!(output.status.success(), "{}", stderr(&output));
        }
        assert!(!is_mounted(&volume.dir));
        mount.wait_for_end();
        volume.check();
    }
    // The remains of the dead mount do not hinder the next one.
    volume.mount("").unmount();
}

/// Another program has unmounted the volume, and its daemon still writes.
#[test]
fn mounted_volumes_are_mounted_again_once_the_daemon_has_ended() {
    if !can_mount() {
        return;
    }
    for volume in TestVolume::in_image_and_on_loop(SIZE) {
        let mount = volume.mount("");
        fs::write(mount.dir.join("file"), "content").expect("writing");
        let mut unmounting = stop_and_unmount(&mount);
        thread::scope(|scope| {
            let again = scope.spawn(|| volume.mount(""));
            thread::sleep(Duration::from_millis(200));
            assert!(!again.is_finished());
            mount.signal(Signal::CONT);
            let again = again.join().expect("the volume is mounted again");
            assert_eq!(fs::read(again.dir.join("file")).expect("the file"), b"content");
            again.unmount();
        });
        unmounting.wait().expect("umount ends");
        volume.check();
    }
}

/// The process that the user started explains the wait; the daemon has no terminal.
#[test]
fn mounted_volumes_report_that_the_mount_waits_for_an_earlier_daemon() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let mut unmounting = stop_and_unmount(&mount);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    command.args(["--transport", &transport()]).arg(&volume.device).arg(&volume.dir);
    let mut waiting = command.stderr(Stdio::piped()).spawn().expect("sfs-mount runs");
    let line = first_line(&mut waiting);
    mount.signal(Signal::CONT);
    let expected =
        format!("waiting for the daemon of an earlier mount of {}", volume.device.display());
    assert!(line.contains(&expected), "{line}");
    unmounting.wait().expect("umount ends");
    // A process that another test forks may hold the device for a moment.
    let is_mounted = waiting.wait().expect("sfs-mount ends").success();
    if is_mounted { volume.mounted() } else { volume.mount("") }.unmount();
    volume.check();
}

/// udev looks at a device after fsck has closed it, which takes seconds on a busy machine that boots.
#[test]
fn mounted_volumes_were_waited_for_while_udev_had_them_locked() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop(SIZE) else { return };
    let inspecting = File::open(&volume.device).expect("the device");
    inspecting.lock_shared().expect("the lock of an inspection");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    command.args(["--transport", &transport()]).arg(&volume.device).arg(&volume.dir);
    let mut waiting = command.stderr(Stdio::piped()).spawn().expect("sfs-mount runs");
    let line = first_line(&mut waiting);
    inspecting.unlock().expect("unlocking");
    let expected = format!("another program, such as udev, that has {}", volume.device.display());
    assert!(line.contains(&expected), "{line}");
    assert!(waiting.wait().expect("sfs-mount ends").success());
    volume.mounted().unmount();
    volume.check();
}

#[test]
fn mounted_volumes_of_a_dead_daemon_are_named_by_a_mount_and_removed() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    for is_cached in [false, true] {
        let mount = volume.mount("");
        let _ = fs::metadata(&mount.dir).expect("the mount answers");
        mount.kill();
        if !is_cached {
            let _ = fs::read_dir(&mount.dir).expect_err("no daemon answers");
        }
        let output = sfs_mount(&volume.device, &volume.dir, "");
        assert_eq!(output.status.code(), Some(MOUNT), "{}", stderr(&output));
        assert!(stderr(&output).contains("has died; 'sfs-umount"), "{}", stderr(&output));
        expect_failure(&sfs_umount(&volume.dir), "its daemon had died before");
        assert!(!is_mounted(&volume.dir));
        mount.wait_for_end();
    }
    volume.mount("").unmount();
}
