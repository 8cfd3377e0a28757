//! A sync that others wait for fails.

use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::WriteMode;
use sfs_device::{FaultyDevice, GatedDevice, Operation};

use crate::fixture::{FILE, SEGMENT_BLOCKS, caller, open, ram_as, tight};
use crate::watchdog::within;

fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// Who waits behind a sync that fails is not told that his data is durable unless it is.
#[test]
fn a_failed_sync_takes_nobody_along() {
    within(60, || {
        let faulty = FaultyDevice::new(ram_as(16 << 20, SEGMENT_BLOCKS, DataLayout::Log));
        let device = Arc::new(GatedDevice::new(faulty));
        let volume = open(device.clone(), tight());
        let make = |name: &[u8]| volume.make_node(ROOT_INO, name, FILE, 0, &caller());
        let [a, b, c] = [&b"a"[..], b"b", b"c"].map(|name| make(name).expect("a file").ino);
        let mode = WriteMode::default();
        volume.write(a, 0, &vec![1; 1000 * 4096], mode, &caller()).expect("a write");
        volume.close().expect("it closes");
        drop(volume);

        let volume = Arc::new(open(device.clone(), tight()));
        volume.write(b, 0, &[2; 5000], mode, &caller()).expect("a write");
        volume.write(c, 0, &[2; 5000], mode, &caller()).expect("a write");
        let sync = |ino: u64| {
            let volume = volume.clone();
            std::thread::spawn(move || volume.sync_file(ino))
        };
        device.close(Operation::Write);
        let first = sync(c);
        device.wait_until_reached();
        // A whole block, of whose mapping nothing is in memory: the commit has to read it.
        volume.write(a, 500 * 4096, &[3; 4096], mode, &caller()).expect("a write");
        let (of_a, of_b) = (sync(a), sync(b));
        wait_for(|| volume.counters().syncs == 3);
        // They queue up right after they have been counted.
        (0..10_000).for_each(|_| std::thread::yield_now());
        device.inner().fail_nth(Operation::Read, 1);
        device.open();
        first.join().expect("no panic").expect("a sync");
        let outcomes = [of_a, of_b].map(|thread| thread.join().expect("no panic"));
        let failed = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Device(_))));
        assert_eq!(failed.count(), 1, "{outcomes:?}");

        let recovered = open(Arc::new(device.inner().inner().snapshot()), tight());
        let found = recovered.read(b, 0, 9000).expect("it reads");
        assert!(outcomes[1].is_err() || found.as_bytes() == [2; 5000], "it is not durable");
        let found = recovered.read(a, 500 * 4096, 4096).expect("it reads");
        assert!(outcomes[0].is_err() || found.as_bytes() == [3; 4096], "it is not durable");
    });
}
