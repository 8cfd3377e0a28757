//! Refusals, each of one line with the remedy and without a change; and the limits of the processes of a mount.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use sfs_testkit::{LoopDevice, wait_until};

use super::harness::{
    can_mount, copy_program, sfs_ctl_stat, sfs_mount_unused, sfs_umount, stderr, transport,
};
use super::machine::{Machine, Store};
use super::{expect, write_synced};

/// A credential that must not be seen.
const KEY: &str = "the-key-of-a-test";

const SFS_MOUNT: &str = env!("CARGO_BIN_EXE_sfs-mount");

/// Checks the status of a program that has failed, and that its line has `words`.
pub(crate) fn refused(output: &Output, status: i32, words: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{words}: {said}");
    assert!(said.contains(words), "{words}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn mounted_object_volumes_need_the_right_options() {
    if !can_mount() {
        return;
    }
    let (store, machine) = Store::with_volume("64M");
    let objects = store.objects();
    let (device, dir) = (&machine.volume.device, &machine.volume.dir);
    let cache = fs::read(&machine.cache).expect("a cache");
    let without = sfs_mount_unused(device, dir, "rw");
    refused(&without, 1, "give -o cache_file=FILE");
    refused(&machine.try_mount("ro,takeover"), 1, "takes nothing over");
    refused(&machine.try_mount("durability=never"), 1, "durability");
    refused(&machine.try_mount("follow=5"), 1, "'follow': only a read-only mount");
    refused(&machine.try_mount("local_state"), 1, "'local_state': what a cache has is only read");
    refused(&machine.try_mount("ro,local_state,follow=5"), 1, "leave out 'follow'");
    refused(
        &machine.try_mount("ro,local_state"),
        32,
        "everything that the local cache has was uploaded",
    );
    refused(&sfs_mount_unused(device, dir, "ro,local_state"), 1, "give -o cache_file=FILE, too");
    let words = if transport() == "fuser" {
        "--transport fuser"
    } else {
        "for a volume in an object store"
    };
    refused(&sfs_mount_unused(&machine.cache, dir, "ro,follow=5"), 1, words);
    refused(&machine.try_mount("cache_size=8M"), 1, "from 16 MiB to 64 TiB");
    let words = match transport().as_str() {
        "fuser" => "--transport fuser",
        "uring" => "--transport uring",
        _ => "object store",
    };
    refused(&machine.try_mount("survive"), 1, words);
    let cache_file = format!("cache_file={}", machine.cache.display());
    let mut fake = Command::new(SFS_MOUNT);
    fake.args(["--fake", "-o", &cache_file]).arg(device).arg(dir);
    refused(&fake.output().expect("sfs-mount runs"), 1, "--fake cannot look into an object store");

    let empty = Store::empty();
    let of_nothing = Machine::new(&empty);
    refused(&of_nothing.try_mount(""), 32, "there is no volume; 'sfs-mkfs ");
    assert!(!of_nothing.cache.exists() && empty.objects().is_empty());
    fs::remove_dir(&empty.dir).expect("an empty directory");
    refused(&of_nothing.try_mount(""), 32, "there is no such directory");
    for (url, words) in [
        ("s3:///prefix", "names no bucket"),
        ("s3://key:secret@bucket/prefix", "do not belong into the URL"),
    ] {
        let output = sfs_mount_unused(Path::new(url), dir, &cache_file);
        refused(&output, 32, words);
        assert!(!stderr(&output).contains("secret"));
    }

    let (other_store, other) = Store::with_volume("64M");
    let other_objects = other_store.objects();
    let mixed = format!("cache_file={}", machine.cache.display());
    let mixed = sfs_mount_unused(&other.volume.device, &other.volume.dir, &mixed);
    refused(&mixed, 32, "belongs to another volume");
    assert_eq!(other_store.objects(), other_objects);

    // Nothing is left of what could not be made.
    let new = machine.volume.scratch.path().join("new");
    let mut mkfs = Command::new(Path::new(SFS_MOUNT).with_file_name("sfs-mkfs"));
    mkfs.args(["--cache", "/no/such/directory/cache", "--size", "64M"]);
    let mkfs = mkfs.arg(format!("file://{}", new.display())).output().expect("sfs-mkfs runs");
    refused(&mkfs, 1, "/no/such/directory/cache");
    assert!(!new.exists());

    refused(&machine.mkfs("64M"), 1, "there is a volume already");
    let again = Machine::new(&store);
    refused(&again.mkfs("64M"), 1, "there is a volume already");
    assert!(!again.cache.exists());
    assert_eq!(store.objects(), objects, "nothing is changed");
    assert!(fs::read(&machine.cache).expect("a cache") == cache, "nothing is changed");
    let mount = machine.mount("");
    let begun = Instant::now();
    let used = sfs_mount_unused(&other.volume.device, &other.volume.dir, &cache_file);
    refused(&used, 32, &format!("which is mounted on {}", mount.dir.display()));
    assert!(begun.elapsed() < Duration::from_secs(10), "nothing is waited for");
    mount.unmount();
}

#[test]
fn mounted_object_volumes_need_sfs_store() {
    if !can_mount() {
        return;
    }
    let (_store, machine) = Store::with_volume("16M");
    let alone = machine.volume.scratch.path().join("sfs-mount");
    copy_program(Path::new(SFS_MOUNT), &alone);
    let mut command = Command::new(&alone);
    command.args(["-o", &format!("cache_file={}", machine.cache.display())]);
    command.arg(&machine.volume.device).arg(&machine.volume.dir);
    let output = command.output().expect("sfs-mount runs");
    refused(&output, 32, "install the program that reaches object stores there");
    assert!(
        stderr(&output)
            .contains(&format!("{} is missing", alone.with_file_name("sfs-store").display()))
    );
}

fn status_line(process: Pid, name: &str) -> String {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let text = fs::read_to_string(path).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().to_owned()
}

/// The daemon has no network and no privileges; its monitor starts the program that has the network.
#[test]
fn mounted_object_volumes_are_sandboxed() {
    if !can_mount() {
        return;
    }
    let (_store, machine) = Store::with_volume("16M");
    let mut command = Command::new(SFS_MOUNT);
    command.args(["-o", &format!("cache_file={},upload=1", machine.cache.display())]);
    command.arg(&machine.volume.device).arg(&machine.volume.dir).env("AWS_SECRET_ACCESS_KEY", KEY);
    command.env("https_proxy", format!("http://user:{KEY}@127.0.0.1:1"));
    let output = command.output().expect("sfs-mount runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let mount = machine.volume.mounted();
    let stat = sfs_ctl_stat(&mount.dir, &["--json"]);
    let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    for limit in ["wanted", "capabilities", "no_new_privileges", "files", "system_calls"] {
        assert_eq!(stat["sandbox"][limit], true, "{stat}");
    }
    assert_eq!(status_line(mount.daemon, "CapEff:"), "0000000000000000");
    // It sees a restart inside of the sandbox.
    let before = machine.wait_for_store_process();
    machine.kill_store_process();
    write_synced(&mount.dir.join("file"), b"content");
    wait_until("another sfs-store runs", || {
        machine.store_process().is_some_and(|now| now != before)
    });
    let store = machine.wait_for_store_process();
    let parent = status_line(store, "PPid:");
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).expect("its parent");
    assert_eq!(name.trim(), "sfs-monitor");
    // Its monitor has the credentials, as it has, and the daemon has forgotten them.
    let environment = |process: Pid| {
        let path = format!("/proc/{}/environ", process.as_raw_nonzero());
        String::from_utf8(fs::read(path).expect("the process runs")).expect("UTF-8")
    };
    assert!(environment(store).contains(KEY));
    let of_daemon = environment(mount.daemon);
    assert!(of_daemon.contains("PATH=") && !of_daemon.contains(KEY), "{of_daemon}");
    // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH. It has just started.
    let confined = ["1", "0000000000000006", "0000000000000000"];
    wait_until("sfs-store is confined", || {
        ["NoNewPrivs:", "CapEff:", "CapBnd:"].map(|line| status_line(store, line)) == confined
    });
    mount.unmount();
}

/// Without a sandbox the daemon starts the program itself.
#[test]
fn mounted_object_volumes_work_without_a_sandbox_and_with_a_device_as_cache() {
    if !can_mount() {
        return;
    }
    let (store, machine) = Store::with_volume("16M");
    let mount = machine.mount("nosandbox");
    write_synced(&mount.dir.join("file"), b"content");
    mount.unmount();
    let mut other = Machine::new(&store);
    let image = fs::File::create(&other.cache).expect("room");
    image.set_len(32 << 20).expect("room");
    let Some(device) = LoopDevice::attach(&other.cache) else { return };
    other.cache = device.path.clone();
    let mount = other.mount("");
    expect(&mount.dir.join("file"), b"content");
    // Changes of options do not touch the store.
    for options in ["remount,ro", "remount,rw"] {
        let mut remount = Command::new(SFS_MOUNT);
        let output =
            remount.args(["-o", options]).arg(&other.volume.device).arg(&mount.dir).output();
        let output = output.expect("sfs-mount runs");
        assert!(output.status.success(), "{options}: {}", stderr(&output));
    }
    write_synced(&mount.dir.join("file"), b"other content");
    let output = sfs_umount(&mount.dir);
    assert!(output.status.success(), "{}", stderr(&output));
    mount.wait_for_end();
    machine.lose_cache();
    let mount = machine.mount("");
    expect(&mount.dir.join("file"), b"other content");
    mount.unmount();
}
