//! Read-only mounts and checks beside the writer of a volume.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::process::{Command, Output};

use sfs_testkit::SeededRng;

use super::harness::{Mount, can_mount, sfs_mount_unused, stderr};
use super::machine::{Machine, Store, program};
use super::{expect, write_synced};

/// Mounts the volume read-only, without a local cache.
fn read_only(machine: &Machine) -> Mount {
    let output = sfs_mount_unused(&machine.volume.device, &machine.volume.dir, "ro");
    assert!(output.status.success(), "{}", stderr(&output));
    machine.volume.mounted()
}

pub(super) fn fsck(machine: &Machine, arguments: &[&str]) -> Output {
    let mut command = Command::new(program("sfs-fsck"));
    command.args(arguments).arg(&machine.volume.device).output().expect("sfs-fsck runs")
}

/// Checks the exit status of a check, and what it has said on standard error.
fn checked(machine: &Machine, arguments: &[&str], status: i32, words: &str) {
    let output = fsck(machine, arguments);
    let (said, printed) = (stderr(&output), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}{printed}");
    assert!(said.contains(words), "{arguments:?}: {said}");
    assert!(said.lines().count() <= 1, "{arguments:?}: {said}");
    assert!(!words.is_empty() || said.is_empty(), "{arguments:?}: {said}");
}

#[test]
fn mounted_object_volumes_are_read_beside_their_writer() {
    if !can_mount() {
        return;
    }
    let large = SeededRng::new(7).bytes(5 << 20);
    let (store, first) = Store::with_volume("64M");
    let writer = first.mount("durability=remote,upload=1");
    write_synced(&writer.dir.join("large"), &large);
    let second = Machine::new(&store);
    let reader = read_only(&second);
    expect(&reader.dir.join("large"), &large);
    assert!(!second.cache.exists(), "a reader needs no cache");
    let refused = File::create(reader.dir.join("file")).expect_err("read-only").kind();
    assert_eq!(refused, ErrorKind::ReadOnlyFilesystem);
    write_synced(&writer.dir.join("later"), b"later");
    assert!(!reader.dir.join("later").exists(), "the state is that of the mount");
    let mut remount = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    remount.args(["-o", "remount,rw"]).arg(&second.volume.device).arg(&reader.dir);
    let remounted = remount.output().expect("sfs-mount runs");
    assert!(!remounted.status.success());
    assert!(stderr(&remounted).contains("beside its writer"), "{}", stderr(&remounted));
    reader.unmount();
    let reader = read_only(&second);
    expect(&reader.dir.join("later"), b"later");
    reader.unmount();
    // Also the volume of a machine that has died, without sealing it out.
    writer.kill();
    writer.detach();
    let objects = store.objects();
    let reader = read_only(&second);
    expect(&reader.dir.join("large"), &large);
    reader.unmount();
    assert_eq!(store.objects(), objects, "a reader puts nothing");
    let writer = first.mount("");
    expect(&writer.dir.join("later"), b"later");
    writer.unmount();
}

#[test]
fn mounted_object_volumes_answer_estale_for_objects_of_an_old_state() {
    if !can_mount() {
        return;
    }
    let (store, first) = Store::with_volume("64M");
    let writer = first.mount("");
    write_synced(&writer.dir.join("large"), &SeededRng::new(7).bytes(9 << 20));
    writer.unmount();
    let second = Machine::new(&store);
    let reader = read_only(&second);
    let mut large = File::open(reader.dir.join("large")).expect("a file");
    let writer = first.mount("");
    fs::remove_file(writer.dir.join("large")).expect("a file");
    writer.unmount();
    let is_data = |path: &std::path::PathBuf| path.to_string_lossy().contains("/data/");
    for object in store.objects().iter().filter(|path| is_data(path)) {
        fs::remove_file(object).expect("an object");
    }
    let error = large.read_to_end(&mut Vec::new()).expect_err("the objects are gone");
    assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
    drop(large);
    reader.unmount();
}

#[test]
fn object_volumes_are_checked_and_repaired() {
    if !can_mount() {
        return;
    }
    let content = SeededRng::new(7).bytes(5 << 20);
    let (store, first) = Store::with_volume("64M");
    let second = Machine::new(&store);
    let cache = second.cache.to_str().expect("UTF-8");
    let repair = ["-y", "--data", "--cache", cache];
    let writer = first.mount("durability=remote");
    write_synced(&writer.dir.join("large"), &content);
    checked(&second, &["-n", "--data"], 0, "has not released the volume");
    checked(&second, &repair, 8, "has the volume");
    writer.unmount();
    let objects = store.objects();
    checked(&second, &["-n"], 0, "");
    checked(&second, &["-p"], 0, "");
    checked(&second, &["-fn", "--json"], 0, "");
    checked(&second, &["-y"], 16, "give --cache FILE");
    checked(&second, &["-n", "--cache", cache], 16, "leave --cache out");
    assert_eq!(store.objects(), objects, "a check puts nothing");
    let dump = fsck_dump(&second);
    assert!(dump.status.success() && !dump.stdout.is_empty(), "{}", stderr(&dump));
    // A byte of the file, in the object that holds it.
    let piece = &content[1 << 20..][..64];
    let (object, at) = find(&store, piece);
    let mut bytes = fs::read(&object).expect("an object");
    bytes[at] ^= 1;
    fs::write(&object, bytes).expect("an object");
    checked(&second, &["-n"], 0, "");
    checked(&second, &["-n", "--data"], 4, "");
    checked(&second, &repair, 1, "");
    checked(&second, &["-n", "--data"], 0, "");
    let empty = Machine::new(&Store::empty());
    checked(&empty, &["-n"], 8, "no such directory");
    let store = Store::empty();
    checked(&Machine::new(&store), &["-n"], 8, "there is no volume");
}

fn fsck_dump(machine: &Machine) -> Output {
    let mut command = Command::new(program("sfs-fsck"));
    command.arg("dump").arg(&machine.volume.device).arg("superblock");
    command.output().expect("sfs-fsck runs")
}

/// Returns the object that holds `bytes`, and their offset.
fn find(store: &Store, bytes: &[u8]) -> (std::path::PathBuf, usize) {
    let objects = store.objects();
    let at = |path: &std::path::PathBuf| {
        let object = fs::read(path).expect("an object");
        object.windows(bytes.len()).position(|part| part == bytes)
    };
    let found = objects.iter().find_map(|path| at(path).map(|at| (path.clone(), at)));
    found.expect("the content is in an object")
}
