//! Tests on devices that return errors, or corrupt data.

use std::sync::Arc;

use sfs_core::format::{CorruptionKind, ROOT_INO, Structure};
use sfs_core::request::WriteMode;
use sfs_core::{Error, Volume};
use sfs_device::{Device, FaultyDevice, Operation, RamDevice};

use sfs_sim::model::fixture::{FILE, NOW, SEGMENT_BLOCKS, after, caller, open, ram, settle, tight};
use sfs_sim::model::random::number;

type Faulty = FaultyDevice<RamDevice>;

fn faulty() -> Arc<Faulty> {
    Arc::new(FaultyDevice::new(ram(8 << 20, SEGMENT_BLOCKS)))
}

fn make(volume: &Volume, name: &[u8], byte: u8) -> u64 {
    let ino = volume.make_node(ROOT_INO, name, FILE, 0, &caller()).expect("a file").ino;
    write(volume, ino, byte).expect("a write");
    ino
}

fn write(volume: &Volume, ino: u64, byte: u8) -> Result<(), Error> {
    volume.write(ino, 0, &[byte; 20_000], WriteMode::default(), &caller())
}

fn assert_content(volume: &Volume, ino: u64, byte: u8) {
    assert!(volume.read(ino, 0, 30_000).expect("a read").as_bytes() == [byte; 20_000]);
}

/// "A device that fails a write turns the volume read-only; data in memory can still be read."
#[test]
fn a_failing_device_turns_the_volume_read_only() {
    for operation in [Operation::Write, Operation::Flush] {
        let device = faulty();
        let volume = open(device.clone(), tight());
        let synced = make(&volume, b"synced", 1);
        volume.sync_all().expect("a sync");
        let waiting = make(&volume, b"waiting", 2);
        device.fail_all(operation, true);
        let refused = volume.sync_file(waiting);
        assert!(matches!(refused, Err(Error::Device(_))), "{refused:?}");
        device.heal();
        // The volume stays read-only although the device works again.
        assert!(matches!(volume.sync_all(), Err(Error::Stopped)));
        for ino in [synced, waiting] {
            assert!(matches!(volume.sync_file(ino), Err(Error::Stopped)));
        }
        assert!(matches!(write(&volume, synced, 3), Err(Error::ReadOnly)));
        assert!(matches!(volume.unlink(ROOT_INO, b"synced", &caller()), Err(Error::ReadOnly)));
        assert!(matches!(volume.work(after(60_000)), Err(Error::Stopped)));
        assert!(matches!(volume.close(), Err(Error::Stopped)));
        assert_content(&volume, synced, 1);
        assert_content(&volume, waiting, 2);
        drop(volume);
        let volume = open(device, tight());
        assert_content(&volume, synced, 1);
    }
}

/// A sync after a shutdown reports the loss in the same way as after a failed write.
#[test]
fn a_sync_after_a_shutdown_reports_unsynced_data_as_lost() {
    let device = faulty();
    let volume = open(device.clone(), tight());
    let synced = make(&volume, b"synced", 1);
    volume.sync_all().expect("a sync");
    let waiting = make(&volume, b"waiting", 2);
    volume.shut_down();
    for ino in [synced, waiting] {
        assert!(matches!(volume.sync_file(ino), Err(Error::Stopped)));
        assert!(matches!(write(&volume, ino, 3), Err(Error::Stopped)));
    }
    assert!(matches!(volume.sync_all(), Err(Error::Stopped)));
    assert!(matches!(volume.unlink(ROOT_INO, b"synced", &caller()), Err(Error::Stopped)));
    assert!(matches!(volume.work(after(60_000)), Err(Error::Stopped)));
    assert!(matches!(volume.close(), Err(Error::Stopped)));
    assert_content(&volume, synced, 1);
    assert_content(&volume, waiting, 2);
}

/// In each iteration another request of the run fails.
#[test]
fn any_failed_request_neither_panics_nor_loses_synced_data() {
    for operation in [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard] {
        for nth in 1..number("SFS_FAULTS", 40) {
            let device = faulty();
            let volume = open(device.clone(), tight());
            let synced = make(&volume, b"synced", 1);
            volume.close().expect("the volume closes");
            let Ok(volume) = Volume::open(device.clone(), tight(), NOW) else { panic!("opens") };
            device.fail_nth(operation, nth);
            let run = || -> Result<(), Error> {
                for round in 0..6u8 {
                    let name = [b'a' + round];
                    let entry = volume.make_node(ROOT_INO, &name, FILE, 0, &caller())?;
                    write(&volume, entry.ino, round)?;
                    volume.sync_file(entry.ino)?;
                    assert!(volume.read(synced, 0, 30_000)?.as_bytes() == [1; 20_000]);
                    settle(&volume, after(310_000 * u64::from(round + 1)))?;
                }
                volume.close()
            };
            match run() {
                Ok(()) | Err(Error::Device(_)) => {}
                Err(error) => panic!("{operation:?} {nth}: {error:?}"),
            }
            drop(volume);
            device.heal();
            let volume = open(device, tight());
            assert_content(&volume, synced, 1);
        }
    }
}

/// "A read returns the written data or an error [...]; never wrong bytes."
#[test]
fn corrupted_data_is_an_error() {
    let device = faulty();
    let volume = open(device.clone(), tight());
    let ino = make(&volume, b"f", 7);
    volume.sync_all().expect("a sync");
    let block_count = device.geometry().block_count;
    device.corrupt_reads(0..block_count);
    match volume.read(ino, 0, 4096) {
        Err(Error::Corrupt(damage)) => {
            assert_eq!(
                (damage.structure, damage.kind),
                (Structure::Data, CorruptionKind::Checksum)
            );
        }
        other => panic!("{other:?}"),
    }
    // A partial overwrite would hide the damage under a new checksum.
    let partial = volume.write(ino, 10, &[8; 10], WriteMode::default(), &caller());
    assert!(matches!(partial, Err(Error::Corrupt(_))), "{partial:?}");
    volume.write(ino, 0, &[8; 4096], WriteMode::default(), &caller()).expect("a whole block");
    device.heal();
    let bytes = volume.read(ino, 0, 8192).expect("a read");
    assert!(bytes.as_bytes()[..4096] == [8; 4096] && bytes.as_bytes()[4096..] == [7; 4096]);
}
