//! Devices that acknowledge what they do not do. No contract can promise that the data is there;
//! ours promises that a read is right or an error, and that a mount is right or a refusal.

use std::sync::Arc;

use sfs_core::Error;
use sfs_sim::crash::Crash;
use sfs_sim::lying::{Lie, LyingDevice};
use sfs_sim::model::random::Random;

use crate::witness::{Witness, judge_image};

/// Each write of a run is a lie, one after the other; gives how many of these runs noticed.
fn lie_everywhere(lie: impl Fn(u64) -> Lie) -> u64 {
    let witness = Witness::new(3);
    let is_write = |event: &&sfs_device::Event| matches!(event, sfs_device::Event::Write { .. });
    let writes = witness.history.events.iter().filter(is_write).count() as u64;
    assert!(writes > 60, "a run of {writes} writes is too short");
    let mut noticed = 0;
    for nth in 1..=writes {
        let device = Arc::new(LyingDevice::new(witness.base.clone()));
        device.lie(nth, lie(nth));
        // While it is mounted: right, or an error.
        let while_mounted = witness.repeat(device.clone());
        // After the power went: right, an error, or a refusal that names what is corrupt.
        let afterwards = judge_image(&witness, &device.image());
        noticed += u64::from(while_mounted.is_err() || !matches!(afterwards, Ok(0)));
    }
    noticed
}

/// "A read returns what was written or an error [...]; never wrong bytes."
#[test]
fn a_write_that_is_lost_gives_no_wrong_byte() {
    let noticed = lie_everywhere(|_| Lie::Lost);
    assert!(noticed > 0, "nothing was lost");
}

/// The same, when half of it arrives.
#[test]
fn a_write_that_is_cut_short_gives_no_wrong_byte() {
    let noticed = lie_everywhere(|_| Lie::Half);
    assert!(noticed > 0, "nothing was lost");
}

/// The same, when it goes somewhere else: to where it belongs is nothing new, and something that
/// may be needed is overwritten with a block that is sound in itself.
#[test]
fn a_write_that_is_misdirected_gives_no_wrong_byte() {
    let noticed = lie_everywhere(|nth| Lie::Misdirected(1 + nth * 37));
    assert!(noticed > 0, "nothing was hit");
}

/// The same, when it is done twice, the second time somewhere else.
#[test]
fn a_write_that_is_duplicated_gives_no_wrong_byte() {
    let noticed = lie_everywhere(|nth| Lie::Duplicated(900 + nth * 3));
    assert!(noticed > 0, "nothing was hit");
}

/// A device whose flushes do nothing, and whose power goes: of all that it was ever asked any part
/// may be there, in any order. What was synced may be gone, but no answer is wrong.
#[test]
fn flushes_that_lie_give_no_wrong_byte() {
    let mut refused = 0;
    for seed in 0..4 {
        let witness = Witness::new(seed);
        let events = &witness.history.events;
        let mut random = Random::new(seed);
        for _ in 0..60 {
            let end = random.below(events.len() as u64 + 1) as usize;
            let crash = Crash::random(0..end, &mut random);
            let image = crash.image(&witness.history.base, events);
            match judge_image(&witness, &image) {
                Ok(_) => {}
                Err(Error::Corrupt(_)) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    assert!(refused > 0, "no flush mattered");
}
