//! Tests on devices that acknowledge writes and flushes that they do not perform.
//!
//! No contract can promise that the data of such a device survives. SFS promises that a read returns correct
//! data or an error, and that a mount succeeds with correct data or is refused.

use std::sync::Arc;

use sfs_core::Error;
use sfs_sim::crash::Crash;
use sfs_sim::model::random::SplitMix64;
use sfs_sim::silent_faults::{SilentFault, SilentFaultDevice};

use crate::witness::{Witness, check_image};

/// Repeats a run once for each of its writes, with a silent fault of this write.
///
/// Returns the number of runs that detected the fault.
fn inject_everywhere(fault: impl Fn(u64) -> SilentFault) -> u64 {
    let witness = Witness::new(3);
    let is_write = |event: &&sfs_device::Event| matches!(event, sfs_device::Event::Write { .. });
    let writes = witness.recorded.events.iter().filter(is_write).count() as u64;
    assert!(writes > 60, "a run of {writes} writes is too short");
    let mut detected = 0;
    for nth in 1..=writes {
        let device = Arc::new(SilentFaultDevice::new(witness.base.clone()));
        device.inject(nth, fault(nth));
        // While mounted, every answer is correct or an error.
        let while_mounted = witness.repeat(device.clone());
        // After a power cut, the mount may also be refused with the name of the corrupt structure.
        let afterwards = check_image(&witness, &device.image());
        detected += u64::from(while_mounted.is_err() || !matches!(afterwards, Ok(0)));
    }
    detected
}

/// "A read returns the written data or an error [...]; never wrong bytes."
#[test]
fn a_lost_write_gives_no_wrong_byte() {
    let detected = inject_everywhere(|_| SilentFault::Lost);
    assert!(detected > 0, "no lost write was detected");
}

/// Only the first half of a write arrives.
#[test]
fn a_half_lost_write_gives_no_wrong_byte() {
    let detected = inject_everywhere(|_| SilentFault::Half);
    assert!(detected > 0, "no lost half was detected");
}

/// The target of a misdirected write keeps its old blocks, and other blocks, perhaps live ones, are overwritten
/// by blocks that are valid in themselves.
#[test]
fn a_misdirected_write_gives_no_wrong_byte() {
    let detected = inject_everywhere(|nth| SilentFault::Misdirected(1 + nth * 37));
    assert!(detected > 0, "no misdirected write was detected");
}

/// The write is performed at its own address, and at another one.
#[test]
fn a_duplicated_write_gives_no_wrong_byte() {
    let detected = inject_everywhere(|nth| SilentFault::Duplicated(900 + nth * 3));
    assert!(detected > 0, "no duplicated write was detected");
}

/// After a power cut of a device that ignores flushes, any subset of all its writes can be there. Synced data
/// may be lost, but no answer is wrong.
#[test]
fn ignored_flushes_give_no_wrong_byte() {
    let mut refused = 0;
    for seed in 0..4 {
        let witness = Witness::new(seed);
        let events = &witness.recorded.events;
        let mut random = SplitMix64::new(seed);
        for _ in 0..60 {
            let end = random.below(events.len() as u64 + 1) as usize;
            let crash = Crash::random(0..end, &mut random);
            let image = crash.image(&witness.recorded.base, events);
            match check_image(&witness, &image) {
                Ok(_) => {}
                Err(Error::Corrupt(_)) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    assert!(refused > 0, "no ignored flush was detected");
}
