//! Stores that refuse or do not answer for a while: nothing ends, and everything goes on by itself. With `outage=eio` reads and syncs fail meanwhile.
//!
//! `SFS_OUTAGE_SECS` is the length of outages (default 2).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sfs_testkit::{SeededRng, number_from_env, wait_until};

use super::harness::{can_mount, sfs_ctl_stat, sfs_umount, stderr};
use super::machine::{Machine, Store};
use super::{expect, write_synced};

/// Files that are open during an outage.
const FILES: usize = 2000;

fn outage() -> Duration {
    Duration::from_secs(number_from_env("SFS_OUTAGE_SECS", 2))
}

/// A filesystem of its own for the directory of a store, which can be full.
struct SmallFilesystem<'a>(&'a Path);

impl<'a> SmallFilesystem<'a> {
    /// Returns `None`, and says so, if it cannot be mounted.
    fn mount(dir: &'a Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96m,mode=700", "sfs-test"]).arg(dir);
        match mount.status() {
            Ok(status) if status.success() => Some(Self(dir)),
            _ => {
                println!("skipped: tmpfs cannot be mounted");
                None
            }
        }
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.join("filler")
    }

    fn fill(&self) {
        let mut file = File::create(self.filler()).expect("room");
        let full = loop {
            if let Err(error) = file.write_all(&[1; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("a file");
    }
}

impl Drop for SmallFilesystem<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn store_of(dir: &Path) -> serde_json::Value {
    let stat = sfs_ctl_stat(dir, &["--json"]);
    let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    stat["store"].clone()
}

/// Thousands of files stay open while the store refuses, are written meanwhile, and have everything afterwards.
#[test]
fn mounted_object_volumes_go_on_when_a_full_store_has_room_again() {
    if !can_mount() {
        return;
    }
    let store = Store::empty();
    let Some(filesystem) = SmallFilesystem::mount(&store.dir) else { return };
    let machine = Machine::new(&store);
    let made = machine.mkfs("64M");
    assert!(made.status.success(), "{}", stderr(&made));
    let mount = machine.mount("durability=remote,upload=1");
    let path = |no: usize| mount.dir.join(format!("file-{no}"));
    let first = SeededRng::new(1).bytes(FILES + 1000);
    let second = SeededRng::new(2).bytes(FILES + 4096);
    let files = (0..FILES).map(|no| {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(path(no)).expect("room");
        file.write_all_at(&first[no..no + 1000], 0).expect("room");
        file
    });
    let files = files.collect::<Vec<_>>();
    files[0].sync_all().expect("the store has room");
    filesystem.fill();
    thread::scope(|scope| {
        let syncs = scope.spawn(|| {
            for (no, file) in files.iter().enumerate() {
                file.write_all_at(&second[no..no + 4096], 1000)?;
            }
            files.iter().try_for_each(File::sync_all)
        });
        wait_until("the store refuses", || store_of(&mount.dir)["is_refused"] == true);
        let begun = Instant::now();
        while begun.elapsed() < outage() {
            thread::sleep(Duration::from_millis(100));
            assert!(!syncs.is_finished(), "nothing is durable");
            let mut bytes = [0; 1000];
            files[7].read_exact_at(&mut bytes, 0).expect("reads go on");
            assert!(bytes == first[7..1007]);
        }
        let said = store_of(&mount.dir);
        assert!(said["trouble"].as_str().expect("a reason").contains("No space left"), "{said}");
        assert_eq!(said["failure"], serde_json::Value::Null, "{said}");
        let text = sfs_ctl_stat(&mount.dir, &["--price", "5:0.4:0:0.02:0.1"]);
        let text = String::from_utf8(text.stdout).expect("UTF-8");
        assert!(text.contains("refused for") && text.contains("for requests and"), "{text}");
        filesystem.make_room();
        syncs.join().expect("no panic").expect("no program sees an error");
    });
    write_synced(&mount.dir.join("after"), b"the volume is written");
    assert_eq!(store_of(&mount.dir)["trouble"], serde_json::Value::Null);
    drop(files);
    mount.unmount();
    machine.lose_cache();
    let mount = machine.mount("");
    for no in 0..FILES {
        let mut found = Vec::new();
        File::open(mount.dir.join(format!("file-{no}")))
            .and_then(|mut file| file.read_to_end(&mut found))
            .expect("the file is there");
        assert!(found[..1000] == first[no..no + 1000], "{no}");
        assert!(found[1000..] == second[no..no + 4096], "{no}");
    }
    mount.unmount();
}

/// Reads of what the cache does not hold and syncs fail in time; open files go on afterwards, and nothing is lost.
#[test]
fn mounted_object_volumes_fail_requests_with_outage_eio() {
    if !can_mount() {
        return;
    }
    let (store, maker) = Store::with_volume("64M");
    let content = SeededRng::new(3).bytes(3 << 20);
    let mount = maker.mount("");
    write_synced(&mount.dir.join("old"), &content);
    mount.unmount();
    let machine = Machine::new(&store);
    let mount = machine.mount("durability=remote,upload=1,outage=eio,outage_wait=1");
    let old = File::open(mount.dir.join("old")).expect("the store answers");
    let mut new = File::create(mount.dir.join("new")).expect("room");
    new.write_all(b"begin ").expect("room");
    new.sync_all().expect("the store answers");
    let aside = store.go_away();
    let begun = Instant::now();
    new.write_all(b"middle ").expect("the cache has room");
    for _ in 0..3 {
        let late = new.sync_all().expect_err("the store is away");
        assert_eq!(late.raw_os_error(), Some(5), "{late}");
    }
    let mut bytes = vec![0; content.len()];
    let late = old.read_exact_at(&mut bytes, 0).expect_err("the cache does not have it");
    assert_eq!(late.raw_os_error(), Some(5), "{late}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(fs::read(mount.dir.join("new")).expect("it is in memory"), b"begin middle ");
    let said = store_of(&mount.dir);
    assert!(said["trouble"].is_string() && said["failure"].is_null(), "{said}");
    store.return_from(&aside);
    new.write_all(b"end").expect("the volume is not read-only");
    wait_until("syncs succeed again", || new.sync_all().is_ok());
    wait_until("reads succeed again", || old.read_exact_at(&mut bytes, 0).is_ok());
    assert!(bytes == content);
    drop((old, new));
    mount.unmount();
    machine.lose_cache();
    let mount = machine.mount("");
    expect(&mount.dir.join("new"), b"begin middle end");
    expect(&mount.dir.join("old"), &content);
    mount.unmount();
}

/// The store is away for ever, and a sync waits for it: a forced end of the mount ends the daemon, and the cache has everything.
#[test]
#[ignore = "each end waits for the store for half a minute"]
fn mounted_object_volumes_end_by_force_in_an_outage() {
    if !can_mount() {
        return;
    }
    for ends_by_abort in [false, true] {
        let (store, machine) = Store::with_volume("64M");
        let mount = machine.mount("durability=remote,upload=1");
        let connection = fs::metadata(&mount.dir).expect("a mount").dev() & 0xff;
        let mut file = File::create(mount.dir.join("file")).expect("room");
        let aside = store.go_away();
        file.write_all(b"content").expect("the cache has room");
        let sync = thread::spawn(move || file.sync_all());
        thread::sleep(Duration::from_secs(1));
        assert!(!sync.is_finished(), "it waits for the store");
        let begun = Instant::now();
        if ends_by_abort {
            let abort = format!("/sys/fs/fuse/connections/{connection}/abort");
            fs::write(abort, "1")
                .expect("fusectl is mounted: mount -t fusectl none /sys/fs/fuse/connections");
        } else {
            let forced = Command::new("umount").args(["-f", "-l"]).arg(&mount.dir).status();
            assert!(forced.expect("umount runs").success());
        }
        sync.join().expect("no panic").expect_err("its mount is gone");
        mount.wait_for_end();
        println!("the end took {:?}", begun.elapsed());
        store.return_from(&aside);
        let mount = machine.mount("");
        expect(&mount.dir.join("file"), b"content");
        mount.unmount();
    }
}

/// The cache is full, and the store is away: what was written gets into the cache, and the next mount uploads it.
#[test]
#[ignore = "an unmount waits for the store for half a minute"]
fn mounted_object_volumes_end_while_writes_wait_for_the_store() {
    if !can_mount() {
        return;
    }
    let (store, machine) = Store::with_volume("256M");
    let mount = machine.mount("cache_size=16M,upload=1");
    write_synced(&mount.dir.join("first"), b"content");
    let aside = store.go_away();
    let content = SeededRng::new(4).bytes(48 << 20);
    fs::write(mount.dir.join("large"), &content).expect("memory has room");
    let begun = Instant::now();
    let output = sfs_umount(&mount.dir);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("not everything was uploaded"), "{said}");
    assert!(said.contains("has the rest"), "{said}");
    println!("the unmount took {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(120));
    mount.wait_for_end();
    store.return_from(&aside);
    let mount = machine.mount("");
    expect(&mount.dir.join("large"), &content);
    mount.unmount();
    machine.lose_cache();
    let mount = machine.mount("");
    expect(&mount.dir.join("large"), &content);
    mount.unmount();
}
