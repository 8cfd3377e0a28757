//! Volumes in an object store, mounted: what is there after an unmount, a death, an outage or a takeover, with the local cache and
//! without it.
//!
//! `SFS_STORE` names the server to use instead of a directory, see `crates/sfs-servers`. `SFS_DEATHS` is the number of deaths of the daemon
//! (default 4) and, halved, of `sfs-store`; `SFS_SERVER_DEATHS` of the server, `SFS_RACES` of takeovers by two, `SFS_CONNECTIONS_CUT` of
//! connections. `SFS_SEED` repeats the choices of a run.

#[path = "mount_object/cuts.rs"]
mod cuts;
#[path = "mount_object/encryption.rs"]
mod encryption;
#[path = "mount_object/followers.rs"]
mod followers;
#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_object/machine.rs"]
mod machine;
#[path = "mount_object/outage.rs"]
mod outage;
#[path = "mount_object/races.rs"]
mod races;
#[path = "mount_object/readers.rs"]
mod readers;
#[path = "mount_object/refusals.rs"]
mod refusals;
#[path = "mount_object/server_deaths.rs"]
mod server_deaths;
#[path = "mount_object/takeover.rs"]
mod takeover;
#[path = "mount_kill/worker.rs"]
mod worker;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{can_mount, stderr};
use machine::{Machine, Store};
use rustix::process::{Signal, kill_process};
use sfs_testkit::{SeededRng, number_from_env, wait_until};
use worker::Worker;

pub(crate) const THREADS: u64 = 2;

/// Longest outage in the tests.
pub(crate) const OUTAGE: Duration = Duration::from_millis(700);

fn write_synced(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("room");
    file.write_all(bytes).expect("room");
    file.sync_all().expect("the file is durable");
    let dir = File::open(path.parent().expect("a directory")).expect("a directory");
    dir.sync_all().expect("the directory is durable");
}

fn expect(path: &Path, bytes: &[u8]) {
    let found = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(found == bytes, "{} has other content", path.display());
}

#[test]
fn mounted_object_volumes_have_their_content_on_every_machine() {
    if !can_mount() {
        return;
    }
    let mut random = SeededRng::new(1);
    let (large, small) = (random.bytes(24 << 20), random.bytes(3000));
    let (store, first) = Store::with_volume("256M");
    let mount = first.mount("");
    write_synced(&mount.dir.join("large"), &large);
    for no in 0..200 {
        fs::write(mount.dir.join(format!("small-{no}")), &small).expect("room");
    }
    mount.unmount();
    // Files that others may not read are in all of them.
    for path in store.objects().iter().chain([&first.cache]) {
        let mode = fs::metadata(path).expect("it exists").mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    wait_until("sfs-store ends with the mount", || first.store_process().is_none());
    let second = Machine::new(&store);
    let mount = second.mount("");
    expect(&mount.dir.join("large"), &large);
    for no in 0..200 {
        expect(&mount.dir.join(format!("small-{no}")), &small);
    }
    fs::write(mount.dir.join("small-0"), &large[..100_000]).expect("room");
    fs::remove_file(mount.dir.join("large")).expect("a file");
    mount.unmount();
    // The cache of the first machine has the state before.
    let mount = first.mount("");
    expect(&mount.dir.join("small-0"), &large[..100_000]);
    expect(&mount.dir.join("small-1"), &small);
    assert!(!mount.dir.join("large").exists());
    let scrub = std::process::Command::new(env!("CARGO_BIN_EXE_sfs-ctl"))
        .args(["scrub", "start", "--wait"])
        .arg(&mount.dir)
        .output()
        .expect("sfs-ctl runs");
    assert!(scrub.status.success(), "{}", stderr(&scrub));
    mount.unmount();
}

/// The volume has more than its cache may take.
#[test]
fn mounted_object_volumes_may_be_larger_than_their_cache() {
    const CACHE: u64 = 16 << 20;
    if !can_mount() {
        return;
    }
    let (_store, machine) = Store::with_volume("256M");
    let contents = (0..12).map(|seed| SeededRng::new(seed).bytes(6 << 20)).collect::<Vec<_>>();
    let mount = machine.mount("cache_size=16M,upload=1");
    for (no, content) in contents.iter().enumerate() {
        write_synced(&mount.dir.join(format!("file-{no}")), content);
    }
    mount.unmount();
    let mount = machine.mount("cache_size=16M,upload=1");
    for _ in 0..2 {
        for (no, content) in contents.iter().enumerate() {
            expect(&mount.dir.join(format!("file-{no}")), content);
        }
    }
    let taken = || fs::metadata(&machine.cache).expect("a cache").blocks() * 512;
    // Reads exceed the limit for a moment, rather than wait.
    wait_until("the cache is within its limit", || taken() <= CACHE + CACHE / 2);
    mount.unmount();
    assert!(taken() <= CACHE + CACHE / 2, "{} bytes", taken());
}

/// With the cache everything that was synced is there. Without it, everything with `durability=remote`, and else a former state.
#[test]
fn mounted_object_volumes_survive_deaths_of_their_daemon() {
    if !can_mount() {
        return;
    }
    let deaths = number_from_env("SFS_DEATHS", 4);
    let seed = number_from_env("SFS_SEED", 1);
    let mut random = SeededRng::new(seed);
    let (_store, machine) = Store::with_volume("64M");
    let mut workers = (0..THREADS).map(|no| Worker::new(no, seed)).collect::<Vec<_>>();
    let mount = machine.mount("");
    for worker in &workers {
        fs::create_dir(mount.dir.join(&worker.name)).expect("room");
    }
    mount.unmount();
    for death in 0..deaths {
        let durability = ["local", "remote"][death as usize % 2];
        let keeps_cache = death / 2 % 2 == 0;
        println!("death {death}: durability={durability}, with the cache: {keeps_cache}");
        let options = format!("durability={durability},upload=1,commit=1,checkpoint=1");
        let mount = machine.mount(&options);
        let acknowledged = AtomicU64::new(0);
        // An upload at each sync takes longer.
        let goal = random.below(if durability == "local" { 1000 } else { 100 });
        let moment = Duration::from_micros(random.below(1_200_000));
        thread::scope(|scope| {
            let threads = workers.iter_mut();
            let threads = threads.map(|one| scope.spawn(|| one.work(&mount.dir, &acknowledged)));
            let threads = threads.collect::<Vec<_>>();
            let failed = || threads.iter().any(|thread| thread.is_finished());
            wait_until("the load", || failed() || acknowledged.load(Ordering::Relaxed) >= goal);
            thread::sleep(moment);
            assert!(!failed(), "no change fails before the death");
            mount.kill();
            threads.into_iter().for_each(|thread| drop(thread.join().expect("a worker")));
        });
        mount.detach();
        let mount = if keeps_cache {
            machine.mount("")
        } else {
            machine.lose_cache();
            let refused = machine.try_mount("");
            let said = stderr(&refused);
            assert!(refused.status.code() == Some(32) && said.contains("-o takeover"), "{said}");
            if durability == "local" {
                workers.iter_mut().for_each(Worker::roll_back);
            }
            machine.mount("takeover")
        };
        workers.iter_mut().for_each(|worker| worker.verify(&mount.dir));
        mount.unmount();
    }
}

/// A mount with `durability=local` uploads what was synced a little later.
#[test]
fn mounted_object_volumes_upload_in_time() {
    if !can_mount() {
        return;
    }
    let (store, machine) = Store::with_volume("64M");
    let content = SeededRng::new(7).bytes(50_000);
    let mount = machine.mount("upload=1");
    write_synced(&mount.dir.join("file"), &content);
    store.wait_for(&content[..4096]);
    mount.kill();
    mount.detach();
    machine.lose_cache();
    let mount = machine.mount("takeover");
    expect(&mount.dir.join("file"), &content);
    mount.unmount();
}

/// Programs see no error, and no byte differs.
#[test]
fn mounted_object_volumes_do_not_notice_deaths_of_sfs_store() {
    if !can_mount() {
        return;
    }
    let deaths = number_from_env("SFS_DEATHS", 8) / 2;
    let seed = number_from_env("SFS_SEED", 1);
    let mut random = SeededRng::new(seed);
    let (_store, machine) = Store::with_volume("64M");
    let mut workers = (0..THREADS).map(|no| Worker::new(no, seed)).collect::<Vec<_>>();
    let mount = machine.mount("durability=remote,upload=1,cache_size=16M");
    for worker in &workers {
        fs::create_dir(mount.dir.join(&worker.name)).expect("room");
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = |worker: &mut Worker| {
            while !is_over.load(Ordering::Relaxed) {
                worker.change(&mount.dir).expect("programs see no error");
            }
        };
        let threads = workers.iter_mut().map(|worker| scope.spawn(move || work(worker)));
        let threads = threads.collect::<Vec<_>>();
        for _ in 0..deaths {
            thread::sleep(Duration::from_millis(random.below(300)));
            machine.kill_store_process();
        }
        machine.wait_for_store_process();
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("no error"));
    });
    workers.iter_mut().for_each(|worker| worker.verify(&mount.dir));
    mount.unmount();
    machine.lose_cache();
    let mount = machine.mount("");
    workers.iter_mut().for_each(|worker| worker.verify(&mount.dir));
    mount.unmount();
}

/// Requests that need the store wait, others go on, and everything resumes.
#[test]
fn mounted_object_volumes_wait_for_a_store_that_is_away() {
    if !can_mount() {
        return;
    }
    let (store, machine) = Store::with_volume("64M");
    let mut random = SeededRng::new(3);
    for durability in ["local", "remote"] {
        let mount = machine.mount(&format!("durability={durability},upload=1"));
        for way in ["away", "stopped", "killed"] {
            let content = random.bytes(100_000);
            let path = mount.dir.join(format!("{durability}-{way}"));
            let aside = (way != "stopped").then(|| store.go_away());
            let process = machine.wait_for_store_process();
            match way {
                "stopped" => kill_process(process, Signal::STOP).expect("it lives"),
                "killed" => kill_process(process, Signal::KILL).expect("it lives"),
                _ => {}
            }
            let begun = Instant::now();
            thread::scope(|scope| {
                let written = scope.spawn(|| {
                    write_synced(&path, &content);
                    begun.elapsed()
                });
                thread::sleep(OUTAGE);
                assert_eq!(written.is_finished(), durability == "local", "{durability}, {way}");
                match &aside {
                    Some(aside) => store.return_from(aside),
                    None => kill_process(process, Signal::CONT).expect("it lives"),
                }
                written.join().expect("no error");
            });
            store.wait_for(&content[..4096]);
            expect(&path, &content);
        }
        mount.unmount();
    }
    machine.lose_cache();
    let mount = machine.mount("");
    let names = fs::read_dir(&mount.dir).expect("a directory").count();
    assert!(names >= 6, "{names} names");
    mount.unmount();
}
