//! Tests of fault injection: the exact error, and the content of the inner device afterwards.

use super::*;
use crate::RamDevice;

const OPERATIONS: [Operation; 4] =
    [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard];

fn request(device: &FaultyDevice<RamDevice>, operation: Operation) -> Result<(), DeviceError> {
    match operation {
        Operation::Read => device.read(1, &mut [Block::ZERO]),
        Operation::Write => device.write(1, &[&[Block([1; 4096])]], Stream::default()),
        Operation::Flush => device.flush(),
        Operation::Discard => device.discard(1, 1),
        Operation::Open => unreachable!("not a request"),
    }
}

fn assert_fails(device: &FaultyDevice<RamDevice>, operation: Operation) {
    let error = request(device, operation).unwrap_err();
    assert_eq!(error.operation, operation);
    assert_eq!(error.source.raw_os_error(), Some(libc::EIO));
}

#[test]
fn the_nth_request_fails_once() {
    for operation in OPERATIONS {
        let device = FaultyDevice::new(RamDevice::new(4));
        device.fail_nth(operation, 3);
        for other in OPERATIONS.into_iter().filter(|other| *other != operation) {
            request(&device, other).unwrap();
        }
        request(&device, operation).unwrap();
        request(&device, operation).unwrap();
        assert_fails(&device, operation);
        request(&device, operation).unwrap();
    }
}

#[test]
fn all_requests_of_a_kind_fail_until_the_fault_is_removed() {
    for operation in OPERATIONS {
        let device = FaultyDevice::new(RamDevice::new(4));
        device.fail_all(operation, true);
        assert_fails(&device, operation);
        assert_fails(&device, operation);
        device.fail_all(operation, false);
        request(&device, operation).unwrap();
        device.fail_all(operation, true);
        device.fail_nth(operation, 1);
        device.heal();
        request(&device, operation).unwrap();
    }
}

#[test]
fn a_failed_write_changes_nothing() {
    let device = FaultyDevice::new(RamDevice::new(4));
    device.fail_nth(Operation::Write, 1);
    assert_fails(&device, Operation::Write);
    assert_eq!(device.inner().allocated_bytes(), 0);
}

#[test]
fn corrupt_reads_flips_one_bit_in_each_block_of_the_range() {
    let device = FaultyDevice::new(RamDevice::new(4));
    device.corrupt_reads(1..3);
    let mut found = Block::zeroed(4);
    device.read(0, &mut found).unwrap();
    let ones: Vec<u32> =
        found.iter().map(|block| block.0.iter().map(|byte| byte.count_ones()).sum()).collect();
    assert_eq!(ones, [0, 1, 1, 0]);
    device.heal();
    device.read(0, &mut found).unwrap();
    assert!(found.iter().all(|block| *block == Block::ZERO));
}
