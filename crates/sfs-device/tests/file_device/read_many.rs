//! Tests of reads of many runs at once, where requests bypass the page cache and where they do not.

use std::path::Path;

use sfs_device::{BLOCK_SIZE, Block, Device, FileDevice, Operation, ReadPart, ReadRun, Stream};

use super::{ImageFile, numbered};

const BLOCKS: usize = 4000;

/// Returns whether the kernel gives this process rings.
fn has_rings() -> bool {
    // 0: on; 1: for root; 2: off. Without the file the kernel is older than the setting.
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    setting.is_ok_and(|setting| setting.trim() == "0")
}

/// Calls `check` with devices, without and with rings, whose blocks are numbered.
fn on_devices(check: impl Fn(&FileDevice)) {
    for parent in [std::env::temp_dir(), "/dev/shm".into()] {
        if !Path::new(&parent).exists() {
            println!("skip: no {}", parent.display());
            continue;
        }
        let (_image, device) = numbered_device(&parent);
        check(&device);
        let (_image, device) = numbered_device(&parent);
        let rings = device.make_read_rings(2);
        println!("{}: direct I/O: {}, {rings} rings", parent.display(), device.direct_io());
        assert!(rings == 2 || !device.direct_io() || !has_rings(), "{rings} rings");
        check_runs(&device, &[(1, vec![(true, 2), (false, 300), (true, 1)]), (9, vec![(true, 5)])]);
        check_runs(&device, &[(1, vec![(true, 2), (false, 2), (true, 1)]), (9, vec![(true, 5)])]);
        // One run of the first call skips more than a ring has memory for.
        assert_eq!(device.ring_requests(), if rings > 0 { 3 } else { 0 });
        check(&device);
    }
}

/// Returns a device whose blocks are numbered.
fn numbered_device(parent: &Path) -> (ImageFile, FileDevice) {
    let image = ImageFile::within(parent, BLOCKS as u64);
    let device = image.open();
    device.write(0, &[&numbered(BLOCKS)], Stream::default()).unwrap();
    (image, device)
}

/// Reads runs of an address, and of parts: blocks that are wanted (true) or skipped. Compares the wanted ones.
fn check_runs(device: &FileDevice, runs: &[(u64, Vec<(bool, usize)>)]) {
    let expected = numbered(BLOCKS);
    let mut memory: Vec<Vec<Box<[Block]>>> = runs
        .iter()
        .map(|(_, parts)| parts.iter().map(|(_, count)| Block::zeroed(*count)).collect())
        .collect();
    let part = |((is_wanted, count), blocks)| match is_wanted {
        true => ReadPart::Into(blocks),
        false => ReadPart::Skip(count),
    };
    let run = |((address, parts), memory): (&(u64, Vec<_>), _)| {
        let memory: &mut Vec<Box<[Block]>> = memory;
        let memory = memory.iter_mut().map(|blocks| &mut blocks[..]);
        ReadRun { address: *address, parts: parts.iter().copied().zip(memory).map(part).collect() }
    };
    let mut list: Vec<ReadRun<'_>> = runs.iter().zip(&mut memory).map(run).collect();
    let outcomes = device.read_many(&mut list);
    assert!(outcomes.len() == runs.len() && outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    for ((address, parts), memory) in runs.iter().zip(&memory) {
        let mut at = *address as usize;
        for ((is_wanted, count), blocks) in parts.iter().zip(memory) {
            let all = &expected[at..at + count];
            let zeros = Block::zeroed(*count);
            assert!(&blocks[..] == if *is_wanted { all } else { &zeros[..] }, "at {at}");
            at += count;
        }
    }
}

#[test]
fn runs_are_read_whole_whatever_they_skip() {
    on_devices(|device| {
        check_runs(device, &[]);
        check_runs(device, &[(5, vec![(true, 3)])]);
        check_runs(device, &[(0, vec![(true, 1), (false, 40), (true, 2)]), (7, vec![(true, 1)])]);
        // More runs than a ring has entries, of up to a few megabytes, with more parts than a call takes.
        let short =
            (0..300).map(|no| (no * 13, vec![(true, 1 + no as usize % 5), (false, 3), (true, 1)]));
        check_runs(device, &short.collect::<Vec<_>>());
        let parts = || (0..3000).map(|no| (no % 2 == 0, 1)).collect::<Vec<_>>();
        check_runs(device, &[(0, parts()), (900, parts()), (1000, vec![(true, 3000)])]);
        for turn_bytes in [0, BLOCK_SIZE, 10 * BLOCK_SIZE] {
            device.set_turn(turn_bytes, BLOCK_SIZE);
            let runs: Vec<_> = (0..100).map(|no| (no * 39, vec![(true, 20)])).collect();
            check_runs(device, &runs);
        }
    });
}

#[test]
fn only_a_run_past_the_end_fails() {
    on_devices(|device| {
        let mut memory = Block::zeroed(6);
        let (first, rest) = memory.split_at_mut(2);
        let (second, third) = rest.split_at_mut(2);
        let run = |address, blocks| ReadRun { address, parts: vec![ReadPart::Into(blocks)] };
        let past = BLOCKS as u64 - 1;
        let mut runs = [run(3, first), run(past, second), run(u64::MAX, third)];
        let outcomes = device.read_many(&mut runs);
        assert!(outcomes[0].is_ok());
        for (outcome, address) in outcomes[1..].iter().zip([past, u64::MAX]) {
            let error = outcome.as_ref().expect_err("past the end");
            assert_eq!(error.operation, Operation::Read);
            assert_eq!(error.offset, address.saturating_mul(BLOCK_SIZE as u64));
        }
        assert!(memory[..2] == numbered(5)[3..]);
    });
}

#[test]
fn a_file_that_has_become_shorter_fails_the_runs_behind_its_end() {
    on_devices(|device| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(device.path())
            .and_then(|file| file.set_len(100 * BLOCK_SIZE as u64))
            .unwrap();
        let mut memory = Block::zeroed(30);
        let mut rest = &mut memory[..];
        let mut runs = Vec::new();
        for address in [10, 95, 200] {
            let (blocks, after) = rest.split_at_mut(10);
            rest = after;
            runs.push(ReadRun { address, parts: vec![ReadPart::Into(blocks)] });
        }
        let outcomes = device.read_many(&mut runs);
        let kinds =
            outcomes.iter().map(|outcome| outcome.as_ref().map_err(|error| error.source.kind()));
        let eof = std::io::ErrorKind::UnexpectedEof;
        assert_eq!(kinds.collect::<Vec<_>>(), [Ok(&()), Err(eof), Err(eof)]);
        assert!(memory[..10] == numbered(20)[10..]);
    });
}

/// There are fewer rings than threads.
#[test]
fn threads_read_at_the_same_time() {
    on_devices(|device| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0..20_u64 {
                        let at = |no: u64| (no * 17 + thread * 100 + round * 3) % 3900;
                        let mut runs: Vec<_> = (0..100)
                            .map(|no| (at(no), vec![(true, 2), (false, 1), (true, 4)]))
                            .collect();
                        runs.sort_by_key(|run| run.0);
                        check_runs(device, &runs);
                    }
                });
            }
        });
    });
}
