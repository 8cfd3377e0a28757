//! Deaths of the server in the middle of writes.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sfs_testkit::{SeededRng, number_from_env, wait_until};

use super::harness::{can_mount, sfs_ctl_stat};
use super::machine::{Machine, Store};
use super::worker::Worker;
use super::{OUTAGE, THREADS};

/// Events after the death of the server.
const ENDS: [&str; 4] =
    ["the server returns", "a fresh cache", "the daemon dies, too", "the daemon and the cache"];

/// Programs see no error while the server is away, and nothing that was synced is lost.
#[test]
fn mounted_object_volumes_survive_deaths_of_their_server() {
    if !can_mount() {
        return;
    }
    let deaths = number_from_env("SFS_SERVER_DEATHS", 4);
    let seed = number_from_env("SFS_SEED", 1);
    let mut random = SeededRng::new(seed);
    let (store, mut machine) = Store::of_network().with_new_volume("64M");
    let mut workers = (0..THREADS).map(|no| Worker::new(no, seed)).collect::<Vec<_>>();
    let mut mount = machine.mount("durability=remote,cache_size=16M");
    for worker in &workers {
        fs::create_dir(mount.dir.join(&worker.name)).expect("room");
    }
    for death in 0..deaths {
        let end = ENDS[death as usize % ENDS.len()];
        println!("death {death}: {end}");
        let daemon_dies = end.starts_with("the daemon");
        let is_over = AtomicBool::new(false);
        let done = AtomicU64::new(0);
        let goal = random.below(60);
        let moments =
            [random.below(200), random.below(OUTAGE.as_millis() as u64), random.below(100)];
        let [before, outage, after] = moments.map(Duration::from_millis);
        thread::scope(|scope| {
            let work = |worker: &mut Worker| {
                while !is_over.load(Ordering::Relaxed) {
                    match worker.change(&mount.dir) {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(error) => return Err(error),
                    };
                }
                Ok(())
            };
            let threads = workers.iter_mut().map(|worker| scope.spawn(move || work(worker)));
            let threads = threads.collect::<Vec<_>>();
            let failed = || threads.iter().any(|thread| thread.is_finished());
            wait_until("the load", || failed() || done.load(Ordering::Relaxed) >= goal);
            thread::sleep(before);
            store.server().kill();
            thread::sleep(outage);
            assert!(!failed(), "programs see no error");
            if daemon_dies {
                mount.kill();
            }
            store.server().restart().expect("it starts again");
            thread::sleep(after);
            is_over.store(true, Ordering::Relaxed);
            for thread in threads {
                let result = thread.join().expect("a worker");
                if !daemon_dies && let Err(error) = result {
                    let stat = sfs_ctl_stat(&mount.dir, &[]);
                    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
                    panic!("programs see no error: {error}\n{stat}");
                }
            }
        });
        let mut options = "durability=remote,cache_size=16M".to_owned();
        match end {
            "the server returns" => {
                workers.iter_mut().for_each(|worker| worker.verify(&mount.dir));
                continue;
            }
            "a fresh cache" => {
                mount.unmount();
                machine = Machine::new(&store);
            }
            "the daemon dies, too" => mount.detach(),
            _ => {
                mount.detach();
                machine = Machine::new(&store);
                options += ",takeover";
            }
        }
        mount = machine.mount(&options);
        workers.iter_mut().for_each(|worker| worker.verify(&mount.dir));
    }
    mount.unmount();
}
