//! Two machines take one volume over at about the same time, again and again.

use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sfs_testkit::{SeededRng, number_from_env};

use super::harness::{Mount, can_mount, stderr};
use super::machine::{Machine, Store};
use super::worker::Worker;

/// Longest time between the two mounts of a race.
const GAP_MS: u64 = 150;

/// Longest race, which ends without a loser then.
const RACE_MAX: Duration = Duration::from_secs(60);

/// Longest time that the winner goes on alone.
const ALONE_MS: u64 = 50;

/// Takes the volume over, and writes until the race is over or the volume is lost. Returns the mount, and whether it can still write.
fn take_part(
    machine: &Machine,
    worker: &mut Worker,
    is_over: &AtomicBool,
    lost: &AtomicU64,
) -> Option<(Mount, bool)> {
    let output = machine.try_mount("takeover,durability=remote");
    if !output.status.success() {
        let said = stderr(&output);
        lost.fetch_add(1, Ordering::SeqCst);
        let is_lost = said.contains("taken over") || said.contains("has the volume");
        assert!(is_lost || said.contains("has taken"), "{said}");
        return None;
    }
    let mount = machine.volume.mounted();
    let dir = mount.dir.join(&worker.name);
    let made = fs::create_dir(&dir).or_else(|error| match dir.is_dir() {
        true => Ok(()),
        false => Err(error),
    });
    let made = made.and_then(|()| File::open(&mount.dir)?.sync_all());
    let mut change = || match &made {
        Ok(()) => worker.change(&mount.dir).is_ok(),
        Err(_) => false,
    };
    while change() {
        if is_over.load(Ordering::SeqCst) {
            return Some((mount, true));
        }
    }
    lost.fetch_add(1, Ordering::SeqCst);
    Some((mount, false))
}

/// One wins and the other stops. On a third machine everything is there that either has synced, and each file is whole.
#[test]
fn mounted_object_volumes_are_taken_by_one_of_two() {
    if !can_mount() {
        return;
    }
    let races = number_from_env("SFS_RACES", 2);
    let seed = number_from_env("SFS_SEED", 1);
    let mut random = SeededRng::new(seed);
    let (store, first) = Store::with_volume("64M");
    let mut machines = [first, Machine::new(&store)];
    let mut workers = [1, 2].map(|no| Worker::new(no, seed));
    let (mut winners, mut beginnings) = ([0, 0], 0);
    for race in 0..races {
        let gaps = [random.below(GAP_MS), random.below(GAP_MS)];
        let alone = Duration::from_millis(random.below(ALONE_MS));
        let (is_over, lost) = (AtomicBool::new(false), AtomicU64::new(0));
        let entrants = thread::scope(|scope| {
            let begin = machines.iter().zip(&mut workers).zip(gaps);
            let threads = begin.map(|((machine, worker), gap)| {
                let (is_over, lost) = (&is_over, &lost);
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(gap));
                    take_part(machine, worker, is_over, lost)
                })
            });
            let threads = threads.collect::<Vec<_>>();
            let end = Instant::now() + RACE_MAX;
            let all_ended = || threads.iter().all(|one| one.is_finished());
            while lost.load(Ordering::SeqCst) == 0 && !all_ended() && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
            // The other may still be about to mount.
            thread::sleep(alone);
            is_over.store(true, Ordering::SeqCst);
            threads.into_iter().map(|one| one.join().expect("no panic")).collect::<Vec<_>>()
        });
        let writes =
            |entrant: &Option<(Mount, bool)>| entrant.as_ref().is_some_and(|(_, can)| *can);
        let number = entrants.iter().filter(|entrant| writes(entrant)).count();
        println!(
            "race {race}, gaps {gaps:?}: {:?}",
            entrants.iter().map(writes).collect::<Vec<_>>()
        );
        assert_eq!(number, 1, "race {race}: one of two can write");
        beginnings += entrants.iter().flatten().count();
        for (no, entrant) in entrants.into_iter().enumerate() {
            match entrant {
                Some((mount, true)) => {
                    winners[no] += 1;
                    mount.unmount();
                }
                Some((mount, false)) => {
                    mount.kill();
                    mount.detach();
                }
                None => {}
            }
            if machines[no].cache.exists() {
                machines[no].lose_cache();
            }
        }
        let third = Machine::new(&store);
        let mount = third.mount("");
        for worker in workers.iter_mut().filter(|worker| mount.dir.join(&worker.name).is_dir()) {
            worker.verify(&mount.dir);
        }
        mount.unmount();
        // The order in which the two are asked changes.
        machines.rotate_left(1);
        workers.rotate_left(1);
        winners.rotate_left(1);
    }
    println!("{races} races, {beginnings} mounts, won {winners:?}");
}
