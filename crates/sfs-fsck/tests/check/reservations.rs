//! Reservations: their ranges, their flag and their totals, checked and repaired.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{InodeFlags, ItemKind, Reservation, ReservationTotals};
use sfs_core::request::VolumeOptions;
use sfs_device::Device;
use sfs_fsck::Finding;

use super::fixture::{NOW, check_device, errors, populated, repair_with};
use super::forge::{DATA, Forge, SUB};

/// Returns a populated volume with reservations of [`DATA`] that are far behind its data.
fn reserving(ranges: &[(u32, u32)]) -> Forge {
    let mut forge = populated();
    let ranges: Vec<Reservation> =
        ranges.iter().map(|(first, last)| Reservation { first: *first, last: *last }).collect();
    let mut totals = ReservationTotals::default();
    for range in ranges {
        forge.put(range.key(DATA), range.encode().to_vec());
        totals.add(range);
    }
    forge.change_inode(DATA, |inode| {
        inode.flags.set(InodeFlags::RESERVED, true);
        inode.blocks += totals.blocks;
    });
    forge.on_record = Box::new(move |record| totals.put_into(&mut record.extensions));
    forge
}

/// Asserts that a repair mends exactly `found`, and that the volume can be used afterwards.
#[track_caller]
fn assert_found(forge: &Forge, found: &[Finding], preen: bool) {
    let volume = forge.build();
    assert_eq!(errors(&volume), found);
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    assert_eq!(repair_with(&device, preen, true).errors_left(), 0);
    assert_eq!(check_device(&*device, true).expect("a volume").errors(), 0);
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("it opens");
    assert_eq!(volume.audit().expect("an audit"), []);
    volume.close().expect("the volume closes");
}

#[test]
fn sound_reservations_are_no_finding() {
    assert_eq!(errors(&reserving(&[(1000, 1999), (4000, u32::MAX)]).build()), []);
}

#[test]
fn the_totals_are_checked() {
    let mut forge = reserving(&[(1000, 1999), (3000, 3000)]);
    let finding = Finding::ReservationTotals { blocks: 1001, ranges: 2 };
    for totals in [(0, 0), (1001, 1), (1000, 2), (1 << 60, 2)] {
        let totals = ReservationTotals { blocks: totals.0, ranges: totals.1 };
        forge.on_record = Box::new(move |record| totals.put_into(&mut record.extensions));
        assert_found(&forge, std::slice::from_ref(&finding), true);
    }
}

#[test]
fn ranges_are_checked_against_mappings_and_each_other() {
    let overlap = |first| Finding::ReservationOverlap { ino: DATA, first };
    assert_found(&reserving(&[(0, 1999)]), &[overlap(0)], false);
    assert_found(&reserving(&[(1000, 1999), (1999, 2000)]), &[overlap(1999)], false);
    let mut forge = reserving(&[(1000, 1999)]);
    let flags = |inode: &mut sfs_core::format::Inode| {
        inode.flags.set(InodeFlags::RESERVED, false);
    };
    forge.change_inode(DATA, flags);
    assert_found(&forge, &[Finding::ReservationFlag { ino: DATA }], true);
    let mut forge = reserving(&[(1000, 1999)]);
    forge.change_inode(DATA, |inode| inode.blocks -= 1);
    let blocks = 1000 + mapped_blocks() - 1;
    let finding = Finding::BlockCount { ino: DATA, blocks, counted: blocks + 1 };
    assert_found(&forge, &[finding], true);
}

fn mapped_blocks() -> u64 {
    let key = sfs_core::format::Key::inode(DATA);
    let forge = populated();
    let inode = sfs_core::format::Inode::decode(
        &forge.items[&key],
        DATA,
        sfs_core::format::Tolerance::Exact,
    );
    inode.expect("an inode").blocks
}

#[test]
fn items_that_are_no_reservations_are_dropped() {
    let range = Reservation { first: 3, last: 5 };
    let mut forge = reserving(&[(1000, 1999)]);
    forge.put(range.key(SUB), range.encode().to_vec());
    let totals = ReservationTotals { blocks: 1003, ranges: 2 };
    forge.on_record = Box::new(move |record| totals.put_into(&mut record.extensions));
    assert_found(&forge, &[Finding::ReservationOwner { ino: SUB }], false);
    let mut forge = reserving(&[(1000, 1999)]);
    let key = range.key(DATA);
    forge.put(key, vec![2, 0, 0, 0]);
    assert_found(&forge, &[Finding::ItemDamaged { key }], false);
    let key = sfs_core::format::Key::new(DATA, ItemKind::Reservation, 1 << 32);
    let mut forge = reserving(&[(1000, 1999)]);
    forge.put(key, range.encode().to_vec());
    assert_found(&forge, &[Finding::ItemDamaged { key }], false);
}
