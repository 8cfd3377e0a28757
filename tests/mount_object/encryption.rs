//! A volume whose objects are encrypted: the store has nothing of its files, and nobody uses it without its key.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sfs_testkit::wait_until;

use super::followers::{self, can_follow};
use super::harness::{TestVolume, can_mount, sfs_ctl_stat, sfs_mount_unused, stderr};
use super::machine::{Machine, Store, program};
use super::readers::fsck;
use super::refusals::refused;
use super::{expect, write_synced};

const MARKER: &[u8] = b"this sentence must not be in the store";

/// Name of a file, which must not be there either.
const NAME: &str = "a-name-that-nobody-may-see";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Makes an encrypted volume with a new key file.
fn encrypted_volume() -> (Store, Machine, PathBuf) {
    let store = Store::empty();
    let machine = Machine::new(&store);
    let key = machine.volume.scratch.path().join("key");
    let made = machine.mkfs_with("64M", &["--new-key-file", key.to_str().expect("UTF-8")]);
    assert!(made.status.success(), "{}", stderr(&made));
    (store, machine, key)
}

fn with_key(key: &Path, options: &str) -> String {
    format!("key_file={},{options}", key.display())
}

#[test]
fn encrypted_object_volumes_show_nothing_to_their_store() {
    if !can_mount() {
        return;
    }
    let write = |machine: &Machine, options: &str| {
        let mount = machine.mount(options);
        write_synced(&mount.dir.join(NAME), &MARKER.repeat(3000));
        let stat = sfs_ctl_stat(&mount.dir, &["--json"]);
        let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).expect("JSON");
        mount.unmount();
        stat["store"]["encrypted"].as_bool().expect("a switch")
    };
    let has = |store: &Store, part: &[u8]| {
        store.objects().iter().any(|path| contains(&fs::read(path).expect("an object"), part))
    };
    // The test would notice.
    let (plain, machine) = Store::with_volume("64M");
    assert!(!write(&machine, ""));
    assert!(has(&plain, MARKER) && has(&plain, NAME.as_bytes()) && has(&plain, b"SFSo"));

    let (store, first, key) = encrypted_volume();
    assert!(write(&first, &with_key(&key, "")));
    assert!(!has(&store, MARKER) && !has(&store, NAME.as_bytes()) && !has(&store, b"SFSo"));
    // Another machine with the same key. The first one dies, and a third one takes over.
    let second = Machine::new(&store);
    let mount = second.mount(&with_key(&key, "durability=remote"));
    expect(&mount.dir.join(NAME), &MARKER.repeat(3000));
    write_synced(&mount.dir.join("second"), MARKER);
    second.kill_store_process();
    write_synced(&mount.dir.join("third"), &MARKER.repeat(90_000));
    mount.kill();
    mount.detach();
    let third = Machine::new(&store);
    let objects = store.objects();
    refused(&third.try_mount(&with_key(&key, "")), 32, "-o takeover");
    assert_eq!(store.objects(), objects, "nothing is changed");
    let mount = third.mount(&with_key(&key, "takeover"));
    expect(&mount.dir.join("second"), MARKER);
    expect(&mount.dir.join("third"), &MARKER.repeat(90_000));
    mount.unmount();
    assert!(!has(&store, MARKER));
}

#[test]
fn encrypted_object_volumes_are_read_and_checked_with_their_key() {
    if !can_mount() {
        return;
    }
    let (store, machine, key) = encrypted_volume();
    let mount = machine.mount(&with_key(&key, ""));
    write_synced(&mount.dir.join(NAME), MARKER);
    mount.unmount();
    let objects = store.objects();
    let reader = Machine::new(&store);
    refused(&reader.try_mount("ro"), 32, "the volume is encrypted: give -o key_file=");
    let mount = reader.mount(&with_key(&key, "ro"));
    expect(&mount.dir.join(NAME), MARKER);
    mount.unmount();
    let path = key.to_str().expect("UTF-8");
    refused(&fsck(&reader, &["-n"]), 8, "the volume is encrypted: give --key-file FILE");
    let checked = fsck(&reader, &["-n", "--data", "--key-file", path]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert_eq!(store.objects(), objects, "nothing is changed");
    let repaired = ["-y", "--cache", machine.cache.to_str().expect("UTF-8"), "--key-file", path];
    let repaired = fsck(&machine, &repaired);
    assert!(repaired.status.success(), "{}", stderr(&repaired));
    machine.mount(&with_key(&key, "")).unmount();
    let (_plain, of_plain) = Store::with_volume("64M");
    refused(&fsck(&of_plain, &["-n", "--key-file", path]), 8, "leave --key-file out");
    refused(&fsck_device(&key), 16, "--key-file is for a volume in an object store");
}

#[test]
fn encrypted_object_volumes_are_followed_with_their_key() {
    if !can_follow() {
        return;
    }
    let (store, first, key) = encrypted_volume();
    let writer = first.mount(&with_key(&key, "durability=remote,upload=1"));
    write_synced(&writer.dir.join("file"), b"first");
    let second = Machine::new(&store);
    let reader = followers::mount(&second, &with_key(&key, "ro,follow=1"));
    expect(&reader.dir.join("file"), b"first");
    for content in ["second", "third"] {
        write_synced(&writer.dir.join("file"), content.as_bytes());
        let path = reader.dir.join("file");
        wait_until(content, || fs::read(&path).is_ok_and(|found| found == content.as_bytes()));
    }
    reader.unmount();
    writer.unmount();
}

/// Checks a device with a key, which it cannot have.
fn fsck_device(key: &Path) -> Output {
    let device = TestVolume::new("64M");
    let mut command = Command::new(program("sfs-fsck"));
    command.args(["-n", "--key-file"]).arg(key).arg(&device.device).output().expect("sfs-fsck runs")
}

#[test]
fn encrypted_object_volumes_need_their_key() {
    if !can_mount() {
        return;
    }
    let (store, machine, key) = encrypted_volume();
    machine.mount(&with_key(&key, "")).unmount();
    let (objects, cache) = (store.objects(), fs::read(&machine.cache).expect("a cache"));
    let other = machine.volume.scratch.path().join("other");
    fs::write(&other, [b'7'; 32]).expect("room");
    let chmod = |mode| fs::set_permissions(&other, Permissions::from_mode(mode)).expect("a file");
    chmod(0o600);
    refused(&machine.try_mount(""), 32, "the volume is encrypted: give -o key_file=");
    refused(&machine.try_mount(&with_key(&other, "")), 32, "wrong key");
    chmod(0o640);
    refused(
        &machine.try_mount(&with_key(&other, "")),
        32,
        "other users may read or change this key",
    );
    chmod(0o600);
    let missing = machine.volume.scratch.path().join("missing");
    refused(&machine.try_mount(&with_key(&missing, "")), 32, "No such file");
    fs::write(&other, "short").expect("room");
    refused(&machine.try_mount(&with_key(&other, "")), 32, "64 hexadecimal digits");
    // Making it again, with any key or none.
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    fs::write(&other, [7; 32]).expect("room");
    for arguments in [&[][..], &["--key-file", &path(&other)], &["--key-file", &path(&key)]] {
        refused(&machine.mkfs_with("64M", arguments), 1, "there is a volume already");
    }
    let made = fs::read(&key).expect("the key");
    refused(&machine.mkfs_with("64M", &["--new-key-file", &path(&key)]), 1, "there is a volume");
    assert_eq!(fs::read(&key).expect("the key"), made);
    assert_eq!(store.objects(), objects, "nothing is changed");
    assert!(fs::read(&machine.cache).expect("a cache") == cache, "nothing is changed");
    machine.mount(&with_key(&key, "")).unmount();

    // The same key for another volume, and a volume without one.
    let next = Store::empty();
    let of_next = Machine::new(&next);
    refused(&of_next.mkfs_with("64M", &["--new-key-file", &path(&key)]), 1, "exists");
    assert!(!of_next.cache.exists() && next.objects().is_empty());
    let made = of_next.mkfs_with("64M", &["--key-file", &path(&key)]);
    assert!(made.status.success(), "{}", stderr(&made));
    of_next.mount(&with_key(&key, "")).unmount();
    let (plain, of_plain) = Store::with_volume("64M");
    let objects = plain.objects();
    refused(&of_plain.try_mount(&with_key(&key, "")), 32, "the volume is not encrypted, but");
    assert_eq!(plain.objects(), objects, "nothing is changed");

    // A device has no objects.
    let device = TestVolume::new("64M");
    let mounted = sfs_mount_unused(&device.device, &device.dir, &with_key(&key, "rw"));
    refused(&mounted, 1, "key_file= is for a volume in an object store");
}

/// The bucket comes back from a backup, or somebody has deleted what was written last.
#[test]
fn object_volumes_that_went_back_are_noticed_with_their_cache() {
    if !can_mount() {
        return;
    }
    let (store, machine, key) = encrypted_volume();
    machine.mount(&with_key(&key, "")).unmount();
    let before = store.objects();
    let mount = machine.mount(&with_key(&key, ""));
    write_synced(&mount.dir.join("file"), MARKER);
    mount.unmount();
    let mut new = store.objects();
    new.retain(|path| !before.contains(path) && path.to_string_lossy().contains("/manifest/"));
    let aside = store.dir.with_file_name("manifests");
    fs::create_dir(&aside).expect("room");
    let moved = new.into_iter().enumerate();
    let moved = moved.map(|(no, path)| (path, aside.join(no.to_string()))).collect::<Vec<_>>();
    moved.iter().for_each(|(from, to)| fs::rename(from, to).expect("an object"));
    refused(&machine.try_mount(&with_key(&key, "")), 32, "older state of the volume");
    moved.iter().for_each(|(from, to)| fs::rename(to, from).expect("an object"));
    let mount = machine.mount(&with_key(&key, ""));
    expect(&mount.dir.join("file"), MARKER);
    mount.unmount();
}
