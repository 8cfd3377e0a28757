//! Read-only mounts that follow the writer of a volume, or go on when the writer has deleted what they show.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sfs_testkit::{SeededRng, wait_until};

use super::harness::{Mount, can_mount, sfs_ctl_stat, sfs_mount_unused, stderr, transport};
use super::machine::{Machine, Store};
use super::readers::fsck;
use super::{expect, write_synced};

const BLOCK: usize = 4096;

/// Mounts the volume read-only, and follows its writer with `options`.
pub(super) fn mount(machine: &Machine, options: &str) -> Mount {
    let output = sfs_mount_unused(&machine.volume.device, &machine.volume.dir, options);
    assert!(output.status.success(), "-o {options}: {}", stderr(&output));
    machine.volume.mounted()
}

/// Returns whether mounts can be made here that go on to newer states.
pub(super) fn can_follow() -> bool {
    let can = transport() != "fuser";
    if !can {
        println!("skipped: the transport fuser cannot follow");
    }
    can && can_mount()
}

fn store_report(dir: &Path) -> serde_json::Value {
    let stat = sfs_ctl_stat(dir, &["--json"]);
    let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    stat["store"].clone()
}

fn states(dir: &Path) -> u64 {
    store_report(dir)["states"].as_u64().expect("a number")
}

fn reads(path: &Path, content: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == content)
}

/// First block of a file, mapped.
struct Mapped(*mut u8);

impl Mapped {
    fn of(file: &File) -> Self {
        let flags = MapFlags::SHARED;
        // SAFETY: the mapping is new, and unmapped when this is dropped.
        let mapped = unsafe { mmap(ptr::null_mut(), BLOCK, ProtFlags::READ, flags, file, 0) };
        Self(mapped.expect("a mapping").cast())
    }

    fn first(&self) -> u8 {
        // SAFETY: the mapping exists, and the file is not shorter.
        unsafe { self.0.read_volatile() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody has an address in the mapping.
        unsafe { munmap(self.0.cast(), BLOCK).expect("the mapping was there") };
    }
}

#[test]
fn mounted_object_volumes_follow_their_writer() {
    if !can_follow() {
        return;
    }
    let (store, first) = Store::with_volume("64M");
    let writer = first.mount("durability=remote,upload=1");
    fs::create_dir(writer.dir.join("dir")).expect("room");
    write_synced(&writer.dir.join("dir/file"), &[b'a'; BLOCK]);
    write_synced(&writer.dir.join("gone"), &[b'g'; BLOCK]);
    let second = Machine::new(&store);
    let reader = mount(&second, "ro,follow=1");
    expect(&reader.dir.join("dir/file"), &[b'a'; BLOCK]);
    let open = File::open(reader.dir.join("dir/file")).expect("a file");
    let gone = File::open(reader.dir.join("gone")).expect("a file");
    let mapped = Mapped::of(&open);
    assert_eq!(mapped.first(), b'a');
    assert!(!reader.dir.join("new").exists());
    let names = |dir: &str| {
        let entries = fs::read_dir(reader.dir.join(dir)).expect("a directory");
        let mut names = entries
            .map(|entry| entry.expect("a name").file_name().into_string().expect("UTF-8"))
            .collect::<Vec<_>>();
        names.sort();
        names
    };
    assert_eq!(names(""), ["dir", "gone"]);
    let file = File::options().write(true).open(writer.dir.join("dir/file")).expect("a file");
    file.write_all_at(&[b'b'; BLOCK], 0).expect("room");
    file.write_all_at(&[b'c'; BLOCK], BLOCK as u64).expect("room");
    file.sync_all().expect("the store answers");
    drop(file);
    write_synced(&writer.dir.join("new"), b"new");
    fs::remove_file(writer.dir.join("gone")).expect("a file");
    fs::rename(writer.dir.join("dir"), writer.dir.join("renamed")).expect("a directory");
    File::open(&writer.dir).and_then(|dir| dir.sync_all()).expect("the store answers");
    wait_until("new names are there", || {
        reads(&reader.dir.join("new"), b"new") && reader.dir.join("renamed/file").exists()
    });
    assert!(!reader.dir.join("dir").exists());
    // The handle is that of the file, whatever its name is.
    let mut bytes = [0; 2 * BLOCK];
    open.read_exact_at(&mut bytes, 0).expect("the file is there");
    assert!(bytes[..BLOCK] == [b'b'; BLOCK] && bytes[BLOCK..] == [b'c'; BLOCK]);
    assert_eq!(mapped.first(), b'b');
    assert_eq!(open.metadata().expect("the file is there").len(), 2 * BLOCK as u64);
    wait_until("a removed file is gone", || {
        gone.read_at(&mut bytes, 0)
            .is_err_and(|error| error.kind() == ErrorKind::StaleNetworkFileHandle)
    });
    let absent = fs::read(reader.dir.join("gone")).expect_err("it was removed").kind();
    assert_eq!(absent, ErrorKind::NotFound);
    assert_eq!(names(""), ["new", "renamed"]);
    assert_eq!(names("renamed"), ["file"]);
    let said = store_report(&reader.dir);
    assert!(said["states"].as_u64() >= Some(2) && said["follow_secs"] == 1, "{said}");
    assert!(said["state_secs"].as_u64() > Some(1_700_000_000), "{said}");
    let text = String::from_utf8(sfs_ctl_stat(&reader.dir, &[]).stdout).expect("UTF-8");
    assert!(text.contains("read-only, follows every 1 s; "), "{text}");
    let mut remount = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    remount.args(["-o", "remount,ro,follow=5"]).arg(&second.volume.device).arg(&reader.dir);
    let refused = stderr(&remount.output().expect("sfs-mount runs"));
    assert!(refused.contains("'follow=5' cannot be changed while mounted"), "{refused}");
    let mut scrub = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    let refused =
        stderr(&scrub.args(["scrub", "start"]).arg(&reader.dir).output().expect("sfs-ctl runs"));
    assert!(refused.contains("is mounted beside its writer"), "{refused}");
    drop((open, gone, mapped));
    reader.unmount();
    writer.unmount();
}

/// Writes the next generation: a directory with two files, and a file of many blocks that replaces the one before.
fn write_generation(dir: &Path, generation: u32) {
    let content = generation.to_le_bytes().repeat(16 * BLOCK / 4);
    let made = dir.join(format!("pair-{generation}"));
    fs::create_dir(&made).expect("room");
    for name in ["a", "b"] {
        write_synced(&made.join(name), &generation.to_le_bytes());
    }
    write_synced(&dir.join("next"), &content);
    fs::rename(dir.join("next"), dir.join("blocks")).expect("a file");
    File::open(dir).and_then(|dir| dir.sync_all()).expect("the store answers");
    if let Some(old) = generation.checked_sub(3) {
        let _ = fs::remove_dir_all(dir.join(format!("pair-{old}")));
    }
}

/// Reads the file of many blocks. Returns its generation, `None` if it was replaced meanwhile.
fn read_generation(dir: &Path) -> Option<u32> {
    let content = match fs::read(dir.join("blocks")) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => return None,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(content.len(), 16 * BLOCK);
    let mut numbers =
        content.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4")));
    let first = numbers.next().expect("content");
    assert!(numbers.all(|number| number == first), "a mixture that begins with {first}");
    Some(first)
}

/// Reads a pair of files through their directory, which may be removed meanwhile.
fn read_pair(dir: &Path, generation: u32) {
    let Ok(dir) = File::open(dir.join(format!("pair-{generation}"))) else { return };
    for name in ["a", "b"] {
        match fs::read(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())) {
            Ok(content) => assert_eq!(content, generation.to_le_bytes()),
            Err(error) => {
                let is_gone =
                    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::StaleNetworkFileHandle);
                assert!(is_gone, "{error}");
            }
        }
    }
}

#[test]
fn mounted_object_volumes_show_no_mixture_of_states() {
    if !can_follow() {
        return;
    }
    let (store, first) = Store::with_volume("64M");
    let writer = first.mount("durability=remote,upload=1");
    write_generation(&writer.dir, 0);
    let second = Machine::new(&store);
    let reader = mount(&second, "ro,follow=1");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for generation in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                write_generation(&writer.dir, generation);
            }
        });
        let readers = [0, 1, 2].map(|_| {
            scope.spawn(|| {
                let mut seen = vec![read_generation(&reader.dir).unwrap_or(0)];
                while !is_over.load(Ordering::Relaxed) {
                    let Some(generation) = read_generation(&reader.dir) else { continue };
                    let last = *seen.last().expect("one");
                    assert!(generation >= last, "{generation} after {last}");
                    if generation > last {
                        seen.push(generation);
                    }
                    read_pair(&reader.dir, generation);
                }
                seen.len()
            })
        });
        let begun = states(&reader.dir);
        wait_until("three states were opened", || states(&reader.dir) >= begun + 3);
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            let seen = reader.join().expect("no mixture");
            assert!(seen >= 2, "only {seen} generations");
        }
    });
    reader.unmount();
    writer.unmount();
}

#[test]
fn mounted_object_volumes_follow_again_after_an_outage() {
    if !can_follow() {
        return;
    }
    let (store, first) = Store::with_volume("64M");
    let writer = first.mount("upload=1");
    write_synced(&writer.dir.join("file"), b"first");
    store.wait_for(b"first");
    let second = Machine::new(&store);
    let reader = mount(&second, "ro,follow=1");
    wait_until("the file is there", || reads(&reader.dir.join("file"), b"first"));
    let third = Machine::new(&store);
    let other = mount(&third, "ro,follow=1");
    wait_until("the file is there", || reads(&other.dir.join("file"), b"first"));
    let aside = store.go_away();
    write_synced(&writer.dir.join("file"), b"second");
    wait_until("the store is missed", || {
        [&reader, &other].iter().all(|mount| store_report(&mount.dir)["trouble"].is_string())
    });
    expect(&reader.dir.join("file"), b"first");
    let begun = Instant::now();
    other.unmount();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    store.return_from(&aside);
    wait_until("the mount follows again", || reads(&reader.dir.join("file"), b"second"));
    reader.unmount();
    writer.unmount();
}

/// Deletes those of the objects that the newest state does not need.
fn delete_unneeded(machine: &Machine, objects: &[std::path::PathBuf]) -> usize {
    let is_whole = || fsck(machine, &["-n", "--data"]).status.success();
    assert!(is_whole());
    let mut deleted = 0;
    for object in objects.iter().filter(|path| path.to_string_lossy().contains("/data/")) {
        let content = fs::read(object).expect("an object");
        fs::remove_file(object).expect("an object");
        if is_whole() {
            deleted += 1;
        } else {
            fs::write(object, content).expect("room");
        }
    }
    deleted
}

/// The writer deletes objects 20 minutes after it needs them no longer: a mount that has slept as long shows the newest state.
#[test]
fn mounted_object_volumes_go_on_when_their_state_is_deleted() {
    if !can_follow() {
        return;
    }
    let [before, after] = [1, 2].map(|seed| SeededRng::new(seed).bytes(4 << 20));
    let (store, first) = Store::with_volume("64M");
    let writer = first.mount("");
    write_synced(&writer.dir.join("kept"), &before);
    write_synced(&writer.dir.join("gone"), &before);
    writer.unmount();
    let second = Machine::new(&store);
    let reader = mount(&second, "ro");
    let open = ["kept", "gone"].map(|name| File::open(reader.dir.join(name)).expect("a file"));
    let objects = store.objects();
    let writer = first.mount("");
    let file = File::options().write(true).open(writer.dir.join("kept")).expect("a file");
    file.write_all_at(&after, 0).expect("room");
    drop(file);
    fs::remove_file(writer.dir.join("gone")).expect("a file");
    writer.unmount();
    assert_eq!(states(&reader.dir), 1, "the state is that of the mount");
    assert!(delete_unneeded(&second, &objects) > 0);
    let mut found = vec![0; after.len()];
    open[0].read_exact_at(&mut found, 0).expect("the newest state has the file");
    assert!(found == after, "the whole content is that of the newest state");
    // The writer may have ended before it has deleted a file that it has removed.
    match open[1].read_at(&mut found, 0) {
        Ok(_) => assert!(found == before),
        Err(error) => assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle),
    }
    assert_eq!(states(&reader.dir), 2);
    wait_until("the name is gone", || !reader.dir.join("gone").exists());
    drop(open);
    reader.unmount();
}
