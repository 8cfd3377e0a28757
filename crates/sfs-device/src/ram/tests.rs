//! Tests of the memory device: content compared with a plain array of blocks, sparseness, snapshots, requests
//! past the end, and concurrent writes.

use super::*;

fn block(tag: u8) -> Block {
    Block([tag; BLOCK_SIZE])
}

fn read(device: &RamDevice, address: u64, count: usize) -> Vec<Block> {
    let mut buffer = Block::zeroed(count);
    device.read(address, &mut buffer).unwrap();
    buffer.into_vec()
}

fn write(device: &RamDevice, address: u64, blocks: &[Block]) {
    device.write(address, &[blocks], Stream::default()).unwrap();
}

#[test]
fn requests_at_every_alignment_match_a_plain_array() {
    let block_count = 4 * CHUNK_BLOCKS as u64;
    let device = RamDevice::new(block_count);
    let mut model = vec![Block::ZERO; block_count as usize];
    for round in 0..block_count {
        let (address, count) = (round, (round * 7 % 40).min(block_count - round));
        let range = address as usize..(address + count) as usize;
        if round % 3 == 2 {
            device.discard(address, count).unwrap();
            model[range.clone()].fill(Block::ZERO);
        } else {
            model[range.clone()].fill(block(round as u8 + 1));
            write(&device, address, &model[range.clone()]);
        }
        assert_eq!(read(&device, address, range.len()), model[range], "round {round}");
        assert_eq!(read(&device, 0, model.len()), model, "round {round}");
    }
}

#[test]
fn the_parts_of_a_write_are_adjacent_on_the_device() {
    let device = RamDevice::new(64);
    let (one, two) = ([block(1), block(2)], [block(3)]);
    device.write(15, &[&one, &[], &two], Stream(3)).unwrap();
    assert_eq!(read(&device, 14, 5), [block(0), block(1), block(2), block(3), block(0)]);
}

#[test]
fn a_terabyte_device_allocates_only_written_chunks() {
    let device = RamDevice::new(1 << 28);
    assert_eq!(device.allocated_bytes(), 0);
    assert_eq!(read(&device, (1 << 28) - 1, 1), [Block::ZERO]);
    device.write(5, &[&[]], Stream::default()).unwrap();
    assert_eq!(device.allocated_bytes(), 0);
    for address in [1, 20, 1 << 20, (1 << 28) - 1] {
        write(&device, address, &[block(9)]);
    }
    assert_eq!(device.allocated_bytes(), 4 * 64 * 1024);

    // The discard covers all but the first two blocks and the last.
    device.discard(2, (1 << 28) - 3).unwrap();
    assert_eq!(device.allocated_bytes(), 2 * 64 * 1024);
    assert_eq!(read(&device, 1, 1), [block(9)]);
    assert_eq!(read(&device, 20, 1), [Block::ZERO]);
    assert_eq!(read(&device, (1 << 28) - 1, 1), [block(9)]);
}

#[test]
fn a_snapshot_and_its_device_do_not_see_later_writes_of_each_other() {
    let device = RamDevice::new(64);
    write(&device, 0, &[block(1), block(2)]);
    write(&device, 16, &vec![block(3); 16]);
    let snapshot = device.snapshot();

    write(&device, 1, &[block(4)]);
    write(&device, 16, &vec![block(5); 16]);
    snapshot.discard(0, 1).unwrap();

    assert_eq!(read(&device, 0, 2), [block(1), block(4)]);
    assert_eq!(read(&device, 16, 16), vec![block(5); 16]);
    assert_eq!(read(&snapshot, 0, 2), [block(0), block(2)]);
    assert_eq!(read(&snapshot, 16, 16), vec![block(3); 16]);
}

#[test]
fn a_request_past_the_end_is_refused() {
    let device = RamDevice::new(8);
    let invalid = std::io::ErrorKind::InvalidInput;
    let two = [Block::ZERO, Block::ZERO];
    let error = device.write(7, &[&two[..1], &two[1..]], Stream::default()).unwrap_err();
    assert_eq!((error.operation, error.source.kind()), (Operation::Write, invalid));
    assert_eq!((error.offset, error.length), (7 * 4096, 2 * 4096));
    let error = device.read(8, &mut [Block::ZERO]).unwrap_err();
    assert_eq!((error.operation, error.source.kind()), (Operation::Read, invalid));
    let error = device.discard(u64::MAX, 2).unwrap_err();
    assert_eq!((error.operation, error.source.kind()), (Operation::Discard, invalid));
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn concurrent_writes_to_different_blocks_are_all_stored() {
    let device = RamDevice::new(8 * 64);
    std::thread::scope(|scope| {
        for thread_no in 0..8 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..50 {
                    // The addresses are interleaved, so that all threads write to every chunk.
                    for address in (thread_no..8 * 64).step_by(8) {
                        write(device, address, &[block(round ^ thread_no as u8)]);
                        assert_eq!(read(device, address, 1), [block(round ^ thread_no as u8)]);
                    }
                }
            });
        }
    });
}
