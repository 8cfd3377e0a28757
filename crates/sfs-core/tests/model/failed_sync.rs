//! A failing sync that other syncs wait for.

use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::WriteMode;
use sfs_device::{FaultyDevice, GatedDevice, Operation};

use crate::fixture::{FILE, SEGMENT_BLOCKS, caller, open, ram_as, tight};
use crate::watchdog::within;

/// Number of runs of blocks of a file.
const RUNS: u64 = 5000;

/// Offset of a block in the middle of the file, in bytes.
const MIDDLE: u64 = RUNS / 2 * 2 * 4096;

fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// A sync that waits for a failing one must report success only if its own data is durable.
#[test]
fn a_sync_after_a_failed_one_succeeds_only_if_its_data_is_durable() {
    within(60, || {
        let faulty = FaultyDevice::new(ram_as(64 << 20, SEGMENT_BLOCKS, DataLayout::Log));
        let device = Arc::new(GatedDevice::new(faulty));
        let volume = open(device.clone(), tight());
        let make = |name: &[u8]| volume.make_node(ROOT_INO, name, FILE, 0, &caller());
        let [a, b, c] = [&b"a"[..], b"b", b"c"].map(|name| make(name).expect("a file").ino);
        let mode = WriteMode::default();
        // So many runs that the middle of the mapping is not read along with the inodes.
        for block in 0..RUNS {
            volume.write(a, 2 * block * 4096, &[1; 4096], mode, &caller()).expect("a write");
        }
        volume.close().expect("the volume closes");
        drop(volume);

        let volume = Arc::new(open(device.clone(), tight()));
        // After this failure every node is read alone.
        device.inner().fail_nth(Operation::Read, 1);
        volume.write(b, 0, &[2; 5000], mode, &caller()).expect("a write");
        volume.write(c, 0, &[2; 5000], mode, &caller()).expect("a write");
        let sync = |ino: u64| {
            let volume = volume.clone();
            std::thread::spawn(move || volume.sync_file(ino))
        };
        device.close(Operation::Write);
        let first = sync(c);
        device.wait_until_reached();
        // A whole block whose mapping is not in memory: the commit has to read the node of the mapping.
        volume.write(a, MIDDLE, &[3; 4096], mode, &caller()).expect("a write");
        let (of_a, of_b) = (sync(a), sync(b));
        wait_for(|| volume.counters().syncs == 3);
        // A sync joins the queue right after it has been counted.
        (0..10_000).for_each(|_| std::thread::yield_now());
        device.inner().fail_nth(Operation::Read, 1);
        device.open();
        first.join().expect("no panic").expect("a sync");
        let outcomes = [of_a, of_b].map(|thread| thread.join().expect("no panic"));
        let failed = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Device(_))));
        assert_eq!(failed.count(), 1, "{outcomes:?}");

        let recovered = open(Arc::new(device.inner().inner().snapshot()), tight());
        let found = recovered.read(b, 0, 9000).expect("the read succeeds");
        assert!(
            outcomes[1].is_err() || found.as_bytes() == [2; 5000],
            "data of a successful sync is not durable"
        );
        let found = recovered.read(a, MIDDLE, 4096).expect("the read succeeds");
        assert!(
            outcomes[0].is_err() || found.as_bytes() == [3; 4096],
            "data of a successful sync is not durable"
        );
    });
}
