//! The wear ledger and the erase cycles: a check finds a malformed ledger, and a repair keeps what is sound.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{
    Day, EXTENSION_LEN_MAX, Extension, ExtensionClass, Timestamp, WearBytes, WearLedger,
};
use sfs_core::request::{VolumeOptions, Wear};
use sfs_device::{Device, RamDevice};
use sfs_fsck::Finding;

use super::fixture::{NOW, errors, populated, repair_with};
use super::forge::Forge;

fn ledger() -> WearLedger {
    let mut ledger = WearLedger::new(Day(22_000));
    let bytes =
        WearBytes { user: 1 << 30, cleaning: 5 << 20, metadata: 7 << 20, defragmentation: 0 };
    (0..500).for_each(|day| ledger.add(Day(22_000 + day), bytes));
    ledger
}

/// Returns a populated volume with a ledger and erase cycles, and a wrong number of files that a repair corrects.
fn worn() -> Forge {
    let mut forge = populated();
    forge.on_record = Box::new(|record| {
        record.device_bytes_written = ledger().totals.sum();
        ledger().put_into(&mut record.extensions, EXTENSION_LEN_MAX);
        sfs_core::format::FileCount(1000).put_into(&mut record.extensions);
    });
    forge.on_usage = Box::new(|table| {
        for (segment, entry) in (0..).zip(table) {
            entry.erases = 10 + segment;
        }
    });
    forge
}

fn wear_of(device: &Arc<dyn Device>) -> (Wear, Vec<u16>) {
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).expect("the volume opens");
    (volume.wear(), volume.segment_erases())
}

#[test]
fn a_repair_keeps_the_ledger_and_the_erase_cycles() {
    let volume = worn().build();
    assert!(matches!(errors(&volume)[..], [Finding::FileCount { .. }]), "{:?}", errors(&volume));
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    let (before, erases_before) = wear_of(&device);
    assert_eq!(before.ledger.totals, ledger().totals);
    let outcome = repair_with(&device, false, true);
    assert_eq!(outcome.errors_left(), 0);
    let (after, erases) = wear_of(&device);
    let (old, new) = (before.ledger.totals, after.ledger.totals);
    assert_eq!((new.user, new.cleaning), (old.user, old.cleaning));
    assert!(new.metadata > old.metadata, "the repair has written nodes");
    assert_eq!(after.device_bytes - before.device_bytes, new.sum() - old.sum());
    let day = Day::of(NOW);
    let of_repair = after.ledger.days().find(|(on, _)| *on == day).expect("the day of the repair");
    assert_eq!(of_repair.1.sum(), new.sum() - old.sum());
    assert!(erases_before.iter().zip(&erases).all(|(before, after)| before <= after));
    let sum = |erases: &[u16]| erases.iter().map(|count| u64::from(*count)).sum::<u64>();
    assert!(sum(&erases) > sum(&erases_before), "the repair has used a segment");
    assert_eq!(erases[5], 15, "a segment that the repair did not need");
}

#[test]
fn a_malformed_ledger_is_found_and_begun_anew() {
    let mut forge = populated();
    forge.on_record = Box::new(|record| {
        let bytes = vec![0xff; 200];
        record.extensions.set(Extension { tag: 7, class: ExtensionClass::Keep, bytes });
    });
    let volume = forge.build();
    assert_eq!(errors(&volume), [Finding::WearLedgerDamaged]);
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    // A mount counts the damage and begins a new ledger, too.
    let image: Arc<RamDevice> = Arc::new(volume.device.snapshot());
    let now = Timestamp { secs: NOW.secs + 86_400, ..NOW };
    let mounted = Volume::open(image, VolumeOptions::default(), now).expect("the volume opens");
    assert_eq!(mounted.remembered().errors.iter().count(), 1);
    assert_eq!(mounted.wear().ledger.since, Day::of(now));
    let outcome = repair_with(&device, true, false);
    assert_eq!(outcome.errors_left(), 0);
    let (after, _) = wear_of(&device);
    assert_eq!(after.ledger.since, Day::of(NOW));
}
