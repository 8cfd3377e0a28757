//! Power cuts under load: the device content of any moment mounts, passes the check, and holds the
//! data that had been synced before.
//!
//! `SFS_CUTS` is the number of cuts for each device and cache (default 2). `SFS_SEED` repeats the
//! choices of a run, but not the scheduling of the load's threads.

#[expect(dead_code, reason = "every test program uses a part of the module")]
#[path = "mount_power_cut/cut.rs"]
mod cut;
#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_power_cut/load.rs"]
mod load;

use std::env;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use cut::{Recorded, Reflinks};
use harness::{CACHES, TestVolume, can_mount};
use load::{Ledger, Loads, verify};
use sfs_testkit::{SeededRng, wait_until};

const CUTS: u64 = 2;

/// Size of the volume: small, so that the cleaner runs.
const SIZE: &str = "96M";

/// Largest number of syncs between two cuts.
const SYNCS_MAX: u64 = 150;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Returns the number of cuts and the generator of the choices, from the environment.
fn choices() -> (u64, SeededRng) {
    let cuts = number("SFS_CUTS").unwrap_or(CUTS);
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_micros() as u64);
    let seed = number("SFS_SEED").unwrap_or_else(clock);
    println!("replay: SFS_SEED={seed} SFS_CUTS={cuts} cargo test --test mount_power_cut");
    (cuts, SeededRng::new(seed))
}

#[test]
fn mounted_synced_files_survive_power_cuts_at_any_moment() {
    if !can_mount() {
        return;
    }
    let Some(reflinks) = Reflinks::new() else {
        eprintln!("skipped: no filesystem with reflinks");
        return;
    };
    let (cuts, mut random) = choices();
    for cache in CACHES {
        let below = TestVolume::below(&reflinks.dir, SIZE);
        let image = below.device.clone();
        let Some(volume) = below.looped() else { return };
        let to = reflinks.dir.join("cut");
        run(&volume, cache, cuts, &mut random, &to, |_| reflinks.cut(&image, &to));
    }
}

#[test]
fn mounted_synced_files_survive_power_cuts_that_lose_requests() {
    if !can_mount() {
        return;
    }
    let (cuts, mut random) = choices();
    for cache in CACHES {
        let made = TestVolume::new(SIZE);
        let mut recorded = Recorded::new(&made.device);
        let volume = TestVolume::existing(recorded.path.clone());
        let to = made.scratch.path().join("cut");
        run(&volume, cache, cuts, &mut random, &to, |random| recorded.cut(random, &to));
    }
}

/// Runs all loads on `volume` and cuts the power meanwhile; `cut` writes the remaining image to
/// `to`.
fn run(
    volume: &TestVolume,
    cache: &str,
    cuts: u64,
    random: &mut SeededRng,
    to: &Path,
    mut cut: impl FnMut(&mut SeededRng),
) {
    let mount = volume.mount(&format!("{cache},commit=1,checkpoint=1"));
    Loads::make_directories(&mount.dir);
    let (loads, seed) = (Loads::default(), random.next_u64());
    thread::scope(|scope| {
        for load in Loads::ALL {
            let (loads, dir) = (&loads, &mount.dir);
            scope.spawn(move || {
                let _watch = Watch(loads);
                load(loads, dir, seed);
            });
        }
        let _stop = Stop(&loads);
        for number in 0..cuts {
            let syncs_wanted = loads.ledger().acknowledged + random.below(SYNCS_MAX);
            wait_until("the loads", || {
                loads.is_over() || loads.ledger().acknowledged >= syncs_wanted
            });
            thread::sleep(Duration::from_micros(random.below(20_000)));
            assert!(!loads.is_over(), "a load has failed");
            let before = loads.ledger();
            cut(random);
            let ledger = before.until(&loads.ledger());
            println!("cut {number}, {cache}: {} syncs before the cut", ledger.acknowledged);
            examine(to, cache, &ledger);
        }
    });
    mount.unmount();
    volume.check();
}

/// Stops the loads when dropped, also on a panic.
struct Stop<'a>(&'a Loads);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Stops all loads if one of them panics.
struct Watch<'a>(&'a Loads);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Asserts that the image in the file `image` passes the check before and after a mount has
/// recovered it, and holds the synced data.
fn examine(image: &Path, cache: &str, ledger: &Ledger) {
    let left = TestVolume::existing(image.to_owned());
    left.check();
    let mount = left.mount(cache);
    verify(&mount.dir, ledger);
    mount.unmount();
    left.check();
}
