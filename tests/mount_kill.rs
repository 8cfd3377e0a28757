//! `kill -9` of the daemon under load: data that fsync(2) has acknowledged is readable afterwards.
//!
//! `SFS_KILLS` is the number of kills (default 5); `SFS_SEED` repeats the choices of a run.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[expect(dead_code, reason = "the test of volumes in object stores uses all of it")]
#[path = "mount_kill/worker.rs"]
mod worker;

use std::env;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use harness::{CACHES, TestVolume, can_mount};
use sfs_testkit::{SeededRng, wait_until};
use worker::Worker;

const KILLS: u64 = 5;
const THREADS: u64 = 3;

/// Size of the volume: small, so that the cleaner runs.
const SIZE: &str = "64M";

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn mounted_synced_files_survive_kills() {
    if !can_mount() {
        return;
    }
    let kills = number("SFS_KILLS").unwrap_or(KILLS);
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_micros() as u64);
    let seed = number("SFS_SEED").unwrap_or_else(clock);
    println!("replay: SFS_SEED={seed} SFS_KILLS={kills} cargo test --test mount_kill");
    let mut random = SeededRng::new(seed);
    let volume = TestVolume::new(SIZE);
    let mut workers: Vec<_> = (0..THREADS).map(|thread| Worker::new(thread, seed)).collect();
    let mount = volume.mount("");
    for worker in &workers {
        fs::create_dir(mount.dir.join(&worker.name)).expect("a directory");
    }
    mount.unmount();
    for kill in 0..kills {
        let cache = CACHES[random.below(2) as usize];
        let options = format!("{cache},commit=1,checkpoint=1");
        println!("kill {kill}, {options}");
        run_and_kill(&volume, &options, &mut workers, &mut random);
        volume.check();
        let mount = volume.mount(&options);
        workers.iter_mut().for_each(|worker| worker.verify(&mount.dir));
        expect_space(&mount.dir);
        // Every other time the next daemon starts from a log, not from a clean unmount.
        if random.below(2) == 0 {
            mount.unmount();
        } else {
            mount.kill();
            mount.detach();
        }
        volume.check();
    }
}

/// Asserts that all files together take less than a quarter of the volume, whatever the number of kills.
fn expect_space(root: &Path) {
    let space = rustix::fs::statvfs(root).expect("statvfs");
    let (free, all) = (space.f_bavail, space.f_blocks);
    assert!(free >= all / 4 * 3, "{free} of {all} blocks are free: the kills leak space");
}

/// Works until a number of changes have been acknowledged, and for a moment longer.
fn run_and_kill(
    volume: &TestVolume,
    options: &str,
    workers: &mut [Worker],
    random: &mut SeededRng,
) {
    let mount = volume.mount(options);
    let acknowledged = AtomicU64::new(0);
    let (goal, moment) = (random.below(3000), Duration::from_micros(random.below(20_000)));
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(|| worker.work(&mount.dir, &acknowledged)))
            .collect();
        let failed = || threads.iter().any(|thread| thread.is_finished());
        wait_until("the load", || failed() || acknowledged.load(Ordering::Relaxed) >= goal);
        thread::sleep(moment);
        mount.kill();
        for thread in threads {
            let error = thread.join().expect("a worker");
            // ECANCELED comes from the io_uring transport.
            let errors_of_a_dead_daemon =
                [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO, libc::ECANCELED].map(Some);
            let after = acknowledged.load(Ordering::Relaxed);
            assert!(
                errors_of_a_dead_daemon.contains(&error.raw_os_error()),
                "after {after} of {goal}: {error}"
            );
        }
    });
    mount.detach();
}
